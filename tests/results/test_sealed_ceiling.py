from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.sealed_logs import SealedLogs, ceiling_tests
from lm_eval_leakage.seal.drawn import Seal, SealedQuestion
from lm_eval_leakage.stats.sealed import SealedTest, together
from tests.results.harness_files import answered, write_run

N = 12


def sealed(number: int) -> SealedQuestion:
    """Every third question has two equally right options."""
    right = (0, 2) if number % 3 == 0 else (0,)
    return SealedQuestion(str(number), (f"Question {number}?", "private"), ("a", "b", "c"), 0, right, True)


SEAL = Seal("bench", "a tool", tuple(map(sealed, range(N))), bytes(32), "00")


def line(number: int, right: bool, stem: str = "Question") -> dict[str, object]:
    doc = {"question": f"{stem} {number}?", "choices": ["a", "b", "c"], "answer": 0}
    return answered(number, doc, right)


def found_by(folder: Path, seal: Seal) -> list[SealedTest]:
    problems: list[Problem] = []
    return ceiling_tests(SealedLogs(seal, "m", {}, find_runs([folder], problems)))


def test_every_ordinary_run_of_the_benchmark_is_tested_and_none_is_combined(tmp_path: Path) -> None:
    write_run(tmp_path, "m", {"bench": [line(number, True) for number in range(N)], "other": [line(0, True, "Not")]})
    (one,) = found_by(tmp_path, SEAL)
    assert (one.name, one.n, one.pvalue) == ("ceiling", 4, pytest.approx(1 / 16))
    assert (one.effect, one.effect_error) == (0.5, pytest.approx(0.25))
    assert together([one]).names == ()
    write_run(tmp_path, "m", {"bench": [line(number, False) for number in range(N)]}, n_shot=5)
    names = {test.name: test.pvalue for test in found_by(tmp_path, SEAL)}
    assert names == {"ceiling (bench, 0 shots)": pytest.approx(1 / 16), "ceiling (bench, 5 shots)": pytest.approx(1)}


def test_without_several_right_options_there_is_no_ceiling(tmp_path: Path) -> None:
    write_run(tmp_path, "m", {"bench": [line(number, True) for number in range(N)]})
    plain = replace(SEAL, questions=tuple(replace(one, equally_right=(0,)) for one in SEAL.questions))
    assert found_by(tmp_path, plain) == []


@pytest.mark.parametrize(
    ("lines", "n"),
    [
        ([line(number, True) for number in range(6)] + [line(7, True, "Another"), line(9, True, "private")], 2),
        ([line(number, True) | {"metrics": ["perplexity"], "perplexity": 3.5} for number in range(N)], 0),
    ],
)
def test_only_answers_to_published_questions_with_a_score_count(tmp_path: Path, lines, n: int) -> None:
    write_run(tmp_path, "m", {"bench": lines})
    assert sum(test.n for test in found_by(tmp_path, SEAL)) == n
