"""The wording of a verdict: every sentence and every number of it that terminal, page, files and tables show.

`sentence_of` writes the whole sentence, `in_words` in short also the summary, `scores_in_words` and `aim_in_words` the
details. A verdict without a p-value is worded by its order ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lm_eval_leakage.questions.families import left_out_in_words
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.results.formatting import (
    count,
    counted,
    format_pvalue,
    number,
    percent,
    pvalue_equation,
    whole_percent,
)
from lm_eval_leakage.results.published_orders import OrderStatus, is_exact
from lm_eval_leakage.results.verdict import (
    EVIDENCE_LEVEL,
    FEWEST_JUDGED,
    Basis,
    DataVerdict,
    VerdictWord,
)
from lm_eval_leakage.stats.order_power import CONTROL_FORMS, DETECT_TIMES, SEEN_ERROR, Shares
from lm_eval_leakage.stats.order_sum import OrderRatio
from lm_eval_leakage.stats.pooling import NAN
from lm_eval_leakage.stats.sealed import SeenBound

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
FORMS: Mapping[str, tuple[str, ...]] = {
    Basis.ORDERS: ("the audited form",),
    Basis.REFERENCE: ("the model", "the reference"),
    Basis.CONTROL: ("the audited form", *CONTROL_FORMS),
}
LESS_REFERENCE = "the audited form less the reference's"
OF_FILLERS = ("the audited form", "the audited form less the control form")
CONFIDENTLY = f"with {whole_percent(1 - SEEN_ERROR)} confidence"
TIMES = {1: "once", 2: "twice", 3: "three times"}


class Compared(NamedTuple):
    """The comparison of the published orders, in the words of five kinds of sentences.

    prefers: to what they are preferred, in the whole sentence; none: what is not found, in short
    citation: of a sentence to copy; needs: which questions it needs; caption: of a plot
    """

    prefers: str
    none: str
    citation: str
    needs: str
    caption: str = ""


COMPARED: Mapping[str, Compared] = {
    Basis.ORDERS: Compared(
        "to other orders of the same options",
        "No significant preference for the published orders",
        "compared with other orders of the same options",
        "with orders that differ in likelihood",
        "other orders of the same options",
    ),
    Basis.REFERENCE: Compared(
        "more than the reference model does",
        "No significantly stronger preference for the published orders than the reference model has",
        "compared with a reference model",
        "without a natural order that the reference answered too",
        "the reference model",
    ),
    Basis.CONTROL: Compared(
        "more than it does in both control forms, which break memory",
        "No significantly stronger preference for the published orders than in both control forms",
        "compared with the model's own control forms",
        "without a natural order whose orders differ in likelihood from those in both control forms",
        "two control forms, which break memory",
    ),
}


def sentence_of(verdict: DataVerdict) -> str:
    """Return the word, the figure, what its null hypothesis rests on, and how many questions were seen at least or at
    most; empty without a verdict."""
    return f"{verdict.word}: {reason_of(verdict)}" if verdict.basis else ""


def aim_beside(word: str, detect: float | None) -> str:
    """Return what a verdict's word says of the aim, to stand beside the word; empty if it says nothing of it.

    detect: share of the questions, seen `DETECT_TIMES` times, that was to be found
    """
    says = {VerdictWord.NONE_FOUND: "is excluded", VerdictWord.INCONCLUSIVE: "is not excluded"}
    if detect is None or word not in says:
        return ""
    return f"{whole_percent(detect)} seen {TIMES[DETECT_TIMES]} {says[VerdictWord(word)]}"


def word_with_aim(word: str, detect: float | None) -> str:
    """Return a verdict's word with what it says of the aim, for where it stands alone."""
    return ": ".join(filter(None, (word, aim_beside(word, detect))))


def reason_of(verdict: DataVerdict) -> str:
    """Return the sentence without the word."""
    if not verdict.basis:
        return ""
    control = positive_in_words(verdict)
    return "; ".join(filter(None, (verdict_in_words(verdict), control, left_out_in_words(verdict.n_copies))))


def pvalue_parts(verdict: DataVerdict) -> tuple[str, str, str]:
    """Return the p-value, the adjusted one, which decides the word, and what it is adjusted for.

    For example `p = 0.57`, `1` and `2 verdicts`. The last two are empty for a verdict that is shown alone, unless it
    is of a later look, or the share of later looks changes its word.
    """
    unadjusted = pvalue_equation(verdict.pvalue, verdict.is_bound)
    verdicts = [f"{count(verdict.n_together)} verdicts"] if verdict.n_together > 1 else []
    if verdict.look > 1:
        looks = [f"look {verdict.look} at this benchmark in this folder"]
    else:
        says_more = verdict.look and (verdicts or verdict.word != verdict.word_by(verdict.pvalue))
        looks = ["later looks"] if says_more else []
    if not verdicts and not looks:
        return unadjusted, "", ""
    return unadjusted, format_pvalue(verdict.deciding_pvalue, verdict.is_bound), " and ".join([*verdicts, *looks])


