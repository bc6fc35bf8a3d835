"""The first lines of a page about each model and benchmark: the verdict as a word, a short sentence, and the reasons.

One sentence per verdict, to copy into a paper or a model card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lm_eval_leakage import __version__
from lm_eval_leakage.questions.families import left_out_in_words
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.data_verdict import ONE_PLACE, PATTERN_ALONE
from lm_eval_leakage.results.formatting import (
    NO_BREAK,
    count,
    counted,
    decimals_of,
    number,
    pvalue_equation,
    whole_percent,
)
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict import FEWEST_JUDGED, Basis, DataVerdict, VerdictWord
from lm_eval_leakage.results.verdict_numbers import badge_of
from lm_eval_leakage.results.verdict_words import (
    aim_beside,
    aim_in_words,
    cited,
    positive_in_words,
    reason_of,
    scores_in_words,
    verdict_in_words,
    word_with_aim,
)
from lm_eval_leakage.stats.inflation import lowest
from lm_eval_leakage.stats.pooling import Estimate

NO_COMMAND = "No command would change that for this model and task."
ANOTHER_REFERENCE = "Another model as reference (`--reference`) may change that."
OTHER_REFERENCE: Mapping[str, str] = {"reference": ""}  # which model, only the reader knows
# docs/validity.md: the least and the most favourable of six layouts and of two references, SmolLM2-135M
UNSEEN_WOULD_FIND = (
    "With 60 questions of the same kind that the model cannot have seen (--unseen FILE) and a reference (--reference) "
    "its texts are tested, too: half of 200 questions seen once were found with probability 0.7 to 1 in measurements."
)
NOT_WRITTEN_DOWN = "revision not written down"
INTERVAL_KIND = f"95{NO_BREAK}% interval"
FEWEST_FLAGGED = 10  # questions; nothing is claimed about the answers to fewer


@dataclass(frozen=True)
class ToldVerdict:
    """A verdict as a page shows it.

    word: of the verdict; empty if no option orders were asked; aim: what the word says of the aim, if it does
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
    aim: str = ""

    @property
    def badge(self) -> str:
        return badge_of(self.word)


def verdict_text(row: Row) -> ToldVerdict:
    verdict, reasons = row.verdict, [_texts(row.verdict), _unguarded(row), _gap(row)]
    is_open = verdict.word in (VerdictWord.NO_VERDICT, VerdictWord.INCONCLUSIVE)
    remedy = (verdict.remedy or _usual_remedy(row)) if is_open else ""
    if verdict.word == VerdictWord.NO_VERDICT:
        sentence = f"{verdict_in_words(verdict, short=True)} {remedy}"
    elif verdict.word:
        control = positive_in_words(verdict)
        control = control and f"{control[:1].upper()}{control[1:]}."
        sentence = " ".join(filter(None, (verdict_in_words(verdict, short=True), control, remedy)))
        reason = reason_of(verdict)
        reasons = [f"{reason[:1].upper()}{reason[1:]}.", scores_in_words(verdict), aim_in_words(verdict), *reasons]
    elif row.n_tested or row.n_joined:
        sentence = "Audited without option orders, so there is no verdict."
    else:
        sentence = "No audit of this model covers it, so there is no verdict."
    copies = left_out_in_words(row.n_copies)
    unread = row.unread and f"Of its file, {row.unread}."
    parts = (_flags(row), copies and f"{copies}.", _accuracy(row), _too_long(row), _untested(row), unread)
    figures = " ".join(filter(None, parts))
    further = tuple(filter(None, reasons))
    aim = aim_beside(verdict.word, verdict.detect)
    return ToldVerdict(
        row.model, row.name, row.n, verdict.word, sentence, figures, further, sentence_to_copy(row), aim
    )


def n_flagged(row: Row) -> int:
    return round(columns.FLAGGED.of(row).value * row.n_tested) if columns.FLAGGED.of(row) else 0


def has_enough_flagged(row: Row) -> bool:
    return n_flagged(row) >= FEWEST_FLAGGED


# ---------------------------------------------------------------------- the verdict


