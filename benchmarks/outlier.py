"""Speed of the exact outlier statistic, compared with the usual loop over fits of scikit-learn's IsolationForest.

    python benchmarks/outlier.py [--sampled 40]

Both score the same normal draws, for as many questions as MMLU has, in one run. The loop (IsolationForest with
scikit-learn's defaults, one fit per question) is timed on a sample and extrapolated.
"""

from __future__ import annotations

import argparse
import resource
import statistics

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from timing import timed

from lm_eval_leakage.stats.order_scores import OrderScores, isolation_scores

N_QUESTIONS = 14_042  # the test questions of MMLU


REPEATS = 5


def exact(rows: list[list[float]]) -> torch.Tensor:
    return isolation_scores(OrderScores.from_rows(rows, "cpu"))


def looped(row: np.ndarray) -> float:
    forest = IsolationForest(n_estimators=100, contamination="auto").fit(row[:, None])
    return float(forest.decision_function([[row.max()]])[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampled", type=int, default=40, help="questions on which the loop is timed")
    sampled = parser.parse_args().sampled
    rng = np.random.default_rng(0)
    print("| orders | exact, s | loop, s (extrapolated) | ratio | mean and largest difference of scores |")
    print("|---|---|---|---|---|")
    for n_orders in (24, 120):
        rows = rng.normal(-60, 3, (N_QUESTIONS, n_orders))
        lists = rows.tolist()
        ours = statistics.median(timed(lambda lists=lists: exact(lists))[0] for _ in range(REPEATS))
        seconds, results = timed(lambda rows=rows: [looped(row) for row in rows[:sampled]])
        apart = np.abs(np.array(results) - exact(lists)[:sampled].numpy())
        loop = seconds / sampled * N_QUESTIONS
        print(f"| {n_orders} | {ours:.3f} | {loop:.0f} | {loop / ours:,.0f} | {apart.mean():.4f}, {apart.max():.4f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{N_QUESTIONS:,} questions, {torch.get_num_threads()} threads; peak memory of the process {peak:.0f} MiB")


if __name__ == "__main__":
    main()
