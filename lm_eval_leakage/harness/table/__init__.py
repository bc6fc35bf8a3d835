"""Computes the rows of lm_eval's results table from verdicts."""
