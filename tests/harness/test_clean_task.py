"""A folder of clean tasks, run by the harness as a user would."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import clean_task
from lm_eval_leakage.harness.clean_files import write_clean
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.clean_sets import CleanSet, clean_sets
from tests.fakes import FakeLM, by_hash
from tests.results.test_clean_sets import annotation, question
from tests.written_tasks import write_task

pytestmark = pytest.mark.model  # each test runs the harness several times, a minute in all

N = 10
ROWS = [{"q": f"Colour {i}?", "options": [f"red {i}", f"grün {i}"], "answer": i % 2} for i in range(N)]
DEV = [{"q": f"Example {i}?", "options": ["yes", "no"], "answer": 0} for i in range(4)]
METRICS = (
    "metric_list:\n  - {metric: acc, aggregation: mean, higher_is_better: true}\nmetadata: {version: 3}\ntag: bright\n"
)
UTILS = """
def louder(docs):
    return docs.map(lambda doc: {**doc, "q": doc["q"].upper(), "set": 1})
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "utils.py").write_text(UTILS)
    return folder


def write(
    base: Path, name: str = "colours", docs: Sequence[dict] = ROWS, metrics: str = METRICS, more: str = ""
) -> None:
    """A base task."""
    write_task(base, name, docs, '"{{q}}"', '"{{options}}"', f"{metrics}{more}", DEV)


def manager(folder: Path) -> TaskManager:
    return TaskManager(include_path=str(folder), include_defaults=False)


def run(folder: Path, *names: str, **options: Any) -> dict[str, Any]:
    return simple_evaluate(model=FakeLM(by_hash), tasks=list(names), task_manager=manager(folder), **options)


def sets_of(results: Mapping[str, Any], flagged: Callable[[int], bool | None], **options: Any) -> list[CleanSet]:
    """The sets from a real run's samples, with verdicts made up by doc id."""
    questions = [
        question(
            sample["doc_id"],
            flagged(sample["doc_id"]),
            task,
            doc_hash=sample["doc_hash"],
            scores={"acc,none": sample["acc"]},
        )
        for task, samples in results["samples"].items()
        for sample in samples
    ]
    return clean_sets([annotation(*questions, audited=[])], **options)


def thirds(doc_id: int) -> bool:
    return doc_id % 3 == 0


def problems_of(*given: Any, **options: Any) -> list[Problem]:
    """Return what `write_clean` says, except that these base tasks are the user's own."""
    return [problem for problem in write_clean(*given, **options) if "is a task of your own" not in str(problem)]


def cleaned(base: Path, *names: str, flagged: Callable[[int], bool | None] = thirds, **options: Any) -> Path:
    """Writes the clean tasks of a real run; returns their folder."""
    folder = base.parent / "clean"
    problems = problems_of(sets_of(run(base, *names, **options), flagged), {}, folder, manager(base))
    assert problems == []
    return folder


def hashes(results: Mapping[str, Any], name: str) -> list[str]:
    return [sample["doc_hash"] for sample in results["samples"][name]]


def prompts(results: Mapping[str, Any], name: str) -> dict[str, list]:
    return {sample["doc_hash"]: [tuple(pair) for pair in sample["arguments"]] for sample in results["samples"][name]}


PROCESSED = "process_docs: !function utils.louder\nfewshot_split: train\nfewshot_config: {sampler: first_n}\n"


@pytest.mark.parametrize("more", ["", PROCESSED], ids=["rows as they are", "process_docs"])
def test_a_clean_run_has_the_kept_questions_with_the_hashes_and_scores_of_the_full_run(base, more) -> None:
    write(base, more=more)
    full = run(base, "colours")
    clean = run(cleaned(base, "colours"), "colours_clean")
    expected = [sample for sample in full["samples"]["colours"] if sample["doc_id"] not in (0, 3, 6, 9)]
    assert hashes(clean, "colours_clean") == [sample["doc_hash"] for sample in expected]
    assert clean["results"]["colours_clean"]["acc,none"] == sum(sample["acc"] for sample in expected) / 6
    assert clean["n-samples"]["colours_clean"] == {"original": 6, "effective": 6}
    assert clean["versions"]["colours_clean"] == 3


FIRST_N = "fewshot_config: {sampler: first_n}\n"
EXAMPLES = {
    "first of their split": f"fewshot_split: train\n{FIRST_N}",
    "drawn from their split": "fewshot_split: train\n",
    "processed": PROCESSED,
    "first of the split that is asked": f"fewshot_split: test\n{FIRST_N}",
    "drawn from the split that is asked": "fewshot_split: test\n",
    "no split": "",
}


@pytest.mark.parametrize("examples", EXAMPLES.values(), ids=EXAMPLES)
def test_prompts_are_the_base_tasks_with_its_own_number_of_examples_or_another(base, examples) -> None:
    write(base, more=examples + "num_fewshot: 1\n")
    folder = cleaned(base, "colours")
    for number in (None, 3):
        full = prompts(run(base, "colours", num_fewshot=number), "colours")
        clean = prompts(run(folder, "colours_clean", num_fewshot=number), "colours_clean")
        assert len(clean) == 6
        assert clean.items() <= full.items()


