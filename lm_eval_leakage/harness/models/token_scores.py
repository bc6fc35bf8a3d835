"""Compute token scores with the backend `hf`.

The scores of a token are its log-probability, and the mean and standard deviation of the log-probability under the
distribution from which the model would draw it. A backend supports them with a method `token_scores(requests)`, which
takes requests of one text each and returns one `TokenScores` per request, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from lm_eval.api.instance import Instance
from torch import Tensor
from tqdm import tqdm

from lm_eval_leakage.harness.models.processes import are_replicas
from lm_eval_leakage.harness.seams.backends import is_hf, logits_of, offer_method
from lm_eval_leakage.records import TokenScores
from lm_eval_leakage.scoring.pieces import UnsuitedModelError
from lm_eval_leakage.scoring.tree_model import TwoParts, rows_at_once

if TYPE_CHECKING:
    from lm_eval.models.huggingface import HFLM

logger = logging.getLogger(__name__)

METHOD = "token_scores"
LARGEST_BATCH = 64  # texts, with `batch_size=auto` and no `max_batch_size`; lm_eval begins with as many
N_TABLES = 8  # float32 tables as large as a piece of the logits that are in memory while it is scored, with a margin


def offer_token_scores(lm: object) -> bool:
    """Return whether `lm` supports token scores, after adding the method to `hf` and its subclasses."""
    model: Any = getattr(lm, "lm", lm)  # unwraps the harness's response cache, which passes other methods through
    if not hasattr(model, "token_scores") and is_hf(model) and model.backend == "causal":
        offer_method(model, METHOD, token_scores_of_hf)
    return hasattr(model, "token_scores")


def token_scores_of_hf(lm: HFLM, requests: Sequence[Instance]) -> list[TokenScores]:
    """Return the scores of every token of each text, in the order of the requests.

    The first token is scored after the model's own prefix token (BOS or EOS). A text longer than the window is
    truncated to it. With `batch_size=auto`, a batch has `max_batch_size` texts, and half as many whenever memory runs
    out.
    """
    texts = [lm.tok_encode(instance.args[0], add_special_tokens=False)[: lm.max_length - 1] for instance in requests]
    longest_first = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    answers: dict[int, TokenScores] = {}
    progress = tqdm(total=len(texts), desc="Running token_scores requests", disable=lm.rank != 0)
    is_automatic = str(lm.batch_size).startswith("auto")
    size = int(lm.max_batch_size or LARGEST_BATCH) if is_automatic else max(1, int(lm.batch_size))
    while longest_first:
        batch = longest_first[:size]
        scores: list[TokenScores] | None
        try:
            scores = _scores(lm, [texts[index] for index in batch])
        except RuntimeError as error:
            # processes that hold parts of one model must keep to the same batches
            if not is_automatic or size == 1 or are_replicas(lm) or not should_reduce_batch_size(error):
                raise
            scores = None
        if scores is None:  # only now has the error let go of the batch's memory
            size = max(1, len(batch) // 2)
            logger.warning("out of memory; token scores continue with batches of %d", size)
            clear_device_cache(garbage_collection=True)
            continue
        for index, score in zip(batch, scores, strict=True):
            answers[index] = score
            lm.cache_hook.add_partial(METHOD, requests[index].args, score)
        del longest_first[:size]
        progress.update(len(batch))
    progress.close()
    return [answers[index] for index in range(len(texts))]


def _scores(lm: HFLM, texts: Sequence[Sequence[int]]) -> list[TokenScores]:
    """Return the scores of one batch of tokenised texts."""
    longest = max(map(len, texts))
    rows = [[lm.prefix_token_id, *text, *[lm.eot_token_id] * (longest - len(text))] for text in texts]
    tokens = torch.tensor(rows, device=lm.device)
    # padding is at the end, where no token of the text attends to it
    parts = [_distribution_columns(logits, wanted) for logits, wanted in _logits(lm, tokens[:, :-1], tokens[:, 1:])]
    columns = torch.cat(parts, dim=1).reshape(3, len(texts), longest).cpu()
    return [
        TokenScores(*(tuple(column[row, : len(text)].tolist()) for column in columns))
        for row, text in enumerate(texts)
    ]


def precision_of(lm: HFLM) -> torch.autocast:
    """Return the context in which to call a part of the model: its mixed precision, if it has one."""
    dtype = lm.mixed_precision_dtype
    return torch.autocast(lm.device.type, dtype=dtype, enabled=dtype is not None)


@torch.inference_mode()
def _logits(lm: HFLM, tokens: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits of a batch with their targets, in pieces of consecutive tokens.

    All logits of a batch may need more memory than the model. If its head can be separated from its layers, the head
    computes one piece at a time; else all logits are computed at once.
    """
    head: Callable[[Tensor], Tensor]
    try:
        model = TwoParts(lm.model)
        output = model.layers_of(lambda: logits_of(lm, tokens))
        rows, head = output.last_hidden_state.flatten(0, 1), partial(model.logits, output)
    except UnsuitedModelError:
        rows, head = logits_of(lm, tokens).flatten(0, 1), Tensor.float
    step = max(1, rows_at_once(lm.model, rows.device) // N_TABLES)
    for first in range(0, len(rows), step):
        with precision_of(lm):
            logits = head(rows[first : first + step])
        yield logits, targets.reshape(-1)[first : first + step]


def _distribution_columns(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target, and the mean and standard deviation of log p(v) for v drawn from p.

    Shapes: logits `(n, vocabulary)`, targets `(n,)`, result `(3, n)` in float32.
    """
    logs = torch.log_softmax(logits.float(), dim=-1)
    chances = logs.exp()
    finite = torch.where(chances > 0, logs, 0.0)  # a token with probability 0 adds 0 instead of 0 * -inf
    mean = (chances * finite).sum(-1)
    variance = (chances * (finite - mean[:, None]) ** 2).sum(-1)
    return torch.stack([logs.gather(-1, targets[:, None])[:, 0], mean, variance.sqrt()])
