"""Shards of runs: `--metadata shard=i/n`, for ordinary tasks and audits, with fake models."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
from lm_eval.api.task import Task
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.harness.seams.tasks import ask_shard
from lm_eval_leakage.logs.run import SHARD, RunShard
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.rows import flat_row
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate, manager
from tests.written_tasks import LETTERED, write_task

SHAPE = """
training_split: train
fewshot_split: {examples}
fewshot_config: {{sampler: default}}
num_fewshot: 2
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
GROUP = """
group: places
task: [capitals, rivers]
aggregate_metric_list:
  - {metric: acc, weight_by_size: true}
  - {metric: acc_norm, weight_by_size: false}
"""
SIZES = {"capitals": 23, "rivers": 10, "train": 9}


def rows(name: str) -> list[dict]:
    return [
        {"question": f"{name} {i}?", "choices": [f"{x}{i}" for x in "pqrs"], "answer": i % 4}
        for i in range(SIZES[name])
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("tasks")
    for task, examples in (("capitals", "train"), ("rivers", "test")):
        write_task(place, task, rows(task), **LETTERED, more=SHAPE.format(examples=examples), train=rows("train"))
    (place / "places.yaml").write_text(GROUP)
    return place


@pytest.fixture
def run(folder: Path):
    """Evaluates tasks, all questions or a shard, and saves them as `lm_eval run --log_samples` does if told where."""

    def evaluated(tasks: list[str], shard: str | None = None, output: Path | None = None, **options) -> dict:
        metadata = {} if shard is None else {SHARD: shard}
        tracker = EvaluationTracker(output_path=None if output is None else str(output))
        found = evaluate(FakeLM(by_hash), metadata, tasks, folder, evaluation_tracker=tracker, **options)
        if output is not None:
            samples = found.pop("samples")
            tracker.general_config_tracker.model_name_sanitized = "fake"
            tracker.save_results_aggregated(results=found, samples=samples)
            for task in found["configs"]:
                tracker.save_results_samples(task_name=task, samples=samples[task])
        return found

    return evaluated


# ---------------------------------------------------------------------- what a shard asks


@pytest.mark.parametrize("task", ["capitals", "rivers"])  # whose examples are of another split, and of the same
@pytest.mark.parametrize("options", [{}, {"limit": 0.5}, {"samples": [1, 2, 5, 6, 9]}], ids=str)
def test_shards_ask_together_what_the_whole_run_asks_with_the_same_randomly_drawn_examples(run, task, options) -> None:
    if "samples" in options:
        options = {"samples": {task: options["samples"]}}
    whole = run([task], **options)["samples"][task]
    shards = [run([task], f"{index}/3", **options)["samples"][task] for index in range(3)]
    assert [[sample["doc_id"] for sample in own] for own in shards] == [
        [sample["doc_id"] for sample in whole[index::3]] for index in range(3)
    ]
    assert sorted(chain(*shards), key=lambda sample: sample["doc_id"]) == whole
    assert len({sample["arguments"][0][0] for sample in whole}) == len(whole)


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_shard_is_divided_among_processes_with_the_examples_of_one_process(run, folder, world_size) -> None:
    whole = run(["rivers"])["samples"]["rivers"]
    asked = {}
    for rank in range(world_size):
        task = loaded(folder, "rivers", "1/3")
        task.set_fewshot_seed(1234)
        task.build_all_requests(rank=rank, world_size=world_size)
        own = {instance.doc_id: instance.args[0] for instance in task.instances}
        assert set(own) == {*range(1 + 3 * rank, 10, 3 * world_size)}
        asked |= own
    assert asked == {sample["doc_id"]: sample["arguments"][0][0] for sample in whole[1::3]}


def loaded(folder: Path, task: str, shard: str) -> Task:
    return manager({SHARD: shard}, folder).load([task])["tasks"][task]


def test_an_audit_asks_a_shard_of_its_questions(run, caplog) -> None:
    whole = run(["capitals_leakage_perm"])["samples"]["capitals_leakage_perm"]
    found = [run(["capitals_leakage_perm"], f"{index}/2") for index in range(2)]
    shards = [one["samples"]["capitals_leakage_perm"] for one in found]
    together = sorted(chain(*shards), key=lambda sample: (sample["filter"] != whole[0]["filter"], sample["doc_id"]))
    assert together == [*whole]
    assert [one["n-samples"]["capitals_leakage_perm"]["effective"] for one in found] == [12, 11]
    assert "this run is shard 1/2: its tables are of 11 of 23 questions" in caplog.text


@pytest.mark.parametrize("tasks", [["places"], ["places_leakage_perm"], ["capitals", "rivers_leakage_perm"]], ids=str)
def test_a_shard_without_questions_finishes_and_says_so(run, caplog, tasks) -> None:
    found = run(tasks, "3/4", limit=3)
    assert {counts["effective"] for counts in found["n-samples"].values()} == {0}
    assert [*chain(*found["samples"].values())] == []
    assert any("this run is shard 3/4: its tables are of 0 of 6 questions" in text for text in caplog.messages)
    half = run(["places"], "11/12")
    assert [half["n-samples"][task]["effective"] for task in ("capitals", "rivers")] == [1, 0]


def test_fewer_questions_in_a_shard_than_processes_are_refused_with_the_remedy(folder) -> None:
    task = loaded(folder, "rivers", "0/5")
    with pytest.raises(Refusal, match=r"shard 0/5 has 2 of the run's 10 questions for 3 processes.*make fewer shards"):
        task.build_all_requests(rank=0, world_size=3)


def test_the_request_cache_is_not_used_since_it_ignores_shards(run, caplog, monkeypatch) -> None:
    read = []
    monkeypatch.setattr("lm_eval.api.task.load_from_cache", lambda file_name, cache: cache and read.append(file_name))
    found = run(["rivers"], "0/2", cache_requests=True)
    assert found["n-samples"]["rivers"]["effective"] == 5
    assert not read
    assert "rivers: --cache_requests is ignored, since the cache ignores shards" in caplog.messages


def test_a_task_written_in_python_without_settings_of_its_own_is_asked_in_shards_too() -> None:
    class Written(Task):
        DATASET_PATH, VERSION = "none", 0

        def download(self, *args, **kwargs) -> None: ...

        has_training_docs = has_validation_docs = lambda self: False
        has_test_docs = lambda self: True  # noqa: E731
        test_docs = lambda self: [f"doc {i}" for i in range(7)]  # noqa: E731
        doc_to_text = doc_to_target = construct_requests = process_results = aggregation = higher_is_better = None

    Written.__abstractmethods__ = frozenset()
    task = Written()
    ask_shard(task, RunShard(1, 3))
    assert [*task.doc_iterator()] == [(1, "doc 1"), (4, "doc 4")]
    assert task.dump_config()["metadata"] == {SHARD: "1/3"}


# ---------------------------------------------------------------------- refused early


@pytest.mark.parametrize("written", ["3/3", "0/0", "-1/4", "1", "a/b", "1/2/3", "", 3, True, 0.5, ["0/2"]], ids=repr)
@pytest.mark.parametrize("tasks", ["capitals", "mmlu_leakage_perm"])
def test_a_malformed_shard_ends_the_run_in_one_sentence_before_anything_is_loaded(written, tasks, monkeypatch) -> None:
    monkeypatch.setattr(TaskManager, "__init__", lambda *_, **__: pytest.fail("the index was built"))
    config = EvaluatorConfig(tasks=tasks, metadata={SHARD: written}, model_args={"pretrained": "x"})._configure()
    with pytest.raises(Refusal) as ended:
        config.process_tasks(config.metadata)
    assert str(ended.value).startswith(f"shard is {written!r}; give i/n, such as 0/4 for every fourth question")


# ---------------------------------------------------------------------- pooled


TASKS = ["places", "capitals_leakage_perm"]


def test_rows_of_pooled_shards_equal_those_of_the_whole_run(run, tmp_path) -> None:
    """With more shards than one of the tasks has questions, done in any order."""
    run(TASKS, output=tmp_path / "whole")
    for index in (5, *range(5), *reversed(range(6, 12))):
        run(TASKS, f"{index}/12", output=tmp_path / "shards")
    (whole,), (pooled,) = annotate([tmp_path / "whole"]), annotate([tmp_path / "shards"])
    told = [
        [{key: value for key, value in flat_row(row).items() if key != "origin"} for row in one.rows]
        for one in (whole, pooled)
    ]
    for own, other in zip(*told, strict=True):
        assert own.keys() == other.keys()
        for key, value in own.items():
            assert other[key] == (pytest.approx(value, rel=1e-12, nan_ok=True) if isinstance(value, float) else value)
    assert [row["task"] for row in told[0]] == ["places", "places", "capitals", "capitals", "rivers", "rivers"]
    assert [row.verdict for row in whole.rows] == [row.verdict for row in pooled.rows]
    assert whole.audited_questions == pooled.audited_questions
    assert not any(problem.incomplete for problem in (*whole.problems, *pooled.problems))


def test_a_run_that_ignored_its_shard_counts_as_a_whole_one_and_is_named(run, tmp_path, caplog) -> None:
    """Plain lm_eval without this package keeps the key of --metadata, and asks everything."""
    run(["rivers"], output=tmp_path)
    (file,) = tmp_path.rglob("results_*.json")
    content = json.loads(file.read_text())
    content["configs"]["rivers"]["metadata"][SHARD] = "0/3"
    file.write_text(json.dumps(content))
    (found,) = annotate([tmp_path])
    assert {row.n for row in found.rows} == {10}
    assert any("was to ask a shard of rivers, but asked all questions" in str(one) for one in found.problems)