@pytest.mark.parametrize("rank", [0, 1])
def test_on_several_devices_prompts_are_those_of_one(base, rank) -> None:
    write(base, more="fewshot_split: test\n")
    full = prompts(run(base, "colours", num_fewshot=3), "colours")
    clean = manager(cleaned(base, "colours")).load(["colours_clean"])["tasks"]["colours_clean"]
    clean.set_config("num_fewshot", 3)
    clean.set_fewshot_seed(1234)  # as simple_evaluate does
    clean.build_all_requests(rank=rank, world_size=2)
    assert len(clean.instances) == 3 * 2
    for instance in clean.instances:
        assert instance.args == full[clean_task.doc_hash(instance.doc)][instance.idx]


def test_equal_rows_count_as_often_as_in_the_base_task(base) -> None:
    write(base, docs=[*ROWS, ROWS[1], ROWS[3]])
    clean = run(cleaned(base, "colours", flagged=lambda doc_id: doc_id in (3, 11)), "colours_clean")
    names = [sample["doc"]["q"] for sample in clean["samples"]["colours_clean"]]
    assert names == [f"Colour {i}?" for i in (0, 1, 2, 4, 5, 6, 7, 8, 9, 1)]


def test_a_copy_beyond_the_run_is_no_question_of_its_list(base, caplog) -> None:
    write(base, docs=[*ROWS, ROWS[1]])
    folder = cleaned(base, "colours", limit=4)
    with caplog.at_level(logging.WARNING):
        clean = run(folder, "colours_clean")
    assert [sample["doc"]["q"] for sample in clean["samples"]["colours_clean"]] == ["Colour 1?", "Colour 2?"]
    assert "colours_clean.json was chosen from 4 of these 11 questions" in caplog.text


