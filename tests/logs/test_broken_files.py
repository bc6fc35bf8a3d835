"""Files as killed runs, full disks and other programs leave them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import leaderboard, leaderboard_as_markdown
from lm_eval_leakage.results.loaded_run import LoadedRun
from lm_eval_leakage.results.tables import as_text, write
from tests.results.harness_files import answered, audited, confused, row, write_run

OTHERS = [None, 1, -1.5, True, "x", [], {}, [[1]], {"a": 1}, float("nan"), 10**400]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    docs = [row(i) for i in range(6)]
    write_run(
        folder, "m", {"bench_a": [answered(i, d, i < 3) for i, d in enumerate(docs)]}, groups={"bench": ["bench_a"]}
    )
    audits = {
        "bench_leakage_perm": [audited(doc, i < 3) for i, doc in enumerate(docs)],
        "bench_choice_confusion": [confused(doc, i < 3, i < 2) for i, doc in enumerate(docs)],
    }
    write_run(folder, "m", audits)
    return folder


def places(value, at=()):
    yield at
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*at, key))
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, (*at, index))


def with_another_value(line: str, rng: Random) -> str:
    """Whole JSON, one thing of which is gone or of another kind."""
    content = json.loads(line)
    *path, last = rng.choice([place for place in places(content) if place])
    holder = content
    for key in path:
        holder = holder[key]
    if rng.random() < 0.3 and isinstance(holder, dict):
        del holder[last]
    else:
        holder[last] = rng.choice(OTHERS)
    return json.dumps(content)


def damage(file: Path, rng: Random) -> None:
    way = rng.choice(["whole", "value", "value", "bytes", "cut"])
    content = file.read_bytes()
    if way == "value":
        lines = content.decode().splitlines()
        place = rng.randrange(len(lines))
        lines[place] = with_another_value(lines[place], rng)
        file.write_text("\n".join([*lines, ""]))
    if way == "bytes":
        damaged = bytearray(content)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        file.write_bytes(damaged)
    if way == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])


@settings(max_examples=60)
@example(seed=175655)  # two lines of one number
@example(seed=1351)  # a standard error of 10**400
@example(seed=1417)  # a number of questions of 10**400
@example(seed=9911)  # another key of a question
@given(seed=st.integers(0, 10**6))
def test_whatever_is_broken_the_rest_is_read_and_reported(whole, tmp_path_factory, seed) -> None:
    folder = tmp_path_factory.mktemp("broken") / "runs"
    shutil.copytree(whole, folder)
    rng = Random(seed)
    for file in sorted(folder.rglob("*.json*")):
        damage(file, rng)
    annotations = annotate([folder])
    n_read = sum(len(annotation.questions) for annotation in annotations)
    assert n_read >= 6 or any(annotation.problems for annotation in annotations)  # nothing is lost in silence
    for annotation in annotations:
        write(annotation, "1", folder.parent / "out")
        assert as_text(annotation.rows, "table")
        for problem in annotation.problems:
            assert str(problem)
    assert len(LoadedRun(annotations)) == n_read
    assert isinstance(leaderboard_as_markdown(leaderboard(annotations)), str)
    shutil.rmtree(folder.parent)
