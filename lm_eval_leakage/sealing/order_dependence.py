"""Finds questions whose options mean something else in another order: those must not be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lm_eval_leakage.questions.guards import letters_meant, speaks_of_others

_LETTER = r"\(?[A-Z](?![A-Za-z0-9])"
_BY_LETTER = re.compile(
    rf"\b(?:(?:options?|choices?|answers?|alternatives?|antwort(?:en)?|opci[oó]n(?:es)?|respuestas?|réponses?)\s+"
    rf"(?-i:{_LETTER})|(?:options?|choices?)\s+\(?[1-9](?!\w))|选项\s*{_LETTER}",
    re.IGNORECASE,
)
_BY_PLACE = re.compile(
    r"\b(?:first|second|third|fourth|fifth|last|previous|preceding)\s+"
    r"(?:(?:two|three|four)\s+)?(?:options?|choices?|alternatives?)\b",
    re.IGNORECASE,
)
_ONE_LETTER = re.compile(r"^\W*(?:(?i:only)\s+\(?[A-HJ]|[A-HJ]\)?\s+(?i:only))\W*$")  # "I only" is a Roman numeral
_SOME_LETTERS = re.compile(
    r"\b(?i:both|either|neither)\s+\(?[A-J]\)?\s+(?i:and|or|nor)\s+\(?[A-J]\)?\s+(?i:is|are|apply|applies|above)\b"
)


def order_dependence(wordings: Iterable[str], options: Sequence[str]) -> str | None:
    """Why the options must stay in the author's order, in words; None if nothing says so."""
    for option in options:
        if speaks_of_others(option):
            return f"option {option!r} refers to the others"
        if _names_letters(option):
            return f"option {option!r} names options by letter"
        if _BY_PLACE.search(option):
            return f"option {option!r} names options by their place"
    for wording in wordings:
        if found := _BY_LETTER.search(wording) or _BY_PLACE.search(wording):
            return f"the question says {found[0]!r}"
    return None


def _names_letters(option: str) -> bool:
    """Whether an option names others by letter, capital or not: "both A and C", "b and c only", "B only"."""
    found = _ONE_LETTER.match(option) or _SOME_LETTERS.search(option) or _BY_LETTER.search(option)
    return bool(found or letters_meant(option))
