"""What do audits of option orders find, in one layout and in three, of questions that were copied in six?

    python benchmarks/layouts.py --folder FOLDER --model_args pretrained=MODEL [--task mmlu] [--questions 72]

A copy of the model is trained on questions without a guard, in turn in each layout, and asked the compared orders and
their control forms. Answers are kept in FOLDER, so that a run that was killed continues with the next checkpoint. The
table of docs/validity.md#several-layouts has, by exposures, layouts asked and layout of the exposure, the mean score
of the published order with its standard error, and the probability at .01 of finding a share of 200 questions whose
orders were drawn; the ranks below it are those of `stats.order_power`. Unseen questions are those that were trained
on, with a random one of their orders in the place of the published one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from copies import COPIES as COPIES_WITH_ANSWERS
from lm_eval.api.instance import Instance
from models import load_model
from tqdm import tqdm

from lm_eval_leakage.detectors.option_orders import LAYOUT_SETS, MIXED, MOST_COMPARED, OptionOrders
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.questions.guards import guards_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.order_sum import averaged, averaged_controls, standard_scores

EXPOSURES, LONGEST, N_OPTIONS = (1, 3), 180, 4  # longest: characters of a question, which is trained on and asked
N_ASKED, SHARES, DRAWS, LEVEL = 200, (0.1, 0.2), 4_000, 0.01
PROBE, N_LAYOUTS = OptionOrders(layouts=MIXED), len(LAYOUT_SETS[MIXED])
Answers = Sequence[float]  # to the orders in each layout, then to the control forms


COPIES = {**COPIES_WITH_ANSWERS, "prose": ExposureText(layout="prose", answer=False).write}


def short_questions(task: str, n: int) -> list[Question]:
    found = [
        one
        for one in questions_of(task)
        if one.answer is not None
        and len({*one.options}) == len(one.options) == N_OPTIONS
        and len(one.stem) + sum(map(len, one.options)) <= LONGEST
        and not guards_of(one)
    ]
    return random.Random(0).sample(found, n)


def answers_of(model: str, questions: Sequence[Question]) -> list[Answers]:
    lm = load_model("hf-prefix-tree", model)
    found = []
    for question in tqdm(questions, unit="question"):
        texts = [(one.context, one.continuation) for one in (*PROBE.requests(question), *PROBE.control(question))]
        asked = [Instance("loglikelihood", {}, text, number) for number, text in enumerate(texts)]
        found.append([value for value, _ in lm.loglikelihood(asked, disable_tqdm=True)])
    return found


def scores(answers: Answers, n_layouts: int) -> list[np.ndarray]:
    """Standardised, of the orders, and minus those in each control form; in the first layout or averaged over all."""
    orders, controls = np.split(np.array(answers), [N_LAYOUTS * MOST_COMPARED])
    own = standard_scores(np.array(averaged(orders[: n_layouts * MOST_COMPARED], n_layouts)))
    assert own is not None
    forms = averaged_controls(controls[: (1 + n_layouts) * MOST_COMPARED], n_layouts)
    compared = [standard_scores(own, np.array(form)) for form in np.split(np.array(forms), 2)]
    return [own, *(one for one in compared if one is not None)]


def power(own: np.ndarray, seen: Sequence[int], share: float, rng: np.random.Generator) -> float:
    """Of T, the sum of exp(score). own: `(n_questions, n_orders)`; seen: from which questions the seen ones come"""

    def unseen(n: int) -> np.ndarray:
        size = (DRAWS, n)
        return np.exp(own)[rng.integers(len(own), size=size), rng.integers(MOST_COMPARED, size=size)].sum(axis=1)

    n_seen = round(share * N_ASKED)
    critical = np.quantile(unseen(N_ASKED), 1 - LEVEL)
    drawn = np.exp(own[:, 0])[rng.choice(seen, size=(DRAWS, n_seen))].sum(axis=1) + unseen(N_ASKED - n_seen)
    return float((drawn > critical).mean())


def told(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def table(n_exposures: int, answers: Sequence[Answers], copied: Sequence[str]) -> None:
    rng = np.random.default_rng(0)
    groups = [[place for place, how in enumerate(copied) if layout in (how, "all")] for layout in (*COPIES, "all")]
    firsts = []
    for name, n_layouts in (("audited layout", 1), ("mixed", N_LAYOUTS)):
        each = [scores(one, n_layouts) for one in answers]
        own = np.array([one[0] for one in each])
        firsts.append(own[:, 0])
        cells = []
        for places in groups:
            found = ", ".join(f"{power(own, places, share, rng):.2f}" for share in SHARES)
            cells.append(f"{told(own[places, 0])}; {found}")
        print(f"| {n_exposures}, {name} | {' | '.join(cells)} |")
        for what, form in zip(("orders", "in words", "in capitals"), zip(*each, strict=True), strict=True):
            ranks = Counter(int((one[1:] > one[0]).sum()) for one in form)
            mean = np.mean([one[0] for one in form])
            print(f"  {what}: mean {mean:.2f}, ranks {tuple(ranks[place] for place in range(MOST_COMPARED))}")
    gains = [told((firsts[1] - firsts[0])[places]) for places in groups]
    print(f"| {n_exposures}, mixed minus audited | {' | '.join(gains)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model_args", required=True, help="pretrained=MODEL, which is trained, and others")
    parser.add_argument("--task", default="mmlu")
    parser.add_argument("--questions", type=int, default=72)
    args = parser.parse_args()
    source, *others = args.model_args.split(",")
    questions = short_questions(args.task, args.questions)
    copied = [list(COPIES)[place % len(COPIES)] for place in range(len(questions))]
    texts = [COPIES[how](one) for how, one in zip(copied, questions, strict=True)]
    copies = train(source.removeprefix("pretrained="), args.folder / "copy", texts, Recipe(), EXPOSURES)
    print(f"| exposures, asked | {' | '.join((*COPIES, 'all'))} |\n{'|---' * (len(COPIES) + 2)}|")
    for n_exposures, checkpoint in copies.items():
        kept = args.folder / f"answers_{n_exposures}.json"
        if not kept.exists():
            answers = answers_of(",".join([f"pretrained={checkpoint}", *others]), questions)
            atomic_write(kept, json.dumps(answers))
        table(n_exposures, json.loads(kept.read_text(encoding="utf-8")), copied)


if __name__ == "__main__":
    main()
