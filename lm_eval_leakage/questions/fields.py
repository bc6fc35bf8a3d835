"""Reads a data row (lm_eval's doc) as a `Question`, and decides how the rows of a file name the right option.

There is one `RowSchema` for each way in which data sets name their fields. The value that names the right option of a
row is its key: a letter, an index from 0 or from 1, the text of an option, a list of these, or a mark of 0 or 1 for
every option. A row alone often fits several of these readings, so all rows of a file decide together. A row may
withhold its key with null, an empty text or -1, as test splits on the Hub do.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.texts import brief, canonical

ROWS_NAMED = 3
WITHHELD = (None, "", -1)
EQUALLY_RIGHT = "answers"  # a field with several keys
BY_CHANCE = 0.01  # rows that fit a second reading with less than this probability are not read as documented
_REMEDY = "write each as its letter, or as the text of the option"

_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
SEVERAL_LETTERS = re.compile(r"[A-Z](?:\s*(?:[,;/&+]\s*)?[A-Z])+")  # several right options, as in CMB

_Places = tuple[int, ...]
Doc = Mapping[str, Any]

BY_LABEL, FROM_0, FROM_1, BY_TEXT = "letters", "indices from 0", "indices from 1", "texts of options"
BY_MARK = "marks of 0 and 1"
MOST_OPTIONS = 100  # the harness's longest list of choices has 77; a longer list is a misread column
LONGEST_OPTION = 20_000  # characters, twenty times the longest option of the bundled benchmarks

# Columns of data sets that name options by their role.
GPQA = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
SCIQ = ("distractor3", "distractor1", "distractor2", "correct_answer")
# Fields that may name the right option of a question with a list of options.
ANSWERS = (
    *("answer_index", "answer_idx", "answer", "answerKey", "gold", "label", "labels", "target", "target_scores"),
    EQUALLY_RIGHT,
)
OF_MARKS = ("mc1_targets", "mc2_targets", "target_scores")  # fields of options with marks
STEMS = ("question", "Question", "prompt")  # of a question with a column for each option
LABELS = (ascii_uppercase, ascii_lowercase, [*map(str, range(1, 27))], [*map(str, range(26))])
OPTION_COLUMN = re.compile(r"((?:option|choice|opt)?[ _-]?)([a-z]|\d\d?)", re.IGNORECASE)
LETTERED_LINE = re.compile(r"^[ \t]*\(?([A-Z])[).:][ \t]+", re.MULTILINE)


@dataclass(frozen=True)
class _Key:
    """The key that one field of a row holds; `row` is counted from 1."""

    row: int
    field: str
    value: object
    options: Sequence[object]
    labels: Sequence[str] | None

    @property
    def values(self) -> Sequence[object]:
        return self.value if isinstance(self.value, (list, tuple)) else [self.value]

    def read_as(self, reading: str) -> _Places | None:
        """Return the places of the right options; None if the reading does not fit."""
        marked = _marked(self.value, self.labels, self.options)
        if marked is not None or reading == BY_MARK:
            return marked if reading == BY_MARK else None
        places_of_values = [READINGS[reading](value, self) for value in self.values]
        if None in places_of_values:
            return None
        return tuple(place for places in places_of_values for place in places or ())

    def __str__(self) -> str:
        return f"row {self.row} has {brief(self.value)}{'' if self.field == 'answer' else f' as {self.field}'}"

    def meant_by(self, reading: str) -> str:
        named = " and ".join(brief(self.options[place]) for place in self.read_as(reading) or ())
        return f"{named} by {reading}"


@dataclass(frozen=True)
class ReadKeys:
    """The keys of a file: they have one reading, and some are rewritten as indices.

    reading: the meaning of the keys, in words; None if no row has a key
    changed: by row from 0, the fields whose values `question_from_doc` does not read, as indices from 0
    doubt: the other readings that fit, as a sentence with the remedy; empty if there are none
    """

    reading: str | None
    changed: Mapping[int, Mapping[str, int | list[int]]]
    doubt: str


def read_keys(docs: Iterable[Doc]) -> ReadKeys:
    """Return the keys of a file's rows; rows that are no questions are left out.

    Raises ValueError, with the end of a sentence about the file, if no reading fits all keys, or if several do that
    differ. Few rows may fit several by chance: then they are read as documented, by letter or as indices from 0.
    """
    keys = [key for row, doc in enumerate(docs, 1) for key in _keys(row, doc)]
    if not keys:
        return ReadKeys(None, {}, "")
    reading, doubt = _reading_of(keys)
    return ReadKeys(reading, _changed(keys, reading), doubt)


def _keys(row: int, doc: Doc) -> Iterator[_Key]:
    """Yield the keys of a row; none if it is no question with options, or withholds them."""
    question = question_if_any(doc)
    if question is None or len(question.options) < 2:  # no audit tests it
        return
    raw = raw_parts(doc)
    values = {} if raw.key is None else {raw.key: raw.answer}
    if isinstance(doc.get(EQUALLY_RIGHT), (list, tuple)):
        values[EQUALLY_RIGHT] = doc[EQUALLY_RIGHT]
    for field, value in values.items():
        if not _is_withheld(value) and _marked(value, raw.labels, raw.options) != ():
            yield _Key(row, field, value, raw.options, raw.labels)


def _is_withheld(value: object) -> bool:
    return value in (*WITHHELD, [], (), {}) or value != value  # NaN differs from itself


def _changed(keys: Sequence[_Key], reading: str) -> dict[int, dict[str, int | list[int]]]:
    """Return the keys that `question_from_doc` would read otherwise, as indices from 0, by row and field."""
    changed: dict[int, dict[str, int | list[int]]] = {}
    for key in keys:
        places = list(key.read_as(reading) or ())
        if isinstance(key.value, str) and len(places) > 1:
            continue  # they are right only together, which no single index can name
        index = places[0] if len(places) == 1 and key.field != EQUALLY_RIGHT else places
        labels, n_options = key.labels or ascii_uppercase, len(key.options)
        documented = [_by_index_or_label(value, labels, n_options) for value in key.values]
        if (documented if isinstance(key.value, (list, tuple)) else documented[0]) != index:
            changed.setdefault(key.row - 1, {})[key.field] = index
    return changed


# ---------------------------------------------------------------------- the decision


def _reading_of(keys: Sequence[_Key]) -> tuple[str, str]:
    """Return the reading of all keys, and the doubt that is left. Raise ValueError as `read_keys` does."""
    places_by_reading = {reading: [key.read_as(reading) for key in keys] for reading in READINGS}
    fitting = [reading for reading, places in places_by_reading.items() if None not in places]
    if not fitting:
        raise ValueError(_unread(keys, places_by_reading))
    first, *others = fitting
    if first == BY_LABEL and all(key.labels is not None for key in keys):
        return first, ""
    differing: dict[str, list[_Key]] = {}
    for other in others:
        pairs = zip(keys, places_by_reading[first], places_by_reading[other], strict=True)
        rows = [key for key, places, other_places in pairs if places != other_places]
        if rows:
            differing[other] = rows
    if not differing:
        return first, ""
    # of indices, only numbers are documented: digits in quotes may be anything
    in_quotes = any(isinstance(value, str) for key in keys for value in key.values)
    is_documented = first == BY_LABEL or (first == FROM_0 and not in_quotes)
    # the probability that no right answer is at the first place, if places are random: without one, indices may be
    # counted from 0 or from 1
    chance = math.prod(1 - 1 / len(key.options) for key in keys)
    if not is_documented or chance < BY_CHANCE:
        named = f"{' and '.join([first, *differing])}, which mean different options"
        other, rows = next(iter(differing.items()))
        shown = "; ".join(f"{key}: {key.meant_by(first)}, {key.meant_by(other)}" for key in rows[:ROWS_NAMED])
        raise ValueError(f"right answers can be read as {named} ({shown}); {_REMEDY}")
    return first, f"right answers are read as {first}, as documented, but could be {', '.join(differing)}; {_REMEDY}"


def _unread(keys: Sequence[_Key], places_by_reading: Mapping[str, Sequence[_Places | None]]) -> str:
    """Return the clause that names the rows that do not fit the reading that fits most rows."""
    best = min(places_by_reading, key=lambda reading: places_by_reading[reading].count(None))
    rows = [key for key, places in zip(keys, places_by_reading[best], strict=True) if places is None]
    shown = ", ".join(f"{key} (of {len(key.options)} options)" for key in rows[:ROWS_NAMED])
    more = f" and {len(rows) - ROWS_NAMED} more" if len(rows) > ROWS_NAMED else ""
    fit = f"those of {len(keys) - len(rows)} of {len(keys)} rows are {best}, but " if len(rows) < len(keys) else ""
    return f"right answers cannot be read in one way: {fit}{shown}{more}; {_REMEDY}"


# ---------------------------------------------------------------------- readings


def _by_label(value: object, key: _Key) -> _Places | None:
    if not isinstance(value, str):
        return None
    if key.labels is not None:
        return (list(key.labels).index(value.strip()),) if value.strip() in key.labels else None
    letters = ascii_uppercase[: len(key.options)]
    match = _LETTER.fullmatch(value.strip())
    if match:
        return (letters.index(match[1].upper()),) if match[1].upper() in letters else None
    several = _letters_in(value)
    return tuple(map(letters.index, several)) if several and several == sorted({*several} & {*letters}) else None


def _letters_in(value: str) -> list[str]:
    """Return the letters of a text that names several options, such as "AC" or "A, C"; none of another text."""
    return re.findall("[A-Z]", value) if SEVERAL_LETTERS.fullmatch(value.strip()) else []


def _counted_from(first: int) -> Callable[[object, _Key], _Places | None]:
    def read(value: object, key: _Key) -> _Places | None:
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 5:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
            return None
        return (int(value) - first,) if 0 <= value - first < len(key.options) else None

    return read


def _by_text(value: object, key: _Key) -> _Places | None:
    """Return the place of the option with this text, the first of equal ones; None if there is none."""
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        return None
    texts, text = [canonical(str(option)) for option in key.options], canonical(str(value))
    return (texts.index(text),) if text in texts else None


def _marked(value: object, labels: Sequence[str] | None, options: Sequence[object]) -> _Places | None:
    """Return the places of the options with a mark of 1; None for anything but marks.

    Marks are 0 or 1, one for each option, in a list as long as the options or by their texts or labels.
    """
    marks = value
    if isinstance(value, Mapping):
        by_name = {canonical(str(name)): mark for name, mark in value.items() if mark is not None}
        texts: Sequence[object] = ()
        for names in (options, labels or ascii_uppercase[: len(options)]):
            if {canonical(str(name)) for name in names} == by_name.keys():
                texts = names
                break
        marks = [by_name[canonical(str(name))] for name in texts]
    if not isinstance(marks, (list, tuple)) or len(marks) != len(options) or not _are_marks(marks):
        return None
    return tuple(place for place, mark in enumerate(marks) if mark)


def _are_marks(values: Iterable[object]) -> bool:
    return all(isinstance(value, (int, float)) and value in (0, 1) for value in values)


READINGS: Mapping[str, Callable[[Any, _Key], _Places | None]] = {
    BY_LABEL: _by_label,
    FROM_0: _counted_from(0),
    FROM_1: _counted_from(1),
    BY_TEXT: _by_text,
    BY_MARK: lambda value, key: None,  # of all options together, see `_Key.read_as`
}


@dataclass(frozen=True)
class Raw:
    """The parts of a row before they are checked.

    answer: the right option as the row names it, in a separate field (`key`) or by marks of the options; or its index
        from 0 where it has the same place in every row
    labels: the labels of the options, one of which `answer` may be; None where the row has none
    key: the field that holds nothing but `answer`; None if there is none
    """

    stem: object
    options: Sequence[object]
    answer: object = None
    labels: Sequence[str] | None = None
    key: str | None = None


@dataclass(frozen=True)
class RowSchema:
    """The way in which some data sets name the fields of their rows.

    fields: the fields that identify the schema, the question's text first, those with its options next
    read: the function that returns a row's parts, given the names of these fields
    keys: the fields that may name the right option; the first one that a row does not withhold counts
    right: index of the right option where it has the same place in every row
    """

    fields: tuple[str, ...]
    read: Callable[..., Raw]
    keys: tuple[str, ...] = ()
    right: int | None = None

    def parts(self, doc: Doc) -> Raw:
        """Return the parts of a row of this schema."""
        raw = self.read(doc, *(name for name in self.fields if name not in self.keys))
        present = [name for name in self.keys if name in doc]
        key = next((name for name in present if not _is_withheld(doc[name])), present[0] if present else None)
        if key is None:
            return raw if self.right is None else replace(raw, answer=self.right)
        return replace(raw, answer=doc[key], key=key)


def _listed(doc: Doc, stem: str, choices: str) -> Raw:
    """Read options given as a list, beside their labels or marks (ARC, TruthfulQA), or by label (CMB, BIG-bench)."""
    options = doc[choices]
    if _are_records(options):
        options = {name: [option.get(name) for option in options] for name in ("text", "label") if name in options[0]}
    if not isinstance(options, Mapping):
        return Raw(doc[stem], options)
    texts = next((options[name] for name in ("text", "choices") if isinstance(options.get(name), (list, tuple))), None)
    if texts is None and choices not in OF_MARKS and (labels := _as_labels(options)):
        texts = without_missing_end([options[label] for label in labels])
        return Raw(doc[stem], texts, labels=None if labels[0] == "A" else labels[: len(texts)])
    if texts is None and options and _are_marks(options.values()):
        return Raw(doc[stem], [*options], options)
    if texts is None and any(mark is None for mark in options.values()):
        raise UntestableQuestion(
            f"{choices} is {brief(options)}, where a table has the options of all rows in one order; write those of "
            "each row as a list"
        )
    if texts is None:
        raise UntestableQuestion(
            f"{choices} is {brief(options)}; it must be a list of texts, have lists as text and label, have a text "
            "for each label from A on, or have a mark of 0 or 1 for each option"
        )
    names = next((options[name] for name in ("label", "labels") if name in options), None)
    if names is None:
        return Raw(doc[stem], texts)
    labels = [str(label) for label in names]
    if len(labels) == len(texts) and _are_marks(names):
        return Raw(doc[stem], texts, list(names))
    return Raw(doc[stem], texts, labels=labels)


def _are_records(options: Any) -> bool:
    """Return whether each option is a record of its text and its label, as in ARC's own files."""
    is_list = isinstance(options, (list, tuple)) and len(options) > 0
    return is_list and all(isinstance(option, Mapping) and "text" in option for option in options)


