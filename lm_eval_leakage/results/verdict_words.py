"""A verdict on a data set in words: one word, and one sentence with the figure, what its null hypothesis rests on and
how many may have been seen. It is computed in `results.data_verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from lm_eval_leakage.questions.families import left_out_in_words
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.records import StrEnum
from lm_eval_leakage.results.formatting import (
    count,
    counted,
    number,
    percent,
    pvalue,
    pvalue_equation,
    rounded_up,
    whole_percent,
)
from lm_eval_leakage.results.published_orders import OrderStatus, is_exact
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import (
    CONTROL_FORMS,
    DETECT,
    DETECT_TIMES,
    SEEN_ERROR,
    Power,
    Shares,
    needed_by_all,
)
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
    """What a verdict is computed from; all but the last two have a p-value."""

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
        """By Bonferroni's rule where several of orders, texts and names are tested; NaN where it would look like an
        answer: where the orders cannot be tested, and none shows evidence."""
        known = [p for p in self.pvalues if not math.isnan(p)]
        found = min(1.0, len(known) * min(known)) if known else NAN
        is_told = not (self.doubt or math.isnan(self.tested.pvalue))
        return found if is_told or found <= EVIDENCE_LEVEL else NAN

    @property
    def pvalues(self) -> tuple[float, float, float]:
        """Return its own, by texts, and of the verdict beside it; NaN where they are not tested."""
        by_texts = NAN if self.texts is None else self.texts.pvalue
        return self.tested.pvalue, by_texts, NAN if self.beside is None else self.beside.tested.pvalue

    @property
    def pvalue_of_each(self) -> Mapping[str, float]:
        """Return p-values by `orders`, `texts` and `names`; none where only orders, or only names, were tested."""
        own, by_texts, by_beside = self.pvalues
        names = ("names", "texts", "orders") if self.basis == Basis.FILLERS else ("orders", "texts", "names")
        tested = {name: p for name, p in zip(names, (own, by_texts, by_beside), strict=True) if not math.isnan(p)}
        return tested if self.has_texts or self.has_beside else {}

    @property
    def has_texts(self) -> bool:
        return not math.isnan(self.pvalues[1])

    @property
    def is_by_texts(self) -> bool:
        """Whether the texts decide."""
        return self.has_texts and self.pvalues[1] <= np.nanmin(self.pvalues)

    @property
    def has_beside(self) -> bool:
        """Return whether the verdict beside it was tested."""
        return not math.isnan(self.pvalues[2])

    @property
    def is_bound(self) -> bool:
        """Whether `pvalue` is an upper bound."""
        return self.tested.is_bound and not self.is_by_texts

    @property
    def level_of_each(self) -> float:
        """Return the level of each of its tests."""
        return self.level / max(1, sum(not math.isnan(p) for p in self.pvalues))

    @property
    def looked_pvalue(self) -> float:
        """The p-value as those of all looks may be compared with one level; NaN without one."""
        return self.pvalue if math.isnan(self.pvalue) else min(1.0, self.pvalue / self.spent)

    @property
    def deciding_pvalue(self) -> float:
        """The adjusted p-value where there is one."""
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
        """About how many questions like these would find what has to be excluded, at the next look if looks are
        counted; twice as many as there were, if those did not tell; None if no number would."""
        level = self.level_of_each * (share_alone(self.look + 1) / share_alone(self.look) if self.look else 1.0)
        found = needed_by_all(self.power, self.detect, level)
        return 2 * self.n if found is not None and found <= self.n else found

    @property
    def n_needed(self) -> int | None:
        """Return about how many questions have to be asked to find what has to be excluded, where that is open: of
        them as large a part counts as of those that were asked; None if no number of questions does."""
        if self.word != VerdictWord.INCONCLUSIVE or self.needed is None:
            return None
        return rounded_up(self.needed * self.n_asked / self.n)

    @property
    def sentence(self) -> str:
        """The word, the figure, what its null hypothesis rests on, and how many questions were seen at least or at
        most."""
        return f"{self.word}: {self.reason}" if self.basis else ""

    @property
    def reason(self) -> str:
        """The sentence without the word."""
        if not self.basis:
            return ""
        control = positive_in_words(self)
        return "; ".join(filter(None, (in_words(self), control, left_out_in_words(self.n_copies))))


def word_without_evidence(at_most: Shares, detect: float = DETECT) -> VerdictWord:
    """Return the word where nothing was found, by how many may have been seen."""
    return VerdictWord.NONE_FOUND if dict(at_most).get(DETECT_TIMES, NAN) <= detect else VerdictWord.INCONCLUSIVE


NOT_AUDITED = DataVerdict()


def not_judged(reason: str, remedy: str = "") -> DataVerdict:
    """The verdict where no option orders could be asked, with the reason, and what may change it."""
    return DataVerdict(Basis.NOTHING, doubt=reason, remedy=remedy)


# ---------------------------------------------------------------------- in words


def pvalue_parts(verdict: DataVerdict) -> tuple[str, str]:
    """`p = 0.57` and `1 after adjustment for 2 verdicts`, which decides the word; the latter is empty for a verdict
    that is shown alone, unless it is of a later look, or the share of later looks changes its word."""
    told = pvalue_equation(verdict.pvalue, verdict.is_bound)
    verdicts = [f"{count(verdict.n_together)} verdicts"] if verdict.n_together > 1 else []
    if verdict.look > 1:
        looks = [f"look {verdict.look} at this benchmark in this folder"]
    else:
        says_more = verdict.look and (verdicts or verdict.word != verdict.word_by(verdict.pvalue))
        looks = ["later looks"] if says_more else []
    if not verdicts and not looks:
        return told, ""
    adjusted = pvalue(verdict.deciding_pvalue, verdict.is_bound)
    return told, f"{adjusted} after adjustment for {' and '.join([*verdicts, *looks])}"


def pvalue_in_words(verdict: DataVerdict) -> str:
    """Both on one line, the same wherever a verdict is told."""
    return ", ".join(filter(None, pvalue_parts(verdict)))


# To what the published orders are preferred, in the whole sentence; of none found, in short; what a sentence to copy
# says of it; and which questions it needs.
COMPARED: Mapping[str, tuple[str, str, str, str]] = {
    Basis.ORDERS: (
        "to other orders of the same options",
        "No significant preference for the published orders",
        "compared with other orders of the same options",
        "with orders that differ in likelihood",
    ),
    Basis.REFERENCE: (
        "more than the reference model does",
        "No significantly stronger preference for the published orders than the reference model has",
        "compared with a reference model",
        "without a natural order that the reference answered too",
    ),
    Basis.CONTROL: (
        "more than it does in both control forms, which break memory",
        "No significantly stronger preference for the published orders than in both control forms",
        "compared with the model's own control forms",
        "without a natural order whose orders differ in likelihood from those in both control forms",
    ),
}
ASKED = {True: "exchanged names", False: "option orders"}  # by whether names are exchanged
RESTS_ON: Mapping[str, str] = {
    OrderStatus.DRAWN: "orders drawn at random, as documented",
    OrderStatus.CONSISTENT: "orders consistent with random ones",
    OrderStatus.SEALED: "orders drawn with a secret key",
    OrderStatus.WRITTEN: "orders written by people",
    OrderStatus.PATTERNED: "orders written by people",
    OrderStatus.UNDECIDED: "orders that may have been written by people",
}
FILLERS_REST_ON: Mapping[str, str] = {
    "": "{} chosen by their authors",
    OrderStatus.SEALED: "{} drawn with a secret key",
}


def in_words(verdict: DataVerdict, *, short: bool = False) -> str:
    """What the word rests on: one sentence without its full stop or, in short, one or two; empty without a verdict."""
    if verdict.word in ("", VerdictWord.NO_VERDICT):
        return _why_not_told(verdict, short) if verdict.word else ""
    is_found, p = verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE), pvalue_in_words(verdict)
    if is_found and verdict.is_by_texts and (short or math.isnan(verdict.tested.pvalue)):
        n_texts = verdict.texts.n if verdict.texts else 0
        told = f"redicts the texts of {counted(n_texts)} better than {_by_texts(verdict)} ({p})"
        return f"P{told}." if short else f"the model p{told}"
    if short and is_found:
        shown = verdict.beside if verdict.beside and verdict.pvalues[2] < verdict.pvalues[0] else verdict
        prefers, *_ = _compared(shown)
        prefers = prefers.replace("more than it does in", "more than in")
        return f"Prefers the published {preferred(shown)} {prefers}, by {_size(shown)} ({p})."
    prefers, none, *_ = _compared(verdict)
    published, size = f"the published {preferred(verdict)}", f"by {_size(verdict)}"
    if verdict.beside is not None and verdict.has_beside:
        none += f", nor for the published {preferred(verdict.beside)}"
    if verdict.has_texts:
        none += f", nor texts that are predicted better than those of {_unseen(verdict)}"
    if short and verdict.word == VerdictWord.INCONCLUSIVE:
        return f"{none} ({p}), but {_too_little(verdict)}. {_what_would_do(verdict)}".rstrip()
    if short:
        share = whole_percent(dict(verdict.at_most)[DETECT_TIMES])
        seen = f"seen {DETECT_TIMES} times{_layouts_of_seen(verdict)}"
        return f"{none} ({p}). At most {share} of the questions were {seen}, {CONFIDENTLY_IN_SHORT}."
    if verdict.basis == Basis.CONTROL or verdict.n_unseen:
        mean, spread = (number(value, 2) for value in verdict.natural)
        by = f"by {counted(verdict.n_unseen, 'unseen question')}" if verdict.n_unseen else "on clean benchmarks"
        size += f", of which {mean} ± {spread} are natural {by}"
    at_most = max(verdict.level_of_each, float(np.nanmin(verdict.pvalues)))
    is_preferred, by_texts, is_beside = (is_found and own <= at_most for own in verdict.pvalues)
    is_alone = sum(not math.isnan(own) for own in verdict.pvalues) == 1
    own = p if is_alone else pvalue_equation(verdict.tested.pvalue, verdict.tested.is_bound)
    rests_on = FILLERS_REST_ON if verdict.basis == Basis.FILLERS else RESTS_ON
    told = (
        f"on {_covered(verdict)} with {rests_on[verdict.orders].format(preferred(verdict))}, the model "
        f"{'prefers' if is_preferred else 'does not significantly prefer'} {published} {prefers} ({size}, {own})"
    )
    if verdict.has_texts:
        does = "predicts their texts better" if by_texts else "does not predict their texts significantly better"
        told += f" and {does} than {_by_texts(verdict)} ({pvalue_equation(verdict.pvalues[1])})"
    told += _beside_in_words(verdict, is_beside)
    return told + ("" if is_alone else f"; together {p}") + _found_or_not(verdict)


def _size(verdict: DataVerdict) -> str:
    return f"{number(verdict.tested.mean, 2)} ± {number(verdict.tested.mean_error, 2)} standard deviations"


def _beside_in_words(verdict: DataVerdict, is_preferred: bool) -> str:
    """Return what the verdict beside it says, to go on a sentence with; empty without one."""
    other = verdict.beside
    if other is None:
        return ""
    if math.isnan(other.tested.pvalue):
        return f"; its {ASKED[other.basis == Basis.FILLERS]} are not tested: {_why_not_told(other, short=False)}"
    prefers, *_ = _compared(other)
    does = "it prefers" if is_preferred else "it does not significantly prefer"
    return (
        f"; on {_covered(other)} {does} the published {preferred(other)} {prefers} (by {_size(other)}, "
        f"{pvalue_equation(other.tested.pvalue, other.tested.is_bound)})"
    )


def _compared(verdict: DataVerdict) -> tuple[str, str, str, str]:
    """Return with what the published orders, names or numbers are compared, in words for four kinds of sentences."""
    if verdict.basis != Basis.FILLERS:
        return COMPARED[verdict.basis]
    what, of_others = preferred(verdict), f"the {preferred(verdict)} of other rows"
    usable = f"with a {what.removesuffix('s')} that other rows could have"
    if verdict.by_reference:
        prefers, none, compared, _ = COMPARED[Basis.REFERENCE]
        return prefers, none.replace("orders", what), compared, usable
    none, compared = f"No significant preference for the published {what}", f"compared with {of_others}"
    if verdict.orders == OrderStatus.SEALED:
        return f"to {of_others}", none, compared, f"with a {what.removesuffix('s')} that a key drew"
    if what == NUMBERS:
        return f"to {of_others}, more than in unseen rows", none, f"{compared} and with unseen rows", usable
    beyond = f"to {of_others}, also beyond the control form, in which words have no order"
    return beyond, none, f"{compared} and with the model's own control form", usable


def preferred(verdict: DataVerdict) -> str:
    """Return what was exchanged: names or numbers of rows, or orders of options."""
    return (verdict.fillers or NAMES) if verdict.basis == Basis.FILLERS else "orders"


def positive_in_words(verdict: DataVerdict) -> str:
    """Return what the positive control showed, as a clause; empty without one, or without a verdict."""
    control = verdict.positive
    if control is None or verdict.word in ("", VerdictWord.NO_VERDICT):
        return ""
    if math.isnan(control.pvalue):
        why = f": {control.reason}" if control.reason else ""
        return f"the positive control, {control.name}, could not be tested{why}"
    size = f"{number(control.effect, 2)} ± {number(control.error, 2)}, {pvalue_equation(control.pvalue)}"
    if not control.shows_memory:
        return (
            f"the positive control, {counted(control.n)} of {control.name}, shows no memory either ({size}), so that "
            "this audit may not find what this model remembers"
        )
    told = f"as a positive control, the model shows memory of {control.name} ({size})"
    if math.isnan(control.at_most) or verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE):
        return told
    share = whole_percent(control.at_most)
    return f"{told}: at most {share} of the questions were seen as often as those, {CONFIDENTLY}"


def _unseen(verdict: DataVerdict) -> str:
    return counted(verdict.texts.n_unseen if verdict.texts else 0, "unseen question")


def _by_texts(verdict: DataVerdict) -> str:
    assert verdict.texts is not None
    mean, error = number(verdict.texts.mean, 2), number(verdict.texts.mean_error, 2)
    unseen = f"{_unseen(verdict)} of the same kind"
    return f"those of {unseen}, more than the reference does, by {mean} ± {error} standard deviations"


def cited(verdict: DataVerdict) -> str:
    """What a sentence to copy says in brackets."""
    if verdict.word == VerdictWord.NO_VERDICT or math.isnan(verdict.tested.pvalue):
        return verdict.reason
    _, _, compared, _ = _compared(verdict)
    which = "" if is_exact(verdict.orders) or verdict.basis == Basis.FILLERS else " without a natural order"
    if verdict.has_texts:
        compared += f", and their texts with those of {_unseen(verdict)}"
    if verdict.beside is not None and verdict.has_beside:
        compared += f"; {counted(verdict.beside.n)}, {_compared(verdict.beside)[2]}"
    return f"{pvalue_in_words(verdict)}; {counted(verdict.n)}{which}, {compared}{_found_or_not(verdict)}"


FORMS: Mapping[str, tuple[str, ...]] = {
    Basis.ORDERS: ("the audited form",),
    Basis.REFERENCE: ("the model", "the reference"),
    Basis.CONTROL: ("the audited form", *CONTROL_FORMS),
}
LESS_REFERENCE = "the audited form less the reference's"
OF_FILLERS = ("the audited form", "the audited form less the control form")


def scores_in_words(verdict: DataVerdict) -> str:
    """The published orders' scores beside those that they are compared with, and from when on it would be evidence: a
    sentence; empty where they are not known."""
    if not verdict.scores:
        return ""
    if verdict.basis == Basis.FILLERS:
        in_forms = (LESS_REFERENCE,) if verdict.by_reference else OF_FILLERS
        told = ", ".join(f"{number(own, 2)} in {form}" for form, own in zip(in_forms, verdict.scores, strict=False))
        begins = repr(verdict.start) if verdict.start else "the row"
        return (
            f"Mean preference for the published {preferred(verdict)} over {count(len(verdict.layouts) or 1)} layouts, "
            f"in standard deviations per row, where 0 is expected without memory: {told}; evidence begins at p ≤ "
            f"{pvalue(verdict.level)} in each. Each document starts with {begins}."
        )
    forms = zip(FORMS[verdict.basis], verdict.scores, strict=True)
    told = ", ".join(f"{number(score, 2)} {name if name in CONTROL_FORMS else f'in {name}'}" for name, score in forms)
    begins = f"p ≤ {pvalue(verdict.level)}"
    if not math.isnan(verdict.threshold):
        begins += f", which is a difference of about {number(verdict.threshold, 2)} from each control form"
    over = f" over {len(verdict.layouts)} layouts" if verdict.layouts else ""
    return (
        f"Mean score of the published orders{over}, in standard deviations, where 0 is that of a drawn order: {told}; "
        f"evidence begins at {begins}."
    )


def aim_in_words(verdict: DataVerdict) -> str:
    """What was to be found and what may be there, where nothing was: a sentence; empty where it is not known."""
    share = dict(verdict.at_most).get(DETECT_TIMES, NAN)
    if verdict.word not in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE) or math.isnan(share):
        return ""
    return (
        f"The aim was to find, or to exclude, {whole_percent(verdict.detect)} of the questions seen {DETECT_TIMES} "
        f"times; at most {whole_percent(share)} were, {CONFIDENTLY_IN_SHORT}."
    )


def _found_or_not(verdict: DataVerdict) -> str:
    if verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE):
        return seen_in_words(verdict.seen)
    found = at_most_in_words(verdict.at_most, _layouts_of_seen(verdict))
    if verdict.word == VerdictWord.NONE_FOUND:
        return found
    aim = f"{percent(verdict.detect, 0)} seen {DETECT_TIMES} times"
    few = "" if verdict.n_needed is None else f"; to find {aim}, about {counted(verdict.n_needed)} are needed"
    return f"{found or f'; {_too_little(verdict)}'}{few}"


def _too_little(verdict: DataVerdict) -> str:
    """How many may have been seen, where they are too many, without a full stop."""
    if not verdict.at_most:
        return "how many questions may have been seen is not known"
    share, wanted = dict(verdict.at_most).get(DETECT_TIMES, NAN), whole_percent(verdict.detect)
    if math.isnan(share):
        told = "all of the questions"
    else:
        told = whole_percent(share)
        if told == wanted:
            told, wanted = percent(share, 1), percent(verdict.detect, 1)
        told = f"up to {told} of the questions"
    seen = f"been seen {DETECT_TIMES} times{_layouts_of_seen(verdict)}"
    return f"{told} may have {seen}, and the aim was to exclude {wanted}"


def _what_would_do(verdict: DataVerdict) -> str:
    """Return how many questions would do, as a sentence; empty where no number is known."""
    if verdict.n_needed is None:
        return ""
    return f"To find {whole_percent(verdict.detect)}, about {counted(verdict.n_needed)} are needed."


def _why_not_told(verdict: DataVerdict, short: bool) -> str:
    if verdict.basis == Basis.RATIO:
        return _by_ratio(verdict, short)
    if verdict.doubt or verdict.basis == Basis.NOTHING:
        return f"{verdict.doubt[:1].upper()}{verdict.doubt[1:]}." if short else verdict.doubt
    few = f"{verdict.n} of {counted(verdict.n_asked)}"
    if short:
        return f"Only {few} can be tested; at least {FEWEST_JUDGED} are needed."
    *_, needs = _compared(verdict)
    return f"the audit has {few} {needs}; at least {FEWEST_JUDGED} are needed"


def _by_ratio(verdict: DataVerdict, short: bool) -> str:
    ratio, n = verdict.ratio, counted(verdict.ratio.n)
    nothing_else = "and the audit has neither a control nor a reference"
    often = "" if math.isnan(ratio.value) else f"{number(ratio.value, 1)} times as often as by chance"
    if short:
        is_written = verdict.orders in (OrderStatus.WRITTEN, OrderStatus.PATTERNED)
        wrote = "People wrote" if is_written else "People may have written"
        told = f" The published order is the most likely one {often}; natural preference may explain that."
        return f"{wrote} these orders, {nothing_else}.{told if often else ''}"
    why = f"these are {RESTS_ON[verdict.orders]}, which a model may prefer without having seen them, {nothing_else}"
    if not often:
        return f"{why}; {n} without a natural order are too few for a ratio ({FEWEST_JUDGED} are needed)"
    often += f" (at least {number(ratio.low, 1)})"
    return f"{why}; the published order of {n} without a natural order is the most likely one {often}"


def seen_in_words(bound: SeenBound) -> str:
    """To end a sentence with; empty for a bound of 0."""
    if not bound.n_seen:
        return ""
    share = percent(bound.n_seen / bound.n, 0)
    return f"; at least {bound.n_seen:,} of {counted(bound.n)} ({share}) were seen, with 95% confidence"


def _covered(verdict: DataVerdict) -> str:
    n_units = verdict.tested.n_units
    if verdict.basis == Basis.FILLERS:
        return f"{counted(verdict.n)} in {counted(n_units, 'block')} that exchanged their {preferred(verdict)},"
    units = f" {in_families(n_units)}" if 0 < n_units < verdict.n else ""
    if is_exact(verdict.orders) or verdict.n == verdict.n_asked:
        return f"{counted(verdict.n)}{units}"
    return f"{count(verdict.n)} of {counted(verdict.n_asked)}, those without a natural order{units},"


def in_families(n_units: int) -> str:
    families = "family" if n_units == 1 else "families"
    return f"in {count(n_units)} {families} with the same options, passage, stem or nearly the same text"


def _layouts_of_seen(verdict: DataVerdict) -> str:
    """In which the questions were seen of which a sentence says how many they may be."""
    if verdict.basis == Basis.FILLERS:
        return ""
    return ", in whatever layout" if verdict.layouts else " as the audit shows them"


CONFIDENTLY = f"with {percent(1 - SEEN_ERROR, 0)} confidence"
CONFIDENTLY_IN_SHORT = f"with {whole_percent(1 - SEEN_ERROR)} confidence"
TIMES = {1: "once", 2: "twice", 3: "three times"}


def at_most_in_words(at_most: Shares, how: str = "") -> str:
    """To end a sentence with: how many questions may have been seen; empty if it may be all."""
    known = [(n, percent(share, 0)) for n, share in at_most if not math.isnan(share)]
    seen = [" of the questions were seen", *[""] * len(known)]
    told = " or ".join(f"{share}{were} {TIMES[n]}" for (n, share), were in zip(known, seen, strict=False))
    return f"; at most {told}{how}, {CONFIDENTLY}" if known else ""
