"""The verdict on a data set from a model's answers to its rows with exchanged fillers (`stats.crossed_blocks`).

Two tests of the same blocks must agree: of the rows as the benchmark shows them, and of these less the control form,
in which the words of a row have no order, so that what fits a name stays and what could be remembered goes. The larger
p-value counts; the preference that is reported is the one beyond the control form. With another model as reference,
its preferences are subtracted instead.

Where a secret key drew the fillers, no natural preference is allowed for, and no control form is needed.

A verdict is about the data set. It accuses no single row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from lm_eval_leakage.records import FillerAnswers
from lm_eval_leakage.results.published_orders import SEALED_ORDERS
from lm_eval_leakage.results.verdict_words import BY_FILLERS, FEWEST_JUDGED, DataVerdict
from lm_eval_leakage.stats.crossed_blocks import CrossedBlock, Preference, block_scores, crossed_blocks, preference
from lm_eval_leakage.stats.filler_power import SEEN_EFFECTS, FillerPower
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_ERROR, needed_by_all, seen_at_most
from lm_eval_leakage.stats.pooling import Floats

NATURAL_SPREAD = 0.05  # standard deviations per row, between clean benchmarks: docs/validity.md
USUAL_ROWS, USUAL_SIZE = 200, 6  # of which needed numbers are computed; rows of a block
Score = Callable[[CrossedBlock], Floats | None]


def filler_verdict(answers: Sequence[FillerAnswers]) -> DataVerdict:
    """Return the verdict on rows with their fillers; without a test if there are too few rows in blocks."""
    blocks, scores = crossed_blocks(answers), _scores(answers)
    compared = [block for block in blocks if all(score(block) is not None for score in scores.values())]
    n = sum(block.size for block in compared)
    layouts = max((one.layouts for one in answers), default=())
    is_drawn = bool(answers) and all(answer.is_drawn for answer in answers)
    verdict = DataVerdict(
        BY_FILLERS,
        SEALED_ORDERS if is_drawn else "",
        n=n,
        n_asked=len(answers),
        layouts=layouts if len(layouts) > 1 else (),
        start=max((one.start for one in answers), default=""),
    )
    if n < FEWEST_JUDGED:
        return verdict
    spread = 0.0 if is_drawn else NATURAL_SPREAD
    found = {form: _preference(compared, score, spread) for form, score in scores.items()}
    powers = tuple(_power(form, own, len(found), spread) for form, own in found.items())
    *_, beyond = found.values()  # what the control form, or the reference, leaves
    tested = replace(
        max((own.test for own in found.values()), key=lambda test: test.pvalue),
        n=n,
        n_units=beyond.n_blocks,
        mean=beyond.effect,
        mean_error=beyond.error,
        log_evalue=min(own.test.log_evalue for own in found.values()),
    )
    return replace(
        verdict,
        tested=tested,
        power=powers,
        at_most=seen_at_most(powers, SEEN_ERROR),
        scores=tuple(own.effect for own in found.values()),
    )


def rows_usually_needed(detect: float, level: float, *, has_reference: bool) -> int | None:
    """Return about how many rows find `detect`, before a model's scores are known; None if no number does."""
    forms = ["names"] if has_reference else ["names", "in words"]
    powers = []
    for form in forms:
        n_compared = 2 if has_reference or form == "in words" else 1
        deviation = math.sqrt(n_compared / (USUAL_ROWS * (1 - 1 / USUAL_SIZE)))
        found_with = 1 - (1 - FOUND_WITH) / len(forms)
        powers.append(FillerPower(0.0, USUAL_ROWS, deviation, SEEN_EFFECTS[form], NATURAL_SPREAD, found_with))
    return needed_by_all(powers, detect, level)


def _scores(answers: Sequence[FillerAnswers]) -> dict[str, Score]:
    """Return by form what is computed of each block; None where a block lacks what is needed."""
    if any(one.reference for one in answers):
        return {"names": _beyond_reference}
    has_control = any(one.control for one in answers)
    return {"names": _alone, "in words": _beyond_control} if has_control else {"names": _alone}


def _alone(block: CrossedBlock) -> Floats | None:
    return block_scores(block.layouts)


def _beyond_control(block: CrossedBlock) -> Floats | None:
    return None if block.control is None else block_scores(block.layouts, [block.control])


def _beyond_reference(block: CrossedBlock) -> Floats | None:
    return block_scores(block.layouts, block.references) if block.references else None


def _preference(blocks: Sequence[CrossedBlock], score: Score, spread: float) -> Preference:
    return preference([score(block) for block in blocks], [block.size for block in blocks], spread=spread)


def _power(form: str, found: Preference, n_tests: int, spread: float) -> FillerPower:
    return FillerPower(
        found.effect,
        found.n_rows,
        found.null_error,
        SEEN_EFFECTS[form],
        spread,
        1 - (1 - FOUND_WITH) / n_tests,
    )
