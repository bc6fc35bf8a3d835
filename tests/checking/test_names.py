"""Every name in `tasks` has a verdict of its own, from its own runs alone, whatever other names contain."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs import outcome as outcomes
from lm_eval_leakage.jobs.driver import check
from lm_eval_leakage.results.verdict_words import EVIDENCE, NONE_FOUND, STRONG_EVIDENCE
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions
from tests.written_tasks import LETTERED, write_task

ALARMING = (EVIDENCE, STRONG_EVIDENCE)
N = 40
DOCS = {name: questions(N, seed=seed) for seed, name in enumerate(("quiz_a", "quiz_b", "quiz_c"))}
GROUPS: Mapping[str, Sequence[str]] = {"grp": ("quiz_a", "quiz_b"), "outer": ("grp", "quiz_c"), "rest": ("quiz_b",)}
MEMBERS = {**{name: (name,) for name in DOCS}, "grp": ("quiz_a", "quiz_b"), "outer": tuple(DOCS), "rest": ("quiz_b",)}


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, fakes: type[NamedFake], only_given_tasks: None) -> Path:
    """Three tasks and three groups; the model has seen `quiz_a`."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name, docs in DOCS.items():
        write_task(folder, name, docs, more="tag: all_of_them\nmetric_list:\n  - metric: acc\n", **LETTERED)
    for name, members in GROUPS.items():
        write_group(folder, name, members)
    fakes.score = staticmethod(OptionOrders(DOCS["quiz_a"], (3.0, 0.6)))
    return folder


def write_group(folder: Path, name: str, members: Sequence[str]) -> None:
    settings = "aggregate_metric_list:\n  - metric: acc\n    weight_by_size: true\n"
    (folder / f"{name}.yaml").write_text(f"group: {name}\ntask: [{', '.join(members)}]\n{settings}")


def of(folder: Path, names: str, **given: Any) -> Any:
    given = {"questions": "all", "fail_on": "evidence", "include_path": folder / "tasks"} | given
    return checked(folder, tasks=names, **given)


def told(outcome: Any) -> dict[str, tuple[Any, ...]]:
    """What does not depend on the other names."""
    return {
        one.task: (one.pvalue, one.n, one.n_tested, one.flagged, one.accuracy, one.look, one.seed)
        for one in outcome.verdicts
    }


@pytest.mark.parametrize("n", ["all", 24])
@pytest.mark.parametrize(
    "names",
    ["quiz_a,grp", "grp,quiz_a", "outer,quiz_a,grp", "grp,rest,quiz_b", "quiz_*,grp,quiz_a", "all_of_them,rest"],
)
def test_each_name_has_the_verdict_that_it_has_alone(tmp_path: Path, names: str, n: int | str) -> None:
    outcome = of(tmp_path, names, questions=n)
    asked = [*told(outcome)]
    assert {*asked} == {
        one for name in names.split(",") for one in (DOCS if name in ("quiz_*", "all_of_them") else [name])
    }
    assert len(outcome.verdicts) == len(asked)
    for name in asked:
        alone = of(tmp_path, name, questions=n, out=f"alone {name}")
        assert told(outcome)[name] == told(alone)[name], name
        assert {one.n_adjusted for one in outcome.verdicts} == {len(asked)}
    assert {name: f"m, {name}:" in " ".join(outcome.failed) for name in asked} == {
        one.task: one.verdict in ALARMING for one in outcome.verdicts
    }
    assert outcome.problems == ()
    assert told(of(tmp_path, names, questions=n)) == told(outcome)


def test_a_contaminated_member_is_not_hidden_by_its_group(tmp_path: Path, tasks: Path, fakes: type[NamedFake]) -> None:
    write_task(tasks, "clean", questions(150, seed=5), **LETTERED)
    write_group(tasks, "wide", ["quiz_a", "clean"])
    fakes.score = staticmethod(OptionOrders(DOCS["quiz_a"], (0.6, 0.1)))
    for number, names in enumerate(("quiz_a,wide", "wide,quiz_a")):
        found = of(tmp_path, names, out=f"out {number}")
        words = {one.task: one.verdict for one in found.verdicts}
        assert words["quiz_a"] in ALARMING
        assert words["wide"] not in ALARMING
        assert [sentence.partition(":")[0] for sentence in found.failed] == ["m, quiz_a"]


