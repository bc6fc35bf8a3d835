"""Words the verdict on one model and benchmark: for the report's first lines, and as a sentence to copy into a paper.

The report shows the verdict's word, a short sentence, what was counted, and the reasons. A verdict that is open names
the options of `check` that may change it.
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

NO_REMEDY = "No command would change that for this model and task."
REFERENCE_REMEDY = "Another model as reference (`--reference`) may change that."
REFERENCE_OPTION: Mapping[str, str] = {"reference": ""}  # without a value, since the user has to choose the model
# 0.7 and 1 are of the least and the most favourable of six layouts and two references, SmolLM2-135M (docs/validity.md)
UNSEEN_WOULD_FIND = (
    "With 60 questions of the same kind that the model cannot have seen (--unseen FILE) and a reference (--reference) "
    "its texts are tested, too: half of 200 questions seen once were found with probability 0.7 to 1 in measurements."
)
NO_REVISION = "revision not written down"
INTERVAL_KIND = f"95{NO_BREAK}% interval"
FEWEST_FLAGGED = 10  # flagged questions; nothing is claimed about the answers to fewer


@dataclass(frozen=True)
class VerdictSummary:
    """The texts about the verdict on one model and benchmark.

    n: number of the benchmark's questions, with copies
    word: the verdict's word; empty if no option orders were scored
    aim: what the word says of the aim; empty if it says nothing
    sentence: the verdict in short, with a remedy if it is open
    figures: sentences on what was counted
    reasons: further sentences, which the page folds
    citation: a sentence to copy; empty if there is no verdict
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
        """Return the CSS class that gives the word its colour."""
        return badge_of(self.word)


def summarise_verdict(row: Row) -> VerdictSummary:
    """Return the texts about a row's verdict, its flagged questions and its accuracy."""
    verdict = row.verdict
    is_open = verdict.word in (VerdictWord.NO_VERDICT, VerdictWord.INCONCLUSIVE)
    remedy = (verdict.remedy or _usual_remedy(row)) if is_open else ""
    reasons: list[str] = []
    if verdict.word == VerdictWord.NO_VERDICT:
        sentence = f"{verdict_in_words(verdict, short=True)} {remedy}"
    elif verdict.word:
        control = _as_sentence(positive_in_words(verdict))
        sentence = " ".join(filter(None, (verdict_in_words(verdict, short=True), control, remedy)))
        reasons = [_as_sentence(reason_of(verdict)), scores_in_words(verdict), aim_in_words(verdict)]
    elif row.n_tested or row.n_joined:
        sentence = "Audited without option orders, so there is no verdict."
    else:
        sentence = "No audit of this model covers it, so there is no verdict."
    reasons += [_comparison_of_texts(verdict), _gap(row)]
    copies = left_out_in_words(row.n_copies)
    unread = row.unread and f"Of its file, {row.unread}."
    parts = (_flags(row), copies and f"{copies}.", _accuracy(row), _too_long(row), _untested(row), unread)
    figures = " ".join(filter(None, parts))
    further = tuple(filter(None, reasons))
    aim = aim_beside(verdict.word, verdict.detect)
    texts = (sentence, figures, further, sentence_to_copy(row))
    return VerdictSummary(row.model, row.name, row.n, verdict.word, *texts, aim)


def _as_sentence(clause: str) -> str:
    """Return the clause with a capital letter and a full stop; an empty one is unchanged."""
    return clause and f"{clause[:1].upper()}{clause[1:]}."


def n_flagged(row: Row) -> int:
    """Return the number of the row's flagged questions, computed from their share; 0 if none were tested."""
    return round(columns.FLAGGED.of(row).value * row.n_tested) if columns.FLAGGED.of(row) else 0


def has_enough_flagged(row: Row) -> bool:
    """Return whether so many questions are flagged that their answers allow a claim."""
    return n_flagged(row) >= FEWEST_FLAGGED


# ---------------------------------------------------------------------- what may change the verdict


