"""The tutorial's notebook runs from top to bottom, and shows what its saved outputs show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat import NotebookNode

from lm_eval_leakage.scoring.scorers import slows_down

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
FEWER = {"[:80]": "[:52]", "sample(rows, 40)": "sample(rows, 26)"}  # enough questions, in two thirds of the time
VERDICT = re.compile(r"(?:strong )?evidence:|none found:|no verdict:")


def printed(notebook: NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        yield from (output.text for output in cell.get("outputs", []) if output.get("name") == "stdout")


def verdicts(notebook: NotebookNode) -> list[str]:
    return VERDICT.findall("\n".join(printed(notebook)))


def with_fewer_questions(notebook: NotebookNode) -> NotebookNode:
    for many, few in FEWER.items():
        (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and many in cell.source)
        cell.source = cell.source.replace(many, few)
    return notebook


@pytest.mark.skipif(slows_down(torch.bfloat16, torch.device("cpu")), reason="an hour on a processor without AVX-512")
@pytest.mark.timeout(2700)  # the longest test by far: it trains a model and audits two
@pytest.mark.model
def test_the_tutorial_runs_and_reaches_the_verdicts_that_it_shows(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUTORIAL_MODEL", str(model))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    saved = nbformat.read(NOTEBOOK, as_version=4)
    executed = with_fewer_questions(nbformat.read(NOTEBOOK, as_version=4))
    NotebookClient(executed, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for notebook in (saved, executed):
        original, seen, held_out = verdicts(notebook)
        assert (original, held_out) == ("none found:", "none found:")
        assert seen in ("evidence:", "strong evidence:")  # p is near .0001, the limit between the two
    assert (tmp_path / "leakage" / "leakage.html").is_file()


def test_the_tutorial_is_saved_with_its_outputs_and_names_no_folder_of_the_machine_that_made_them() -> None:
    saved = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.get("execution_count") for cell in saved.cells if cell.cell_type == "code")
    assert not re.search(r"(?<![\w.])/(?:tmp|home|root|work|Users)/", NOTEBOOK.read_text(encoding="utf-8"))
