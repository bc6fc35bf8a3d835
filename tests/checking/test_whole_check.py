"""A whole check in this process, with a fake model and a benchmark in a file."""

from __future__ import annotations

import errno
import json
import logging
import re
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from lm_eval.loggers import evaluation_tracker

from lm_eval_leakage.files import sole_use
from lm_eval_leakage.harness.seams.run_files import TRACKER
from lm_eval_leakage.jobs import progress
from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.progress import AT_ITS_END, status_as_text
from lm_eval_leakage.jobs.steps import StepStatus
from tests.checking.conftest import (
    GivenTasksOnly,
    NamedFake,
    OptionOrders,
    Typed,
    checked,
    questions,
    statuses,
    written,
)
from tests.fakes import by_hash

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")


def with_the_right_option_first() -> list[dict[str, Any]]:
    """Return rows of two options, the right one first: none of the orders can be compared with a control form."""
    docs = [(doc, doc["choices"][doc["answer"]]) for doc in questions(30, n_options=2)]
    return [
        doc | {"choices": sorted(doc["choices"], key=lambda option, right=right: option != right), "answer": 0}
        for doc, right in docs
    ]


def with_natural_orders() -> list[dict[str, Any]]:
    """A third of them, which have no control form, where others do."""
    natural = {number: [f"{number + place} metres" for place in range(1, 5)] for number in range(10)}
    return [doc | {"choices": natural.get(number, doc["choices"])} for number, doc in enumerate(questions(30))]


@pytest.mark.parametrize(
    ("docs", "word"),
    [
        (with_the_right_option_first(), "the right option stands in one place"),
        (with_natural_orders(), "on 20 of 30 questions, those without a natural order"),
    ],
)
def test_the_same_check_again_asks_nothing(
    fakes: type[NamedFake], tmp_path: Path, docs: list[dict[str, Any]], word: str
) -> None:
    file = written(tmp_path, docs)
    first = checked(tmp_path, file)
    before = sorted((tmp_path / "out" / "runs").rglob("*"))
    fakes.requests.clear()
    outcome = checked(tmp_path, file)
    assert (fakes.requests, outcome.plan.to_run, outcome.verdicts) == ([], [], first.verdicts)
    assert outcome.plan.as_text.endswith("Nothing has to be run.")
    assert sorted((tmp_path / "out" / "runs").rglob("*")) == before
    assert word in outcome.verdicts[0].sentence
    assert "units: 4 of 4 done, 0 in progress, 0 failed" in status_as_text(outcome.folder)


