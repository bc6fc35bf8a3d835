"""What requests amount to: their tokens, counted by the model's own tokenizer where it is at hand, else four bytes per
token; and how long a run still takes, by the pace of the answers so far.

`TokenizerOnly` is the harness's `hf` without its weights: it encodes requests as a run would.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from lm_eval.models.huggingface import HFLM
from transformers import AutoConfig, AutoTokenizer

from lm_eval_leakage.harness.models.model_identity import folder_in_cache
from lm_eval_leakage.harness.models.processes import is_first
from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.tokenising import encoded_pairs
from lm_eval_leakage.harness.seams.registries import OUR_MODELS
from lm_eval_leakage.results.formatting import about, count, counted, duration
from lm_eval_leakage.scoring.prefix_tree import (
    IntArray,
    Lengths,
    TokenCounts,
    TokenEstimate,
    estimate_tokens,
    without_sharing,
)

NAMED_BY = ("tokenizer", "pretrained", "model")  # arguments of models, the first one given is taken
OF_A_TOKENIZER = ("tokenizer_config.json", "tokenizer.json")
UNLIMITED, DEFAULT_WINDOW = 10**9, 2048  # tokens


class TokenizerOnly(HFLM):  # type: ignore[misc]
    """Everything of `hf` that needs no weights: encoding, chat template, the length of the window.

    name: a folder, or a name of the Hugging Face Hub
    arguments: those of `hf` that the tokenizer depends on (revision, add_bos_token, max_length, ...)

    Raises OSError or ValueError if there is no such tokenizer.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        super(HFLM, self).__init__()  # past that of `hf`, which loads the weights
        loading: dict[str, Any] = {
            "revision": str(arguments.get("revision") or "main"),
            "trust_remote_code": bool(arguments.get("trust_remote_code")),
            "subfolder": arguments.get("subfolder") or "",
        }
        self.add_bos_token = arguments.get("add_bos_token")
        bos = {} if self.add_bos_token is None else {"add_bos_token": self.add_bos_token}
        fast = arguments.get("use_fast_tokenizer", True)
        self.tokenizer = AutoTokenizer.from_pretrained(name, use_fast=fast, **loading, **bos)
        self.window = int(arguments.get("max_length") or _window(_config(name, loading), self.tokenizer))
        self.custom_prefix_token_id = arguments.get("prefix_token_id")
        self.backend, self.enable_thinking = "causal", arguments.get("enable_thinking")
        self.chat_template_args = dict(arguments.get("chat_template_args") or {})

    @property
    def max_length(self) -> int:
        return self.window


def _window(config: Any, tokenizer: Any) -> int:
    """The longest text, in tokens, as `hf` finds it; lm_eval 0.4.12 has no function for it."""
    config = getattr(config, "text_config", None) or config
    told = [getattr(config, name, None) for name in ("n_positions", "max_position_embeddings", "n_ctx")]
    limit = tokenizer.model_max_length
    return next((window for window in told if window), limit if limit < UNLIMITED else DEFAULT_WINDOW)


def _config(name: str, loading: Mapping[str, Any]) -> Any:
    """The model's configuration, which tells the window; an empty one where there is only a tokenizer."""
    try:
        return AutoConfig.from_pretrained(name, **loading)
    except (OSError, ValueError):
        return SimpleNamespace()


def tokenizer_on_disk(arguments: Mapping[str, Any]) -> TokenizerOnly | None:
    """The tokenizer that a model's arguments name, if it is in a folder or in the cache of the hub; None if it would
    have to be downloaded, or cannot be loaded."""
    name = next((str(arguments[key]) for key in NAMED_BY if arguments.get(key)), "")
    folder: Path | None = Path(name)
    if not any((Path(name) / file).is_file() for file in OF_A_TOKENIZER):
        folder = None if Path(name).is_dir() else folder_in_cache(name, arguments.get("revision"), OF_A_TOKENIZER)
    if folder is None:
        return None
    try:
        return TokenizerOnly(str(folder), {key: value for key, value in arguments.items() if key != "revision"})
    except Exception:  # a tokenizer's own code may raise anything; the run itself will say so
        return None


BYTES_OF_A_TOKEN = 4  # of English text, by most tokenizers
SCORED = "loglikelihood"  # the only method whose texts share prefixes
AS_TREE, IN_BLOCKS, MERGED, ALONE = "n_tree_tokens", "n_block_tokens", "n_merged_tokens", "n_row_tokens"
FALLS_BACK_TO: Mapping[str, str] = {
    "hf-prefix-tree": "hf",
    "vllm-prefix-tree": "vllm",
}
READ_BY: Mapping[str, str] = {  # others: ALONE
    "hf-prefix-tree": AS_TREE,
    "vllm-prefix-tree": IN_BLOCKS,
    "hf": MERGED,
}


