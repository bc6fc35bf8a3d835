"""What runs and audits leave on disk: samples logs, results files, calibrations, the answer store."""
