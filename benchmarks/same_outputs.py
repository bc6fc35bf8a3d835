"""Are the outputs of one run equal, written by two versions of this package?

    python benchmarks/same_outputs.py BEFORE AFTER

BEFORE, AFTER: output folders of the same `lm_eval` command, with `--log_samples`. Compared are the rows of the results
and their errors; every line of every audit's log as the one reader of logs reads it, which is what a version of the
format may change (docs/log_format.md); and every line of other tasks' logs as it is. Each difference is printed; the
exit code is 1 where there is one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import VERSION_KEY, AuditLine, read_line
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import Run, find_runs

SECTIONS = ("results", "groups", "n-samples", "higher_is_better", "versions", "n-shot")
SHOWN = 20


def main(before: str, after: str) -> int:
    problems: list[Problem] = []
    (old,), (new,) = (find_runs([Path(folder)], problems) for folder in (before, after))
    counts: dict[str, int] = {"values of results": 0, "lines of audits": 0, "other lines": 0}
    found = [*_of_results(old, new, counts), *_of_logs(old, new, counts), *map(str, problems)]
    for difference in found[:SHOWN]:
        print(difference)
    print(f"{len(found)} differences in", ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    return 1 if found else 0


def _of_results(old: Run, new: Run, counts: dict[str, int]) -> Iterator[str]:
    first, second = (json.loads(run.results_file.read_bytes()) for run in (old, new) if run.results_file)
    for section in SECTIONS:
        yield from _differences(section, first.get(section), second.get(section), counts)


def _of_logs(old: Run, new: Run, counts: dict[str, int]) -> Iterator[str]:
    if old.logs.keys() != new.logs.keys():
        yield f"logs are of {sorted(old.logs)} and {sorted(new.logs)}"
    for task in sorted(old.logs.keys() & new.logs.keys()):
        first, second = (_lines(run.logs[task]) for run in (old, new))
        if len(first) != len(second):
            yield f"{task}: {len(first)} lines and {len(second)}"
        for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
            of_audit = VERSION_KEY in one
            counts["lines of audits" if of_audit else "other lines"] += 1
            yield from _of_line(f"{task}, line {number}", one, other, of_audit)


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def _of_line(place: str, one: Mapping[str, Any], other: Mapping[str, Any], of_audit: bool) -> Iterator[str]:
    if not of_audit:
        yield from () if one == other else (f"{place}: {one} is now {other}",)
        return
    task = place.partition(",")[0]
    first, second = read_line(one, task), read_line(other, task)
    for field in fields(AuditLine):
        if (
            field.name == "row_names"
        ):  # version 1 does not tell rows from other values; rows are compared in the results
            continue
        if getattr(first, field.name) != getattr(second, field.name):
            yield f"{place}: {field.name} {getattr(first, field.name)} is now {getattr(second, field.name)}"
    same = ("arguments", "resps", "filtered_resps", "target", "prompt_hash", "target_hash")
    yield from (f"{place}: {key} differs" for key in same if one.get(key) != other.get(key))


def _differences(place: str, one: Any, other: Any, counts: dict[str, int]) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            if key not in one or key not in other:
                yield f"{place}: {key} only {'after' if key in other else 'before'}"
            else:
                yield from _differences(f"{place}/{key}", one[key], other[key], counts)
        return
    counts["values of results"] += 1
    if one != other and not _both_nan(one, other):
        yield f"{place}: {one} is now {other}"


def _both_nan(*values: object) -> bool:
    return all(isinstance(value, float) and value != value for value in values)


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    if len(arguments) != 2:
        sys.exit(__doc__)
    sys.exit(main(*arguments))
