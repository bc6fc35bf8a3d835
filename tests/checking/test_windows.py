"""Questions that are longer than the model's window count in no accuracy and in no audit, and the check says so."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.rows import flat_row
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, written
from tests.written_tasks import LETTERED

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]
N, N_LONG, WINDOW = 60, 20, 200
LONG = "word " * 300


@pytest.fixture
def docs(fakes: type[NamedFake], tmp_path: Path) -> list[dict[str, Any]]:
    rows = questions(N)
    for row in rows[:N_LONG]:
        row["question"] = LONG + row["question"]
    written(tmp_path, rows)
    fakes.score = staticmethod(OptionOrders(rows, (2.5, 0.6)))
    fakes.max_length = WINDOW
    return rows


def test_they_are_not_sent_and_count_in_neither(docs: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    (verdict,) = checked(tmp_path, questions="all").verdicts
    assert not [context for context, _ in fakes.requests if context.startswith(LONG)]
    assert (verdict.n, verdict.n_tested, verdict.n_left_out, verdict.n_too_long) == (N, N - N_LONG, N_LONG, N_LONG)
    assert f"on {N - N_LONG} of {N} questions" in verdict.figures
    assert f"Texts of {N_LONG} questions are longer than the model's window and were not scored" in verdict.figures
    written(tmp_path, docs[N_LONG:], "fitting.jsonl")
    (fitting,) = checked(tmp_path, tmp_path / "fitting.jsonl", out="fitting", questions="all").verdicts
    assert (verdict.accuracy, verdict.accuracy_stderr) == (fitting.accuracy, fitting.accuracy_stderr)
    assert (fitting.n_left_out, fitting.n_too_long) == (0, 0)


def test_the_count_is_in_every_file(docs: Any, tmp_path: Path) -> None:
    outcome = checked(tmp_path, questions="all")
    (record,) = json.loads((tmp_path / "out" / "verdicts.json").read_text())["verdicts"]
    assert (record["n_left_out"], record["n_too_long"]) == (N_LONG, N_LONG)
    assert (
        f"were not scored; all would need max_length={record['figures'].rpartition('=')[2][:-1]}"
        in outcome.page.read_text()
    )
    (log,) = (tmp_path / "out" / "runs").rglob("samples_quiz_2*.jsonl")
    problem = next(problem for problem in outcome.problems if "the accuracy of quiz leaves out" in problem)
    assert f"leaves out {N_LONG} of {N} questions: of the longest, its text has 3" in problem
    (row,) = (row for annotation in annotate([tmp_path / "out" / "runs"]) for row in annotation.rows)
    assert (flat_row(row)["n"], flat_row(row)["n_left_out"], flat_row(row)["n_too_long"]) == (N, N_LONG, N_LONG)
    assert "n_left_out" not in flat_row(replace(row, n_left_out=0))
    reasons = [json.loads(line).get("leakage_left_out") for line in log.read_text().splitlines()]
    assert sum(reason is not None for reason in reasons) == N_LONG
    assert all(f"the model's window holds {WINDOW}" in reason for reason in reasons if reason)


def test_a_larger_window_asks_them(docs: Any, fakes: type[NamedFake], tmp_path: Path) -> None:
    checked(tmp_path, questions="all")
    fakes.max_length = 1000
    (verdict,) = checked(tmp_path, model_args="pretrained=m,max_length=1000", questions="all").verdicts
    assert (verdict.n_tested, verdict.n_left_out, verdict.n_too_long) == (N, 0, 0)


@pytest.mark.parametrize(("window", "n_long"), [(200, 50), (5, N)])
def test_where_too_few_fit_the_remedy_is_a_larger_window(
    docs: Any, fakes: type[NamedFake], tmp_path: Path, window: int, n_long: int
) -> None:
    rng = random.Random(0)
    for row in docs[:n_long]:  # of words of their own, so that they are no family
        words = ("".join(rng.choices(ascii_lowercase, k=4)) for _ in range(300))
        row["question"] = " ".join([*words, row["question"].removeprefix(LONG)])
    written(tmp_path, docs)
    fakes.max_length = window
    outcome = checked(tmp_path, questions="all")
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "no verdict"
    assert "No command would change that" not in verdict.summary
    assert "--model_args pretrained=m,max_length=3" in verdict.summary
    assert verdict.n_too_long == n_long
    if n_long == N:
        assert f"all {N} questions were skipped, the longest since its text has 3" in verdict.reason
        assert verdict.accuracy is None
    needed = int(verdict.summary.partition("max_length=")[2].split(" ")[0].rstrip("`"))
    fakes.max_length = needed
    (verdict,) = checked(tmp_path, out="larger", questions="all").verdicts
    assert (verdict.n_tested, verdict.n_too_long) == (N, 0)


TASK = """
task: written
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: {prompt}
doc_to_target: "{{{{'ABCD'[answer]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: {n_generated}}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.mark.parametrize(("n_generated", "n_left_out"), [(10, N_LONG), (WINDOW, N)])
def test_prompts_to_be_continued_leave_room_for_what_is_written(
    docs: Any, fakes: type[NamedFake], tmp_path: Path, n_generated: int, n_left_out: int
) -> None:
    prompts = []

    def generate_until(self: Any, requests: Any, **_: Any) -> list[str]:
        prompts.extend(request.args[0] for request in requests)
        return ["A" for _ in requests]

    fakes.generate_until = generate_until
    (tmp_path / "tasks").mkdir()
    text = TASK.format(file=tmp_path / "quiz.jsonl", n_generated=n_generated, prompt=LETTERED["text"])
    (tmp_path / "tasks" / "written.yaml").write_text(text)
    (verdict,) = checked(tmp_path, "written", include_path=tmp_path / "tasks", questions="all").verdicts
    assert (verdict.n, verdict.n_left_out, len(prompts)) == (N, n_left_out, N - n_left_out)
    fitting = [row["answer"] == 0 for row in docs[N_LONG:]]
    assert verdict.accuracy == (sum(fitting) / len(fitting) if n_left_out < N else None)
