"""Makes the files of the two folders of a sealed benchmark, and reads the private folder.

The public folder holds the drawn version of the questions, and the commitment to all versions. Every file is a
function of the drawn version alone, but for the commitment, which is a hash. So bytes, columns, order and metadata
reveal nothing else about the key or the author's order. The private folder holds the key and every version that was
not published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from lm_eval_leakage.seal.drawn import (
    FORMAT,
    AuthorRow,
    JsonRow,
    Original,
    Seal,
    SealedQuestion,
    canonical_json,
    commitment_header,
    commitment_of,
    digest_of_public,
    original_of,
    public_rows,
    published_questions,
)
from lm_eval_leakage.seal.drawn_texts import OriginalText, published_texts
from lm_eval_leakage.seal.looks_file import HEAD_FILE, LOOKS_FILE, head_text
from lm_eval_leakage.texts import as_json

COMMITMENT_FILE, CARD_FILE = "commitment.json", "DATA_CARD.md"
DATA_ENDINGS = JSON_LINES, PARQUET = ".jsonl", ".parquet"
CARD = """# {name}: a sealed benchmark

Of every question, the published version was drawn at random by a secret key: {drawn}. \
A model that never saw this version can prefer it to the others only by chance, so a preference has an exact p-value.

| | |
|---|---|
| questions | {questions:,} |
| {kept} | {n_kept:,} |
| commitment (SHA-256 of key and all versions) | `{commitment}` |
| digest of the public rows (SHA-256) | `{public_sha256}` |
| made by | {tool}, format {format} |

**Please do not publish these questions in another order, reworded or corrected** under this name: tests compare with
exactly this version. Corrections need a new seal and a new name.

## Scores

```console
lm_eval --model hf --model_args pretrained=MODEL --include_path FOLDER_OF_THIS_FILE --tasks {name}
```

The task reads `{name}.parquet` next to its YAML. To let it read a data set of the hub instead, replace the line
`custom_dataset` in a copy of `{name}.yaml` by `dataset_path: OWNER/DATASET`. In that data set, the `README.md`
names the file:

```yaml
configs:
  - config_name: default
    data_files:
      - split: test
        path: {name}.parquet
```

## Verification

`lm-eval-leakage seal verify FOLDER_OF_THIS_FILE` compares the rows with the digest, and every byte of the task with
what a seal writes. Once the private folder is revealed, `lm-eval-leakage seal verify FOLDER_OF_THIS_FILE
PRIVATE_FOLDER` draws everything again from the key and compares key and all versions with the commitment.
"""


DRAWN = "the order of its options{kept}, the order of the questions in the file{wordings}{equally_right}"
DRAWN_OF_TEXTS = (
    "which of several details, such as given names, stands in which question and its answer, and the order of the "
    "questions in the file"
)
ORDERS_KEPT, FILLERS_KEPT = "orders_kept", "fillers_kept"  # in commitment.json: the number of questions
KEPT_IN_WORDS = {
    ORDERS_KEPT: "questions whose options stand in their author's order",
    FILLERS_KEPT: "questions that stand as their author wrote them",
}
KEY_FILE, QUESTIONS_FILE, HELD_OUT_FILE = "key.json", "questions.jsonl", "held_out.jsonl"
LOST = (
    "without its key the draws can be neither verified nor tested, and they cannot be had from what is public; "
    "restore the folder from a backup, or seal the questions again and publish them under a new name"
)
README = f"""PRIVATE: the seal of the benchmark {{name}}

Whoever has this folder can distinguish the published version of every question from those that were not published.
Do not publish it, do not put it into a repository, do not send it to a model or a service that keeps what it gets.

Keep at least two backups. If it is lost, the draws can be neither verified nor tested any more, and nobody can
restore them from what is public: the way out is a new seal, published under a new name.

{KEY_FILE}: the key, and what the commitment was made with
{QUESTIONS_FILE}: {{questions}}, in your order
{HELD_OUT_FILE}: questions that were not published
{LOOKS_FILE}, later, and {HEAD_FILE}: every model that `seal audit` looked at; the error of all claims together
depends on it, so restore these two from the newest backup only
commitment: {{commitment}}
"""
YOUR_QUESTIONS, YOUR_TEXTS = "your questions with all their wordings", "your texts, with marks on what was exchanged"


def public_files(seal: Seal) -> dict[str, bytes]:
    """Return the files of the public folder by name, without the task of lm_eval."""
    return data_files(seal.name, public_rows(seal.questions)) | {
        COMMITMENT_FILE: json.dumps(commitment_record(seal), indent=1).encode() + b"\n",
        CARD_FILE: _card(seal).encode(),
    }


def data_files(name: str, rows: Sequence[JsonRow]) -> dict[str, bytes]:
    """Return the files with the public rows by name, as JSON lines and as Parquet."""
    return {
        f"{name}{JSON_LINES}": b"".join(as_json(row).encode() + b"\n" for row in rows),
        f"{name}{PARQUET}": _parquet(rows),
    }


def commitment_record(seal: Seal) -> dict[str, str | int]:
    """Return the content of commitment.json."""
    if seal.is_of_texts:
        kept = {FILLERS_KEPT: sum(question.exchange is None for question in seal.questions)}
    else:
        kept = {ORDERS_KEPT: sum(not question.order_drawn for question in seal.questions)}
    return {
        "commitment": seal.commitment,
        "public_sha256": digest_of_public(public_rows(seal.questions)),
        "name": seal.name,
        "questions": len(seal.questions),
        **kept,
        "tool": seal.tool,
        "format": FORMAT,
    }


def _parquet(rows: Sequence[JsonRow]) -> bytes:
    """Return rows as a Parquet file of one row group, without statistics and without metadata of its writer."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {"question": pa.string(), "choices": pa.list_(pa.string()), "answer": pa.int64(), "subject": pa.string()}
    if "choices" not in rows[0]:
        types["answer"] = pa.string()
    schema = pa.schema([(name, types[name]) for name in rows[0]])
    stream = BytesIO()
    table = pa.Table.from_pylist(list(rows), schema=schema)
    parquet.write_table(table, stream, row_group_size=len(rows), write_statistics=False, store_schema=False)
    return stream.getvalue()


