"""Executes docs/adding_a_detector.md: its files, in an empty folder, form a package that all commands use."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from zipfile import ZipFile

import pytest
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

from lm_eval_leakage import cli, registry
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.page import render_page
from tests.fakes import FakeLM, by_hash, fond_of
from tests.scratch_packages import install, site_of_strangers
from tests.written_tasks import LETTERED, published, write_task

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FILES = dict(
    re.findall(
        r"^`([\w./-]+)`\n\n```\w+\n(.*?)^```$", (ROOT / "docs" / "adding_a_detector.md").read_text(), re.M | re.S
    )
)
PROJECT = tomllib.loads(FILES["pyproject.toml"])
AUDITS = ("colours_leakage_rotations", "colours_leakage_text_likelihood")
COLOURS = ["red", "blue", "lime", "grey"]
DOCS = [
    {"question": f"Which is colour {i}?", "choices": [f"{c} {i}" for c in COLOURS], "answer": i % 4} for i in range(12)
]
SEEN = DOCS[:8]


def write(folder: Path) -> None:
    """Write the files of the page."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the package of the page."""
    for folder in site_of_strangers(tmp_path_factory.mktemp("site")):
        modules = {name: text for name, text in FILES.items() if name != "pyproject.toml"}
        (entry_point,) = PROJECT["project"]["entry-points"][registry.ENTRY_POINTS].values()
        install(folder, PROJECT["project"]["name"], entry_point, modules)
        yield folder


# ---------------------------------------------------------------------- the files


@pytest.mark.model
def test_its_types_hold(tmp_path: Path) -> None:
    write(tmp_path)
    mypy = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path / "cache"]
    beside = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run([*mypy, "-p", "my_detectors"], capture_output=True, text=True, cwd=tmp_path, env=beside)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.model
def test_what_pip_would_install_has_the_templates_and_the_entry_point(tmp_path: Path) -> None:
    write(tmp_path / "src")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, tmp_path / "src"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert set(FILES) - {"pyproject.toml"} <= set(wheel.namelist())
        assert f"[{registry.ENTRY_POINTS}]" in wheel.read("my_detectors-0.1.0.dist-info/entry_points.txt").decode()


# ---------------------------------------------------------------------- a run


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run of the task and its two audits, with a model that has seen the first eight questions, and its folder."""
    folder = tmp_path_factory.mktemp("run")
    write_task(folder, "colours", DOCS, **LETTERED)
    tracker = EvaluationTracker(output_path=str(folder / "out"))
    results = simple_evaluate(
        model=FakeLM(fond_of(*map(published, SEEN))),
        tasks=["colours", *AUDITS],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results, samples)
    for task, lines in samples.items():
        tracker.save_results_samples(task, lines)
    return results, samples, folder / "out"


def value(doc: dict) -> float:
    """Return `nats_per_character` of the fake model, by arithmetic."""
    text = published(doc)
    return (-1.0 if doc in SEEN else by_hash("", text)) / len(text)


def flags(samples) -> list[bool]:
    return [line["flagged"] for line in samples[AUDITS[0]]]


def test_both_print_their_rows(run) -> None:
    results, samples, _ = run
    rotations, likelihood = (results["results"][audit] for audit in AUDITS)
    assert rotations["flagged_rate,published_rotation"] == mean(flags(samples))
    assert rotations["null_rate,published_rotation"] == 1 / 4
    assert rotations["skipped,published_rotation"] == 0
    n = sum(flags(samples))
    tail = sum(math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) for k in range(n, 13))
    details = results["leakage_details"][AUDITS[0]]
    assert details["dataset_pvalue,published_rotation"] == pytest.approx(tail)
    assert "verdict" not in details  # its probe does not ask all orders
    assert likelihood["nats_per_character,text_likelihood"] == pytest.approx(mean(map(value, DOCS)))
    assert not [key for key in likelihood if "flagged" in key]
    table = make_table(results)
    assert "published_rotation" in table
    assert "nats_per_character" in table


def test_both_have_a_line_per_question_in_the_log(run) -> None:
    _, samples, _ = run
    rotations, likelihood = (samples[audit] for audit in AUDITS)
    assert len(rotations) == len(likelihood) == len(DOCS)
    assert flags(samples)[: len(SEEN)] == [True] * len(SEEN)
    assert all(line["margin"] > 0 for line in rotations[: len(SEEN)])
    assert all(line["pvalue"] in (0.25, 0.5, 0.75, 1.0) and line["null_rate"] == 0.25 for line in rotations)
    assert [line["nats_per_character"] for line in likelihood] == [pytest.approx(value(doc)) for doc in DOCS]
    assert all(line["flagged"] is None for line in likelihood)


def test_annotate_and_the_page_show_both_next_to_the_tasks_accuracy(run, capsys, monkeypatch) -> None:
    _, samples, out = run
    monkeypatch.setattr(sys, "argv", ["lm-eval-leakage", "annotate", str(out), "--format", "json", "--dry_run"])
    cli.main()
    rows = json.loads(capsys.readouterr().out)
    (row,) = [row for row in rows if (row["task"], row["metric"]) == ("colours", "acc,none")]
    assert row["flagged_rate"] == mean(flags(samples))
    assert (row["null_rate"], row["n_tested"]) == (1 / 4, len(DOCS))
    means = {key: number for key, number in row.items() if "text_likelihood" in key and "nats_per_character" in key}
    assert pytest.approx(mean(map(value, DOCS))) in means.values()
    (annotation,) = annotate([out])
    assert annotation.detector == "published_rotation"
    assert {question.benchmark for question in annotation.audited_questions} == {"colours"}
    assert "nats_per_character" in render_page([annotation]).replace("<wbr>", "")


# ---------------------------------------------------------------------- a simulation


@pytest.mark.model
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_simulate_ranks_by_both(site: Path, tmp_path: Path) -> None:
    from lm_eval_leakage.lab import outcome_report
    from lm_eval_leakage.lab.outcome_report import qualities
    from lm_eval_leakage.lab.settings import Simulation
    from lm_eval_leakage.lab.simulation import simulate
    from lm_eval_leakage.lab.training import Recipe
    from tests.harness.test_prefix_tree_lm import checkpoint

    tiny = checkpoint(tmp_path, hidden_size=32, intermediate_size=64)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    settings = Simulation(
        model_args=f"pretrained={tiny},dtype=float32",
        benchmark=str(tmp_path / "questions.jsonl"),
        n_questions=12,
        epochs=(30,),
        detectors=("leakage_rotations", "leakage_text_likelihood"),
        recipe=Recipe(learning_rate=5e-3, batch_size=6),
    )
    outcome = simulate(settings, tmp_path / "lab")
    after = {quality.detector: quality for quality in qualities(outcome) if quality.exposures == 30}
    (rotations,) = [name for name in after if "published_rotation" in name]
    (likelihood,) = [name for name in after if "text_likelihood" in name]
    assert after[likelihood].auroc.value > 0.9
    assert after[rotations].rule is not None
    assert after[likelihood].rule is None
    report = outcome_report.write_report(outcome, tmp_path / "lab")
    assert all(f"| `{name}` | 6 + 6 |" in report for name in (rotations, likelihood))
