"""Reads an author's rows as questions to be sealed, with a reason for every row that is not used or not drawn.

Rows may have fields besides those of any question: `wordings` (other texts of the question), a list of equally right
options as `answer` or `answers`, and `seal`, by which the author decides whether the options are drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, Literal

from lm_eval_leakage.questions.families import question_key
from lm_eval_leakage.questions.fields import ANSWERS, fields_read, right_options, well_formed
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.seal.drawn import AuthorRow, OrderFate, Original, order_dependence
from lm_eval_leakage.texts import brief, canonical

OrderRule = Literal["keep", "hold_out", "refuse"]
ORDER_RULES: tuple[OrderRule, ...] = ("keep", "hold_out", "refuse")
WORDS_OF_AUTHORS: dict[str, OrderFate] = {"permute": "drawn", "keep": "kept", "hold_out": "held out"}
WRONG_ROWS_NAMED = 5
OF_TEXTS_TOO = ("seal", "subject", "category", "Subject", "Category")
OTHER_FIELDS_READ = ("wordings", *OF_TEXTS_TOO, *ANSWERS)
RowReading = tuple[Mapping[str, Any], Question | UntestableQuestion]  # fields of a row, and the question in them
Notes = tuple[tuple[int, str], ...]  # numbers of rows, from 1, each with a sentence for the author


@dataclass(frozen=True)
class ExaminedRows:
    """Holds the author's rows as they were read, and notes on the rows that are not used or not drawn.

    originals: the questions, in the author's order, those to be held out among them
    unusable: rows that are left out
    dependent: questions that are not drawn, since their options seem to depend on their order
    kept: texts without options that are published as they are
    n_marked: number of drawn texts of which the author marked the slot
    """

    originals: tuple[AuthorRow, ...]
    unusable: Notes
    dependent: Notes
    kept: Notes = ()
    n_marked: int = 0


class WrongField(Exception):
    """Raised if a field for sealing has a value that is not allowed."""


def unpublished_fields(rows: Iterable[Mapping[str, Any]], of_texts: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the fields that no sealed folder has.

    of_texts: the names of the fields from which rows without options are read
    """
    names: dict[str, None] = {}
    for row in rows:
        read = {*of_texts, *OF_TEXTS_TOO} if of_texts else fields_read(row).union(OTHER_FIELDS_READ)
        names |= dict.fromkeys(name for name in row if name not in read)
    return tuple(names)


def examine_rows(rows: Iterable[RowReading], rule: OrderRule) -> ExaminedRows:
    """Return the author's rows as questions.

    rows: the fields of each, and the question in it, or the reason why there is none

    Raises ValueError if a field for sealing is wrong, if no question is left to be published, or, with the rule
    "refuse", if options depend on their order; it names the rows and the remedy.
    """
    originals, rows_with = list[Original](), dict[str, int]()
    unusable, dependent, wrong = list[tuple[int, str]](), list[tuple[int, str]](), list[tuple[int, str]]()
    for number, (fields, question) in enumerate(rows, 1):
        try:
            if isinstance(question, UntestableQuestion):
                raise question
            _check_options(question.options)
            wordings = _wordings(fields.get("wordings"), question.stem)
            answers = _answers(fields)
            versions = [question_key(replace(question, stem=wording)) for wording in (question.stem, *wordings)]
            same = next((rows_with[version] for version in versions if version in rows_with), None)
            if same is not None:
                raise UntestableQuestion(f"it asks the same as row {same}; remove or reword one of them")
            rows_with |= dict.fromkeys(versions, number)
            order, why = _order(fields.get("seal"), (question.stem, *wordings), question.options, rule)
        except UntestableQuestion as reason:
            unusable.append((number, str(reason)))
        except WrongField as reason:
            wrong.append((number, str(reason)))
        else:
            dependent += [(number, why)] if why else []
            originals.append(Original(question.stem, wordings, question.options, answers, question.subject, order))
    if wrong:
        raise ValueError(f"{rows_in_words(wrong)}; fix or remove these fields")
    if rule == "refuse" and dependent:
        raise ValueError(
            f"options depend on their order: {rows_in_words(dependent)}; reword these, or give them the field seal: "
            "keep, hold_out or permute"
        )
    if all(original.order == "held out" for original in originals):
        raise ValueError(f"no question is left to be published: {rows_in_words(unusable) or 'all are held out'}")
    return ExaminedRows(tuple(originals), tuple(unusable), tuple(dependent))


def rows_in_words(notes: Sequence[tuple[int, str]]) -> str:
    """Return the first rows with their reasons, and how many more there are."""
    shown = "; ".join(f"row {number}: {reason}" for number, reason in notes[:WRONG_ROWS_NAMED])
    more = len(notes) - WRONG_ROWS_NAMED
    return f"{shown}; and {more} more rows" if more > 0 else shown


def _order(
    word: object, wordings: Sequence[str], options: Sequence[str], rule: OrderRule
) -> tuple[OrderFate, str | None]:
    """Return what becomes of the order of the options, and the reason if they seem to depend on it.

    word: the author's decision; None leaves it to the rule
    """
    if word is None:
        why = order_dependence(wordings, options)
        return ("drawn" if why is None else "held out" if rule == "hold_out" else "kept"), why
    if not isinstance(word, str) or word not in WORDS_OF_AUTHORS:
        raise WrongField(f"seal is {brief(word)}; it must be one of: {', '.join(WORDS_OF_AUTHORS)}")
    return WORDS_OF_AUTHORS[word], None


def _check_options(options: Sequence[str]) -> None:
    """Raise UntestableQuestion if the options are too few, too many or equal."""
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise UntestableQuestion(f"it has {len(options)} option(s); give it 2 to {len(ascii_uppercase)}")
    read = list(map(canonical, options))
    for option in read:
        equal = [letter for letter, other in zip(ascii_uppercase, read, strict=False) if other == option]
        if len(equal) > 1:
            raise UntestableQuestion(f"its options {' and '.join(equal)} are equal; change or remove one of them")


def _wordings(wordings: object, stem: str) -> tuple[str, ...]:
    """Return the other wordings; raise WrongField if they are not distinct texts."""
    if wordings is None:
        return ()
    if (
        not isinstance(wordings, list)
        or not all(isinstance(wording, str) and wording.strip() for wording in wordings)
        or len({canonical(text) for text in (stem, *wordings)}) <= len(wordings)
    ):
        raise WrongField(
            f"wordings is {brief(wordings)}; give a list of other texts of the question, none empty or twice"
        )
    return tuple(map(well_formed, wordings))


def _answers(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """Return all equally right options; raise UntestableQuestion if the row names none, or something else."""
    field = next((name for name in ("answers", "answer") if isinstance(fields.get(name), (list, tuple))), None)
    places = right_options(fields, field)
    if not places:
        raise UntestableQuestion(
            f"its right option is not known (answer: {brief(fields.get('answer'))}); name it by letter, by its index "
            "from 0, or as a list of these"
        )
    return places
