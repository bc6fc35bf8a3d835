"""Which tasks of the harness can be audited, and why not."""
