"""Compares what a server writes about a text with the text that was sent and with itself.

Servers write tokens in several ways: a character of several tokens as nothing, as U+FFFD, as `<0xE2>`, as
`bytes:\\xe2`, or in the letters of byte-level tokenizers; special tokens by their names or not at all; a token by its
number. So texts are compared without white space and without all of these signs. Of what is left, a character beyond
ASCII may be missing where a token begins or ends, and one for each sign that stands there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, takewhile
from typing import Any

# bytes of a character, letters by which byte-level tokenizers write bytes, and signs for a space and for no character
_SIGN = "<0x[0-9A-F]{2}>|bytes:|\\\\x[0-9a-f]{2}|[\x80-\u0143\u2581\u2047\ufffd]"
_SIGNS, _PARTS = re.compile(_SIGN), re.compile(f"(?:{_SIGN})|(.)")
_AGREED = 0.01  # nats by which two figures for the same token may differ in a response


def readable(text: str) -> str:
    """Return the characters of a text that all servers write alike; some of them may be missing."""
    return _SIGNS.sub("", "".join(text.split()))


def after(text: str, sent: str) -> str | None:
    """Return what follows `sent` in a text that begins with it, in readable characters; None if it does not."""
    written, wanted = readable(text), readable(sent)
    return written[len(wanted) :] if written.startswith(wanted) else None


def is_text(pieces: Sequence[str], sent: str) -> bool:
    """Return whether the pieces that a server wrote are `sent`."""
    wanted = readable(sent)
    if readable("".join(pieces)) == wanted:
        return True
    written = _Written.of(pieces)
    return written.end_of(wanted, 0) == len(written.characters)


def ends_with_all(pieces: Sequence[str], sent: Sequence[str]) -> bool:
    """Return whether a server wrote all these texts, one after the other and the last one at the end of what it wrote,
    possibly with something else before each."""
    written, place = _Written.of(pieces).reversed(), 0
    for number, text in enumerate(reversed(sent)):
        wanted = readable(text)[::-1]
        starts = [place] if number == 0 else range(place, len(written.characters) + 1)
        ends = (written.end_of(wanted, start) for start in starts)
        end = next((end for end in ends if end is not None), None)
        if end is None:
            return False
        place = end
    return True


@dataclass(frozen=True)
class _Written:
    """What a server wrote, in readable characters.

    missing: how many characters may be missing before each, and at the end
    """

    characters: str
    missing: tuple[int, ...]

    @classmethod
    def of(cls, pieces: Sequence[str]) -> _Written:
        solid = ["".join(piece.split()) for piece in pieces]
        begins = [*accumulate(map(len, solid), initial=0)]  # of the pieces, and the end of the last one
        characters, missing, n_begun = [], [0], 0
        for part in _PARTS.finditer("".join(solid)):
            n_before = bisect_right(begins, part.start())
            missing[-1] += n_before - n_begun + (part[1] is None)
            n_begun = n_before
            if part[1] is not None:
                characters.append(part[1])
                missing.append(0)
        missing[-1] += len(begins) - n_begun
        return cls("".join(characters), tuple(missing))

    def reversed(self) -> _Written:
        return _Written(self.characters[::-1], self.missing[::-1])

    def end_of(self, sent: str, start: int) -> int | None:
        """Return where `sent` ends if it begins at the character `start`, the last of several such places; None if
        it does not begin there."""
        end, reached = None, {0}  # so many characters of `sent` may be read
        for place in range(start, len(self.missing)):
            reached = {at for first in reached for at in _without_missing(sent, first, self.missing[place])}
            if len(sent) in reached:
                end = place
            character = self.characters[place : place + 1]
            reached = {at + 1 for at in reached if sent[at : at + 1] == character}
            if not character or not reached:
                break
        return end


def _without_missing(sent: str, first: int, n_missing: int) -> list[int]:
    """Return where a text may go on if up to so many characters beyond ASCII are missing at `first`."""
    beyond = takewhile(lambda at: at < len(sent) and not sent[at].isascii(), count(first))
    return [first, *(at + 1 for at, _ in zip(beyond, range(n_missing), strict=False))]


def special_texts(tokenizer: Any) -> re.Pattern[str] | None:
    """Return a pattern of the names of a tokenizer's special tokens; None if it has none."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    names = {str(token) for token in added.values() if getattr(token, "special", False)}
    names |= {str(token) for token in getattr(tokenizer, "all_special_tokens", None) or ()} - {""}
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True)))) if names else None


def are_misplaced(
    tokens: Sequence[object] | None, logprobs: Sequence[float], tops: Sequence[Mapping[str, float] | None]
) -> bool:
    """Return whether log-probabilities belong to other places than the most likely tokens beside them.

    A token that is among the most likely ones has the same value there, and any other one a value below all of them.
    Where two tokens are written in the same way this need not be so, but that is rare.

    tokens: as the server writes them; None if it does not
    logprobs, tops: of the same places
    """
    n_places = n_off = 0
    names = [None] * len(logprobs) if tokens is None else map(str, tokens)
    for name, logprob, top in zip(names, logprobs, tops, strict=True):
        if not top or name == "" or (name and "\ufffd" in name):  # other tokens may be written so, too
            continue
        n_places += 1
        if name is not None and name in top:
            n_off += abs(logprob - top[name]) > _AGREED
        elif logprob > min(top.values()) - _AGREED:
            n_off += name is not None or min(abs(logprob - value) for value in top.values()) > _AGREED
    return n_off > 2 + n_places // 10


def are_ahead(tokens: Sequence[object], tops: Sequence[Mapping[str, float] | None]) -> bool:
    """Return whether the most likely token of many places is the one that follows, and of few the one that is there.

    No model can foresee so many.
    """
    likeliest = [max(top, key=top.__getitem__) if top else None for top in tops]
    texts = [str(token) for token in tokens]
    n_here = sum(map(str.__eq__, texts, map(str, likeliest)))
    n_ahead = sum(map(str.__eq__, texts[1:], map(str, likeliest)))
    return n_ahead > n_here + 3
