"""`--model vllm-server-prefix-tree`: the harness's `local-completions` against a vLLM server, but shared prefixes of
requests are computed only once."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.harness.models.engine_answers import engine_answers
from lm_eval_leakage.harness.models.portions import Pair
from lm_eval_leakage.harness.models.vllm_server import ServerError, VllmServer
from lm_eval_leakage.harness.patches.api_model import refuse_other_api
from lm_eval_leakage.scoring.engine_scorer import EngineScorer
from lm_eval_leakage.scoring.prefix_tree import Text

logger = logging.getLogger(__name__)
COMPLETIONS = "/v1/completions"
BEGINNING = (
    "The baker rises at three, when the town is still asleep, lights the oven, weighs flour, salt and water, and "
    "kneads the dough for the loaves that the first customers will carry home before the school bell rings. "
)
BEGINNING_TOKENS = 160  # more than the largest usual block of vLLM's cache, that of 128 tokens on CPUs
ATTEMPTS_TO_SHARE = (
    8  # requests until one is told to have read the cache; those that the server fails to write are lost
)
DIFFERENT_ENDINGS = ("On Monday he sleeps.", "On Sunday he sleeps until noon.")
# Tolerated root mean square of the difference from plain requests, in nats per square root of a token: rounding in
# bfloat16 gives up to 0.12 with SmolLM2, a token scored after another prefix 1.3 or more.
TOLERATED_NOISE = 0.4


class VllmServerPrefixTreeLM(LocalCompletionsAPI):  # type: ignore[misc]
    """Takes all arguments of `local-completions`, and behaves like it except for log-likelihoods.

    base_url: of a vLLM server's completions, such as http://127.0.0.1:8000/v1/completions. The server must have been
        started with --enable-scale-out and --enable-prompt-tokens-details; else log-likelihoods are those of
        `local-completions`, and one line says so
    """

    def __init__(self, base_url: str | None = None, num_concurrent: int = 1, **kwargs: Any) -> None:
        refuse_other_api()
        if not (base_url or "").rstrip("/").endswith(COMPLETIONS):
            raise ValueError(
                f"base_url is {base_url!r}; give the URL of a vLLM server's completions, such as "
                f"http://127.0.0.1:8000{COMPLETIONS}"
            )
        super().__init__(base_url=base_url, num_concurrent=num_concurrent, **kwargs)
        self.server = VllmServer(
            self.base_url.rstrip("/").removesuffix(COMPLETIONS),
            self.model,
            self.header,
            n_concurrent=max(1, int(num_concurrent)),
            max_retries=max(1, self.max_retries),
            timeout=self.timeout,
            verify=self.verify_certificate,
        )
        self._is_exact: bool | None = None  # not known before the server is asked for the first time

    @property
    def reports_as_it_goes(self) -> bool:
        """Whether answers are reported before a call returns."""
        return self._suits()

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Pair | None, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Also called by rolling log-likelihoods, for their windows."""
        if requests and not self._suits():
            stock: list[tuple[float, bool]] = super()._loglikelihood_tokens(requests, **kwargs)
            return stock
        rows, context_lengths, pairs = self.batch_loglikelihood_requests([requests])
        texts = {
            number: Text(np.array(row), len(row) - n_context)
            for number, (row, n_context) in enumerate(zip(rows, context_lengths, strict=True))
            if requests[number][2]
        }
        title = None if kwargs.get("disable_tqdm") else "Requesting API"
        return engine_answers(self, EngineScorer(self.server), pairs, texts, title)

    def _suits(self) -> bool:
        """Whether the server's cache gives the values of plain requests; found out once."""
        if self._is_exact is None:
            try:
                reason = why_not_exact(self.server, self._probe())
            except ServerError as error:
                reason = str(error)
            self._is_exact = not reason
            if reason:
                logger.warning("vllm-server-prefix-tree: %s; scoring as `local-completions` does", reason)
        return self._is_exact

    def _probe(self) -> list[Text]:
        """Texts with a long common beginning."""
        n_tokens = max(2, min(BEGINNING_TOKENS, self.max_length // 2))
        beginning = self.tok_encode(BEGINNING * 10)[:n_tokens]
        return [Text(np.array(beginning + self.tok_encode(end)), n_tokens // 2) for end in DIFFERENT_ENDINGS]


def why_not_exact(server: VllmServer, texts: Sequence[Text]) -> str:
    """Why the cache of a server cannot be used, as a clause; empty if texts that share prefixes get the
    log-likelihoods of plain requests. Raises ServerError if a request is refused."""
    server.n_preemptions()
    text, n_cached = _read_from_cache(server, texts)
    if server.n_preemptions() is None:
        return (
            "its /metrics do not show how often it preempted requests, or lack those just sent (start it without "
            "--disable-log-stats, and give the URL of one server)"
        )
    if not n_cached:
        return (
            "the server does not say that it read tokens from its cache (start it with "
            "--enable-prompt-tokens-details, and on CPUs with --block-size 32)"
        )
    texts = [*texts, _with_a_hole(text, n_cached)]
    shared = {answer.text: answer.loglikelihood for answer in EngineScorer(server).answers(texts)}
    errors = []
    for number, (text, returned) in enumerate(
        zip(texts, server.scores([text.tokens for text in texts], None), strict=True)
    ):
        own = float(returned.logprobs[-text.n_scored :].sum())
        errors.append((shared[number] - own) ** 2 / text.n_scored)
    error = math.sqrt(sum(errors) / len(errors))
    if not error <= TOLERATED_NOISE:
        return f"its prefix cache changes log-likelihoods by {error:.2g} nats per token"
    logger.info("vllm-server-prefix-tree: the prefix cache changes log-likelihoods by %.2g nats per token", error)
    return ""


def _read_from_cache(server: VllmServer, texts: Sequence[Text]) -> tuple[Text, int]:
    """The first of `texts`, sent one after another, of which the server read tokens from its cache, and how many."""
    salt = secrets.token_hex(8)
    for text in itertools.islice(itertools.cycle(texts), ATTEMPTS_TO_SHARE):
        (returned,) = server.scores([text.tokens], salt)
        if returned.n_cached:
            return text, returned.n_cached
    return texts[0], 0


def _with_a_hole(text: Text, n_cached: int) -> Text:
    """A text that leaves `text` after the last cached token, so that no request returns its next one."""
    tokens = text.tokens.copy()
    tokens[n_cached] = next(token for token in tokens if token != tokens[n_cached])
    return Text(tokens, len(tokens) - n_cached)
