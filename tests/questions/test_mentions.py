"""Options that a question's text names, and the order in which it names them."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.guards import MENTIONED, guards_of
from lm_eval_leakage.questions.natural_orders import in_order_of_mention, mentions
from lm_eval_leakage.records import Question

STORY = "Robert brought the plates. Laura brought a lamp, and Tom came later. Who brought a lamp?"


def test_an_option_is_where_the_text_names_it_first() -> None:
    found = mentions(STORY, ("Tom", "Laura", "Susan", "Robert"))
    assert found == (STORY.index("Tom"), STORY.index("Laura"), None, 0)


@pytest.mark.parametrize(
    ("option", "is_named"),
    [
        ("The lamp", True),  # whatever the article
        ("PLATES.", True),
        ("“plates”", False),  # other quotation marks are part of an option
        ("plate", False),  # a part of a word
        ("came  later", True),
        ("a", False),  # in every text
        ("", False),
        ("Laura brought a lamp, and Tom came later. Who brought a lamp? " * 9, False),
    ],
)
def test_options_are_read_as_whole_words_without_case_and_article(option: str, is_named: bool) -> None:
    (found,) = mentions(STORY, (option,))
    assert (found is not None) == is_named


def test_scripts_without_spaces_are_read_by_character() -> None:
    assert mentions("小明买了苹果，小红买了梨。", ("梨", "苹果", "小红")) == (
        None,
        4,
        7,
    )
    assert mentions("가방을 샀다", ("가방을", "가방")) == (0, None)


def test_a_part_of_another_option_is_named_only_elsewhere() -> None:
    assert mentions("iron oxide and then iron", ("iron", "iron oxide")) == (20, 0)
    assert mentions("iron oxide", ("iron", "iron oxide")) == (None, 0)


@given(st.permutations(["Robert", "Laura", "Tom", "Susan"]))
def test_reordering_options_reorders_where_they_are_named(order: list[str]) -> None:
    places = dict(zip(order, mentions(STORY, tuple(order)), strict=True))
    assert places == {"Robert": 0, "Laura": STORY.index("Laura"), "Tom": STORY.index("Tom"), "Susan": None}


def test_one_of_the_orders_of_named_options_is_that_of_mention() -> None:
    orders = list(permutations(("Robert", "Laura", "Tom")))
    assert [order for order in orders if in_order_of_mention(STORY, order)] == [("Robert", "Laura", "Tom")]
    assert not in_order_of_mention(STORY, ("Tom", "Susan"))  # one has no order


def test_it_is_a_guard() -> None:
    assert MENTIONED in guards_of(Question("1", STORY, ("Laura", "Susan", "Tom")))
    assert MENTIONED not in guards_of(Question("1", STORY, ("Tom", "Susan", "Laura")))


TABLE = "On the table are a lamp, a jug, a drum and a kettle. Which one is for sale?"


@pytest.mark.parametrize(
    ("options", "in_order"),
    [
        (("an old lamp", "a new jug", "a red drum", "a small kettle"), True),
        (("an old lamp", "a new vase", "a red drum", "a small kettle"), True),
        (("an old jug", "a new lamp", "a red drum", "a small kettle"), False),
        (("an old lamp", "a new jug", "a red chair", "a small stool"), False),
        (("any lamp", "a lamp and a jug", "a drum", "no kettle"), True),
        (("a lamp and a jug", "a jug and a drum", "a drum and a lamp", "a kettle"), False),
    ],
    ids=["all", "three of four", "two exchanged", "only two", "by its own words", "no word of its own"],
)
def test_options_may_be_named_by_a_word_of_their_own(options: tuple[str, ...], in_order: bool) -> None:
    assert in_order_of_mention(TABLE, options) is in_order