def _as_labels(names: Iterable[object]) -> list[str]:
    """Return names in the order of an alphabet or of numbers if they are all of its first labels; else nothing."""
    given = set(names)
    for labels in LABELS:
        if given and given == {*labels[: len(given)]}:
            return list(labels[: len(given)])
    return []


def without_missing_end(texts: Sequence[Any]) -> list[Any]:
    """Return texts without the missing and empty ones after the last one that is there: a table has as many columns
    as the question with the most options."""
    n = len(texts)
    while n and (_is_missing(texts[n - 1]) or (isinstance(texts[n - 1], str) and not texts[n - 1].strip())):
        n -= 1
    return list(texts[:n])


def _is_missing(value: object) -> bool:
    return value is None or value != value  # NaN differs from itself


def _columns(doc: Doc, stem: str, *columns: str) -> Raw:
    return Raw(doc[stem], [doc[column] for column in columns])


def _lettered_columns(doc: Doc, stem: str, *columns: str) -> Raw:
    return Raw(doc[stem], without_missing_end([doc[column] for column in columns]))


def _opentdb(doc: Doc, stem: str, right: str, wrong: str) -> Raw:
    return Raw(doc[stem], [doc[right], *doc[wrong]])


def _chat(doc: Doc, stem: str) -> Raw:
    """Read a message that shows its options as lines with letters, as in samples of OpenAI's evals."""
    text = _last_message(doc[stem])
    if not isinstance(text, str):
        raise UntestableQuestion(f"{stem} is {brief(text)}; it must be a text or a list of messages")
    lines = list(LETTERED_LINE.finditer(text))
    first = max((place for place, line in enumerate(lines) if line[1] == "A"), default=len(lines))
    in_order = takewhile(lambda pair: pair[0][1] == pair[1], zip(lines[first:], ascii_uppercase, strict=False))
    shown = [line for line, _ in in_order]
    if len(shown) < 2:
        raise UntestableQuestion(
            f"{stem} shows no options in lines that begin with A, B, ...; give them as a list with the name choices"
        )
    ends = [*(line.start() for line in shown[1:]), len(text)]
    options = [text[line.end() : end].strip() for line, end in zip(shown, ends, strict=True)]
    # the text after the last option requests the answer
    of_one_line = not any("\n" in option for option in options[:-1])
    options[-1] = options[-1].partition("\n" if of_one_line else "\n\n")[0].strip()
    return Raw(text[: shown[0].start()].rstrip(), options)


