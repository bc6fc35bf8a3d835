"""Questions as text, and which candidate a reply names."""

from __future__ import annotations

import csv
import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.rendering import (
    AUDITED,
    CSV_ROW,
    INLINE,
    JSON_ROW,
    LAYOUTS,
    candidate_in_reply,
    in_orders,
    laid_out,
    whole_text,
)
from lm_eval_leakage.records import Question, UntestableQuestion

QUESTION = Question("1", " Which?\n", ("red", "blue "))


def test_formats_are_the_harness_template_of_mmlu_and_that_of_the_papers() -> None:
    assert whole_text(QUESTION) == whole_text(QUESTION, "usual") == "Which?\nA. red\nB. blue "
    assert whole_text(QUESTION, "papers") == "Which?:\nA:red\nB:blue "


def test_more_options_than_letters_are_refused() -> None:
    with pytest.raises(UntestableQuestion, match="27 options"):
        whole_text(Question("1", "Which?", ("x",) * 27))


ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n\0"), max_size=12)


@given(ANY_TEXT, st.lists(ANY_TEXT, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_a_row_of_any_texts_in_any_order_is_read_back(stem: str, options: list[str], rng) -> None:
    question = Question("1", stem, tuple(options))
    order = rng.sample(range(len(options)), len(options))
    texts = {}
    for layout in LAYOUTS:
        frame, written = laid_out(question, layout)
        (block,) = in_orders(frame.markers, written, [order])
        texts[layout] = frame.before + block
        assert texts[layout] + frame.after == frame.text([written[place] for place in order])
    shown = [options[place] for place in order]
    assert json.loads(texts[JSON_ROW] + '"]}') == {"question": stem.strip(), "choices": shown}
    assert next(csv.reader([texts[CSV_ROW]])) == [stem.strip(), *shown]
    listed = [f" ({letter}) {option}" for letter, option in zip("ABCD", shown, strict=False)]
    assert texts[INLINE] == stem.strip() + "".join(listed)
    assert texts[AUDITED] == whole_text(Question("1", stem, tuple(shown)))


def test_the_right_answer_ends_a_row() -> None:
    ends = {layout: laid_out(QUESTION, layout)[0].after for layout in LAYOUTS}
    assert ends == {AUDITED: "\nAnswer:", JSON_ROW: '"], "answer": ', CSV_ROW: ",", INLINE: " Answer:"}


ANIMALS = ("a cat", "a cat on a mat", "two dogs", "10", "100")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("two dogs", "two dogs"),
        ("  Two  DOGS.\nC. three hens", "two dogs"),
        ("\n\nB. two dogs", "two dogs"),
        ("(B) two dogs", "two dogs"),
        ("**two dogs**", "two dogs"),
        ("“Two dogs.”", "two dogs"),
        ("two dogs, since dogs come in pairs", "two dogs"),
        ("The next option is: two dogs.", "two dogs"),
        ("a cat", "a cat"),
        ("a cat on a mat", "a cat on a mat"),
        ("10", "10"),
        ("100", "100"),
        *((reply, None) for reply in ("", " \n \n", "I'm sorry, but I can't help with that.", "two dogs or a cat")),
        *(
            (reply, None)
            for reply in ("10 and 100", "a cat, two dogs, 10, 100", "two dogsbodies", "see two dogs here")
        ),
        ("a cat on a mat is what it says", None),  # two candidates, one in the other
        *((reply, None) for reply in ("1000", "two\ndogs", "E")),
    ],
)
def test_a_reply_names_the_one_candidate_that_it_is_or_begins_or_ends_with(reply: str, expected: str | None) -> None:
    place = candidate_in_reply(reply, ANIMALS)
    assert (None if place is None else ANIMALS[place]) == expected


@pytest.mark.parametrize(
    ("expected", "replies"),
    [
        (0, ["1", "1. Since"]),
        (1, [" 2\n\nListing", "**2**", "Listing 2.", "The published one is 2."]),
        (None, ["1 or 2", "12", "3", "1, not 2", "neither", "Listing 2 or 1."]),
    ],
)
def test_a_listing_is_named_by_its_number_alone(expected: int | None, replies: list[str]) -> None:
    assert {candidate_in_reply(reply, ("1", "2")) for reply in replies} == {expected}


texts = st.text("ab1 .A\n(", max_size=12)


@given(texts, st.sets(st.sampled_from(["a", "b", "ab", "a b", "1", "a. b", "ab1"]), min_size=2, max_size=4))
def test_which_candidate_a_reply_names_does_not_depend_on_their_order(reply: str, candidates: set[str]) -> None:
    chosen = set()
    for order in permutations(candidates):
        place = candidate_in_reply(reply, order)
        chosen.add(None if place is None else order[place])
    assert len(chosen) == 1
