"""A model that a harness's own loop has loaded is checked as it is, left as it was, and never ends the loop."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.model import LM

from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.results.verdict import VerdictWord
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


def test_it_is_asked_itself_and_reported_by_its_own_name(loaded: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, model=loaded, model_args=None)
    (verdict,) = outcome.verdicts
    assert (verdict.model, verdict.verdict, outcome.problems) == ("org/m", VerdictWord.STRONG_EVIDENCE, ())
    assert fakes.requests
    assert not fakes.built
    n_asked = len(fakes.requests)
    assert checked(tmp_path, model=loaded, model_args=None).verdicts == outcome.verdicts
    assert len(fakes.requests) == n_asked


def test_it_and_the_random_numbers_are_left_as_they_were(loaded: Any, tmp_path: Path) -> None:
    hook, attributes = loaded.cache_hook, set(vars(loaded))
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = drawn()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    assert checked(tmp_path, model=loaded, model_args=None).verdicts
    assert drawn() == expected
    assert (loaded.cache_hook, set(vars(loaded))) == (hook, attributes)


class Nameless(LM):
    def loglikelihood(self, requests: Any) -> Any:
        raise MemoryError("none left")

    loglikelihood_rolling = generate_until = loglikelihood


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [("nothing.jsonl", "is not registered in lm_eval"), ("quiz.jsonl", "with @register_model('nameless')")],
)
def test_whatever_goes_wrong_is_reported_instead_of_raised(tmp_path: Path, tasks: str, reason: str) -> None:
    written(tmp_path, questions(30))
    outcome = check(Nameless(), tasks=str(tmp_path / tasks), output_path=tmp_path / "out")
    assert outcome.verdicts == ()
    (problem,) = outcome.problems
    assert reason in problem


@pytest.mark.parametrize("args", ["pretrained=mine-7b", "pretrained=of/no/such/folder/mine-7b", "peft=mine-7b"])
def test_a_model_without_a_name_has_that_which_is_given(loaded: Any, tmp_path: Path, args: str) -> None:
    del loaded.pretrained
    outcome = checked(tmp_path, model=loaded, model_args=args, questions=30)
    assert ([verdict.model for verdict in outcome.verdicts], outcome.problems) == ([args.partition("=")[2]], ())


@pytest.mark.parametrize("args", [None, "dtype=float32"])
def test_a_model_that_nothing_names_is_refused(loaded: Any, tmp_path: Path, args: str | None) -> None:
    del loaded.pretrained
    (problem,) = checked(tmp_path, model=loaded, model_args=args).problems
    assert problem == "ValueError: model is a Fake that has no name; give one as model_args: pretrained=NAME"


def test_arguments_are_read_as_those_of_any_check(loaded: Any, tmp_path: Path) -> None:
    (problem,) = checked(tmp_path, model=loaded, model_args="mine-7b").problems
    assert "write it as for lm_eval: pretrained=MODEL" in problem
    (tmp_path / "plan.yaml").write_text("{model_args: {pretrained: mine-7b}, questions: 30}")
    del loaded.pretrained
    outcome = checked(tmp_path, model=loaded, model_args=None, config=tmp_path / "plan.yaml")
    assert [verdict.model for verdict in outcome.verdicts] == ["mine-7b"]


def test_its_folder_need_not_be_there_any_more(loaded: Any, tmp_path: Path) -> None:
    loaded.pretrained = str(tmp_path / "removed" / "checkpoint")
    outcome = checked(tmp_path, model=loaded, model_args=None, questions=30)
    assert (len(outcome.verdicts), outcome.problems) == (1, ())


def test_its_reference_is_another_model(loaded: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    """The reference is loaded by its name, and is not the loaded model itself once more."""
    outcome = checked(tmp_path, model=loaded, model_args=None, reference="pretrained=other", questions=30)
    assert (outcome.problems, [built["pretrained"] for built in fakes.built]) == ((), ["other"])


def test_what_the_model_raises_does_not_end_the_loop(loaded: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    def fails(context: str, continuation: str) -> float:
        raise MemoryError("no memory is left")

    fakes.score = staticmethod(fails)
    outcome = checked(tmp_path, model=loaded, model_args=None)
    assert {verdict.verdict for verdict in outcome.verdicts} <= {"no verdict"}
    assert any("no memory is left" in problem for problem in (*outcome.problems, *outcome.unfinished))


def test_a_task_that_does_not_exist_is_a_problem_of_the_outcome(loaded: Any, tmp_path: Path) -> None:
    outcome = check(loaded, tasks="no_such_task", output_path=tmp_path / "out")
    assert outcome.verdicts == ()
    assert "no_such_task" in outcome.problems[0]
