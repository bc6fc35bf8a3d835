from __future__ import annotations

import pytest

from lm_eval_leakage.jobs.plan import Unit, units_of
from tests.campaign.test_plan_settings import plan


def test_units_are_all_models_tasks_kinds_and_shards_with_each_model_together() -> None:
    models = [{"name": "a"}, {"name": "b"}]
    units = units_of(plan(models=models, tasks="t,u", audits=["leakage_perm", "leakage_tokens"], shards=2))
    assert len(set(units)) == len(units) == 2 * 2 * 3 * 2
    assert [unit.model for unit in units] == ["a"] * 12 + ["b"] * 12
    assert [unit.id for unit in units[:3]] == ["a/t/run/0of2", "a/t/run/1of2", "a/t/leakage_perm/0of2"]


def test_without_runs_there_are_only_audits() -> None:
    assert {unit.kind for unit in units_of(plan(runs=False))} == {"leakage_perm"}


@pytest.mark.parametrize("unit", [Unit("a", "t", "run", 0, 1), Unit("b.1", "mmlu pro", "leakage_perm", 3, 12)])
def test_an_id_is_read_back(unit: Unit) -> None:
    assert Unit.of_id(unit.id) == unit


@pytest.mark.parametrize("text", ["", "a/t/run", "a/t/run/1", "a/t/run/0of1/x", "/t/run/0of1", "a/t/run/xof1"])
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a unit; write it as MODEL/TASK/KIND/0of1"):
        Unit.of_id(text)


def test_an_audit_is_named_after_its_task_and_a_single_shard_is_the_whole() -> None:
    assert Unit("a", "t", "leakage_perm", 1, 4).asked == "t_leakage_perm"
    assert Unit("a", "t", "run", 1, 4).asked == "t"
    assert Unit("a", "t", "run", 1, 4).metadata == {"shard": "1/4"}
    assert Unit("a", "t", "run", 0, 1).metadata == {}