def _last_message(given: Any) -> Any:
    """Return the user's last message in a list of chat messages; anything else as it is."""
    if not (isinstance(given, (list, tuple)) and given and all(isinstance(part, Mapping) for part in given)):
        return given
    messages = [(message.get("role"), _text_of_message(message.get("content"))) for message in given]
    by_user = [content for role, content in messages if role == "user"] or [content for _, content in messages]
    return by_user[-1]


def _text_of_message(content: Any) -> Any:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "".join(str(part["text"]) for part in content)
    return content


def _math_qa(doc: Doc, stem: str, choices: str) -> Raw:
    """Read options that stand in one text, "a ) 38 , b ) 27.675 , ..."; commas may occur inside an option."""
    first, *rest = re.split(r"(?:^|,\s*)([a-e]) \) ", doc[choices])
    labels, texts = rest[::2], rest[1::2]
    if first.strip() or labels != list("abcde"[: len(labels)]):
        raise UntestableQuestion(f"options are {brief(doc[choices])}; they must be 'a ) .. , b ) .. , ...' in order")
    return Raw(doc[stem], [text.rstrip().rstrip(" ,") for text in texts], labels=labels)


ROW_SCHEMAS = (
    RowSchema(("query", "choices", "gold"), _listed, ("gold",)),
    RowSchema(("question", "choices", "answerKey"), _listed, ("answerKey",)),
    RowSchema(("question_stem", "choices", "answerKey"), _listed, ("answerKey",)),
    RowSchema(("Problem", "options", "correct"), _math_qa, ("correct",)),
    RowSchema(("question", "option"), _listed, ("answer",)),
    RowSchema(("question", "options"), _listed, ANSWERS),
    RowSchema(("Question", *GPQA), _columns, right=0),
    RowSchema(("question", *SCIQ), _columns, right=3),
    RowSchema(("question", "correct_answer", "incorrect_answers"), _opentdb, right=0),
    RowSchema(("question", "opa", "opb", "opc", "opd"), _columns, ("cop",)),
    RowSchema(("goal", "sol1", "sol2", "label"), _columns, ("label",)),
    RowSchema(("question", "mc1_targets"), _listed),
    RowSchema(("question", "choices"), _listed, ANSWERS),
    RowSchema(("question", "mc2_targets"), _listed),
    RowSchema(("question", "target_scores"), _listed),
    RowSchema(("input", "target_scores"), _listed),
    RowSchema(("input", "choices"), _listed, (*ANSWERS, "ideal")),
    RowSchema(("input", "ideal"), _chat, ("ideal",)),
    RowSchema(("inputs", "multiple_choice_targets"), _listed, ("multiple_choice_scores", "targets")),
)
LISTS_OF_OPTIONS = frozenset(schema.fields[1] for schema in ROW_SCHEMAS if schema.read is _listed)


