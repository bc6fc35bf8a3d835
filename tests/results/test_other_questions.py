"""A run and an audit of one benchmark that ask different questions of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import leaderboard
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.rows import flat_row
from lm_eval_leakage.results.tables import as_text, write
from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.report.parsed import Parsed
from tests.results.harness_files import answered, audited, row, write_run

N = 60
DRAWN = {"published_orders": "drawn", "resps": [[[str(-1.0 - place), "False"]] for place in range(24)]}


def run_of(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [answered(number, row(number), number % 2 == 0) for number in numbers]


def audit_of(numbers: Sequence[int]) -> list[dict[str, Any]]:
    """An audit of a benchmark that the model has seen, in orders that were drawn."""
    return [{"doc_id": number, **audited(row(number), True, **DRAWN)} for number in numbers]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The first rows of a benchmark were run, others audited."""
    write_run(tmp_path / "runs", "m", {"bench": run_of(range(N))})
    write_run(tmp_path / "audits", "m", {"bench_leakage_perm": audit_of(range(100, 100 + N))})
    return tmp_path


def test_that_they_have_no_question_in_common_is_one_sentence_with_the_command_that_audits_the_run(
    folder: Path,
    typed,  # noqa: F811
) -> None:
    code, out, err = typed("annotate", folder / "runs", "--audit", folder / "audits", "--fail-on", "evidence")
    (file,) = (folder / "runs").rglob("results_*")
    command = f"lm-eval-leakage check --model hf --model_args pretrained=m --tasks bench --runs {file} --questions all"
    what = "bench: the audit covers other questions than the run (0 of 60 in common); its row is of the audit alone"
    first, last = err.splitlines()
    assert first == f"note: {what}; this audits exactly those of the run: {command}"
    assert (code, last.startswith("--fail-on does not judge incomplete logs and audits: bench: ")) == (2, True)
    assert len([line for line in out.splitlines() if line.startswith("bench ")]) == 1


def test_no_copies_are_written_that_add_nothing(folder: Path) -> None:
    (annotation,) = annotate([folder])
    assert write(annotation, "1") == []


def test_the_row_and_the_board_are_those_of_the_audit_and_there_is_one(folder: Path) -> None:
    (annotation,) = annotate([folder])
    (only,) = annotation.rows
    assert (only.task, only.n_tested, only.verdict.word) == ("bench", N, "strong evidence")
    assert not only.accuracy
    ((standing,),) = leaderboard([annotation]).boards
    assert standing.row == only
    page, again = (render_page(annotate(places)) for places in ([folder], [folder / "audits"]))
    count_of_names = [[text for _, text in Parsed(row_of_task).texts].count("bench") for row_of_task in (page, again)]
    assert count_of_names[0] == count_of_names[1]  # as if there were no run


def test_no_row_has_an_adjusted_p_value_without_a_p_value(tmp_path: Path) -> None:
    write_run(tmp_path, "m", {"bench": run_of(range(N))}, n_shot=5)
    write_run(tmp_path, "m", {"bench": run_of(range(100, 100 + N))})
    write_run(tmp_path, "m", {"bench_leakage_perm": audit_of(range(100, 100 + N))})
    (annotation,) = annotate([tmp_path])
    shown = [(flat_row(row)["evidence_pvalue"], flat_row(row)["evidence_pvalue_adjusted"]) for row in annotation.rows]
    assert sorted((pvalue is None, adjusted is None) for pvalue, adjusted in shown) == [(False, False), (True, True)]
    assert "p adjusted" in as_text(annotation.rows, "table")


def test_of_some_in_common_it_is_said_on_how_many_the_columns_rest(tmp_path: Path) -> None:
    write_run(tmp_path, "m", {"bench": run_of(range(N))})
    write_run(tmp_path, "m", {"bench_leakage_perm": audit_of(range(40, 100))})
    (annotation,) = annotate([tmp_path])
    (rest, unanswered) = map(str, annotation.problems)
    assert rest.startswith(
        "bench: its columns rest on 20 of 60 questions; 40 question(s) are in no audit (doc_id 0, 1, 2, 3, 4, 5, 6, "
        "7, 8, 9 and 30 more) and only counted in `n`; `lm-eval-leakage check --runs "
    )
    assert unanswered.startswith("bench: 40 audited question(s) were answered in no run (doc_hash ")
    assert len(unanswered) < 200
    assert len(write(annotation, "1")) == 2


def test_a_group_that_was_audited_on_other_questions_has_one_row_and_so_have_its_tasks(tmp_path: Path) -> None:
    for start, ending in ((0, ""), (100, "_leakage_perm")):
        made = (run_of, audit_of)[bool(ending)]
        logs = {f"{name}{ending}": made(range(at + start, at + start + N)) for name, at in (("x", 0), ("y", 1000))}
        write_run(tmp_path, "m", logs, groups={f"xy{ending}": [*logs]})
    (annotation,) = annotate([tmp_path])
    assert [(row.task, row.group, row.n_tested) for row in annotation.rows] == [
        ("xy", "", 2 * N),
        ("x", "xy", N),
        ("y", "xy", N),
    ]
    assert sum("covers other questions" in str(problem) for problem in annotation.problems) == 2
