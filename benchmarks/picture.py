"""The picture of the README: one question in its published and in another order, with a model's log-likelihoods.

    python -m benchmarks.picture [--folder .demo/80_questions] [--output_path docs/_static/orders.svg]

FOLDER: of `make demo`, with SmolLM2-135M and its copy that has read half of the questions three times. The question is
the shortest one of that half with four options and no natural order; in the other order every option has another
place.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from html import escape
from itertools import permutations
from pathlib import Path
from textwrap import wrap

from lm_eval.api.instance import Instance

from lm_eval_leakage import question_from_doc
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.questions.guards import guards_of
from lm_eval_leakage.records import Question

LETTERS = "ABCD"
MODELS = {"the model": "smollm2", "a copy that read it": "copy/epoch_3"}
WIDTH, HEIGHT, MARGIN, LINE, CARD = 880, 300, 24, 24, 404
LARGE = 4  # nats, a difference that is highlighted
CHARACTERS = 42  # of a line of a card
STYLE = """text { font: 14px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
.quiet { fill: #59636e } .number { font-family: ui-monospace, monospace }
.card { fill: #ffffff; stroke: #d1d9e0 } .high { fill: #9a3b00; font-weight: 600 }"""


def chosen_question(folder: Path) -> Question:
    lines = (folder / "trained.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [question_from_doc(json.loads(line)) for line in lines]
    free = [question for question in questions if len(question.options) == len(LETTERS) and not guards_of(question)]
    return min(free, key=lambda question: len(question.stem) + 2 * max(map(len, question.options)))


def other_order(n_options: int) -> tuple[int, ...]:
    return next(order for order in permutations(range(n_options)) if all(a != b for a, b in enumerate(order)))


def block(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))


def loglikelihoods(folder: Path, question: Question, orders: Sequence[Sequence[str]]) -> list[float]:
    """Return the log-likelihood of each order of the options after the question, nats."""
    lm = PrefixTreeLM(pretrained=str(folder), dtype="float32", device="cpu")
    texts = [(f"{question.stem}\n", block(options)) for options in orders]
    requests = [Instance("loglikelihood", {}, text, number) for number, text in enumerate(texts)]
    return [float(answer[0]) for answer in lm.loglikelihood(requests)]


def drawing(question: Question, orders: Sequence[Sequence[str]], scores: dict[str, list[float]]) -> Iterator[str]:
    """Yield the lines of an SVG drawing with a card for each order."""
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    yield f"<style>{STYLE}</style><title>{escape(question.stem)} in two orders of its options</title>"
    for place, (title, options) in enumerate(zip(("As published", "In another order"), orders, strict=True)):
        x = MARGIN + place * (CARD + MARGIN)
        yield f'<rect class="card" x="{x}" y="12" width="{CARD}" height="{HEIGHT - 24}" rx="8"/>'
        lines = [(title, "quiet"), *((line, "title") for line in wrap(question.stem, CHARACTERS))]
        lines += [(line, "") for line in block(options).split("\n")]
        for number, (line, kind) in enumerate(lines):
            yield f'<text class="{kind}" x="{x + 16}" y="{40 + number * LINE}">{escape(line)}</text>'
        for number, (model, score) in enumerate(scores.items()):
            y = 40 + (len(lines) + 0.5 + number) * LINE
            kind = "number high" if score[place] == max(score) and max(score) - min(score) > LARGE else "number"
            yield f'<text class="quiet" x="{x + 16}" y="{y:g}">{escape(model)}:</text>'
            yield f'<text class="{kind}" x="{x + 220}" y="{y:g}">{score[place]:.1f} nats</text>'.replace("-", "\u2212")
    yield "</svg>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(".demo/80_questions"))
    parser.add_argument("--output_path", type=Path, default=Path("docs/_static/orders.svg"))
    args = parser.parse_args()
    question = chosen_question(args.folder)
    orders = [question.options, [question.options[place] for place in other_order(len(question.options))]]
    scores = {name: loglikelihoods(args.folder / place, question, orders) for name, place in MODELS.items()}
    atomic_write(args.output_path, "\n".join(drawing(question, orders, scores)) + "\n")
    print(question.stem, scores)


if __name__ == "__main__":
    main()