def changing_options(row: Row, has_more: bool = True, n_available: int | None = None) -> Mapping[str, str] | None:
    """Return the options of `check`, by name, that may change an inconclusive verdict or give one where there is none.

    No options mean `check` as it is; None means that no command would change the verdict.

    has_more: whether the benchmark may have questions that were not asked
    n_available: how many questions it has; None if that is not known
    """
    verdict = row.verdict
    if row.window_needed and verdict.n + row.n_too_long >= FEWEST_JUDGED > verdict.n:
        return {"model_args": f"max_length={row.window_needed}"}  # the questions that were too long would suffice
    is_few = verdict.n < FEWEST_JUDGED
    if verdict.basis == Basis.NOTHING or verdict.doubt in (ONE_PLACE, PATTERN_ALONE):
        return None
    if verdict.word == VerdictWord.INCONCLUSIVE and verdict.basis == Basis.FILLERS:
        return {"questions": "all"} if has_more else None  # may exclude leakage even where they are too few to find it
    if verdict.word == VerdictWord.INCONCLUSIVE:
        if has_more and verdict.n_needed is not None and (n_available is None or verdict.n_needed <= n_available):
            return {"questions": str(verdict.n_needed)}
        return REFERENCE_OPTION if verdict.basis == Basis.CONTROL else None
    if verdict.basis == Basis.RATIO:
        return {}  # `check` asks the control forms
    if verdict.basis == Basis.REFERENCE and not is_few:
        return REFERENCE_OPTION
    all_guarded = verdict.n_asked >= FEWEST_JUDGED and not verdict.n and not verdict.ratio.n
    if has_more and not all_guarded:
        return {"questions": "all"}
    return REFERENCE_OPTION if verdict.basis == Basis.CONTROL and not is_few else None


def remedy_by(command: str | None) -> str:
    """Return the sentence that a command, written as it can be typed, may change the verdict.

    For None, it is the sentence that no command would.
    """
    return NO_REMEDY if command is None else f"This command may change that: `{command}`"


def _usual_remedy(row: Row) -> str:
    """Return the remedy with only the options that matter; the command of the row's own check is not recorded."""
    options = changing_options(row)
    if options is None:
        return remedy_by(None)
    if options == REFERENCE_OPTION:
        return REFERENCE_REMEDY
    given = " ".join(f"`--{name} {value}`" for name, value in options.items())
    return f"`check` with {given} may change that." if given else "`check`, which asks control forms, may change that."


def _comparison_of_texts(verdict: DataVerdict) -> str:
    """Return why the questions' whole texts were not compared with those of unseen questions, or what that would find.

    The result is empty if they were compared, or if the comparison could not change the verdict.
    """
    if verdict.texts is not None:
        withheld = verdict.texts.withheld
        return f"Its texts are not compared with those of the unseen questions: {withheld}." if withheld else ""
    if verdict.basis != Basis.CONTROL or verdict.word not in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE):
        return ""
    return UNSEEN_WOULD_FIND


# ---------------------------------------------------------------------- accuracy and flags


def _flags(row: Row) -> str:
    """Return the share of flagged questions, and that of the questions for which the share by chance holds."""
    flagged, unguarded = columns.FLAGGED.of(row), columns.FLAGGED_UNGUARDED.of(row)
    if not flagged:
        asked = row.verdict.n_asked
        return f"{counted(asked)}, which this audit cannot flag singly." if asked else ""
    share = f"{whole_percent(flagged.value)} of {counted(row.n_tested)} flagged"
    if not unguarded:
        return f"{share}, all with a natural order."
    if unguarded != flagged:
        share += f", {whole_percent(unguarded.value)} of those without a natural order"
    return f"{share}{by_chance(row)}."


def by_chance(row: Row) -> str:
    """Return the share of flags expected without leakage, as ` (5 % expected by chance)`, to append to a share; empty
    if it is not known."""
    chance = columns.NULL_RATE.of(row)
    return "" if math.isnan(chance) else f" ({whole_percent(chance)} expected by chance)"


def _accuracy(row: Row) -> str:
    """Return a sentence with the accuracy and with what it is without leakage; empty without an accuracy."""
    if not row.accuracy:
        return ""
    metric = row.metric.partition(",")[0]
    name = "Accuracy" if metric in {"acc", ""} else f"Accuracy ({metric})"
    return (
        "; ".join(filter(None, (f"{name} {_with_interval(row.accuracy)}{_counted_part(row)}", _without_leakage(row))))
        + "."
    )


def _with_interval(estimate: Estimate) -> str:
    """Return an estimate as `0.50 (95 % interval 0.40 to 0.60)`; without the interval where none is known."""
    decimals = decimals_of(estimate)
    shown = number(estimate.value, decimals)
    if math.isnan(estimate.low):
        return shown
    return f"{shown} ({INTERVAL_KIND} {number(estimate.low, decimals)} to {number(estimate.high, decimals)})"


def _counted_part(row: Row) -> str:
    """Return how many of the questions the accuracy counts, to append to it; empty if it counts all."""
    return f" on {count(row.n - row.n_left_out)} of {counted(row.n)}" if row.n_left_out else ""


