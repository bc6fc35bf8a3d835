"""A whole check in this process, with a fake model and a benchmark in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.checking.check_plan import NOT_POSSIBLE, THERE, TO_RUN
from lm_eval_leakage.checking.whole_check import check
from lm_eval_leakage.harness.running.own_benchmark import write_task
from tests.checking.conftest import NamedFake, questions, written

pytestmark = pytest.mark.usefixtures("only_given_tasks")


def checked(folder: Path, file: Path, **given):
    arguments = {"model": "fake", "model_args": "pretrained=m", "tasks": str(file), "output_path": folder / "out"}
    return check(**(arguments | given))


def statuses(outcome) -> dict[str, str]:
    return {step.what: step.status for step in outcome.plan.steps}


def test_a_benchmark_in_a_file_gets_accuracy_verdict_page_and_json(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(40)))
    (one,) = outcome.verdicts
    assert (one.model, one.task, one.n, one.n_tested) == ("m", "quiz", 40, 40)
    assert one.verdict == "none found"
    assert one.accuracy is not None
    assert one.sentence.startswith("none found: on 40 questions")
    (record,) = json.loads((tmp_path / "out" / "verdicts.json").read_text())["verdicts"]
    assert (record["verdict"], record["sentence"]) == (one.verdict, one.sentence)
    assert one.verdict in outcome.page.read_text()
    assert len(fakes.built) == 1


@pytest.mark.model
def test_the_same_check_again_asks_nothing(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    first = checked(tmp_path, file)
    fakes.asked.clear()
    second = checked(tmp_path, file)
    assert fakes.asked == []
    assert statuses(second) == {
        "accuracy": THERE,
        "option orders": THERE,
        "token-level evidence": NOT_POSSIBLE,
        "choice confusion": THERE,
    }
    assert first.verdicts == second.verdicts


@pytest.mark.model
@pytest.mark.parametrize("share", [0.25, 0.5])  # the log has two lines per question, one per statistic
def test_an_audit_whose_log_lost_lines_is_run_again(fakes: type[NamedFake], tmp_path: Path, share: float) -> None:
    file = written(tmp_path, questions(30))
    first = checked(tmp_path, file)
    (log,) = (tmp_path / "out").rglob("samples_*_leakage_perm_*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: round(share * len(lines))]))
    again = checked(tmp_path, file)
    assert statuses(again)["option orders"] == TO_RUN
    assert again.verdicts == first.verdicts


@pytest.mark.model
def test_questions_are_drawn_at_random_and_are_the_same_for_every_run(fakes: type[NamedFake], tmp_path: Path) -> None:
    checked(tmp_path, written(tmp_path, questions(60)), questions=25)
    asked: dict[str, set[str]] = {}
    for log in (tmp_path / "out" / "runs").rglob("samples_*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        asked[log.name.split("_2")[0]] = {line["doc"]["question"] for line in lines}
    assert len(asked) == 3
    accuracy, *audits = asked.values()
    assert all(own == accuracy for own in audits)
    assert len(accuracy) == 25
    assert accuracy != {doc["question"] for doc in questions(60)[:25]}


@pytest.mark.model
def test_a_larger_draw_includes_the_smaller_one(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    checked(tmp_path, file, questions=25)
    orders_of_first = len([one for one in fakes.asked if "Answer" not in one[0]])
    fakes.asked.clear()
    outcome = checked(tmp_path, file, questions=30)
    assert outcome.verdicts[0].n == 30
    assert len([one for one in fakes.asked if "Answer" not in one[0]]) < orders_of_first


def test_a_dry_run_loads_no_model(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), dry_run=True)
    assert fakes.built == []
    assert outcome.page is None
    assert statuses(outcome)["option orders"] == TO_RUN
    (orders,) = [step for step in outcome.plan.steps if step.what == "option orders"]
    assert (
        orders.n_requests == 30 * 48
    )  # with the control form, since 30 questions are too few to call their orders random


def test_mistakes_are_told_before_anything_is_loaded(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    with pytest.raises(ValueError, match="piqqa.*piqa"):
        checked(tmp_path, file, tasks="piqqa")
    with pytest.raises(ValueError, match="fak.*not a model"):
        checked(tmp_path, file, model="fak")
    with pytest.raises(ValueError, match="there is no such folder"):
        checked(tmp_path, file, model="hf", reference="pretrained=/no/such", model_args=f"pretrained={tmp_path}")
    with pytest.raises(FileNotFoundError, match="no such file"):
        checked(tmp_path, tmp_path / "none.jsonl")
    assert not (tmp_path / "out").exists()


def test_a_chat_model_ends_with_cannot_be_told_and_the_reason(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), model="chat-fake")
    (one,) = outcome.verdicts
    assert one.verdict == "cannot be told"
    assert "chat-fake gives no log-likelihoods" in one.reason
    assert "cannot be told" in outcome.page.read_text()


@pytest.mark.model
def test_two_models_share_a_page_and_the_json(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    checked(tmp_path, file)
    outcome = checked(tmp_path, file, model_args="pretrained=n")
    assert [one.model for one in outcome.verdicts] == ["n"]
    assert [one.model for one in outcome.others] == ["m"]
    records = json.loads((tmp_path / "out" / "verdicts.json").read_text())["verdicts"]
    assert [record["model"] for record in records] == ["n", "m"]
    page = outcome.page.read_text()
    assert page.count("none found") >= 2


@pytest.mark.model
def test_runs_that_exist_are_used_and_their_questions_drawn(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    checked(tmp_path, file, questions=25)
    fakes.asked.clear()
    outcome = checked(tmp_path, file, runs=tmp_path / "out" / "runs", output_path=tmp_path / "other")
    assert fakes.asked == []
    assert {step.n_questions for step in outcome.plan.steps if step.status == THERE} == {25}
    assert outcome.verdicts[0].n == 25


def test_a_notebook_shows_the_verdicts_with_everything_escaped(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), model_args="pretrained=<b>m</b>")
    html = outcome._repr_html_()
    assert "<caption>" in html
    assert 'scope="col"' in html
    assert "none found" in html
    assert "<b>m</b>" not in html
    assert "&lt;b&gt;m" in html


@pytest.mark.model
def test_a_file_without_right_options_has_a_verdict_and_no_accuracy(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs = [{key: doc[key] for key in ("question", "choices")} for doc in questions(30)]
    outcome = checked(tmp_path, written(tmp_path, docs))
    (one,) = outcome.verdicts
    assert (one.verdict, one.accuracy) == ("none found", None)
    assert statuses(outcome)["accuracy"] == NOT_POSSIBLE


def test_a_file_named_like_a_task_of_the_harness_gets_a_name_of_its_own(tmp_path: Path) -> None:
    names = {
        file: write_task(written(tmp_path, questions(3), file), tmp_path) for file in ("mmlu.jsonl", "My quiz!.json")
    }
    assert names == {"mmlu.jsonl": "own_mmlu", "My quiz!.json": "my_quiz"}