def test_the_page_and_the_records_have_each_name_once_and_flagged_questions_once(tmp_path: Path) -> None:
    found = of(tmp_path, "quiz_a,grp", batch_size=1)
    page = found.page.read_text()
    records = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    assert [one["task"] for one in records["verdicts"]] == ["quiz_a", "grp"]
    listed = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    flagged = {one.doc_hash for part in found.annotations for one in part.audited_questions if one.flagged}
    assert len(listed) == len(flagged) >= 20
    assert page.count('<section class="model"') == 1
    assert "task in grp" in page


@pytest.mark.parametrize("names", ["quiz_a", "grp", "quiz_a,grp", "grp,outer"])
@pytest.mark.parametrize("given", ["grp", "quiz_a,quiz_b", "outer", "quiz_a,quiz_b,quiz_c"])
def test_given_runs_of_a_group_or_of_its_members_answer_each_name(tmp_path: Path, names: str, given: str) -> None:
    of(tmp_path, given, out="given")
    if not {one for name in names.split(",") for one in MEMBERS[name]} <= {
        one for name in given.split(",") for one in MEMBERS[name]
    }:
        pytest.skip("not all of it is there")
    outcome = of(tmp_path, names, runs=tmp_path / "given" / "runs")
    assert not outcome.plan.to_run
    fresh = of(tmp_path, names, out="fresh")
    assert told(outcome) == told(fresh)
    assert [one.verdict for one in outcome.verdicts] == [one.verdict for one in fresh.verdicts]


def test_audits_that_were_given_without_a_run_are_judged_by_name(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("accuracy: false\naudits: leakage_perm\n")
    of(tmp_path, "grp", config=plan, out="given")
    outcome = of(tmp_path, "quiz_b,quiz_a", config=plan, runs=tmp_path / "given" / "runs")
    assert [(one.task, one.verdict) for one in outcome.verdicts] == [
        ("quiz_b", NONE_FOUND),
        ("quiz_a", STRONG_EVIDENCE),
    ]


def test_the_reference_and_the_model_are_compared_name_by_name(tmp_path: Path) -> None:
    outcome = of(tmp_path, "quiz_a,grp", reference="pretrained=other", questions=24)
    assert [one.basis for one in outcome.verdicts] == ["reference", "reference"]
    for name in ("quiz_a", "grp"):
        alone = of(tmp_path, name, reference="pretrained=other", questions=24, out=f"alone {name}")
        assert told(alone)[name] == told(outcome)[name]


def test_another_set_of_names_in_one_folder_keeps_the_other_verdicts_apart(tmp_path: Path) -> None:
    first = of(tmp_path, "quiz_a,grp")
    second = of(tmp_path, "grp,outer")
    assert [one.task for one in second.verdicts] == ["grp", "outer"]
    assert [(one.task, one.verdict) for one in second.others] == [("quiz_a", first.verdicts[0].verdict)]
    assert second.verdicts[0].look == 1


def test_tables_of_several_models_have_a_board_for_each_name(tmp_path: Path, fakes: type[NamedFake]) -> None:
    models = [{"name": name, "model": "fake", "model_args": f"pretrained={name}"} for name in ("m", "other")]
    given = {"models": models, "tasks": "quiz_a,grp", "questions": "all", "include_path": str(tmp_path / "tasks")}
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps(given | {"engine": "inline", "detect": 1.0, "output_path": str(tmp_path / "out")}))
    found = check(config=plan)
    assert [(one.model, one.task) for one in found.verdicts] == [
        (model, task) for model in ("m", "other") for task in ("quiz_a", "grp")
    ]
    rows = json.loads((tmp_path / "out" / "leaderboard.json").read_text())["rows"]
    assert sorted((row["benchmark"], row["model"], row["n"]) for row in rows) == [
        *(("grp", model, 2 * N) for model in ("m", "other")),
        *(("quiz_a", model, N) for model in ("m", "other")),
    ]


def test_a_pattern_that_only_audits_match_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks" / "fun_leakage_perm.yaml").write_text("task: fun_leakage_perm\noutput_type: multiple_choice\n")
    with pytest.raises(ValueError, match=r"tasks has 'fun\*', which is not a task, group, tag or file"):
        of(tmp_path, "quiz_a,fun*")


def test_a_name_without_a_verdict_or_a_reason_is_a_fault_and_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "at_their_looks", lambda found, folder, keep: [one.with_rows(()) for one in found])
    with pytest.raises(RuntimeError, match="m on quiz_a has no verdict, and no reason for that"):
        of(tmp_path, "quiz_a")
