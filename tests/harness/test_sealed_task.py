"""The task of a sealed benchmark needs only lm_eval; a task of lm_eval can be sealed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import lm_eval
import pytest
import yaml
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.own_benchmark import lettered_yaml
from lm_eval_leakage.harness.sealing import sealing_of
from tests.fakes import FakeLM, by_hash
from tests.sealed import NAME, sealed_folder

ROWS = [
    {"question": f" Which is {number}? ", "choices": [f"{number}{letter}" for letter in "wxyz"], "answer": 1}
    for number in range(6)
]
WITHOUT_US = """
import sys

class Refused:
    def find_spec(self, name, *_):
        assert not name.startswith("lm_eval_leakage"), name

sys.meta_path.insert(0, Refused())
from lm_eval.tasks import TaskManager
task = TaskManager(include_path=sys.argv[1], include_defaults=False).load(["trees"])["tasks"]["trees"]
print([task.doc_to_text(doc) for doc in task.eval_docs][0])
"""


@pytest.fixture(scope="module")
def public(tmp_path_factory) -> Path:
    """A public folder, moved away from where it was written."""
    folder = tmp_path_factory.mktemp("sealed")
    return Path(shutil.move(sealed_folder(folder, ROWS).public, folder / "moved"))


def test_the_task_is_scored_from_any_folder_after_the_public_folder_was_moved(public, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [json.loads(line) for line in (public / f"{NAME}.jsonl").read_text().splitlines()]
    right = {row["question"].strip(): "ABCD"[row["answer"]] for row in rows}

    def knows(context: str, continuation: str) -> float:
        if not context:
            return by_hash(context, continuation)
        return -float(continuation.strip() != right[context.split("\n")[0]])

    manager = TaskManager(include_path=str(public), include_defaults=False)
    results = lm_eval.simple_evaluate(FakeLM(knows), tasks=[NAME], task_manager=manager, bootstrap_iters=0)
    assert results["results"][NAME]["acc,none"] == 1.0
    assert [sample["doc"] for sample in sorted(results["samples"][NAME], key=lambda sample: sample["doc_id"])] == rows
    letters = "".join(f"\n{letter}. {option}" for letter, option in zip("ABCD", rows[0]["choices"], strict=True))
    first = next(sample for sample in results["samples"][NAME] if sample["doc_id"] == 0)
    assert first["arguments"][0][0] == f"{rows[0]['question'].strip()}{letters}\nAnswer:"


@pytest.mark.parametrize("name", ["2024", "true", "null"])
def test_a_name_that_yaml_reads_as_something_else_stays_a_name(name: str) -> None:
    assert yaml.safe_load(lettered_yaml(name, "", "# none"))["task"] == name


@pytest.mark.model
def test_the_task_loads_where_this_package_is_not_installed(public: Path, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, str(public)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "\nA. " in process.stdout
    assert process.stdout.rstrip().endswith("Answer:")


@pytest.mark.model  # reads the index of lm_eval's tasks
def test_a_task_of_lm_eval_is_sealed_as_its_audits_read_it(public: Path) -> None:
    sealing = sealing_of(NAME, None, "keep", str(public))
    assert sealing.seal.name == f"{NAME}_sealed"
    assert {original.question.strip() for original in sealing.examined.originals} == {
        row["question"].strip() for row in ROWS
    }
    assert {original.choices[original.answers[0]][1:] for original in sealing.examined.originals} == {"x"}
