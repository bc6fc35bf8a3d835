"""Finds questions in prompts of any wording, by which logs of other tools are joined with audits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from lm_eval_leakage.questions.families import comparable

T = TypeVar("T")


class QuestionsInPrompts(Generic[T]):
    """The questions to be found, each as its stem, its options and what `find` returns for it."""

    def __init__(self, known: Iterable[tuple[str, Sequence[str], T]]) -> None:
        self._by_options: dict[tuple[str, ...], list[tuple[str, T]]] = defaultdict(list)
        for stem, options, one in known:
            if (text := comparable(stem)) and options:
                self._by_options[_set_of(options)].append((text, one))

    def find(self, prompt: str, options: Sequence[str]) -> T | None:
        """The question with these options, in any order, that the prompt asks: its stem begins a line, or follows a
        colon, and ends a line. Of several the one that ends last, since examples come first; of those the longest."""
        text = "\n".join(map(comparable, prompt.splitlines()))
        known = self._by_options.get(_set_of(options), [])
        places = [
            (found.end(), len(stem), number)
            for number, (stem, _) in enumerate(known)
            for found in re.finditer(rf"(?:\A|\n|[:：] ?){_anywhere(stem)}(?=\n|\Z)", text)
        ]
        return known[max(places)[2]][1] if places else None


def _set_of(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(map(comparable, options)))


def _anywhere(stem: str) -> str:
    """A pattern of the stem, whose lines the prompt may break elsewhere."""
    return r"\s+".join(map(re.escape, stem.split(" ")))
