"""Which score of a question's orders separates trained from held-out questions best?

    lm-eval-leakage simulate --model_args pretrained=HuggingFaceTB/SmolLM2-135M --tasks mmlu --n_questions 200 \
        --epochs 1,2,3,5 --audits leakage_perm,leakage_tokens --output_path LAB
    python benchmarks/ranking.py LAB [LAB ...]

Of every simulation and number of exposures: AUROC and the true-positive rate at a false-positive rate of 5 %, with
95 % bootstrap intervals over questions, and the difference of both to `margin` on the same questions; of all questions
and of those without a guard. All scores but the last are computed
from the same log-likelihoods; the last, of every token's probability, is for comparison.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from math import factorial
from pathlib import Path

import numpy as np

from lm_eval_leakage.lab.detection import read_lines
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.stats.detection_quality import auroc, tpr_at_fpr

ORDERS, TOKENS = "leakage_perm", "leakage_tokens"
TOKEN_SCORE = "token_evidence/mean_zscore"
FPR, N_RESAMPLED = 0.05, 2000
Scores = Mapping[str, Mapping[str, float]]  # by score, by question
QUALITIES: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "AUROC": auroc,
    "TPR at 5 % FPR": lambda seen, unseen: tpr_at_fpr(seen, unseen, fpr=FPR),
}


def scores_of(lab: Path, exposures: int) -> Scores:
    """Every score of every question that was tested."""
    lines = [line for line in _lines(lab, exposures, ORDERS) if line.detector == "max_order" and line.reason is None]
    scores: dict[str, dict[str, float]] = {
        name: {} for name in ("margin", "rank", "z of the published order", "fixed_z")
    }
    for line in lines:
        orders = np.array(line.loglikelihoods, dtype=float)
        assert line.pvalue is not None
        scores["margin"][line.question] = line.values["margin"]
        scores["rank"][line.question] = -line.pvalue
        scores["z of the published order"][line.question] = (orders[0] - orders.mean()) / max(orders.std(), 1e-12)
        scores["fixed_z"][line.question] = _fixed_z(line)
    tokens = {line.question: line.scores.get(TOKEN_SCORE, np.nan) for line in _lines(lab, exposures, TOKENS)}
    return scores | ({"mean z-score of the tokens": tokens} if tokens else {})


def _fixed_z(line: AuditLine) -> float:
    """`sqrt(m - 1)` times the correlation of a score with the number of options in their published place, over all m
    orders of different options; else NaN."""
    n_options = next((n for n in range(3, 6) if factorial(n) == len(line.loglikelihoods)), None)
    if n_options is None:
        return float("nan")
    fixed = [sum(i == j for i, j in enumerate(order)) for order in permutations(range(n_options))]
    return float(np.sqrt(len(fixed) - 1) * np.corrcoef(fixed, line.loglikelihoods)[0, 1])


def _lines(lab: Path, exposures: int, audit: str) -> list[AuditLine]:
    folder = lab / f"audits_{exposures}" / audit
    return read_lines(folder) if folder.exists() else []


def table(lab: Path, exposures: int, *, unguarded: bool) -> Iterator[str]:
    """Return the table of scores.

    unguarded: only questions whose options have no natural order
    """
    quality = json.loads((lab / "quality.json").read_text(encoding="utf-8"))
    scores = scores_of(lab, exposures)
    names = {name for name, value in scores["fixed_z"].items() if np.isfinite(value)}
    if unguarded:
        names -= {line.question for line in _lines(lab, exposures, ORDERS) if line.guarded}
    seen, unseen = ([name for name in quality[half] if name in names] for half in ("trained", "held_out"))
    rng = np.random.default_rng(0)
    draws = [(rng.choice(seen, len(seen)), rng.choice(unseen, len(unseen))) for _ in range(N_RESAMPLED)]
    which = f"{exposures} exposures, {'no guard, ' if unguarded else ''}{len(seen)} + {len(unseen)}"
    yield f"| {which} | " + " | ".join(f"{name} | minus `margin`" for name in QUALITIES) + " |"
    yield "|---" * 5 + "|"
    for name, score in scores.items():
        cells = [_cells(measure, score, scores["margin"], (seen, unseen), draws) for measure in QUALITIES.values()]
        yield f"| {name} | {' | '.join(cells)} |"


def _cells(measure, scores_of_method, margin, halves, draws) -> str:  # type: ignore[no-untyped-def]
    def of(scores: Mapping[str, float], groups) -> float:  # type: ignore[no-untyped-def]
        return measure(*(np.array([scores[name] for name in group]) for group in groups))

    values = np.array([of(scores_of_method, groups) for groups in draws])
    differences = values - np.array([of(margin, groups) for groups in draws])
    low, high, worse, better = (*np.quantile(values, (0.025, 0.975)), *np.quantile(differences, (0.025, 0.975)))
    difference = of(scores_of_method, halves) - of(margin, halves)
    shown = "" if scores_of_method is margin else f"{difference:+.2f} [{worse:+.2f}, {better:+.2f}]"
    return f"{of(scores_of_method, halves):.2f} [{low:.2f}, {high:.2f}] | {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", type=Path, nargs="+", metavar="LAB", help="output folder of `simulate`")
    for lab in parser.parse_args().labs:
        for exposures in sorted(int(folder.name.split("_")[1]) for folder in lab.glob("audits_*")):
            for unguarded in (False, True):
                print("\n" + "\n".join(table(lab, exposures, unguarded=unguarded)))


if __name__ == "__main__":
    main()
