"""Near copies of questions, and rows that name their right options in every way."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.questions.families import shared_texts
from lm_eval_leakage.records import OrderAnswers, Question
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.verdict_words import sentence_of
from tests.faults.tally import Tally, attack

N_QUESTIONS, N_ORDERS = 40, 6
PARTS = ("ba", "do", "fe", "gi", "ko", "lu", "me", "ni", "pa", "ro", "su", "ta", "ve", "wi", "zo")
SCRIPTS: Sequence[Sequence[str]] = (
    [f"{part}{other}" for part in PARTS for other in PARTS],
    [chr(0x4E00 + 37 * number) for number in range(200)],  # ideographs
    [f"{chr(0x430 + number % 31)}{chr(0x430 + number // 7)}й" for number in range(200)],
)


def _text(rng: random.Random, words: Sequence[str], n: int) -> str:
    spaced = "" if len(words[0]) == 1 else " "
    return spaced.join(rng.sample(words, n))


EDITS: Sequence[Callable[[str, random.Random], str]] = (
    lambda text, rng: text,
    lambda text, rng: f"{text}.",
    lambda text, rng: f"the {text}",
    lambda text, rng: text.upper(),
    lambda text, rng: f"“{text}”",
    lambda text, rng: f"  {text.replace(' ', '  ')} !",
    lambda text, rng: text.replace(" ", "-"),
    lambda text, rng: f"{text}\u200b",
)
STARTS = ("", "2. ", "Q: ", "17) ", "(a) ", "Question 3: ", "A ")


def _near_copy(question: Question, rng: random.Random) -> Question:
    """The same question with another number, article, punctuation, case, or one more word before its stem."""
    edit = rng.choice(EDITS)
    stem = f"{rng.choice(STARTS)}{rng.choice(EDITS)(question.stem, rng)}"
    options = [edit(option, rng) for option in question.options]
    if rng.random() < 0.3:
        options = [f"({letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    return replace(question, stem=stem, options=tuple(options))


@attack("near copies of questions", 60, 5)
def near_copies_of_questions(tally: Tally, _: Path, tries: int, rng: random.Random) -> None:
    """Forty questions, each one to four times in other dress and answered alike: word, number of units and error of
    the verdict must be those of each question as often with one text."""
    for _ in range(tries):
        words, status = rng.choice(SCRIPTS), rng.choice([OrderStatus.DRAWN, OrderStatus.WRITTEN])
        memory, plain, copied = rng.choice([0.0, 0.5, 2.0]), list[OrderAnswers](), list[OrderAnswers]()
        for number in range(N_QUESTIONS):
            options = tuple(_text(rng, words, 3) for _ in range(4))
            question = Question(str(number), _text(rng, words, 9), options)
            form = [rng.gauss(0, 1) for _ in range(3 * N_ORDERS)]
            form[0] += memory
            answers = OrderAnswers(tuple(form[:N_ORDERS]), status, control=tuple(form[N_ORDERS:]))
            for _ in range(rng.randint(1, 4)):
                plain.append(replace(answers, shared=(f"question {number}",)))
                copied.append(replace(answers, shared=shared_texts(_near_copy(question, rng))))
        verdict, expected = data_verdict(copied), data_verdict(plain)
        tally.tries += 1
        is_same = (verdict.word, verdict.tested.n_units) == (expected.word, expected.tested.n_units)
        is_same &= math.isclose(verdict.tested.mean_error, expected.tested.mean_error)
        tally.record(f"{sentence_of(verdict)} instead of {sentence_of(expected)}", wrong=not is_same)


def _marks(place: int, n_options: int) -> list[int]:
    return [int(option == place) for option in range(n_options)]


NAMED: Sequence[Callable[[int, Sequence[str]], object]] = (
    lambda place, options: place,
    lambda place, options: place + 1,
    lambda place, options: str(place + 1),
    lambda place, options: float(place),
    lambda place, options: ascii_uppercase[place],
    lambda place, options: f"({ascii_lowercase[place]})",
    lambda place, options: options[place],
    lambda place, options: [place],
    lambda place, options: [ascii_uppercase[place]],
    lambda place, options: [options[place]],
    lambda place, options: _marks(place, len(options)),
    lambda place, options: [bool(mark) for mark in _marks(place, len(options))],
    lambda place, options: dict(zip(options, _marks(place, len(options)), strict=True)),
    lambda place, options: dict(zip(ascii_uppercase, _marks(place, len(options)), strict=False)),
)
FIELDS = ("answer", "answer_index", "answer_idx", "answerKey", "gold", "label", "labels", "target", "answers")
Row = dict[str, Any]


def _row(
    place: int, options: Sequence[str], kind: int, field: str, name: Callable[[int, Sequence[str]], object]
) -> Row:
    """Return a row of a benchmark.

    kind: whether the options are under `choices` or `options`, or have marks
    """
    marks = _marks(place, len(options))
    by_text = dict(zip(options, marks, strict=True))
    return (
        {"choices": options, field: name(place, options)},
        {"options": options, field: name(place, options)},
        {"mc1_targets": {"choices": options, "labels": marks}},
        {"mc2_targets": {"choices": options, "labels": marks}},
        {"mc1_targets": by_text},
        {"target_scores": by_text},
        {"choices": {"text": options, "label": marks}},
    )[kind]


@attack("right answers named in every way", 400, 20)
def right_answers_in_every_way(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Files that name right options by letter, index, text, list or mark, in fields of many names; in some of them a
    row withholds it, has several, or says something else. The benchmark that `check` makes of a file must have the
    right options, or be without an accuracy or refused, with the reason."""
    folder.mkdir()
    for number in range(tries):
        n_options, kind = rng.randint(2, 5), rng.choice([0, 0, 1, 1, 2, 3, 4, 5, 6])
        field, name = rng.choice(FIELDS), rng.choice(NAMED)
        options = [[f"w{row}{letter}" for letter in ascii_lowercase[:n_options]] for row in range(20)]
        places = [0, n_options - 1, *(rng.randrange(n_options) for _ in options[2:])]
        rows = [_row(place, option, kind, field, name) for place, option in zip(places, options, strict=True)]
        spoiled = rng.choice([None, None, None, None, -1, "", "no option", [0, 1], {"a": 1}, 77]) if kind < 2 else None
        expected: list[int | None] = list(places)
        if spoiled is not None:
            rows[7][field] = spoiled
            expected[7] = 1 if spoiled == [0, 1] and n_options == 2 else None
        file = folder / f"rows{number}.jsonl"
        file.write_text("".join(f"{json.dumps({'question': f'Which of {n}?'} | row)}\n" for n, row in enumerate(rows)))
        tally.tries += 1
        try:
            task = write_task(file, folder, file.stem)
        except ValueError as error:
            is_right, note = spoiled is not None and "row 8" in str(error), str(error)
        else:
            written = (folder / f"{task.name}.jsonl").read_text().splitlines()
            answers, note = [json.loads(line).get("answer") for line in written], task.unscored
            is_right = answers == expected and ("row 8" in note) == (None in expected)
        tally.record(f"{rows[:8]}: {note}", wrong=not is_right)
