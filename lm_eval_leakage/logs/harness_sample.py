"""The harness's own fields in a line of a samples log: the requests and the model's responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Scored = tuple[str, str, float]  # context, continuation, log-likelihood of the latter (nats)


def scored_texts(sample: Mapping[str, Any]) -> Iterator[Scored]:
    """The scored texts in a line of a log; generations and texts without a continuation are skipped."""
    for arguments, response in zip(sample["arguments"].values(), sample["resps"], strict=True):
        if isinstance(arguments.get("arg_1"), str) and isinstance(response[0], list):
            yield arguments["arg_0"], arguments["arg_1"], float(response[0][0])


def as_logged(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and responses of an in-memory sample, in the form that the log has."""
    return {
        "arguments": {
            f"gen_args_{index}": {f"arg_{place}": part for place, part in enumerate(asked)}
            for index, asked in enumerate(sample["arguments"])
        },
        "resps": [[answer if isinstance(answer, str) else list(answer)] for (answer,) in sample["resps"]],
    }


def loglikelihoods(sample: Mapping[str, Any]) -> list[float]:
    """Log-likelihood of each scored text, in the order of the requests, nats."""
    return [float(answer[0][0]) for answer in sample["resps"] if not isinstance(answer[0], str)]
