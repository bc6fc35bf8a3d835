"""Finds out which tasks of lm_eval can be audited, and why the others cannot."""
