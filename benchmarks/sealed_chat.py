"""After how many exposures do guesses by generated text show that a model has seen a sealed benchmark? Are they exact?

    python benchmarks/sealed_chat.py --folder FOLDER --model pretrained=DIR > tables.md

Seals MMLU questions with a new key, trains copies of the model on a part of what would be public, question by
question, and asks each copy about all of them, with and without the model's chat template. The replies of the copies
are also judged as if other keys had published the questions. A run that was killed continues where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from models import load_model
from scipy.stats import binom
from sealed import drawn_questions, key_of, question_of, version
from transformers import AutoTokenizer

from lm_eval_leakage.detectors.guesses import PublishedGuess
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.tasks.task import framed_texts, framing, request_arguments
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.settings import pretrained_of
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.questions.rendering import candidate_in_reply
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.seal.drawn import KeyedDraws, new_key
from lm_eval_leakage.stats.sealed import hits_pvalue

EXPOSURES = (0, 1, 2, 5, 10)
FORMS: Mapping[str, tuple[PublishedGuess, bool]] = {  # the probe, and whether the chat template is applied
    "`next`, no instruction": (PublishedGuess(instruction="{{ question }}"), False),
    "the same, 1 shown": (PublishedGuess(instruction="{{ question }}", shown=1), False),
    "the same, 2 shown": (PublishedGuess(instruction="{{ question }}", shown=2), False),
    "`next`": (PublishedGuess(), False),
    "`next`, chat": (PublishedGuess(), True),
    "`next`, no instruction, chat": (PublishedGuess(instruction="{{ question }}"), True),
    "`pair`": (PublishedGuess(chat_form="pair"), False),
    "`pair`, chat": (PublishedGuess(chat_form="pair"), True),
}


@dataclass(frozen=True)
class Guesses:
    """The guesses on some questions: how many replies name a candidate, and how many of these the published one."""

    n_guesses: int
    n_hits: int
    pvalue: float

    @property
    def cells(self) -> list[str]:
        return [str(self.n_guesses), str(self.n_hits), f"{self.pvalue:.2g}"]


def guesses(form: PublishedGuess, questions: Sequence[Question], replies: Sequence[str]) -> Guesses:
    hits, rates = [], []
    for question, reply in zip(questions, replies, strict=True):
        candidates = form.candidates(question)
        place = candidate_in_reply(reply, candidates)
        if place is not None:
            hits.append(place == 0)
            rates.append(1 / len(candidates))
    return Guesses(len(hits), sum(hits), hits_pvalue(hits, rates))


def replies_of(lm: Any, questions: Sequence[Question], form: PublishedGuess, is_chat: bool) -> list[str]:
    framed = framing("", lm.apply_chat_template if is_chat else None)
    prompts = []
    for place, question in enumerate(questions):
        ((context, continuation),) = framed_texts(form.requests(question), framed)
        prompts.append(Instance("generate_until", {}, request_arguments(form, lm, context, continuation), place))
    return [str(reply) for reply in lm.generate_until(prompts, disable_tqdm=True)]


def all_replies(args: argparse.Namespace, questions: Sequence[Question]) -> dict[str, dict[str, list[str]]]:
    """Replies by exposures and form."""
    source, file = pretrained_of(args.model), args.folder / "replies.json"
    replies_of_copies: dict[str, dict[str, list[str]]] = json.loads(file.read_text()) if file.exists() else {}
    for n in EXPOSURES:
        replies_of_copies.setdefault(str(n), {})
    if all(replies_of_copy.keys() >= FORMS.keys() for replies_of_copy in replies_of_copies.values()):
        return replies_of_copies
    texts = [ExposureText().write(question) for question in questions[: args.trained]]
    copies = train(source, args.folder / "copies", texts, Recipe(), [n for n in EXPOSURES if n], seed=0)
    for n in EXPOSURES:
        lm = load_model("hf", args.model.replace(str(source), str(copies.get(n, source))))
        for name in FORMS.keys() - replies_of_copies[str(n)].keys():
            replies_of_copies[str(n)][name] = replies_of(lm, questions, *FORMS[name])
            atomic_write(file, json.dumps(replies_of_copies))
    return replies_of_copies


def table_of(replies: Mapping[str, Mapping[str, Sequence[str]]], questions: Sequence[Question], n_trained: int) -> str:
    lines = [["form", "exposures", "guesses", "hits", "p", "held out: guesses", "hits", "p"]]
    for name, (form, _) in FORMS.items():
        for n, of_copy in replies.items():
            seen = guesses(form, questions[:n_trained], of_copy[name][:n_trained])
            unseen = guesses(form, questions[n_trained:], of_copy[name][n_trained:])
            lines.append([name, n, *seen.cells, *unseen.cells])
    return markdown_of(lines)


def size(
    replies: Mapping[str, Mapping[str, Sequence[str]]], questions: Sequence[Question], name: str, n_keys: int
) -> Iterator[str]:
    """Return a table of the p-values of the same replies, had other keys drawn the published orders."""
    form, _ = FORMS[name]
    others = [[reordered(question, key) for question in questions] for key in (new_key() for _ in range(n_keys))]
    lines = [["exposures", "guesses", "p at most .05", ".01", "of an exact test", "95 % of exact tests"]]
    for n, of_copy in replies.items():
        drawn = [guesses(form, reordered_questions, of_copy[name]) for reordered_questions in others]
        pvalues, n_guesses = np.array([question.pvalue for question in drawn]), drawn[0].n_guesses
        rates = [f"{np.mean(pvalues <= level):.3f}" for level in (0.05, 0.01)]
        exact = [attained(n_guesses, level) for level in (0.05, 0.01)]
        ends = [
            " to ".join(f"{end / n_keys:.3f}" for end in binom.ppf([0.025, 0.975], n_keys, rate)) for rate in exact
        ]
        lines.append(
            [
                n,
                str(n_guesses),
                *rates,
                ", ".join(f"{rate:.3f}" for rate in exact),
                "; ".join(ends),
            ]
        )
    yield markdown_of(lines)


def reordered(question: Question, key: bytes) -> Question:
    """Return the question as another key would have published it: any order, drawn uniformly, has the same replies,
    since nothing of the order is shown."""
    order = KeyedDraws(key, "options", question.stem.encode()).order(len(question.options))
    return replace(question, options=tuple(question.options[place] for place in order))


def attained(n: int, level: float, rate: float = 0.25) -> float:
    """Probability that an exact binomial p-value of n guesses is at most the level."""
    tails = binom.sf(np.arange(n + 2) - 1, n, rate)
    return float(tails[tails <= level].max(initial=0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", metavar="MODEL_ARGS", required=True)
    parser.add_argument("--n", type=int, default=90, help="questions")
    parser.add_argument("--trained", type=int, default=60, help="of them, trained on")
    parser.add_argument("--max_tokens", type=int, default=110, help="of a question")
    parser.add_argument("--keys", type=int, default=400)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(pretrained_of(args.model))
    originals = drawn_questions(args.n, 0, tokenizer, args.max_tokens)
    questions = [question_of(question) for question in version(originals, key_of(args.folder, 0)).public]
    replies = all_replies(args, questions)
    print(table_of(replies, questions, args.trained))
    for name in ("`next`, no instruction", "`next`, chat"):
        print(f"\n## Rejections, {name}, of {args.keys} keys that published these questions in other orders\n")
        print(*size(replies, questions, name, args.keys))


if __name__ == "__main__":
    main()
