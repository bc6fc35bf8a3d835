"""Everything that reaches into the harness's private parts, one module for each."""