@pytest.mark.parametrize("docs", [ROWS[:-2], [{**row, "q": row["q"][:-1]} for row in ROWS]])
def test_changed_data_are_an_error_that_names_numbers_file_and_remedy(base, docs) -> None:
    write(base)
    folder = cleaned(base, "colours")
    (base / "colours.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs))
    n_rows = 5 if docs == ROWS[:-2] else 0
    with pytest.raises(
        ValueError, match=f"{n_rows} of the 6 questions that .*colours_clean.json.*make the list again"
    ):
        run(folder, "colours_clean")


def test_a_base_task_that_the_harness_no_longer_has_is_named(base) -> None:
    write(base)
    folder = cleaned(base, "colours")
    (base / "colours.yaml").unlink()
    with pytest.raises(ValueError, match=r"colours has no YAML at .*colours\.yaml with lm_eval 0"):
        run(folder, "colours_clean")


def test_another_version_of_the_base_task_gets_a_warning_and_is_shown(base, caplog) -> None:
    write(base)
    folder = cleaned(base, "colours")
    file = base / "colours.yaml"
    file.write_text(file.read_text().replace("version: 3", "version: 4"))
    clean = run(folder, "colours_clean")
    assert clean["versions"]["colours_clean"] == 4
    assert "colours has version 4 here; its questions were chosen with version 3" in caplog.text


def test_cached_requests_of_another_list_are_not_used(base, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("lm_eval.caching.cache.PATH", str(tmp_path / "cache"))
    write(base)
    full = run(base, "colours")
    for flagged in (thirds, lambda doc_id: not thirds(doc_id)):
        folder = tmp_path / f"clean_{flagged(0)}"
        write_clean(sets_of(full, flagged), {}, folder, manager(base))
        for _ in range(2):
            clean = run(folder, "colours_clean", cache_requests=True)
            expected = [sample["doc_hash"] for sample in full["samples"]["colours"] if not flagged(sample["doc_id"])]
            assert hashes(clean, "colours_clean") == expected


def test_a_groups_accuracy_is_that_of_its_questions_together(base) -> None:
    write(base, "colours")
    write(base, "shades", docs=[{**row, "q": f"Shade of {row['q']}"} for row in ROWS[:5]])
    full = run(base, "colours", "shades")
    folder = base.parent / "clean"
    groups = {"all": ["inner", "shades"], "inner": ["colours"], "colours": []}
    assert problems_of(sets_of(full, thirds), groups, folder, manager(base)) == []
    results = run(folder, "all_clean")
    samples = [sample for name in ("colours", "shades") for sample in full["samples"][name]]
    left = [sample["acc"] for sample in samples if not thirds(sample["doc_id"])]
    assert len(left) == 6 + 3
    assert results["groups"]["all_clean"]["acc,none"] == pytest.approx(sum(left) / 9, abs=1e-12)
    assert results["group_subtasks"]["all_clean"] == ["inner_clean", "shades_clean"]


def test_a_group_shows_only_means_that_all_members_have_and_lacks_those_without_a_clean_task(base) -> None:
    write(base, "colours")
    write(base, "shades", metrics=METRICS.replace("metric: acc,", "metric: acc_norm,"))
    sets = [
        *sets_of(run(base, "colours"), thirds),
        *sets_of({"samples": {"shades": [{"doc_id": 1, "doc_hash": "h", "acc": 1.0}]}}, thirds),
    ]
    groups = {"all": ["colours", "shades", "tints"], "none": ["tints"]}
    assert list(map(str, problems_of(sets, groups, base.parent / "clean", manager(base)))) == [
        "all_clean lacks tints, which have no clean task",
        "all_clean shows no accuracy: its tasks have no metric in common",
        "no group none_clean is written: none of its tasks has a clean one",
    ]
    assert not (base.parent / "clean" / "none_clean.yaml").exists()


def test_sets_that_cannot_be_clean_tasks_are_named_and_the_others_written(base) -> None:
    for name in ("colours", "all_flagged", "own_class"):
        write(base, name)
    full = run(base, "colours", "all_flagged", "own_class")
    (base / "own_class.yaml").write_text("task: own_class\nclass: !function utils.Own\n")
    renamed = {"gone": full["samples"]["colours"], "bright": full["samples"]["colours"]}
    sets = sets_of({"samples": full["samples"] | renamed}, thirds)
    sets = [clean_set if clean_set.task != "all_flagged" else sets_of(full, lambda _: True)[1] for clean_set in sets]
    said = {str(problem) for problem in problems_of(sets, {}, base.parent / "clean", manager(base))}
    beginnings = {
        "no all_flagged_clean is written: nothing remains of the 10 questions (flagged: 10)",
        "no own_class_clean is written: own_class is a task with its own class, whose questions",
        "no bright_clean is written: the harness knows no YAML of a task bright; give its folder as include_path",
        "no gone_clean is written: the harness knows no YAML of a task gone; give its folder as include_path",
    }
    assert len(said) == len(beginnings)
    assert all(any(clean_set.startswith(beginning) for clean_set in said) for beginning in beginnings)
    written = {file.name for file in (base.parent / "clean").glob("*.yaml")}
    assert written == {"colours_clean.yaml"}


def test_nothing_to_write_is_an_error_and_no_folder(base) -> None:
    given = sets_of({"samples": {"gone": [{"doc_id": 1, "doc_hash": "h", "acc": 1.0}]}}, thirds)
    with pytest.raises(ValueError, match="no clean task to write .*give runs of base tasks with their audits"):
        write_clean(given, {}, base.parent / "clean", manager(base))
    assert not (base.parent / "clean").exists()


def test_files_of_another_run_are_not_overwritten_unasked(base) -> None:
    write(base)
    full = run(base, "colours")
    folder = cleaned(base, "colours")
    before = {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}
    assert problems_of(sets_of(full, thirds), {}, folder, manager(base)) == []
    others = sets_of(full, lambda doc_id: not thirds(doc_id))
    with pytest.raises(
        ValueError,
        match="colours_clean.yaml .*has different content, from another run; choose a new folder, or overwrite",
    ):
        write_clean(others, {}, folder, manager(base))
    assert {file.name: file.read_text() for file in folder.iterdir() if file.is_file()} == before
    assert problems_of(others, {}, folder, manager(base), overwrite=True) == []
    assert len(run(folder, "colours_clean")["samples"]["colours_clean"]) == 4


def test_a_task_of_the_harness_is_found_wherever_the_harness_is_installed(base, tmp_path) -> None:
    class Harness:
        task_index = TaskManager(include_path=str(clean_task.TASKS / "arc"), include_defaults=False).task_index

    sample = {"doc_id": 1, "doc_hash": "h", "acc": 1.0}
    sets = sets_of({"samples": {"arc_challenge": [sample]}}, thirds)
    assert problems_of(sets, {}, tmp_path / "clean", Harness()) == []
    written = (tmp_path / "clean" / "arc_challenge_clean.yaml").read_text()
    assert 'base_yaml: "arc/arc_challenge.yaml"' in written


WITHOUT_US = (
    "import runpy, sys; sys.modules['lm_eval_leakage'] = None; "
    "runpy.run_module('lm_eval', run_name='__main__', alter_sys=True)"
)


def test_plain_lm_eval_without_our_package_runs_a_written_folder(base, tmp_path) -> None:
    from tests.harness.test_prefix_tree_lm import checkpoint

    write(base, more="fewshot_split: train\nfewshot_config: {sampler: first_n}\n")
    folder, output = cleaned(base, "colours"), tmp_path / "out"
    model = checkpoint(tmp_path / "model", max_position_embeddings=512)
    command = [sys.executable, "-c", WITHOUT_US, "--model", "hf", "--model_args", f"pretrained={model},dtype=float32"]
    command += ["--include_path", folder, "--tasks", "colours_clean", "--num_fewshot", "2", "--device", "cpu"]
    command += ["--log_samples", "--output_path", output]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "|colours_clean|" in done.stdout
    (log,) = output.rglob("samples_colours_clean_*.jsonl")
    samples = [json.loads(line) for line in log.read_text().splitlines()]
    assert [sample["doc"]["q"] for sample in samples] == [f"Colour {i}?" for i in range(N) if i % 3]
    start = "Example 0? yes\n\nExample 1? yes\n\nColour "
    assert all(sample["arguments"]["gen_args_0"]["arg_0"].startswith(start) for sample in samples)
