"""Does the model name what was published, of several candidates that the author's draw made equally likely?

Null hypothesis: the published one was drawn uniformly among the k candidates, and the model is independent of the
draw. Whether a reply names a candidate, and which one, does not depend on which of them was published. So given all
replies, those that name one are hits with probability exactly 1/k each, independently; the others (refusals, empty and
malformed ones) can be no hits. The number of hits follows a Poisson-binomial distribution, exactly, whatever the model
knows. Counting replies that name nothing as wrong guesses instead stays valid and loses power; both are reported.
Limits: those of the probe. Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lm_eval_leakage.inference.pooling import (
    NULL_RATE_ROW,
    Verdicts,
    rate_and_stderr,
    row_with_error,
)
from lm_eval_leakage.inference.sealed_tests import fewest_seen, hits_log_evalue, hits_pvalue
from lm_eval_leakage.questions.replies import named
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence
from lm_eval_leakage.statistics import statistics


@dataclass(frozen=True)
class GuessEvidence(Evidence):
    """flagged: the reply names the published candidate, a hit

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
    """Of the replies that name a candidate: whether each is a hit, and its probability by chance."""
    named_one = [guess for guess in _guesses(verdicts) if guess.guessed]
    return [guess.flagged for guess in named_one], [guess.null_rate for guess in named_one]


def _pvalue_of_all(verdicts: Verdicts) -> float:
    guesses = _guesses(verdicts)
    return hits_pvalue([guess.flagged for guess in guesses], [1 / guess.n_candidates for guess in guesses])


def _seen_share(verdicts: Verdicts) -> float:
    hits, rates = _named(verdicts)
    n_asked = len(_guesses(verdicts))
    return fewest_seen(sum(hits), rates) / n_asked if n_asked else float("nan")


def _share_row(name: str, meaning: str, what: str) -> DeclaredRow:
    return row_with_error(
        name,
        meaning,
        lambda verdicts: rate_and_stderr([bool(getattr(guess, what)) for guess in _guesses(verdicts)]),
        higher_is_better=False if what == "flagged" else None,
        per_question=lambda verdict: float(getattr(verdict, what)) if isinstance(verdict, GuessEvidence) else None,
    )


@statistics.register("published_guess")
@dataclass(frozen=True)
class PublishedGuessed:
    probe: ClassVar[str] = "published_guess"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        _share_row(
            "guess_hits",
            "Share of the questions whose reply names the published candidate; refusals, empty and malformed replies "
            "count as misses.",
            "flagged",
        ),
        NULL_RATE_ROW,
        _share_row(
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
            "Lower 95 % confidence bound on the share of the asked questions that were seen.",
            _seen_share,
        ),
    )

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[GuessEvidence]:
        return [_judged(question) for question in answered]


def _judged(answered: Answered) -> GuessEvidence:
    (reply,) = answered.texts
    place = named(reply, answered.candidates)
    n = len(answered.candidates)
    rate = 0.0 if place is None else 1 / n
    return GuessEvidence(place == 0, rate if place == 0 else 1.0, rate, place is not None, n)
