"""What a running `vllm serve` says about texts over HTTP, with its prefix cache or without.

vLLM does not read its cache if log-probabilities of a text are asked for. `/inference/v1/generate` takes the engine's
own sampling parameters, by which it can be told to read it nevertheless; then only the tokens that it computed come
with valid values.

`--model vllm-server-prefix-tree`: the harness's `local-completions` against a vLLM server, but shared prefixes of
requests are computed only once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from time import sleep
from typing import Any, ClassVar, TypeVar

import numpy as np
import requests
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.harness.models.asking import engine_answers
from lm_eval_leakage.harness.models.server_proof import KNOWN_TEXT, TOLERATED_NOISE
from lm_eval_leakage.harness.models.tokenising import Pair
from lm_eval_leakage.harness.seams.backends import refuse_other_scoring
from lm_eval_leakage.scoring.engine import EngineScorer, Returned
from lm_eval_leakage.scoring.prefix_tree import IntArray, Text
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
COMPLETIONS = "/v1/completions"
Answer = TypeVar("Answer")
Payload = dict[str, Any]
PREEMPTED_TOTAL, ANSWERED_TOTAL = "vllm:num_preemptions_total", "vllm:request_success_total"
WORTH_REPEATING = (408, 429)  # of the statuses that blame the request
LONGEST_WAIT = 10.0  # seconds before a failed request is repeated
CACHE_FLAG = "skip_reading_prefix_cache"  # of vLLM's SamplingParams
FAILURES = (requests.RequestException, LookupError, TypeError, ValueError)


class ServerError(RuntimeError):
    """The server refuses a request, or answers it with something else than was asked for."""


class VllmServer:
    """An `Engine` behind a URL.

    lm: `local-completions` with the URL, the name of the model or of a LoRA adapter, and how requests are sent
    n_concurrent: number of requests under way at a time
    """

    no_counts: ClassVar[str] = (
        "its /metrics do not show how often it preempted requests, or lack those just sent (start it without "
        "--disable-log-stats, and give the URL of one server)"
    )
    no_cache: ClassVar[str] = (
        "the server does not say that it read tokens from its cache (start it with "
        "--enable-prompt-tokens-details, and on CPUs with --block-size 32)"
    )

    def __init__(self, lm: Any, n_concurrent: int) -> None:
        self.lm, self.n_concurrent, self.max_retries = lm, max(1, n_concurrent), max(1, lm.max_retries)
        self.root = lm.base_url.rstrip("/").removesuffix(COMPLETIONS)
        self._how = {"headers": lm.header, "timeout": lm.timeout, "verify": lm.verify_certificate}
        self._n_sent = 0  # since the counters were read
        self._n_answered = 0.0  # by the server, when the counters were read

    def scores(self, texts: Sequence[IntArray], salt: str | None) -> list[Returned]:
        """Log-probabilities of each text's tokens. Requests start in the order of the texts."""
        wanted = {"prompt_logprobs": 1, CACHE_FLAG: salt is None}
        return self._answers([self._payload(text, salt, wanted) for text in texts], returned_from)

    def last_tokens(self, texts: Sequence[IntArray], salt: str) -> list[tuple[float, bool]]:
        """Log-probability of each text's last token, and whether it is the most likely one. The token is generated, so
        that the cache holds everything before it."""
        wanted = [{"logprobs": 2, "allowed_token_ids": [int(text[-1])]} for text in texts]
        payloads = [self._payload(text[:-1], salt, one) for text, one in zip(texts, wanted, strict=True)]
        return self._answers(payloads, next_token_from)

    def n_preemptions(self) -> float | None:
        """Number of requests that the server has preempted. None if it does not say, or if its counters lack requests
        that were sent since they were last read: then several servers share the URL."""
        text = self._metrics()
        n_sent, n_before = self._n_sent, self._n_answered
        n_answered, n_preempted = metric(text, ANSWERED_TOTAL), metric(text, PREEMPTED_TOTAL)
        self._n_sent, self._n_answered = 0, n_answered or 0
        return None if n_sent and (n_answered or 0) - n_before < n_sent else n_preempted

    def _payload(self, text: IntArray, salt: str | None, wanted: Mapping[str, Any]) -> Payload:
        parameters = {"max_tokens": 1, "temperature": 0, "detokenize": False, **wanted}
        return {"model": self.lm.model, "token_ids": text.tolist(), "cache_salt": salt, "sampling_params": parameters}

    # ------------------------------------------------------------------ HTTP

    def _answers(self, asked: Sequence[Payload], parsed: Callable[[Payload, Payload], Answer]) -> list[Answer]:
        with requests.Session() as session, ThreadPoolExecutor(self.n_concurrent) as pool:
            session.mount(self.root, requests.adapters.HTTPAdapter(pool_maxsize=self.n_concurrent))
            found = list(pool.map(lambda sent: self._answer(session, sent, parsed), asked))
        self._n_sent += len(asked)
        return found

    def _answer(
        self, session: requests.Session, sent: Payload, parsed: Callable[[Payload, Payload], Answer]
    ) -> Answer:
        """What reads the cache and fails is computed anew: its tokens may be in the cache by then, while their values
        are lost."""
        if sent["sampling_params"].get(CACHE_FLAG) is False:
            try:
                return parsed(sent, self._post(session, sent))
            except (ServerError, *FAILURES):
                sent = {**sent, "sampling_params": {**sent["sampling_params"], CACHE_FLAG: True}}
        for number in range(1, self.max_retries + 1):
            try:
                return parsed(sent, self._post(session, sent))
            except FAILURES as error:
                if number == self.max_retries:
                    raise ServerError(f"{self.root} failed {number} times, now with {error!r}") from error
                logger.warning("%s failed with %r; sending the request again", self.root, error)
                sleep(min(0.5 * 2**number, LONGEST_WAIT))
        raise AssertionError("max_retries is at least 1")

    def _post(self, session: requests.Session, sent: Payload) -> Payload:
        url = f"{self.root}/inference/v1/generate"
        response = session.post(url, json=sent, **self._how)
        if 400 <= response.status_code < 500 and response.status_code not in WORTH_REPEATING:
            raise ServerError(f"{url} refuses a request with status {response.status_code}: {brief(response.text)}")
        response.raise_for_status()
        found: Payload = response.json()
        return found

    def _metrics(self) -> str:
        try:
            response = requests.get(f"{self.root}/metrics", **self._how)
        except requests.RequestException:
            return ""
        return response.text if response.ok else ""


