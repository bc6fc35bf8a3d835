"""Verdicts as rows of the harness's results table."""
