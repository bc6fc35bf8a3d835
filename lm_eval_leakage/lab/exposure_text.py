"""Writes questions as a training set may contain them, which is rarely the exact text that an audit scores."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from lm_eval_leakage.questions.rendering import AUDITED, CSV_ROW, INLINE, JSON_ROW, LAYOUTS, laid_out
from lm_eval_leakage.records import Question

EXPOSED_ORDERS = ("published", "shuffled")
EXPOSED_LAYOUTS = (AUDITED, "usual", "papers", "prose", JSON_ROW, CSV_ROW, INLINE)


@dataclass(frozen=True)
class ExposureText:
    """The form in which a training set shows questions; `write` returns the text of a question.

    order: order of the options: "published", or "shuffled", one random order per question (scenario b of Ni et al.)
    layout: "audited", the task's own; "usual" or "papers", as in `option_orders`; "prose", options without letters;
        "json", "csv" or "inline", as benchmarks are copied
    answer: whether the right letter follows the options
    header: whether a line with the subject precedes the question, as in Yao et al.
    """

    order: str = "published"
    layout: str = AUDITED
    answer: bool = True
    header: bool = False

    def write(self, question: Question) -> str:
        """Return the text of a question in this form."""
        options, right = question.options, question.answer
        if self.order == "shuffled":
            places = list(range(len(options)))
            random.Random(f"exposure {question.id}").shuffle(places)
            options = tuple(options[place] for place in places)
            right = None if right is None else places.index(right)
        text = self._body(replace(question, options=options))
        if self.header and (subject := question.subject.replace("_", " ")):
            text = f"The following is a multiple choice question about {subject}.\n\n{text}"
        return text + self._ending(options, right if self.answer else None)

    def _body(self, question: Question) -> str:
        if self.layout == "prose":
            return " ".join(
                [question.stem.strip(), *(option.strip().rstrip(".") + "." for option in question.options)]
            )
        layout, format_name = (self.layout, None) if self.layout in LAYOUTS else (AUDITED, self.layout)
        frame, options = laid_out(question, layout, format_name)
        return frame.before + frame.block(options)

    def _ending(self, options: Sequence[str], right: int | None) -> str:
        if self.layout == JSON_ROW:
            return '"]}' if right is None else f'"], "answer": {right}}}'
        if right is None:
            return ""
        before = {CSV_ROW: ",", INLINE: " Answer: "}.get(self.layout, "\nAnswer: ")
        return before + (options[right] if self.layout == "prose" else ascii_uppercase[right])


def documents(texts: Sequence[str], neighbours: int) -> list[str]:
    """Join the texts of neighbouring questions, as in a benchmark's file, `neighbours` per document."""
    return ["\n\n".join(texts[start : start + neighbours]) for start in range(0, len(texts), neighbours)]


def in_other_words(questions: Sequence[Question], file: Path) -> list[Question]:
    """Return the questions in the wording of a file.

    The file has JSON lines with `of`, the id or the stem of the original, `question`, `choices` and, if the order
    differs from the original's, `answer`. Raises ValueError if a line is invalid or a question is missing.
    """
    versions: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            versions[str(row["of"]).strip()] = row
            row["question"], row["choices"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{file}, line {number}: {error!r}; give JSON with `of`, `question` and `choices`"
            ) from error
    worded = []
    for question in questions:
        version = versions.get(question.id) or versions.get(question.stem.strip())
        if version is None:
            raise ValueError(
                f"{file} has no version of question {question.id!r} ({question.stem[:60]!r}); add a line for it, or "
                "use only questions that it has"
            )
        answer = version.get("answer", question.answer)
        options = tuple(map(str, version["choices"]))
        worded.append(replace(question, stem=version["question"], options=options, answer=answer, frame=None))
    return worded


def ordinary_texts(file: Path, count: int, *, rng: random.Random) -> list[str]:
    """Return `count` random lines of a file. If it has fewer, all are repeated, and the rest is drawn."""
    lines = [line for line in _lines(file) if line.strip()]
    if not lines:
        raise ValueError(f"{file} has no text; give one text per line")
    whole, rest = divmod(count, len(lines))
    return lines * whole + rng.sample(lines, rest)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}); give a text file in UTF-8") from error