def ratio_parts(ratio: OrderRatio) -> tuple[str, str]:
    """Return an order ratio and its lower bound: `1.5` and `at least 1.2`."""
    return number(ratio.value, 1), f"at least {number(ratio.low, 1)}"


def pvalue_in_words(verdict: DataVerdict) -> str:
    """Return the p-value, the adjusted one, and the level from which the last of them is evidence, on one line."""
    unadjusted, adjusted, reasons = pvalue_parts(verdict)
    if not adjusted:
        return f"{unadjusted}, evidence at ≤ {format_pvalue(verdict.level)}"
    return f"{unadjusted}, {adjusted} after adjustment for {reasons}, evidence at ≤ {format_pvalue(EVIDENCE_LEVEL)}"


def verdict_in_words(verdict: DataVerdict, *, short: bool = False) -> str:
    """Return what the word rests on: one sentence without its full stop or, in short, one or two; empty without a
    verdict."""
    if verdict.word in ("", VerdictWord.NO_VERDICT):
        return _why_not_told(verdict, short) if verdict.word else ""
    is_found, p = verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE), pvalue_in_words(verdict)
    if is_found and verdict.is_by_texts and (short or math.isnan(verdict.tested.pvalue)):
        n_texts = verdict.texts.n if verdict.texts else 0
        clause = f"redicts the texts of {counted(n_texts)} better than {_by_texts(verdict)} ({p})"
        return f"P{clause}." if short else f"the model p{clause}"
    if short and is_found:
        shown = verdict.beside if verdict.beside and verdict.pvalues[2] < verdict.pvalues[0] else verdict
        prefers = _compared(shown).prefers.replace("more than it does in", "more than in")
        return f"Prefers the published {preferred(shown)} {prefers}, by {_size(shown)} ({p})."
    prefers, none = _compared(verdict).prefers, _compared(verdict).none
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
        return f"{none} ({p}). At most {share} of the questions were {seen}, {CONFIDENTLY}."
    if verdict.basis == Basis.CONTROL or verdict.n_unseen:
        mean, spread = (number(value, 2) for value in verdict.natural)
        by = f"by {counted(verdict.n_unseen, 'unseen question')}" if verdict.n_unseen else "on clean benchmarks"
        size += f", of which {mean} ± {spread} are natural {by}"
    at_most = max(verdict.level_of_each, float(np.nanmin(verdict.pvalues)))
    is_preferred, by_texts, is_beside = (is_found and each <= at_most for each in verdict.pvalues)
    is_alone = sum(not math.isnan(each) for each in verdict.pvalues) == 1
    by_orders = p if is_alone else pvalue_equation(verdict.tested.pvalue, verdict.tested.is_bound)
    rests_on = FILLERS_REST_ON if verdict.basis == Basis.FILLERS else RESTS_ON
    clause = (
        f"on {_covered(verdict)} with {rests_on[verdict.orders].format(preferred(verdict))}, the model "
        f"{'prefers' if is_preferred else 'does not significantly prefer'} {published} {prefers} ({size}, {by_orders})"
    )
    if verdict.has_texts:
        does = "predicts their texts better" if by_texts else "does not predict their texts significantly better"
        clause += f" and {does} than {_by_texts(verdict)} ({pvalue_equation(verdict.pvalues[1])})"
    clause += _beside_in_words(verdict, is_beside)
    return clause + ("" if is_alone else f"; together {p}") + _found_or_not(verdict)


def _size(verdict: DataVerdict) -> str:
    return f"{number(verdict.tested.mean, 2)} ± {number(verdict.tested.mean_error, 2)} standard deviations"


def _beside_in_words(verdict: DataVerdict, is_preferred: bool) -> str:
    """Return what the verdict beside it says, to go on a sentence with; empty without one."""
    other = verdict.beside
    if other is None:
        return ""
    if math.isnan(other.tested.pvalue):
        return f"; its {ASKED[other.basis == Basis.FILLERS]} are not tested: {_why_not_told(other, short=False)}"
    prefers = _compared(other).prefers
    does = "it prefers" if is_preferred else "it does not significantly prefer"
    return (
        f"; on {_covered(other)} {does} the published {preferred(other)} {prefers} (by {_size(other)}, "
        f"{pvalue_equation(other.tested.pvalue, other.tested.is_bound)})"
    )


