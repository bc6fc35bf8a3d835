"""Writes the expected outputs again, or compares with them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from tests.golden.cases import CASES
from tests.golden.comparison import EXPECTED, WRITE


def main() -> int:
    """The exit status of the tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what is found instead of comparing")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these (default: all)")
    told = parser.parse_args()
    if unknown := sorted({*told.cases} - {*CASES}):
        parser.error(f"no such case: {', '.join(unknown)}; choose from {', '.join(CASES)}")
    if told.write:
        os.environ[WRITE] = "1"
        for file in EXPECTED.glob("*.txt"):
            if file.stem not in CASES:
                file.unlink()
    test = str(Path(__file__).with_name("test_golden.py"))
    chosen = [f"{test}::test_a_command_prints_and_writes_what_is_kept[{name}]" for name in told.cases]
    return int(pytest.main(["-q", "-n", "auto", *(chosen or [test])]))


if __name__ == "__main__":
    sys.exit(main())
