"""The given name in a text that could as well be another one, and the blocks of rows that exchange theirs."""

from __future__ import annotations

import random

import pytest

from lm_eval_leakage.questions.slots import NUMBERS, Slot, blocks_of, find_slot, gender_of
from lm_eval_leakage.records import UntestableQuestion

NAMES = {"female": [name for name, gender in gender_of().items() if gender == "female"]}
NAMES["male"] = [name for name, gender in gender_of().items() if gender == "male"]


def why_not(text):
    with pytest.raises(UntestableQuestion) as raised:
        find_slot(text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "filler", "gender"),
    [
        ("Betty's shop sells bagels. How many does Betty sell?", "Betty", "female"),
        ("On Monday, Omar ran 3 miles. He ran 4 more. How far did Omar run?", "Omar", "male"),
        ("If John has 3 apples and Mary 4, how many are there?", "John", "male"),
        ("How does John spend $40?", "John", "male"),
        ("Mrs. Lee gave Susan 4 pencils.", "Susan", "female"),
        ("The train leaves at 5. Priya boards it.", "Priya", "female"),
        ("Will she win? Irene asks her friends.", "Irene", "female"),
        ("Sophie hat 12 Äpfel und kauft 5 weitere.", "Sophie", "female"),
        ("Étienne achète 4 livres.", "Étienne", "male"),
        ("Tim’s dog eats 2 cans a day, so Tim buys 14.", "Tim", "male"),
        ("“Kevin, come here!” said his father.", "Kevin", "male"),
    ],
)
def test_the_first_given_name_is_the_slot(text, filler, gender):
    slot = find_slot(text)
    assert (slot.filler, slot.kind) == (filler, gender)
    assert slot.filled(text, "Zoe") == text.replace(filler, "Zoe")


def test_only_whole_words_are_exchanged():
    text = "Ann sells cANNs to Annabel; Ann, Anna and Ann's dog met."
    slot = Slot("Ann", "female", (0, 28, 42))
    assert slot.filled(text, "Barbara") == "Barbara sells cANNs to Annabel; Barbara, Anna and Barbara's dog met."
    assert find_slot("Tim met Timothy. Tim left.").filled("Tim met Timothy. Tim left.", "Bob") == (
        "Bob met Timothy. Bob left."
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A robe takes 2 bolts of blue fiber.", "no given name"),
        ("Mr. Kevin has 4 cows.", "follows a title"),
        ("Aunt Sharon bakes 4 cakes.", "follows a title"),
        ("Kevin Durant scored 30 points.", "beside another name"),
        ("The New York Susan Hall has 40 seats.", "beside another name"),
        ("Mary-Kate has 3 coats.", "part of a longer word"),
        ("The house of James' aunt has 3 doors.", "ending that another name would not have"),
        ("Susan lost his 4 keys, so he made 2 copies.", "does not agree with the pronouns"),
        ("Kevin sold her 3 books, as she says.", "does not agree with the pronouns"),
        ("In April the shop in Paris sold 4 coats.", "no given name"),
    ],
)
def test_a_text_without_an_exchangeable_name_has_a_reason(text, reason):
    assert reason in why_not(text)


def test_a_name_that_cannot_be_exchanged_gives_way_to_the_next():
    assert find_slot("Mr. Kevin pays Susan $4. She saves it.").filler == "Susan"


def test_names_of_both_genders_and_words_are_no_fillers():
    assert not {"Jordan", "Will", "Mark", "Rose", "Grace", "May", "Paris", "Madison"} & gender_of().keys()
    assert len(gender_of()) > 8_000


def rows_of(n, *, seed=0, names=None):
    rng = random.Random(seed)
    texts = {}
    for number in range(n):
        name = rng.choice(names or NAMES[rng.choice(["female", "male"])])
        texts[f"row {number}"] = f"{name} has {number} apples."
    return texts, {row: find_slot(text) for row, text in texts.items()}


@pytest.mark.parametrize(("n", "size"), [(200, 6), (47, 4), (13, 6), (2, 6), (1, 6)])
def test_blocks_have_rows_of_one_gender_with_different_names(n, size):
    texts, slots = rows_of(n)
    blocks = list(blocks_of(slots, texts, size))
    rows = [row for block in blocks for row in block]
    assert len(rows) == len({*rows})
    for block in blocks:
        assert len({slots[row].kind for row in block}) == 1
        assert len({slots[row].filler for row in block}) == len(block)
        assert 2 <= len(block) <= 2 * size
    if n >= 47:
        assert len(rows) >= n - 2
        assert min(map(len, blocks)) >= size - 1


def test_no_name_of_a_block_stands_in_another_of_its_rows():
    texts, slots = rows_of(60)
    texts = {row: f"{text} {slots[f'row {(int(row[4:]) + 1) % 60}'].filler} has none." for row, text in texts.items()}
    for block in blocks_of(slots, texts, 6):
        for row in block:
            assert not any(slots[other].filler in texts[row].split() for other in block if other != row)


def test_names_that_recur_are_spread_over_the_blocks():
    texts, slots = rows_of(60, names=["Brian", "Kevin", "Julie", "Sharon", "Susan", "Omar", "Luis", "Irene"])
    blocks = list(blocks_of(slots, texts, 6))
    assert sum(map(len, blocks)) >= 56
    assert all(len({slots[row].filler for row in block}) == len(block) for block in blocks)


def test_blocks_depend_on_the_rows_and_not_on_their_order():
    texts, slots = rows_of(50)
    turned = dict(reversed(slots.items()))
    assert [*blocks_of(slots, texts, 6)] == [*blocks_of(turned, texts, 6)]


@pytest.mark.parametrize(
    ("text", "filler", "kind"),
    [
        ("It costs $45 a month for 12 months.", "45", "2 digits"),
        ("How many divisors does 196 have?", "196", "3 digits"),
        ("Of 5 pens 2.75 are left in 2019, and 36 more.", "36", "2 digits"),
        (r"Reduce $\frac{12}{35}$ by $x^{15}$, with $x = 40$.", "40", "2 digits"),
    ],
)
def test_the_first_number_that_stands_alone_is_a_slot(text: str, filler: str, kind: str) -> None:
    slot = find_slot(text, NUMBERS)
    assert (slot.filler, slot.kind) == (filler, kind)
    assert slot.filled(text, "99").count("99") == len(slot.begins)


def test_every_place_of_a_number_changes() -> None:
    text = "With 12 eggs and 12 cups, is 120 more than 12?"
    assert find_slot(text, NUMBERS).filled(text, "34") == "With 34 eggs and 34 cups, is 120 more than 34?"


@pytest.mark.parametrize("text", ["Add 3 and 4.", "In 2019 it was 1,250 or 3.14.", "def add(a):\n    return a + 12"])
def test_small_numbers_years_decimals_and_code_have_no_slot(text: str) -> None:
    with pytest.raises(UntestableQuestion, match="number"):
        find_slot(text, NUMBERS)
