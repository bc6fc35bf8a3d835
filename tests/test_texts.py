from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.fields import well_formed, well_formed_parts
from lm_eval_leakage.questions.prompt_parser import listed_texts, texts_in
from lm_eval_leakage.texts import as_json, brief, from_yaml, in_capitals
from tests.fuzzed_documents import nested


@pytest.mark.parametrize("value", ["x" * 10**6, nested(10**4), {"a": nested(10**4)}, [10**30] * 1000], ids=range(4))
def test_any_value_is_shown_in_a_few_characters(value: object) -> None:
    assert len(brief(value)) < 3000


@pytest.mark.parametrize("value", ["red", 3, None, ["a", "b"], {"text": ["a"]}, 2.5, True])
def test_a_usual_value_is_shown_as_python_writes_it(value: object) -> None:
    assert brief(value) == repr(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_that_can_be_written_stays_itself(text: str) -> None:
    assert well_formed(text) == text


def test_only_a_surrogate_without_its_other_half_is_replaced() -> None:
    assert well_formed("a\ud83d b\udc00") == "a\ufffd b\ufffd"
    assert well_formed("\ud83d\ude00") == "\U0001f600"


def test_in_a_row_it_is_replaced_wherever_it_is() -> None:
    assert well_formed_parts({"\ud800": ["\ud800", ("x", "\ud800")]}) == {"\ufffd": ["\ufffd", ("x", "\ufffd")]}


def test_json_has_null_where_a_number_is_not_finite_at_any_depth() -> None:
    value = {"a": [1.5, math.inf, {"b": (-math.inf, math.nan, 2)}], "c": "Infinity"}
    assert json.loads(as_json(value), parse_constant=pytest.fail) == {
        "a": [1.5, None, {"b": [None, None, 2]}],
        "c": "Infinity",
    }


# ---------------------------------------------------------------------- texts of a row


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(0, 10**6)))
def test_a_list_written_by_python_or_as_json_is_read_back(values: list) -> None:
    assert listed_texts(repr(values)) == listed_texts(json.dumps(values)) == [str(value) for value in values]


@pytest.mark.parametrize(
    "text",
    [
        *("[header] It's on.", "['a', b]", "['a", "[0xfff]", "[1e999", "a", "", "[" * 10**5),
        *("[0x" + "f" * 10_000 + "]", "[-" + "-" * 50_000 + "1]"),
    ],
    ids=range(10),
)
def test_a_text_that_is_not_a_list_holds_no_other_texts(text: str) -> None:
    assert listed_texts(text) == []


def test_every_text_and_number_of_a_row_is_found_however_deep() -> None:
    deep = {"a": [[("end", b"bytes", None, True)]]}
    row = {"question": "Which?", "choices": ["red", 2.5], "more": "['x', 3]", "deep": deep}
    assert list(texts_in(row)) == ["Which?", "red", "2.5", "['x', 3]", "x", "3", "end"]


# ---------------------------------------------------------------------- YAML


def laughs(merge: bool) -> str:
    """Ten times ten times ten ... values, in ten lines."""
    first = "a0: &a0 {k: v}" if merge else "a0: &a0 [x, x]"
    inner = "{{<<: [{}]}}" if merge else "[{}]"
    lines = [f"a{n}: &a{n} {inner.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 11)]
    return "\n".join([first, *lines])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "'a' stands twice, in lines 1 and 3; keep one of them"),
        ("a: [{b: 1, b: 2}]", "'b' stands twice, in line 1; keep one"),
        (laughs(merge=False), "its aliases .* stand for more than 100,000 values; write the settings without them"),
        (laughs(merge=True), "its aliases .* stand for more than 100,000 values"),
        ("a: &a [*a]", "its aliases .* stand for more than 100,000 values"),
        ("a: [", "it is not valid YAML .*line 1"),
        ("a: !!python/object/apply:os.system [x]", "it is not valid YAML"),
        ("[" * 5_000, "nested too deeply"),
        ("a: 1\n---\nb: 2", "it is not valid YAML"),
    ],
    ids=range(9),
)
def test_yaml_that_would_be_misread_or_fill_the_memory_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: {b: 1}\nc: {b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("a: &a {b: 1}\nc: *a\nd: {<<: *a, e: 2}", {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}),
        ("- 1\n- true", [1, True]),
    ],
)
def test_other_yaml_is_read_as_yaml(text: str, value: object) -> None:
    assert from_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "capitals"),
    [
        ("Which is older?\nA. the oak", "WHICH IS OLDER?\nA. THE OAK"),
        ("die größte", "DIE GRÖSSTE"),
        ("哪个更大？A. 太阳", "哪 个 更 大？A. 太 阳"),
        ("12 + 7 = 19", "12 + 7 = 19"),
    ],
)
def test_in_capitals_a_text_reads_the_same_and_is_another(text: str, capitals: str) -> None:
    assert in_capitals(text) == capitals
