"""Runs and audits that do not belong together, and numbers that cannot be right: nothing of that is used silently."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.leaderboard import leaderboard
from lm_eval_leakage.results.tables import write
from tests.faults.tally import Tally, attack
from tests.results.harness_files import answered, audited, row, write_run

IMPOSSIBLE = (27.5, 7, -0.1, 1.0001, math.inf, -math.inf, math.nan, None, "0.9")
SHAS = ("a" * 40, "b" * 40)
SETTINGS: Mapping[str, Callable[[random.Random], tuple[dict[str, Any], dict[str, Any]]]] = {  # of two files
    "quantized": lambda rng: ({"model_args": {rng.choice(["load_in_8bit", "load_in_4bit"]): True}}, {}),
    "adapter": lambda rng: ({"model_args": {rng.choice(["peft", "delta"]): "adapter"}}, {}),
    "argument": lambda rng: ({"model_args": {"rope_scaling": "x", "seed": 1}}, {"model_args": {"seed": 2}}),
    "commit": lambda rng: ({"model_sha": SHAS[0]}, {"model_sha": SHAS[1]}),
    "parameters": lambda rng: ({"model_num_parameters": 7}, {"model_num_parameters": rng.randrange(8, 99)}),
    "dtype": lambda rng: ({"model_dtype": "torch.float16"}, {"model_dtype": "torch.float32"}),
    "template": lambda rng: ({}, {"chat_template_sha": SHAS[0]}),
    "system": lambda rng: ({}, {"system_instruction_sha": SHAS[0]}),
}


def _changed(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def _as_recorded(file: Path, settings: Mapping[str, Any]) -> None:
    """A results file with settings, which plain lm_eval writes at two places."""

    def change(content: dict[str, Any]) -> None:
        content |= {"chat_template_sha": None, "system_instruction_sha": None}
        for name, value in settings.items():
            place = content if name.endswith("n_sha") or name.startswith("chat") else content["config"]
            place[name] = {**content["config"]["model_args"], **value} if name == "model_args" else value

    _changed(file, change)


@attack("annotate: numbers and settings that contradict each other", 400, 5)
def impossible_numbers(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A run with its audit, of which a number or a setting is changed: the number is left out and the run is not
    joined, with the reason, and the audit is judged as ever."""
    for _ in range(tries):
        shutil.rmtree(folder, ignore_errors=True)
        kind = rng.choice(["value", "mean", "sample", "doubled", *SETTINGS])
        n_questions = _contradicting(folder, kind, rng)
        annotations = annotate([folder])
        rows = [row for annotation in annotations for row in annotation.rows]
        said = "; ".join(str(problem) for annotation in annotations for problem in annotation.problems)
        is_used = any(row.accuracy and (row.n_joined or kind not in SETTINGS) for row in rows)
        is_reported = ("contradict each other" if kind in SETTINGS else "left out") in said
        is_lost = sum(row.n_tested for row in rows) != n_questions
        tally.tries += 1
        tally.record(f"{kind}, {n_questions} questions: {said}", wrong=is_used or not is_reported or is_lost)


def _contradicting(folder: Path, kind: str, rng: random.Random) -> int:
    """Writes a run and its audit; returns the number of questions of both."""
    metric = rng.choice(["acc", "acc_norm", "exact_match"])
    key, n = f"{metric},none", rng.randrange(8, 60)
    lines = [{"doc_id": i, **answered(i, row(i), rng.random() < 0.5, metric=metric)} for i in range(n)]
    place = write_run(folder, "m", {"bench": lines})
    (results,) = place.glob("results_*")
    values = {key: sum(line[metric] for line in lines) / n}
    write_run(folder, "m", {"bench_leakage_perm": [audited(row(i), i % 5 == 0) for i in range(n)]})
    (audit,) = {*place.glob("results_*")} - {results}
    line = rng.choice(lines)
    if kind == "value":
        values[key] = rng.choice(IMPOSSIBLE)
    elif kind == "mean":
        values[key] = (values[key] + rng.uniform(0.01, 0.99)) % 1
    elif kind == "sample":
        line[metric] = rng.choice(IMPOSSIBLE)
    elif kind == "doubled":
        lines.insert(rng.randrange(len(lines)), {**line, metric: 1 - line[metric]})
    else:
        of_two = [*SETTINGS[kind](rng)]
        rng.shuffle(of_two)
        for file, settings in zip((results, audit), of_two, strict=True):
            _as_recorded(file, settings)
    _changed(results, lambda content: content["results"].update(bench=values))
    next(place.glob("samples_bench_2*")).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return n


