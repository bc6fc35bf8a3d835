"""Which share of the questions that are kept for three models was seen by one of them, and what share is kept?

    python benchmarks/kept_sets.py [CALIBRATION...] [--draws 20] [--questions 300] [--known 100] [--seed 0]

Each of three models has seen a fifth of the questions. Scores are normal, with the published AUROCs of docs/lab.md
(combined score after 1, 2, 3 exposures) and a higher one; `correlated` scores share half of their variance between
models, as hard questions are hard for all; in the last rows the known-seen questions were seen more often than those
of the benchmark, so that they are not exchangeable. With CALIBRATION files of a lab, scores are drawn from theirs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import norm

from lm_eval_leakage.logs.calibration_file import read_calibration
from lm_eval_leakage.stats.conformal import conformal_pvalues, from_pvalues, joint, keep, seen_pvalues
from lm_eval_leakage.stats.known_scores import COMBINED, EVERY_CLASS

N_MODELS, SHARE_SEEN = 3, 0.2
AUROCS = {"1 exposure": 0.88, "2 exposures": 0.97, "3 exposures": 0.98, "more": 0.995}
FPR, FDR, RATES = 0.05, 0.1, (0.1, 0.2)


@dataclass(frozen=True)
class Benchmark:
    """Scores of its questions by each model, whether each model has seen each, and each model's known scores."""

    scores: np.ndarray
    seen: np.ndarray
    known_seen: np.ndarray
    known_unseen: np.ndarray


Draw = Callable[[np.random.Generator, int, int], Benchmark]
Rule = Callable[[Benchmark], np.ndarray]  # whether each question is kept


def normal(auroc: float, correlation: float = 0.0, auroc_of_known: float | None = None) -> Draw:
    shift, known_shift = (2**0.5 * norm.ppf(one) for one in (auroc, auroc_of_known or auroc))

    def draw(rng: np.random.Generator, n: int, n_known: int) -> Benchmark:
        seen = rng.random((N_MODELS, n)) < SHARE_SEEN
        common = correlation**0.5 * rng.normal(size=n)
        scores = common + (1 - correlation) ** 0.5 * rng.normal(size=seen.shape) + shift * seen
        known = rng.normal(size=(2, N_MODELS, n_known))
        return Benchmark(scores, seen, known[0] + known_shift, known[1])

    return draw


def measured(file: str) -> Draw:
    """Half of a calibration's scores are the known ones, the benchmark's are drawn from the other half."""
    known = read_calibration(file).detectors[COMBINED]
    pools = [np.array(known.unseen[EVERY_CLASS]), np.array(known.seen)]

    def draw(rng: np.random.Generator, n: int, _: int) -> Benchmark:
        seen = rng.random((N_MODELS, n)) < SHARE_SEEN
        scores, halves = np.empty(seen.shape), []
        for model in range(N_MODELS):
            split = [np.array_split(rng.permutation(pool), 2) for pool in pools]
            scores[model] = np.where(seen[model], rng.choice(split[1][1], n), rng.choice(split[0][1], n))
            halves.append([split[1][0], split[0][0]])
        return Benchmark(scores, seen, np.array([own[0] for own in halves]), np.array([own[1] for own in halves]))

    return draw


def unseen_pvalues(found: Benchmark) -> np.ndarray:
    pairs = zip(found.scores, found.known_unseen, strict=True)
    return np.array([conformal_pvalues(own.tolist(), known.tolist()) for own, known in pairs])


def everything(found: Benchmark) -> np.ndarray:
    return np.ones(found.seen.shape[1], dtype=bool)


def unflagged(found: Benchmark) -> np.ndarray:
    return (unseen_pvalues(found) > FPR).all(axis=0)


def not_identified(found: Benchmark) -> np.ndarray:
    return ~np.array(from_pvalues(joint(unseen_pvalues(found)), FDR).flagged)


def at_target(rate: float) -> Rule:
    def kept(found: Benchmark) -> np.ndarray:
        pairs = zip(found.scores, found.known_seen, strict=True)
        pvalues = [seen_pvalues(own, known.tolist()) for own, known in pairs]
        return np.array(keep(pvalues, [len(known) for known in found.known_seen], rate).kept)

    return kept


RULES: dict[str, Rule] = {
    "all questions": everything,
    "not flagged for any, at 5 % FPR": unflagged,
    "not in the joint set of `identify`, FDR 10 %": not_identified,
} | {f"target rate {rate:.0%}": at_target(rate) for rate in RATES}

HEAD = "| scores | kept | seen among the kept | standard error | clean questions kept |\n|---|---|---|---|---|"


def rows(name: str, draw: Draw, n_draws: int, n: int, n_known: int, seed: int) -> Iterator[str]:
    found = [draw(np.random.default_rng([seed, number]), n, n_known) for number in range(n_draws)]
    for rule, choose in RULES.items():
        rates, shares = [], []
        for one in found:
            kept, seen = choose(one), one.seen.any(axis=0)
            rates.append((kept & seen).sum() / max(1, kept.sum()))
            shares.append((kept & ~seen).sum() / (~seen).sum())
        error = np.std(rates, ddof=1) / n_draws**0.5
        yield f"| {name} | {rule} | {np.mean(rates):.3f} | {error:.3f} | {np.mean(shares):.2f} |"


def draws(calibrations: Sequence[str]) -> dict[str, Draw]:
    if calibrations:
        return {Path(file).stem: measured(file) for file in calibrations}
    given = {
        f"{name}, AUROC {auroc:.3g}{', correlated' if correlation else ''}": normal(auroc, correlation)
        for correlation in (0.0, 0.5)
        for name, auroc in AUROCS.items()
    }
    return (
        given
        | {"2 exposures, known-seen after 3 exposures": normal(0.97, 0.0, 0.98)}
        | {"1 exposure, known-seen after 3 exposures": normal(0.88, 0.0, 0.98)}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrations", nargs="*", metavar="CALIBRATION")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--known", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(HEAD)
    for name, draw in draws(args.calibrations).items():
        for row in rows(name, draw, args.draws, args.questions, args.known, args.seed):
            print(row, flush=True)


if __name__ == "__main__":
    main()
