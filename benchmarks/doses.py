"""What do audits of option orders find of questions that were inserted so many times among a million tokens?

    python benchmarks/doses.py FOLDER [FOLDER ...]

Each folder holds `doses.npz` of one model, which copies.py makes (`--only doses`: on one H200 about 4 minutes for
SmolLM2-135M, or an hour for each billion parameters, estimated). By number of insertions and layout of the exposure:
the mean score of the published order with its standard error, asked in one layout (24 orders) and in three (12 each);
the probability at .01 of finding a tenth of 200 questions whose orders were drawn, by either; and the mean
log-likelihood per character of the published text, in standard deviations of that of questions never inserted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from copies import COPIES, DOSES

from lm_eval_leakage.stats.order_sum import averaged, standard_scores

N_ASKED, SHARE, DRAWS, LEVEL = 200, 0.1, 4_000, 0.01
HEADINGS = ("insertions", "layout", "n", "one layout", "three", "found, one", "found, three", "text")


def standardised(answers: np.ndarray, n_layouts: int) -> np.ndarray:
    """`(n_questions, n_orders)`"""
    found = [standard_scores(np.array(averaged(own.astype(float).tolist(), n_layouts))) for own in answers]
    return np.array([own for own in found if own is not None])


def power(scores: np.ndarray, seen: Sequence[int], rng: np.random.Generator) -> float:
    """Of the sum of exp(score); unseen questions have any of their orders as the published one."""
    weights, n_seen = np.exp(scores), round(SHARE * N_ASKED)

    def unseen(n: int) -> np.ndarray:
        size = (DRAWS, n)
        return weights[rng.integers(len(weights), size=size), rng.integers(weights.shape[1], size=size)].sum(axis=1)

    critical = np.quantile(unseen(N_ASKED), 1 - LEVEL)
    drawn = weights[:, 0][rng.choice(seen, size=(DRAWS, n_seen))].sum(axis=1) + unseen(N_ASKED - n_seen)
    return float((drawn > critical).mean())


def told(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def table(folder: Path) -> None:
    found, rng = dict(np.load(folder / "doses.npz")), np.random.default_rng(0)
    one, three = standardised(found["orders"], 1), standardised(found["mixed"], 3)
    text = found["whole"][:, 0] / found["whole_characters"][:, 0]
    never = text[found["dose"] == 0]
    print(f"{folder}\n| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
    for dose in DOSES:
        for layout in (*COPIES, "all"):
            own = np.flatnonzero((found["dose"] == dose) & ((found["layout"] == layout) | (layout == "all")))
            cells = [told(one[own, 0]), told(three[own, 0]), *(f"{power(by, own, rng):.2f}" for by in (one, three))]
            cells.append(told((text[own] - never.mean()) / never.std(ddof=1)))
            print(f"| {dose} | {layout} | {len(own)} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        table(folder)


if __name__ == "__main__":
    main()
