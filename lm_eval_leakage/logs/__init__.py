"""What runs and audits leave on disk, written and read in one place each."""
