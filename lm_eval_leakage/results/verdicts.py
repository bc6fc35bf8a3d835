"""What all audits of a model say of each question of a benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lm_eval_leakage.inference.known_scores import COMBINED, Calibration
from lm_eval_leakage.logs.audit_line import Judged
from lm_eval_leakage.logs.audits import benchmark_of
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.runs import sanitized
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.results.identify import pvalues_of
from lm_eval_leakage.results.result_types import Suspicion

MAIN = ("max_order", "pair_published", "stepwise")  # whose flags the columns show: the first that was run
OUTLIER, ARMS = "outlier", "paired_accuracy"
TWO_OPTIONS = "with 2 options no question can be flagged: its p-value is 1/2 or 1"


@dataclass(frozen=True)
class Calibrating:
    """A calibration, by which of its detectors, and the share of unseen questions that may be flagged."""

    calibration: Calibration
    detector: str = COMBINED
    fpr: float = 0.05


@dataclass(frozen=True)
class Suspicions:
    """detector: the statistic of which `flagged` speaks; empty where no audit has one
    calibrated: by which calibration, where one was given and could be used
    """

    detector: str
    found: tuple[Suspicion, ...]
    calibrated: Calibrating | None


def suspicions(
    audits: Iterable[tuple[str, Judged]],
    problems: list[Problem],
    detector: str | None = None,
    calibrating: Calibrating | None = None,
) -> Suspicions:
    """Of all audits of one model, each line with its audit's task; where a question was audited twice in the same way,
    the later verdict counts.

    detector: a statistic's name as in the table, such as `max_order`, or a whole detector of the logs
    """
    verdicts: dict[str, dict[str, Judged]] = {}
    benchmarks: dict[str, str] = {}
    for task, line in audits:
        verdicts.setdefault(line.question, {})[line.detector] = line
        benchmarks.setdefault(line.question, benchmark_of(task))
    chosen = _Chosen.of(verdicts, detector, problems)
    found = [_suspicion(name, benchmarks[name], own, chosen) for name, own in verdicts.items()]
    if calibrating is not None:
        found, calibrating = _with_calibration(found, verdicts, calibrating, problems)
    return Suspicions(chosen.main[0] if chosen.main else "", tuple(found), calibrating)


@dataclass(frozen=True)
class _Chosen:
    """Which detector each column speaks of: a statistic's name and the whole detector."""

    main: tuple[str, str] | None
    outlier: tuple[str, str] | None
    arms: tuple[str, str] | None

    @staticmethod
    def of(verdicts: Mapping[str, Mapping[str, Judged]], wanted: str | None, problems: list[Problem]) -> _Chosen:
        counts = Counter((line.filter, name) for own in verdicts.values() for name, line in own.items())
        rates = {
            (line.filter, name) for own in verdicts.values() for name, line in own.items() if line.flagged is not None
        }
        main = _most(counts, [wanted] if wanted else [*MAIN, *sorted({name for name, _ in rates})], rates, problems)
        if wanted and verdicts and main is None:
            choose = ", ".join(sorted({name for pair in rates for name in pair}) or ["none"])
            problems.append(Problem(f"detector is {wanted!r}, which flags nothing in these audits; choose: {choose}"))
        return _Chosen(main, _most(counts, [OUTLIER], rates, problems), _most(counts, [ARMS], set(counts), problems))


def _most(
    counts: Mapping[tuple[str, str], int],
    names: Sequence[str],
    among: set[tuple[str, str]],
    problems: list[Problem],
) -> tuple[str, str] | None:
    """Of the first of `names` that was run: the detector with the most questions."""
    for wanted in names:
        fitting = sorted((count, pair) for pair, count in counts.items() if wanted in pair and pair in among)
        if fitting:
            *others, (_, best) = fitting
            for count, (_, other) in others:
                problems.append(Problem(f"columns speak of {best[1]}, not of {other} ({count} questions)"))
            return best
    return None


