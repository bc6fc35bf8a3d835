"""Golden outputs: what every command prints and writes on fixed answers, kept in `expected`, compared value by value.

`WRITE_GOLDEN=1 pytest tests/golden` writes them again; a value that changed needs its reason in CHANGELOG.md.
"""
