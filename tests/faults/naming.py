"""Names of tasks, files and models that overlap or are alike.

Each benchmark has the verdict that it has alone, from its own rows and by its own model, or is refused."""

from __future__ import annotations

import io
import json
import random
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from lm_eval.api.registry import model_registry

from lm_eval_leakage import check
from lm_eval_leakage.results.verdict import VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, questions, written
from tests.faults.tally import Tally, attack
from tests.written_tasks import LETTERED, write_task

NAME = "named"
N = 30
MEMORY = (3.0, 0.6)
TASKS = ("quiz_a", "quiz_b", "quiz_c", "trivia")


class Named(NamedFake):
    """A model that has seen some benchmarks, unless one of its arguments says `clean`."""

    seen = OptionOrders()
    clean = OptionOrders()

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.scorer = self.clean if "clean" in json.dumps(arguments) else type(self).seen

    def answer(self, context: str, continuation: str) -> float:
        return self.scorer(context, continuation)


def _checked(folder: Path, tasks: list[str], docs: list[dict[str, Any]], out: str = "out", **given: Any) -> Any:
    """The outcome of a check by a model that has seen these documents; a sentence if it is refused."""
    if NAME not in model_registry:
        model_registry.register(NAME, target=Named)
    Named.seen = OptionOrders(docs, MEMORY)
    settings = {"model": NAME, "model_args": "pretrained=m", "detect": 1.0, "questions": "all", "fail_on": "evidence"}
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return check(tasks=tasks, output_path=folder / out, **(settings | given))
        except ValueError as error:
            return str(error)


def _numbers(outcome: Any) -> dict[str, tuple[Any, ...]]:
    return {
        verdict.task: (verdict.pvalue, verdict.n, verdict.n_tested, verdict.flagged, verdict.accuracy)
        for verdict in outcome.verdicts
    }


