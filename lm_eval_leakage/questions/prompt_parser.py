"""Parses a rendered prompt into the text before its options, their markers, their texts and the text after them.

This is for benchmarks whose field names are unknown. A marker is a label ("A.", "(b)", "1)", "Ａ．", "가.") with the
separator from the previous option. The labels of one prompt have the same style and follow each other in order. If a
prompt can be parsed in several ways, the parse whose segments are fields of the data row wins, then the one whose
labels begin lines, then the last.

The module lists the texts in data rows, too, however deeply nested.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from os.path import commonprefix
from string import ascii_lowercase, ascii_uppercase

from lm_eval_leakage.questions.fields import well_formed
from lm_eval_leakage.records import Frame

MOST_NAMED = 100  # parts of a list, as many as a question has options
MOST_TEXTS = 20_000  # per row; a row with more contains tables, which are not searched for options
_PIECE = re.compile(
    r"""[\s,()\[\]{}:]+ | None | True | False
    | (?P<number>[-+]?\d+(?:\.\d+)?)
    | (?P<text>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")""",
    re.VERBOSE | re.DOTALL,
)
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U(00(?:0{_HEX}|10){_HEX}{{4}})|(.))", re.DOTALL)
_ESCAPED = {sign: sign for sign in "'\"\\/"} | dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
ALPHABETS: tuple[Sequence[str], ...] = (
    ascii_uppercase,
    ascii_lowercase,
    [str(number) for number in range(1, 27)],
    [str(number) for number in range(26)],
    "ＡＢＣＤＥＦＧＨ",
    "АБВГДЕЖЗ",
    "АБВГҐДЕЄ",
    "ΑΒΓΔΕΖΗΘ",
    "أبجدهوزح",
    "ابجدهوزح",
    "אבגדהוזח",
    "कखगघङ",
    "কখগঘঙ",
    "กขคงจ",
    "가나다라마",
    "アイウエオ",
    "甲乙丙丁戊",
    "①②③④⑤⑥⑦⑧",
)
ROMAN_NUMBERS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")
# Labels that are looked for only where the task's choices or the values of the row say that they are labels.
LABEL_SEQUENCES: tuple[Sequence[str], ...] = (
    *ALPHABETS,
    ROMAN_NUMBERS,
    [*map(str.upper, ROMAN_NUMBERS)],
    ("الف", "ب", "ج", "د", "ه", "و"),
    ("الف", "ب", "پ", "ت", "ث", "ج"),
)
# The number of brackets around a label is bounded, since an unbounded pattern takes quadratic time on "(((((".
_OPEN = r"[(\[（【<]{0,4}"
_OPEN_TO = r"[(\[（【<]{1,4}"
_CLOSE = r"[)\]）】>]{0,4}[.．:：、،,。)-]?"
_CLOSED = r"(?:[)\]）】>]{1,4}[.．:：、،,。)-]?|[.．:：、،,。)-])"
_WORD = r"[^\W\d_]{2,12}"  # "Option A:"
# Limits of the search, far beyond any prompt that asks a question; a text may contain a hundred thousand "A.".
LONGEST_LABEL = 16  # characters, with brackets and a word, such as " (Option 12)."
MOST_STYLES = 40  # ways to write the labels of one alphabet
_MOST_STARTS = 100  # places, the last ones of a style, where a list of options may begin
Chain = tuple[tuple[int, int], ...]  # start and end of each label with the punctuation around it