def metric(text: str, name: str) -> float | None:
    """Sum of a counter over all of its labels, in the text format of Prometheus; None if it is not there."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(value) for _, value in lines) if lines else None


def returned_from(sent: Mapping[str, Any], response: Mapping[str, Any]) -> Returned:
    """What a response says about a row. Raises LookupError, TypeError or ValueError if it says something else.

    The server gives either all positions, those of cached tokens with arbitrary content, or only the computed ones.
    """
    tokens, rows = sent["token_ids"], response["prompt_logprobs"]
    n_cached = len(tokens) - len(rows)
    if not sent["sampling_params"][CACHE_FLAG]:
        n_cached = max(n_cached, int(response["usage"]["prompt_tokens_details"]["cached_tokens"]))
    # from the first computed position on whose predecessor was computed too
    scored = [_scored(rows[place - len(tokens)], tokens[place]) for place in range(n_cached + 1, len(tokens))]
    logprobs = np.array([logprob for logprob, _ in scored], np.float64)
    return Returned(n_cached, logprobs, np.array([greedy for _, greedy in scored], np.bool_))


def _scored(row: Mapping[str, Mapping[str, Any]] | None, token: int) -> tuple[float, bool]:
    entry = (row or {}).get(str(token))
    if row is None or entry is None or entry["logprob"] is None:
        return math.nan, False
    return float(entry["logprob"]), entry["logprob"] >= max(one["logprob"] for one in row.values())


def next_token_from(sent: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[float, bool]:
    """What a response says about the one token that was allowed. Raises LookupError, TypeError or ValueError if it
    says something else."""
    (content,) = response["choices"][0]["logprobs"]["content"]
    (token,) = sent["sampling_params"]["allowed_token_ids"]
    if content["token_id"] != token:
        raise ValueError(f"the server chose token {content['token_id']}, though only {token} was allowed")
    logprob = float(content["logprob"])
    return logprob, logprob >= max(one["logprob"] for one in content["top_logprobs"])


BLOCKS = (16, 32, 64, 128)  # usual sizes of the blocks of vLLM's cache, in tokens


class VllmServerPrefixTreeLM(LocalCompletionsAPI):  # type: ignore[misc]
    """Takes all arguments of `local-completions`, and behaves like it except for log-likelihoods.

    base_url: of a vLLM server's completions, such as http://127.0.0.1:8000/v1/completions. The server must have been
        started with --enable-scale-out and --enable-prompt-tokens-details; else log-likelihoods are those of
        `local-completions`, and one line says so
    """

    def __init__(self, base_url: str | None = None, num_concurrent: int = 1, **kwargs: Any) -> None:
        refuse_other_scoring(LocalCompletionsAPI)
        if not (base_url or "").rstrip("/").endswith(COMPLETIONS):
            raise ValueError(
                f"base_url is {base_url!r}; give the URL of a vLLM server's completions, such as "
                f"http://127.0.0.1:8000{COMPLETIONS}"
            )
        super().__init__(base_url=base_url, num_concurrent=num_concurrent, **kwargs)
        self.server = VllmServer(self, int(num_concurrent))

    @cached_property
    def reports_as_it_goes(self) -> bool:
        """Whether answers are reported before a call returns: if the server's cache gives the values of plain
        requests, which is found out when it is asked for the first time."""
        try:
            reason = EngineScorer(self.server).why_not_exact(self._probe(), TOLERATED_NOISE)
        except ServerError as error:
            reason = str(error)
        if reason:
            logger.warning("vllm-server-prefix-tree: %s; scoring as `local-completions` does", reason)
        return not reason

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Pair | None, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Also called by rolling log-likelihoods, for their windows."""
        if requests and not self.reports_as_it_goes:
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

    def _probe(self) -> list[Text]:
        """Texts with a long common beginning, which part where a block may end, or in the middle of one."""
        long = np.array(self.tok_encode(KNOWN_TEXT * 10)[: min(2 * BLOCKS[-1], self.max_length - 2)])
        parted = [np.concatenate([long[:at], long[at:][::-1]]) for at in (*BLOCKS, BLOCKS[0] + 1) if at < len(long)]
        return [Text(tokens, len(tokens) - 1) for tokens in (long, *parted)]
