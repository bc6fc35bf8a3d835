"""Faults of intervals and ranks, before and after they were fixed: simulations with a known truth.

    python benchmarks/validity_faults.py [PART...] [--draws 400]

PART: auroc, ranks, gap, order; by default all. `before` is computed here as it was done.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import combinations, product

import numpy as np
from scipy.stats import norm

from lm_eval_leakage.detectors.choice_confusion import accuracy_difference
from lm_eval_leakage.results.leaderboard import RANK_LEVEL, leaderboard
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.stats.accuracy_gap import accuracy_gap
from lm_eval_leakage.stats.detection_quality import auroc, auroc_interval, tpr_at_fpr, tpr_interval
from lm_eval_leakage.stats.order_sum import version_sum
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from lm_eval_leakage.stats.sorted_questions import sorted_properties

FPR = 0.05
Lines = Iterator[str]


def aurocs(n_draws: int) -> Lines:
    yield "| questions | AUROC | covered: bootstrap | score interval | TPR at 5 % FPR | covered: bootstrap | after |"
    yield "|---|---|---|---|---|---|---|"
    rng = np.random.default_rng(3)
    for n, true in product((4, 10, 20, 100), (0.9, 0.97)):
        shift = 2**0.5 * norm.ppf(true)
        tpr = norm.sf(norm.isf(FPR) - shift)
        covered = np.zeros(4)
        for _ in range(n_draws):
            scores, others = rng.normal(size=n) + shift, rng.normal(size=n)
            after = auroc_interval(scores, others), tpr_interval(scores, others, FPR, rng=rng)
            ends = [_bootstrap(auroc, scores, others, rng), (after[0].low, after[0].high)]
            ends += [
                _bootstrap(lambda a, b: tpr_at_fpr(a, b, FPR), scores, others, rng),
                (after[1].low, after[1].high),
            ]
            covered += [low <= truth <= high for (low, high), truth in zip(ends, (true, true, tpr, tpr), strict=True)]
        cells = [f"{truth / n_draws:.2f}" for truth in covered]
        if n < 10:
            cells[1] = cells[3] = "none given"
        yield f"| {n} + {n} | {true} | {cells[0]} | {cells[1]} | {tpr:.2f} | {cells[2]} | {cells[3]} |"


def _bootstrap(
    measure: Callable[[np.ndarray, np.ndarray], float],
    scores: np.ndarray,
    others: np.ndarray,
    rng: np.random.Generator,
) -> tuple[float, float]:
    drawn = [measure(rng.choice(scores, len(scores)), rng.choice(others, len(others))) for _ in range(200)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def ranks(n_draws: int) -> Lines:
    yield "| pairs of 10 models | in all | not significantly apart | not apart in truth |\n|---|---|---|---|"
    rng = np.random.default_rng(4)
    counts = np.zeros((2, 3), dtype=int)
    for _ in range(max(1, n_draws // 10)):
        rates = np.round(rng.uniform(0.04, 0.3, 10), 2)
        flags = [rng.random(200) < rate for rate in rates]
        (board,) = leaderboard([_annotation(str(i), flags_of_model) for i, flags_of_model in enumerate(flags)]).boards
        places = {int(standing.row.model): (standing.first, standing.last) for standing in board}
        significant = _significant(flags)
        for pair in combinations(range(10), 2):
            higher, lower = sorted(pair, key=places.__getitem__)
            wrong = np.array([True, pair not in significant, rates[higher] <= rates[lower]])
            counts[0] += wrong * (places[higher][0] < places[lower][0])
            counts[1] += wrong * (places[higher][1] < places[lower][0])
    yield "| before: their single ranks differ | {} | {} | {} |".format(*counts[0])
    yield "| after: their intervals of ranks do not overlap | {} | {} | {} |".format(*counts[1])


def _annotation(model: str, flags: np.ndarray) -> Annotation:
    n, rate = len(flags), Estimate(float(flags.mean()), 0.0)
    named = {str(i): bool(flag) for i, flag in enumerate(flags)}
    row = Row(model, "b", "task", "", "", n, UNKNOWN, n, n, {"flagged_rate": rate}, flags=named)
    return Annotation(model, "max_order", (row,), (), ())


def _significant(flags: list[np.ndarray]) -> set[tuple[int, int]]:
    """Pairs that differ by McNemar's test, adjusted by Holm's procedure."""
    pairs = list(combinations(range(len(flags)), 2))
    tests = sorted((accuracy_difference(flags[a].tolist(), flags[b].tolist()).pvalue, (a, b)) for a, b in pairs)
    places = set()
    for index, (pvalue, pair) in enumerate(tests):
        if pvalue * (len(tests) - index) > RANK_LEVEL:
            break
        places.add(pair)
    return places


def gap(n_draws: int) -> Lines:
    yield "| log-odds per sd of ease | strata: subjects | with 1 reference model | with 3 |\n|---|---|---|---|"
    rng = np.random.default_rng(5)
    for slope in (0.0, 0.25, 0.5):
        significant = np.zeros(3)
        for _ in range(n_draws):
            subject, ease = rng.integers(10, size=1000), rng.normal(size=1000)
            flagged = rng.random(1000) < _logistic(-1.5 + slope * ease)
            right, *references = (rng.random(1000) < _logistic(slope * ease) for _ in range(4))
            strata = [list(zip(subject, *references[:k], strict=True)) for k in (0, 1, 3)]
            significant += [accuracy_gap(flagged.tolist(), right.tolist(), column).pvalue <= 0.05 for column in strata]
        yield f"| {slope} | {' | '.join(f'{count / n_draws:.2f}' for count in significant)} |"


def _logistic(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


def order(n_draws: int) -> Lines:
    yield "| file | size of the permutation test at .05 | warned of |\n|---|---|---|"
    rng = np.random.default_rng(6)
    words = [f"word{number}" for number in range(200)]
    for name, preference in (
        ("shuffled", 0.0),
        ("sorted by length, preferred by .3 sd", 0.3),
        ("the same, .6 sd", 0.6),
    ):
        rejected = warned = 0
        for _ in range(n_draws):
            gains = rng.normal(size=(30, 26)) + preference * (np.arange(26) == 0)
            rejected += version_sum(gains.tolist()).pvalue <= 0.05
            shards = [[" ".join(rng.choice(words, rng.integers(5, 30))) for _ in range(8)] for _ in range(30)]
            warned += bool(sorted_properties([sorted(shard, key=len) if preference else shard for shard in shards]))
        yield f"| {name} | {rejected / n_draws:.2f} | {warned / n_draws:.2f} |"


PARTS = {
    "auroc": aurocs,
    "ranks": ranks,
    "gap": gap,
    "order": order,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--draws", type=int, default=400)
    args = parser.parse_args()
    for name in args.parts or PARTS:
        print(f"\n{name}\n")
        for line in PARTS[name](args.draws):
            print(line, flush=True)


if __name__ == "__main__":
    main()