def shared_beginning(texts: Sequence[str]) -> str:
    """Return the longest common prefix of texts."""
    return commonprefix(texts)  # noqa: RUF071 (of texts, not of paths)


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts and numbers in a data row, however deeply nested, including those in lists written as text."""
    return islice(_all_texts_in(value), MOST_TEXTS)


def _all_texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from listed_texts(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _all_texts_in(part)


def named_texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a data row, each with the name of its field, such as `right` or `wrong[0]`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from named_texts(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value[:MOST_NAMED]):
            yield from named_texts(part, f"{name}[{place}]")
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield name, str(value)
        for place, text in enumerate(listed_texts(value) if isinstance(value, str) else ()):
            yield f"{name}[{place}]", text


def listed_texts(text: str) -> list[str]:
    """Return the texts and numbers of a list that is written as text, as Python or JSON; empty if it is not a list.

    `ast.literal_eval` is not used: it takes minutes for some texts and crashes the interpreter on others.
    """
    if not (text.startswith("[") and text.rstrip().endswith("]")):
        return []
    texts, place = [], 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            return []
        place = piece.end()
        if piece["text"] or piece["number"]:
            texts.append(_unquoted(piece["text"]) if piece["text"] else piece["number"])
    return texts


def _unquoted(quoted: str) -> str:
    """Return the text that a literal in quotation marks stands for."""
    return well_formed(_ESCAPE.sub(_unescaped, quoted[1:-1])) if "\\" in quoted else quoted[1:-1]


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPED.get(escape[4], escape[0])


@dataclass(frozen=True)
class ShownOptions:
    """Options as a prompt shows them; `frame.text(options)` reproduces that prompt exactly."""

    frame: Frame
    options: tuple[str, ...]


def labels_among(choices: Sequence[str]) -> list[str] | None:
    """Return the bare labels if `choices` are labels ("(A)", " B.", "Option C" are A, B, C), else None."""
    shared = len(shared_beginning([choice.rpartition(" ")[0] + " " for choice in choices]))
    if any(len(choice) > shared + LONGEST_LABEL for choice in choices):
        return None
    labels = [re.sub(r"\W", "", choice[shared if " " in choice.strip() else 0 :]) for choice in choices]
    is_sequence = any(labels == [*sequence[: len(labels)]] for sequence in LABEL_SEQUENCES)
    are_letters = all(len(label) == 1 and label > "z" for label in labels) and len(set(labels)) == len(labels)
    return labels if is_sequence or are_letters else None


def options_after_labels(
    prompt: str, labels: Sequence[str] | None = None, fields: Collection[str] = ()
) -> ShownOptions | None:
    """Return the options that `prompt` shows after `labels`, or after those of any of ALPHABETS; None without options.

    labels: bare labels in order; a prompt may show fewer of them
    fields: texts of the data row, which identify the correct parse and the end of the last option
    """
    chains = [chain for alphabet in ([labels] if labels else ALPHABETS) for chain in _chains(prompt, alphabet)]
    if not chains:
        return None
    stripped = {field.strip() for field in fields}
    best = max(chains, key=lambda chain: _credibility(prompt, chain, stripped))
    return _cut(prompt, best, {*fields, *stripped})


def without_labels(options: Sequence[str]) -> list[str]:
    """Return the options without the labels of their places if each begins with its label: "(A) yes", "(B) no"."""
    for alphabet in ALPHABETS:
        if not options or len(options) > len(alphabet) or alphabet[0] not in options[0]:
            continue
        marked = [
            re.match(rf"\s*({_OPEN}){re.escape(label)}({_CLOSE})\s*", option)
            for label, option in zip(alphabet, options)  # noqa: B905 (fewer options than labels)
        ]
        if (
            all(mark and (mark[1] or mark[2]) for mark in marked)
            and len({mark.groups() for mark in marked if mark}) == 1
        ):
            return [option[mark.end() :] for option, mark in zip(options, marked, strict=True) if mark]
    return list(options)


# ---------------------------------------------------------------------- candidate parses of a prompt


def _chains(prompt: str, labels: Sequence[str]) -> Iterator[Chain]:
    """Yield every sequence of at least two labels in order and in the same style."""
    if labels[0] not in prompt:
        return
    first = re.escape(labels[0])
    places_of_first = (
        rf"(?<![\w.])({_OPEN}){first}({_CLOSED})",
        rf"(?<![\w.])({_OPEN_TO}){first}({_CLOSE})(?!\w)",
        rf"^[ \t]*({_WORD} {_OPEN}){first}({_CLOSED})",
        rf"^[ \t]*({_WORD} {_OPEN_TO}){first}({_CLOSE})(?!\w)",
    )
    styles = Counter((match[1], match[2]) for place in places_of_first for match in re.finditer(place, prompt, re.M))
    for (opened, closed), _ in styles.most_common(MOST_STYLES):
        written = [re.escape(opened + label + closed) for label in labels]
        for before in (r"^[ \t]*", r"(?<![\w.(\[（【<])"):
            spans = ([match.span(1) for match in re.finditer(f"{before}({text})", prompt, re.M)] for text in written)
            places = [*takewhile(bool, spans)]
            if len(places) < 2:
                continue
            for start in places[0][-_MOST_STARTS:]:
                chain = _follow(start, places[1:])
                if len(chain) > 1:
                    yield chain


def _follow(start: tuple[int, int], places: Sequence[Sequence[tuple[int, int]]]) -> Chain:
    """Return the longest chain from `start` on, each label at the first of its places after the previous one."""
    chain = [start]
    for candidates in places:
        later = bisect_left(candidates, (chain[-1][1], 0))
        if later == len(candidates):
            break
        chain.append(candidates[later])
    return tuple(chain)


def _segments(prompt: str, chain: Chain) -> list[str]:
    """Return the text from each label, except the last, to the next."""
    return [prompt[end:start] for (_, end), (start, _) in pairwise(chain)]


def _credibility(prompt: str, chain: Chain, fields: Collection[str]) -> tuple[float, bool, int, int]:
    """Return a sort key that is higher for a parse that is more likely to be right."""
    segments = [segment.strip() for segment in _segments(prompt, chain)]
    line_starts = all(not prompt[prompt.rfind("\n", 0, start) + 1 : start].strip() for start, _ in chain)
    share_of_fields = sum(segment in fields for segment in segments) / len(segments)
    return share_of_fields, line_starts, len(chain) if all(segments) else 0, chain[0][0]


def _cut(prompt: str, chain: Chain, fields: Collection[str]) -> ShownOptions | None:
    """Return the prompt split into the text before, labels with the white space around them, options, and the text
    after; None if an option is empty."""
    segments = _segments(prompt, chain)
    if not all(segment.strip() for segment in segments):
        return None
    rest = prompt[chain[-1][1] :]
    spans = _spans(segments, rest, fields)
    leads = [segment[:start] for segment, (start, _) in zip(segments, spans, strict=True)]
    options = [segment[start:end] for segment, (start, end) in zip(segments, spans, strict=True)]
    gaps = [segment[end:] for segment, (_, end) in zip(segments, spans, strict=True)]
    leads.append(shared_beginning([min(leads, key=len), rest]))
    last = _last_option(rest[len(leads[-1]) :], options, fields)
    if not last.strip():
        return None
    sign = options[0][-1]
    parting = sign in ",;|/" and all(option[-1] == sign for option in options) and last[-1] != sign
    if parting and not all(option in fields for option in options):
        options = [option[:-1] for option in options]
        gaps = [sign + gap for gap in gaps]
    before = prompt[: chain[0][0]]
    gaps.insert(0, gaps[0] if before.endswith(gaps[0]) else _trailing_space(before))
    labels = [prompt[start:end] for start, end in chain]
    frame = Frame(
        before=before[: len(before) - len(gaps[0])],
        markers=tuple(gap + label + lead for gap, label, lead in zip(gaps, labels, leads, strict=True)),
        after=rest[len(leads[-1]) + len(last) :],
    )
    return ShownOptions(frame, (*options, last))


def _spans(segments: Sequence[str], rest: str, fields: Collection[str]) -> list[tuple[int, int]]:
    """Return where the option is in each segment.

    White space around it belongs to it only if a field of the row has it or, without such a field, if other segments
    have less.
    """
    lead = len(shared_beginning([_leading_space(segment) for segment in [*segments, rest]]))
    parted = len(shared_beginning([_trailing_space(segment)[::-1] for segment in segments]))
    by_words: dict[str, list[str]] = {}
    for field in fields:
        by_words.setdefault(field.strip(), []).append(field)
    spans = []
    for segment in segments:
        as_fields = _as_fields(segment, lead, by_words.get(segment.strip(), ()))
        widest = max(as_fields, key=lambda span: (span[1] - span[0], span[0]), default=None)
        spans.append(widest or (lead, len(segment) - parted))
    return spans


def _as_fields(segment: str, lead: int, fields: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield where a segment has fields with its words, not before the white space that all segments share."""
    start = len(_leading_space(segment))
    for field in fields:
        first = start - len(_leading_space(field))
        if 0 <= first <= lead and segment.startswith(field, first):
            yield first, first + len(field)


def _last_option(rest: str, others: Sequence[str], fields: Collection[str]) -> str:
    """Return the part of `rest` that is the last option.

    It is a field of the row if the other options are fields, too. Otherwise it ends with its line or, if options have
    several lines, before the last line.
    """
    space = _leading_space(rest)
    if sum(other.strip() in fields for other in others) * 2 >= len(others):
        matching = [field for field in fields if field and rest.startswith(field, len(space))]
        ends = {field: len(space) + len(field) for field in matching}
        whole = [field for field, end in ends.items() if not re.match(r"\w", rest[end : end + 1])]
        if whole:
            return space + max(whole, key=len)
    if not any("\n" in other for other in others):
        return rest.split("\n")[0] if rest.split("\n")[0].strip() else rest.rstrip()
    return rest.rstrip().rpartition("\n")[0] or rest


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _trailing_space(text: str) -> str:
    return text[len(text.rstrip()) :]
