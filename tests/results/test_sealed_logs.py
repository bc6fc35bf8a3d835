"""What is read of the logs of sealed benchmarks: the model's own answers, and the ceiling of ordinary runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.seal_audit import seal_audit
from lm_eval_leakage.results.sealed_logs import SealedLogs, ceiling_tests
from lm_eval_leakage.seal.drawn import Seal, SealedQuestion
from lm_eval_leakage.stats.sealed import SealedTest, combined_test
from tests.fakes import by_hash
from tests.results.harness_files import answered, write_run
from tests.sealed import per_byte, rows, run_sealed, sealed_folder


def test_runs_with_reference_log_are_read_as_the_models_own_answers_and_that_is_reported(tmp_path) -> None:
    place, older = sealed_folder(tmp_path, rows(40)), tmp_path / "older"
    run_sealed(place, "leakage_wording", by_hash, older, "org/older")
    run_sealed(place, "leakage_wording", per_byte, tmp_path / "plain", "org/clean")
    run_sealed(place, "leakage_wording", per_byte, tmp_path / "minus", "org/clean", reference_log=str(older))
    (alone,), (both,) = (seal_audit([tmp_path / name], place.private).verdicts for name in ("plain", "minus"))
    assert [(test.name, test.pvalue) for test in both.tests] == [("wordings", alone.tests[0].pvalue)]
    said = "trees_leakage_wording was run with reference_log, which its table and its flags subtract; here"
    assert said in "".join(map(str, both.problems))
    assert alone.problems == ()


# ---------------------------------------------------------------------- the ceiling

N_ASKED = 12


def sealed(number: int) -> SealedQuestion:
    """Every third question has two equally right options."""
    right = (0, 2) if number % 3 == 0 else (0,)
    return SealedQuestion(str(number), (f"Question {number}?", "private"), ("a", "b", "c"), 0, right, True)


SEAL_OF_ASKED = Seal("bench", "a tool", tuple(map(sealed, range(N_ASKED))), bytes(32), "00")


def line(number: int, right: bool, stem: str = "Question") -> dict[str, object]:
    doc = {"question": f"{stem} {number}?", "choices": ["a", "b", "c"], "answer": 0}
    return answered(number, doc, right)


def ceiling_tests_in(folder: Path, seal: Seal) -> list[SealedTest]:
    problems: list[Problem] = []
    return ceiling_tests(SealedLogs(seal, "m", {}, find_runs([folder], problems)))


def test_every_ordinary_run_of_a_benchmark_with_several_right_options_is_tested_and_none_is_combined(tmp_path) -> None:
    right = [line(number, True) for number in range(N_ASKED)]
    write_run(tmp_path, "m", {"bench": right, "other": [line(0, True, "Not")]})
    (test,) = ceiling_tests_in(tmp_path, SEAL_OF_ASKED)
    assert (test.name, test.n, test.pvalue) == ("ceiling", 4, pytest.approx(1 / 16))
    assert (test.effect, test.effect_error) == (0.5, pytest.approx(0.25))
    assert combined_test([test]).names == ()
    plain = tuple(replace(question, equally_right=(0,)) for question in SEAL_OF_ASKED.questions)
    assert ceiling_tests_in(tmp_path, replace(SEAL_OF_ASKED, questions=plain)) == []
    write_run(tmp_path, "m", {"bench": [line(number, False) for number in range(N_ASKED)]}, n_shot=5)
    names = {test.name: test.pvalue for test in ceiling_tests_in(tmp_path, SEAL_OF_ASKED)}
    assert names == {"ceiling (bench, 0 shots)": pytest.approx(1 / 16), "ceiling (bench, 5 shots)": pytest.approx(1)}


@pytest.mark.parametrize(
    ("lines", "n"),
    [
        ([line(number, True) for number in range(6)] + [line(7, True, "Another"), line(9, True, "private")], 2),
        ([line(number, True) | {"metrics": ["perplexity"], "perplexity": 3.5} for number in range(N_ASKED)], 0),
    ],
)
def test_only_answers_to_published_questions_with_a_score_count(tmp_path: Path, lines, n: int) -> None:
    write_run(tmp_path, "m", {"bench": lines})
    assert sum(test.n for test in ceiling_tests_in(tmp_path, SEAL_OF_ASKED)) == n
