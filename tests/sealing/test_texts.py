"""Texts without options: which slot each has, what a key draws, what is published, and what stops."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import chisquare

from lm_eval_leakage.questions.slots import gender_of
from lm_eval_leakage.questions.statements import StatementReader
from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.seal.author_rows import ExaminedRows
from lm_eval_leakage.seal.author_texts import examine_texts
from lm_eval_leakage.seal.drawn import Seal, public_rows
from lm_eval_leakage.seal.drawn_texts import OriginalText, published_texts
from lm_eval_leakage.seal.folders import data_files, make_seal, private_files, public_files, read_seal
from lm_eval_leakage.stats.crossed_blocks import ALL_PLACEMENTS_UP_TO
from tests.sealing.made import KEY, TOOL, key, numbered, original, seal_of
from tests.sealing.test_drawn import DOCUMENTED
from tests.word_problems import word_problems

WOMEN = ("Alice", "Betty", "Clara", "Diana")


def rows_of(*names: str) -> list[dict[str, Any]]:
    things = ("pears", "bricks", "stamps", "shells", "tiles", "nails", "marbles", "ribbons")
    return [
        {"question": f"{name} has 3 {thing}. How many does {name} have?", "answer": f"{name} has 3."}
        for name, thing in zip(names, things, strict=False)
    ]


def read(*rows: Mapping[str, Any]) -> ExaminedRows:
    reader = StatementReader(("question",))

    def reading(row: Mapping[str, Any]) -> Question | UntestableQuestion:
        try:
            return reader(row)
        except UntestableQuestion as error:
            return error

    return examine_texts([(row, reading(row)) for row in rows], "answer")


def seal_of_texts(*rows: Mapping[str, Any], its_key: bytes = KEY) -> Seal:
    return make_seal("mine", TOOL, its_key, read(*rows).originals)


# ---------------------------------------------------------------------- slots


def test_the_first_given_name_is_the_slot_in_all_places_of_question_and_answer() -> None:
    sealing = read(*rows_of("Alice", "Betty"))
    assert sealing.kept == sealing.unusable == ()
    assert sealing.n_marked == 0
    first, second = sealing.originals
    assert isinstance(first, OriginalText)
    assert isinstance(second, OriginalText)
    assert (first.filler, first.order) == ("Alice", "drawn")
    assert first.question == "[[Alice]] has 3 pears. How many does [[Alice]] have?"
    assert first.answer == "[[Alice]] has 3."
    assert first.block == second.block


def test_a_marked_text_need_not_be_a_name_and_is_the_slot_wherever_it_stands() -> None:
    towns = ("New York", "Kyiv", "小明", "St. Gallen")
    rows = [
        {"question": f"A train to [[{town}]] takes {n} hours. When is it in {town}?", "answer": f"{n} p.m. ({town})"}
        for n, town in enumerate(towns, 2)
    ]
    sealing = read(*rows, *rows_of("Alice", "Betty"))
    assert sealing.n_marked == 4
    assert [text.question.count(f"[[{town}]]") for text, town in zip(sealing.originals, towns, strict=False)] == [
        2
    ] * 4
    assert sealing.originals[0].answer == "2 p.m. ([[New York]])"
    blocks = [text.block for text in sealing.originals]
    assert len({*blocks[:4]}) == len({*blocks[4:]}) == 1, "names and other details are exchanged apart"
    assert blocks[0] != blocks[5]


def test_a_mark_chooses_another_name_than_the_first_one() -> None:
    row = {"question": "Alice pays [[Betty]] 3 coins. How many has Betty got?", "answer": "3"}
    sealing = read(row, *rows_of("Clara", "Diana"))
    assert sealing.originals[0].filler == "Betty"
    assert len({text.block for text in sealing.originals}) == 1, (
        "a marked name is exchanged with the names of its gender"
    )


def test_within_a_word_marks_change_what_is_marked() -> None:
    rows = [{"question": f"我和[[{name}]]在一起。[[{name}]]有几个苹果？", "answer": "2"} for name in ("小明", "小红")]
    sealing = read(*rows, *({"question": f"昨天[[{name}]]来了。", "answer": "1"} for name in ("小刚", "小丽")))
    assert sealing.originals[0].filler == "小明"
    published = {text.wordings[0] for text in published_texts(sealing.originals, KEY)}
    assert all(text.count("小") == 2 for text in published if "苹果" in text)
    assert len({text.block for text in sealing.originals}) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"question": "How many legs do four cats have?"}, "no given name"),
        (
            {"question": "How many legs do four cats have?", "answer": "Alice says 16."},
            "no given name .* mark what can",
        ),
        ({"question": "Clara has [[2]] pears.", "answer": "[[2]]", "seal": "keep"}, "its field seal says keep"),
        ({"question": "Paul has 3 plums. How many does Paul have?"}, "no other row .* too few have a male name"),
    ],
)
def test_a_text_without_a_slot_is_published_as_written_with_the_reason(changed, reason: str) -> None:
    row = {"answer": "3"} | changed
    sealing = read(row, *rows_of("Alice", "Betty"))
    ((number, why),) = sealing.kept
    assert number == 1
    assert re.search(reason, why), why
    kept = sealing.originals[0]
    assert (kept.question, kept.answer, kept.block, kept.order) == (row["question"], row["answer"], "", "kept")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"answer": None}, "its field answer is None, which is no answer; .*--fields answer=FIELD"),
        ({"answer": ["3"]}, r"its field answer is \['3'\]"),
        ({"question": "  "}, "its field question has no text"),
        ({"question": "Betty has 3  pears. How many does Betty have?"}, "asks the same as row 1, but for the name"),
    ],
)
def test_a_text_that_cannot_be_used_is_left_out_and_named(changed, why: str) -> None:
    first, *others = rows_of("Clara", "Alice", "Diana")
    sealing = read(first, *others, first | changed)
    ((number, reason),) = sealing.unusable
    assert number == 4
    assert re.search(why, reason), reason
    assert len(sealing.originals) == 3


def test_a_number_is_an_answer() -> None:
    sealing = read(*({**row, "answer": value} for row, value in zip(rows_of("Alice", "Betty"), (3, 2.5), strict=True)))
    assert [text.answer for text in sealing.originals] == ["3", "2.5"]


def test_a_text_that_another_one_may_be_published_as_is_left_out() -> None:
    """Otherwise the published file could have one question twice."""
    same = {"question": "Betty has 3 pears. How many does Betty have?", "answer": "3", "seal": "keep"}
    sealing = read(same, *rows_of("Alice", "Betty"))
    assert sealing.unusable == (
        (1, "it asks the same as row 2, but for the name or detail; remove or reword one of them"),
    )
    assert len(read({**same, "question": "Zoe has 3 pears."}, *rows_of("Alice", "Betty")).originals) == 3


@pytest.mark.parametrize(
    ("question", "answer", "why"),
    [
        ("[[Alice]] and [[Betty]] sing.", "2", r"row 3: marks are \[\[Alice\]\] and \[\[Betty\]\]; all marks"),
        ("[[Alice]] sings.", "[[Betty]]", "all marks of a row have the same text"),
        ("[[ Alice]] sings.", "1", "mark a text without white space at its ends"),
        ("[[]] sings.", "1", "mark a text without white space at its ends"),
        ("[[Alice]] sings to [[Alice].", "1", "stand without their other half; complete the mark, or .* seal: keep"),
        ("How many sing?", "[[Alice]] alone", r"the mark \[\[Alice\]\] is in the answer alone"),
    ],
)
def test_a_wrong_mark_stops_with_its_row_and_the_remedy(question: str, answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"{why}.*fix or remove these marks or fields"):
        read(*rows_of("Clara", "Diana"), {"question": question, "answer": answer})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seal": "permute"}, "seal is 'permute'; of a text without options it must be one of: keep, hold_out"),
        ({"wordings": ["Other?"]}, "only questions with options have other wordings"),
    ],
)
def test_a_wrong_field_stops(fields, why: str) -> None:
    first, second = rows_of("Alice", "Betty")
    with pytest.raises(ValueError, match=f"row 2: .*{why}"):
        read(first, second | fields)


@pytest.mark.parametrize("names", [("Alice",), ("Alice", "Paul"), ("Alice", "Alice")])
def test_without_two_texts_that_exchange_something_nothing_is_sealed(names) -> None:
    with pytest.raises(ValueError, match=r"no two questions can exchange .* mark in at least 2 questions"):
        read(*rows_of(*names))


# ---------------------------------------------------------------------- blocks


def test_blocks_depend_on_the_texts_alone_and_all_placements_of_each_can_be_compared() -> None:
    rows = word_problems(150)
    sealing, turned = read(*rows), read(*random.Random(1).sample(rows, len(rows)))
    assert {text.content: text.block for text in sealing.originals} == {
        text.content: text.block for text in turned.originals
    }
    sizes = Counter(text.block for text in sealing.originals if text.block)
    assert len(sizes) > 10
    assert max(sizes.values()) <= ALL_PLACEMENTS_UP_TO
    assert min(sizes.values()) >= 2
    for block in sizes:
        members = [text for text in sealing.originals if text.block == block]
        assert len({gender_of()[text.filler] for text in members}) == 1
        for text in members:
            others = {other.filler for other in members} - {text.filler}
            assert len(others) == len(members) - 1
            assert not [name for name in others if name in text.question + text.answer]


# ---------------------------------------------------------------------- what a key draws


THREE_TEXTS = read(*rows_of(*WOMEN[:3])).originals


def placed(its_key: bytes) -> tuple[str, ...]:
    """Return which fillers a key puts into the texts about pears, bricks and stamps."""
    rows = {row["question"].split()[3]: row for row in public_rows(published_texts(THREE_TEXTS, its_key))}
    for row in rows.values():
        name = row["question"].split()[0]
        assert row["question"].count(name) == 2
        assert row["answer"] == f"{name} has 3."
    return tuple(rows[thing]["question"].split()[0] for thing in ("pears.", "bricks.", "stamps."))


def test_all_placements_of_a_block_are_equally_frequent_and_answers_follow() -> None:
    counts = Counter(placed(key(number)) for number in range(1_200))
    assert {*counts} == {*permutations(WOMEN[:3])}
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_blocks_and_the_order_of_texts_are_drawn_independently() -> None:
    originals = read(*rows_of("Alice", "Betty", "Paul", "Simon")).originals
    as_written = [f"{name} has 3 {thing}." for name, thing in (("Alice", "pears"), ("Paul", "stamps"))]
    counts: Counter[tuple[bool, bool, bool]] = Counter()
    for number in range(800):
        texts = "\n".join(text.wordings[0] for text in published_texts(originals, key(number)))
        women, men = (text in texts for text in as_written)
        counts[women, men, texts.index("pears") < texts.index("stamps")] += 1
    assert len(counts) == 8
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_the_published_version_does_not_depend_on_the_order_of_the_authors_rows() -> None:
    rows = word_problems(60)
    assert seal_of_texts(*rows).questions == seal_of_texts(*rows[::-1]).questions


def test_the_slot_of_a_published_text_begins_where_its_filler_stands() -> None:
    rows = [*word_problems(40), {"question": "A bus to [[Ulm]] is late. When is the bus in Ulm?", "answer": "8"}]
    rows += [{"question": "How far is [[New Ulm]] from here?", "answer": "9 miles"}]
    seal = seal_of_texts(*rows)
    exchanges = [(text.wordings[0], text.exchange) for text in seal.questions if text.exchange is not None]
    assert len(exchanges) > 30
    for question, exchange in exchanges:
        slot, block = exchange.slot, exchange.block
        assert slot.filler == block.fillers[block.place]
        assert [question[begin:].startswith(slot.filler) for begin in slot.begins] == [True] * len(slot.begins)
        assert slot.filled(question, "\0").count("\0") == question.count(slot.filler)
        assert "[[" not in question


# ---------------------------------------------------------------------- folders and commitment


def test_a_seal_of_texts_is_read_as_it_was_written_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    originals = [*read(*word_problems(30)).originals, OriginalText("Held?", "1", "", "", "", "held out")]
    seal = make_seal("mine", TOOL, KEY, originals)
    for name, content in private_files(seal, originals).items():
        (tmp_path / name).write_bytes(content)
    assert read_seal(tmp_path) == seal
    assert DOCUMENTED["commitment"](tmp_path) == seal.commitment
    assert DOCUMENTED["public_rows"](tmp_path) == public_rows(seal.questions)
    text = (tmp_path / "questions.jsonl").read_text(encoding="utf-8")
    block = json.loads(text.splitlines()[0])["block"]
    for before, after in ((block, "another"), ('"order":"drawn"', '"order":"kept"'), ('"answer":"', '"answer":"1')):
        (tmp_path / "questions.jsonl").write_text(text.replace(before, after, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=r"changed after sealing; restore .*its commitment is now"):
            read_seal(tmp_path)


def test_no_public_file_has_a_mark_a_block_or_a_held_out_text() -> None:
    originals = [*read(*word_problems(30)).originals, OriginalText("A secret?", "1", "", "", "", "held out")]
    seal = make_seal("mine", TOOL, KEY, originals)
    whole = b"\n".join(public_files(seal).values()).decode("utf-8", "replace")
    blocks = {text.block for text in originals if isinstance(text, OriginalText) and text.block}
    assert not [text for text in ("[[", "A secret?", *blocks) if text in whole]
    assert "fillers_kept" in whole
    assert "orders_kept" not in whole


def test_a_subject_is_published_and_rows_have_no_choices() -> None:
    seal = seal_of_texts(*({**row, "subject": "maths"} for row in rows_of("Alice", "Betty")))
    assert [[*row] for row in public_rows(seal.questions)] == [["question", "answer", "subject"]] * 2
    assert seal.is_of_texts
    assert not seal_of(numbered(2)).is_of_texts


def test_a_seal_is_of_one_kind() -> None:
    with pytest.raises(ValueError, match="2 rows have no options and 1 have some; a seal is of one kind"):
        make_seal("mine", TOOL, KEY, [*read(*rows_of("Alice", "Betty")).originals, original()])


def test_commitments_and_files_of_questions_with_options_are_those_of_earlier_versions() -> None:
    """Otherwise a benchmark that was published once could not be verified any more."""
    rows = [
        original(wordings=("Name the even one.",), answers=(0, 2), subject="maths"),
        original("Kept?", ("2", "Both A and B"), order="kept"),
        original("Held out?", order="held out"),
        *(original(f"Which is {number}?") for number in range(3)),
    ]
    seal = seal_of(rows)
    assert seal.commitment == "f40453e1609075b5dca114cf8a6c6f6a5055b097f5088ea0a019d79f0c2c0263"
    files = public_files(seal) | private_files(seal, rows)
    digests = {name: sha256(content).hexdigest()[:16] for name, content in files.items()}
    expected = {
        "DATA_CARD.md": "8f03963b56e382a3",
        "commitment.json": "fb5489036e830eda",
        "mine.jsonl": "623db4f71ecd580c",
        "questions.jsonl": "09c33b6bf39531bb",
        "held_out.jsonl": "92c424d9d4758b0a",
    }
    assert {name: digests[name] for name in expected} == expected
    assert data_files("mine", public_rows(seal.questions))["mine.jsonl"] == files["mine.jsonl"]