def _compared(verdict: DataVerdict) -> Compared:
    """Return what the published orders, names or numbers are compared with."""
    if verdict.basis != Basis.FILLERS:
        return COMPARED[verdict.basis]
    what, of_others = preferred(verdict), f"the {preferred(verdict)} of other rows"
    usable = f"with a {what.removesuffix('s')} that other rows could have"
    if verdict.by_reference:
        by_orders = COMPARED[Basis.REFERENCE]
        return by_orders._replace(none=by_orders.none.replace("orders", what), needs=usable)
    none, compared = f"No significant preference for the published {what}", f"compared with {of_others}"
    if verdict.orders == OrderStatus.SEALED:
        return Compared(f"to {of_others}", none, compared, f"with a {what.removesuffix('s')} that a key drew")
    if what == NUMBERS:
        return Compared(f"to {of_others}, more than in unseen rows", none, f"{compared} and with unseen rows", usable)
    beyond = f"to {of_others}, also beyond the control form, in which words have no order"
    return Compared(beyond, none, f"{compared} and with the model's own control form", usable)


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
            f"the positive control, {counted(control.n)} of {control.name}, shows no memory either ({size}): "
            "not memorised, or missed by the audit"
        )
    claim = f"as a positive control, the model shows memory of {control.name} ({size})"
    if math.isnan(control.at_most) or verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE):
        return claim
    share = whole_percent(control.at_most)
    return f"{claim}: at most {share} of the questions were seen as often as those, {CONFIDENTLY}"


def _unseen(verdict: DataVerdict) -> str:
    return counted(verdict.texts.n_unseen if verdict.texts else 0, "unseen question")


def _by_texts(verdict: DataVerdict) -> str:
    assert verdict.texts is not None
    mean, error = number(verdict.texts.mean, 2), number(verdict.texts.mean_error, 2)
    unseen = f"{_unseen(verdict)} of the same kind"
    return f"those of {unseen}, more than the reference does, by {mean} ± {error} standard deviations"


def cited(verdict: DataVerdict) -> str:
    """Return what a sentence to copy says in brackets after the word and what it says of the aim."""
    if verdict.word == VerdictWord.NO_VERDICT or math.isnan(verdict.tested.pvalue):
        return reason_of(verdict)
    compared = _compared(verdict).citation
    which = "" if is_exact(verdict.orders) or verdict.basis == Basis.FILLERS else " without a natural order"
    if verdict.has_texts:
        compared += f", and their texts with those of {_unseen(verdict)}"
    if verdict.beside is not None and verdict.has_beside:
        compared += f"; {counted(verdict.beside.n)}, {_compared(verdict.beside).citation}"
    seen = _found_or_not(verdict, whole_percent(verdict.detect))
    return f"{pvalue_in_words(verdict)}; {counted(verdict.n)}{which}, {compared}{seen}"


def scores_in_words(verdict: DataVerdict) -> str:
    """Return the published orders' scores beside those that they are compared with, and from when on it would be
    evidence: a sentence; empty where they are not known."""
    if not verdict.scores:
        return ""
    if verdict.basis == Basis.FILLERS:
        in_forms = (LESS_REFERENCE,) if verdict.by_reference else OF_FILLERS
        scores = ", ".join(
            f"{number(score, 2)} in {form}" for form, score in zip(in_forms, verdict.scores, strict=False)
        )
        begins = repr(verdict.start) if verdict.start else "the row"
        return (
            f"Mean preference for the published {preferred(verdict)} over {count(len(verdict.layouts) or 1)} layouts, "
            f"in standard deviations per row, where 0 is expected without memory: {scores}; evidence begins at p ≤ "
            f"{format_pvalue(verdict.level)} in each. Each document starts with {begins}."
        )
    forms = zip(FORMS[verdict.basis], verdict.scores, strict=True)
    scores = ", ".join(
        f"{number(score, 2)} {name if name in CONTROL_FORMS else f'in {name}'}" for name, score in forms
    )
    begins = f"p ≤ {format_pvalue(verdict.level)}"
    if not math.isnan(verdict.threshold):
        begins += f", which is a difference of about {number(verdict.threshold, 2)} from each control form"
    over = f" over {len(verdict.layouts)} layouts" if verdict.layouts else ""
    return (
        f"Mean score of the published orders{over}, in standard deviations, where 0 is that of a drawn order: {scores}"
        f"; evidence begins at {begins}."
    )


