"""Recomputes the verdicts of a samples log with scipy and scikit-learn, without importing lm_eval_leakage.

python benchmarks/replay_log.py out/MODEL/samples_mmlu_leakage_perm_*.jsonl
"""

import json
import sys

import numpy as np
from scipy.stats import poisson_binom, rankdata
from sklearn.ensemble import IsolationForest

lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]  # noqa: PTH123, SIM115
tested = [line for line in lines if line["flagged"] is not None]
flags, nulls, wrong, apart, agree = [], [], 0, [], []
for line in tested:
    scores = np.array([float(response[0][0]) for response in line["resps"][: line["n_orders"]]])
    if line["filter"] == "max_order":
        rank = rankdata(-scores, method="max")[0]  # 1 = most likely, a tie ranks below
        wrong += line["flagged"] != (rank == 1) or not np.isclose(line["pvalue"], rank / len(scores))
        flags.append(rank == 1)
        nulls.append(1 / len(scores))
    else:
        forest = IsolationForest(n_estimators=100, contamination="auto", random_state=0).fit(scores[:, None])
        looped = forest.decision_function([[scores.max()]])[0]
        apart.append(abs(looped - line["outlier_score"]))
        agree.append(line["flagged"] == (looped < (-0.20 if len(scores) <= 24 else -0.25)))
pvalue = poisson_binom.sf(sum(flags) - 1, nulls)
print(f"max_order: {len(flags)} questions, {wrong} verdicts differ; {np.mean(flags):.4f} flagged, p = {pvalue:.3g}")
print(f"outlier: scores differ by {np.mean(apart):.4f} on average, {np.max(apart):.4f} at most")
print(f"outlier: {np.mean(agree):.1%} of flags as by one forest of 100 trees")
