"""Speed of the exact outlier statistic, compared with the usual loop over fits of scikit-learn's IsolationForest.

    python benchmarks/outlier.py [--sampled 40]

Both score the same normal draws, for as many questions as MMLU has, in one run. The loop (IsolationForest with
scikit-learn's defaults, one fit per question) is timed on a sample and extrapolated.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import numpy as np
import torch
from sklearn.ensemble import IsolationForest

from lm_eval_leakage.stats.order_scores import OrderScores, isolation_scores

N_QUESTIONS = 14_042  # the test questions of MMLU


def seconds_exact(rows: list[list[float]], repeats: int = 5) -> tuple[float, torch.Tensor]:
    """Median time of the whole call, from Python lists to scores, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        scores = isolation_scores(OrderScores.from_rows(rows, "cpu"))
        times.append(time.perf_counter() - start)
    return statistics.median(times), scores


def seconds_loop(rows: np.ndarray) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    scores = []
    for row in rows:
        forest = IsolationForest(n_estimators=100, contamination="auto").fit(row[:, None])
        scores.append(forest.decision_function([[row.max()]])[0])
    return (time.perf_counter() - start) / len(rows), np.array(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampled", type=int, default=40, help="questions on which the loop is timed")
    sampled = parser.parse_args().sampled
    rng = np.random.default_rng(0)
    print("| orders | exact, s | loop, s (extrapolated) | ratio | mean and largest difference of scores |")
    print("|---|---|---|---|---|")
    for n_orders in (24, 120):
        rows = rng.normal(-60, 3, (N_QUESTIONS, n_orders))
        exact, scores = seconds_exact(rows.tolist())
        each, looped = seconds_loop(rows[:sampled])
        apart = np.abs(looped - scores[:sampled].numpy())
        loop = each * N_QUESTIONS
        print(
            f"| {n_orders} | {exact:.3f} | {loop:.0f} | {loop / exact:,.0f} | {apart.mean():.4f}, {apart.max():.4f} |"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{N_QUESTIONS:,} questions, {torch.get_num_threads()} threads; peak memory of the process {peak:.0f} MiB")


if __name__ == "__main__":
    main()
