"""What runs and audits leave on disk: samples logs, results files, the answer store."""
