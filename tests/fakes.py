"""Fake models, a few lines each."""

from __future__ import annotations

from collections.abc import Callable

from lm_eval.api.model import LM

Score = Callable[[str, str], float]


class FakeLM(LM):
    """Scores a text by a function of (context, continuation); counts its requests."""

    def __init__(self, score: Score, max_length: int | None = None) -> None:
        super().__init__()
        self.score = score
        self.requests: list[tuple[str, str]] = []
        if max_length is not None:
            self.max_length = max_length

    def tok_encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def loglikelihood(self, requests):
        self.requests += [request.args for request in requests]
        return [(self.score(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests):
        raise AssertionError("no probe of ours asks for rolling log-likelihoods")

    def generate_until(self, requests):
        raise AssertionError("no statistic on option orders needs generation")


def by_hash(context: str, continuation: str) -> float:
    """A model that has memorised nothing: an arbitrary, repeatable score per text."""
    import hashlib

    digest = hashlib.sha256((context + continuation).encode()).digest()
    return -10.0 - int.from_bytes(digest[:6], "big") / 2**48


def fond_of(*texts: str) -> Score:
    """A model that has memorised `texts` (context + continuation) and nothing else."""
    return lambda context, continuation: -1.0 if context + continuation in texts else by_hash(context, continuation)


class Writer(FakeLM):
    """Writes what `reply` says to a context."""

    def __init__(self, reply: Callable[[str], str | None]) -> None:
        super().__init__(by_hash)
        self.reply = reply

    def generate_until(self, requests):
        pairs = [request.args for request in requests]
        self.requests += pairs
        return [self.reply(context) or "" for context, _ in pairs]
