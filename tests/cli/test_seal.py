"""`lm-eval-leakage seal` as typed: what is written, what is said, and what `verify` notices."""

from __future__ import annotations

import json
import os
import py_compile
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lm_eval_leakage.files import PART, publish_files
from lm_eval_leakage.seal.folders import read_seal
from lm_eval_leakage.seal.looks_file import add_looks, head_text, read_ledger
from lm_eval_leakage.stats.looks import Look

ROWS = [
    {
        "question": f"Which is {number}?",
        "choices": [f"{number}{letter}" for letter in "wxyz"],
        "answer": "B",
        "wordings": [f"Name number {number}."],
        "source": "a book",
    }
    for number in range(8)
]


def write(file: Path, rows) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A sealed benchmark, not to be changed."""
    from lm_eval_leakage.harness.sealing import sealing_of, write_sealing

    folder = tmp_path_factory.mktemp("made")
    file = write(folder / "mine.jsonl", ROWS)
    write_sealing(sealing_of(str(file), None, "keep", None), folder / "sealed")
    return folder / "sealed"


@pytest.fixture
def sealed(made: Path, tmp_path: Path) -> Path:
    """A copy of the same."""
    return Path(shutil.copytree(made, tmp_path / "sealed"))


def test_a_table_with_fields_of_other_names_is_sealed_like_other_files(typed, tmp_path: Path) -> None:
    lines = [f"Which is {n}?,{n}w,{n}x,{n}y,{n}x,a book\n" for n in range(8)]
    (tmp_path / "mine.csv").write_text("".join(["text,first,second,third,key,source\n", *lines]))
    fields = ("--fields", "question=text,options=first+second+third,answer=key")
    code, out, err = typed("seal", tmp_path / "mine.csv", *fields, "-o", tmp_path / "sealed")
    assert (code, out.partition(":")[0]) == (0, "8 questions sealed as mine")
    assert "fields of the rows that no sealed file keeps: source\n" in err
    rows = [json.loads(line) for line in (tmp_path / "sealed" / "public" / "mine.jsonl").read_text().splitlines()]
    assert {row["question"]: sorted(row["choices"]) for row in rows}["Which is 0?"] == ["0w", "0x", "0y"]
    assert {row["choices"][row["answer"]][1:] for row in rows} == {"x"}


def test_two_seals_of_one_file_have_different_keys(typed, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.jsonl", ROWS)
    for name in "ab":
        assert typed("seal", file, "-o", tmp_path / name)[0] == 0
    first, other = (read_seal(tmp_path / name / "private") for name in "ab")
    assert first.key != other.key
    assert first.questions != other.questions


def test_what_is_left_out_or_not_drawn_is_named_with_its_row(typed, tmp_path: Path) -> None:
    others = [
        {"question": "No options?"},
        ROWS[0],
        ROWS[1] | {"question": "New?", "choices": ["a", "b", "Both A and B"]},
    ]
    code, out, err = typed("seal", write(tmp_path / "mine.jsonl", [*ROWS, *others]), "-o", tmp_path / "sealed")
    assert code == 0
    assert "9 questions sealed as mine: 8 with drawn orders" in out
    assert "2 rows left out" in out
    messages = err.splitlines()
    assert messages[0].startswith("row 9 is left out: options are None")
    assert messages[1] == "row 10 is left out: it asks the same as row 1; remove or reword one of them"
    assert messages[2].startswith(
        "row 11 depends on the order of its options, so its order is kept, and it is left out of"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no_such.jsonl",), "there is no such file"),
        (("mine.jsonl", "--name", "My name"), "name is 'My name'; use lower-case letters"),
        (("mine.jsonl", "--name", "mmlu"), "name is 'mmlu', which lm_eval has a task of already"),
        (("mine.jsonl", "other.jsonl"), "is not one file or task; write `seal FILE`"),
        (("verify",), "write `seal verify PUBLIC PRIVATE`"),
        (("mine.jsonl", "-o", "mine.jsonl"), "mine.jsonl is a file; choose a folder"),
    ],
)
def test_what_cannot_be_sealed_is_refused_in_a_sentence_and_nothing_is_written(
    typed, tmp_path, monkeypatch, words, said
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.jsonl", ROWS)
    code, out, err = typed("seal", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]


def test_a_folder_with_a_key_is_never_replaced(typed, sealed: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in sealed.rglob("*.*")}
    code, _, err = typed("seal", write(tmp_path / "mine.jsonl", ROWS), "-o", sealed)
    assert code == 2
    assert "which is not empty and is never replaced; choose a new folder" in err
    assert {path: path.read_bytes() for path in sealed.rglob("*.*")} == before


# ---------------------------------------------------------------------- verify


def test_a_file_on_its_own_with_more_columns_is_verified_against_an_announced_commitment(
    typed, made, tmp_path
) -> None:
    table = parquet.read_table(made / "public" / "mine.parquet").to_pylist()
    copy = write(tmp_path / "copy.json", [{"id": place, **row, "note": "n"} for place, row in enumerate(table)])
    commitment = read_seal(made / "private").commitment
    code, out, _ = typed("seal", "verify", copy, made / "private", "--commitment", commitment.upper())
    assert (code, "what --commitment fixed" in out) == (0, True)
    code, out, err = typed("seal", "verify", copy, made / "private", "--commitment", "0" * 64)
    assert (code, out) == (1, "")
    assert f"the announced commitment is {'0' * 64}, and this one is {commitment}" in err
    assert typed("seal", "verify", copy, made / "private", "--commitment", "0x12")[0] == 2


@pytest.mark.parametrize("where", ["copy.json", "copy.parquet", "copy.jsonl"])
@pytest.mark.parametrize("key", [True, False], ids=["with the key", "with the digest"])
def test_a_copy_whose_answers_are_written_as_decimal_numbers_has_the_sealed_rows(
    typed, sealed: Path, where: str, key: bool
) -> None:
    rows = parquet.read_table(sealed / "public" / "mine.parquet").to_pylist()
    copy = sealed / "public" / where
    given = [row | {"answer": float(row["answer"])} for row in rows]
    if where.endswith(".parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(given), copy)
    else:
        write(copy, given)
    code, out, err = typed("seal", "verify", copy, *([sealed / "private"] if key else []))
    assert (code, err) == (0, "")
    assert f"in {where}, each in" in out if key else f"{where}: the digest of the rows is what" in out


MOVED = (
    ("the first at the end", lambda rows: [*rows[1:], rows[0]], 1),
    ("one missing", lambda rows: [*rows[:4], *rows[5:]], 5),
    ("the last missing", lambda rows: rows[:-1], 8),
    ("one added", lambda rows: [*rows, {"question": "New?", "choices": ["a", "b"], "answer": 0}], 9),
    ("options", lambda rows: [*rows[:2], rows[2] | {"choices": rows[2]["choices"][::-1]}, *rows[3:]], 3),
    ("answer", lambda rows: [*rows[:6], rows[6] | {"answer": 3 - rows[6]["answer"]}, *rows[7:]], 7),
    ("a truth value", lambda rows: [*rows[:6], rows[6] | {"answer": bool(rows[6]["answer"])}, *rows[7:]], 7),
    ("a text", lambda rows: [*rows[:1], rows[1] | {"question": f"{rows[1]['question']} "}, *rows[2:]], 2),
)


@pytest.mark.parametrize(("change", "row"), [pytest.param(*rest, id=name) for name, *rest in MOVED])
def test_of_a_copy_that_differs_the_first_row_is_named(typed, made: Path, tmp_path: Path, change, row: int) -> None:
    rows = parquet.read_table(made / "public" / "mine.parquet").to_pylist()
    copy = write(tmp_path / "copy.jsonl", change(rows))
    code, out, err = typed("seal", "verify", copy, made / "private")
    assert (code, out) == (1, "")
    assert err == f"differs: copy.jsonl, row {row}\n"


@pytest.mark.parametrize("is_named", [True, False])
def test_a_private_folder_inside_the_public_one_is_named_with_the_remedy(typed, sealed: Path, is_named: bool) -> None:
    inside = shutil.copytree(sealed / "private", sealed / "public" / "secret")
    code, out, err = typed("seal", "verify", sealed / "public", *([inside] if is_named else []))
    assert (code, out) == (1, "")
    assert err.startswith(
        "differs: secret/key.json is the key of a private folder inside the public one; move that folder"
    )
    assert err.count("\n") == 1


def added(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(file.read_text() + text)


def replaced(old: str, new: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(re.sub(old, new, file.read_text()))


def with_a_column(file: Path) -> None:
    table = parquet.read_table(file)
    parquet.write_table(table.append_column("hint", table["question"]), file)


def with_a_hint_in_row(number: int) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows[number - 1]["hint"] = "A"
        write(file, rows)

    return change


def with_decimal_answers(file: Path) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, [row | {"answer": float(row["answer"])} for row in rows])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def made_with(text: str) -> Callable[[Path], object]:
    def make(file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    return make


def by_another_arrow(file: Path) -> None:
    content = file.read_bytes()
    match = re.search(rb"parquet-cpp-arrow version [0-9.]+", content)
    file.write_bytes(content.replace(match[0], match[0].replace(b"version", b"VERSION")))


def by_another_arrow_with_metadata(file: Path) -> None:
    parquet.write_table(parquet.read_table(file).replace_schema_metadata({"hint": "A"}), file)
    by_another_arrow(file)


OF_NO_SEAL = "is of no seal, and lm_eval or Python may use it; remove it"
CACHED = "cannot be compared: Python may run it instead of the loader; remove __pycache__"
NAMES = ("mine_data.py", "mine.yaml", "DATA_CARD.md", "mine.jsonl", "mine.parquet")
CHANGED = [  # file, change, exit code with the private folder and without it, what is said
    ("mine_data.py", added("import os; os.system('id')\n"), (1, 1), "differs: mine_data.py, line 12\n"),
    ("mine.yaml", replaced("shot: 0", "shot: 5"), (1, 1), r"differs: mine.yaml, line \d+\n"),
    ("DATA_CARD.md", replaced("questions . 8", "questions | 9"), (1, 0), r"differs: DATA_CARD.md, line 7\n"),
    ("mine.jsonl", with_a_hint_in_row(5), (1, 1), "differs: mine.jsonl, row 5\n"),
    ("mine.jsonl", replaced('{"ques', '{ "ques'), (1, 1), "mine.jsonl: its rows are as sealed, and its bytes are not"),
    ("mine.jsonl", with_decimal_answers, (1, 1), "mine.jsonl: its rows are as sealed, and its bytes are not"),
    ("mine.parquet", with_a_column, (1, 1), "differs: mine.parquet, row 1\n"),
    (
        "mine.parquet",
        by_another_arrow_with_metadata,
        (1, 1),
        "mine.parquet: its rows are as sealed, and its bytes are not",
    ),
    ("mine.parquet", by_another_arrow, (0, 0), "was compared row by row, not by its bytes: 'parquet-cpp-arrow VERS"),
    (
        "commitment.json",
        replaced('(commitment": )"[0-9a-f]{4}', r'\1"0000'),
        (1, 0),
        "differs: commitment.json, line 2\n",
    ),
    *((name, Path.unlink, (1, 0 if name == "DATA_CARD.md" else 1), "is missing") for name in NAMES),
    *((name, cut, (1, 1), r"cannot be read \(") for name in ("mine.jsonl", "mine.parquet")),
    # if time and size of the loader fit, Python runs its cached code instead, whatever it is
    ("mine_data.py", lambda file: py_compile.compile(str(file)), (2, 2), CACHED),
    *((name, made_with("{}"), (1, 1), OF_NO_SEAL) for name in ("mine_data.pyc", "utils.py", "a/b.yaml", "more.json")),
    ("README.md", made_with("our benchmark"), (0, 0), "of no seal, so not compared: README.md"),
    (".git/hook.py", made_with(""), (0, 0), ""),
]


@pytest.mark.parametrize(("name", "change", "codes", "said"), CHANGED, ids=range(len(CHANGED)))
def test_what_was_changed_in_the_public_folder_is_named(typed, sealed: Path, name, change, codes, said) -> None:
    change(sealed / "public" / name)
    with_key, without = (typed("seal", "verify", place) for place in (sealed, sealed / "public"))
    assert (with_key[0], without[0]) == codes
    for code, out, err in (with_key, without):
        assert (out == "") == (code == 1)
        assert not code or re.search(said, err)
    assert re.search(said, with_key[2])


@pytest.mark.parametrize("place", ["public", "public/mine.jsonl"])
def test_without_a_commitment_it_is_said_and_the_exit_code_is_2(typed, sealed: Path, place: str) -> None:
    (sealed / "public" / "commitment.json").unlink()
    words = ("seal", "verify", sealed / place, sealed / "private")
    code, out, err = typed(*words)
    assert (code, "each in the wording, order and place that the key draws (" in out) == (2, True)
    assert "there is no commitment.json and no --commitment" in err
    assert typed(*words, "--commitment", read_seal(sealed / "private").commitment)[0] == 0


def test_a_head_that_was_announced_shows_that_the_owner_wrote_another_ledger(typed, sealed: Path) -> None:
    private, seal = sealed / "private", read_seal(sealed / "private")
    begin = read_ledger(private, seal).head
    add_looks(private, seal, [Look(0, "org/one", "digest", 0.01, 0.5, 0.0, "0-3")])
    announced = read_ledger(private, seal).head
    add_looks(private, seal, [Look(0, "org/two", "digest", 0.01, 0.5, 0.0, "0-3")])
    words = ("seal", "verify", sealed, "--head")
    assert [typed(*words, head)[0] for head in (begin, announced.upper())] == [0, 0]
    (private / "looks.jsonl").unlink()
    (private / "looks_head.json").write_text(head_text(seal))
    add_looks(private, seal, [Look(0, "org/one", "digest", 0.01, 0.002, 0.0, "0-3")])
    assert typed(*words, begin)[0] == 0
    code, out, err = typed(*words, announced)
    assert (code, out, f"the ledger never had the head {announced}" in err) == (1, "", True)
    assert typed(*words, "12")[0] == 2
    assert typed("seal", "verify", sealed / "public", "--head", announced)[0] == 2


def test_a_ledger_without_its_last_look_is_noticed_whenever_the_seal_is_used(typed, sealed: Path) -> None:
    private, seal = sealed / "private", read_seal(sealed / "private")
    looks = [Look(0, model, "digest", 0.01, 0.5, 0.0, "0-3") for model in ("org/one", "org/two")]
    add_looks(private, seal, looks)
    ledger = private / "looks.jsonl"
    kept = ledger.read_text()
    for cut in (kept[: kept.index("\n") + 1], kept[:-20]):  # the line, or its end
        ledger.write_text(cut)
        for command, status in ((["verify", sealed], 1), (["audit", sealed, "--seal", private], 2)):
            code, _, err = typed("seal", *command)
            assert (code, "from the newest backup" in err) == (status, True)
    ledger.write_text(kept)
    assert typed("seal", "verify", sealed)[0] == 0


def test_keys_that_kills_left_are_removed_by_the_next_seal_also_one_that_is_refused(typed, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.jsonl", ROWS)
    assert typed("seal", file, "-o", tmp_path / "sealed")[0] == 0
    child = os.fork()
    if child == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        publish_files(tmp_path / "sealed", {"private/key.json": b"secret"}, "private")
    os.waitpid(child, 0)
    assert len(list(tmp_path.glob(".sealed.*/private/key.json"))) == 1
    (tmp_path / ".film.part").write_text("of somebody else")
    assert typed("seal", file, "-o", tmp_path / "sealed")[0] == 2
    assert [path.name for path in tmp_path.glob(f".*{PART}")] == [".film.part"]


@pytest.mark.parametrize(
    ("remove", "places", "said"),
    [
        (
            "private",
            ("public", "private"),
            "has no key.json; name the private folder; without its key the draws can be neither verified nor tested",
        ),
        ("private", ("public", "public"), "has no key.json; name the private folder"),
        ("public/commitment.json", ("public/mine.jsonl",), "nothing to compare it with"),
        ("private/key.json", (".",), "has no key.json; name the private folder"),
        ("public/mine.jsonl", ("public/mine.jsonl", "private"), "there is no such file"),
        ("public/commitment.json", ("public",), "nothing to compare it with"),
        ("public/mine.jsonl", ("..", "private"), "has no file of questions"),
    ],
)
def test_what_cannot_be_verified_is_refused_with_the_remedy(typed, sealed: Path, remove, places, said) -> None:
    gone = sealed / remove
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    code, out, err = typed("seal", "verify", *(sealed / place for place in places))
    assert (code, out) == (2, "")
    assert said in err


# ---------------------------------------------------------------------- audit
