"""Contamination on purpose, where the truth is known."""
