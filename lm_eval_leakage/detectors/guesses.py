"""Does the model name what was published, of several candidates that the author's draw made equally likely?

Generated text is enough, since chat APIs return nothing else.

`next` shows the question, and may show the first options as published; the candidates are the options that are left.
Given what is shown, every one of them is equally likely to be the next. `pair` shows two listings of the options: the
published one, and the same in reverse. They are sorted by their text, so that the model sees only which two orders
these are. Reversing an order twice gives it back: had the other listing been drawn, the same pair would have been
shown. Both were equally likely, so each is the published one with probability 1/2, and no further draw is needed.

Null hypothesis: the published order of the options was drawn uniformly among all orders, and the model is independent
of the draw. What it reads, how many tokens it may write and which candidates there are are the same for every order
that the draw could have had instead, so that whether a reply names a candidate, and which one, does not depend on
which of them was published. Given all replies, those that name one of k candidates are hits with probability exactly
1/k each, independently; the others (refusals, empty and malformed ones) can be no hits. The number of hits follows a
Poisson-binomial distribution, exactly, whatever the model knows or prefers. Counting replies that name nothing as
wrong guesses instead stays valid and loses power; both are reported. Limits: needs orders that were drawn (sealed or
random), else all questions are skipped; a model may have seen the questions and not recite them, so few hits prove
nothing. Source: ours; the next option as in the n-gram method of Hidayat et al., 2025 (arXiv 2505.24263), the
published version among others after Golchin and Surdeanu (arXiv 2311.06233).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.detectors import (
    Probe,
    Statistic,
    check_choice,
    check_counts,
    check_template,
    filled,
    probes,
    refuse_few_options,
    statistics,
)
from lm_eval_leakage.questions.rendering import candidate_in_reply, frame_of, plain, up_to_label, whole_text
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request, UntestableQuestion
from lm_eval_leakage.stats.pooling import NULL_RATE_ROW, Verdicts, declare_row
from lm_eval_leakage.stats.sealed import fewest_seen, hits_log_evalue, hits_pvalue

NEXT_INSTRUCTION = """\
Continue this text exactly as it was published.

{{ question }}"""
PAIR_INSTRUCTION = """\
{{ question }}

Here are two listings of the options of this question. One is the published one; in the other, the order was changed.

Listing 1:
{{ first }}

Listing 2:
{{ second }}

