"""Options that many questions share, or that read alike: their order belongs to the set, not to the question."""

from __future__ import annotations

import re
from collections.abc import Sequence

Options = Sequence[str]

_VERDICT = re.compile(
    r"(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否)"
    r"(?:\W+(?:and |or )?(?:true|false|yes|no|correct|incorrect|right|wrong|not wrong|正确|错误|对|错|是|否))*",
    re.IGNORECASE,
)


def true_or_false(options: Options) -> bool:
    """Every option is a verdict, or a row of verdicts, on statements of the question: True, False."""
    return len(options) > 1 and all(_VERDICT.fullmatch(option.strip(" .。")) for option in options)


# Every sign has one place in these patterns: where two could take a bracket, reading would double with each bracket.
_STATEMENT = r"(?:[①-⑩]|[1-9]\)|\b(?:I{1,3}|IV|VI{0,3}|IX)\b)"
_JOINED = rf"\(?{_STATEMENT}(?:(?:\W*(?:and |or |和|与)\(?|\W*){_STATEMENT})*\)?"
_STATEMENTS = re.compile(rf"(?:both |only )?{_JOINED}(?: only|都?正确)?|none|neither|[a-e]{{2,5}}", re.IGNORECASE)


def of_statements(options: Options) -> bool:
    """Every option is a list of statements of the question by their numbers: I only, I and II; ①②."""
    return len(options) > 1 and all(_STATEMENTS.fullmatch(option.strip(" .。")) for option in options)


def repeated(options: Options) -> bool:
    """Two options read alike."""
    return len({option.strip() for option in options}) < len(options)
