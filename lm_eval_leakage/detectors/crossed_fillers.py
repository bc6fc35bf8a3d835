"""Test whether a model prefers, in each row, the filler with which the row was published.

This tests benchmarks without options. A slot is a given name, or a number, that could as well be another one
(`questions.slots`); what stands in it is its filler. Rows are put into blocks, and each row is scored with every
filler of its block, from the filler to some words after it, since a model remembers mostly the text that follows. The
log-likelihoods of a block are a matrix that `stats.crossed_blocks` tests: how likely a row is and how common a filler
is cancel exactly.

Null hypothesis: which of a block's fillers stands in which row was as good as drawn at random by the author, so that a
model without memory prefers no placement of the fillers. Limits: names that fit their rows ("Betty's bakery sells
bagels") break it. The control form shows the row's words without their order, which leaves what fits and takes away
what could be remembered; the verdict needs the preference beyond the control form, too. No single row can be flagged.
Clean models prefer published numbers, so those of a benchmark whose fillers no key drew get a verdict only beside
another model or unseen rows. Source: ours; the exact test by what was drawn, Zhang et al. (arXiv 2409.19798).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from lm_eval_leakage.detectors import Probe, Statistic, check_choice, check_counts, probes, statistics
from lm_eval_leakage.questions.families import families, shared_texts
from lm_eval_leakage.questions.rendering import JSON_ROW
from lm_eval_leakage.questions.slots import (
    FINDERS,
    NAMES,
    Exchange,
    Slot,
    blocks_of,
    content_words,
    find_slot,
)
from lm_eval_leakage.records import (
    Answered,
    Block,
    DeclaredRow,
    FillerAnswers,
    Measurement,
    Question,
    Request,
    UntestableQuestion,
)
from lm_eval_leakage.registry import OUTSIDE_ID
from lm_eval_leakage.stats.crossed_blocks import block_scores, crossed_blocks, places_asked, preference
from lm_eval_leakage.stats.pooling import row_with_error

PROMPT, BOTH = "prompt", "both"
FILLER_LAYOUTS = {PROMPT: (PROMPT,), JSON_ROW: (JSON_ROW,), BOTH: (PROMPT, JSON_ROW)}
FIELD = "question"  # the key of the text in a row of JSON
# The reasons why a row is not tested.
IN_NO_BLOCK = "no block of rows has room for its name or number, which stands in too many other rows"
NEARLY_ANOTHER = "it is the same as another row, or nearly the same, but for what is exchanged, and both count as one"
NOT_DRAWN = "no key drew its filler: it has none, or no other row could exchange it"
ALONE = "no other row of the sample has a name of the same gender, or a number of as many digits"


@probes.register("crossed_fillers")
@dataclass(frozen=True)
class CrossedFillers(Probe):
    """Asks for the likelihood of a row with each filler of its block, the published one first.

    The context is the row up to its slot, the continuation a filler and the words after it.

    size: about so many rows exchange their names
    words: how many words after the name are scored
    layouts: layouts of the rows: "prompt", the benchmark's own; "json", a row of JSON; or "both"
    start: the text at the start of each document; None for the one after which the model finds the rows most likely
    fillers: what is exchanged, "names" or "numbers"
    pool: the rows of the run, which exchange their fillers
    drawn: returns the slot and the block of a sealed row; None if no key drew the fillers
    """

    exchanges_fillers: ClassVar[bool] = True
    size: int = 6
    words: int = 12
    layouts: str = BOTH
    start: str | None = field(default=None, metadata=OUTSIDE_ID)
    fillers: str = field(default=NAMES, metadata=OUTSIDE_ID)
    pool: tuple[Question, ...] = field(default=(), repr=False, metadata=OUTSIDE_ID)
    drawn: Callable[[Question], Exchange | None] | None = field(default=None, repr=False, metadata=OUTSIDE_ID)

    def __post_init__(self) -> None:
        check_counts(2, size=self.size)
        check_counts(0, words=self.words)
        check_choice("layouts", self.layouts, FILLER_LAYOUTS)
        check_choice("fillers", self.fillers, FINDERS)
        if not (self.start is None or isinstance(self.start, str)):
            raise ValueError(f"start is {self.start!r}; give a text, or leave it out")

    def with_pool(self, questions: Callable[[], Sequence[Question]]) -> CrossedFillers:
        """Return the same probe with the rows that exchange their fillers: those of the run."""
        return replace(self, pool=tuple(questions()))

    def with_exchanges(self, of: Callable[[Question], Exchange | None]) -> CrossedFillers:
        """Return the same probe with the slots and blocks of a sealed benchmark, which do not depend on the run."""
        return replace(self, drawn=of)

    @property
    def asked_layouts(self) -> tuple[str, ...]:
        return FILLER_LAYOUTS[self.layouts]

    def exchanging(self, fillers: str) -> CrossedFillers:
        """Return the same probe with another kind of fillers, names or numbers."""
        return replace(self, fillers=fillers)

    def starting_with(self, start: str) -> CrossedFillers:
        """Return the same probe with another text at the start of each document."""
        return replace(self, start=start)

    def requests(self, question: Question) -> tuple[Request, ...]:
        """Return one request per filler of the row's block, layout after layout."""
        fillers = _published_first(self.block(question))
        return tuple(self._request(question, layout, filler) for layout in self.asked_layouts for filler in fillers)

    def start_requests(self, question: Question) -> tuple[Request, ...]:
        """Return the requests by whose likelihood the start of documents is chosen: the row in each layout.

        The row has its published filler. In a sealed benchmark the fillers of a block are put into its rows in
        alphabetical order instead, so that the choice does not depend on what the key drew.
        """
        filler = self._slot(question).filler
        if self.drawn is not None:
            block = self.block(question)
            filler = sorted(block.fillers)[block.place]
        return tuple(self._request(question, layout, filler) for layout in self.asked_layouts)

    def control(self, question: Question) -> tuple[Request, ...]:
        """Return one request per filler of the row's block, each after the row's other words in alphabetical order."""
        words = content_words(question.stem, self._slot(question))
        context = f"{self.start or ''}Words: {', '.join(words)}. Name:"
        return tuple(Request(context, f" {filler}") for filler in _published_first(self.block(question)))

    def block(self, question: Question) -> Block:
        """Return the block of a row. Raises UntestableQuestion, with the reason, for a row that is in none."""
        if self.drawn is not None:
            return self._exchange(question).block
        if question.id in self._blocks:
            return self._blocks[question.id]
        slot = find_slot(question.stem, self.fillers)
        if question.id not in self._slots:
            raise UntestableQuestion(NEARLY_ANOTHER)
        alone = sum(other.kind == slot.kind for other in self._slots.values()) < 2
        raise UntestableQuestion(ALONE if alone else IN_NO_BLOCK)

    def _slot(self, question: Question) -> Slot:
        """Return the slot of a row that has a block."""
        return self._slots[question.id] if self.drawn is None else self._exchange(question).slot

    def _exchange(self, question: Question) -> Exchange:
        """Return the slot and the block of a sealed row; raises UntestableQuestion for a row that has none."""
        exchange = None if self.drawn is None else self.drawn(question)
        if exchange is None:
            raise UntestableQuestion(NOT_DRAWN)
        return exchange

    @cached_property
    def _slots(self) -> Mapping[str, Slot]:
        """Return the slots of the run's rows, by their ids.

        Among rows that are the same or nearly so but for their fillers, only the first has a slot here.
        """
        slots: dict[str, Slot] = {}
        texts = []
        for question in sorted(self.pool, key=lambda question: question.id):
            try:
                slots[question.id] = find_slot(question.stem, self.fillers)
            except UntestableQuestion:
                continue
            text = slots[question.id].filled(question.stem, "")
            texts.append(shared_texts(Question(question.id, text, ())))
        firsts = {*families(texts)}  # a family's number is the place of its first row
        return {row: slot for place, (row, slot) in enumerate(slots.items()) if place in firsts}

    @cached_property
    def _blocks(self) -> Mapping[str, Block]:
        """Return the blocks of the run's rows, by their ids; a row that fits into no block has none."""
        texts = {question.id: question.stem for question in self.pool if question.id in self._slots}
        blocks: dict[str, Block] = {}
        for rows in blocks_of(self._slots, texts, self.size):
            name = hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()[:12]
            fillers = tuple(self._slots[row].filler for row in rows)
            blocks |= {row: Block(name, fillers, place) for place, row in enumerate(rows)}
        return blocks

    def _request(self, question: Question, layout: str, filler: str) -> Request:
        """Return the request for a row with this filler in a layout: its slot and some words after it are scored."""
        slot = self._slot(question)
        text, begin = slot.filled(question.stem, filler), slot.begins[0]
        # the rest of the filler's word, such as an apostrophe and s, and whole words
        after = re.match(rf"\S*(?:\s+\S+){{0,{self.words}}}", text[begin + len(filler) :])
        end = begin + len(filler) + (after.end() if after else 0)
        before, scored = text[:begin], text[begin:end]
        if layout == JSON_ROW:
            before, scored = (json.dumps(part, ensure_ascii=False)[1:-1] for part in (before, scored))
            before = f'{{"{FIELD}": "{before}'
        elif question.prompt is not None:
            before = question.prompt[: question.prompt.rindex(question.stem)] + before
        return Request((self.start or "") + before, scored)


