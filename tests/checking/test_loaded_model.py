"""A model that a harness's own loop has loaded is checked as it is, left as it was, and never ends the loop."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.model import LM

from lm_eval_leakage.jobs.driver import check
from lm_eval_leakage.results.verdict_words import STRONG_EVIDENCE
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]


@pytest.fixture
def loaded(fakes: type[NamedFake], tmp_path: Path) -> Any:
    docs = questions(60)
    written(tmp_path, docs)
    fakes.score = staticmethod(OptionOrders(docs, (2.5, 0.6)))
    lm = fakes(pretrained="m")
    lm.pretrained = "org/m"
    fakes.built.clear()
    return lm


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(1))


def test_it_is_asked_itself_and_told_by_its_own_name(loaded: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    found = checked(tmp_path, model=loaded, model_args=None)
    (verdict,) = found.verdicts
    assert (verdict.model, verdict.verdict, found.problems) == ("org/m", STRONG_EVIDENCE, ())
    assert fakes.asked
    assert not fakes.built
    n_asked = len(fakes.asked)
    assert checked(tmp_path, model=loaded, model_args=None).verdicts == found.verdicts
    assert len(fakes.asked) == n_asked


def test_it_and_the_random_numbers_are_left_as_they_were(loaded: Any, tmp_path: Path) -> None:
    hook, own = loaded.cache_hook, set(vars(loaded))
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = drawn()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    assert checked(tmp_path, model=loaded, model_args=None).verdicts
    assert drawn() == expected
    assert (loaded.cache_hook, set(vars(loaded))) == (hook, own)


class Nameless(LM):
    def loglikelihood(self, requests: Any) -> Any:
        raise MemoryError("none left")

    loglikelihood_rolling = generate_until = loglikelihood


@pytest.mark.parametrize(
    ("tasks", "told"),
    [("nothing.jsonl", "which is not derived from a backend of lm_eval"), ("quiz.jsonl", "derived from a backend")],
)
def test_whatever_goes_wrong_is_told_instead_of_raised(tmp_path: Path, tasks: str, told: str) -> None:
    written(tmp_path, questions(30))
    found = check(Nameless(), tasks=str(tmp_path / tasks), output_path=tmp_path / "out")
    assert found.verdicts == ()
    (problem,) = found.problems
    assert told in problem


def test_what_the_model_raises_does_not_end_the_loop(loaded: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    def fails(context: str, continuation: str) -> float:
        raise MemoryError("no memory is left")

    fakes.score = staticmethod(fails)
    found = checked(tmp_path, model=loaded, model_args=None)
    assert {one.verdict for one in found.verdicts} <= {"cannot be told"}
    assert any("no memory is left" in one for one in (*found.problems, *found.unfinished))


def test_a_task_that_does_not_exist_is_a_problem_of_the_outcome(loaded: Any, tmp_path: Path) -> None:
    found = check(loaded, tasks="no_such_task", output_path=tmp_path / "out")
    assert found.verdicts == ()
    assert "no_such_task" in found.problems[0]
