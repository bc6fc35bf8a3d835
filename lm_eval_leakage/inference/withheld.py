"""When does a calibration say nothing about what a model has seen?

A calibrated rate, a prevalence and a set of questions compare a model's scores with its scores of questions that it
cannot have seen. They mean something only if those are scores of this model, of questions of the same kind as those
that were asked, and of enough of them. Otherwise nothing is printed but the reason.
"""

from __future__ import annotations

import numpy as np

from lm_eval_leakage.inference.exchangeability import Likeness, exchangeability
from lm_eval_leakage.inference.known_scores import COMBINED, COPY, Calibration
from lm_eval_leakage.records import Described
from lm_eval_leakage.texts import brief

FEWEST = 20  # questions of either kind; 19 known-unseen ones are the fewest that allow a p-value of .05
DIFFERENT_AT = 0.05  # chance that questions of the same kind are taken for different ones
POWER_FPR = 0.05
MAKE = "`lm-eval-leakage calibrate RUNS --unseen FOLDER --output_path FILE`"


def why_withheld(calibration: Calibration, asked: Described) -> str | None:
    """Why this calibration allows no rate, prevalence or set of the asked questions, as a sentence with the remedy;
    None if it does.

    asked: the questions whose scores are to be judged
    """
    unseen = calibration.unseen
    if calibration.whose == COPY:
        return _of_a_copy(calibration)
    if unseen is None:
        return (
            f"the calibration of {calibration.model!r} ({calibration.origin}) does not say what its unseen questions "
            f"are like, so that they cannot be compared with those that were asked; make it again with {MAKE}"
        )
    return overlap(unseen, asked) or too_few(unseen, asked) or of_another_kind(unseen, asked)


def _of_a_copy(calibration: Calibration) -> str:
    return (
        f"the calibration holds scores of a copy of {calibration.model!r} that was trained on the benchmark "
        f"({calibration.origin}), which moves the scores of all other questions too: it says what would be found"
        f"{_power(calibration)}, not what was found; make one of the model's own scores of questions that it cannot "
        f"have seen: {MAKE}"
    )


def _power(calibration: Calibration) -> str:
    """How many trained questions of the copy would be flagged."""
    name = COMBINED if COMBINED in calibration.detectors else next(iter(calibration.detectors), None)
    if name is None:
        return ""
    (n_flagged, n_seen), _ = calibration.detectors[name].flagged(POWER_FPR)
    if not n_seen:  # they are not known, or not by class
        return ""
    return f" ({n_flagged} of {n_seen} trained questions by {name}, at a false-positive rate of {POWER_FPR:.0%})"


def overlap(unseen: Described, asked: Described) -> str | None:
    """Whether known-unseen questions are among the asked ones."""
    both = [digest for digest in unseen.stems if digest in asked.stems]
    if not both:
        return None
    return (
        f"{len(both)} of the {len(unseen)} questions that the model is said not to have seen are in the benchmark, "
        f"such as {brief(asked.stems[both[0]])}; leave them out of the unseen questions, which must be private or "
        "newly written, and make the calibration again"
    )


def too_few(unseen: Described, asked: Described) -> str | None:
    for described, what in ((unseen, "unseen questions"), (asked, "asked questions")):
        if len(described) < FEWEST:
            return (
                f"{len(described)} {what} are too few to be compared with the other questions; at least {FEWEST} are "
                f"needed of either kind, so {'write' if described is unseen else 'ask'} more"
            )
    return None


def of_another_kind(unseen: Described, asked: Described) -> str | None:
    """Whether the known-unseen questions differ in a property that leakage does not change."""
    found = exchangeability(unseen.properties, asked.properties, rng=np.random.default_rng(0))
    different = [one for one in found if one.adjusted <= DIFFERENT_AT]
    if not different:
        return None
    return (
        f"the unseen questions are of another kind than those that were asked: {'; '.join(map(_shown, different))} "
        "(p-values adjusted for the number of properties); choose or write unseen questions like those of the "
        "benchmark, or ask only benchmark questions like the unseen ones"
    )


def _shown(one: Likeness) -> str:
    return f"{one.name} {_short(one.unseen)} instead of {_short(one.asked)} (p = {one.adjusted:.2g})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
