"""Tasks of lm_eval as a user writes them: a YAML and a file of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
LABELS = "ABCD"
OPTIONS = "".join(f"\\n{label}. {{{{choices[{place}]}}}}" for place, label in enumerate(LABELS))
LETTERED = {"text": f'"{{{{question}}}}{OPTIONS}\\nAnswer:"', "choices": '["A", "B", "C", "D"]'}


def write_task(
    folder: Path,
    name: str,
    rows: Sequence[Row],
    text: str = '"Question: {{question}}\\nAnswer:"',
    choices: str = '"{{choices}}"',
    more: str = "",
    train: Sequence[Row] = (),
) -> None:
    """Write a task and its rows.

    more: further lines of the YAML; train: rows of another split
    """
    files = {folder / f"{name}.jsonl": ("test", rows), folder / f"{name}_train.jsonl": ("train", train)}
    named = ""
    for file, (split, rows_of_split) in files.items():
        if rows_of_split:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows_of_split))
            named += f"    {split}: {file}\n"
    (folder / f"{name}.yaml").write_text(
        f"task: {name}\noutput_type: multiple_choice\ndataset_path: json\ntest_split: test\n"
        f"dataset_kwargs:\n  data_files:\n{named}"
        f"doc_to_text: {text}\ndoc_to_choice: {choices}\ndoc_to_target: answer\n{more}"
    )


def published(row: Row) -> str:
    """The question with its options as published."""
    return str(row["question"]) + "".join(f"\n{x}. {o}" for x, o in zip(LABELS, row["choices"], strict=False))