def aim_in_words(verdict: DataVerdict) -> str:
    """Return what was to be found and what may be there, where nothing was: a sentence; empty where it is not
    known."""
    share = dict(verdict.at_most).get(DETECT_TIMES, NAN)
    if verdict.word not in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE) or math.isnan(share):
        return ""
    return (
        f"The aim was to find, or to exclude, {whole_percent(verdict.detect)} of the questions seen {DETECT_TIMES} "
        f"times; at most {whole_percent(share)} were, {CONFIDENTLY}."
    )


def _found_or_not(verdict: DataVerdict, aim: str = "") -> str:
    """Return how many questions were seen at least or at most, and which number would find the aim.

    aim: what it is called if it was named before
    """
    if verdict.word in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE):
        return seen_in_words(verdict.seen)
    limit = at_most_in_words(verdict.at_most, _layouts_of_seen(verdict))
    named = aim or f"{whole_percent(verdict.detect)} seen {DETECT_TIMES} times"
    if verdict.word == VerdictWord.NONE_FOUND:
        return limit if aim else f"{limit}; {named} is excluded"
    if verdict.n_needed is not None:
        few = f"; to find {named}, about {counted(verdict.n_needed)} are needed"
    else:
        few = f"; {named} is not excluded" if limit and not aim else ""
    return f"{limit or f'; {_too_little(verdict)}'}{few}"


def _too_little(verdict: DataVerdict) -> str:
    """Return how many may have been seen, where they are too many, without a full stop."""
    if not verdict.at_most:
        return "how many questions may have been seen is not known"
    share, wanted = dict(verdict.at_most).get(DETECT_TIMES, NAN), whole_percent(verdict.detect)
    if math.isnan(share):
        amount = "all of the questions"
    else:
        amount = whole_percent(share)
        if amount == wanted:
            amount, wanted = percent(share, 1), percent(verdict.detect, 1)
        amount = f"up to {amount} of the questions"
    seen = f"been seen {DETECT_TIMES} times{_layouts_of_seen(verdict)}"
    return f"{amount} may have {seen}; the aim was {wanted}"


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
    needed = f"at least {FEWEST_JUDGED} are needed"
    if verdict.n == verdict.n_asked:
        few = counted(verdict.n)
        return f"Only {few} can be tested; {needed}." if short else f"the audit has only {few}; {needed}"
    if not verdict.n:
        few = f"one of {counted(verdict.n_asked)}"
        return f"N{few} can be tested; {needed}." if short else f"n{few} is {_compared(verdict).needs}; {needed}"
    few = f"{verdict.n} of {counted(verdict.n_asked)}"
    if short:
        return f"Only {few} can be tested; {needed}."
    return f"the audit has {few} {_compared(verdict).needs}; {needed}"


def _by_ratio(verdict: DataVerdict, short: bool) -> str:
    ratio, n = verdict.ratio, counted(verdict.ratio.n)
    nothing_else = "and the audit has neither a control nor a reference"
    value, bound = ratio_parts(ratio)
    often = "" if math.isnan(ratio.value) else f"{value} times as often as by chance"
    if short:
        is_written = verdict.orders in (OrderStatus.WRITTEN, OrderStatus.PATTERNED)
        wrote = "People wrote" if is_written else "People may have written"
        often_in_words = f" The published order is the most likely one {often}; natural preference may explain that."
        return f"{wrote} these orders, {nothing_else}.{often_in_words if often else ''}"
    why = f"these are {RESTS_ON[verdict.orders]}, which a model may prefer without having seen them, {nothing_else}"
    if not often:
        return f"{why}; {n} without a natural order are too few for a ratio ({FEWEST_JUDGED} are needed)"
    often += f" ({bound})"
    return f"{why}; the published order of {n} without a natural order is the most likely one {often}"


def seen_in_words(bound: SeenBound) -> str:
    """Return the end of a sentence; empty for a bound of 0."""
    if not bound.n_seen:
        return ""
    share = whole_percent(bound.n_seen / bound.n)
    return f"; at least {bound.n_seen:,} of {counted(bound.n)} ({share}) were seen, {CONFIDENTLY}"


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
    """Return in which layouts the questions were seen that a sentence counts, as the end of a clause."""
    if verdict.basis == Basis.FILLERS:
        return ""
    return ", in whatever layout" if verdict.layouts else " as the audit shows them"


def at_most_in_words(at_most: Shares, how: str = "") -> str:
    """Return the end of a sentence: how many questions may have been seen; empty if it may be all."""
    shares = [(n, whole_percent(share)) for n, share in at_most if not math.isnan(share)]
    seen = [" of the questions were seen", *[""] * len(shares)]
    limits = " or ".join(f"{share}{were} {TIMES[n]}" for (n, share), were in zip(shares, seen, strict=False))
    return f"; at most {limits}{how}, {CONFIDENTLY}" if shares else ""
