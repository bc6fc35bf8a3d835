"""Audits as tasks of the harness: where their questions come from, what they ask, how they are judged."""