def _too_long(row: Row) -> str:
    """Return how many questions are longer than the model's window, and which window would hold them."""
    if not row.n_too_long:
        return ""
    texts = f"Texts of {counted(row.n_too_long)} are longer than the model's window and were not scored"
    return f"{texts}; all would need max_length={row.window_needed}."


def _untested(row: Row) -> str:
    """Return how many questions the audits could not ask for other reasons, with the most frequent of them."""
    if not row.untested:
        return ""
    n = sum(row.untested.values())
    reason, n_alike = max(row.untested.items(), key=lambda item: item[1])
    share = f" of {count(n_alike)}" if n_alike < n else ""
    return f"Not tested: {counted(n)} (reason{share}: {reason})."


def _without_leakage(row: Row) -> str:
    """Return a clause with the accuracy without leakage: an estimate, else a lower bound; empty without either.

    An inflation is claimed only if the lower end of its 95 % interval is above 0.
    """
    if clean := columns.ACCURACY_CLEAN.of(row):
        inflation = columns.INFLATION.of(row)
        ends = f"{number(clean.low, 2)} to {number(clean.high, 2)}"
        is_measured = inflation.low > 0 and round(inflation.value, 2) > 0
        added = f"which adds {number(inflation.value, 2)}" if is_measured else "no measurable inflation"
        return f"about {number(clean.value, 2)} ({ends}) without leakage, {added}"
    share = _seen_at_most(row.verdict)
    least = lowest(row.accuracy.value, row.n - row.n_left_out, share)
    if not round(least, 2) > 0:
        return ""
    seen = f"if no more than {whole_percent(share)} of the questions were seen"
    return f"at least {number(least, 2)} without leakage {seen}"


def _seen_at_most(verdict: DataVerdict) -> float:
    """Return the largest share of questions that may have been seen, for the most exposures that have a bound.

    It is NaN if there is no bound, or if the verdict is evidence.
    """
    shares = [share for _, share in verdict.at_most if not math.isnan(share)]
    return shares[-1] if shares and verdict.word in (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE) else math.nan


def _gap(row: Row) -> str:
    """Return how much better or worse flagged questions are answered than others; empty for too few flags."""
    if not columns.GAP_ADJUSTED.of(row) or not has_enough_flagged(row):
        return ""
    gap: Estimate = columns.GAP_ADJUSTED.of(row)
    way = "lower" if gap.value < 0 else "higher"
    size = _with_interval(Estimate(-gap.value, gap.stderr, -gap.high, -gap.low) if gap.value < 0 else gap)
    p = "" if math.isnan(columns.GAP_PVALUE.of(row)) else f" ({pvalue_equation(columns.GAP_PVALUE.of(row))})"
    return f"Among questions of similar difficulty, the accuracy on flagged ones is {way} by {size}{p}."


def sentence_to_copy(row: Row) -> str:
    """Return one sentence with the model, the questions, the versions, the verdict and its reason; empty without a
    verdict."""
    verdict, provenance = row.verdict, row.provenance
    if not verdict.word:
        return ""
    model = provenance.model or row.model
    n = verdict.n_asked or row.n
    digest = f"digest {provenance.digest}" if provenance.digest else ""
    drawn = "" if provenance.seed is None else f"drawn with seed {provenance.seed}"
    selection = "; ".join(filter(None, (digest, drawn)))
    questions = f"{counted(n)} of {row.name}" if n else row.name
    questions += f" ({selection})" if selection else ""
    lm_eval = f"lm_eval {provenance.lm_eval}" if provenance.lm_eval else ""
    tools = f"lm_eval_leakage {__version__}" + "".join(f", {part}" for part in (lm_eval, provenance.date) if part)
    return (
        f"{model} ({provenance.revision or NO_REVISION}) was checked for leakage on {questions} by {tools}: "
        f"the verdict is “{word_with_aim(verdict.word, verdict.detect)}” ({cited(verdict)}).{_accuracy_to_copy(row)}"
    )


def _accuracy_to_copy(row: Row) -> str:
    """Return the accuracy as a second sentence, which begins with a space; empty without an accuracy."""
    if not row.accuracy:
        return ""
    without_leakage = _without_leakage(row) or "what leakage adds to it is not known"
    inflation = columns.INFLATION.of(row)
    ends = f" ({number(inflation.low, 2)} to {number(inflation.high, 2)})" if columns.ACCURACY_CLEAN.of(row) else ""
    return f" Its accuracy is {_with_interval(row.accuracy)}{_counted_part(row)}; {without_leakage}{ends}."
