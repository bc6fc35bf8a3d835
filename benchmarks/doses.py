"""What do audits of option orders find of questions that were inserted so many times among a million tokens?

    python benchmarks/doses.py FOLDER [FOLDER ...]

Each folder holds the `doses*.npz` of one model, which copies.py makes (`--only doses --seeds 2`: on one H200 about 6
minutes for SmolLM2-135M, or an hour for each billion parameters, estimated). By number of insertions and layout of
the exposure: the mean score of the published order with its standard error, asked in one layout (24 orders), in two
(12) and in four (15); the probability at .01 of finding a tenth of 200 questions whose orders were drawn, by each;
with control forms, that of finding half of 200; and the mean log-likelihood per character of the published text, in
standard deviations of that of questions never inserted. Then, over all layouts, in how many questions the published
order is the first, second, ... by score: `SEEN_IN_LAYOUTS` of the package. At last, how well scores of the 24 orders
in one layout rank single questions, those inserted once or three times against those never inserted: AUROC, and the
true positive rate at a false positive rate of 5 % (docs/validity/ranking.md). And with which probability at half of
.01 texts are found beside those of 60 questions never inserted, where half of 200 were inserted (and none), the
reference being the model before: by the text as the benchmark shows it, and by that and the row of
JSON; a table for each training.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
from copies import COPIES, DOSES, kept_questions

from lm_eval_leakage.detectors.option_orders import EVERY, LAYOUT_SETS, MIXED, OptionOrders
from lm_eval_leakage.questions.rendering import LAYOUTS
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.detection_quality import auroc, tpr_at_fpr
from lm_eval_leakage.stats.order_power import CONTROL_FORMS, SEEN_TIMES
from lm_eval_leakage.stats.order_sum import averaged, standard_scores, usual_spread
from lm_eval_leakage.stats.unseen_texts import ComparedText, more_predictable, text_scores

N_ASKED, SHARE, SHARE_WRITTEN, DRAWS, LEVEL = 200, 0.1, 0.5, 4_000, 0.01
N_UNSEEN, TEXT_DRAWS = 60, 400
BEYOND = 2.326  # standard deviations, at LEVEL
ASKED = {"one": LAYOUTS[:1], "two": LAYOUT_SETS[MIXED], "four": LAYOUT_SETS[EVERY]}
N_ORDERS = {"one": 24, "two": 12, "four": 15}
HEADINGS = ("insertions", "layout", "n", *ASKED, "drawn: one, two, four", "written: one, two, four", "text")
Scores = Mapping[str, np.ndarray]  # by kind of comparison, `(n_questions, n_orders)`


def comparisons(
    doses: Mapping[str, np.ndarray], clean: Mapping[str, np.ndarray], how: str, questions: Sequence[Question]
) -> Scores:
    n, places = len(doses["orders"]), [LAYOUTS.index(layout) for layout in ASKED[how]]
    compared = np.array([OptionOrders().compared(question) for question in questions])
    rng = random.Random(0)  # the compared orders and, where more are asked, others at random
    rest = [
        rng.sample(sorted({*range(24)} - {*compared_orders}), 24 - len(compared_orders))
        for compared_orders in compared.tolist()
    ]
    chosen = np.concatenate([compared, rest], axis=1)[:, : N_ORDERS[how]]

    def joined(values: np.ndarray, orders: np.ndarray) -> np.ndarray:
        reshaped = values.astype(float).reshape(n, len(LAYOUTS), -1)[:, places]
        taken = np.take_along_axis(reshaped, orders[:, None, :], axis=2).reshape(n, -1)
        return np.array([standard_scores(np.array(averaged(row.tolist(), len(places)))) for row in taken])

    forms = doses["control"]
    every_form = np.tile(np.arange(compared.shape[1]), (n, 1))
    published = joined(doses["orders"], compared)
    in_words = np.array([standard_scores(row.astype(float)) for row in forms[:, : compared.shape[1]]])
    return {
        "orders": joined(doses["orders"], chosen),
        "reference": joined(doses["orders"], chosen) - joined(clean["orders"], chosen),
        CONTROL_FORMS[0]: published - in_words,
        CONTROL_FORMS[1]: published - joined(forms[:, compared.shape[1] :], every_form),
    }


def power(scores: np.ndarray, seen: Sequence[int], rng: np.random.Generator) -> float:
    """Return the power of the sum of exp(score); unseen questions have any of their orders as the published one."""
    weights, n_seen = np.exp(scores), round(SHARE * N_ASKED)
    critical = np.quantile(_unseen(weights, N_ASKED, rng).sum(axis=1), 1 - LEVEL)
    drawn = weights[rng.choice(seen, size=(DRAWS, n_seen)), 0].sum(axis=1)
    return float((drawn + _unseen(weights, N_ASKED - n_seen, rng).sum(axis=1) > critical).mean())


def power_with_controls(
    by_form: Sequence[np.ndarray], seen: Sequence[int], spread: float, rng: np.random.Generator
) -> float:
    """Return the power of the sums of both differences, with what may be natural."""
    n_seen = round(SHARE_WRITTEN * N_ASKED)
    taken = rng.choice(seen, size=(DRAWS, n_seen))
    size = (DRAWS, N_ASKED - n_seen)
    others = rng.integers(len(by_form[0]), size=size), rng.integers(by_form[0].shape[1], size=size)
    is_found = np.ones(DRAWS, dtype=bool)
    for scores in by_form:
        critical = BEYOND * math.hypot(math.sqrt(N_ASKED * scores.var()), N_ASKED * spread)
        is_found &= scores[taken, 0].sum(axis=1) + scores[others].sum(axis=1) > critical
    return float(is_found.mean())


def _unseen(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    size = (DRAWS, n)
    return weights[rng.integers(len(weights), size=size), rng.integers(weights.shape[1], size=size)]


def mean_and_error(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def table(folder: Path) -> None:
    rng = np.random.default_rng(0)
    parts = [dict(np.load(place)) for place in sorted(folder.glob("doses*.npz")) if place.stem != "doses_clean"]
    doses = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    clean = {
        name: np.concatenate([clean_scores] * len(parts))
        for name, clean_scores in np.load(folder / "doses_clean.npz").items()
    }
    questions = kept_questions(folder, [])[-len(parts[0]["dose"]) :] * len(parts)
    scores = {how: comparisons(doses, clean, how, questions) for how in ASKED}
    text = doses["whole"][:, 0] / doses["whole_characters"][:, 0]
    never = text[doses["dose"] == 0]
    print(f"{folder}\n| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
    for dose in DOSES:
        for layout in (*COPIES, "all"):
            places = np.flatnonzero((doses["dose"] == dose) & ((doses["layout"] == layout) | (layout == "all")))
            means = [mean_and_error(by["orders"][places, 0]) for by in scores.values()]
            drawn = ", ".join(f"{power(by['orders'], places, rng):.2f}" for by in scores.values())
            forms = (
                ([by[form] for form in CONTROL_FORMS], usual_spread(len(ASKED[how]))) for how, by in scores.items()
            )
            written = ", ".join(f"{power_with_controls(by, places, spread, rng):.2f}" for by, spread in forms)
            of_text = mean_and_error((text[places] - never.mean()) / never.std(ddof=1))
            print(f"| {dose} | {layout} | {len(places)} | {' | '.join([*means, drawn, written, of_text])} |")
    for how, by_kind in scores.items():
        for kind, values in by_kind.items():
            for times in SEEN_TIMES:
                ranks = (values[doses["dose"] == times] > values[doses["dose"] == times][:, :1]).sum(axis=1)
                print(how, kind, times, tuple(np.bincount(ranks, minlength=values.shape[1]).tolist()))
    ranking(doses)
    for part in parts:
        texts(part, dict(np.load(folder / "doses_clean.npz")), questions[: len(part["dose"])])


def ranking(doses: Mapping[str, np.ndarray]) -> None:
    rows = doses["orders"].astype(float).reshape(len(doses["dose"]), len(LAYOUTS), -1)[:, 0]
    centred = rows - rows.mean(axis=1, keepdims=True)
    places = np.array([sum(i == j for i, j in enumerate(order)) for order in permutations(range(4))], dtype=float)
    scores = {
        "margin": rows[:, 0] - rows[:, 1:].max(axis=1),
        "z": centred[:, 0] / centred.std(axis=1),
        "fixed_z": centred @ (places - places.mean()) / centred.std(axis=1),
    }
    never = doses["dose"] == 0
    for times in SEEN_TIMES:
        for layout in COPIES:
            seen = (doses["dose"] == times) & (doses["layout"] == layout)
            cells = (
                f"{name} {auroc(values[seen], values[never]):.3f}, "
                f"{tpr_at_fpr(values[seen], values[never], fpr=0.05):.2f}"
                for name, values in scores.items()
            )
            print(f"| {times} | {layout} | {' | '.join(cells)} |")


def texts(doses: Mapping[str, np.ndarray], clean: Mapping[str, np.ndarray], questions: Sequence[Question]) -> None:
    rng, shown = np.random.default_rng(0), [" ".join([question.stem, *question.options]) for question in questions]
    lengths = np.array([[len("".join([question.stem, *question.options]))] for question in questions])
    scores, reference = (each["whole"].astype(float) / lengths for each in (doses, clean))
    never = np.flatnonzero(doses["dose"] == 0)
    for times, layout in ((0, "none"), *((times, layout) for times in SEEN_TIMES for layout in COPIES)):
        seen = np.flatnonzero((doses["dose"] == times) & ((doses["layout"] == layout) | (times == 0)))
        rates = []
        for n_layouts in (1, 2):
            scored = [
                ComparedText(text, tuple(a[:n_layouts]), tuple(b[:n_layouts]))
                for text, a, b in zip(shown, scores, reference, strict=True)
            ]
            pvalues = []
            for _ in range(TEXT_DRAWS):
                others = rng.permutation(never)
                n_seen = round(SHARE_WRITTEN * N_ASKED) if times else 0
                places_asked = [*rng.choice(seen, n_seen), *others[N_UNSEEN : N_UNSEEN + N_ASKED - n_seen]]
                values = text_scores([scored[place] for place in (*places_asked, *others[:N_UNSEEN])])
                pvalues.append(more_predictable(values[:N_ASKED], values[N_ASKED:]).pvalue)
            rates.append(f"{np.mean(np.array(pvalues) <= LEVEL / 2):.3f}")
        print(f"| texts | {times} | {layout} | {' | '.join(rates)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        table(folder)


if __name__ == "__main__":
    main()
