"""What `import lm_eval_leakage` offers: quick to import, its examples run, its results show well in a notebook."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pandas
import pytest

import lm_eval_leakage
from lm_eval_leakage import load_run
from lm_eval_leakage.results.loaded_run import LoadedRun
from lm_eval_leakage.results.verdict import VerdictWord
from tests.report.made import OF_WORD, annotation, row
from tests.results.harness_files import answered, audited, write_run
from tests.results.harness_files import row as question

HEAVY = {"torch", "lm_eval", "transformers", "sklearn", "datasets", "numpy", "scipy", "pandas", "yaml", "jinja2"}
N, FLAGGED = 24, range(8)  # as in the docstring of load_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of 24 questions, of which the audit flags 8; the model answers those and no others correctly."""
    docs = [question(number) for number in range(N)]
    write_run(tmp_path / "runs", "m", {"bench": [answered(n, doc, n in FLAGGED) for n, doc in enumerate(docs)]})
    write_run(tmp_path / "audits", "m", {"bench_leakage_perm": [audited(d, n in FLAGGED) for n, d in enumerate(docs)]})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_importing_the_package_imports_no_heavy_one() -> None:
    script = f"import sys, lm_eval_leakage; print({HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_examples_of_the_docstrings_run(runs: Path) -> None:
    results = doctest.testmod(lm_eval_leakage)
    assert results.attempted >= 5
    assert not results.failed


def test_a_loaded_run_is_a_list_for_json_and_for_data_frames(runs: Path) -> None:
    run = load_run("runs", runs / "audits")
    assert json.loads(json.dumps(run)) == list(run)
    assert pandas.DataFrame(run).equals(run.to_pandas())
    assert len(run.to_pandas()) == N


def cells(html: str) -> list[list[str]]:
    rows = [re.findall("<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall("<tr.*?>(.*?)</tr>", html, re.DOTALL)]
    return [[unescape(re.sub("<.*?>", "", cell)).strip() for cell in row] for row in rows]


def test_a_notebook_shows_the_verdicts_of_all_models_the_most_suspicious_first() -> None:
    clean = annotation(model="clean", rows=(row(model="clean", verdict=OF_WORD[VerdictWord.NONE_FOUND]),))
    seen = annotation(model="<b>", rows=(row("arc", model="<b>", verdict=OF_WORD[VerdictWord.EVIDENCE]),))
    run = LoadedRun([clean, seen])
    assert cells(run._repr_html_()) == [
        ["model", "task", "questions", "verdict", "flagged"],
        ["<b>", "arc", "100", "evidence", "25.0\xa0%"],
        ["clean", "mmlu", "100", "none found", "25.0\xa0%"],
    ]
    assert "<b>" not in run._repr_html_()
    assert repr(run) == "<LoadedRun: 0 questions, 2 models: clean, <b>>"


def test_the_plot_is_one_call_away(runs: Path) -> None:
    plot = load_run("runs", "audits").plot()
    assert ">m, bench<" in plot._repr_svg_()
    plot.save("plot.svg")
    assert (runs / "plot.svg").read_text().startswith("<svg")