@attack("annotate, leaderboard: benchmarks of one name with other rows", 300, 5)
def other_rows(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Two to four folders of up to three models, each with a benchmark of the same name: the same rows, some of them,
    others, or edited ones. Every model has one row for each of those that it was audited on, from this audit alone."""
    for _ in range(tries):
        shutil.rmtree(folder, ignore_errors=True)
        n, task = rng.randrange(20, 50), rng.choice(["quiz", "mmlu_quiz"])
        benchmarks = [_rows(place, n, rng) for place in range(rng.choice([1, 2, 2, 3]))]
        expected: dict[tuple[str, int], tuple[int, bool]] = {}
        has_runs = {which for which in range(len(benchmarks)) if rng.random() < 0.8}
        for place in range(rng.randrange(2, 5)):
            which, model = rng.randrange(len(benchmarks)), f"m{rng.randrange(3)}"
            is_seen, rows = rng.random() < 0.5, benchmarks[which]
            if (model, which) in expected:  # again, from a copy of the folder, or only the first rows of it
                is_seen = expected[model, which][1]
                rows = rows[: rng.choice([n, n // 2])]
            expected.setdefault((model, which), (n, is_seen))
            _asked(folder / str(place), model, task, rows, is_seen, with_run=which in has_runs)
        annotations = annotate([folder])
        counts = [
            (annotation.model, (row.n_tested, all(row.flags.values())))
            for annotation in annotations
            for row in annotation.rows
        ]
        right = sorted((model, annotation) for (model, _), annotation in expected.items())
        boards = leaderboard(annotations).boards
        met = Condition.of("flagged_rate>0.5").met_by([row for annotation in annotations for row in annotation.rows])
        tally.tries += 1
        note = f"{expected}: {counts}, {len(boards)} boards, {len(met)} flagged"
        n_boards, n_seen = len({which for _, which in expected}), sum(is_seen for _, is_seen in expected.values())
        tally.record(note, wrong=sorted(counts) != right or (len(boards), len(met)) != (n_boards, n_seen))


def _rows(place: int, n: int, rng: random.Random) -> list[dict[str, Any]]:
    """Return rows: of the first place those that others edit; then edited ones, or entirely others."""
    if place == 0 or rng.random() < 0.5:
        return [row(1000 * place + i, "") for i in range(n)]
    edited = {*rng.sample(range(n), rng.randrange(1, n))}
    return [row(1000 * place + i if i in edited else i, "") for i in range(n)]


def _asked(folder: Path, model: str, task: str, rows: list[dict[str, Any]], is_seen: bool, with_run: bool) -> None:
    if with_run:
        write_run(folder, model, {task: [answered(i, doc, True) for i, doc in enumerate(rows)]})
    audit = [{"doc_id": i, **audited(doc, is_seen)} for i, doc in enumerate(rows)]
    write_run(folder, model, {f"{task}_leakage_perm": audit})


@attack("annotate: a run and an audit of other questions", 300, 5)
def other_questions(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A run and an audit of one benchmark, of which they ask some questions each, also a group of tasks: what is shown
    rests on the questions in common, or is of the audit alone and not judged, and both are said."""
    for _ in range(tries):
        shutil.rmtree(folder, ignore_errors=True)
        n, is_seen = rng.randrange(20, 50), rng.random() < 0.5
        tasks = rng.choice([["quiz"], ["quiz"], ["quiz_x", "quiz_y"]])
        start = {task: rng.choice([n, n, 0, rng.randrange(1, n)]) for task in tasks}
        logs = {task: [answered(i, _row(task, i), True) for i in range(n)] for task in tasks}
        audits = {
            f"{task}_leakage_perm": [
                {"doc_id": i, **audited(_row(task, i), is_seen)} for i in range(start[task], start[task] + n)
            ]
            for task in tasks
        }
        is_group, place = len(tasks) > 1, folder / "runs"
        write_run(place, "m", logs, groups={"quiz": tasks} if is_group else {})
        write_run(folder / "audits", "m", audits, groups={"quiz_leakage_perm": [*audits]} if is_group else {})
        (annotation,) = annotate([place], [folder / "audits"])
        said = [str(problem) for problem in annotation.problems]
        rows = {row.task: row for row in annotation.rows if row.task in tasks}
        is_right = len(rows) == len(tasks) == sum(row.task in tasks for row in annotation.rows)
        for task, first in start.items():
            n_common = n - first
            sentences = [
                sentence
                for sentence in said
                if (sentence.startswith(f"{task}: ") and "only counted" in sentence) or "(0 of" in sentence
            ]
            is_right &= rows[task].n_tested == (n_common or n)
            is_right &= all(rows[task].flags.values()) is is_seen
            is_right &= bool(rows[task].accuracy) is bool(n_common)
            is_right &= n_common == n or any(
                f"on {n_common} of {n}" in sentence or f"0 of {n}" in sentence for sentence in sentences
            )
        is_refused = any(problem.incomplete for problem in annotation.problems)
        is_right &= is_refused is (n in start.values()) and max(map(len, said), default=0) < 600
        copies = write(annotation, "1", folder / "copies")
        is_right &= bool(copies) is any(first < n for first in start.values())
        tally.tries += 1
        tally.record(
            f"{start} of {n}: {[(row.task, row.n_tested) for row in annotation.rows]}, {said}", wrong=not is_right
        )


def _row(task: str, number: int) -> dict[str, Any]:
    return row(number if task != "quiz_y" else 1000 + number, "")