def changing_options(row: Row, has_more: bool = True, n_available: int | None = None) -> Mapping[str, str] | None:
    """Return the options of `check` that may change a verdict that is inconclusive, or give one where there is
    none; None if no command would.

    has_more: whether the benchmark may have questions that were not asked
    n_available: how many questions it has; None if that is not known
    """
    verdict = row.verdict
    if row.window_needed and verdict.n + row.n_too_long >= FEWEST_JUDGED > verdict.n:
        return {"model_args": f"max_length={row.window_needed}"}
    is_few = verdict.n < FEWEST_JUDGED
    if verdict.basis == Basis.NOTHING or verdict.doubt in (ONE_PLACE, PATTERN_ALONE):
        return None
    if verdict.word == VerdictWord.INCONCLUSIVE and verdict.basis == Basis.FILLERS:
        return {"questions": "all"} if has_more else None  # all may exclude what too few would find
    if verdict.word == VerdictWord.INCONCLUSIVE:
        if has_more and verdict.n_needed is not None and (n_available is None or verdict.n_needed <= n_available):
            return {"questions": str(verdict.n_needed)}
        return OTHER_REFERENCE if verdict.basis == Basis.CONTROL else None
    if verdict.basis == Basis.RATIO:
        return {}  # `check` asks the control forms
    if verdict.basis == Basis.REFERENCE and not is_few:
        return OTHER_REFERENCE
    all_guarded = verdict.n_asked >= FEWEST_JUDGED and not verdict.n and not verdict.ratio.n
    if has_more and not all_guarded:
        return {"questions": "all"}
    return OTHER_REFERENCE if verdict.basis == Basis.CONTROL and not is_few else None


def remedy_by(command: str | None) -> str:
    """Return the remedy that a command is, as it can be typed; None for no command."""
    return NO_COMMAND if command is None else f"`{command}` may change that."


def _usual_remedy(row: Row) -> str:
    """Return the remedy where no check is known that could be made again with other options."""
    options = changing_options(row)
    if options is None:
        return remedy_by(None)
    if options == OTHER_REFERENCE:
        return ANOTHER_REFERENCE
    given = " ".join(f"`--{name} {value}`" for name, value in options.items())
    return f"`check` with {given} may change that." if given else "`check`, which asks control forms, may change that."


def _texts(verdict: DataVerdict) -> str:
    """Return why texts were not tested, or what testing them would find."""
    if verdict.texts is not None:
        withheld = verdict.texts.withheld
        return f"Its texts are not compared with those of the unseen questions: {withheld}." if withheld else ""
    if verdict.basis != Basis.CONTROL or verdict.word not in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE):
        return ""
    return UNSEEN_WOULD_FIND


# ---------------------------------------------------------------------- accuracy and flags


def _flags(row: Row) -> str:
    if not columns.FLAGGED.of(row):
        return f"{counted(row.verdict.n_asked)}." if row.verdict.n_asked else ""
    return f"{whole_percent(columns.FLAGGED.of(row).value)} of {counted(row.n_tested)} flagged{by_chance(row)}."


def by_chance(row: Row) -> str:
    chance = columns.NULL_RATE.of(row)
    return "" if math.isnan(chance) else f" ({whole_percent(chance)} expected by chance)"


def _accuracy(row: Row) -> str:
    if not row.accuracy:
        return ""
    metric = row.metric.partition(",")[0]
    name = "Accuracy" if metric in {"acc", ""} else f"Accuracy ({metric})"
    return "; ".join(filter(None, (f"{name} {_with_interval(row.accuracy)}{_counting(row)}", worth(row)))) + "."


def _with_interval(estimate: Estimate) -> str:
    """Return an estimate as `0.50 (95 % interval 0.40 to 0.60)`; without the interval where none is known."""
    decimals = decimals_of(estimate)
    shown = number(estimate.value, decimals)
    if math.isnan(estimate.low):
        return shown
    return f"{shown} ({INTERVAL_KIND} {number(estimate.low, decimals)} to {number(estimate.high, decimals)})"


def _counting(row: Row) -> str:
    """Return how many questions the accuracy counts, if it leaves some out."""
    return f" on {count(row.n - row.n_left_out)} of {counted(row.n)}" if row.n_left_out else ""


def _too_long(row: Row) -> str:
    if not row.n_too_long:
        return ""
    texts = f"Texts of {counted(row.n_too_long)} are longer than the model's window and were not asked"
    return f"{texts}; all would need max_length={row.window_needed}."


