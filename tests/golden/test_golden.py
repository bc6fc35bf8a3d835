"""What every command prints and writes on fixed answers is what it printed and wrote before."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.golden.cases import CASES
from tests.golden.comparison import EXPECTED, WRITE, differences

CONSTRAINTS = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8")
pinned_harness_only = pytest.mark.skipif(
    f"lm-eval=={version('lm_eval')}\n" not in CONSTRAINTS, reason="another lm_eval prints and writes other tables"
)


@pinned_harness_only
@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_and_writes_what_is_kept(name: str, output_of: Callable[[str], str]) -> None:
    file, text = EXPECTED / f"{name}.txt", output_of(name)
    if os.environ.get(WRITE):
        file.write_text(text, encoding="utf-8")
    if diff := differences(name, file.read_text(encoding="utf-8"), text):
        remedy = f"{WRITE}=1 pytest tests/golden -k '{name}]'"
        pytest.fail(f"{diff}\n\nIf this is meant, run `{remedy}` and give the reason in CHANGELOG.md", pytrace=False)


def test_every_expected_output_has_its_case() -> None:
    assert {file.stem for file in EXPECTED.iterdir()} == set(CASES)


KEPT = """\
==> a.json <==
{
 "pvalue": 0.0123456789,
 "n": 40
}
==> $ b <==
p = 0.012
none found: on 40 questions"""


@pytest.mark.parametrize(
    ("part", "other"), [("0.0123456789", "0.0123456790"), ("0.0123456789", "0.01234567890001"), ("", "")]
)
def test_a_value_in_full_may_differ_by_rounding(part: str, other: str) -> None:
    assert differences("case", KEPT, KEPT.replace(part, other)) == ""


@pytest.mark.parametrize(
    ("part", "other", "place"),
    [
        ("0.0123456789", "0.0123457", "a.json"),
        ("0.0123456789", "null", "a.json"),
        ("40\n}", "41\n}", "a.json"),
        ("0.012\n", "0.013\n", "$ b"),
        ("none found", "evidence", "$ b"),
        ("40 questions", "40 questions,", "$ b"),
        ("\np = 0.012", "", "$ b"),
        ("==> $ b", "a new line\n==> $ b", "a.json"),
    ],
)
def test_anything_else_that_differs_is_shown_with_its_case_and_file(part: str, other: str, place: str) -> None:
    assert part in KEPT
    diff = differences("case", KEPT, KEPT.replace(part, other))
    assert diff.startswith("--- case, as kept\n+++ case, as found\n@@")
    assert f" @@ in {place}\n" in diff
