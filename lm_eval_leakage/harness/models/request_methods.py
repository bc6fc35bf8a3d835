"""The methods by which audits ask models, in words."""

from __future__ import annotations

MEANING = {
    "loglikelihood": "gives no log-likelihoods of given texts",
    "generate_until": "does not generate text",
    "token_scores": "does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
}
