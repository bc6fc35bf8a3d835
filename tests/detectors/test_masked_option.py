"""Guided prompting: the hidden option, what the model writes for it, and the judge model."""

from __future__ import annotations

from typing import ClassVar

import pytest
from lm_eval.api.registry import model_registry

from lm_eval_leakage.detectors.masked_option import MaskedOption, MaskedOptionWritten, is_yes
from lm_eval_leakage.harness.tasks.judging import LeakageFilter
from lm_eval_leakage.records import Answered, Question, Request, UntestableQuestion

OPTIONS = ("a cat on a mat", "two dogs in the rain", "three hens", "a horse of course")
QUESTION = Question("q", "Which animals are seen there?", OPTIONS)


def test_a_wrong_option_is_hidden_and_always_the_same() -> None:
    hidden = [MaskedOption().hidden_place(Question(str(i), "Which?", OPTIONS, answer=1)) for i in range(200)]
    assert set(hidden) == {0, 2, 3}
    assert hidden == [MaskedOption().hidden_place(Question(str(i), "Which?", OPTIONS, answer=1)) for i in range(200)]
    assert MaskedOption(hides="right").hidden_place(Question("q", "Which?", OPTIONS, answer=1)) == 1
    with pytest.raises(UntestableQuestion, match="answer is not known"):
        MaskedOption(hides="right").requests(QUESTION)


def test_the_model_is_given_the_benchmark_and_shown_the_rest() -> None:
    probe = MaskedOption(benchmark="zoo_quiz", hides="right")
    (request,) = probe.requests(Question("q", "Which?", OPTIONS, answer=1))
    assert "test set of zoo_quiz" in request.context
    assert "Which?\nA. a cat on a mat\nB. [MASK]\nC. three hens\nD. a horse of course\n" in request.context
    assert request.continuation == " two dogs in the rain"
    custom = MaskedOption(instruction="{{ benchmark }}? {{ question }}")
    assert custom.requests(QUESTION)[0].context.startswith("a benchmark? Which animals")


def row_values(verdict) -> dict[str, float | None]:
    return {row.name: row.per_question(verdict) for row in MaskedOptionWritten.rows}


@pytest.mark.parametrize(
    ("written", "exact"),
    [(" Two dogs in  the rain.\nbecause", True), ("\ntwo dogs in the rain", True), ("two dogs", False), ("", False)],
)
def test_the_hidden_option_must_be_written_exactly(written: str, exact: bool) -> None:
    request = Request("...", " two dogs in the rain")
    (verdict,) = MaskedOptionWritten().judge([Answered(QUESTION, (request,), (), texts=(written,))])
    assert verdict.exact is exact
    assert (verdict.rouge == 1.0) is exact
    assert row_values(verdict) == {"exact_rate": float(exact), "rouge": verdict.rouge, "judged_rate": None}


# ---------------------------------------------------------------------- a judge


class Judge:
    """Says yes to a prompt with `judge: a mat`; with `fails`, generation raises."""

    fails = False
    prompts: ClassVar[list] = []

    @classmethod
    def create_from_arg_string(cls, arguments: str):
        if arguments == "broken":
            raise OSError("no server there")
        return cls()

    def apply_chat_template(self, turns):
        return f"<user>{turns[0]['content']}"

    def generate_until(self, requests):
        if Judge.fails:
            raise ConnectionError("server went away")
        Judge.prompts += [request.args for request in requests]
        return ["Yes." if "judge: a mat" in request.args[0] else "I would say No" for request in requests]


@pytest.fixture
def _judge(monkeypatch: pytest.MonkeyPatch) -> None:
    if "a-judge" not in model_registry:
        model_registry.register("a-judge", target=Judge)
    monkeypatch.setattr(Judge, "prompts", [])


def written(text: str) -> Answered:
    return Answered(QUESTION, (Request("", " a cat on a mat"),), (), texts=(text,))


@pytest.mark.usefixtures("_judge")
def test_a_judge_is_asked_about_every_question_by_the_template() -> None:
    prompt = "{{ question[:5] }}: is {{ option }} this? judge: {{ written }}"
    verdicts = LeakageFilter("masked_option", judge_model="a-judge", judge_args="x=1", judge_prompt=prompt).apply(
        None, [written("a mat\nand more"), written("a dog"), written("\n \n")]
    )
    assert [(verdict.judged, verdict.exact) for verdict in verdicts] == [(True, False), (False, False), (False, False)]
    assert [prompt for prompt, _ in Judge.prompts] == [
        "<user>Which: is a cat on a mat this? judge: a mat",
        "<user>Which: is a cat on a mat this? judge: a dog",
        "<user>Which: is a cat on a mat this? judge: ",
    ]
    assert row_values(verdicts[0])["judged_rate"] == 1
    assert verdicts[1].judge_reply == "I would say No"


@pytest.mark.usefixtures("_judge")
def test_a_failing_judge_loses_only_its_own_opinions(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(Judge, "fails", True)
    (verdict,) = LeakageFilter("masked_option", judge_model="a-judge").apply(None, [written("a cat on a mat")])
    assert verdict.exact
    assert verdict.judged is None
    assert row_values(verdict)["judged_rate"] is None
    assert "did not answer on 1 question(s): server went away" in caplog.text


@pytest.mark.usefixtures("_judge")
def test_a_judge_that_cannot_be_loaded_ends_the_run_before_it_begins() -> None:
    with pytest.raises(ValueError, match="judge_model 'a-judge' with judge_args 'broken' cannot be used: no server"):
        LeakageFilter("masked_option", judge_model="a-judge", judge_args="broken")


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("Yes", True),
        ("no.", False),
        ("Not yes but no", False),
        ("<think>no, or</think> YES", True),
        ("I know nothing", None),
        ("", None),
        (None, None),
    ],
)
def test_the_last_yes_or_no_counts(reply: str | None, meant: bool | None) -> None:
    assert is_yes(reply) is meant
