"""Which of several runs of one task is the one to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.logs.audit_tasks import audits_of
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.runs import Run, n_told


@dataclass(frozen=True)
class Answered:
    """A task as a run answered it; `log` is None where the run kept no samples."""

    task: str
    n_shot: str
    run: Run
    log: Path | None
    n_questions: int


def chosen_runs(runs: Sequence[Run], problems: list[Problem]) -> Iterator[Answered]:
    """Of each task that is no audit, and each number of examples: the run with the most questions, of equals the
    newest. The others are named among the problems."""
    candidates: dict[tuple[str, str], list[Answered]] = defaultdict(list)
    for run in runs:
        for one in _tasks(run):
            candidates[one.task, one.n_shot].append(one)
    for found in candidates.values():
        *others, best = sorted(found, key=lambda one: (one.log is not None, one.n_questions, one.run.time))
        for other in others:
            problems.append(
                Problem(
                    f"{other.task} of {other.run.time} ({other.n_questions} questions) is passed over for the run of "
                    f"{best.run.time} ({best.n_questions} questions)",
                    other.run.results_file or other.log,
                )
            )
        if best.log is None:
            what = f"{best.task} has no samples log, so that nothing can be joined; run it with --log_samples"
            problems.append(Problem(what, best.run.results_file))
        yield best


def leaves(group: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Tasks below a group, at any depth, each once."""
    members = subtasks.get(group)
    if not members:
        return [group]
    return list(dict.fromkeys(leaf for member in members if member != group for leaf in leaves(member, subtasks)))


def outer_first(subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """All groups, each before the groups within it, whatever order the harness wrote them in."""

    def depth(name: str) -> int:
        parents = [group for group, members in subtasks.items() if name in members and group != name]
        return 1 + depth(parents[0]) if parents else 0

    return sorted(subtasks, key=depth)


def outermost(name: str, subtasks: Mapping[str, Sequence[str]]) -> str:
    """The group that is in no other and holds a task or group; empty where none does."""
    parents = [group for group, members in subtasks.items() if name in members and group != name]
    return (outermost(parents[0], subtasks) or parents[0]) if parents else ""


def _tasks(run: Run) -> Iterator[Answered]:
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    audits = audits_of(run)
    for task in dict.fromkeys([*run.results.get("results", {}), *run.logs]):
        if task in groups or task in audits:
            continue
        n_shot = (run.results.get("n-shot") or {}).get(task, "")
        log = run.logs.get(task)
        yield Answered(task, str(n_shot), run, log, n_told(run, task) or (0 if log is None else _n_lines(log)))


def _n_lines(log: Path) -> int:
    with log.open("rb") as lines:
        return sum(1 for _ in lines)
