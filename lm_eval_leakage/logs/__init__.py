"""Reads and writes the files of runs and audits: samples logs, results files and the answer store."""
