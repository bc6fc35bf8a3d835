"""The verdict on a data set from a model's answers to its rows with exchanged fillers (`stats.crossed_blocks`).

The preference of a block for its published fillers is measured in one or two forms: in the rows as the benchmark shows
them (`names` or `numbers`), and in these minus the control form (`in words`). In the control form the words of a row
have no order, so that what fits a name stays and what could be remembered goes. Both tests must agree: the larger
p-value counts, and the preference that is reported is the one beyond the control form. With another model as
reference, its preferences are subtracted instead, in one form.

If a secret key drew the fillers, no natural preference is allowed for, and no control form is needed. If rows that the
model cannot have seen were asked in the same way, the natural preference is what they show, with its error.

Numbers are natural where they stand: clean models prefer the published ones. They are tested only beside another model
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
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_ERROR, Shares, needed_by_all, seen_at_most
from lm_eval_leakage.stats.pooling import Floats

NATURAL_SPREAD = 0.05  # standard deviations per row, between clean benchmarks: docs/validity.md
SPREADS = {NAMES: NATURAL_SPREAD, NUMBERS: 0.1}
NUMBERS_ALONE = (
    "its rows have no names, and models prefer published numbers without having seen them, so that numbers are only "
    "tested beside another model (`--reference pretrained=OTHER`) or new rows of the same kind (`--unseen FILE`)"
)
USUAL_ROWS, USUAL_SIZE = 200, 6  # rows, and rows of a block, for which the rows that are needed are computed
IN_WORDS = "in words"  # name of the form that is the rows minus the control form
BlockScore = Callable[[CrossedBlock], Floats | None]  # None for a block without the answers that it needs


def filler_verdict(answers: Sequence[FillerAnswers], unseen: Sequence[FillerAnswers] = ()) -> DataVerdict:
    """Return the verdict on rows with their fillers; without a test if there are too few rows in blocks.

    unseen: the answers to rows of the same kind that the model cannot have seen
    """
    n_asked = len(answers)
    # a group may have tasks whose rows have names, and others whose rows have only numbers
    fillers = NAMES if not answers or any(answer.fillers == NAMES for answer in answers) else NUMBERS
    answers = [answer for answer in answers if answer.fillers == fillers]
    scores = _scores_by_form(answers)
    compared = _scored_blocks(answers, scores)
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
    last_form = [*scores][-1]  # what the control form, or the reference, leaves
    beyond = preferences[last_form]
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
        natural=naturals[last_form],
        n_unseen=n_unseen,
    )


def _naturals(
    unseen: Sequence[FillerAnswers], scores: Mapping[str, BlockScore], spread: float
) -> tuple[dict[str, tuple[float, float]], int]:
    """Return the natural preference in each form, with its standard deviation, and the number of unseen rows on which
    that rests.

    For too few unseen rows, the preference is 0 with the usual deviation, and the number is 0. A preference below 0
    counts as 0.
    """
    blocks = _scored_blocks(unseen, scores)
    n = sum(block.size for block in blocks)
    if n < FEWEST_JUDGED:
        return dict.fromkeys(scores, (0.0, spread)), 0
    naturals = {}
    for form, score in scores.items():
        preferred = _preference(blocks, score)
        naturals[form] = max(0.0, preferred.effect), math.hypot(spread, preferred.error)
    return naturals, n


def rows_usually_needed(detect: float, level: float, *, has_reference: bool, fillers: str = NAMES) -> int | None:
    """Return about how many rows are needed to find the share `detect`, before a model's scores are known; None if no
    number is enough."""
    return needed_by_all(_usual_powers(USUAL_ROWS, fillers, has_reference=has_reference), detect, level)


def rows_usually_exclude(n: int, error: float, *, has_reference: bool, fillers: str = NAMES) -> Shares:
    """Return the shares that `n` rows can exclude with this error, before a model's scores are known: they do if the
    model prefers no published filler."""
    return seen_at_most(_usual_powers(n, fillers, has_reference=has_reference), error)


def _usual_powers(n: int, fillers: str, *, has_reference: bool) -> list[FillerPower]:
    """Return the power of each form for n rows whose published fillers a model does not prefer."""
    forms = [fillers] if has_reference or fillers == NUMBERS else [NAMES, IN_WORDS]
    powers = []
    for form in forms:
        n_compared = 2 if has_reference or form == IN_WORDS else 1
        deviation = math.sqrt(n_compared / (n * (1 - 1 / USUAL_SIZE)))
        found_with = 1 - (1 - FOUND_WITH) / len(forms)
        powers.append(FillerPower(0.0, n, deviation, SEEN_EFFECTS[form], SPREADS[fillers], found_with))
    return powers


def _scores_by_form(answers: Sequence[FillerAnswers]) -> dict[str, BlockScore]:
    """Return the score of a block in each form that the answers allow; the last one is beyond the control form or the
    reference, if there is either."""
    form = max((answer.fillers for answer in answers), default=NAMES)
    if any(answer.reference for answer in answers):
        return {form: _beyond_reference}
    has_control = any(answer.control for answer in answers)
    return {form: _alone, IN_WORDS: _beyond_control} if has_control else {form: _alone}


def _scored_blocks(answers: Sequence[FillerAnswers], scores: Mapping[str, BlockScore]) -> list[CrossedBlock]:
    """Return the blocks that have a score in every form."""
    return [block for block in crossed_blocks(answers) if all(score(block) is not None for score in scores.values())]


def _alone(block: CrossedBlock) -> Floats | None:
    """Return the scores of a block by the rows as the benchmark shows them."""
    return block_scores(block.layouts)


def _beyond_control(block: CrossedBlock) -> Floats | None:
    """Return the scores of a block minus those in the control form."""
    return None if block.control is None else block_scores(block.layouts, [block.control])


def _beyond_reference(block: CrossedBlock) -> Floats | None:
    """Return the scores of a block minus those by the reference model."""
    return block_scores(block.layouts, block.references) if block.references else None


def _preference(
    blocks: Sequence[CrossedBlock], score: BlockScore, natural: float = 0.0, spread: float = 0.0
) -> Preference:
    """Return the preference of all blocks together, tested against a natural one with its standard deviation."""
    scores, sizes = [score(block) for block in blocks], [block.size for block in blocks]
    return preference(scores, sizes, natural=natural, spread=spread)


def _power(form: str, preferred: Preference, n_tests: int, natural: float, spread: float) -> FillerPower:
    """Return what a test in one form finds, if each of `n_tests` tests must find it."""
    return FillerPower(
        preferred.effect - natural,
        preferred.n_rows,
        preferred.null_error,
        SEEN_EFFECTS[form],
        spread,
        1 - (1 - FOUND_WITH) / n_tests,
    )
