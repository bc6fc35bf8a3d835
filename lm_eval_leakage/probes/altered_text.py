"""The published text and altered forms of it (upper case, shuffled words, after unseen questions) as controls.

No model was trained on the altered forms, so how likely they are says what the model knows without memorisation.
Null hypothesis: none; how much likelier a text is than its altered forms depends on the text. Limits: scripts without
capitals have no upper-case form; scores mean something only next to those of known-unseen questions. Source: upper
case, after the lower-case ratio of Carlini et al. (arXiv 2012.07805); shuffled words, after the neighbours of Mattern
et al. (arXiv 2305.18462); the prefix of unseen questions, from ReCaLL, Xie et al. (arXiv 2406.15968).
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.probes import probes
from lm_eval_leakage.probes.published_text import PublishedText
from lm_eval_leakage.questions.rendering import context_and_block
from lm_eval_leakage.records import Question, Request

N_UNSEEN = 5
PIECES = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\s\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")


@probes.register("altered_text")
@dataclass(frozen=True)
class AlteredText(PublishedText):
    """Requests: the whole text as published, in upper case, with its words shuffled, and as published after questions
    of our data set `fresh`, which no model has seen.

    format: as in `option_orders`
    """

    needs: ClassVar[str] = "loglikelihood"

    def requests(self, question: Question) -> tuple[Request, ...]:
        (published,) = super().requests(question)
        text = published.continuation
        return (
            published,
            Request("", text.upper()),
            Request("", shuffled(text, rng=random.Random(question.id))),
            Request(unseen_before(question), f"\n\n{text}"),
        )


def shuffled(text: str, *, rng: random.Random) -> str:
    """The text with its words (characters in Chinese and Japanese, which write no spaces) in random order."""
    pieces = PIECES.findall(text)
    rng.shuffle(pieces)
    return " ".join(pieces)


def unseen_before(question: Question) -> str:
    """N_UNSEEN questions that no model has seen, as one text; never includes `question` itself."""
    others = [text for stem, text in _unseen() if stem != question.stem]
    return "\n\n".join(others[:N_UNSEEN])


@cache
def _unseen() -> tuple[tuple[str, str], ...]:
    lines = (task_configs_path() / "fresh" / "fresh.jsonl").read_text(encoding="utf-8").splitlines()[: N_UNSEEN + 1]
    found = []
    for row in map(json.loads, lines):
        context, block = context_and_block(Question(row["id"], row["question"], tuple(row["choices"])), None)
        found.append((row["question"], context + block(row["choices"])))
    return tuple(found)