def _untested(row: Row) -> str:
    """Return how many questions no audit could ask, with the most frequent reason."""
    if not row.untested:
        return ""
    n = sum(row.untested.values())
    reason, n_alike = max(row.untested.items(), key=lambda item: item[1])
    share = f" of {count(n_alike)}" if n_alike < n else ""
    return f"Not tested: {counted(n)} (reason{share}: {reason})."


def worth(row: Row) -> str:
    """Return what the accuracy is without leakage, or an empty text where that is not known.

    An inflation is claimed only where the lower end of its 95 % interval is above 0.
    """
    if clean := columns.ACCURACY_CLEAN.of(row):
        added = columns.INFLATION.of(row)
        ends = f"{number(clean.low, 2)} to {number(clean.high, 2)}"
        is_measured = added.low > 0 and round(added.value, 2) > 0
        inflation = f"which adds {number(added.value, 2)}" if is_measured else "no measurable inflation"
        return f"about {number(clean.value, 2)} ({ends}) without leakage, {inflation}"
    share = _seen_at_most(row.verdict)
    least = lowest(row.accuracy.value, row.n - row.n_left_out, share)
    if not round(least, 2) > 0:
        return ""
    seen = f"if no more than {whole_percent(share)} of the questions were seen"
    return f"at least {number(least, 2)} without leakage {seen}"


def _seen_at_most(verdict: DataVerdict) -> float:
    """Return the share that may have been seen, by a verdict without evidence, at the most exposures that are
    known."""
    shares = [share for _, share in verdict.at_most if not math.isnan(share)]
    return shares[-1] if shares and verdict.word in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE) else math.nan


def _unguarded(row: Row) -> str:
    """Return the flags that no recognised natural order explains."""
    if not columns.FLAGGED_UNGUARDED.of(row) or not has_enough_flagged(row):
        return ""
    share = whole_percent(columns.FLAGGED_UNGUARDED.of(row).value)
    return f"Of the questions without a recognised natural order, {share} are flagged{by_chance(row)}."


def _gap(row: Row) -> str:
    if not columns.GAP_ADJUSTED.of(row) or not has_enough_flagged(row):
        return ""
    gap: Estimate = columns.GAP_ADJUSTED.of(row)
    way = "lower" if gap.value < 0 else "higher"
    size = _with_interval(Estimate(-gap.value, gap.stderr, -gap.high, -gap.low) if gap.value < 0 else gap)
    p = "" if math.isnan(columns.GAP_PVALUE.of(row)) else f" ({pvalue_equation(columns.GAP_PVALUE.of(row))})"
    return f"Among questions of similar difficulty, the accuracy on flagged ones is {way} by {size}{p}."


def sentence_to_copy(row: Row) -> str:
    """Return the sentence to copy; empty where there is no verdict."""
    verdict, made = row.verdict, row.provenance
    if not verdict.word:
        return ""
    model = made.model or row.model
    n = verdict.n_asked or row.n
    digest = f"digest {made.digest}" if made.digest else ""
    drawn = "" if made.seed is None else f"drawn with seed {made.seed}"
    which = "; ".join(filter(None, (digest, drawn)))
    questions = f"{counted(n)} of {row.name}" if n else row.name
    questions += f" ({which})" if which else ""
    lm_eval = f"lm_eval {made.lm_eval}" if made.lm_eval else ""
    by = f"lm_eval_leakage {__version__}" + "".join(f", {part}" for part in (lm_eval, made.date) if part)
    return (
        f"{model} ({made.revision or NOT_WRITTEN_DOWN}) was checked for leakage on {questions} by {by}: "
        f"the verdict is “{word_with_aim(verdict.word, verdict.detect)}” ({cited(verdict)}).{_scored(row)}"
    )


def _scored(row: Row) -> str:
    """Return a sentence after another one; empty without an accuracy."""
    if not row.accuracy:
        return ""
    without_leakage, added = worth(row) or "what leakage adds to it is not known", columns.INFLATION.of(row)
    ends = f" ({number(added.low, 2)} to {number(added.high, 2)})" if columns.ACCURACY_CLEAN.of(row) else ""
    return f" Its accuracy is {_with_interval(row.accuracy)}{_counting(row)}; {without_leakage}{ends}."