@pytest.mark.model
@pytest.mark.parametrize("share", [0.25, 0.5])  # the log has two lines per question, one per statistic
def test_an_audit_whose_log_lost_lines_is_run_again(tmp_path: Path, share: float) -> None:
    file = written(tmp_path, questions(30))
    first = checked(tmp_path, file)
    (log,) = (tmp_path / "out").rglob("samples_*_leakage_perm_*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: round(share * len(lines))]))
    again = checked(tmp_path, file)
    assert statuses(again)["option orders"] == StepStatus.TO_RUN
    assert again.verdicts == first.verdicts


@pytest.mark.model
def test_questions_are_drawn_at_random_and_are_the_same_for_every_run(tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    (verdict,) = checked(tmp_path, file, questions=25, seed=7).verdicts
    texts_of_run: dict[str, set[str]] = {}
    for log in (tmp_path / "out" / "runs").rglob("samples_*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        texts_of_run[log.name.split("_2")[0]] = {line["doc"]["question"] for line in lines}
    assert len(texts_of_run) == 3
    accuracy, *audits = texts_of_run.values()
    assert all(accuracy_of_audit == accuracy for accuracy_of_audit in audits)
    assert len(accuracy) == 25
    assert accuracy != {doc["question"] for doc in questions(60)[:25]}
    assert (verdict.seed, "25 questions of" in verdict.citation, "; drawn with seed 7)" in verdict.citation) == (
        7,
        True,
        True,
    )
    assert (
        checked(tmp_path, file, questions=25, seed=7).verdicts[0].citation == verdict.citation
    )  # nothing is run again
    assert checked(tmp_path, file, questions="all").verdicts[0].seed is None


@pytest.mark.parametrize("lost", ["accuracy", "option orders"])
def test_a_run_that_fails_leaves_the_others_finishing_and_is_asked_again(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def fails(context: str, continuation: str) -> float:
        if ("Answer" in context) == (lost == "accuracy"):
            raise RuntimeError("out of memory")
        return by_hash(context, continuation)

    file = written(tmp_path, questions(30))
    with monkeypatch.context() as patch:
        patch.setattr(fakes, "score", staticmethod(fails))
        outcome = checked(tmp_path, file)
    kind = "run" if lost == "accuracy" else "leakage_perm"
    assert [problem for problem in outcome.unfinished if f"m/quiz/{kind}: RuntimeError: out of memory" in problem]
    (verdict,) = outcome.verdicts
    assert ("its audit failed: RuntimeError" in verdict.sentence, verdict.accuracy is None) == (
        lost == "option orders",
        lost == "accuracy",
    )
    again = checked(tmp_path, file)
    assert again.unfinished == ()
    assert again.plan.to_run
    assert again.verdicts[0].sentence == checked(tmp_path, file, "other").verdicts[0].sentence


def test_a_model_that_cannot_be_loaded_ends_the_check(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: NamedFake, **arguments: object) -> None:
        raise RuntimeError("no room for the weights")

    monkeypatch.setattr(fakes, "__init__", broken)
    with pytest.raises(RuntimeError, match="no room"):
        checked(tmp_path, written(tmp_path, questions(30)))


def test_mistakes_are_reported_before_anything_is_loaded(tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match="there is no such folder"):
        checked(tmp_path, file, model="hf", reference="pretrained=/no/such", model_args=f"pretrained={tmp_path}")
    with pytest.raises(FileNotFoundError, match="no such file"):
        checked(tmp_path, tmp_path / "none.jsonl")
    assert not (tmp_path / "out").exists()


def test_a_notebook_shows_the_verdicts_with_everything_escaped(tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), model_args="pretrained=<b>m</b>")
    html = outcome._repr_html_()
    assert "none found" in html
    assert "<b>m</b>" not in html
    assert "&lt;b&gt;m" in html


@pytest.mark.parametrize("how", ["tasks", "unseen"])
def test_wrong_right_answers_are_refused_before_the_tasks_are_read(tmp_path: Path, how: str) -> None:
    messages: list[str] = []
    files = [written(tmp_path, [doc | {"answer": 5} for doc in questions(30)], "wrong.jsonl")]
    given = {"tasks": [str(written(tmp_path, questions(30)))], how: [str(files[0])] if how == "tasks" else files[0]}
    with pytest.raises(ValueError, match="wrong.jsonl', whose right answers"):
        check("fake", "pretrained=m", output_path=tmp_path / "out", say=messages.append, **given)
    assert messages == []


def test_two_checks_in_one_folder_at_once_are_refused_in_a_sentence(tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    with (
        sole_use(tmp_path / "out"),
        pytest.raises(ValueError, match="out is in use by another command; wait until it ends, or give another"),
    ):
        checked(tmp_path, file)
    assert not (tmp_path / "out" / "tasks").exists()


def test_clean_finds_the_task_that_a_check_made_from_a_file(
    tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_eval.tasks.TaskManager", GivenTasksOnly)
    checked(tmp_path, written(tmp_path, questions(40)))
    code, printed, errors = typed("clean", tmp_path / "out" / "runs", "--output_path", tmp_path / "cleaned")
    assert code == 0, errors
    assert f"--include_path {tmp_path / 'cleaned'} --tasks quiz_clean" in printed
    assert (tmp_path / "cleaned" / "quiz_clean.yaml").exists()


def test_a_benchmark_without_a_verdict_ends_with_the_command_that_may_change_that(tmp_path: Path) -> None:
    file = written(tmp_path, questions(40))
    (few,) = checked(tmp_path, file, questions=12, seed=3, detect=0.25).verdicts
    command = f"lm-eval-leakage check --model fake --model_args pretrained=m --tasks {file} --questions all --seed 3"
    assert few.summary.endswith(f"This command may change that: `{command} --output_path {tmp_path / 'out'}`")


def test_what_is_inconclusive_says_how_many_questions_would_do_and_ends_with_a_command_that_the_benchmark_allows(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    fakes.score = staticmethod(OptionOrders())
    file = written(tmp_path, questions(60))
    outcome = checked(tmp_path, file, questions=50, detect="30%", metadata={"layouts": "audited"})
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "inconclusive"
    assert re.search(r"about 3\d,000 questions are needed", verdict.summary)  # the file has 60
    assert verdict.summary.endswith("Another model as reference (`--reference`) may change that.")
    assert re.search(r"about 3\d0 questions are usually needed to find 30\s% seen 3 times", outcome.plan.as_text)
    none = checked(tmp_path, file, "other", detect="10%", dry_run=True).plan
    assert re.search(r"no number of questions is enough to find 10\s% seen 3 times", none.as_text)


def test_a_disk_that_has_no_room_for_the_status_costs_no_verdict(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes the status goes on, and prints no traceback, which would be an error here."""
    refused, states, write = threading.Event(), list[str](), CampaignFolder.write_status

    def full(self: CampaignFolder, status: dict[str, Any]) -> None:
        states.append(status["state"])
        if len(states) == 1:
            write(self, status)
            return
        refused.set()
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    def waits(context: str, continuation: str) -> float:
        assert refused.wait(60)
        return by_hash(context, continuation)

    monkeypatch.setattr(progress, "SECONDS_OF_STATUS", 0.01)
    monkeypatch.setattr(CampaignFolder, "write_status", full)
    monkeypatch.setattr(fakes, "score", staticmethod(waits))
    (verdict,) = checked(tmp_path, written(tmp_path, questions(30))).verdicts
    assert (verdict.pvalue is None, states[-1]) == (False, AT_ITS_END)


@pytest.mark.parametrize("questions_before", [10, 50], ids=["of the accuracy run", "of the audit"])
def test_a_log_that_a_full_disk_cuts_counts_for_nothing_and_is_written_again(
    fakes: type[NamedFake],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    questions_before: int,
) -> None:
    """Also where lm_eval logs errors only, as `check` has it on the command line."""
    fakes.score = staticmethod(by_hash)
    file = written(tmp_path, questions(30))
    right, calls, sanitize = checked(tmp_path, file, "other"), count(), evaluation_tracker.sanitize_list

    def full(value: Any) -> Any:
        if next(calls) == 2 * questions_before:  # two calls for each line
            raise OSError(errno.ENOSPC, "No space left on device")
        return sanitize(value)

    monkeypatch.setattr(evaluation_tracker, "sanitize_list", full)
    caplog.set_level(logging.ERROR, logger=TRACKER)
    (verdict,), (other,) = checked(tmp_path, file).verdicts, right.verdicts
    assert verdict == replace(other, time=verdict.time)