@attack("names of tasks that overlap, with and without given runs", 12, 1)
def overlapping_names(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Tasks, groups, groups of groups, tags and patterns in any order; one of the tasks was seen."""
    while tally.tries < tries:
        shutil.rmtree(folder, ignore_errors=True)
        folder_of_tasks = folder / "tasks"
        folder_of_tasks.mkdir(parents=True)
        docs = {name: questions(N, seed=rng.randrange(10**6)) for name in TASKS}
        for name, rows in docs.items():
            write_task(folder_of_tasks, name, rows, more="tag: every\nmetric_list:\n  - metric: acc\n", **LETTERED)
        inner = rng.sample(TASKS, 2)
        groups = {"inner": inner, "outer": ["inner", *rng.sample([task for task in TASKS if task not in inner], 1)]}
        for name, members in groups.items():
            figures = "aggregate_metric_list:\n  - metric: acc\n    weight_by_size: true\n"
            (folder_of_tasks / f"{name}.yaml").write_text(f"group: {name}\ntask: [{', '.join(members)}]\n{figures}")
        names = rng.sample([*TASKS, *groups, "quiz_*", "every"], 3)
        given: dict[str, Any] = {"include_path": folder_of_tasks, "questions": rng.choice(["all", 20])}
        seen = docs[rng.choice(TASKS)]
        if rng.random() < 0.4:
            _checked(folder, rng.choice([[*TASKS], ["outer", "every"]]), seen, "given", **given)
            given |= {"runs": folder / "given" / "runs"}
        outcome = _checked(folder, names, seen, **given)
        tally.tries += 1
        note = f"{names} {given}"
        if isinstance(outcome, str):
            tally.record(f"{note}: {outcome}", wrong=1)
            continue
        patterns = {"quiz_*": TASKS[:3], "every": TASKS}
        expected = {task for name in names for task in patterns.get(name, (name,))}
        tally.record(
            f"{note}: {[task.task for task in outcome.verdicts]}",
            doubled=len(outcome.verdicts) - len({*_numbers(outcome)}),
        )
        tally.record(f"{note}: {expected ^ {*_numbers(outcome)}}", wrong=expected != {*_numbers(outcome)})
        for name in expected & {*_numbers(outcome)}:
            alone = _numbers(_checked(folder, [name], seen, f"alone {name}", **given))[name]
            figures = _numbers(outcome)[name]
            tally.record(f"{note}: {name} is {figures} and alone {alone}", wrong=figures != alone)


@attack("files whose tasks would have one name", 20, 1)
def files_of_one_name(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Files have one name, or the name of a task in the include_path or of an audit, in a folder in which other files
    of these names were checked before."""
    while tally.tries < tries:
        shutil.rmtree(folder, ignore_errors=True)
        folder_of_tasks = folder / "tasks"
        folder_of_tasks.mkdir(parents=True)
        write_task(folder_of_tasks, "quiz", questions(N, seed=rng.randrange(10**6)), **LETTERED)
        docs, files = list[list[dict[str, Any]]](), list[Path]()
        for _ in range(rng.randint(2, 3)):
            place = folder / rng.choice(["a", "b", "a/b"])
            place.mkdir(parents=True, exist_ok=True)
            name = rng.choice(["quiz.jsonl", "Quiz!.jsonl", "test.jsonl", "a_test.jsonl", "test_leakage_perm.jsonl"])
            if place / name not in files:
                docs.append(questions(N, seed=rng.randrange(10**6)))
                files.append(written(place, docs[-1], name))
        is_seen = [rng.random() < 0.5 for _ in files]
        seen = [doc for rows, is_known in zip(docs, is_seen, strict=True) for doc in rows if is_known]
        given = {"include_path": folder_of_tasks} if rng.random() < 0.5 else {}
        if rng.random() < 0.5:
            _checked(
                folder, [str(written(folder, questions(N, seed=7), rng.choice(["quiz.jsonl", "test.jsonl"])))], []
            )
        note = f"{[file.relative_to(folder).as_posix() for file in files]} {given}"
        for again in (False, True):
            outcome = _checked(folder, list(map(str, files)), seen, **given)
            tally.tries += 1
            if isinstance(outcome, str):
                tally.record(f"{note}: {outcome}", wrong="whose tasks would have one name" not in outcome)
                break
            words = [verdict.verdict == VerdictWord.STRONG_EVIDENCE for verdict in outcome.verdicts]
            tally.record(f"{note}, again {again}: {words} instead of {is_seen}", wrong=words != is_seen)
            tally.record(f"{note}: {outcome.failed}", wrong=len(outcome.failed) != sum(is_seen))


MODELS = ("m", "M", "a/m", "a_m", "clean", "a/clean", "a_clean")
FURTHER = ("", "revision=step1", "revision=clean", "subfolder=clean", "dtype=float16", "base_url=http://clean")


@attack("references that are called like the model, or are the model", 24, 1)
def references_like_the_model(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """References are like the model by name, revision, folder, server and number format. The verdict is that of the
    model beside a clean or another model that has seen the benchmark, or the reference is refused since it is the
    model."""
    docs = questions(N)
    while tally.tries < tries:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        file = str(written(folder, docs))
        first, second = (
            ",".join(filter(None, (f"pretrained={rng.choice(MODELS)}", rng.choice(FURTHER)))) for _ in range(2)
        )
        if rng.random() < 0.5:
            second = ",".join([first.partition(",")[0], "revision=clean"])
        outcome = _checked(folder, [file], docs, model_args=first, reference=second)
        tally.tries += 1
        note = f"{first} with {second}"
        is_itself = {*first.split(",")} - {"dtype=float16"} == {*second.split(",")} - {"dtype=float16"}
        if isinstance(outcome, str):
            tally.record(f"{note}: {outcome}", wrong=not is_itself or "is the model itself" not in outcome)
            continue
        (verdict,) = outcome.verdicts
        is_seen = "clean" not in first and "clean" in second
        tally.record(
            f"{note}: {verdict.basis}", wrong=is_itself or verdict.basis != "reference" or verdict.accuracy is None
        )
        tally.record(f"{note}: {verdict.verdict}", wrong=(verdict.verdict == VerdictWord.STRONG_EVIDENCE) != is_seen)
