"""Makes a calibration from a model's own scores of questions that it cannot have seen: private or newly written ones,
or `fresh`, audited in the same way as the benchmark."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from lm_eval_leakage.logs.audits import Places, audits_of_one_model, lines_of_audits
from lm_eval_leakage.logs.run import Problem, sanitized
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.questions.families import families, shared_texts
from lm_eval_leakage.records import Described
from lm_eval_leakage.results.data_verdict import natural_part
from lm_eval_leakage.results.formatting import markdown_of, pvalue
from lm_eval_leakage.results.identify import described_lines, scores_by
from lm_eval_leakage.results.result_types import AskedOnce, asked_once, grouped
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
from lm_eval_leakage.stats.unseen_texts import ScoredText, text_test


def own_calibration(
    folder: Places,
    unseen_folder: Places,
    problems: list[Problem],
    *,
    seen_folder: Path | None = None,
    reference: Path | None = None,
    weights: Calibration | None = None,
    text_references: Sequence[Path] = (),
) -> tuple[Calibration, Sequence[Likeness]]:
    """From the audits of a benchmark and those of questions that the model cannot have seen; and how these
    compare with those that were asked.

    folder, unseen_folder: output folders of both, with the samples logs, or results files in them
    seen_folder: that of audits of questions that the model has certainly seen, from which the power is known
    reference: that of another model's audits of all these questions, by which their perplexity is compared
    weights: a calibration of the lab, whose combined score is computed too
    text_references: where other models' scores of the texts may be; without, texts are not tested

    Raises ValueError, with the remedy, for unseen questions that cannot speak for those of the benchmark.
    """
    model, asked = _questions(folder, problems)
    _, unseen = _questions(unseen_folder, problems, model)
    _, seen = (model, []) if seen_folder is None else _questions(seen_folder, problems, model)
    if weights is not None and weights.combined is None:
        raise ValueError(
            f"the calibration of {weights.model!r} ({weights.origin}) has no combined score; give one of `simulate`, "
            "or leave --combined out"
        )
    together = None if weights is None else weights.combined
    detectors = _detectors(asked, unseen, seen, together)
    kinds, others = (described_lines(one.first for one in group) for group in (unseen, asked))
    if reference is not None:
        kinds, others = _with_perplexity(reference, model, [(kinds, unseen), (others, asked)], problems)
    benchmarks = sorted({one.first.benchmark for one in asked})
    if len(benchmarks) != 1:
        raise ValueError(
            f"the audits are of {len(benchmarks)} benchmarks ({', '.join(benchmarks) or 'none that can be read'}), "
            "and a calibration is of one; name the folder of one"
        )
    origin = f"{len(kinds)} questions that the model cannot have seen"
    natural = natural_part(line.orders for one in unseen for line in one.lines.values() if line.orders is not None)
    arms = [own for one in unseen for line in one.lines.values() if (own := line.arms) is not None]
    answered = sum(own.original for own in arms), len(arms)
    by_letters = any(own.shuffled_place is not None for own in arms)
    made = Calibration(model, benchmarks[0], OWN, origin, detectors, together, kinds, natural, answered, by_letters)
    if reason := why_withheld(made, others):
        raise ValueError(reason)
    if text_references:
        known = _known_texts(text_references, model, problems)
        made = replace(made, texts=text_test(_by_family(asked, known), _by_family(unseen, known)))
    return made, exchangeability(kinds.properties, others.properties, rng=np.random.default_rng(0))


def _questions(folder: Places, problems: list[Problem], model: str | None = None) -> tuple[str, list[AskedOnce]]:
    """The model, and the questions that can be read; a shard is no question."""
    found, lines = audits_of_one_model(folder, problems, model)
    return found, asked_once(line for _, line in lines if line.read is not None)


def _detectors(
    asked: Sequence[AskedOnce], unseen: Sequence[AskedOnce], seen: Sequence[AskedOnce], together: CombinedScore | None
) -> dict[str, KnownScores]:
    """The known scores of every detector that all groups have, and the combined ones."""
    classes = {one.name: one.first.of_class for one in (*unseen, *seen)}
    of_unseen, of_seen = ({one.name: one.scores for one in group} for group in (unseen, seen))
    asked_by, unseen_by = (dict.fromkeys(name for one in group for name in one.scores) for group in (asked, unseen))
    shared = [name for name in unseen_by if name in asked_by]
    if not shared:
        raise ValueError(
            f"the unseen questions have scores of {', '.join(unseen_by) or 'no detector'}, but the benchmark's have "
            f"scores of {', '.join(asked_by) or 'no detector'}: run the same audits on both, with the same --metadata"
        )
    if together is not None:
        shared.append(COMBINED)

    def known(name: str) -> KnownScores:
        own = scores_by(name, of_unseen, together)
        theirs = {one: score for one, score in scores_by(name, of_seen, together).items() if math.isfinite(score)}
        return KnownScores(by_class(own, classes), list(theirs.values()), [classes[one] for one in theirs])

    if together is not None and not scores_by(COMBINED, of_unseen, together):
        missing = sorted({*together.detectors} - {*unseen_by})
        raise ValueError(
            "no unseen question has a score of every detector of the combined score; audits are missing for: "
            f"{', '.join(missing) or 'none'}"
        )
    return {name: known(name) for name in shared}


def _known_texts(references: Sequence[Path], model: str, problems: list[Problem]) -> dict[str, tuple[float, ...]]:
    """By the hash of the row, the mean of other models' scores."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in find_runs(references, problems):
        if sanitized(run.model.partition(" revision=")[0]) != sanitized(model):
            for _, line in lines_of_audits([run], problems):
                if (scores := line.text_scores) is not None:
                    found[line.question].append(scores)
    return {name: _means(own) for name, own in found.items()}


