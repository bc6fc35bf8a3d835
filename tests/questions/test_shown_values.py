"""Options that are found in a prompt by their values in the row, whatever the layout."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lm_eval_leakage.questions.reader import fields_in_order, read_question
from lm_eval_leakage.questions.shown_values import Listing, is_listed, listings_among, listings_of, lists_in
from lm_eval_leakage.records import NoOptions, Question, UntestableQuestion


def listing_of(prompt: str, values: list[str]) -> Listing | None:
    return next(listings_of(prompt, values), None)


def listing_among(prompt: str, values: list[str], n_options: int) -> Listing | None:
    return next(listings_among(prompt, values, n_options), None)


STEM = "Which of these grows?"
FOUR = ["shawl", "oak tree", "a", "12"]
LABELLED = {  # how one option is written after its label
    "dash": ("- {label}. {option}\n", "ABCD"),
    "bullet": ("• {label}. {option}\n", "ABCD"),
    "bold": ("**{label}.** {option}\n", "ABCD"),
    "bold without a sign": ("**{label}** {option}\n", "ABCD"),
    "star": ("* {label}) {option}\n", "ABCD"),
    "quotation": ("> {label}. {option}\n", "ABCD"),
    "HTML": ("<b>{label}.</b> {option}<br>\n", "ABCD"),
    "zero-width space": ("\u200b{label}. {option}\n", "ABCD"),
    "direction mark": ("\u200e{label}) {option}\n", "ABCD"),
    "semicolon": ("({label}) {option}; ", "ABCD"),
    "table": ("| {label} | {option} |\n", "ABCD"),
    "JSON": ('"{label}": "{option}", ', "ABCD"),
    "equals": ("{label} = {option}\n", "ABCD"),
    "tab": ("{label}\t{option}\n", "ABCD"),
    "next line": ("{label}\n{option}\n", "ABCD"),
    "backslash and n": ("\\n{label}. {option}", "ABCD"),
    "word": ("Option {label}: {option}\n", "1234"),
    "word without a space": ("Option{label} = {option}\n", "1234"),
    "sentence": ("Choice {label} is {option}.\n", "ABCD"),
    "number and dash": ("{label} - {option}\n", "1234"),
    "number from 0": ("{label}) {option}\n", "0123"),
    "circled": ("{label} {option}\n", "①②③④"),
    "circled without a space": ("{label}{option}", "①②③④"),
    "Roman": ("{label}) {option}\n", ["i", "ii", "iii", "iv"]),
    "Georgian": ("{label}) {option}\n", "აბგდ"),
    "Persian": ("{label}) {option}\n", ["الف", "ب", "ج", "د"]),
    "Persian digits": ("{label}. {option}\n", "۱۲۳۴"),
    "Hindi digits": ("{label}) {option}\n", "१२३४"),
}
UNLABELLED = {
    "lines": "\n".join(FOUR),
    "dashes": "".join(f"\n- {option}" for option in FOUR),
    "commas": ", ".join(FOUR),
    "quotation marks": ", ".join(f'"{option}"' for option in FOUR),
    "Python": str(FOUR),
    "HTML": f"<ul>{''.join(f'<li>{option}</li>' for option in FOUR)}</ul>",
    "options of a form": "".join(f"<option>{option}</option>" for option in FOUR),
    "LaTeX": "".join(f"\\item {option}\n" for option in FOUR),
    "or": "shawl, oak tree, a or 12?",
    "or after a comma": "shawl, oak tree, a, or 12?",
}
COLUMNS = {"q": STEM, **dict(zip(("x1", "x2", "x3", "x4"), FOUR, strict=True)), "key": "B"}
LIST = {"q": STEM, "opts": FOUR, "key": 1}


def is_cut_right(question: Question, prompt: str) -> None:
    """Return whether the options are the row's, and any order of them is the published text with the options
    exchanged."""
    assert question.frame is not None
    assert list(question.options) == FOUR
    assert question.frame.text(question.options) == prompt
    assert question.stem.startswith(STEM)
    assert "shawl" not in question.stem
    blank = question.frame.text(["\0"] * 4)
    for order in permutations(range(4)):
        text = question.frame.text([FOUR[place] for place in order])
        for place in order:
            text = text.replace(f"{question.frame.markers[order.index(place)]}{FOUR[place]}", "\1", 1)
        assert text.count("\1") == 4
    for option in FOUR:
        assert option == "a" or option not in blank


@pytest.mark.parametrize(("line", "labels"), LABELLED.values(), ids=LABELLED.keys())
@pytest.mark.parametrize(
    "row",
    [LIST, COLUMNS, {"q": STEM, "opts": [{"text": option} for option in FOUR]}],
    ids=["list", "columns", "records"],
)
def test_options_after_labels_of_any_kind_are_read_exactly(line: str, labels: str, row: dict) -> None:
    block = "".join(line.format(label=label, option=option) for label, option in zip(labels, FOUR, strict=True))
    prompt = f"{STEM}\n{block}\nAnswer:"
    is_cut_right(read_question(row, prompt, list(labels), 1), prompt)


@pytest.mark.parametrize(("line", "labels"), LABELLED.values(), ids=LABELLED.keys())
def test_options_that_are_the_choices_are_never_asked_a_second_time_after_the_list(line: str, labels: str) -> None:
    block = "".join(line.format(label=label, option=option) for label, option in zip(labels, FOUR, strict=True))
    prompt = f"{STEM}\n{block}\nAnswer:"
    is_cut_right(read_question(LIST, prompt, FOUR, 1), prompt)


@pytest.mark.parametrize("block", UNLABELLED.values(), ids=UNLABELLED.keys())
@pytest.mark.parametrize("choices", [FOUR, list("ABCD")], ids=["texts", "letters"])
def test_options_without_labels_are_found_too(block: str, choices: list[str]) -> None:
    prompt = f"{STEM} {block}\nAnswer:"
    is_cut_right(read_question(LIST, prompt, choices, 1), prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        f"{STEM}\n<A>shawl</A>\n<B>oak tree</B>\n<C>a</C>\n<D>12</D>\nAnswer:",
        f"{STEM} It is shawl (first), oak tree (second), a (third), 12 (fourth).\nAnswer:",
    ],
)
def test_options_that_stand_in_the_prompt_in_another_way_are_refused(prompt: str) -> None:
    with pytest.raises(UntestableQuestion, match=r"stand in the prompt, but not as a list|cannot be cut out"):
        read_question(LIST, prompt, FOUR, 1)
    with pytest.raises(UntestableQuestion):
        read_question(LIST, prompt, list("ABCD"), 1)


def test_white_space_that_a_prompt_strips_belongs_to_no_option() -> None:
    row = {"question": STEM, "choices": ["shawl", " oak", "quickstep ", "alder"], "answer": 1}
    prompt = f"{STEM}\nA. shawl\nB. oak\nC. quickstep\nD. alder\nAnswer:"
    question = read_question(row, prompt, list("ABCD"), 1)
    assert question.options == ("shawl", "oak", "quickstep", "alder")
    assert question.frame is not None
    assert question.frame.markers == ("\nA. ", "\nB. ", "\nC. ", "\nD. ")


def test_white_space_that_a_prompt_shows_belongs_to_its_option() -> None:
    row = {"q": STEM, "opts": ["shawl", " oak", "quickstep ", "alder"], "key": 1}
    prompt = f"{STEM}\nA. shawl\nB.  oak\nC. quickstep \nD. alder\nAnswer:"
    assert list(read_question(row, prompt, list("ABCD"), 1).options) == row["opts"]


def test_lines_that_a_prompt_joins_are_one_option() -> None:
    row = {"q": STEM, "opts": ["a shawl\nof wool", "an oak", "a quickstep"], "key": 1}
    prompt = f"{STEM}\nA - a shawl of wool\nB - an oak\nC - a quickstep\nAnswer:"
    assert read_question(row, prompt, list("ABC"), 1).options == ("a shawl of wool", "an oak", "a quickstep")


def test_numbers_in_the_question_are_no_options() -> None:
    prompt = "In 1850 there were 8 of 56 coins. How many were left?\nA. 8\nB. 5\nC. 6\nD. 50\nAnswer:"
    row = {"q": prompt.partition("\n")[0], "opts": ["8", "5", "6", "50"], "key": 1}
    question = read_question(row, prompt, row["opts"], 1)
    assert question.stem == row["q"]
    assert question.frame is not None
    assert question.frame.markers == ("\nA. ", "\nB. ", "\nC. ", "\nD. ")


def test_options_of_one_character_are_no_labels() -> None:
    row = {"q": "哪个字？", "opts": ["银", "枝", "河", "鸡"], "key": 1}
    shown = read_question(row, "哪个字？\n① 银\n② 枝\n③ 河\n④ 鸡\n答案：", row["opts"], 1)
    assert (list(shown.options), shown.stem) == (row["opts"], "哪个字？")
    bare = read_question(row, "哪个字？\n答案：", row["opts"], 1)
    assert (list(bare.options), bare.frame, bare.answer) == (row["opts"], None, 1)


def test_options_that_are_letters_do_not_become_labels_of_other_options() -> None:
    row = {"q": STEM, "opts": ["B", "A", "D", "C"], "key": 1}
    prompt = f"{STEM}\nA. B\nB. A\nC. D\nD. C\nAnswer:"
    assert list(read_question(row, prompt, list("ABCD"), 1).options) == row["opts"]


def test_a_list_of_which_the_prompt_shows_more_is_not_the_list_of_options() -> None:
    wrong = FOUR[1:]
    prompt = f"{STEM}\n- A. shawl\n- B. oak tree\n- C. a\n- D. 12\nAnswer:"
    assert listing_of(prompt, wrong) is None
    assert listing_of(prompt, FOUR[:3]) is None
    row = {"q": STEM, "right": FOUR[0], "wrong": wrong}
    assert list(read_question(row, prompt, list("ABCD"), "A").options) == FOUR


def test_a_task_with_more_labels_than_a_question_has_options_is_read() -> None:
    row = {"q": STEM, "opts": FOUR[:2], "key": 0}
    prompt = f"{STEM}\nA = shawl\nB = oak tree\nAnswer:"
    assert list(read_question(row, prompt, list("ABCDEF"), 0).options) == FOUR[:2]


def test_two_things_in_a_sentence_are_no_list_with_labels() -> None:
    row = {"s": "The trophy in a suitcase is big.", "opts": ["trophy", "suitcase"], "key": 0}
    assert listing_of(row["s"], row["opts"]) is None
    with pytest.raises(UntestableQuestion, match="stand in the prompt"):
        read_question(row, row["s"], row["opts"], 0)


def test_a_list_of_the_row_does_not_make_a_task_without_choices_multiple_choice() -> None:
    row = {"q": STEM, "steps": FOUR}
    with pytest.raises(NoOptions):
        read_question(row, f"{STEM}\n1. shawl\n2. oak tree\n3. a\n4. 12\nAnswer:", None, "x")


def test_options_that_a_prompt_lists_twice_are_refused() -> None:
    block = "".join(f"\n{label}. {option}" for label, option in zip("ABCD", FOUR, strict=True))
    with pytest.raises(UntestableQuestion, match="stand in the prompt twice"):
        read_question(LIST, f"Choose from {', '.join(FOUR)}. {STEM}{block}\nAnswer:", list("ABCD"), 1)
    named = f"Is a shawl or an oak tree in 12 boxes? {STEM}{block}\nAnswer:"
    assert list(read_question(LIST, named, list("ABCD"), 1).options) == FOUR


def test_a_list_may_stand_before_the_question() -> None:
    listing = listing_of("### Choose:\n- red\n- blue\n- lime\n### Input:\nWhich?", ["red", "blue", "lime"])
    assert listing is not None
    assert listing.shown.frame.before == "### Choose:"
    assert listing.shown.frame.markers == ("\n- ", "\n- ", "\n- ")
    assert listing.shown.frame.after == "\n### Input:\nWhich?"


@pytest.mark.parametrize(
    "prompt",
    ["She saw red, then a blue house and lime.", "red\nblue and\nlime", "blue, red, lime", "red", "red blue lime"],
)
def test_options_that_only_occur_in_a_text_are_no_run(prompt: str) -> None:
    assert listing_of(prompt, ["red", "blue", "lime"]) is None


# ---------------------------------------------------------------------- parts


WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
MARKERS = ["\n{}. ", "\n- {}) ", " **{}** ", "\n{} = ", "; ({}) ", "\n{}\n"]


@given(st.lists(WORDS, min_size=2, max_size=26, unique=True), st.sampled_from(MARKERS), st.randoms())
def test_a_run_holds_all_values_in_their_order(options: list[str], marker: str, rng: random.Random) -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assume(not {*options} & {*letters})
    block = "".join(marker.format(letter) + option for letter, option in zip(letters, options, strict=False))
    listing = listing_of(f"Which?{block}\nAnswer:", options)
    assert isinstance(listing, Listing)
    assert list(listing.shown.options) == options
    assert (listing.shown.frame.before, listing.shown.frame.after) == ("Which?", "\nAnswer:")
    assert listing.labels == (*letters[: len(options)],)
    among = listing_among(f"Which?{block}\nAnswer:", rng.sample(options, len(options)), len(options))
    assert among is not None
    assert among.shown == listing.shown


@given(st.text(), st.lists(st.text(max_size=5), max_size=6))
def test_any_text_is_searched_without_an_error(text: str, values: list[str]) -> None:
    for listing in (listing_of(text, values), listing_among(text, values, len(values) or 1)):
        assert listing is None or listing.shown.frame.text(listing.shown.options) == text
    assert is_listed(text, values) in (True, False)


@pytest.mark.parametrize("prompt", ["a" * 40_000, "a b " * 10_000, "\nA. a\nB. b" * 4_000, "a" + " " * 40_000 + "b"])
def test_long_prompts_are_searched_in_a_bounded_number_of_places(prompt: str) -> None:
    for listing in (
        listing_of(prompt, ["a", "b"]),
        listing_of(prompt, ["a b", "b a"]),
        listing_among(prompt, ["a", "b"], 2),
    ):
        assert listing is None or listing.shown.frame.text(listing.shown.options) == prompt


def test_the_lists_of_a_row_are_those_that_may_be_options() -> None:
    row = {
        "q": STEM,
        "choices": {"label": ["A", "B"], "text": ["shawl", "oak"]},
        "records": [{"label": "A", "text": "fir"}, {"label": "B", "text": "elm"}],
        "written": "['ash', 'yew']",
        "numbers": [1, 2.5],
        "mapping": {"A": "red", "B": "blue"},
        "one": ["alone"],
    }
    assert [*lists_in(row)] == [
        ["shawl", "oak"],
        ["fir", "elm"],
        ["ash", "yew"],
        ["1", "2.5"],
        ["red", "blue"],
    ]


def test_the_fields_that_hold_options_are_named_in_the_order_of_the_options() -> None:
    def fields(*options: str, stem: str = STEM) -> list[set[str]]:
        return fields_in_order(Question("", stem, options), [other, row])

    row = {"q": STEM, "right": "oak", "wrong": ["shawl", "a hat"], "answer": "oak"}
    other = {"q": "Which of those?", "right": "shawl", "wrong": ["a hat", "oak"]}
    assert fields("shawl", "oak", "a  hat") == [{"wrong[0]"}, {"right", "answer"}, {"wrong[1]"}]
    assert fields("shawl", "oak", "a hat", stem="Which") == [{"right"}, {"wrong[1]"}, {"wrong[0]"}]
    assert fields("shawl", "oak", "a hat", stem="Of which kind is it?") == []
    assert fields("shawl", "elm") == []
    assert fields("shawl", "a hat") == []  # published as a list
    assert fields("oak", "oak") == []
