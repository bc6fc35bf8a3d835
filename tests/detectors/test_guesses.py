"""Under a draw that the model cannot know, a reply that names a candidate is a hit with probability exactly 1/k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from itertools import permutations, product

import pytest

from lm_eval_leakage.detectors.guesses import CHAT_FORMS, GuessEvidence, PublishedGuess, PublishedGuessed
from lm_eval_leakage.harness.tasks.task import request_arguments
from lm_eval_leakage.records import Answered, Frame, Question, UntestableQuestion
from lm_eval_leakage.stats.sealed import hits_pvalue

QUESTION = Question("q", "Which one?", ("a red hat", "blue", "lime", "a very very long grey option"), answer=1)
Guesser = Callable[[str, tuple[str, ...]], str]
every_form = pytest.mark.parametrize("form", CHAT_FORMS)


def digest(*texts: str) -> int:
    return int.from_bytes(sha256("\0".join(texts).encode()).digest()[:8], "big")


GUESSERS: dict[str, Guesser] = {  # functions of the prompt and of the set of candidates, as any model is
    "first": lambda prompt, left: left[0],
    "longest": lambda prompt, left: max(left, key=lambda text: (len(text), text)),
    "last shown": lambda prompt, left: min(left, key=lambda text: -prompt.rfind(text)),
    "arbitrary": lambda prompt, left: left[digest(prompt) % len(left)],
    "refuses half": lambda prompt, left: left[0] if digest(prompt) % 2 else "I can't say.",
    "like a model": lambda prompt, left: f" {max(left, key=lambda text: digest(prompt[-20:], text))}.\n\nAnd",
    "names all": lambda prompt, left: " ".join(left),
}
every_guesser = pytest.mark.parametrize("guesser", GUESSERS.values(), ids=GUESSERS)


def ordered(question: Question, order: tuple[int, ...]) -> Question:
    return replace(question, options=tuple(question.options[place] for place in order))


def guess(probe: PublishedGuess, question: Question, guesser: Guesser) -> GuessEvidence:
    requests, candidates = probe.requests(question), probe.candidates(question)
    reply = guesser(requests[0].context, tuple(sorted(candidates)))
    answered = Answered(question, requests, (), texts=(reply,), candidates=candidates)
    return PublishedGuessed().judge([answered])[0]


# ---------------------------------------------------------------------- exactness, by enumeration


@every_guesser
@pytest.mark.parametrize("n_options", [2, 3, 4, 5])
@pytest.mark.parametrize(("form", "shown"), [("pair", 0), ("next", 0), ("next", 1), ("next", 2)])
def test_over_all_orders_exactly_1_of_k_guesses_is_a_hit(
    form: str, shown: int, n_options: int, guesser: Guesser
) -> None:
    question = Question("q", "Which one?", (*QUESTION.options, "five")[-n_options:])
    probe = PublishedGuess(form, shown)
    guesses = [guess(probe, ordered(question, order), guesser) for order in permutations(range(n_options))]
    n_left = 2 if form == "pair" else max(2, n_options - shown)
    n_guessed = sum(evidence.guessed for evidence in guesses)
    assert sum(evidence.flagged for evidence in guesses) == Fraction(n_guessed, n_left)
    assert {evidence.null_rate for evidence in guesses if evidence.guessed} <= {1 / n_left}
    assert {evidence.null_rate for evidence in guesses if not evidence.guessed} <= {0.0}
    assert all(evidence.pvalue == (evidence.null_rate if evidence.flagged else 1) for evidence in guesses)


@pytest.mark.parametrize(("form", "shown"), [("pair", 0), ("next", 0), ("next", 1), ("next", 2)])
def test_all_that_the_backend_gets_is_the_same_for_every_order_that_it_could_have_been(form: str, shown: int) -> None:
    """The prompt, the number of tokens and where it stops; else a model could be cut off where it is wrong."""
    probe = PublishedGuess(form, shown)
    published: dict[str, list[str]] = {}
    for order in permutations(range(4)):
        question = ordered(QUESTION, order)
        (request,) = probe.requests(question)
        candidates = probe.candidates(question)
        key = repr((request_arguments(probe, None, *request), sorted(candidates)))
        published.setdefault(key, []).append(candidates[0])
    for named in published.values():
        counts = Counter(named)
        assert len(counts) == (2 if form == "pair" else 4 - shown)
        assert len(set(counts.values())) == 1


def test_the_number_of_hits_has_the_distribution_that_the_p_value_takes_it_to_have() -> None:
    """Three questions, all 6^3 draws: for every guesser, p <= u has a probability of u at most."""
    questions = [Question(str(i), f"Which {i}?", (f"red {i}", f"blue {i}", f"lime {i}")) for i in range(3)]
    for form, guesser in product(CHAT_FORMS, GUESSERS.values()):
        each = [
            [guess(PublishedGuess(form), ordered(question, order), guesser) for order in permutations(range(3))]
            for question in questions
        ]
        pvalues = []
        for drawn in product(*each):
            guessed = [evidence for evidence in drawn if evidence.guessed]
            pvalues.append(
                hits_pvalue([evidence.flagged for evidence in guessed], [evidence.null_rate for evidence in guessed])
            )
        for level in set(pvalues):
            assert sum(pvalue <= level for pvalue in pvalues) <= level * len(pvalues) + 1e-9


# ---------------------------------------------------------------------- what is asked


def test_the_next_option_is_asked_for_up_to_its_label() -> None:
    (request,) = PublishedGuess("next", shown=1).requests(QUESTION)
    assert request.context.endswith("\n\nWhich one?\nA. a red hat\nB.")
    assert request.continuation == " blue\nC. lime\nD. a very very long grey option"
    (first,) = PublishedGuess("next", shown=0).requests(QUESTION)
    assert first.context.endswith("\nWhich one?\nA.")
    assert PublishedGuess("next", shown=9).candidates(QUESTION) == QUESTION.options[2:]
    (plain,) = PublishedGuess("next", instruction="{{ question }}").requests(QUESTION)
    assert plain.context == "Which one?\nA."


def test_the_benchmarks_own_layout_is_kept_also_without_labels() -> None:
    framed = replace(QUESTION, frame=Frame("Q: Which one?", ("\n(a) ", "\n(b) ", "\n(c) ", "\n(d) "), "\nA:"))
    (request,) = PublishedGuess("next", shown=1, instruction="{{ question }}").requests(framed)
    assert request.context == "Q: Which one?\n(a) a red hat\n(b)"
    bare = replace(QUESTION, frame=Frame("Q: Which one?", ("\n", "\n", "\n", "\n"), "\nA:"))
    (request,) = PublishedGuess("next", shown=1, instruction="{{ question }}").requests(bare)
    assert request.context == "Q: Which one?\na red hat\n"
    assert request.continuation.startswith("blue\nlime")


def test_both_listings_are_shown_sorted_and_the_published_one_may_be_either() -> None:
    backwards = replace(QUESTION, options=QUESTION.options[::-1])
    (request,), (other,) = (PublishedGuess("pair").requests(question) for question in (QUESTION, backwards))
    assert request.context == other.context
    assert "Listing 1:\nA. a red hat\nB. blue" in request.context
    assert (request.continuation, other.continuation) == (" 1", " 2")


@every_form
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("one",), "1 option"),
        (("one", "two", "One."), "the same but for case"),
        (("one", "."), "no text that a reply could name"),
    ],
)
def test_options_that_a_reply_cannot_distinguish_are_not_asked_about(form: str, options, reason: str) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        PublishedGuess(form).requests(Question("q", "Which one?", options))


def test_an_option_of_several_lines_cannot_be_written_in_one() -> None:
    question = Question("q", "Which one?", ("one", "two\nlines", "three"))
    with pytest.raises(UntestableQuestion, match="several lines"):
        PublishedGuess("next").requests(question)
    assert PublishedGuess("pair").requests(question)