def read_by(model: str, counts: TokenCounts) -> int:
    """The tokens that a backend reads.

    model: as `--model` names it; empty for one without a name
    """
    return int(getattr(counts, READ_BY.get(model, ALONE)))


def size_estimated(
    method: str, texts: Sequence[Sequence[IntArray]], n_questions: int, lengths: Lengths | None = None
) -> TokenEstimate:
    """As `estimate_tokens`, for requests of one of the model's methods."""
    found = estimate_tokens(texts, n_questions, lengths)
    return found if method == SCORED else without_sharing(found)


def backend_name(lm: Any) -> str:
    """The name by which READ_BY knows the backend of a model, that of the harness's own where ours has found out, when
    it was loaded or before the first request, that it must score as that does; empty if it is another one."""
    ours = {OUR_MODELS[name].split(":")[1]: name for name in FALLS_BACK_TO}
    name = next((ours[kind.__name__] for kind in type(lm).__mro__ if kind.__name__ in ours), "")
    if not name:
        return "hf" if isinstance(lm, HFLM) else ""
    scores_as_ours = lm.choice.scorer is not None if isinstance(lm, HFLM) else lm.reports_as_it_goes
    return name if scores_as_ours else FALLS_BACK_TO[name]


def has_tokenizer(lm: Any) -> bool:
    """Whether the model's tokens can be counted in this process, without a request to a server."""
    if isinstance(lm, HFLM):
        return True
    if getattr(lm, "tokenizer_backend", None) == "remote" or getattr(lm, "tok_encode", None) is None:
        return False
    return all(not isinstance(token, str) for token in lm.tok_encode("a"))


def tokens_of(lm: Any, method: str, requests: Iterable[Sequence[Any]]) -> list[IntArray]:
    """Token ids of each request's text, as `hf` would read it, or as `has_tokenizer` allows.

    requests: arguments of the model's method
    """
    pairs = [_texts(method, arguments) for arguments in requests]
    if isinstance(lm, HFLM):
        window = lm.max_length + 1
        return [np.concatenate(pair)[-window:] for pair in encoded_pairs(lm, pairs)]
    if has_tokenizer(lm):
        encoded = [lm.tok_encode(context + continuation) for context, continuation in pairs]
        return [np.array(tokens if len(tokens) else [0], np.int32) for tokens in encoded]
    return [_pieces(context + continuation) for context, continuation in pairs]


def n_generated(arguments: Sequence[Any]) -> int:
    """How many tokens a request lets the model write at most; 0 if it only scores."""
    return sum(int(part.get("max_gen_toks") or 0) for part in arguments if isinstance(part, dict))


def _texts(method: str, arguments: Sequence[Any]) -> tuple[str, str]:
    """Context and continuation; chat models behind an API get the turns as a tuple with a JSON text."""
    first = arguments[0] if isinstance(arguments[0], str) else str(arguments[0][0])
    if method == SCORED:
        return first, str(arguments[1])
    return (first, "") if method == "generate_until" else ("", first)


def _pieces(text: str) -> IntArray:
    """Every four bytes as a number, so that equal beginnings have equal numbers."""
    data = text.encode("utf-8", "surrogatepass")
    padded = data + b"\0" * (-len(data) % BYTES_OF_A_TOKEN or BYTES_OF_A_TOKEN * (not data))
    return np.frombuffer(padded, "<i4").astype(np.int32)


# ---------------------------------------------------------------------- the time that is left

FIRST_SECONDS = 10.0  # of the first batch, from which time is estimated
WORTH_TELLING = 30.0  # seconds left; whoever waits for less needs no estimate
CHANGED = 0.3  # of the time that was told; another estimate is told only if it differs by more
LATER = 2  # times the seconds of an estimate, after which the next one is made


@dataclass(frozen=True)
class Pace:
    """share: of the work that is done; seconds: that this took; left: seconds for the rest"""

    share: float
    seconds: float
    left: float


