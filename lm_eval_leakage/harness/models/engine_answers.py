"""Answers of an inference engine in the order of the requests, each reported to the harness's cache as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from lm_eval_leakage.harness.models.portions import Pair
from lm_eval_leakage.scoring.engine_scorer import EngineScorer
from lm_eval_leakage.scoring.prefix_tree import Text


def engine_answers(
    lm: Any, scorer: EngineScorer, pairs: Sequence[Pair | None], texts: Mapping[int, Text], title: str | None
) -> list[tuple[float, bool]]:
    """One answer per pair: log-likelihood (nats), and whether each token was the most likely one.

    pairs: None for a window of a rolling log-likelihood, which is cached as a whole
    texts: by the index of their pair; the continuations of other pairs have no tokens
    title: of the progress bar; None shows none
    """
    answers, indices = [(0.0, True)] * len(pairs), [*texts]  # so the harness answers a continuation without tokens
    with tqdm(total=len(texts), disable=title is None, desc=title) as bar:
        for answer in scorer.answers([*texts.values()]):
            index = indices[answer.text]
            answers[index] = (answer.loglikelihood, answer.greedy)
            pair = pairs[index]
            if pair is not None:
                lm.cache_hook.add_partial("loglikelihood", pair, answers[index])
            bar.update()
    return answers
