"""The harness's own fields of a samples log's line: which texts were asked, and what the model answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Scored = tuple[str, str, float]  # context, continuation, log-likelihood of the latter (nats)


def scored_texts(sample: Mapping[str, Any]) -> Iterator[Scored]:
    """Of a line as a log has it; what was written, or has no continuation, is passed over."""
    for arguments, response in zip(sample["arguments"].values(), sample["resps"], strict=True):
        if isinstance(arguments.get("arg_1"), str) and isinstance(response[0], list):
            yield arguments["arg_0"], arguments["arg_1"], float(response[0][0])


def as_logged(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Texts and answers of a sample that the harness holds in this process, as its log would have them."""
    return {
        "arguments": {
            f"gen_args_{index}": {f"arg_{place}": part for place, part in enumerate(asked)}
            for index, asked in enumerate(sample["arguments"])
        },
        "resps": [[answer if isinstance(answer, str) else list(answer)] for (answer,) in sample["resps"]],
    }


def loglikelihoods(sample: Mapping[str, Any]) -> list[float]:
    """Of every text that was scored, in the order of the requests, nats."""
    return [float(answer[0][0]) for answer in sample["resps"] if not isinstance(answer[0], str)]