def question_from_doc(doc: Doc) -> Question:
    """Return the question that `doc` holds, by the first schema whose fields it has, if possible none of them null.

    Raises UntestableQuestion, with the reason, if fields are missing, the stem is empty, there are no options, or the
    stem or an option is not text.
    """
    raw = raw_parts(doc)
    if not isinstance(raw.options, Sequence) or isinstance(raw.options, str):
        raise UntestableQuestion(f"options are {brief(raw.options)}; they must be a list of texts")
    if not raw.options:
        raise UntestableQuestion("it has no options; at least 2 are needed")
    refuse_beyond_limits(raw.options)
    stem = _text(_last_message(raw.stem), "question")
    names = (*ascii_uppercase, *range(len(ascii_uppercase) + 1, MOST_OPTIONS + 1))
    options = tuple(_text(option, f"option {name}") for name, option in zip(names, raw.options, strict=False))
    right = _places(raw.answer, raw.labels, options) or ()
    return Question(
        id=content_id(stem, options) if doc.get("id") in (None, "") else well_formed(str(doc["id"])),
        stem=stem,
        options=options,
        answer=right[0] if len(right) == 1 else None,
        subject=subject_of(doc),
    )


def question_if_any(doc: Doc) -> Question | None:
    """Return the question as `question_from_doc` does; None for a row that holds none in a known schema."""
    try:
        return question_from_doc(doc)
    except UntestableQuestion:
        return None


