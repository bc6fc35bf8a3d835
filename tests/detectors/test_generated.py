from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from lm_eval.api.registry import model_registry
from rouge_score.rouge_scorer import RougeScorer

from lm_eval_leakage.detectors.generated import (
    MaskedOption,
    MaskedOptionWritten,
    NgramAccuracy,
    OptionCompletions,
    PrefixCompletions,
    Reproduction,
    opinion,
    rouge_l,
)
from lm_eval_leakage.harness.tasks.judging import LeakageFilter
from lm_eval_leakage.records import Answered, Frame, Question, Request, UntestableQuestion

OPTIONS = ("a cat on a mat", "two dogs in the rain", "three hens", "a horse of course")
QUESTION = Question("q", "Which animals are seen there?", OPTIONS)


def wrote(*texts: str):
    (verdict,) = Reproduction().judge([Answered(QUESTION, (), (), texts=texts)])
    return verdict


def test_one_reproduced_option_of_four_is_enough() -> None:
    verdict = wrote("a cat on a mat.", "no", "no", "no")
    assert (verdict.reproduced, verdict.control, verdict.hit_rate, verdict.best_rouge) == (True, False, 0.25, 1.0)
    assert not wrote("a cat on", "no", "no", "no").reproduced  # ROUGE-L F is 2 * 3/3 * 3/5 / (3/3 + 3/5) = 0.75


def test_a_hit_is_above_the_threshold_and_not_at_it() -> None:
    assert rouge_l("a cat on a mat", "a cat on") == pytest.approx(0.75)
    question = Question("q", "Which?", ("red sun", "red sun"))
    texts = ("red moon", "red moon")  # ROUGE-L F is 1/2 with the own option as with the next
    for threshold, hits in ((0.5, 0.0), (0.49, 1.0)):
        (verdict,) = Reproduction(threshold, 1.0).judge([Answered(question, (), (), texts=texts)])
        assert (verdict.hit_rate, verdict.reproduced, verdict.control) == (hits, bool(hits), bool(hits))


@pytest.mark.parametrize(("n_hits", "reproduced"), [(1, False), (2, True), (4, True)])
def test_a_question_is_reproduced_if_its_share_of_hits_reaches_the_threshold(n_hits: int, reproduced: bool) -> None:
    """Half of four options; the control compares each completion with the option after its own, the last with the
    first."""
    texts = OPTIONS[:n_hits] + ("nothing",) * (4 - n_hits)
    (verdict,) = Reproduction(share=0.5).judge([Answered(QUESTION, (), (), texts=texts)])
    assert (verdict.reproduced, verdict.control, verdict.hit_rate) == (reproduced, False, n_hits / 4)
    assert verdict.mean_rouge == pytest.approx(n_hits / 4 + sum(map(rouge_l, OPTIONS[n_hits:], texts[n_hits:])) / 4)
    after = (*OPTIONS[1:], OPTIONS[0])
    texts = ("nothing",) * (4 - n_hits) + after[4 - n_hits :]
    (verdict,) = Reproduction(share=0.5).judge([Answered(QUESTION, (), (), texts=texts)])
    assert (verdict.reproduced, verdict.control) == (False, reproduced)


def test_words_are_stemmed_as_in_the_paper() -> None:
    expected = (
        RougeScorer(["rougeL"], use_stemmer=True).score("two dogs in the rain", "two dog rains")["rougeL"].fmeasure
    )
    assert rouge_l("two dogs in the rain", "two dog rains") == expected
    assert expected > 0


def test_the_control_sees_what_options_share() -> None:
    shared = Question("q", "How long?", ("in 5 to 6 days", "in 5 to 7 days", "in 5 to 8 days", "in 5 to 9 days"))
    (verdict,) = Reproduction().judge([Answered(shared, (), (), texts=("in 5 to 4 days",) * 4)])
    assert (verdict.reproduced, verdict.control) == (True, True)


def test_options_in_other_scripts_are_compared_by_their_beginning() -> None:
    assert rouge_l("土地", "土地\nC.") == 1.0
    assert rouge_l("土地", "资金") == 0.0
    assert rouge_l("√", "") == 0.0


def test_completions_follow_the_true_options_before_them() -> None:
    requests = OptionCompletions().requests(QUESTION)
    assert requests[0] == Request("Which animals are seen there?\nA.", OPTIONS[0])
    assert requests[2].context == f"Which animals are seen there?\nA. {OPTIONS[0]}\nB. {OPTIONS[1]}\nC."
    framed = Question("q", "?", ("x", "y"), frame=Frame("Q: ?", (" (a) ", " (b) "), "\nA:"))
    assert [request.context for request in OptionCompletions().requests(framed)] == ["Q: ? (a)", "Q: ? (a) x (b)"]


def test_ngram_accuracy_counts_what_is_written_exactly() -> None:
    requests = PrefixCompletions().requests(QUESTION)
    assert len(requests) == 5
    text = requests[0].context + requests[0].continuation
    assert text.endswith("D. a horse of course")
    assert all(request.context + request.continuation == text for request in requests)
    lengths = np.diff([len(request.context.split()) for request in requests])
    assert max(lengths) - min(lengths) <= 1  # equally spaced
    texts = (requests[0].continuation[:9], "never", requests[2].continuation, "", "  ")
    (verdict,) = NgramAccuracy().judge([Answered(QUESTION, requests, (), texts=texts)])
    assert verdict.ngram_accuracy == 2 / 5
    assert PrefixCompletions(n=7).n_tokens(requests[0]) == 7
    with pytest.raises(UntestableQuestion, match="has 3 words; more than 5"):
        PrefixCompletions().requests(Question("q", "?", ("x",)))


def test_a_wrong_option_is_hidden_and_always_the_same() -> None:
    hidden = [MaskedOption().hidden(Question(str(i), "Which?", OPTIONS, answer=1)) for i in range(200)]
    assert set(hidden) == {0, 2, 3}
    assert hidden == [MaskedOption().hidden(Question(str(i), "Which?", OPTIONS, answer=1)) for i in range(200)]
    assert MaskedOption(hides="right").hidden(Question("q", "Which?", OPTIONS, answer=1)) == 1
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
    assert opinion(reply) is meant
