"""Renders a question as text, and reads which of several candidates a reply names.

White space is decided here and nowhere else. If the benchmark's own prompt shows the options, that prompt is used.
Otherwise the stem is stripped, as in the harness's own templates, and the options follow it as lettered lines. Options
are never changed, since a model may have seen their published texts.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from operator import getitem
from string import ascii_uppercase

from lm_eval_leakage.records import Frame, Question, Request, UntestableQuestion

FORMATS = {  # the text after the stem, and the text after an option's letter
    "usual": ("", ". "),
    "papers": (":", ":"),  # Ni et al. (2025), their data_process.py
}
AUDITED, JSON_ROW, CSV_ROW, INLINE = "audited", "json", "csv", "inline"
LAYOUTS = (AUDITED, JSON_ROW, CSV_ROW, INLINE)  # the forms in which a crawl may hold a benchmark
AROUND = " \t*_`\"'“”‘’«»"  # emphasis and quotation marks
_LABEL = re.compile(r"\(?\w{1,2}[.):]\s+")


def option_format(name: str | None) -> tuple[str, str]:
    """Return one of FORMATS, the usual one for None; raise ValueError for another name."""
    if name is not None and name not in FORMATS:
        raise ValueError(f"format is {name!r}; choose one of: {', '.join(FORMATS)}")
    return FORMATS[name or "usual"]


def frame_of(question: Question, format_name: str | None = None) -> Frame:
    """Return the frame in which a question shows its options.

    format_name: one of FORMATS; None means the benchmark's own, or the usual one if its prompt shows no options
    """
    if format_name is None and question.frame is not None:
        return question.frame
    return lettered(question.stem, len(question.options), format_name)


def lettered(stem: str, n_options: int, format_name: str | None = None) -> Frame:
    """Return the frame of a question whose options follow its stem as lettered lines."""
    after_stem, after_label = option_format(format_name)
    return Frame(stem.strip() + after_stem, _labels(after_label, n_options), "\nAnswer:")


def laid_out(question: Question, layout: str, format_name: str | None = None) -> tuple[Frame, tuple[str, ...]]:
    """Return the frame of a question in one of LAYOUTS, and its options as they are written there.

    The frame's text after the options begins with the end of the last one. The caller appends the right answer.

    format_name: the format of the layout `audited`, as for `frame_of`
    """
    stem, options = question.stem.strip(), question.options
    n_more = len(options) - 1
    if layout == JSON_ROW:
        before = f'{{"question": {json.dumps(stem, ensure_ascii=False)}, "choices": ['
        quoted = tuple(json.dumps(option, ensure_ascii=False)[1:-1] for option in options)
        return Frame(before, ('"', *['", "'] * n_more), '"], "answer": '), quoted
    if layout == CSV_ROW:
        return Frame(_in_csv(stem), (",",) * len(options), ","), tuple(map(_in_csv, options))
    if layout == INLINE:
        letters = [label.strip("\n. ") for label in _labels(". ", len(options))]
        return Frame(stem, tuple(f" ({letter}) " for letter in letters), " Answer:"), options
    return frame_of(question, format_name), options


def _in_csv(text: str) -> str:
    """Return a field as Python's csv writes it, in quotation marks where it needs them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def whole_text(question: Question, format_name: str | None = None, layout: str = AUDITED) -> str:
    """Return the question with its options in the published order.

    layout, format_name: as for `laid_out`
    """
    frame, options = laid_out(question, layout, format_name)
    return frame.before + frame.block(options)


def in_orders(markers: Sequence[str], options: Sequence[str], orders: Iterable[Sequence[int]]) -> list[str]:
    """Return the options in each of the orders, each option after the marker of its place."""
    lines = [[marker + option for option in options] for marker, _ in zip(markers, options, strict=True)]
    return ["".join(map(getitem, lines, order)) for order in orders]


def refuse_unlabelled(n_options: int) -> None:
    """Raise UntestableQuestion for more options than there are labels."""
    if n_options > len(ascii_uppercase):
        raise UntestableQuestion(f"{n_options} options, but labels end at Z; the limit is {len(ascii_uppercase)}")


@cache
def _labels(after_label: str, n_options: int) -> tuple[str, ...]:
    refuse_unlabelled(n_options)
    return tuple(f"\n{letter}{after_label}" for letter in ascii_uppercase[:n_options])


def candidate_in_reply(reply: str, candidates: Sequence[str]) -> int | None:
    """Return the index of the candidate that the first line of a reply names; None if it names none or several.

    The line is the candidate, or begins or ends with it and mentions no other. White space, case, quotation marks, a
    full stop at the end and an option's label before it do not count. The result does not depend on the order of the
    candidates.

    candidates: texts that differ after `plain`
    """
    line = plain(first_line(reply))
    bare = plain(_LABEL.sub("", line, count=1)) if _LABEL.match(line) else line
    texts = [plain(candidate) for candidate in candidates]
    for read in (line, bare):
        if read in texts:
            return texts.index(read)
    whole_words = (rf"(?<!\w){re.escape(text)}(?!\w)" for text in texts)
    mentioned = [place for place, words in enumerate(whole_words) if re.search(words, line)]
    if len(mentioned) != 1:
        return None
    (place,) = mentioned
    at_an_end = line.startswith(texts[place]) or bare.startswith(texts[place]) or line.endswith(texts[place])
    return place if at_an_end else None


def plain(text: str) -> str:
    """Return a text in the form in which replies and candidates are compared."""
    return " ".join(text.casefold().split()).strip(AROUND).rstrip(".。").strip(AROUND)


def first_line(text: str) -> str:
    """Return the first line of a text that is not empty; an empty text if there is none."""
    return next((line for line in text.splitlines() if line.strip()), "")


def letter_requests(question: Question, options: Sequence[str], stem: str | None = None) -> tuple[Request, ...]:
    """Return one request per letter, in the benchmark's own prompt if that shows the options.

    options: the options in the order to show, as many as the question has
    stem: a text that replaces everything before the options
    """
    frame = frame_of(question)
    prompt = (frame.before if stem is None else stem) + frame.block(options) + frame.after
    space = "" if prompt[-1:].isspace() else " "
    labels = [re.findall(r"\w+", marker) for marker in frame.markers]
    if not all(labels):
        raise UntestableQuestion("the task shows its options without labels, so no letter can be scored")
    return tuple(Request(prompt, space + words[-1]) for words in labels)


def up_to_label(question: Question, place: int, format_name: str | None = None) -> str:
    """Return the question and the options before `place`, ending with the label of `place`."""
    frame = frame_of(question, format_name)
    return frame.before + "".join(map(str.__add__, frame.markers, question.options[:place])) + frame.markers[place]