def refuse_beyond_limits(options: Sequence[object]) -> None:
    """Raise UntestableQuestion for more or longer options than any question has."""
    if len(options) > MOST_OPTIONS:
        raise UntestableQuestion(f"it has {len(options):,} options; a question has at most {MOST_OPTIONS}")
    longest = max((len(option) for option in options if isinstance(option, str)), default=0)
    if longest > LONGEST_OPTION:
        raise UntestableQuestion(f"an option has {longest:,} characters; an option has at most {LONGEST_OPTION:,}")


def subject_of(doc: Doc) -> str:
    """Return the row's subject or category, under the names that data sets use for it; empty if it has none."""
    values = (doc[name] for name in ("subject", "category", "Category", "Subject") if name in doc)
    return next((well_formed(value) for value in values if isinstance(value, str)), "")


def raw_parts(doc: Doc) -> Raw:
    """Return the parts of a row, by the first schema whose fields it has; raise UntestableQuestion without one."""
    if isinstance(doc.get("question"), Mapping):
        doc = {**doc, **_renamed_stem(doc["question"])}
    schema = _schema_of(doc)
    if schema is None:
        raise UntestableQuestion(
            f"fields {brief(sorted(map(str, doc)))} are not those of a question; rename them to question, choices, "
            "answer"
        )
    try:
        return schema.parts(doc)
    except UntestableQuestion:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        fields = {field: doc[field] for field in schema.fields}
        raise UntestableQuestion(f"fields {brief(fields)} cannot be read ({brief(error)})") from error


