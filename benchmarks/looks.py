"""What several looks at one benchmark cost: false alarms and power of nested draws, by three rules.

python benchmarks/looks.py [--runs 50000] [--sizes 100 300 1000] [--seed 0]

Scores of 24 orders (of 6 against a control form, the one that finds less, whose scores have a correlation of .4) are
drawn from a normal distribution; seen questions have their published order as `SEEN_RANKS` says. A row has the share
of runs with evidence, at each look and at any: each look tested at .01 anew; at the level of the look, as `check` does
it; by an e-value of 100; and in two stages, as `check` draws many questions: evidence at a tenth of the level by the
first size, or evidence by the last one. Against a control form, what is natural differs between runs as `USUAL_SPREAD`
says.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from lm_eval_leakage.results.data_verdict import RANKED_BY, TOLERANCES
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, Basis
from lm_eval_leakage.stats.looks import FIRST_STAGE, Look, number_alone
from lm_eval_leakage.stats.order_power import SEEN_RANKS
from lm_eval_leakage.stats.order_sum import SHARES, USUAL_SPREAD, base_of, standard_scores
from lm_eval_leakage.stats.pooling import Floats

AT_ONCE = 2_000
ALIKE = 0.4  # correlation of the two forms' scores
CASES = ((0.0, 1), (0.05, 1), (0.1, 1), (0.2, 1), (0.5, 1), (0.2, 3), (0.5, 3))  # share of questions seen, how often


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| published orders by | seen | at .01 each: looks; any | as check does it | e-value of 100 | two stages |")
    for basis in (Basis.ORDERS, Basis.CONTROL):
        nested = Nested(basis, args.sizes, args.runs, np.random.default_rng(args.seed))
        for share, times in CASES:
            cells = nested.rejections(share, times)
            print(f"| {basis} | {share:.0%} {times} time(s) | {' | '.join(map(cell, cells))} |", flush=True)


def cell(rejected: np.ndarray) -> str:
    """Return the share of runs with evidence at each look, and at any; rejected: `(n_runs, n_looks)`."""
    return f"{' '.join(f'{share:.3f}' for share in rejected.mean(axis=0))}; {rejected.any(axis=1).mean():.4f}"


class Nested:
    """One set of questions, of which each look has the first so many. The sums of clean runs give p-values."""

    def __init__(self, basis: str, sizes: Sequence[int], runs: int, rng: np.random.Generator) -> None:
        self.ends, self.runs, self.rng, self.basis = [size - 1 for size in sizes], runs, rng, basis
        self.ranks = SEEN_RANKS[RANKED_BY[basis][0]]
        self.n_orders = len(self.ranks[1])
        scores = np.array([self._scores() for _ in range(sizes[-1])])
        self.weights = np.exp(scores) if basis == Basis.ORDERS else scores
        self.spread = USUAL_SPREAD if basis == Basis.CONTROL else 0.0
        self.unseen = np.array([base_of(question_scores, TOLERANCES.get(basis, 0.0)) for question_scores in scores])
        self.ratios = np.exp(scores) / (self.unseen * np.exp(scores)).sum(axis=1, keepdims=True)
        self.clean = np.sort(self._drawn(self.unseen, 3 * runs)[0], axis=0)
        looks = [number_alone([], Look(0, "", "", EVIDENCE_LEVEL, 1.0, 0.0, ""))[0]]
        for number in range(2, len(sizes) + 1):
            looks.append(number_alone(looks, Look(0, "", str(number), EVIDENCE_LEVEL, 1.0, 0.0, ""))[0])
        self.levels = np.array([look.share for look in looks])

    def _scores(self) -> Floats:
        published, other = self.rng.normal(size=(2, self.n_orders))
        control = ALIKE * published + math.sqrt(1 - ALIKE**2) * other
        scores = standard_scores(published, control if self.basis == Basis.CONTROL else None)
        assert scores is not None
        return np.sort(scores)[::-1]

    def rejections(self, share: float, times: int) -> list[np.ndarray]:
        ranks = np.array(self.ranks[times])
        sums, evalues = self._drawn((1 - share) * self.unseen + share * ranks / ranks.sum(), self.runs)
        n_as_large = [len(self.clean) - np.searchsorted(self.clean[:, k], sums[:, k]) for k in range(len(self.ends))]
        pvalues = (1 + np.array(n_as_large).T) / (1 + len(self.clean))
        first, whole = self.levels[0] * FIRST_STAGE, self.levels[0] * (1 - FIRST_STAGE)
        stages = np.column_stack([pvalues[:, 0] <= first, pvalues[:, -1] <= whole])
        return [pvalues <= EVIDENCE_LEVEL, pvalues <= self.levels, evalues >= math.log(1 / EVIDENCE_LEVEL), stages]

    def _drawn(self, probabilities: Floats, runs: int) -> tuple[Floats, Floats]:
        """Sums and logarithms of e-values, `(runs, n_looks)`."""
        ends, places = np.cumsum(probabilities, axis=1)[:, :-1], np.arange(len(probabilities))
        sums, evalues = [], []
        for _ in range(math.ceil(runs / AT_ONCE)):
            drawn = self.rng.random((len(places), AT_ONCE))
            orders = np.array([np.searchsorted(*pair, side="right") for pair in zip(ends, drawn, strict=True)]).T
            natural = self.spread * self.rng.normal(size=(AT_ONCE, 1)) * (np.array(self.ends) + 1)
            sums.append(np.cumsum(self.weights[places, orders], axis=1)[:, self.ends] + natural)
            ratios = self.ratios[places, orders] - 1
            logs = [np.cumsum(np.log1p(share * ratios), axis=1)[:, self.ends] for share in SHARES]
            evalues.append(logsumexp(logs, axis=0) - math.log(len(SHARES)))
        return np.concatenate(sums), np.concatenate(evalues)


if __name__ == "__main__":
    main()
