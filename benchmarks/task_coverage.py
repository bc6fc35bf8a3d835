"""Writes the tables of docs/any_task/coverage.md: which multiple-choice tasks of lm_eval can be audited,
and why others cannot.

    python -m benchmarks.task_coverage

Each task is judged as `lm-eval-leakage ls` does it, by rows in the shape of its data (tests/real_shapes.py) or, where
that is not known, by rows with the fields that its settings name. Tasks of one family that are rendered alike are
judged once. A minute or two; no data are fetched.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import datasets
from lm_eval import __version__

from lm_eval_leakage.harness.auditable import Coverage, Finding
from lm_eval_leakage.harness.seams.tasks import own_settings
from tests.installed_tasks import ROOT, InstalledTask, all_tasks, coverage_of

PAGE = Path(__file__).parents[1] / "docs" / "any_task" / "coverage.md"
LEADERBOARD = {  # of version 1, then of version 2: files of the tasks that the harness has for them
    "ARC": ("arc/arc_challenge.yaml",),
    "HellaSwag": ("hellaswag/hellaswag.yaml",),
    "MMLU": ("mmlu/default/mmlu_*.yaml",),
    "TruthfulQA": ("truthfulqa/truthfulqa_mc*.yaml",),
    "WinoGrande": ("winogrande/default.yaml",),
    "GSM8K": ("gsm8k/gsm8k.yaml",),
    "BBH": ("leaderboard/bbh_mc/*.yaml",),
    "GPQA": ("leaderboard/gpqa/*.yaml",),
    "IFEval": ("leaderboard/ifeval/*.yaml",),
    "MATH": ("leaderboard/math/*.yaml",),
    "MMLU-Pro": ("leaderboard/mmlu_pro/*.yaml",),
    "MuSR": ("leaderboard/musr/*.yaml",),
}
GENERATED = "the answer is generated, and the data row holds no options"
NAMES_EXCHANGED = "rows exchange their names"
REASONS = 12  # shown of all


def tasks_in(patterns: Iterable[str]) -> Iterator[InstalledTask]:
    """Yield the tasks of any type in the files that match."""
    for pattern in patterns:
        for file in sorted(ROOT.glob(pattern)):
            try:
                settings = own_settings(file, includes=True)
            except Exception:  # a template or a group
                continue
            if isinstance(settings.get("task"), str):
                yield InstalledTask(settings["task"], file, settings)


def finding_of(task: InstalledTask) -> Finding:
    """Return what `ls` finds, also without the modules that score generated answers."""
    finding = Finding(task.name, *coverage_of(task)[1:])
    is_generated = task.settings.get("output_type") == "generate_until"
    if finding.status == Coverage.COVERED and finding.reason.startswith("names of"):
        return Finding(task.name, Coverage.COVERED, NAMES_EXCHANGED)
    return (
        Finding(task.name, Coverage.REFUSED, GENERATED)
        if is_generated and finding.status != Coverage.COVERED
        else finding
    )


def leaderboard_table() -> str:
    """Return a row for each benchmark: its tasks, how many are covered, and why others are not."""
    lines = [
        "| benchmark | tasks of the harness | covered | how options are read | why others are not |",
        "|---|---|---|---|---|",
    ]
    for name, patterns in LEADERBOARD.items():
        findings = [finding_of(task) for task in tasks_in(patterns)]
        covered = [finding for finding in findings if finding.status == Coverage.COVERED]
        others = [finding for finding in findings if finding.status != Coverage.COVERED]
        cells = [name, _named(findings), f"{len(covered)} of {len(findings)}", _reasons(covered), _reasons(others)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _named(findings: Sequence[Finding]) -> str:
    names = [finding.task for finding in findings]
    if len(names) < 3:
        return ", ".join(f"`{name}`" for name in names)
    return f"{len(names)}, such as `{names[0]}`"


def _reasons(findings: Sequence[Finding]) -> str:
    counts = Counter(without_words(finding.reason) for finding in findings)
    return "; ".join(f"{reason} ({n})" if len(counts) > 1 else reason for reason, n in counts.most_common())


def without_words(reason: str) -> str:
    """Return a reason without the words of the one task that it is about."""
    return re.sub(r": .*| for its choices .*| \(.*", "", reason)


def folder_table(findings_of_folders: Mapping[str, Sequence[tuple[Finding, int]]]) -> str:
    """Return a row for each folder of tasks with the number of tasks of each status."""
    lines = ["| folder | covered | refused | not known |", "|---|---|---|---|"]
    everything = [finding for of_folder in findings_of_folders.values() for finding in of_folder]
    for name, of_folder in {"all": everything, **findings_of_folders}.items():
        counts = Counter[str]()
        for finding, n in of_folder:
            counts[finding.status] += n
        lines.append(
            f"| {name} | {counts[Coverage.COVERED]:,} | {counts[Coverage.REFUSED]:,} | {counts[Coverage.UNKNOWN]:,} |"
        )
    return "\n".join(lines)


def reason_list(findings: Iterable[tuple[Finding, int]], status: str) -> str:
    """Return the reasons of one status with numbers of tasks, the most frequent first."""
    counts, folders = Counter[str](), defaultdict[str, dict[str, None]](dict)
    for finding, n in findings:
        if finding.status == status:
            counts[without_words(finding.reason)] += n
            folders[without_words(finding.reason)][finding.task] = None
    shown = [
        f"- {n:,}: {reason} (such as `{next(iter(folders[reason]))}`)" for reason, n in counts.most_common(REASONS)
    ]
    n_more = sum(n for _, n in counts.most_common()[REASONS:])
    return "\n".join([*shown, *([f"- {n_more:,}: other reasons"] if n_more else [])])


def with_part(page: str, name: str, text: str) -> str:
    """Return the page with the text between the marks of a part."""
    begin, end = f"<!-- {name}: benchmarks/task_coverage.py -->\n", "\n<!-- end -->"
    before, end_mark, rest = page.partition(begin)
    if not end_mark:
        raise SystemExit(f"{PAGE} has no line {begin.strip()}")
    return f"{before}{begin}{text}{rest[rest.index(end) :]}"


def main() -> None:
    logging.disable(logging.WARNING)
    datasets.disable_progress_bars()
    page = with_part(PAGE.read_text(encoding="utf-8"), "leaderboard", leaderboard_table())
    shapes: dict[tuple[str, ...], list[InstalledTask]] = defaultdict(list)
    for task in all_tasks():
        shapes[task.shape].append(task)
    findings_of_folders: dict[str, list[tuple[Finding, int]]] = defaultdict(list)
    for number, alike in enumerate(shapes.values(), 1):
        print(f"\r{number} of {len(shapes)} kinds of tasks", end="", file=sys.stderr, flush=True)
        findings_of_folders[alike[0].family].append((finding_of(alike[0]), len(alike)))
    print(file=sys.stderr)
    everything = [finding for of_folder in findings_of_folders.values() for finding in of_folder]
    n_tasks = sum(n for _, n in everything)
    counts = {
        status: sum(n for finding, n in everything if finding.status == status)
        for status in (Coverage.COVERED, Coverage.REFUSED)
    }
    summary = (
        f"Of {n_tasks:,} multiple-choice tasks of lm-eval {__version__}, {counts[Coverage.COVERED]:,} are covered and "
        f"{counts[Coverage.REFUSED]:,} refused. No made-up row fits the code of "
        f"{n_tasks - sum(counts.values()):,}: only "
        "their data can show."
    )
    lists = [
        f"{title}\n\n{reason_list(everything, status)}"
        for title, status in (
            ("Covered:", Coverage.COVERED),
            ("Refused:", Coverage.REFUSED),
            ("Not known:", Coverage.UNKNOWN),
        )
    ]
    page = with_part(
        page, "tasks", "\n\n".join([summary, folder_table(dict(sorted(findings_of_folders.items()))), *lists])
    )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
