"""The verdict on a data set from a model's answers to its rows with exchanged fillers (`stats.crossed_blocks`).

Two tests of the same blocks must agree: of the rows as the benchmark shows them, and of these less the control form,
in which the words of a row have no order, so that what fits a name stays and what could be remembered goes. The larger
p-value counts; the preference that is reported is the one beyond the control form. With another model as reference,
its preferences are subtracted instead.

Where a secret key drew the fillers, no natural preference is allowed for, and no control form is needed. Where rows
that the model cannot have seen were asked in the same way, the natural preference is what they show, with its error.

Numbers are natural where they stand: clean models prefer the published ones. They are only tested beside another model
or beside unseen rows.

A verdict is about the data set. It accuses no single row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.records import FillerAnswers
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict import FEWEST_JUDGED, Basis, DataVerdict
from lm_eval_leakage.stats.crossed_blocks import CrossedBlock, Preference, block_scores, crossed_blocks, preference
from lm_eval_leakage.stats.filler_power import SEEN_EFFECTS, FillerPower
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_ERROR, needed_by_all, seen_at_most
from lm_eval_leakage.stats.pooling import Floats

NATURAL_SPREAD = 0.05  # standard deviations per row, between clean benchmarks: docs/validity.md
SPREADS = {NAMES: NATURAL_SPREAD, NUMBERS: 0.1}
NUMBERS_ALONE = (
    "its rows have no names, and models prefer published numbers without having seen them, so that numbers are only "
    "tested beside another model (`--reference pretrained=OTHER`) or new rows of the same kind (`--unseen FILE`)"
)
USUAL_ROWS, USUAL_SIZE = 200, 6  # of which needed numbers are computed; rows of a block
IN_WORDS = "in words"  # less the control form
Score = Callable[[CrossedBlock], Floats | None]


def filler_verdict(answers: Sequence[FillerAnswers], unseen: Sequence[FillerAnswers] = ()) -> DataVerdict:
    """Return the verdict on rows with their fillers; without a test if there are too few rows in blocks.

    unseen: the answers to rows of the same kind that the model cannot have seen
    """
    n_asked = len(answers)
    # a group may have tasks whose rows have names, and others whose rows have only numbers
    fillers = NAMES if not answers or any(answer.fillers == NAMES for answer in answers) else NUMBERS
    answers = [answer for answer in answers if answer.fillers == fillers]
    blocks, scores = crossed_blocks(answers), _scores(answers)
    compared = [block for block in blocks if all(score(block) is not None for score in scores.values())]
    n = sum(block.size for block in compared)
    layouts = max((answer.layouts for answer in answers), default=())
    by_reference = any(answer.reference for answer in answers)
    is_drawn = bool(answers) and all(answer.is_drawn for answer in answers)
    verdict = DataVerdict(
        Basis.FILLERS,
        OrderStatus.SEALED if is_drawn else "",
        n=n,
        n_asked=n_asked,
        layouts=layouts if len(layouts) > 1 else (),
        start=max((answer.start for answer in answers), default=""),
        fillers=fillers,
        by_reference=by_reference,
    )
    if n < FEWEST_JUDGED:
        return verdict
    naturals = dict.fromkeys(scores, (0.0, 0.0 if is_drawn else SPREADS[fillers]))
    n_unseen = 0
    if unseen and not (is_drawn or by_reference):
        naturals, n_unseen = _naturals(unseen, scores, SPREADS[fillers])
    if fillers == NUMBERS and not (is_drawn or by_reference or n_unseen):
        return replace(verdict, doubt=NUMBERS_ALONE)
    preferences = {form: _preference(compared, score, *naturals[form]) for form, score in scores.items()}
    powers = tuple(
        _power(form, preferred, len(preferences), *naturals[form]) for form, preferred in preferences.items()
    )
    *_, beyond = preferences.values()  # what the control form, or the reference, leaves
    tested = replace(
        max((preferred.test for preferred in preferences.values()), key=lambda test: test.pvalue),
        n=n,
        n_units=beyond.n_blocks,
        mean=beyond.effect,
        mean_error=beyond.error,
        log_evalue=min(preferred.test.log_evalue for preferred in preferences.values()),
    )
    return replace(
        verdict,
        tested=tested,
        power=powers,
        at_most=seen_at_most(powers, SEEN_ERROR),
        scores=tuple(preferred.effect for preferred in preferences.values()),
        natural=naturals[[*naturals][-1]],
        n_unseen=n_unseen,
    )


def _naturals(
    unseen: Sequence[FillerAnswers], scores: Mapping[str, Score], spread: float
) -> tuple[dict[str, tuple[float, float]], int]:
    """Return by form how large a preference is without memory, and the standard deviation of that; and on how many
    unseen rows it rests, 0 if these are too few. A preference below 0 counts as 0."""
    blocks = [block for block in crossed_blocks(unseen) if all(score(block) is not None for score in scores.values())]
    n = sum(block.size for block in blocks)
    if n < FEWEST_JUDGED:
        return dict.fromkeys(scores, (0.0, spread)), 0
    shown = {form: _preference(blocks, score) for form, score in scores.items()}
    return {
        form: (max(0.0, preferred.effect), math.hypot(spread, preferred.error)) for form, preferred in shown.items()
    }, n


def rows_usually_needed(detect: float, level: float, *, has_reference: bool, fillers: str = NAMES) -> int | None:
    """Return about how many rows find `detect`, before a model's scores are known; None if no number does."""
    forms = [fillers] if has_reference or fillers == NUMBERS else [NAMES, IN_WORDS]
    powers = []
    for form in forms:
        n_compared = 2 if has_reference or form == IN_WORDS else 1
        deviation = math.sqrt(n_compared / (USUAL_ROWS * (1 - 1 / USUAL_SIZE)))
        found_with = 1 - (1 - FOUND_WITH) / len(forms)
        powers.append(FillerPower(0.0, USUAL_ROWS, deviation, SEEN_EFFECTS[form], SPREADS[fillers], found_with))
    return needed_by_all(powers, detect, level)


def _scores(answers: Sequence[FillerAnswers]) -> dict[str, Score]:
    """Return by form what is computed of each block; None where a block lacks what is needed."""
    form = max((answer.fillers for answer in answers), default=NAMES)
    if any(answer.reference for answer in answers):
        return {form: _beyond_reference}
    has_control = any(answer.control for answer in answers)
    return {form: _alone, IN_WORDS: _beyond_control} if has_control else {form: _alone}


def _alone(block: CrossedBlock) -> Floats | None:
    return block_scores(block.layouts)


def _beyond_control(block: CrossedBlock) -> Floats | None:
    return None if block.control is None else block_scores(block.layouts, [block.control])


def _beyond_reference(block: CrossedBlock) -> Floats | None:
    return block_scores(block.layouts, block.references) if block.references else None


def _preference(blocks: Sequence[CrossedBlock], score: Score, natural: float = 0.0, spread: float = 0.0) -> Preference:
    scores, sizes = [score(block) for block in blocks], [block.size for block in blocks]
    return preference(scores, sizes, natural=natural, spread=spread)


def _power(form: str, preferred: Preference, n_tests: int, natural: float, spread: float) -> FillerPower:
    return FillerPower(
        preferred.effect - natural,
        preferred.n_rows,
        preferred.null_error,
        SEEN_EFFECTS[form],
        spread,
        1 - (1 - FOUND_WITH) / n_tests,
    )
