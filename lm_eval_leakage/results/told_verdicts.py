"""What a page says first about each model and benchmark: the verdict as a word, a short sentence, and the reasons.

One sentence per verdict, to copy into a paper or a model card.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lm_eval_leakage import __version__
from lm_eval_leakage.questions.families import left_out_in_words
from lm_eval_leakage.results.columns import (
    ACCURACY_UNFLAGGED,
    FLAGGED,
    FLAGGED_UNGUARDED,
    GAP_ADJUSTED,
    GAP_PVALUE,
    NULL_RATE,
    badge_of,
)
from lm_eval_leakage.results.data_verdict import (
    BY_CONTROL,
    BY_NOTHING,
    BY_ORDERS,
    BY_RATIO,
    BY_REFERENCE,
    CANNOT_TELL,
    FEWEST_JUDGED,
    NONE_FOUND,
    ONE_PLACE,
    PATTERN_ALONE,
    DataVerdict,
    detectable_in_words,
    pvalue_in_words,
    seen_in_words,
)
from lm_eval_leakage.results.formatting import count, counted, number, plus_minus, pvalue_equation, whole_percent
from lm_eval_leakage.results.published_orders import EXACT, PATTERNED_ORDERS, WRITTEN_ORDERS
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.tables import benchmarks, suspicion
from lm_eval_leakage.stats.order_power import FOUND_WITH

NO_COMMAND = "No command would change that for this model and task."
OTHER_REFERENCE = {"reference": "pretrained=OTHER_MODEL"}
FEWEST_FLAGGED = 10  # questions; nothing is claimed about the answers to fewer


@dataclass(frozen=True)
class ToldVerdict:
    """word: of the verdict; empty if no option orders were asked
    sentence: the verdict in short; figures: what was counted; reasons: further sentences, which the page folds
    citation: a sentence to copy
    """

    model: str
    benchmark: str
    n: int
    word: str
    sentence: str
    figures: str = ""
    reasons: tuple[str, ...] = ()
    citation: str = ""

    @property
    def badge(self) -> str:
        return badge_of(self.word)


def told_verdicts(annotations: Iterable[Annotation]) -> list[ToldVerdict]:
    """One for each model and benchmark, the most suspicious first."""
    rows = [row for annotation in annotations for row in benchmarks(annotation.rows)]
    return [told_verdict(row) for row in sorted(rows, key=lambda row: suspicion(row.verdict))]


def told_verdict(row: Row) -> ToldVerdict:
    verdict = row.verdict
    reasons = (
        _reasons(verdict) if verdict.word not in ("", CANNOT_TELL) else "",
        _unguarded(row),
        _gap(row),
    )
    figures = " ".join(part for part in (_flags(row), _copies(row), _accuracy(row)) if part)
    sentence = short_sentence(verdict) if verdict.word else _without_verdict(row)
    if verdict.word == CANNOT_TELL:
        sentence = f"{sentence} {verdict.remedy or _usual_remedy(row)}"
    told = tuple(filter(None, reasons))
    return ToldVerdict(row.model, row.name, row.n, verdict.word, sentence, figures, told, sentence_to_copy(row))


def n_flagged(row: Row) -> int:
    return round(FLAGGED.of(row).value * row.n_tested) if FLAGGED.of(row) else 0


def has_enough_flagged(row: Row) -> bool:
    return n_flagged(row) >= FEWEST_FLAGGED


# ---------------------------------------------------------------------- the verdict

PREFERS = {
    BY_ORDERS: "Prefers the published orders to other orders of the same options",
    BY_REFERENCE: "Prefers the published orders more than the reference model does",
    BY_CONTROL: "Prefers the published orders more than in both control forms, which break memory",
}
PREFERS_NOT = {
    BY_ORDERS: "No significant preference for the published orders",
    BY_REFERENCE: "No significantly stronger preference for the published orders than the reference model has",
    BY_CONTROL: "No significantly stronger preference for the published orders than in both control forms",
}


def short_sentence(verdict: DataVerdict) -> str:
    """The verdict's reason in one or two short sentences; empty if no orders were asked."""
    if not verdict.word:
        return ""
    if verdict.word == CANNOT_TELL:
        return _why_not(verdict)
    p = pvalue_in_words(verdict)
    if verdict.word == NONE_FOUND:
        return f"{PREFERS_NOT[verdict.basis]} ({p}).{_power(verdict)}"
    size = f"{number(verdict.tested.mean, 2)} ± {number(verdict.tested.mean_error, 2)} standard deviations"
    return f"{PREFERS[verdict.basis]}, by {size} ({p})."


def _why_not(verdict: DataVerdict) -> str:
    if verdict.basis == BY_RATIO:
        return f"{_no_null(verdict.orders)}{_how_often(verdict)}"
    if not verdict.doubt and verdict.n < FEWEST_JUDGED:
        few = f"{verdict.n} of {counted(verdict.n_asked)} can be tested"
        return f"Only {few}; at least {FEWEST_JUDGED} are needed."
    return f"{verdict.doubt[:1].upper()}{verdict.doubt[1:]}."


def changing_options(verdict: DataVerdict, has_more: bool = True) -> Mapping[str, str] | None:
    """The options of `check` by which a verdict that cannot be told may be told; None if no command would change it.

    has_more: whether the benchmark may have questions that were not asked
    """
    is_few = verdict.n < FEWEST_JUDGED
    if verdict.basis == BY_NOTHING or verdict.doubt in (ONE_PLACE, PATTERN_ALONE):
        return None
    if verdict.basis == BY_RATIO:
        return {}  # `check` asks the control forms
    if verdict.basis == BY_REFERENCE and not is_few:
        return OTHER_REFERENCE
    all_guarded = verdict.n_asked >= FEWEST_JUDGED and not verdict.n and not verdict.ratio.n
    if has_more and not all_guarded:
        return {"questions": "all"}
    return OTHER_REFERENCE if verdict.basis == BY_CONTROL and not is_few else None