def fields_read(doc: Doc) -> frozenset[str]:
    """Return the names of the fields that hold the parts of a row's question."""
    schema = _schema_of(doc)
    return frozenset() if schema is None else frozenset((*schema.fields, *schema.keys))


def has_option_fields(doc: Doc) -> bool:
    """Return whether a row has the fields of a question with options; in a table, empty ones count as missing."""
    filled = {name: value for name, value in doc.items() if value is not None}
    return isinstance(doc.get("question"), Mapping) or _schema_of(filled) is not None


def _renamed_stem(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a question that has its options inside it, as in ARC's own files."""
    return {"question" if name == "stem" else name: question[name] for name in ("stem", "choices") if name in question}


def _schema_of(doc: Doc) -> RowSchema | None:
    """Return the first schema whose fields a row has, preferably not null; None if there is none."""
    schemas = _schemas_with(tuple(doc))
    # a table gives each row the fields of all others, too, as null
    filled = (schema for schema in schemas if all(doc[field] is not None for field in schema.fields))
    return next(filled, None) or _of_columns(tuple(doc)) or next(iter(schemas), None)


@lru_cache
def _schemas_with(names: tuple[object, ...]) -> tuple[RowSchema, ...]:
    return tuple(schema for schema in ROW_SCHEMAS if set(schema.fields) <= set(names))


@lru_cache
def _of_columns(names: tuple[object, ...]) -> RowSchema | None:
    """Return the schema of rows with a column for each option (`A`, `B`, ... or `option1`, `option2`, ...), if these
    are the names of such columns."""
    stem = next((name for name in STEMS if name in names), None)
    labels: dict[str, dict[str, str]] = {}
    for name in names:
        if isinstance(name, str) and (parts := OPTION_COLUMN.fullmatch(name)):
            labels.setdefault(parts[1], {})[parts[2]] = name
    columns = next((columns for columns in labels.values() if len(columns) > 1 and _as_labels(columns)), None)
    if stem is None or columns is None:
        return None
    ordered = [columns[label] for label in _as_labels(columns)]
    return RowSchema((stem, *ordered), _lettered_columns, (*ANSWERS, "Answer"))


def _text(value: object, name: str) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf:
        value = str(value)
    if not isinstance(value, str):
        raise UntestableQuestion(f"{name} is {brief(value)}; it must be text")
    if not value.strip():
        raise UntestableQuestion(f"{name} is empty; it must have text")
    return well_formed(value)


def content_id(stem: str, options: Sequence[str]) -> str:
    """Return an id made from the texts of a question, for a row that has none."""
    return hashlib.sha256("\x1f".join([stem.strip(), *options]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def right_options(doc: Doc, field: str | None = None) -> tuple[int, ...] | None:
    """Return the indices of all options that `doc` names as right; empty if it withholds them.

    None if what it names is no option. Raises UntestableQuestion as `question_from_doc` does.

    field: the field that names them; by default the one that `question_from_doc` reads
    """
    raw = raw_parts(doc)
    return _places(raw.answer if field is None else doc[field], raw.labels, raw.options)


def _places(answer: object, labels: Sequence[str] | None, options: Sequence[object]) -> _Places | None:
    """Return the options that a row names without regard to other rows; None if it names no option.

    It may name them by a label, an index from 0 or the text of one option, by a list of these, or by marks.
    """
    if _is_withheld(answer):
        return ()
    marked = _marked(answer, labels, options)
    if marked is not None:
        return marked
    labels = labels or ascii_uppercase
    values: Sequence[object] = answer if isinstance(answer, (list, tuple)) else [answer]
    if isinstance(answer, str) and _place(answer, labels, options) is None:
        values = _letters_in(answer) or values
    places = [_place(value, labels, options) for value in values]
    named = [place for place in places if place is not None]
    return tuple(dict.fromkeys(named)) if len(named) == len(places) else None


def _place(answer: object, labels: Sequence[str], options: Sequence[object]) -> int | None:
    place = _by_index_or_label(answer, labels, len(options))
    if place is not None or not isinstance(answer, str):
        return place
    texts = [canonical(str(option)) for option in options]
    return texts.index(canonical(answer)) if texts.count(canonical(answer)) == 1 else None


def _by_index_or_label(answer: object, labels: Sequence[str], n_options: int) -> int | None:
    if isinstance(answer, int) and not isinstance(answer, bool):
        return answer if 0 <= answer < n_options else None
    used_labels = list(labels[:n_options])
    return used_labels.index(answer) if isinstance(answer, str) and answer in used_labels else None


def well_formed(text: str) -> str:
    """Return `text` with each lone surrogate, which no encoding can write, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def well_formed_parts(value: Any) -> Any:
    """Return a row, or a part of it, with every text well formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        return {well_formed_parts(key): well_formed_parts(part) for key, part in value.items()}
    return type(value)(map(well_formed_parts, value)) if isinstance(value, (list, tuple)) else value
