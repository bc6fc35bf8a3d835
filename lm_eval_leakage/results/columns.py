"""The columns of a task, group or subject, out of its questions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from scipy.stats import binomtest, norm

from lm_eval_leakage.results.annotation import NAN, UNKNOWN, Arms, Estimate, Suspicion
from lm_eval_leakage.results.flags import flags_of
from lm_eval_leakage.results.prevalence import share_of
from lm_eval_leakage.results.suspicions import Calibrating
from lm_eval_leakage.statistics.accuracy_gap import accuracy_gap
from lm_eval_leakage.statistics.calibration import mean_and_stderr
from lm_eval_leakage.statistics.paired_accuracy import difference

IN_95_PERCENT = float(norm.ppf(0.975))


@dataclass(frozen=True)
class Entry:
    """One question of a row.

    score: 1.0 for a right answer, 0.0 for a wrong one; None where no run answered it
    stratum: questions of one stratum are taken to be as hard
    """

    suspicion: Suspicion | None
    score: float | None = None
    stratum: Hashable = ""


def columns(entries: Sequence[Entry], calibrating: Calibrating | None = None) -> dict[str, Any]:
    """Fields of a Row, from `n_joined` on; those stay out of which these questions know nothing."""
    spoken_of = [entry.suspicion for entry in entries if entry.suspicion is not None]
    tested = [entry for entry in entries if entry.suspicion is not None and entry.suspicion.flagged is not None]
    return {
        "n_joined": len(spoken_of),
        "n_tested": len(tested),
        "flags": {entry.suspicion.doc_hash: bool(entry.suspicion.flagged) for entry in tested if entry.suspicion},
        **_flags(spoken_of),
        **_outliers(spoken_of),
        **_calibrated(spoken_of, calibrating),
        **_confusion([one.arms for one in spoken_of if one.arms is not None]),
        **_accuracies(tested),
    }


def share(values: Sequence[float]) -> Estimate:
    """Mean of values in [0, 1] with its standard error; the interval is Wilson's where they are 0 and 1 only."""
    if not values:
        return UNKNOWN
    mean, stderr = mean_and_stderr(values)
    if all(value in (0, 1) for value in values):
        ends = binomtest(round(sum(values)), len(values)).proportion_ci(method="wilson")
        return Estimate(mean, stderr, float(ends.low), float(ends.high))
    return normal(mean, stderr)


def normal(value: float, stderr: float) -> Estimate:
    """With the interval of a normal error."""
    return Estimate(value, stderr, value - IN_95_PERCENT * stderr, value + IN_95_PERCENT * stderr)


def _flags(spoken_of: Sequence[Suspicion]) -> dict[str, Any]:
    by_rule = [one for one in spoken_of if one.flagged is not None]
    chances = [one.null_rate for one in by_rule if one.null_rate is not None]
    tested, unguarded = flags_of(spoken_of), flags_of(spoken_of, unguarded=True)
    return {
        "flagged": share([bool(one.flagged) for one in by_rule]),
        "null_rate": mean_and_stderr(chances)[0],
        "pvalue": tested.pvalue,
        "n_pvalue": tested.n,
        "flagged_unguarded": share([bool(one.flagged) for one in by_rule if not one.guards]),
        "pvalue_unguarded": unguarded.pvalue,
        "n_pvalue_unguarded": unguarded.n,
    }


def _outliers(spoken_of: Sequence[Suspicion]) -> dict[str, Any]:
    tested = [one for one in spoken_of if one.outlier is not None]
    rates = [one.outlier_null_rate for one in tested if one.outlier_null_rate is not None]
    return {
        "outlier": share([bool(one.outlier) for one in tested]),
        "outlier_null_rate": mean_and_stderr(rates)[0],
    }


def _calibrated(spoken_of: Sequence[Suspicion], calibrating: Calibrating | None) -> dict[str, Any]:
    flags = [one.calibrated_flagged for one in spoken_of if one.calibrated_flagged is not None]
    probabilities = [one.probability for one in spoken_of if one.probability is not None]
    found = {"calibrated": share(flags), "probability": mean_and_stderr(probabilities)[0]}
    if calibrating is None or not flags:
        return found
    tpr, fpr = calibrating.calibration.detectors[calibrating.detector].flagged(calibrating.fpr)
    seen = share_of(flags, tpr, fpr)
    return found | {"prevalence": Estimate(seen.share, NAN, seen.low, seen.high)}


def _confusion(asked: Sequence[Arms]) -> dict[str, Any]:
    if not asked:
        return {}
    names = [field.name for field in fields(Arms)]
    arms = {name: [getattr(one, name) for one in asked] for name in names}
    delta = difference(arms["original"], arms["generalized"])
    return {
        "arms": {name: share(right) for name, right in arms.items()},
        "confusion": normal(delta.value, delta.stderr),
    }


def _accuracies(tested: Sequence[Entry]) -> dict[str, Any]:
    answered = [(entry, entry.score) for entry in tested if entry.score is not None]
    flagged = [bool(entry.suspicion and entry.suspicion.flagged) for entry, _ in answered]
    scores = [score for _, score in answered]
    by_flag = {
        wanted: [score for score, flag in zip(scores, flagged, strict=True) if flag is wanted]
        for wanted in (True, False)
    }
    found: dict[str, Any] = {"accuracy_flagged": share(by_flag[True]), "accuracy_unflagged": share(by_flag[False])}
    if not by_flag[True] or not by_flag[False]:
        return found
    found["gap"] = _gap(found["accuracy_flagged"], found["accuracy_unflagged"])
    if all(score in (0, 1) for score in scores):
        right = [score == 1 for score in scores]
        within = accuracy_gap(flagged, right, [entry.stratum for entry, _ in answered])
        found |= {"gap_adjusted": normal(within.value, within.stderr), "gap_pvalue": within.pvalue}
        found["strong"] = share([flag and one for flag, one in zip(flagged, right, strict=True)])
    return found


def _gap(flagged: Estimate, unflagged: Estimate) -> Estimate:
    """Newcombe's interval, from those of Wilson."""
    value = flagged.value - unflagged.value
    below = math.hypot(flagged.value - flagged.low, unflagged.high - unflagged.value)
    above = math.hypot(flagged.high - flagged.value, unflagged.value - unflagged.low)
    return Estimate(value, math.hypot(flagged.stderr, unflagged.stderr), value - below, value + above)


def strata_of(
    subjects: Sequence[str], lengths: Sequence[int], ease: Sequence[float | None]
) -> list[tuple[str, int, int | None]]:
    """Subject, third of the subject's questions by length, third of [0, 1] of what reference models answer rightly."""
    by_subject: dict[str, list[int]] = {}
    for subject, length in zip(subjects, lengths, strict=True):
        by_subject.setdefault(subject, []).append(length)
    ends = {subject: _thirds(sorted(found)) for subject, found in by_subject.items()}
    return [
        (subject, sum(length > end for end in ends[subject]), None if easy is None else min(2, int(3 * easy)))
        for subject, length, easy in zip(subjects, lengths, ease, strict=True)
    ]


def _thirds(lengths: Sequence[int]) -> tuple[int, int]:
    n = len(lengths)
    return lengths[(n - 1) // 3], lengths[2 * (n - 1) // 3]
