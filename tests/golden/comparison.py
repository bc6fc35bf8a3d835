"""Two texts of a case, compared: values with many decimals within a tolerance, everything else exactly."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected")  # a file for each case
WRITE = "WRITE_GOLDEN"  # if this is set, outputs are written instead of compared
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
DECIMALS = 7  # a value with so many is given in full; a rounded one has to be the same
RELATIVE, ABSOLUTE = 1e-6, 1e-12
SECTION = re.compile(r"==> (.*) <==")
CONTEXT = 3  # lines around a difference


def differences(case: str, expected: str, actual: str) -> str:
    """A unified diff whose hunks name the command or the file; empty if nothing differs that matters."""
    if expected == actual:
        return ""
    wanted = expected.split("\n")
    settled, names = _settled(wanted, actual.split("\n")), (f"{case}, as kept", f"{case}, as found")
    diff = unified_diff(wanted, settled, *names, lineterm="", n=CONTEXT)
    return "\n".join(f"{line} in {_section_of(wanted, line)}" if line.startswith("@@") else line for line in diff)


def _section_of(lines: Sequence[str], hunk: str) -> str:
    before = int(hunk.split()[1].partition(",")[0].lstrip("-")) - 1 + CONTEXT  # lines before the difference
    above = [match[1] for line in lines[:before] if (match := SECTION.fullmatch(line))]
    return above[-1] if above else "its beginning"


def _settled(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """The lines that were found, as expected where only numbers differ, and these within the tolerance."""
    settled: list[str] = []
    for kind, low, high, first, last in SequenceMatcher(None, expected, actual, autojunk=False).get_opcodes():
        pairs = zip(expected[low:high], actual[first:last], strict=False) if kind == "replace" else ()
        close = [line if _is_close(line, other) else other for line, other in pairs]
        settled += [*close, *actual[first + len(close) : last]]
    return settled


def _is_close(expected: str, actual: str) -> bool:
    wanted, values = NUMBER.split(expected), NUMBER.split(actual)
    if wanted[::2] != values[::2]:
        return False
    return all(_are_close(value, other) for value, other in zip(wanted[1::2], values[1::2], strict=True))


def _are_close(expected: str, actual: str) -> bool:
    if expected == actual:
        return True
    in_full = max(_decimals(expected), _decimals(actual)) >= DECIMALS
    return in_full and math.isclose(float(expected), float(actual), rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _decimals(number: str) -> int:
    return len(number.partition("e")[0].partition(".")[2])
