"""`--model vllm-server-prefix-tree`: the harness's `local-completions` against a vLLM server, but shared prefixes of
requests are computed only once."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from lm_eval.models.openai_completions import LocalCompletionsAPI
from tqdm import tqdm

from lm_eval_leakage.harness.models.vllm_server import ServerError, ServerLoad, VllmServer
from lm_eval_leakage.scoring.engine_cache import SharedScores, lexicographic
from lm_eval_leakage.scoring.prefix_tree import ScoredText, Text

logger = logging.getLogger(__name__)
Pair = tuple[str, str]  # context, continuation
BATCH = 1024  # texts that share the server's cache: the most that is computed again if it cannot be relied on
PATH = "/v1/completions"
PROBE = (
    "The baker rises at three, when the town is still asleep, lights the oven, weighs flour, salt and water, and "
    "kneads the dough for the loaves that the first customers will carry home before the school bell rings. "
)
PROBE_TOKENS = 160  # more than the largest usual block of vLLM's cache, that of 128 tokens on CPUs
PROBES = 8  # requests until one is told to have read the cache; those that the server fails to write are lost
ENDINGS = ("On Monday he sleeps.", "On Sunday he sleeps until noon.")
# Tolerated root mean square of the difference from plain requests, in nats per square root of a token: rounding in
# bfloat16 gives up to 0.12 with SmolLM2, a token scored after another prefix 1.3 or more.
NOISE = 0.4


class VllmServerPrefixTreeLM(LocalCompletionsAPI):  # type: ignore[misc]
    """Takes all arguments of `local-completions`, and behaves like it except for log-likelihoods.

    base_url: of a vLLM server's completions, such as http://127.0.0.1:8000/v1/completions. The server must have been
        started with --enable-scale-out and --enable-prompt-tokens-details; else log-likelihoods are those of
        `local-completions`, and one line says so
    """

    def __init__(self, base_url: str | None = None, **kwargs: Any) -> None:
        if not (base_url or "").rstrip("/").endswith(PATH):
            raise ValueError(
                f"base_url is {base_url!r}; give the URL of a vLLM server's completions, such as "
                f"http://127.0.0.1:8000{PATH}"
            )
        super().__init__(base_url=base_url, **kwargs)
        self.server = VllmServer(
            self.base_url.rstrip("/").removesuffix(PATH),
            self.model,
            self.header,
            n_concurrent=max(1, self._concurrent),
            max_retries=max(1, self.max_retries),
            timeout=self.timeout,
            verify=self.verify_certificate,
        )
        self._is_exact: bool | None = None  # not known before the server is asked for the first time

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Pair | None, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Also called by rolling log-likelihoods, for their windows."""
        if requests and not self._suits():
            stock: list[tuple[float, bool]] = super()._loglikelihood_tokens(requests, **kwargs)
            return stock
        rows, context_lengths, pairs = self.batch_loglikelihood_requests([requests])
        texts = [Text(np.array(row), len(row) - length) for row, length in zip(rows, context_lengths, strict=True)]
        answers: list[tuple[float, bool]] = [(math.nan, False)] * len(texts)
        order = lexicographic(texts)
        with tqdm(total=len(texts), disable=kwargs.get("disable_tqdm", False), desc="Requesting API") as bar:
            for first in range(0, len(order), BATCH):
                batch = order[first : first + BATCH]
                for place, answer in zip(batch, shared_answers(self.server, [texts[i] for i in batch]), strict=True):
                    answers[place] = (answer.loglikelihood, answer.greedy)
                    if pairs[place] is not None:  # a window of a rolling log-likelihood, which is cached as a whole
                        self.cache_hook.add_partial("loglikelihood", pairs[place], answers[place])
                    bar.update()
        return answers

    def _suits(self) -> bool:
        """Whether the server's cache gives the values of plain requests; found out once."""
        if self._is_exact is None:
            try:
                reason = why_not_exact(self.server, self._probe())
            except (ServerError, OSError) as error:
                reason = str(error)
            self._is_exact = not reason
            if reason:
                logger.warning("vllm-server-prefix-tree: %s; scoring as `local-completions` does", reason)
        return self._is_exact

    def _probe(self) -> list[Text]:
        """Texts with a long common beginning."""
        n_tokens = max(2, min(PROBE_TOKENS, self.max_length // 2))
        beginning = self.tok_encode(PROBE * 10)[:n_tokens]
        return [Text(np.array(beginning + self.tok_encode(end)), n_tokens // 2) for end in ENDINGS]


def shared_answers(server: VllmServer, texts: Sequence[Text]) -> list[ScoredText]:
    """The log-likelihoods of texts in lexicographic order. If the cache cannot be relied on, it is not used."""
    rows = [text.tokens.tolist() for text in texts]
    before, salt, scores = server.load(), uuid4().hex, SharedScores(texts)
    for place, returned in enumerate(server.read(rows, salt, from_cache=True)):
        scores.receive(place, returned)
    holes = scores.holes()
    filled = server.next_tokens([(rows[hole.text][: hole.depth], rows[hole.text][hole.depth]) for hole in holes], salt)
    for hole, (logprob, greedy) in zip(holes, filled, strict=True):
        scores.fill(hole, logprob, greedy)
    if reason := why_unreliable(before, server.load(), len(rows) + len(holes)):
        logger.warning("vllm-server-prefix-tree: %s; asking for %d texts again without its cache", reason, len(rows))
        scores = plain_scores(server, texts)
    return [scores.answer(place) for place in range(len(texts))]


def plain_scores(server: VllmServer, texts: Sequence[Text]) -> SharedScores:
    """The scores of texts, all of whose tokens are computed."""
    scores = SharedScores(texts)
    rows = [text.tokens.tolist() for text in texts]
    for place, returned in enumerate(server.read(rows, uuid4().hex, from_cache=False)):
        scores.receive(place, returned)
    return scores


def why_unreliable(before: ServerLoad, after: ServerLoad, n_sent: int) -> str:
    """Why what the server read from its cache may differ from what it told; empty if it does not.

    A request that is preempted begins again, possibly with other blocks, and is reported with the first ones.
    """
    if before.n_preempted is None or after.n_preempted is None:
        return "its /metrics do not show whether requests were preempted (start it without --disable-log-stats)"
    if after.n_preempted != before.n_preempted:
        return "it preempted requests (a lower num_concurrent avoids that)"
    if (after.n_answered or 0) - (before.n_answered or 0) < n_sent:
        return "its /metrics are not those of the engine that answered (give the URL of one server)"
    return ""


def why_not_exact(server: VllmServer, texts: Sequence[Text]) -> str:
    """Why the cache of a server cannot be used, as a clause; empty if texts that share prefixes get the
    log-likelihoods of plain requests. Raises ServerError if a request is refused."""
    before, salt, n_cached, n_sent = server.load(), uuid4().hex, 0, 0
    while not n_cached and n_sent < PROBES:
        (found,) = server.read([texts[n_sent % len(texts)].tokens.tolist()], salt, from_cache=True)
        n_cached, n_sent = found.n_cached, n_sent + 1
    if reason := why_unreliable(before, server.load(), n_sent):
        return reason
    if not n_cached:
        return (
            "the server does not tell that it read tokens from its cache (start it with "
            "--enable-prompt-tokens-details, and on CPUs with --block-size 32)"
        )
    texts = [*texts, _with_a_hole(texts[0], n_cached)]
    texts = [texts[place] for place in lexicographic(texts)]
    own, shared = plain_scores(server, texts), shared_answers(server, texts)
    errors = [
        (answer.loglikelihood - own.answer(place).loglikelihood) ** 2 / text.n_scored
        for place, (answer, text) in enumerate(zip(shared, texts, strict=True))
    ]
    error = math.sqrt(sum(errors) / len(errors))
    if not error <= NOISE:
        return f"its prefix cache changes log-likelihoods by {error:.2g} nats per token"
    logger.info("vllm-server-prefix-tree: the prefix cache changes log-likelihoods by %.2g nats per token", error)
    return ""


def _with_a_hole(text: Text, n_cached: int) -> Text:
    """A text that leaves `text` after the last cached token, so that no request returns its next one."""
    rest = text.tokens[n_cached:]
    differs = rest != rest[0]
    rest = rest[int(differs.argmax()) :]
    return Text(np.concatenate([text.tokens[:n_cached], rest]), min(n_cached - 1, 2) + len(rest))
