"""Questions to be sealed, and seals with given draws."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from hypothesis import strategies as st

from lm_eval_leakage.seal.drawn import Original, Seal
from lm_eval_leakage.seal.folders import make_seal, private_files

TOOL = "lm-eval-leakage 0.0"
KEY = bytes(range(32))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)


def key(number: int) -> bytes:
    return sha256(str(number).encode()).digest()


def original(question: str = "Which is even?", choices: Sequence[str] = ("2", "3", "5", "7"), **others) -> Original:
    parts = {"wordings": (), "answers": (0,), "subject": "", "order": "drawn"} | others
    return Original(question=question, choices=tuple(choices), **parts)


def numbered(count: int, **others) -> list[Original]:
    return [
        original(f"Which is {number}?", [f"{number}{letter}" for letter in "abcd"], **others)
        for number in range(count)
    ]


def seal_of(originals: Sequence[Original], its_key: bytes = KEY) -> Seal:
    return make_seal("mine", TOOL, its_key, originals)


def written(folder: Path, originals: Sequence[Original]) -> Path:
    """Write the private folder of the questions, and return it."""
    for name, content in private_files(seal_of(originals), originals).items():
        (folder / name).write_bytes(content)
    return folder


@st.composite
def some_originals(draw: st.DrawFn) -> list[Original]:
    """Draw distinct questions with 2 to 26 options, other wordings, several right options, kept orders, held-out
    ones."""
    stems = draw(st.lists(TEXT, min_size=1, max_size=9, unique_by=lambda text: " ".join(text.split())))
    cuts = draw(st.lists(st.integers(1, 3), min_size=len(stems), max_size=len(stems)))
    originals = []
    while stems:
        question, *wordings = stems[: cuts[len(originals)]]
        del stems[: cuts[len(originals)]]
        choices = draw(st.lists(TEXT, min_size=2, max_size=26, unique_by=str.strip))
        places = st.integers(0, len(choices) - 1)
        originals.append(
            original(
                question,
                choices,
                wordings=tuple(wordings),
                answers=tuple(draw(st.lists(places, min_size=1, max_size=3, unique=True))),
                subject=draw(st.sampled_from(["", "maths"])),
                order=draw(st.sampled_from(["drawn", "kept"])) if originals else "drawn",
            )
        )
    return originals
