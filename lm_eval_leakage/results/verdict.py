"""The verdict on a data set: its word, what it is computed from, and the numbers that it rests on.

It is computed in `results.data_verdict` and put into words in `results.verdict_words`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from lm_eval_leakage.records import StrEnum
from lm_eval_leakage.results.formatting import rounded_up
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import DETECT, DETECT_TIMES, Power, Shares, needed_by_all
from lm_eval_leakage.stats.order_sum import OrderRatio, OrderSum
from lm_eval_leakage.stats.pooling import NAN
from lm_eval_leakage.stats.positive_control import PositiveControl
from lm_eval_leakage.stats.sealed import SeenBound
from lm_eval_leakage.stats.unseen_texts import TextTest

EVIDENCE_LEVEL, STRONG_LEVEL = 0.01, 0.0001
FEWEST_JUDGED = 20  # questions; a p-value of fewer would look like an answer
NOT_TESTED, NO_RATIO, NOTHING_SEEN = OrderSum(0), OrderRatio(0), SeenBound()


class VerdictWord(StrEnum):
    """The word of a verdict, from the least to the most suspicious."""

    NO_VERDICT = "no verdict"
    NONE_FOUND = "none found"
    INCONCLUSIVE = "inconclusive"
    EVIDENCE = "evidence"
    STRONG_EVIDENCE = "strong evidence"

    @property
    def place(self) -> int:
        """Return its place among all words, counted from 0; what clears a model less comes later."""
        return [*VerdictWord].index(self)


class Basis(StrEnum):
    """The basis that a verdict is computed from; all but the last two have a p-value."""

    ORDERS = "orders"
    REFERENCE = "reference"
    CONTROL = "control"
    FILLERS = "fillers"
    RATIO = "ratio"
    NOTHING = "no audit"


@dataclass(frozen=True)
class DataVerdict:
    """The verdict on a data set, with all that it rests on.

    basis: what it is computed from; empty if nothing was scored
    orders: status of the published orders, or of fillers that a key drew; empty otherwise
    n: number of questions that the p-value covers; n_asked: of all whose orders were asked
    tested: the test; its numbers are NaN where no null hypothesis holds, or for too few questions
    ratio: of the questions without a guard; NaN where they are too few
    at_most: by number of exposures, the largest share of the questions that may have been seen so often, with 95 %
        confidence; NaN if it may be all; empty where nothing was tested, or finding nothing means nothing
    detect: share of the questions, seen `DETECT_TIMES` times, that has to be excluded where nothing is found
    adjusted: the p-value, adjusted for its look and for the number `n_together` of those that are shown together
    doubt: why finding nothing means nothing; empty if it does
    seen: at least how many of the questions were seen, where the null hypothesis is exact
    remedy: a sentence on what may give a verdict where there is none, or change one that is inconclusive; may be empty
    n_copies: copies of questions that were left out
    look: its number among the looks at this benchmark by this model, where somebody counts them; else 0
    spent: share of all looks' error that this one spends
    level: the p-value from which it would be evidence, at its look and among those that are shown together
    power: what each comparison finds at other levels; empty where none was made
    natural: how many standard deviations of `tested.mean` are expected without memory, and their standard deviation
    n_unseen: number of unseen questions on which that rests; 0 if it is what is usual
    layouts: in which each order was asked, if in several; then `at_most` is of questions seen in mixed layouts
    scores: mean standardised scores of the published orders in the audited form, and in each that it is compared with
    threshold: about the mean difference from which it would be evidence, by the control forms
    texts: the same question asked of whole texts, beside those of unseen questions; the p-value is of both together
    positive: what an audit of rows that the model may have learned found; None without one
    start: the text at the start of each document, where it was chosen; empty for none
    fillers: what was exchanged, names or numbers, where something was; by_reference: whether another model's
        preferences for them were subtracted
    beside: the verdict by option orders beside one by exchanged names, or the other way round; the p-value is of both
        together. Of the two, this is the one that was tested, else that by option orders
    """

    basis: Basis | Literal[""] = ""
    orders: OrderStatus | Literal[""] = ""
    n: int = 0
    n_asked: int = 0
    tested: OrderSum = NOT_TESTED
    ratio: OrderRatio = NO_RATIO
    at_most: Shares = ()
    detect: float = DETECT
    adjusted: float = NAN
    n_together: int = 1
    doubt: str = ""
    seen: SeenBound = NOTHING_SEEN
    remedy: str = ""
    n_copies: int = 0
    look: int = 0
    spent: float = 1.0
    level: float = EVIDENCE_LEVEL
    power: tuple[Power, ...] = field(default=(), repr=False, compare=False)
    natural: tuple[float, float] = (0.0, 0.0)
    n_unseen: int = 0
    layouts: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    threshold: float = field(default=NAN, compare=False)
    texts: TextTest | None = None
    positive: PositiveControl | None = None
    start: str = ""
    fillers: str = ""
    by_reference: bool = False
    beside: DataVerdict | None = None

    @property
    def pvalue(self) -> float:
        """Return the p-value, by Bonferroni's rule where several of orders, texts and names are tested; NaN where it
        would look like an answer: where the orders cannot be tested, and none shows evidence."""
        pvalues = [p for p in self.pvalues if not math.isnan(p)]
        adjusted = min(1.0, len(pvalues) * min(pvalues)) if pvalues else NAN
        is_tested = not (self.doubt or math.isnan(self.tested.pvalue))
        return adjusted if is_tested or adjusted <= EVIDENCE_LEVEL else NAN

    @property
    def pvalues(self) -> tuple[float, float, float]:
        """Return its own, by texts, and of the verdict beside it; NaN where they are not tested."""
        by_texts = NAN if self.texts is None else self.texts.pvalue
        return self.tested.pvalue, by_texts, NAN if self.beside is None else self.beside.tested.pvalue

    @property
    def pvalue_of_each(self) -> Mapping[str, float]:
        """Return p-values by `orders`, `texts` and `names`; none where only orders, or only names, were tested."""
        by_main, by_texts, by_beside = self.pvalues
        names = ("names", "texts", "orders") if self.basis == Basis.FILLERS else ("orders", "texts", "names")
        tested = {name: p for name, p in zip(names, (by_main, by_texts, by_beside), strict=True) if not math.isnan(p)}
        return tested if self.has_texts or self.has_beside else {}

    @property
    def has_texts(self) -> bool:
        return not math.isnan(self.pvalues[1])

    @property
    def is_by_texts(self) -> bool:
        """Return whether the texts decide."""
        return self.has_texts and self.pvalues[1] <= np.nanmin(self.pvalues)

    @property
    def has_beside(self) -> bool:
        """Return whether the verdict beside it was tested."""
        return not math.isnan(self.pvalues[2])

    @property
    def is_bound(self) -> bool:
        """Return whether `pvalue` is an upper bound."""
        return self.tested.is_bound and not self.is_by_texts

    @property
    def level_of_each(self) -> float:
        """Return the level of each of its tests."""
        return self.level / max(1, sum(not math.isnan(p) for p in self.pvalues))

    @property
    def looked_pvalue(self) -> float:
        """Return the p-value as those of all looks may be compared with one level; NaN without one."""
        return self.pvalue if math.isnan(self.pvalue) else min(1.0, self.pvalue / self.spent)

    @property
    def deciding_pvalue(self) -> float:
        """Return the adjusted p-value where there is one."""
        return self.looked_pvalue if math.isnan(self.adjusted) else self.adjusted

    @property
    def word(self) -> VerdictWord | Literal[""]:
        """Return the word; empty if nothing was scored."""
        return self.word_by(self.deciding_pvalue)

    def word_by(self, pvalue: float) -> VerdictWord | Literal[""]:
        if not self.basis:
            return ""
        if math.isnan(pvalue):
            return VerdictWord.NO_VERDICT
        if pvalue <= EVIDENCE_LEVEL:
            return VerdictWord.STRONG_EVIDENCE if pvalue <= STRONG_LEVEL else VerdictWord.EVIDENCE
        if self.doubt:
            return VerdictWord.NO_VERDICT
        return word_without_evidence(self.at_most, self.detect)

    @cached_property
    def needed(self) -> int | None:
        """Return about how many questions like these would find what has to be excluded, at the next look if looks are
        counted; twice as many as there were, if those were too few; None if no number would."""
        level = self.level_of_each * (share_alone(self.look + 1) / share_alone(self.look) if self.look else 1.0)
        n_needed = needed_by_all(self.power, self.detect, level)
        return 2 * self.n if n_needed is not None and n_needed <= self.n else n_needed

    @property
    def n_needed(self) -> int | None:
        """Return about how many questions have to be asked to find what has to be excluded, where that is open: of
        them as large a part counts as of those that were asked; None if no number of questions does."""
        if self.word != VerdictWord.INCONCLUSIVE or self.needed is None:
            return None
        return rounded_up(self.needed * self.n_asked / self.n)


def word_without_evidence(at_most: Shares, detect: float = DETECT) -> VerdictWord:
    """Return the word where nothing was found, by how many may have been seen."""
    return VerdictWord.NONE_FOUND if dict(at_most).get(DETECT_TIMES, NAN) <= detect else VerdictWord.INCONCLUSIVE


NOT_AUDITED = DataVerdict()


def not_judged(reason: str, remedy: str = "") -> DataVerdict:
    """Return the verdict where no option orders could be asked, with the reason, and what may change it."""
    return DataVerdict(Basis.NOTHING, doubt=reason, remedy=remedy)