def remedy_by(command: str | None) -> str:
    return NO_COMMAND if command is None else f"`{command}` may change that."


def _usual_remedy(row: Row) -> str:
    options = changing_options(row.verdict)
    if options is None:
        return remedy_by(None)
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    usual = ["lm-eval-leakage", "check", "--model_args", f"pretrained={row.model}", "--tasks", row.task]
    return remedy_by(shlex.join([*usual, *words]))


def _no_null(orders: str) -> str:
    if not orders:
        return "The log does not say whether the published orders are random. Run the audit again with this version."
    wrote = "People wrote" if orders in (WRITTEN_ORDERS, PATTERNED_ORDERS) else "People may have written"
    return f"{wrote} these orders, and the audit has neither a control nor a reference."


def _how_often(verdict: DataVerdict) -> str:
    ratio = verdict.ratio
    if math.isnan(ratio.value):
        return ""
    often = f"{number(ratio.value, 1)} times as often as by chance"
    return f" The published order is the most likely one {often}; natural preference may explain that."


def _power(verdict: DataVerdict) -> str:
    able = [(times, share) for times, share in verdict.detectable if not math.isnan(share)]
    if not able:
        return ""
    times, share = able[0]
    seen = {1: "once", 2: "twice"}.get(times, f"{times} times")
    seen = f"Had it seen {whole_percent(share)} of the questions {seen}"
    return f" {seen}, the audit would have found that with probability {FOUND_WITH}."


def _reasons(verdict: DataVerdict) -> str:
    reason = verdict.reason
    return f"{reason[:1].upper()}{reason[1:]}." if reason else ""


def _without_verdict(row: Row) -> str:
    if row.n_tested or row.n_joined:
        return "Audited without option orders, so there is no verdict."
    return "No audit of this model covers it, so there is no verdict."


# ---------------------------------------------------------------------- accuracy and flags


def _flags(row: Row) -> str:
    if not FLAGGED.of(row):
        return f"{counted(row.verdict.n_asked)}." if row.verdict.n_asked else ""
    chance = NULL_RATE.of(row)
    expected = "" if math.isnan(chance) else f" ({whole_percent(chance)} expected by chance)"
    return f"{whole_percent(FLAGGED.of(row).value)} of {counted(row.n_tested)} flagged{expected}."


def _copies(row: Row) -> str:
    told = left_out_in_words(row.n_copies)
    return f"{told}." if told else ""


def _accuracy(row: Row) -> str:
    if not row.accuracy:
        return ""
    metric = row.metric.partition(",")[0]
    name = "Accuracy" if metric in {"acc", ""} else f"Accuracy ({metric})"
    told = f"{name} {plus_minus(row.accuracy)}"
    if not ACCURACY_UNFLAGGED.of(row) or not has_enough_flagged(row):
        return f"{told}."
    n_unflagged = row.n_tested - n_flagged(row)
    return f"{told}; {plus_minus(ACCURACY_UNFLAGGED.of(row))} on the {count(n_unflagged)} not flagged."


def _unguarded(row: Row) -> str:
    """The flags that no recognised natural order explains."""
    if not FLAGGED_UNGUARDED.of(row) or not has_enough_flagged(row):
        return ""
    chance = NULL_RATE.of(row)
    expected = "" if math.isnan(chance) else f" ({whole_percent(chance)} expected by chance)"
    share = whole_percent(FLAGGED_UNGUARDED.of(row).value)
    return f"Of the questions without a recognised natural order, {share} are flagged{expected}."


def _gap(row: Row) -> str:
    if not GAP_ADJUSTED.of(row) or not has_enough_flagged(row):
        return ""
    size = plus_minus(GAP_ADJUSTED.of(row)).removeprefix("−")
    way = "lower" if GAP_ADJUSTED.of(row).value < 0 else "higher"
    p = "" if math.isnan(GAP_PVALUE.of(row)) else f" ({pvalue_equation(GAP_PVALUE.of(row))})"
    return f"Among questions of similar difficulty, the accuracy on flagged ones is {way} by {size}{p}."


COMPARED = {
    BY_ORDERS: "compared with other orders of the same options",
    BY_REFERENCE: "compared with a reference model",
    BY_CONTROL: "compared with the model's own control forms",
}
NOT_WRITTEN_DOWN = "revision not written down"


def sentence_to_copy(row: Row) -> str:
    """Empty where there is no verdict."""
    verdict, made = row.verdict, row.provenance
    if not verdict.word:
        return ""
    model = made.model or row.model
    n = verdict.n_asked or row.n
    drawn = "" if made.seed is None else f" (drawn with seed {made.seed})"
    questions = f"{counted(n)} of {row.name}{drawn}" if n else row.name
    lm_eval = f"lm_eval {made.lm_eval}" if made.lm_eval else ""
    by = f"lm_eval_leakage {__version__}" + "".join(f", {part}" for part in (lm_eval, made.date) if part)
    return (
        f"{model} ({made.revision or NOT_WRITTEN_DOWN}) was checked for leakage on {questions} by {by}: "
        f"the verdict is “{verdict.word}” ({_because(verdict)})."
    )


def _because(verdict: DataVerdict) -> str:
    if verdict.word == CANNOT_TELL:
        return verdict.reason
    more = detectable_in_words(verdict.detectable) if verdict.word == NONE_FOUND else seen_in_words(verdict.seen)
    which = "" if verdict.orders in EXACT else " without a natural order"
    return f"{pvalue_in_words(verdict)}; {counted(verdict.n)}{which}, {COMPARED[verdict.basis]}{more}"
