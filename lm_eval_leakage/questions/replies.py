"""Which of several candidates a reply names."""

from __future__ import annotations

import re
from collections.abc import Sequence

AROUND = " \t*_`\"'“”‘’«»"  # emphasis and quotation marks
LABEL = re.compile(r"\(?\w{1,2}[.):]\s+")


def named(reply: str, candidates: Sequence[str]) -> int | None:
    """Index of the one candidate that the first line of a reply names, ignoring white space, case, quotation marks, a
    full stop at the end and an option's label before it; None if it names none of them, or several.

    The line is the candidate, or begins or ends with it and mentions no other. Which one is named does not depend on
    the order of the candidates.

    candidates: different texts, also after `plain`
    """
    line = plain(next((line for line in reply.splitlines() if line.strip()), ""))
    bare = plain(LABEL.sub("", line, count=1)) if LABEL.match(line) else line
    texts = [plain(candidate) for candidate in candidates]
    for read in (line, bare):
        if read in texts:
            return texts.index(read)
    mentioned = [place for place, text in enumerate(texts) if _mentions(line, text)]
    if len(mentioned) != 1:
        return None
    (place,) = mentioned
    at_an_end = line.startswith(texts[place]) or bare.startswith(texts[place]) or line.endswith(texts[place])
    return place if at_an_end else None


def plain(text: str) -> str:
    """The text as replies are compared with it."""
    return " ".join(text.casefold().split()).strip(AROUND).rstrip(".。").strip(AROUND)


def _mentions(line: str, text: str) -> bool:
    """Whether the text is in the line, and not as a part of words."""
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", line) is not None
