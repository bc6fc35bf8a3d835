"""Makes a calibration from a model's own scores of questions that it cannot have seen: private or newly written ones,
or `fresh`, audited in the same way as the benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import Places, lines_of_one_model, model_of_audits
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.records import Described
from lm_eval_leakage.results.data_verdict import natural_part
from lm_eval_leakage.results.formatting import markdown_of, pvalue
from lm_eval_leakage.results.identify import described_lines, scores_by
from lm_eval_leakage.results.result_types import AskedOnce, asked_once
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import (
    COMBINED,
    FEWEST,
    OWN,
    Calibration,
    KnownScores,
    Likeness,
    by_class,
    exchangeability,
    why_withheld,
)


@dataclass(frozen=True)
class Made:
    """A calibration, and how its unseen questions compare with those that were asked."""

    calibration: Calibration
    compared: Sequence[Likeness]


def own_calibration(
    folder: Places,
    unseen_folder: Places,
    problems: list[Problem],
    *,
    seen_folder: Path | None = None,
    reference: Path | None = None,
    weights: Calibration | None = None,
) -> Made:
    """From the audits of a benchmark and those of questions that the model cannot have seen.

    folder, unseen_folder: output folders of both, with the samples logs, or results files in them
    seen_folder: that of audits of questions that the model has certainly seen, from which the power is known
    reference: that of another model's audits of all these questions, by which their perplexity is compared
    weights: a calibration of the lab, whose combined score is computed too

    Raises ValueError, with the remedy, for unseen questions that cannot speak for those of the benchmark.
    """
    model = model_of_audits(folder, problems)
    asked = _by_question(line for _, line in lines_of_one_model(folder, problems))
    unseen = _by_question(line for _, line in lines_of_one_model(unseen_folder, problems, model))
    seen: list[AskedOnce] = []
    if seen_folder is not None:
        seen = _by_question(line for _, line in lines_of_one_model(seen_folder, problems, model))
    together = None if weights is None else _combined_of(weights)
    detectors = _detectors(asked, unseen, seen, together)
    kinds, others = (described_lines(one.first for one in group) for group in (unseen, asked))
    if reference is not None:
        kinds, others = _with_perplexity(reference, model, [(kinds, unseen), (others, asked)], problems)
    origin = f"{len(kinds)} questions that the model cannot have seen"
    orders = (line.orders for one in unseen for line in one.lines.values())
    natural = natural_part(one for one in orders if one is not None)
    made = Calibration(model, _benchmark_of(asked), OWN, origin, detectors, together, kinds, natural)
    if reason := why_withheld(made, others):
        raise ValueError(reason)
    return Made(made, exchangeability(kinds.properties, others.properties, rng=np.random.default_rng(0)))


def _by_question(lines: Iterable[AuditLine]) -> list[AskedOnce]:
    """The questions that can be read; a shard is no question."""
    return asked_once(line for line in lines if line.read is not None)


def _names(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for own in scores.values() for name in own))


def _detectors(
    asked: Sequence[AskedOnce], unseen: Sequence[AskedOnce], seen: Sequence[AskedOnce], together: CombinedScore | None
) -> dict[str, KnownScores]:
    """The known scores of every detector that all groups have, and the combined ones."""
    of_asked, of_unseen, of_seen = ({one.name: one.scores for one in group} for group in (asked, unseen, seen))
    asked_by, unseen_by = _names(of_asked), _names(of_unseen)
    if not (shared := [name for name in unseen_by if name in asked_by]):
        raise ValueError(
            f"the unseen questions have scores of {', '.join(unseen_by) or 'no detector'}, but the benchmark's have "
            f"scores of {', '.join(asked_by) or 'no detector'}: run the same audits on both, with the same --metadata"
        )
    if together is not None:
        shared.append(COMBINED)
        for group in (of_unseen, of_seen):
            for question, score in scores_by(COMBINED, group, together).items():
                group[question][COMBINED] = score
        if COMBINED not in _names(of_unseen):
            missing = sorted(set(together.detectors) - set(unseen_by))
            raise ValueError(
                "no unseen question has a score of every detector of the combined score; audits are missing for: "
                f"{', '.join(missing) or 'none'}"
            )
    classes = {one.name: one.first.of_class for one in (*unseen, *seen)}
    return {name: _known(name, of_unseen, of_seen, classes) for name in shared}


def _known(
    name: str,
    unseen: Mapping[str, Mapping[str, float]],
    seen: Mapping[str, Mapping[str, float]],
    classes: Mapping[str, str],
) -> KnownScores:
    of_seen = {question: own[name] for question, own in seen.items() if name in own and math.isfinite(own[name])}
    return KnownScores(
        by_class({question: own[name] for question, own in unseen.items() if name in own}, classes),
        list(of_seen.values()),
        [classes[question] for question in of_seen],
    )


def _combined_of(weights: Calibration) -> CombinedScore:
    if weights.combined is None:
        raise ValueError(
            f"the calibration of {weights.model!r} ({weights.origin}) has no combined score; give one of `simulate`, "
            "or leave --combined out"
        )
    return weights.combined


def _benchmark_of(asked: Sequence[AskedOnce]) -> str:
    names = sorted({one.first.benchmark for one in asked})
    if len(names) != 1:
        raise ValueError(
            f"the audits are of {len(names)} benchmarks ({', '.join(names) or 'none that can be read'}), and a "
            "calibration is of one; name the folder of one"
        )
    return names[0]


# ---------------------------------------------------------------------- perplexity under a reference model


def _with_perplexity(
    folder: Path, model: str, groups: Sequence[tuple[Described, Sequence[AskedOnce]]], problems: list[Problem]
) -> tuple[Described, Described]:
    """Both groups with the reference's nats per character of the options, given the question, as a property."""
    other = model_of_audits(folder, problems)
    if other == model:
        raise ValueError(
            f"the reference is {other!r}, the audited model itself, whose perplexity changes with what it has seen; "
            "give the audits of another model"
        )
    nats = {line.question: found for _, line in lines_of_one_model(folder, problems) if (found := _nats(line))}
    name = f"nats per character of the options under {other}"
    first, second = (
        replace(
            kinds, properties={**kinds.properties, name: tuple(nats[one.name] for one in group if one.name in nats)}
        )
        for kinds, group in groups
    )
    if min(len(first.properties[name]), len(second.properties[name])) >= FEWEST:
        return first, second
    raise ValueError(
        f"the audits of the reference {other!r} have log-likelihoods of {len(first.properties[name])} of the unseen "
        f"and {len(second.properties[name])} of the benchmark's questions; at least {FEWEST} of either are needed, so "
        "audit both with leakage_perm"
    )


def _nats(line: AuditLine) -> float | None:
    """Of a line with the log-likelihoods of whole orders."""
    if line.read is None or not line.loglikelihoods:
        return None
    return -line.loglikelihoods[0] / max(1, sum(map(len, line.read.options)))


def summary(made: Made) -> str:
    """What the calibration holds, and the comparison of its questions as a table."""
    calibration = made.calibration
    names = ", ".join(f"`{name}`" for name in calibration.detectors)
    text = f"Scores of {calibration.model} on {calibration.origin}, for {calibration.benchmark}: {names}."
    if not made.compared:
        return text
    cells = [["property", "unseen", "asked", "p, adjusted"]]
    cells += [[one.name, f"{one.unseen:.3g}", f"{one.asked:.3g}", pvalue(one.adjusted)] for one in made.compared]
    return f"{text}\n\n{markdown_of(cells)}"
