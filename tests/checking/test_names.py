"""Every name in `tasks` has a verdict of its own, from its own runs alone, whatever other names contain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs import conclusion
from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.results.verdict import VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions
from tests.written_tasks import write_task

OPTIONS = "".join(f"\\n{label}. {{{{choices[{place}]}}}}" for place, label in enumerate("ABC"))
LETTERED = {"text": f'"{{{{question}}}}{OPTIONS}\\nAnswer:"', "choices": '["A", "B", "C"]'}
ALARMING = (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)
N = 30
DOCS = {name: questions(N, n_options=3, seed=seed) for seed, name in enumerate(("quiz_a", "quiz_b", "quiz_c"))}
GROUPS: Mapping[str, Sequence[str]] = {"grp": ("quiz_a", "quiz_b"), "outer": ("grp", "quiz_c"), "rest": ("quiz_b",)}


@pytest.fixture(autouse=True)
def _model(fakes: type[NamedFake], only_given_tasks: None) -> None:
    """It has seen `quiz_a`."""
    fakes.score = staticmethod(OptionOrders(DOCS["quiz_a"], (3.0, 0.6)))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three tasks and three groups, which no test changes."""
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def finished(tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Returns the outcome of a check in a folder of its own, which is run when the first test needs it."""

    @cache
    def outcome(names: str, n: int | str = "all") -> Any:
        return of(tmp_path_factory.mktemp("finished"), tasks, names, questions=n)

    return outcome


def folder_of(outcome: Any) -> Path:
    return outcome.page.parent


def write_tasks(folder: Path) -> Path:
    for name, docs in DOCS.items():
        write_task(folder, name, docs, more="tag: all_of_them\nmetric_list:\n  - metric: acc\n", **LETTERED)
    for name, members in GROUPS.items():
        write_group(folder, name, members)
    return folder


def write_group(folder: Path, name: str, members: Sequence[str]) -> None:
    settings = "aggregate_metric_list:\n  - metric: acc\n    weight_by_size: true\n"
    (folder / f"{name}.yaml").write_text(f"group: {name}\ntask: [{', '.join(members)}]\n{settings}")


def of(folder: Path, tasks: Path, names: str, more: str = "", **given: Any) -> Any:
    """The outcome of a check of option orders.

    more: a further line of its plan
    """
    plan = folder / "plan.yaml"
    plan.write_text(f"audits: leakage_perm\n{more}")
    given = {"questions": "all", "fail_on": "evidence", "config": plan} | given
    return checked(folder, tasks=names, include_path=tasks, **given)


def figures(outcome: Any) -> dict[str, tuple[Any, ...]]:
    """Return the figures of each verdict that do not depend on the other names."""
    return {
        verdict.task: (
            verdict.pvalue,
            verdict.n,
            verdict.n_tested,
            verdict.flagged,
            verdict.accuracy,
            verdict.look,
            verdict.seed,
        )
        for verdict in outcome.verdicts
    }


@pytest.mark.parametrize("n", ["all", 24])
@pytest.mark.parametrize(
    "names",
    ["quiz_a,grp", "grp,quiz_a", "outer,quiz_a,grp", "grp,rest,quiz_b", "quiz_*,grp,quiz_a", "all_of_them,rest"],
)
def test_each_name_has_the_verdict_that_it_has_alone(finished: Callable[..., Any], names: str, n: int | str) -> None:
    outcome = finished(names, n)
    names_asked = [*figures(outcome)]
    assert {*names_asked} == {
        task for name in names.split(",") for task in (DOCS if name in ("quiz_*", "all_of_them") else [name])
    }
    assert len(outcome.verdicts) == len(names_asked)
    for name in names_asked:
        assert figures(outcome)[name] == figures(finished(name, n))[name], name
    assert {name: f"m, {name}:" in " ".join(outcome.failed) for name in names_asked} == {
        task.task: task.verdict in ALARMING for task in outcome.verdicts
    }
    assert {task.n_adjusted for task in outcome.verdicts} == {len(names_asked)}
    assert outcome.problems == ()


@pytest.mark.parametrize("n", ["all", 24])
def test_the_same_names_again_have_the_same_verdicts(tasks: Path, finished: Callable[..., Any], n: int | str) -> None:
    outcome = finished("quiz_*,grp,quiz_a", n)
    again = of(folder_of(outcome).parent, tasks, "quiz_*,grp,quiz_a", questions=n)
    assert not again.plan.to_run
    assert figures(again) == figures(outcome)


def test_a_contaminated_member_is_not_hidden_by_its_group(tmp_path: Path, fakes: type[NamedFake]) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    write_task(tasks, "quiz_a", DOCS["quiz_a"], **LETTERED)
    write_task(tasks, "clean", questions(150, n_options=3, seed=5), **LETTERED)
    write_group(tasks, "wide", ["quiz_a", "clean"])
    fakes.score = staticmethod(OptionOrders(DOCS["quiz_a"], (0.6, 0.1)))
    outcome = of(tmp_path, tasks, "wide,quiz_a")
    words = {verdict.task: verdict.verdict for verdict in outcome.verdicts}
    assert words["quiz_a"] in ALARMING
    assert words["wide"] not in ALARMING
    assert [sentence.partition(":")[0] for sentence in outcome.failed] == ["m, quiz_a"]


def test_the_page_and_the_records_have_each_name_once_and_flagged_questions_once(finished: Callable[..., Any]) -> None:
    outcome = finished("quiz_a,grp")
    page = outcome.page.read_text()
    records = json.loads((folder_of(outcome) / "verdicts.json").read_text())
    assert [record["task"] for record in records["verdicts"]] == ["quiz_a", "grp"]
    listed = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    flagged = {
        audited_question.doc_hash
        for part in outcome.annotations
        for audited_question in part.audited_questions
        if audited_question.flagged
    }
    assert len(listed) == len(flagged) >= 20
    assert page.count('<section class="model"') == 1
    assert "task in grp" in page


@pytest.mark.parametrize(
    ("given", "names"),
    [
        *((given, "quiz_a,grp") for given in ("grp", "quiz_a,quiz_b", "outer", "quiz_a,quiz_b,quiz_c")),
        *((given, "grp,outer") for given in ("outer", "quiz_a,quiz_b,quiz_c")),
        *(("grp", "quiz_a"), ("quiz_a,quiz_b", "grp"), ("outer", "grp")),
    ],
)
def test_given_runs_of_a_group_or_of_its_members_answer_each_name(
    tmp_path: Path, tasks: Path, finished: Callable[..., Any], given: str, names: str
) -> None:
    outcome = of(tmp_path, tasks, names, runs=folder_of(finished(given)) / "runs")
    assert not outcome.plan.to_run
    fresh = finished(names)
    assert figures(outcome) == figures(fresh)
    assert [verdict.verdict for verdict in outcome.verdicts] == [verdict.verdict for verdict in fresh.verdicts]


def test_audits_that_were_given_without_a_run_are_judged_by_name(tmp_path: Path, tasks: Path) -> None:
    of(tmp_path, tasks, "grp", "accuracy: false", out="given")
    outcome = of(tmp_path, tasks, "quiz_b,quiz_a", "accuracy: false", runs=tmp_path / "given" / "runs")
    assert [(verdict.task, verdict.verdict) for verdict in outcome.verdicts] == [
        ("quiz_b", VerdictWord.NONE_FOUND),
        ("quiz_a", VerdictWord.STRONG_EVIDENCE),
    ]


def test_the_reference_and_the_model_are_compared_name_by_name(tmp_path: Path, tasks: Path) -> None:
    outcome = of(tmp_path, tasks, "quiz_a,grp", reference="pretrained=other", questions=24)
    assert [verdict.basis for verdict in outcome.verdicts] == ["reference", "reference"]
    for name in ("quiz_a", "grp"):
        alone = of(tmp_path, tasks, name, reference="pretrained=other", questions=24, out=f"alone {name}")
        assert figures(alone)[name] == figures(outcome)[name]


def test_another_set_of_names_in_one_folder_keeps_the_other_verdicts_apart(tmp_path: Path, tasks: Path) -> None:
    first = of(tmp_path, tasks, "quiz_a,grp")
    second = of(tmp_path, tasks, "grp,outer")
    assert [verdict.task for verdict in second.verdicts] == ["grp", "outer"]
    assert [(other.task, other.verdict) for other in second.others] == [("quiz_a", first.verdicts[0].verdict)]
    assert second.verdicts[0].look == 1


def test_tables_of_several_models_have_a_board_for_each_name(tmp_path: Path, tasks: Path) -> None:
    models = [{"name": name, "model": "fake", "model_args": f"pretrained={name}"} for name in ("m", "other")]
    given = {"models": models, "tasks": "quiz_a,grp", "questions": "all", "include_path": str(tasks)}
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps(given | {"engine": "inline", "detect": 1.0, "output_path": str(tmp_path / "out")}))
    outcome = check(config=plan)
    assert [(verdict.model, verdict.task) for verdict in outcome.verdicts] == [
        (model, task) for model in ("m", "other") for task in ("quiz_a", "grp")
    ]
    rows = json.loads((tmp_path / "out" / "leaderboard.json").read_text())["rows"]
    assert sorted((row["benchmark"], row["model"], row["n"]) for row in rows) == [
        *(("grp", model, 2 * N) for model in ("m", "other")),
        *(("quiz_a", model, N) for model in ("m", "other")),
    ]


def test_a_pattern_that_only_audits_match_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fun_leakage_perm.yaml").write_text("task: fun_leakage_perm\noutput_type: multiple_choice\n")
    with pytest.raises(ValueError, match=r"tasks has 'fun\*', which is not a task, group, tag or file"):
        of(tmp_path, write_tasks(tmp_path), "quiz_a,fun*")


def test_a_name_without_a_verdict_or_a_reason_is_a_fault_and_no_pass(
    tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        conclusion,
        "at_their_looks",
        lambda annotations, folder, keep: [annotation.with_rows(()) for annotation in annotations],
    )
    with pytest.raises(RuntimeError, match="m on quiz_a has no verdict, and no reason for that"):
        of(tmp_path, tasks, "quiz_a")