Which of the two is the published one? Answer 1 or 2.
Answer: Listing"""
LISTING_NUMBERS = ("1", "2")
PAIR_TOKENS = 12  # "The published listing is Listing 2."
NEXT_TOKENS, BYTES_OF_A_SHORT_TOKEN = 8, 3  # more than enough for one option where the options left are English text
CHAT_FORMS = ("next", "pair")


@probes.register("published_guess")
@dataclass(frozen=True)
class PublishedGuess(Probe):
    """Sends one request per question, whose reply may name one of `candidates`.

    chat_form: "next", the next option after the question and `shown` options; or "pair", which of two listings of the
        options is the published one
    shown: number of options that `next` shows; fewer if less than two would be left. The fewer, the more unlikely is a
        hit by chance
    instruction: Jinja template of the prompt: of `question`, for `pair` also of `first` and `second`, the listings;
        empty for that of the form
    """

    needs: ClassVar[str] = "generate_until"
    needs_drawn_orders: ClassVar[bool] = True
    stops: ClassVar[tuple[str, ...]] = ("\n",)
    chat_form: str = "next"
    shown: int = 0
    instruction: str = ""

    def __post_init__(self) -> None:
        check_choice("chat_form", self.chat_form, CHAT_FORMS)
        check_counts(0, shown=self.shown)
        listings = ("first", "second") if self.chat_form == "pair" else ()
        check_template("instruction", self.instruction, "question", *listings)

    def requests(self, question: Question) -> tuple[Request, ...]:
        right, *_ = self.candidates(question)
        frame = frame_of(question)
        if self.chat_form == "pair":
            first, second = (listing.strip("\n") for listing in _listings(question))
            texts = {"question": frame.before.strip(), "first": first, "second": second}
            return (Request(filled(self.instruction or PAIR_INSTRUCTION, **texts), f" {right}"),)
        place = self._n_shown(question)
        beginning = up_to_label(question, place)
        bare = beginning.rstrip(" ") if frame.markers[place].strip() else beginning
        rest = whole_text(question)[len(bare) :]
        return (Request(filled(self.instruction or NEXT_INSTRUCTION, question=bare), rest),)

    def candidates(self, question: Question) -> tuple[str, ...]:
        refuse_alike(question)
        if self.chat_form == "pair":
            published = _listings(question).index(frame_of(question).block(question.options))
            return LISTING_NUMBERS[published], LISTING_NUMBERS[1 - published]
        left = question.options[self._n_shown(question) :]
        if any("\n" in option.strip() for option in left):
            raise UntestableQuestion("one of its options has several lines, and only one line of a reply is read")
        return left

    def n_tokens(self, request: Request) -> int:
        """Return a number from the bytes of all options that are left; those of the next one alone would reveal it."""
        if self.chat_form == "pair":
            return PAIR_TOKENS
        return NEXT_TOKENS + len(request.continuation.encode("utf-8", "replace")) // BYTES_OF_A_SHORT_TOKEN

    def _n_shown(self, question: Question) -> int:
        return min(self.shown, len(question.options) - 2)


def _listings(question: Question) -> list[str]:
    """Return the listings of the options in the published order and in reverse, sorted by their text."""
    frame = frame_of(question)
    return sorted(map(frame.block, (question.options, question.options[::-1])))


def refuse_alike(question: Question) -> None:
    """Raise UntestableQuestion if a reply could name two options at once, or cannot name one."""
    refuse_few_options(question)
    texts = [plain(option) for option in question.options]
    if "" in texts:
        raise UntestableQuestion("one of its options has no text that a reply could name")
    if len(set(texts)) < len(texts):
        raise UntestableQuestion("two of its options are the same but for case, white space or a full stop")


@dataclass(frozen=True)
class GuessEvidence(Evidence):
    """Records whether the reply names the published candidate.

    flagged: the reply names the published candidate, a hit
    pvalue: 1 / n_candidates for a hit, else 1
    null_rate: 1 / n_candidates if the reply names one of them, else 0
    guessed: whether the reply names one of them
    n_candidates: number of candidates, the published one included
    """

    guessed: bool
    n_candidates: int

    @property
    def statistic(self) -> float:
        return float(self.flagged)


def _guesses(verdicts: Verdicts) -> list[GuessEvidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, GuessEvidence)]


def _named(verdicts: Verdicts) -> tuple[list[bool], list[float]]:
    """Return, for the replies that name a candidate, whether each is a hit, and its probability by chance."""
    guesses = [guess for guess in _guesses(verdicts) if guess.guessed]
    return [guess.flagged for guess in guesses], [guess.null_rate for guess in guesses]


def _pvalue_of_all(verdicts: Verdicts) -> float:
    guesses = _guesses(verdicts)
    return hits_pvalue([guess.flagged for guess in guesses], [1 / guess.n_candidates for guess in guesses])


def _seen_share(verdicts: Verdicts) -> float:
    hits, rates = _named(verdicts)
    n_guesses = len(_guesses(verdicts))
    return fewest_seen(sum(hits), rates) / n_guesses if n_guesses else float("nan")


@statistics.register("published_guess")
@dataclass(frozen=True)
class PublishedGuessed(Statistic):
    """Reads which candidate each reply names."""

    probe: ClassVar[str] = "published_guess"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        declare_row(
            GuessEvidence,
            "guess_hits",
            "Share of the questions whose reply names the published candidate; refusals, empty and malformed replies "
            "count as misses.",
            "flagged",
            higher_is_better=False,
        ),
        NULL_RATE_ROW,
        declare_row(
            GuessEvidence,
            "guesses",
            "Share of the questions whose reply names a candidate; the others name none or several.",
            "guessed",
        ),
        DeclaredRow(
            "guess_pvalue",
            "Probability of at least so many hits by chance among the replies that name a candidate (exact "
            "Poisson-binomial tail).",
            lambda verdicts: hits_pvalue(*_named(verdicts)),
        ),
        DeclaredRow(
            "guess_pvalue_of_all",
            "The same if every reply that names no candidate were a wrong guess; never smaller.",
            _pvalue_of_all,
            in_table=False,
        ),
        DeclaredRow(
            "guess_log_evalue",
            "Logarithm of the e-value of the hits; e-values of different questions may be multiplied.",
            lambda verdicts: hits_log_evalue(*_named(verdicts)),
        ),
        DeclaredRow(
            "guess_seen_low",
            "Lower 95 % confidence bound on the share of the tested questions that were seen.",
            _seen_share,
        ),
    )

    def verdict(self, question: Answered) -> GuessEvidence:
        (reply,) = question.texts
        place = candidate_in_reply(reply, question.candidates)
        n = len(question.candidates)
        rate = 0.0 if place is None else 1 / n
        return GuessEvidence(place == 0, rate if place == 0 else 1.0, rate, place is not None, n)
