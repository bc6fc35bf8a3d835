"""Situations with a known truth, through the command line: the verdict's word is right or withheld, and it is the same
on screen, on the page and in verdicts.json."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.cli.check import run_check as command
from lm_eval_leakage.results.verdict import VerdictWord
from tests.checking.conftest import NamedFake, OptionOrders, Typed, questions, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]

N = 420  # enough to call random orders random
ASKED = 120
# Memory in the published and in the control form. Once: those of SmolLM2-135M, whose published orders then stand out
# by 1.07 standard deviations, and by 0.40 from the control form; four times: 0.76, between 3 and 5 exposures
# (docs/validity.md).
ONCE, FOUR_TIMES = (1.2, 0.75), (2.2, 1.35)
TIDY = 0.8
Docs = list[dict[str, Any]]


def sorted_options(docs: Docs) -> Docs:
    """Half of the questions with options by length, as people write them."""
    return [
        doc | {"choices": sorted(doc["choices"], key=len)} if number % 2 else doc for number, doc in enumerate(docs)
    ]


RANDOM, WRITTEN, TWO = questions(N), sorted_options(questions(N, seed=1)), questions(N, n_options=2, seed=2)


@dataclass(frozen=True)
class Situation:
    """A benchmark and a model, and the words that are right for them.

    right: the words that are no mistake; text: what the reason must say
    """

    docs: Docs
    score: Callable[[str, str], float]
    right: Sequence[str]
    text: str = ""


FOUND, NOTHING = (
    (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE),
    (VerdictWord.NONE_FOUND, VerdictWord.INCONCLUSIVE),
)
SITUATIONS = {
    "clean model, random orders": Situation(RANDOM, OptionOrders(), NOTHING, "consistent with random ones"),
    "clean model, written orders": Situation(WRITTEN, OptionOrders(tidy=TIDY), NOTHING, "orders written by people"),
    "seen once, random orders": Situation(
        RANDOM, OptionOrders(RANDOM, ONCE), FOUND, "more than it does in both control forms"
    ),
    "seen once, written orders": Situation(
        WRITTEN, OptionOrders(WRITTEN, ONCE, TIDY), FOUND, "more than it does in both control forms"
    ),
    "seen four times": Situation(RANDOM, OptionOrders(RANDOM, FOUR_TIMES), [VerdictWord.STRONG_EVIDENCE]),
    "too few questions": Situation(
        RANDOM[:12], OptionOrders(RANDOM, FOUR_TIMES), [VerdictWord.NO_VERDICT], "at least 20 are needed"
    ),
    "two options, clean": Situation(TWO, OptionOrders(), [*NOTHING, VerdictWord.NO_VERDICT]),
    "two options, seen four times": Situation(
        TWO, OptionOrders(TWO, FOUR_TIMES), [VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE, VerdictWord.NO_VERDICT]
    ),
    "own benchmark without right options": Situation(
        [{key: doc[key] for key in ("question", "choices")} for doc in RANDOM], OptionOrders(), NOTHING
    ),
    "clean subset of a seen benchmark": Situation(
        RANDOM[: N // 2], OptionOrders(RANDOM[N // 2 :], FOUR_TIMES), NOTHING
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_word_is_right_or_withheld_and_the_same_everywhere(
    name: str, fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    situation, out = SITUATIONS[name], tmp_path / "out"
    code, screen, errors = typed("check", *words_of(situation, fakes, tmp_path, monkeypatch))
    assert code == 0, errors
    (record,) = json.loads((out / "verdicts.json").read_text())["verdicts"]
    assert record["verdict"] in situation.right, record["sentence"]
    assert situation.text in record["reason"]
    assert re.search(rf"^m on quiz: {record['verdict'].upper()}(: |$)", screen, re.MULTILINE)
    assert record["summary"] in screen
    assert " ".join(record["summary"].replace("`", "").split()) in read_aloud((out / "leakage.html").read_text())
    assert on_page((out / "leakage.html").read_text()) == record["verdict"]


def words_of(
    situation: Situation, fakes: type[NamedFake], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Sequence[object]:
    """Return the command's words and write the files that they name."""
    fakes.score = staticmethod(situation.score)
    monkeypatch.setattr(sys.modules[command.__module__], "only_warnings", lambda: None)
    file = written(folder, situation.docs)
    options = {
        "--model": "fake",
        "--model_args": "pretrained=m",
        "--questions": ASKED,
        "--include_path": folder,
    }
    return [*(word for pair in options.items() for word in pair), "--tasks", file, "--output_path", folder / "out"]


def read_aloud(page: str) -> str:
    """Return the page's text without the labels of its buttons."""
    return " ".join(html.unescape(re.sub(r"<button.*?</button>|<[^>]*>", "", page)).split())


def on_page(page: str) -> str:
    """The word of the first badge that a reader sees."""
    _, _, body = page.partition("<body")
    badge = re.search(r'class="badge [^"]*"[^>]*>([^<]*)<', body)
    assert badge is not None, "the page shows no verdict"
    return html.unescape(badge[1]).strip()
