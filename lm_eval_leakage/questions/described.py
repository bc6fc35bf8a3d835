"""What questions are like, whether or not a model has seen them: properties in numbers, and digests of their texts.

Questions can be compared by these without their texts, which may be private.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from statistics import fmean

from lm_eval_leakage.records import Described, Question

STEM = "characters of the question"
OPTION = "characters of an option"
N_OPTIONS = "number of options"
GUARDED = "share with a natural order of options"
SCRIPT = "share of letters that are not Latin"
LAST_LATIN_LETTER = "\u024f"


def described(questions: Iterable[tuple[Question, bool]]) -> Described:
    """Of questions, each with whether it has a guard."""
    asked = list(questions)
    return Described(
        {
            STEM: tuple(float(len(question.stem.strip())) for question, _ in asked),
            OPTION: tuple(fmean(len(option.strip()) for option in question.options) for question, _ in asked),
            N_OPTIONS: tuple(float(len(question.options)) for question, _ in asked),
            GUARDED: tuple(float(guarded) for _, guarded in asked),
            SCRIPT: tuple(_not_latin(f"{question.stem} {' '.join(question.options)}") for question, _ in asked),
        },
        {text_digest(question): question.stem for question, _ in asked},
    )


def text_digest(question: Question) -> str:
    """Equal for questions that differ only in case, punctuation, white space or the order of their options."""
    parts = [_normalised(question.stem), *sorted(map(_normalised, question.options))]
    return blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _normalised(text: str) -> str:
    """Letters and digits in lower case; the text itself if it has none."""
    return "".join(character for character in text.casefold() if character.isalnum()) or text.strip()


def _not_latin(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(letter > LAST_LATIN_LETTER for letter in letters) / len(letters) if letters else 0.0
