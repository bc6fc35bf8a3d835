"""Proves, before an audit asks anything, that a server returns the log-probabilities of a text that it is given.

A known text is sent twice, as the backend sends its texts. All positions but the first must be there, finite and at
most 0. Their mean must be between MEAN_LOW and MEAN_HIGH, and they must not all be the same: an even guess among
262,144 tokens, the largest usual vocabulary, is log(1/262144) = -12.5 nats, and no model foresees every token of a
text by 99.9 %, while servers are known that give 0. Both answers must agree up to TOLERATED_NOISE: rounding differs
with what else a server computes at the time; other weights or another precision behind one address differ by more.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import requests

from lm_eval_leakage.harness.models.server_responses import FaultyResponse, ServerResponses, by_index, patient
from lm_eval_leakage.harness.seams.backends import reads_as_completions
from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
KNOWN_TEXT = (
    "The baker rises at three, when the town is still asleep, lights the oven, weighs flour, salt and water, and "
    "kneads the dough for the loaves that the first customers will carry home before the school bell rings. "
)
MEAN_LOW, MEAN_HIGH = -15.0, -0.001  # nats per token
# Tolerated root mean square of a difference, in nats per square root of a token: rounding in bfloat16 gives up to 0.12
# with SmolLM2, a token scored after another prefix 1.3 or more.
TOLERATED_NOISE = 0.4
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how SentencePiece writes a byte of a character
OWN_WAY = "scores_of_known_text"  # method of a model that does not read responses as `local-completions` does
LATER = (408, 429)  # of the statuses that blame the request, those that say nothing about it
REMEDY = (
    "check base_url, model and the key in OPENAI_API_KEY, or choose another provider or audits that generate text "
    "(docs/howto/api_models.md has tables of both)"
)


class Unproven(Refusal):
    """What a server lacks, as a sentence."""


def proven(kind: Any, model_args: Mapping[str, Any]) -> str:
    """What was found, as a sentence; empty where the model asks no server in a way that can be tried, and where the
    run itself will tell what is wrong, since the model cannot be built or the server not be reached. Raises Unproven,
    after few small requests of which none is repeated that was answered."""
    can_be_tried = reads_as_completions(kind) or hasattr(kind, OWN_WAY)
    lm = _built(kind, model_args) if can_be_tried else None
    if lm is None:
        return ""
    scores_of = getattr(lm, OWN_WAY, None) or (lambda: _scores_by_completions(lm))
    try:
        return _judged(lm, scores_of(), scores_of())
    except FaultyResponse as fault:
        raise refusal(lm, str(fault)) from None
    except requests.RequestException as error:
        logger.debug("%s was not proven: %s", lm.base_url, error)
        return ""


def _built(kind: Any, model_args: Mapping[str, Any]) -> Any:
    try:
        return kind.create_from_arg_obj(dict(model_args))
    except Exception as error:  # a tokenizer's code may raise anything, and the run itself will say so
        logger.debug("%s cannot be built: %r", kind, error)
        return None


def _judged(lm: Any, first: Sequence[float], second: Sequence[float]) -> str:
    """What a model behind an API gives for the known text, sent twice, as a sentence. Raises Unproven."""
    mean = math.fsum(first) / len(first)
    noise = math.dist(first, second) / math.sqrt(len(first)) if len(first) == len(second) else math.inf
    if len({*first}) == 1 or not MEAN_LOW <= mean <= MEAN_HIGH:
        how = "each" if len({*first}) == 1 else f"on average, where {MEAN_LOW:g} to {MEAN_HIGH:g} are plausible"
        raise refusal(lm, f"{len(first)} tokens of a plain English text get {mean:.4g} nats {how}")
    if not noise <= TOLERATED_NOISE:
        told = f"the same text sent twice gets values that differ by {noise:.2g} nats per token"
        raise refusal(lm, f"{told}, more than {TOLERATED_NOISE:g}, so that more than one model may answer")
    return (
        f"{lm.base_url} returns log-probabilities of a given text: {len(first)} tokens of a known one with a mean of "
        f"{mean:.2f} nats, {f'{noise:.2g} nats per token off' if noise else 'the same'} when it is sent again"
    )


def refusal(lm: Any, fault: str) -> Unproven:
    return Unproven(f"{lm.base_url} does not give the log-probabilities of a text that audits need: {fault}; {REMEDY}")


def _scores_by_completions(lm: Any) -> list[float]:
    """As `local-completions` sends and reads a text."""
    tokens = lm.tok_encode(KNOWN_TEXT)
    response = posted(lm, lm._create_payload(lm.create_message([tokens]), generate=False))
    (fault,) = ServerResponses(lm).faults(response, [tokens], [1])
    if fault:
        raise FaultyResponse(fault)
    told = by_index(response)[0]["logprobs"]
    found = "".join(map(str, told.get("tokens") or [KNOWN_TEXT]))
    if plain(KNOWN_TEXT) not in plain(found):
        raise FaultyResponse(f"its tokens are another text ({brief(found)}), as with the tokenizer of another model")
    return [float(value) for value in told["token_logprobs"][1:-1]]


def plain(text: str) -> str:
    """What servers write in one way whatever the tokens are: ASCII without white space."""
    return "".join(one for one in BYTE.sub("", text) if one.isascii() and not one.isspace())


def posted(lm: Any, payload: Mapping[str, Any]) -> Any:
    """A server's response to one request, which is sent again only if the server says when. Raises FaultyResponse if
    it refuses the request or answers with something else than JSON, and requests' RequestException if it cannot be
    reached or is not ready."""
    try:
        response = _sent(lm, payload)
    except requests.HTTPError as error:
        refused: Any = error.response
        if refused.status_code >= 500 or refused.status_code in LATER:
            raise
        told = f"status {refused.status_code} ({brief(refused.text)})"
        raise FaultyResponse(f"it refuses the request with {told}") from None
    try:
        return response.json()
    except requests.JSONDecodeError:
        raise FaultyResponse(f"it answers with {brief(response.text)} instead of JSON") from None


@patient
def _sent(lm: Any, payload: Mapping[str, Any]) -> Any:
    response = requests.post(
        lm.base_url, json=payload, headers=lm.header, verify=lm.verify_certificate, timeout=lm.timeout
    )
    response.raise_for_status()
    return response
