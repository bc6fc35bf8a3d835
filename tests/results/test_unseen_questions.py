"""A model's audits of questions that it cannot have seen, beside those of a benchmark."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.unseen_questions import UnseenQuestions, unseen_questions
from tests.results.harness_files import audited, confused, row, write_run

TASK = "bench_leakage_perm"
N_ASKED, N_UNSEEN = 120, 60


def of_model(folder: Path, numbers: range, **more: Any) -> Path:
    write_run(folder, "m", {TASK: [audited(row(number), False) | more for number in numbers]})
    return folder


def scored(doc: dict[str, Any], rng: Random) -> dict[str, Any]:
    """A line of the audit of texts, with random log-likelihoods."""
    values = {"mean_loglikelihood": rng.gauss(-3, 1), "json_loglikelihood": rng.gauss(-30, 9)}
    return audited(doc, False, detector="token_evidence", n_tokens=9, **values)


@pytest.fixture
def published_runs(tmp_path: Path) -> Path:
    return of_model(tmp_path / "runs", range(1000, 1000 + N_ASKED))


def test_audits_of_both_in_the_same_way_are_compared(published_runs: Path, tmp_path: Path) -> None:
    unseen = of_model(tmp_path / "unseen", range(5000, 5000 + N_UNSEEN))
    assert unseen_questions(published_runs, unseen, []) == UnseenQuestions("bench")


@pytest.mark.parametrize(
    ("numbers", "change", "reason"),
    [
        (
            range(1100, 1160),
            {},
            "^20 of the 60 questions that the model is said not to have seen are in the benchmark, "
            "such as 'Question 1100[?]'; leave them out",
        ),
        (range(5000, 5019), {}, "^19 unseen questions are too few"),
        (range(5000, 5060), {"guards": "in_order"}, "natural order of options 1.00 instead of 0.00"),
        (
            range(500_000, 500_060),
            {},
            "^the unseen questions are of another kind than those of the benchmark: characters of the question 16 "
            "instead of 14 [(]p = 0.00",
        ),
        (
            range(5000, 5060),
            {"detector": "max_order:orders=12"},
            "^the unseen questions have scores of max_order:orders=12, but the benchmark's have scores of max_order: "
            "run the same audits on both, with the same --metadata",
        ),
    ],
    ids=["in the benchmark", "too few", "guarded", "longer", "other audits"],
)
def test_questions_that_cannot_speak_for_the_benchmark_are_refused(
    published_runs: Path, tmp_path: Path, numbers: range, change: dict[str, Any], reason: str
) -> None:
    unseen = of_model(tmp_path / "unseen", numbers, **change)
    with pytest.raises(ValueError, match=reason):
        unseen_questions(published_runs, unseen, [])


def test_audits_of_unseen_questions_by_another_model_are_refused(published_runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "unseen"
    write_run(other, "other", {TASK: [audited(row(number), False) for number in range(5000, 5000 + N_UNSEEN)]})
    with pytest.raises(ValueError, match="holds audits of 'other', but the benchmark was audited with 'm'; both must"):
        unseen_questions(published_runs, other, [])


def test_audits_of_two_benchmarks_are_refused_with_their_names(published_runs: Path, tmp_path: Path) -> None:
    second = [audited(row(number), False) for number in range(2000, 2030)]
    write_run(published_runs, "m", {"second_leakage_perm": second})
    unseen = of_model(tmp_path / "unseen", range(5000, 5000 + N_UNSEEN))
    with pytest.raises(ValueError, match=r"^the audits are of 2 benchmarks \(bench, second\), and unseen questions"):
        unseen_questions(published_runs, unseen, [])


def test_right_answers_to_unseen_questions_are_counted(published_runs: Path, tmp_path: Path) -> None:
    unseen = of_model(tmp_path / "unseen", range(5000, 5000 + N_UNSEEN))
    arms = [confused(row(number), number % 3 == 0, False) for number in range(5000, 5000 + N_UNSEEN)]
    write_run(unseen, "m", {"bench_choice_confusion": arms})
    assert unseen_questions(published_runs, unseen, []).answered == (20, N_UNSEEN)


def test_texts_are_not_tested_where_a_log_has_lost_lines(tmp_path: Path) -> None:
    """What is left may be any part."""
    rng = Random(0)
    drawn = rng.sample([row(number) for number in range(1000, 1090)], 90)
    for name, model, docs in (("runs", "m", drawn[:40]), ("unseen", "m", drawn[40:]), ("reference", "other", drawn)):
        write_run(tmp_path / name, model, {"bench_leakage_tokens": [scored(doc, rng) for doc in docs]})
    published_runs, unseen, reference = (tmp_path / name for name in ("runs", "unseen", "reference"))
    texts = unseen_questions(published_runs, unseen, [], text_references=find_runs([reference], [])).texts
    assert texts is not None
    assert not math.isnan(texts.pvalue)
    (log,) = reference.rglob("samples_*")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[::2]))
    texts = unseen_questions(published_runs, unseen, [], text_references=find_runs([reference], [])).texts
    assert texts is not None
    assert math.isnan(texts.pvalue)
    assert texts.withheld.startswith("a log is not complete: ")