class TimeLeft:
    """Calls `tell` after the first batch of answers, and again whenever an estimate turns out to be wrong: it is made
    anew when the run has taken twice as long, and when the time that was told is over.

    The clock starts at the first answer, before which requests are tokenised and the backend warms up. Answers may
    come in bursts: the first answer after a pause marks the end of one, and what came before it, less the first burst
    and plus this one, is the work of the time since the first. So for bursts of one size the pace is exact.

    total: of the amounts passed to `done`
    """

    def __init__(
        self, total: float, tell: Callable[[Pace], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._tell, self._clock = total, tell, clock
        self._done = 0.0
        self._begun: float | None = None
        self._next, self._end = FIRST_SECONDS, math.nan

    def done(self, amount: float) -> None:
        """Counts an answer. Takes less than a microsecond."""
        if self._begun is None:
            self._begun = self._clock()
        elif (seconds := self._clock() - self._begun) >= self._next:
            self._judge(seconds)
        self._done += amount

    def _judge(self, seconds: float) -> None:
        share = self._done / self._total if self._total else 1.0
        if not share:
            return
        pace = Pace(share, seconds, max(0.0, seconds / share - seconds))
        expected = self._end - seconds
        if pace.left > WORTH_TELLING and not abs(pace.left - expected) <= CHANGED * expected:
            self._end = seconds + pace.left
            self._tell(pace)
        self._next = min(LATER * seconds, self._end) if self._end > seconds else LATER * seconds


# A child of lm_eval's logger, so that the lines are shown where its own notes of progress are.
logger = logging.getLogger("lm_eval.leakage")

QUESTIONS_WEIGHED = 600  # at most, drawn at random; only the length of their texts is measured
QUESTIONS_MEASURED = 60  # of these, at most; their texts are tokenised
SECONDS_OF_TOKENISING = 0.4  # after which no further question is tokenised


def announced(lm: Any, method: str, requests: Collection[Any]) -> TimeLeft | None:
    """Logs what these requests amount to, and returns the clock to be told of their answers; None if nothing is said,
    as where lm_eval's notes of progress are not shown. Numbers are estimated from a part of the questions."""
    if not requests or getattr(lm, "rank", None) or not is_first() or not logger.isEnabledFor(logging.INFO):
        return None
    try:
        size = _estimated(lm, method, requests)
    except Exception as problem:  # a tokenizer may raise anything, and the run itself will say so
        logger.debug("the requests cannot be counted: %r", problem)
        return None
    logger.info("%s", _in_words(lm, requests, size))
    n_read = read_by(backend_name(lm), size.counts)
    return TimeLeft(sum(n_characters(one.args) for one in requests), lambda pace: _tell(pace, n_read))


def _estimated(lm: Any, method: str, requests: Collection[Any]) -> TokenEstimate:
    by_question = [
        [one.args for one in own] for _, own in groupby(requests, key=lambda one: (id(one.task), one.doc_id))
    ]
    drawn = random.Random(0).sample(by_question, min(len(by_question), QUESTIONS_WEIGHED))
    lengths = np.array([_lengths(own) for own in drawn], np.float64)
    texts, begun = [], time.monotonic()
    for own in drawn[:QUESTIONS_MEASURED]:
        texts.append(tokens_of(lm, method, own))
        if time.monotonic() - begun > SECONDS_OF_TOKENISING:
            break
    known = Lengths(lengths[: len(texts)].tolist(), lengths.mean(axis=0).tolist())
    return size_estimated(method, texts, len(by_question), known)


def _lengths(own: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Characters of contexts and of continuations: shared prefixes are mostly of the former."""
    return sum([n_characters(one[:1]) for one in own]), sum([n_characters(one[1:]) for one in own])


def _in_words(lm: Any, requests: Collection[Any], size: TokenEstimate) -> str:
    first, *others = dict.fromkeys(one.task.config.task for one in requests)
    counts, name = size.counts, backend_name(lm)
    alone, read = counts.n_row_tokens, read_by(name, counts)
    told = f"{first} and {counted(len(others), 'other task')}" if others else first
    told += f": {counted(len(requests), 'request')} with {about(alone)} tokens"
    if counts.n_tree_tokens < alone:
        told += f", {about(counts.n_tree_tokens)} with shared prefixes read once"
    if read < alone:
        told += f"; {name} reads {about(read)}"
    if n_written := sum(n_generated(one.args) for one in requests):
        told += f", and at most {about(n_written)} to generate"
    if size.n_measured < size.n_questions:
        told += f"; estimated from {size.n_measured} of {count(size.n_questions)} questions"
    return told if has_tokenizer(lm) else f"{told}; four bytes taken for a token"


def _tell(pace: Pace, n_tokens: int) -> None:
    done = about(round(pace.share * n_tokens))
    logger.info(
        "about %s left (%s of %s tokens in %s)", duration(pace.left), done, about(n_tokens), duration(pace.seconds)
    )