def _published_first(block: Block) -> list[str]:
    """Return the fillers of a block in the order of their requests: that of the row at `block.place` first."""
    return [block.fillers[place] for place in places_asked(block.place, len(block.fillers))]


@dataclass(frozen=True)
class FillerMeasurement(Measurement):
    """The log-likelihoods of a row with the fillers of its block; a verdict needs those of all rows.

    answers: the answers from which the verdict on the data set is computed
    own_loglikelihood: log-likelihood of the row with its own filler, nats, mean over layouts
    """

    answers: FillerAnswers
    own_loglikelihood: float


def _preference(verdicts: Sequence[object]) -> tuple[float, float]:
    """Return the mean preference for the published fillers over all blocks, and its standard error."""
    blocks = crossed_blocks(verdict.answers for verdict in verdicts if isinstance(verdict, FillerMeasurement))
    result = preference([block_scores(block.layouts) for block in blocks], [block.size for block in blocks])
    return result.effect, result.error


@statistics.register("crossed_blocks")
@dataclass(frozen=True)
class CrossedBlocks(Statistic):
    """Collects the log-likelihoods of each row; the verdict is on all rows together."""

    probe: ClassVar[str] = "crossed_fillers"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        row_with_error(
            "filler_preference",
            "Preference for the names with which rows were published, in standard deviations of a block's scores, per "
            "row. 0 is expected without leakage.",
            _preference,
            higher_is_better=False,
        ),
    )

    def verdict(self, question: Answered) -> FillerMeasurement:
        """Return the row's log-likelihoods."""
        answers = question.fillers
        assert answers is not None, "a probe that exchanges fillers makes the requests"
        published = [layout[answers.place] for layout in answers.loglikelihoods]
        return FillerMeasurement(answers, sum(published) / len(published))
