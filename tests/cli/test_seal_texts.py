"""`lm-eval-leakage seal` as typed, for files of rows without options."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from lm_eval_leakage.seal.folders import read_seal
from tests.cli.test_seal import ROWS as WITH_OPTIONS
from tests.cli.test_seal import write
from tests.word_problems import word_problems

ROWS = [row | {"source": "a book"} for row in word_problems(30)]
NO_NAME = {"question": "How many legs do four cats have together?", "answer": "16"}
MARKED = [
    {"question": f"A train to [[{town}]] is late by {n} hours.", "answer": n} for n, town in enumerate(("Kyiv", "Ulm"))
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A sealed benchmark, not to be changed."""
    from lm_eval_leakage.harness.sealing import sealing_of, write_sealing

    folder = tmp_path_factory.mktemp("made")
    write_sealing(sealing_of(str(write(folder / "mine.jsonl", ROWS)), None, "keep", None), folder / "sealed")
    return folder / "sealed"


@pytest.fixture
def sealed(made: Path, tmp_path: Path) -> Path:
    """A copy of the same."""
    return Path(shutil.copytree(made, tmp_path / "sealed"))


def public(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "public" / "mine.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_file_of_texts_is_sealed_and_what_is_drawn_is_counted(typed, tmp_path: Path) -> None:
    others = [NO_NAME, ROWS[0], {"question": "Who is it?"}, NO_NAME | {"question": "How tall?", "seal": "hold_out"}]
    file = write(tmp_path / "mine.jsonl", [*ROWS, *MARKED, *others])
    code, out, err = typed("seal", file, "-o", tmp_path / "sealed")
    seal = read_seal(tmp_path / "sealed" / "private")
    blocks = [text.exchange.block.name for text in seal.questions if text.exchange is not None]
    assert code == 0
    assert out.splitlines()[0] == (
        f"33 texts without options sealed as mine: {len(blocks)} with a drawn name or detail (2 marked) in "
        f"{len({*blocks})} blocks, {33 - len(blocks)} as written; 1 held out, 2 rows left out"
    )
    assert "row 34 is left out: it asks the same as row 1, but for the name or detail; remove or reword one" in err
    assert "row 35 is left out: its field answer is None, which is no answer; give a text or a number, or name" in err
    assert "1 row published as written (row 33): it has no given name that could be exchanged for another\n" in err
    assert "fields of the rows that no sealed file keeps: source\n" in err
    rows = public(tmp_path / "sealed")
    assert {name for row in rows for name in row} == {"question", "answer"}
    assert {row["question"] for row in rows} >= {NO_NAME["question"]}
    assert len({row["question"] for row in rows} - {row["question"] for row in ROWS}) >= 5


def test_fields_of_other_names_are_read_from_a_table(typed, tmp_path: Path) -> None:
    with (tmp_path / "mine.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["story", "solution"])
        writer.writerows([row["question"], row["answer"]] for row in ROWS)
    words = ("seal", tmp_path / "mine.csv", "-o", tmp_path / "sealed", "--fields", "question=story,answer=solution")
    assert typed(*words)[0] == 0
    assert sorted(row["answer"] for row in public(tmp_path / "sealed")) == sorted(row["answer"] for row in ROWS)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [*WITH_OPTIONS, *ROWS],
            "8 rows with options (such as row 1) and 30 rows without (such as row 9); a seal is of one kind: put them",
        ),
        ([NO_NAME, ROWS[0]], "mark in at least 2 questions what can be exchanged, as in [[Anna]]"),
        (
            [*ROWS, {"question": "[[A]] or [[B]]?", "answer": "A"}],
            "row 31: marks are [[A]] and [[B]]; all marks of a row",
        ),
        (
            [{"question": row["question"], "key": "1"} for row in ROWS],
            "name the field that has it (--fields answer=FIELD)",
        ),
    ],
)
def test_what_cannot_be_sealed_is_refused_in_a_sentence_and_nothing_is_written(typed, tmp_path, rows, said) -> None:
    code, out, err = typed("seal", write(tmp_path / "mine.jsonl", rows), "-o", tmp_path / "sealed")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "sealed").exists()


def test_it_is_verified_before_and_after_the_reveal(typed, sealed: Path) -> None:
    code, out, err = typed("seal", "verify", sealed)
    assert (code, err) == (0, "")
    assert "verified: 30 questions of mine, in mine.jsonl and mine.parquet, each in the version and place that" in out
    code, out, _ = typed("seal", "verify", sealed / "public")
    assert code == 0
    assert "the digest of the rows is what commitment.json says" in out


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_copy_of_the_rows_is_verified_and_an_exchanged_name_is_found(
    typed, made: Path, tmp_path, ending: str
) -> None:
    def copied(rows: list[dict[str, str]]) -> Path:
        file = tmp_path / f"copy.{ending}"
        with file.open("w", newline="", encoding="utf-8") as stream:
            if ending == "csv":
                writer = csv.DictWriter(stream, ["question", "answer"])
                writer.writeheader()
                writer.writerows(rows)
            else:
                stream.write("".join(f"{json.dumps(row)}\n" for row in rows))
        return file

    rows, seal = public(made), read_seal(made / "private")
    assert typed("seal", "verify", copied(rows), made / "private", "--commitment", seal.commitment)[0] == 0
    place, exchange = next((n, text.exchange) for n, text in enumerate(seal.questions) if text.exchange is not None)
    other = exchange.block.fillers[exchange.block.place - 1]
    rows[place] |= {"question": exchange.slot.filled(rows[place]["question"], other)}
    code, _, err = typed("seal", "verify", copied(rows), made / "private")
    assert (code, err) == (1, f"differs: copy.{ending}, row {place + 1}\n")


@pytest.mark.parametrize(
    ("name", "old", "new", "codes", "said"),
    [
        ("mine.yaml", "exact_match", "exact_natch", (1, 1), "differs: mine.yaml, line"),
        ("mine.yaml", "generate_until", "loglikelihood", (1, 1), "differs: mine.yaml, line 7"),
        ("mine.jsonl", '"answer": "', '"answer": "1', (1, 1), "differs: mine.jsonl"),
        ("DATA_CARD.md", "given names", "names", (1, 0), "differs: DATA_CARD.md, line 3"),
        ("commitment.json", '"fillers_kept": ', '"fillers_kept": 9', (1, 0), "differs: commitment.json"),
    ],
)
def test_what_was_changed_in_the_public_folder_is_named(typed, sealed: Path, name, old, new, codes, said) -> None:
    file = sealed / "public" / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with_key, without = (typed("seal", "verify", place) for place in (sealed, sealed / "public"))
    assert (with_key[0], without[0]) == codes
    assert said in with_key[2]


def test_a_moved_block_in_the_private_folder_is_noticed(typed, sealed: Path) -> None:
    file = sealed / "private" / "questions.jsonl"
    first, *others = file.read_text(encoding="utf-8").splitlines(True)
    row = json.loads(first)
    file.write_text(first.replace(row["block"], "0" * 12) + "".join(others), encoding="utf-8")
    code, _, err = typed("seal", "verify", sealed)
    assert code == 2
    assert "whose files were changed after sealing; restore them from a backup" in err