def _means(scores: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(fmean, zip(*scores, strict=True)))


def _by_family(asked: Sequence[AskedOnce], known: Mapping[str, tuple[float, ...]]) -> list[ScoredText]:
    """The mean scores and the first question's text of each family.

    known: scores by the reference, by the hash of the row
    """
    scored = []
    for one in asked:
        line = next((line for line in one.lines.values() if line.text_scores is not None), one.first)
        if line.read is not None and line.text_scores is not None and line.question in known:
            scored.append((line.read, line.text_scores, known[line.question]))
    numbers = families([shared_texts(question) for question, *_ in scored])
    found = []
    for places in grouped(range(len(scored)), numbers.__getitem__).values():
        questions, own, reference = zip(*(scored[place] for place in places), strict=True)
        text = " ".join([questions[0].stem, *questions[0].options])
        found.append(ScoredText(text, _means(own), _means(reference)))
    return found


def _with_perplexity(
    folder: Path, model: str, groups: Sequence[tuple[Described, Sequence[AskedOnce]]], problems: list[Problem]
) -> tuple[Described, Described]:
    """Both groups with the reference's nats per character of the options, given the question, as a property."""
    other, lines = audits_of_one_model(folder, problems)
    if other == model:
        raise ValueError(
            f"the reference is {other!r}, the audited model itself, whose perplexity changes with what it has seen; "
            "give the audits of another model"
        )
    nats = {
        line.question: -line.loglikelihoods[0] / max(1, sum(map(len, line.read.options)))
        for _, line in lines
        if line.read is not None and line.loglikelihoods
    }
    name = f"nats per character of the options under {other}"
    values = [tuple(nats[one.name] for one in group if one.name in nats) for _, group in groups]
    if min(map(len, values)) < FEWEST:
        raise ValueError(
            f"the audits of the reference {other!r} have log-likelihoods of {len(values[0])} of the unseen and "
            f"{len(values[1])} of the benchmark's questions; at least {FEWEST} of either are needed, so audit both "
            "with leakage_perm"
        )
    first, second = (
        replace(kinds, properties={**kinds.properties, name: own})
        for (kinds, _), own in zip(groups, values, strict=True)
    )
    return first, second


def summary(calibration: Calibration, compared: Sequence[Likeness]) -> str:
    """What the calibration holds, and the comparison of its questions as a table."""
    names = ", ".join(f"`{name}`" for name in calibration.detectors)
    text = f"Scores of {calibration.model} on {calibration.origin}, for {calibration.benchmark}: {names}."
    if not compared:
        return text
    cells = [["property", "unseen", "asked", "p, adjusted"]]
    cells += [[one.name, f"{one.unseen:.3g}", f"{one.asked:.3g}", pvalue(one.adjusted)] for one in compared]
    return f"{text}\n\n{markdown_of(cells)}"
