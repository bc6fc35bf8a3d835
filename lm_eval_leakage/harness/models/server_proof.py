"""Proves, before an audit asks anything, that a server returns the log-probabilities of a text that it is given.

A known text is sent twice, as the backend sends its texts, the second time with another last word. All positions but
the first must be there, finite and at most 0. Their mean must be between MEAN_LOW and MEAN_HIGH, and they must not all
be the same: an even guess among 262,144 tokens, the largest usual vocabulary, is log(1/262144) = -12.5 nats, and no
model foresees every token of a text by 99.9 %, while servers are known that give 0. Up to the other word both answers
must agree up to TOLERATED_NOISE: rounding differs with what else a server computes at the time; other weights or
another precision behind one address differ by more. At the other word they must differ by more than anywhere before
it, and just before it not by more than elsewhere: otherwise values are moved by a place, as they are if the most
likely tokens are those that follow.

When the longest text of a run is known, two texts of its length are sent that begin with other words and end alike,
one of them twice. A server that reads their end only gives it the same values, whatever it gives for their beginning.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from lm_eval_leakage.harness.models.answer_faults import without_answer
from lm_eval_leakage.harness.models.echoes import after, are_ahead
from lm_eval_leakage.harness.models.retry_after import PatientSession, patient
from lm_eval_leakage.harness.models.server_responses import FaultyResponse, ServerResponses, by_index
from lm_eval_leakage.harness.seams.backends import prepare_completions, reads_as_completions, wrap_requests
from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
KNOWN_TEXT = (
    "The baker rises at three, when the town is still asleep, lights the oven, weighs flour, salt and water, and "
    "kneads the dough for the loaves that the first customers will carry home before the school bell rings. "
)
CHANGED_TEXT = KNOWN_TEXT.replace("rings", "purple")
SENTENCE = "The miller's dog sleeps under seven grey carts."
MEAN_LOW, MEAN_HIGH = -15.0, -0.001  # nats per token
# Tolerated root mean square of a difference, in nats per square root of a token: rounding in bfloat16 gives up to 0.12
# with SmolLM2, a token scored after another prefix 1.3 or more.
TOLERATED_NOISE = 0.4
OWN_WAY = "text_scores"  # method of a model that does not read responses as `local-completions` does
N_LAST = 8  # tokens at the end of a long text, whose values depend on its beginning
CHANGE = 0.5  # nats by which rounding changes no value alone, without that others change
LATER = (408, 429)  # of the statuses that blame the request, those that say nothing about it
REMEDY = (
    "check base_url, model and the key in OPENAI_API_KEY, or choose another provider or audits that generate text "
    "(docs/howto/api_models.md has tables of both)"
)


@dataclass(frozen=True)
class TextScores:
    """The scores of a text, as a server returns them.

    tokens: of which each has a value, in any form; values: their log-probabilities (nats)
    n_context: how many of them are not of the text itself
    names_text: whether the server says which text they are of
    """

    tokens: Sequence[Any]
    values: Sequence[float]
    n_context: int = 0
    names_text: bool = True


class Unproven(Refusal):
    """The error that a server is not proven to suit audits; the message says what it lacks, as a sentence."""


def proven(kind: Any, model_args: Mapping[str, Any]) -> str:
    """Return what a server gives, as a sentence; empty where the model uses no server that can be tried, and where the
    run itself will report what is wrong, since the model cannot be built or the server not be reached. Raises
    Unproven, after few small requests of which none is repeated that was answered."""
    can_be_tried = reads_as_completions(kind) or hasattr(kind, OWN_WAY)
    lm = _built(kind, model_args) if can_be_tried else None
    if lm is None:
        return ""
    scores_of = _scoring(lm)
    try:
        return _judged(lm, scores_of("", KNOWN_TEXT), scores_of("", CHANGED_TEXT))
    except FaultyResponse as fault:
        raise proof_refusal(lm, str(fault)) from None
    except requests.RequestException as error:
        logger.debug("%s was not proven: %s", lm.base_url, error)
        return ""


def _scoring(lm: Any) -> Callable[[str, str], TextScores]:
    """Return the function that scores a text: it takes a context and a text."""
    return getattr(lm, OWN_WAY, None) or (lambda context, text: _scores_by_completions(lm, context + text))


def refuse_cut_texts(lm: Any, longest: int) -> None:
    """Raises Unproven if a server does not read texts from their beginning that are as long as the longest of a run.
    A server that refuses such a text, or is not ready, is left to the run, which will have the same error.

    longest: tokens of the longest text
    """
    refuse_cut(lm, longest, lambda context, text: len(lm.tok_encode(context + text)))


def refuse_cut(lm: Any, longest: int, size: Callable[[str, str], int]) -> None:
    """Raises Unproven as `refuse_cut_texts` does, whatever lengths are counted in.

    size: of a context and a text
    """
    contexts = _long_contexts(lambda context: size(context, SENTENCE) <= longest)
    try:
        ends = [_end_scores(lm, context) for context in contexts]
    except (RequestRefused, requests.RequestException) as error:
        logger.debug("%s was not tried with a text of %d: %s", lm.base_url, longest, error)
    except FaultyResponse as fault:
        raise _cut(lm, longest, str(fault)) from None
    else:
        if ends and math.dist(ends[0], ends[1]) <= 2 * math.dist(ends[0], ends[2]):
            raise _cut(lm, longest, "the end of a text has the same values whatever stands at its beginning")


def _end_scores(lm: Any, context: str) -> Sequence[float]:
    """Return the values of the last tokens of SENTENCE after a context, asked for again after a faulty response as in
    a run."""
    for _ in range(lm.max_retries - 1):
        try:
            return _scoring(lm)(context, SENTENCE).values[-N_LAST:]
        except RequestRefused:
            raise
        except FaultyResponse as fault:
            logger.debug("%s is sent a text again: %s", lm.base_url, fault)
    return _scoring(lm)(context, SENTENCE).values[-N_LAST:]


def accept_valid_answers_only(kind: Any) -> None:
    """Make models of this class have no answer where theirs is invalid, ordinary tasks leave the question out, and
    servers be waited for as they ask."""
    from lm_eval_leakage.harness.seams.tasks import leave_out  # imports datasets, while a server's proof needs seconds

    prepare_completions(kind, _stand_between)
    wrap_requests(kind, PatientSession, patient)
    leave_out(without_answer)


def _stand_between(lm: Any) -> None:
    ServerResponses(lm, lambda n_tokens: refuse_cut_texts(lm, n_tokens)).stand_between()


def _built(kind: Any, model_args: Mapping[str, Any]) -> Any:
    try:
        return kind.create_from_arg_obj(dict(model_args))
    except Exception as error:  # a tokenizer's code may raise anything, and the run itself will say so
        logger.debug("%s cannot be built: %r", kind, error)
        return None


def _long_contexts(fits: Callable[[str], bool]) -> list[str]:
    """Contexts of SENTENCE, as long as they may be: one that begins with it, one that begins with its words in another
    order, and the first one again. None if they may not be as long as that."""

    def contexts(n_numbers: int) -> list[str]:
        numbers = " ".join(map(str, range(n_numbers)))
        first, second = (f"{begin} {numbers}\n" for begin in (SENTENCE, " ".join(reversed(SENTENCE.split()))))
        return [first, second, first]

    fewest, too_many = 0, 1
    if not all(map(fits, contexts(fewest))):
        return []
    while all(map(fits, contexts(too_many))):
        too_many *= 2
    while too_many - fewest > 1:
        middle = (fewest + too_many) // 2
        fewest, too_many = (middle, too_many) if all(map(fits, contexts(middle))) else (fewest, middle)
    return contexts(fewest)


def _n_same(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (token, other) in pairs if token != other), min(len(first), len(second)))


def _judged(lm: Any, first: TextScores, second: TextScores) -> str:
    """Return what a model behind an API gives for the known text and the changed one, as a sentence. Raises
    Unproven."""
    values = first.values[first.n_context :]
    mean = math.fsum(values) / len(values)
    if len({*values}) == 1 or not MEAN_LOW <= mean <= MEAN_HIGH:
        how = "each" if len({*values}) == 1 else f"on average, where {MEAN_LOW:g} to {MEAN_HIGH:g} are plausible"
        raise proof_refusal(lm, f"{len(values)} tokens of a plain English text get {mean:.4g} nats {how}")
    n_same = _n_same(first.tokens, second.tokens)
    *before, at_word = (
        abs(value - repeated) for value, repeated in zip(first.values[: n_same + 1], second.values, strict=False)
    )
    noise = math.hypot(*before) / math.sqrt(max(1, len(before)))
    moved = "changing a word of a text does not change its own value most, so that values are of other tokens"
    if before and before[-1] > CHANGE + 4 * max(before[:-1], default=0.0):
        raise proof_refusal(lm, moved)
    if not noise <= TOLERATED_NOISE:
        fault = f"the same text sent twice gets values that differ by {noise:.2g} nats per token"
        raise proof_refusal(lm, f"{fault}, more than {TOLERATED_NOISE:g}, so that more than one model may answer")
    if at_word <= max(before, default=0.0):
        raise proof_refusal(lm, moved)
    unnamed = (
        ""
        if first.names_text
        else "; it does not say which text they are of, so answers about another text would look right"
    )
    return (
        f"{lm.base_url} returns log-probabilities of a given text: {len(values)} tokens of a known one with a mean of "
        f"{mean:.2f} nats, {f'{noise:.2g} nats per token off' if noise else 'the same'} when it is sent again{unnamed}"
    )


def proof_refusal(lm: Any, fault: str) -> Unproven:
    return Unproven(f"{lm.base_url} does not give the log-probabilities of a text that audits need: {fault}; {REMEDY}")


def _cut(lm: Any, longest: int, fault: str) -> Unproven:
    what = f"{lm.base_url} does not read a text that is as long as the longest of this run ({longest})"
    return Unproven(f"{what}: {fault}; set max_length to what the server reads, or choose another server")


def _scores_by_completions(lm: Any, text: str) -> TextScores:
    """Return the scores of a text, sent and read as by `local-completions`."""
    tokens = lm.tok_encode(text)
    response = posted(lm, lm._create_payload(lm.create_message([tokens]), generate=False))
    (fault,) = ServerResponses(lm).faults(response, [tokens], [1])
    if fault:
        raise FaultyResponse(fault)
    (choice,) = by_index(response)
    scores = choice["logprobs"]
    tops = [top if isinstance(top, Mapping) else None for top in scores["top_logprobs"][1:-1]]
    if scores.get("tokens") and are_ahead(scores["tokens"][1:-1], tops):
        raise FaultyResponse("the likeliest tokens that it returns are those of the next place")
    names_text = bool(scores.get("tokens")) or after(str(choice.get("text")), text) is not None
    return TextScores(tokens[1:], [float(value) for value in scores["token_logprobs"][1:-1]], names_text=names_text)


class RequestRefused(FaultyResponse):
    """The error that a server refuses a request, by its status."""


def posted(lm: Any, payload: Mapping[str, Any]) -> Any:
    """Return a server's response to one request, which is sent again only if the server says when. Raises
    FaultyResponse if it refuses the request or answers with something else than JSON, and requests' RequestException
    if it cannot be reached or is not ready."""
    try:
        response = _sent(lm, payload)
    except requests.HTTPError as error:
        refused: Any = error.response
        if refused.status_code >= 500 or refused.status_code in LATER:
            raise
        answer = f"status {refused.status_code} ({brief(refused.text)})"
        raise RequestRefused(f"it refuses the request with {answer}") from None
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
