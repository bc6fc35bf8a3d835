"""Joins runs and audits, and turns them into tables, files and verdicts; nothing here runs a model."""
