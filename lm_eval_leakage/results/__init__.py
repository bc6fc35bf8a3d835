"""Runs of the harness, read from their files; nothing here runs a model."""
