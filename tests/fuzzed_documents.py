"""Generates hostile data rows, and checks that reading each of them affects no other row.

`documents` makes them from pieces, `read_all` reads each in every way in which an audit does. The unit tests try some
hundreds, `make faults` 20,000; `python -m benchmarks.hostile_rows` measures how long the slowest takes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from string import ascii_uppercase
from typing import Any

from lm_eval_leakage.detectors import probes
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.questions.guards import guards_of
from lm_eval_leakage.questions.reader import read_question
from lm_eval_leakage.records import Question, UntestableQuestion

LONG = (10, 300, 5_000, 100_000)
LONGEST_ROW = 2_000_000

Doc = dict[str, Any]

WORDS = [
    *("red", "A", "B.", "(C)", "D)", "I", "II and III", "only", "both A and C", "all of the above", "none", "neither"),
    *("of these", "options", "1", "1/2", "1,000", "3.5 km", "two hours", "January 1999", "million", "-5", "$3", "I)"),
    *("①", "②③", "²", "½", "Ⅳ", "٣", "十", "以上都是", "正确", "不是", "A和B都对", "true", "false", "yes, no", "not"),
    *("\n", "\r\n", "\t", " ", "\u2028", "\u3000", "\xa0", "\x00", "\x1f", "\x1b[31m", "\ufeff", "\u200b", "\u202e"),
    *("\ud800", "\udfff", "\ud83d", "e\u0301", "\u0301" * 9, "שלום", "السلام", "👩‍👩‍👧", "ﬃ", "ß", "İ", "ı", "K"),
    *("{{", "}}", "{% raw %}", "\\frac{1}{2}", "\\", "'", '"', "[", "]", "](", "((", "))", "【", "<|endoftext|>"),
    *("a ) b", " , c ) ", "Answer:", "[MASK]", "\nA. ", "\nB. ", "\nC) ", "(a) ", "(b) ", "Option A: ", "1. ", "2. "),
    *("[0xfff", "['a', 'b']", '["a", ["b"]]', "[1e999]", "[-", "[[", "0x", "1_000", "1e5", "nan", "null", "None"),
]
REPEATED = [
    *("(", "[(", "[", ")", "A", "A.", "A. ", "(A) ", "((A) B) ", "\nA. x\nB. y", "A,", "A, B ", "(I", "I) ", "(I) "),
    *(" ", "\n", "\t", "\u3000", "1", "9", "1,", "1,000", "1/7", "million ", "9 million ", "-", "−$", "- ", ".", "!"),
    *("both ", "only", "options ", "all options of ", "all of these!", "true ", "no", "not "),
    *("①", "a", "ab", "的", "是"),
    *("\x1f", "\x00", "\ud800", "\u0301", "'", '"', "\\", "[[", "]", "['", "{", "{'a':", "-", "~", "x ", "f", "\nA"),
]


def documents(rng: random.Random) -> Iterator[Doc]:
    """An endless sequence of rows, most of them hostile in one or two places."""
    while True:
        yield _document(rng)


def _document(rng: random.Random) -> Doc:
    n_options = rng.choice((0, 1, 2, 3, 4, 4, 4, 4, 5, 10, 26, 27, 100, 101, 10_000 if rng.random() < 0.1 else 6))
    options: Any = [_plain(rng, place) for place in range(n_options)]
    for place in range(n_options):
        if rng.random() < 0.4 and place < 12:
            options[place] = _value(rng, LONGEST_ROW // n_options)
    stem = _value(rng, LONGEST_ROW) if rng.random() < 0.4 else f"Which is {rng.random()}?"
    if rng.random() < 0.03:
        options = _value(rng, LONGEST_ROW)
    answer = _value(rng, 1000) if rng.random() < 0.3 else rng.choice((0, 1, "A", "B", "1", "①", "²", -1, 99, None))
    doc = _in_a_layout(rng, stem, options, answer)
    for field in ("id", "subject", "category", "note"):
        if rng.random() < 0.1:
            doc[field] = _value(rng, 10_000)
    if doc and rng.random() < 0.1:
        del doc[rng.choice(list(doc))]
    return doc


def _in_a_layout(rng: random.Random, stem: object, options: Any, answer: object) -> Doc:
    listed = options if isinstance(options, list) else [options]
    texts = [option if isinstance(option, str) else "7" for option in listed]
    named = dict(zip(ascii_uppercase, listed, strict=False))
    labels = [_text(rng, 10) if rng.random() < 0.1 else letter for letter in ascii_uppercase[: len(listed)]]
    layouts: list[Callable[[], Doc]] = [
        lambda: {"question": stem, "choices": options, "answer": answer},
        lambda: {"question": stem, "choices": {"text": options, "label": labels}, "answerKey": answer},
        lambda: {"question": stem, "options": options, "answer_index": answer},
        lambda: {"question": stem, "option": named, "answer": answer},
        lambda: {"question": stem, **named, "answer": answer},
        lambda: {"query": stem, "choices": options, "gold": answer},
        lambda: (
            {"Problem": stem, "options": " , ".join(f"{x} ) {o}" for x, o in zip("abcde", texts, strict=False))}
            | {"correct": answer}
        ),
        lambda: {"question": stem, "mc1_targets": {"choices": options}},
        lambda: {"frage": stem, "auswahl": options, "antwort": answer},
    ]
    return rng.choice(layouts)()


def _plain(rng: random.Random, place: int) -> str:
    return f"{rng.choice(('red', 'dark blue', 'a house', '12', 'in May'))} {place}"


def _value(rng: random.Random, longest: int) -> Any:
    """Usually a text, otherwise any value that a row may hold."""
    others: list[Callable[[], Any]] = [
        lambda: rng.choice((None, True, False, float("nan"), float("inf"), -0.0, 0, 10**30, b"a\xff", 1 + 0j)),
        lambda: [_text(rng, 100) for _ in range(rng.randrange(4))],
        lambda: {_text(rng, 10): _text(rng, 100) for _ in range(rng.randrange(4))},
        lambda: nested(rng.choice((5, 50))),
        lambda: list(range(rng.choice((10, 10_000)))),
    ]
    return rng.choice(others)() if rng.random() < 0.25 else _text(rng, longest)


def nested(depth: int) -> object:
    value: object = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def _text(rng: random.Random, longest: int) -> str:
    """A few words, or one piece repeated many times, possibly with an ending that makes a pattern fail late."""
    if rng.random() < 0.4:
        return "".join(rng.choice(WORDS) + rng.choice(("", " ")) for _ in range(rng.randrange(12)))[:longest]
    length = min(longest, rng.choice(LONG))
    piece = rng.choice(REPEATED) if rng.random() < 0.7 else rng.choice(REPEATED) + rng.choice(WORDS)
    start, end = (rng.choice(("", "", "A", "(", "all of", "[", "[0x", "['", "!x", "x", "B. y")) for _ in range(2))
    return (start + piece * (length // len(piece)))[: max(0, length - len(end))] + end


# ---------------------------------------------------------------------- readings


def rendered(doc: Doc) -> Iterator[Callable[[], Question]]:
    """Readings of a row as tasks of the harness render it: options in the prompt, as choices, or generated."""
    stem = doc.get("question", doc.get("query", doc.get("frage", "Which?")))
    options = doc.get("choices", doc.get("options", doc.get("auswahl", [])))
    options = options.get("text", []) if isinstance(options, dict) else options
    options = [str(option) if not isinstance(option, (int, float)) else "7" for option in _some(options)]
    target = next((doc[name] for name in ("answer", "answerKey", "gold", "antwort") if name in doc), 0)
    lines = "".join(f"\n{x}. {option}" for x, option in zip(ascii_uppercase, options, strict=False))
    yield partial(read_question, doc, f"{stem}{lines}\nAnswer:", list(ascii_uppercase[: len(options)]), target)
    yield partial(read_question, doc, f"{stem}\nAnswer:", options, target)
    yield partial(
        read_question, doc, f"{stem}\n- " + "\n- ".join(options) + "\nAnswer:", options, target, shuffled=True
    )
    yield partial(read_question, doc, f"{stem} (a) {' (b) '.join(options)}", None, target)
    yield partial(read_question, doc, stem, _some(options), target)


def _some(options: object) -> list[Any]:
    return list(options) if isinstance(options, list) else []


def read_all(docs: Iterable[Doc], call: Callable[[Callable[[], Any]], Any] = lambda work: work()) -> Counter[str]:
    """Counts of questions and of refusals. Raises AssertionError if reading a document, its guards or a probe's
    requests raise anything other than UntestableQuestion. call: runs each of these; a benchmark measures it"""
    counts: Counter[str] = Counter()
    pool = tuple(Question(f"p{i}", f"Of pool {i}?", (f"yes {i}", f"no {i}"), 0) for i in range(30))
    chosen = {name: probes.get(name)().with_pool(lambda: pool) for name in probes.names()}
    for number, doc in enumerate(docs):
        ways: list[Callable[[], Question]] = [partial(question_from_doc, doc)]
        ways += rendered(doc)
        for way, read in enumerate(ways):
            question = _answer(partial(call, read), name := f"document {number}, way {way}")
            counts["refused" if question is None else "questions"] += 1
            if question is None:
                continue
            str(question).encode("utf-8")
            assert _answer(partial(call, partial(guards_of, question)), f"{name}, guards") is not None
            for probe_name, probe in chosen.items():
                _answer(partial(call, partial(probe.requests, question)), f"{name}, {probe_name}")
            _answer(partial(chosen["example_order"].of_shards, [question, question]), f"{name}, shards")
    return counts


def _answer(work: Callable[[], Any], name: str) -> Any:
    """The result of `work`; None if it raises UntestableQuestion."""
    try:
        return work()
    except UntestableQuestion as error:
        if len(str(error)) > 5_000:
            raise AssertionError(f"{name}: a reason of {len(str(error))} characters") from error
        return None
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {str(error)[:200]}") from error
