"""Rows of the table: those that statistics declare, each question counted once, and columns of audited tasks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
from lm_eval import simple_evaluate
from lm_eval.api import registry
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.detectors import Statistic, statistics
from lm_eval_leakage.detectors.option_orders import MaxOrderEvidence
from lm_eval_leakage.harness import table as rows_of_harness
from lm_eval_leakage.harness.table import Contribution, pooled, registered_rows
from lm_eval_leakage.harness.tasks.audit import LeakageGroup
from lm_eval_leakage.harness.tasks.finished_results import add_columns
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Measurement, Skipped
from lm_eval_leakage.stats.pooling import mean_row
from tests.fakes import FakeLM, by_hash, fond_of
from tests.harness.test_task import FIVE, GOOD, ONE, evaluate, inline, lines, manager
from tests.written_tasks import LETTERED, published, write_task

FLAGGED = MaxOrderEvidence(True, 1 / 6, 1 / 6, order_z=2.5, margin=2.0, best_order=0, n_orders=6)
NOT_FLAGGED = MaxOrderEvidence(False, 20 / 24, 1 / 24, order_z=-1.5, margin=-3.0, best_order=7, n_orders=24)
GIVEN = [Contribution(verdict) for verdict in (FLAGGED, Skipped("why"), NOT_FLAGGED, FLAGGED)]


def test_rows_of_a_small_data_set() -> None:
    rows = registered_rows()
    assert rows["flagged_rate"](GIVEN) == 2 / 3
    assert math.isclose(rows["flagged_rate_stderr"](GIVEN), math.sqrt(2 / 3 * 1 / 3 / 2))
    assert math.isclose(rows["null_rate"](GIVEN), (2 / 6 + 1 / 24) / 3)
    by_hand = (1 / 6) ** 2 + 2 * (1 / 6) * (5 / 6) * (1 / 24)
    assert math.isclose(rows["dataset_pvalue"](GIVEN), by_hand)
    assert rows["skipped"](GIVEN) == 1


# ---------------------------------------------------------------------- a statistic of another package


@dataclass(frozen=True)
class Length(Measurement):
    ranks_by: ClassVar[tuple[str, ...]] = ("n_orders",)
    n_orders: int


@dataclass(frozen=True)
class Lengths(Statistic):
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        mean_row("mean_orders", "Orders that were asked about", "n_orders", higher_is_better=True),
    )

    def verdict(self, question: Answered) -> Length:
        return Length(len(question.answers))


@dataclass(frozen=True)
class Silent(Lengths):
    rows: ClassVar[tuple[DeclaredRow, ...]] = ()


@pytest.fixture
def registered(monkeypatch):
    """Registers a statistic as its own module would, and removes it and its rows after the test."""
    registered_rows()  # imports all of them first: what is registered during the test is forgotten after it
    for registry_module in (statistics, rows_of_harness):
        name = "_objects" if registry_module is statistics else "_registered"
        monkeypatch.setattr(registry_module, name, dict(getattr(registry_module, name)))
    for name in ("metric", "aggregation", "metric_agg", "higher_is_better"):
        of_harness = getattr(registry, f"{name}_registry")
        monkeypatch.setattr(of_harness, "_objs", dict(of_harness._objs))
    return lambda name, statistic: statistics.register(name)(statistic)


def of_task(config: dict):
    nothing = TaskManager(include_defaults=False)
    return simple_evaluate(FakeLM(by_hash), tasks=[LeakageTask(config=config)], task_manager=nothing)


def evaluated(questions_file, docs: list[dict], *names: str):
    config = inline(questions_file, {}) | {
        "filter_list": [{"name": name, "filter": [{"function": "leakage", "statistic": name}]} for name in names],
        "metadata": {"probe": "option_orders"} | questions_file(docs),
    }
    del config["metric_list"]
    return of_task(config)


def test_a_new_measurement_prints_the_rows_that_it_declares_without_another_edit(registered, questions_file) -> None:
    registered("lengths", Lengths)
    results = evaluated(questions_file, [GOOD, FIVE, ONE], "lengths")
    row = results["results"]["inline"]
    assert {name: value for name, value in row.items() if "," in name} == {
        "evidence,lengths": "no verdict",
        "mean_orders,lengths": (24 + 120) / 2,
        "mean_orders_stderr,lengths": pytest.approx(48),
        "skipped,lengths": 1,
    }
    assert results["higher_is_better"]["inline"]["mean_orders"] is True
    assert [line["mean_orders"] for line in lines(results, "lengths", "inline")] == [24, 120, None]
    assert "mean_orders" in [entry.metric for entry in LeakageGroup("g").aggregate_metric_list]


def test_the_rows_of_two_statistics_are_shown_only_where_they_have_a_value(registered, questions_file) -> None:
    registered("lengths", Lengths)
    row = evaluated(questions_file, [GOOD, FIVE], "lengths", "max_order")["results"]["inline"]
    assert {"mean_orders,lengths", "flagged_rate,max_order", "skipped,lengths", "skipped,max_order"} <= row.keys()
    assert not {"mean_orders,max_order", "flagged_rate,lengths"} & row.keys()


def test_a_statistic_without_rows_is_refused_before_the_model_works(registered, questions_file) -> None:
    registered("silent", Silent)
    with pytest.raises(ValueError, match="the statistic 'silent' declares no rows, so nothing would be printed"):
        evaluated(questions_file, [GOOD], "silent")


def test_a_metric_list_of_the_users_own_is_kept(questions_file) -> None:
    config = inline(questions_file, {"statistic": "max_order"})
    results = of_task(config)
    row = results["results"]["inline"]
    assert {name for name in row if "," in name} == {"skipped,own"}
    assert results["higher_is_better"]["inline"] == {"skipped": False}


def test_a_users_yaml_with_statistics_of_its_own_prints_their_rows(questions_file, tmp_path) -> None:
    ours = task_configs_path() / "mmlu" / "mmlu_leakage_perm.yaml"
    (tmp_path / "own.yaml").write_text(
        f"include: {ours}\ntask: own\nfilter_list:\n  - name: tail\n    filter:\n      - function: leakage\n"
        "        statistic: tail_answered\nmetadata:\n  probe: question_tail\n"
    )
    docs = [GOOD | {"question": "Which of these four is the colour that the sky has by day?"}]
    results = evaluate(FakeLM(by_hash), questions_file(docs), ["own"], tmp_path)
    assert {"flagged_rate,tail", "accuracy_whole,tail", "skipped,tail"} <= results["results"]["own"].keys()


RATE = registered_rows()["flagged_rate"]
PVALUE = registered_rows()["dataset_pvalue"]


@dataclass(frozen=True)
class Found(Evidence):
    @property
    def statistic(self) -> float:
        return 1.0


HIT, OTHER = Found(True, 0.04, 0.04), Found(False, 0.5, 0.04)


def contributions(task: str, keys: str, given: Evidence = OTHER) -> list[Contribution]:
    return [Contribution(given, key, (task, place)) for place, key in enumerate(keys)]


def test_the_pvalue_is_that_of_distinct_questions() -> None:
    once = contributions("t", "abc", HIT)
    assert PVALUE(once + once) == PVALUE(once) == pytest.approx(0.04**3)
    assert PVALUE(once + once).counted.n_copies == 3


def test_the_first_row_counts_in_whatever_order_processes_hand_them_in() -> None:
    contributions_of_all = [*contributions("t", "abcd", HIT), *contributions("t", "....abcd")[4:]]
    for seed in range(5):
        random.Random(seed).shuffle(contributions_of_all)
        assert RATE(contributions_of_all) == 1.0


def test_a_group_counts_what_two_of_its_tasks_ask_once() -> None:
    members = [RATE(contributions("b", "abc")), RATE(contributions("a", "cd", HIT))]
    together = pooled(members)
    assert together == 0.5
    assert (len(together.counted.verdicts), together.counted.n_copies) == (4, 1)
    assert [member.counted.n_copies for member in members] == [0, 0]


def test_questions_without_a_key_all_count() -> None:
    assert (
        RATE([Contribution(verdict, "", ("t", place)) for place, verdict in enumerate([HIT, OTHER, OTHER, OTHER])])
        == 0.25
    )


CAPITALS = [
    {"question": f"Capital {i}?", "choices": [f"p{i}", f"q{i}", f"r{i}", f"s{i}"], "answer": 0} for i in range(8)
]
SEEN = 3


@pytest.fixture
def capitals(tmp_path):
    write_task(tmp_path, "capitals", CAPITALS, **LETTERED)
    return manager(folder=tmp_path)


@pytest.fixture
def model():
    """A model that has seen the first questions with their options as published, and knows their answers."""
    endings = ("", "\nAnswer:", "\nAnswer: A")
    return FakeLM(fond_of(*(published(row) + ending for row in CAPITALS[:SEEN] for ending in endings)))


def test_a_task_in_the_same_run_as_its_audit_shows_the_columns_in_its_own_rows(capitals, model) -> None:
    results = simple_evaluate(model=model, tasks=["capitals", "capitals_leakage_perm"], task_manager=capitals)
    row = results["results"]["capitals"]
    flagged = [line["flagged"] for line in lines(results, "max_order", "capitals_leakage_perm")]
    assert flagged[:SEEN] == [True] * SEEN
    assert row["flagged_rate,leakage"] == pytest.approx(sum(flagged) / 8)
    right = [sample["acc"] for sample in results["samples"]["capitals"]]
    others = [score for score, flag in zip(right, flagged, strict=True) if not flag]
    assert row["acc_unflagged,leakage"] == pytest.approx(sum(others) / len(others))
    assert [line for line in make_table(results).splitlines() if "acc_unflagged" in line]


def test_without_samples_or_without_an_audit_nothing_is_added(capitals, model) -> None:
    for names, log_samples in ((["capitals", "capitals_leakage_perm"], False), (["capitals"], True)):
        results = simple_evaluate(model=model, tasks=names, task_manager=capitals, log_samples=log_samples)
        assert not [key for key in results["results"]["capitals"] if "leakage" in key]


def test_what_cannot_be_added_ends_no_run(caplog) -> None:
    results = {"results": {"t": {}}, "samples": {"t": [{"doc_id": 0, "doc": {}, "acc": 1.0}], "a": [{"ranks_by": 7}]}}
    add_columns(results, ["a"])
    assert results["results"] == {"t": {}}
    broken = {"results": 7, "samples": {"t": [{"doc_id": 0, "doc": {}, "acc": 1.0}], "a": [{"ranks_by": ""}]}}
    add_columns(broken, ["a"])
    assert "no leakage columns" in caplog.text
