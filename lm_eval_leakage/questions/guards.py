"""What in a question's options gives one order a natural preference, so that it stands out without any leakage.

A guard is a reason to read a flag on the question with doubt. Each is a function of the options alone, except
`templated`, which needs the other questions. Found by their wording, in English and Chinese (the benchmarks'
languages) and, for "all of the above", some others; a guard that is not named is no proof that there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from lm_eval_leakage.questions.guard_wording import (
    Options,
    anchored,
    combining,
    gives_up,
    letters_meant,
    of_statements,
    repeated,
    speaks_of_others,
    true_or_false,
)
from lm_eval_leakage.questions.natural_orders import cumulative, in_order
from lm_eval_leakage.records import Question

__all__ = ["anchored", "guards_of", "templates_of"]

MANY = 5  # questions with the same set of options make it a template

OF_ONE_QUESTION: dict[str, Callable[[Options], bool]] = {
    "anchored": lambda options: any(speaks_of_others(option) for option in options),
    "letters": lambda options: any(letters_meant(option) for option in options),
    "combining": combining,
    "no_answer": lambda options: any(gives_up(option) for option in options),
    "in_order": in_order,
    "cumulative": cumulative,
    "true_or_false": true_or_false,
    "of_statements": of_statements,
    "repeated": repeated,
}
TEMPLATED = "templated"


def guards_of(question: Question, templates: frozenset[frozenset[str]] = frozenset()) -> tuple[str, ...]:
    """The names of the guards on `question`; `templates` as `templates_of` finds them."""
    found = [name for name, holds in OF_ONE_QUESTION.items() if holds(question.options)]
    return (*found, *([TEMPLATED] if _as_set(question) in templates else []))


def templates_of(questions: Iterable[Question]) -> frozenset[frozenset[str]]:
    """Sets of options that at least `MANY` of the questions share, whatever their order."""
    counts = Counter(map(_as_set, questions))
    return frozenset(options for options, count in counts.items() if count >= MANY)


def _as_set(question: Question) -> frozenset[str]:
    return frozenset(option.strip().casefold() for option in question.options)