def _suspicion(doc_hash: str, benchmark: str, own: Mapping[str, Judged], chosen: _Chosen) -> Suspicion:
    first = next(iter(own.values()))
    read = first.read
    suspicion = Suspicion(
        doc_hash=doc_hash,
        content=content_id(read.stem, read.options) if read else "",
        benchmark=benchmark,
        subject=first.subject,
        question=read.stem if read else "",
        options=read.options if read else (),
        answer=read.answer if read else None,
        guards=first.guards,
    )
    main, outlier, arms = (own.get(pair[1]) if pair else None for pair in (chosen.main, chosen.outlier, chosen.arms))
    if main is not None:
        suspicion = replace(
            suspicion,
            flagged=None if _undecidable(main) else main.flagged,
            pvalue=main.pvalue,
            null_rate=main.null_rate,
            reason=TWO_OPTIONS if _undecidable(main) else main.reason,
            margin=main.margin,
            n_orders=len(main.loglikelihoods) or None,
            loglikelihoods=tuple(main.loglikelihoods),
            calibrated_flagged=main.calibrated_flagged,
        )
    if outlier is not None:
        suspicion = replace(suspicion, outlier=outlier.flagged, outlier_null_rate=outlier.null_rate)
    return suspicion if arms is None else replace(suspicion, arms=arms.arms)


def _undecidable(line: Judged) -> bool:
    return line.null_rate is not None and line.null_rate >= 0.5


def _with_calibration(
    found: Sequence[Suspicion],
    verdicts: Mapping[str, Mapping[str, Judged]],
    calibrating: Calibrating,
    problems: list[Problem],
) -> tuple[list[Suspicion], Calibrating | None]:
    """Verdicts of the benchmark that the calibration is of, or of parts of it; the others have none."""
    calibration, together = calibrating.calibration, calibrating.calibration.combined
    own = {one.doc_hash: verdicts[one.doc_hash] for one in found if _is_part(one.benchmark, calibration.benchmark)}
    for benchmark in sorted({one.benchmark for one in found if one.doc_hash not in own}):
        what = (
            f"the calibration of {calibration.benchmark!r} is not used for {benchmark!r}, which is another benchmark"
        )
        problems.append(Problem(what))
    scores: dict[str, dict[str, float]] = {name: {} for name in own}
    for name, lines in own.items():
        for line in lines.values():
            scores[name] |= line.scores
    classes = {name: next(iter(lines.values())).of_class for name, lines in own.items()}
    try:
        pvalues = pvalues_of(scores, classes, calibration, calibrating.detector)
    except ValueError as error:
        problems.append(Problem(f"the calibration of {calibration.model!r} is not used: {error}"))
        return list(found), None

    def calibrated(one: Suspicion) -> Suspicion:
        if one.doc_hash not in pvalues:
            return replace(one, calibrated_flagged=None)
        known = scores[one.doc_hash]
        has_all = together is not None and all(part in known for part in together.detectors)
        return replace(
            one,
            calibrated_flagged=pvalues[one.doc_hash] <= calibrating.fpr,
            probability=together.probability(known) if together is not None and has_all else None,
        )

    return [calibrated(one) for one in found], calibrating


def _is_part(benchmark: str, whole: str) -> bool:
    return benchmark == whole or benchmark.startswith(f"{whole}_")


def calibrating_of(model: str, given: Sequence[Calibrating], problems: list[Problem]) -> Calibrating | None:
    """The one that is of this model; a calibration does not tell revisions apart."""
    names = {sanitized(model), sanitized(model.partition(" revision=")[0])}
    own = [one for one in given if sanitized(one.calibration.model) in names]
    if given and not own:
        others = ", ".join(repr(one.calibration.model) for one in given)
        problems.append(Problem(f"no calibration is of {model!r}; those given are of {others}"))
    if len(own) > 1:
        problems.append(Problem(f"{len(own)} calibrations are of {model!r}; the last one is used"))
    return own[-1] if own else None
