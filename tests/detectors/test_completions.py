from __future__ import annotations

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from lm_eval_leakage.detectors.completions import (
    NgramAccuracy,
    OptionCompletions,
    PrefixCompletions,
    Reproduction,
    rouge_l,
)
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