def _card(seal: Seal) -> str:
    """Return the data card of the public folder."""
    record = commitment_record(seal)
    kind = FILLERS_KEPT if seal.is_of_texts else ORDERS_KEPT
    drawn = DRAWN_OF_TEXTS if seal.is_of_texts else _drawn_of_options(seal, kept=bool(record[ORDERS_KEPT]))
    return CARD.format(**record, drawn=drawn, kept=KEPT_IN_WORDS[kind], n_kept=record[kind])


def _drawn_of_options(seal: Seal, *, kept: bool) -> str:
    """Return which parts of questions with options were drawn, in words."""
    n_wordings = max(len(question.wordings) for question in seal.questions)
    n_several = sum(len(question.equally_right) > 1 for question in seal.questions)
    several = f", and, in {n_several:,} questions, which of several equally right options is the answer"
    return DRAWN.format(
        kept=" (unless they depend on it)" if kept else "",
        wordings=f", one of up to {n_wordings} wordings of each" if n_wordings > 1 else "",
        equally_right=several if n_several else "",
    )


def private_files(seal: Seal, originals: Sequence[AuthorRow]) -> dict[str, bytes]:
    """Return the files of the private folder by name; a .gitignore keeps it out of repositories."""
    key = commitment_header(seal.name, seal.tool, seal.key) | {"commitment": seal.commitment}
    published, held_out = list[bytes](), list[bytes]()
    for original in originals:
        lines = held_out if original.order == "held out" else published
        lines.append(canonical_json(original.as_row()) + b"\n")
    return {
        KEY_FILE: json.dumps(key, indent=1).encode() + b"\n",
        QUESTIONS_FILE: b"".join(published),
        HELD_OUT_FILE: b"".join(held_out),
        HEAD_FILE: head_text(seal).encode(),
        "README.txt": README.format(
            name=seal.name,
            commitment=seal.commitment,
            questions=YOUR_TEXTS if seal.is_of_texts else YOUR_QUESTIONS,
        ).encode(),
        ".gitignore": b"*\n",
    }


def make_seal(name: str, tool: str, key: bytes, originals: Sequence[AuthorRow]) -> Seal:
    """Return the seal that `key` puts on the author's questions, or on texts without options."""
    return Seal(name, tool, _published(originals, key), key, commitment_of(name, tool, key, originals))


def _published(originals: Sequence[AuthorRow], key: bytes) -> tuple[SealedQuestion, ...]:
    texts = [row for row in originals if isinstance(row, OriginalText)]
    questions = [row for row in originals if isinstance(row, Original)]
    if texts and questions:
        raise ValueError(f"{len(texts)} rows have no options and {len(questions)} have some; a seal is of one kind")
    return published_texts(texts, key) if texts else published_questions(questions, key)


def _author_row(row: JsonRow) -> Original | OriginalText:
    """Return the question or text that `as_row` gave; raise AttributeError or TypeError for other values."""
    return original_of(row) if "choices" in row else OriginalText(**row)


def read_seal(folder: Path) -> Seal:
    """Return the seal in a private folder; its published version and its commitment are computed again.

    Raises ValueError, with the remedy, if the folder is missing, is not a private folder, or was changed.
    """
    if not (folder / KEY_FILE).is_file():
        raise ValueError(f"seal is {str(folder)!r}, which has no {KEY_FILE}; name the private folder; {LOST}")
    changed = f"seal is {str(folder)!r}, whose files were changed after sealing; restore them from a backup"
    try:
        kept = json.loads((folder / KEY_FILE).read_text(encoding="utf-8", errors="replace"))
        if kept.get("format") == FORMAT:
            texts = [(folder / name).read_text(encoding="utf-8") for name in (QUESTIONS_FILE, HELD_OUT_FILE)]
            originals = [_author_row(json.loads(line)) for text in texts for line in text.splitlines()]
            seal = make_seal(kept["name"], kept["tool"], bytes.fromhex(kept["key"]), originals)
            if seal.commitment != kept.get("commitment"):
                raise ValueError(f"its commitment is now {seal.commitment}, and was {kept.get('commitment')}")
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{changed} ({error})") from error
    if kept.get("format") != FORMAT:
        raise ValueError(
            f"seal is {str(folder)!r}, whose format is {kept.get('format')!r}; this version reads format {FORMAT}: "
            f"install the version that sealed it ({kept.get('tool')})"
        )
    return seal
