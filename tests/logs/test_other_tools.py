"""Logs of inspect_ai, lighteval and OpenCompass as runs.

`other_tools/` has what these tools wrote of SmolLM2-135M's answers to six questions of ours; of OpenCompass, what its
writers made of the answers.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.clean_sets import clean_sets
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation
from lm_eval_leakage.results.rows import flat_question, flat_row
from lm_eval_leakage.results.tables import write
from lm_eval_leakage.results.task_runs import TaskRun, choose_runs
from tests.logs.inspect_stand_in import install, log_of, sample, scored
from tests.results.harness_files import answered, audited, write_run

MADE = Path(__file__).parent / "other_tools"
PUPILS = [json.loads(line) for line in (MADE / "pupils.jsonl").read_text().splitlines()]
EVAL, SHUFFLED = "inspect_ai/pupils.eval", "inspect_ai/pupils-shuffled.json"
TIME = "2026-11-26T20-21-00.636459"
TASKS = ("cloze", "letters")
RIGHT = sample("a", **scored("C"))


def read(*places: Path) -> tuple[dict[str, list[AnnotatedQuestion]], list[Problem]]:
    """Return the answers of each task, and the problems of reading them."""
    problems: list[Problem] = []
    tasks: list[TaskRun] = []
    for run in find_runs(places, problems):
        tasks += choose_runs([run], problems)
    return {task.task: task.read_answers(problems) for task in tasks if task.log}, problems


def of_lighteval(folder: Path) -> Path:
    """Write the output of lighteval, whose names not every file system allows."""
    results, details = folder / "results/org/smollm2", folder / f"details/org/smollm2/{TIME}"
    for place in (results, details):
        place.mkdir(parents=True)
    shutil.copy(MADE / "lighteval/results.json", results / f"results_{TIME}.json")
    for task in TASKS:
        shutil.copy(MADE / f"lighteval/{task}.parquet", details / f"details_pupils:{task}|0_{TIME}.parquet")
    return folder


def of_opencompass(folder: Path) -> Path:
    shutil.copytree(MADE / "opencompass", folder / "20261126_204500")
    return folder


def audit_of_pupils(folder: Path, model: str = "smollm2", flagged: Sequence[int] = (0, 3)) -> Path:
    """Write an audit of the same questions as lm_eval would write it."""
    docs = [doc | {"subject": "nature"} for doc in PUPILS]
    write_run(folder, model, {"pupils_leakage_perm": [audited(doc, n in flagged) for n, doc in enumerate(docs)]})
    return folder


def right(answers: Sequence[AnnotatedQuestion]) -> dict[str, float]:
    """Return the score of each question, by its stem."""
    return {answer.question.stem: next(iter(answer.scores.values())) for answer in answers}


# ---------------------------------------------------------------------- inspect_ai


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a log of inspect_ai with these samples and changes, and returns its folder."""

    def write(*samples: Mapping[str, Any], name: str = "x", **changes: Any) -> Path:
        logs[f"{name}.eval"] = log_of(samples, **changes)
        (tmp_path / f"{name}.eval").touch()
        install(monkeypatch, logs)
        return tmp_path

    logs: dict[str, Mapping[str, Any]] = {}
    return write


def test_a_log_of_inspect_is_a_run_with_its_own_accuracy(tmp_path, monkeypatch) -> None:
    install(monkeypatch)
    (run,) = find_runs([MADE / SHUFFLED], [])
    metrics = json.loads((MADE / SHUFFLED).read_text())["results"]["scores"][0]["metrics"]
    assert (run.model, run.time[:10]) == ("smollm2", "2026-11-26")
    assert run.results["results"] == {
        "pupils_shuffled": {
            "acc,choice": metrics["accuracy"]["value"],
            "acc_stderr,choice": metrics["stderr"]["value"],
        }
    }
    (answers,) = read(MADE / SHUFFLED)[0].values()
    assert sum(right(answers).values()) / len(answers) == metrics["accuracy"]["value"]


def test_shuffled_options_are_joined_with_the_audit_of_published_ones(tmp_path, monkeypatch) -> None:
    install(monkeypatch)
    (annotation,) = annotate([MADE / SHUFFLED], [audit_of_pupils(tmp_path)])
    n = len(json.loads((MADE / SHUFFLED).read_text())["samples"])
    assert [answer.audited is not None for answer in annotation.questions] == [True] * n
    assert any(answer.question.options != answer.audited.options for answer in annotation.questions)
    assert {answer.audited.question: answer.audited.flagged for answer in annotation.questions} == {
        row["question"]: number in (0, 3) for number, row in enumerate(PUPILS[:n])
    }


def test_the_score_of_a_question_is_its_mean_over_epochs(inspected) -> None:
    grades = [("a", 1, "C"), ("b", 1, "I"), ("a", 2, "P"), ("b", 2, True)]
    samples = [sample(key, epoch, **scored(grade)) for key, epoch, grade in grades]
    answers, problems = read(inspected(*samples))
    assert right(answers["pupils"]) == {"Question a?": 0.75, "Question b?": 0.5}
    assert not problems


def test_each_scorer_is_a_metric(inspected) -> None:
    both = {"scores": {"choice": {"value": "C"}, "match": {"value": 0.25}}}
    assert read(inspected(sample("a", **both)))[0]["pupils"][0].scores == {"acc,choice": 1.0, "acc,match": 0.25}


def test_samples_that_failed_are_counted_and_not_in_the_accuracy(inspected) -> None:
    failed = sample("b", error={"message": "the server is gone"})
    odd = sample("c", **scored({"several": 1.0}))
    (annotation,) = annotate([inspected(RIGHT, failed, odd)])
    assert (annotation.rows[0].n, annotation.rows[0].accuracy.value) == (3, 1.0)
    what = "2 of 3 questions have no score; `n` counts them, the accuracy is of the others"
    assert what in str(annotation.problems[0])
    assert annotation.problems[0].incomplete


def test_a_log_that_was_cut_off_says_how_many_questions_it_holds(inspected) -> None:
    (annotation,) = annotate([inspected(RIGHT, dataset={"samples": 5, "sample_ids": list("abcde")})])
    assert any("holds 1 of the 5 questions of pupils" in str(problem) for problem in annotation.problems)


def test_tasks_with_other_arguments_are_other_tasks(inspected, tmp_path) -> None:
    for subject in ("art", "law"):
        inspected(RIGHT, name=subject, task="of/x", task_args_passed={"subject": subject})
    assert sorted(read(tmp_path)[0]) == ["x subject=art", "x subject=law"]


def test_options_that_look_like_labels_are_options_where_the_prompt_shows_none(inspected) -> None:
    shown = RIGHT | {"input": "How many?", "choices": ["1", "2"]}
    (answer,) = read(inspected(shown))[0]["pupils"]
    assert (answer.question.stem, answer.question.options) == ("How many?", ("1", "2"))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"model": "hf/org/m"}, "org/m"),
        ({"model": "openai/gpt-5"}, "gpt-5"),
        ({"model": "m"}, "m"),
        ({"model": "hf/local", "model_args": {"model_path": "/models/m"}}, "/models/m"),
        ({"model": "hf/org/m", "model_args": {"revision": "step9"}}, "org/m revision=step9"),
    ],
)
def test_a_model_has_the_name_that_lm_eval_gives_it(inspected, changes, name: str) -> None:
    (run,) = find_runs([inspected(RIGHT, **changes)], [])
    assert run.model == name


def test_a_chat_asks_what_its_user_said_last_and_options_may_be_in_it(inspected) -> None:
    message = "Which is big?\nA) a mouse\nB) a whale\n"
    chat = [
        {"role": "system", "text": "Answer."},
        {"role": "user", "text": message},
        {"role": "assistant", "text": "B"},
    ]
    (answer,) = read(inspected(RIGHT | {"input": chat, "choices": None}))[0]["pupils"]
    assert (answer.question.stem, answer.question.options) == ("Which is big?", ("a mouse", "a whale"))


def test_prompts_without_options_are_counted_as_not_joined(inspected, tmp_path) -> None:
    place = inspected(RIGHT | {"choices": None}, sample("b", **scored("C")))
    (annotation,) = annotate([place], [audit_of_pupils(tmp_path / "audit", "org/m")])
    problems = "\n".join(map(str, annotation.problems))
    assert "1 of 2 questions show no options that can be read" in problems
    assert "pupils: no audit has any of its 2 questions" in problems


def test_a_log_that_ended_before_its_first_sample_counts_no_question(inspected) -> None:
    place = inspected()
    (place / "x.eval").write_text("a\nzip\nfile\n")
    (run,) = find_runs([place], [])
    assert [(task.task, task.n_questions) for task in choose_runs([run], [])] == [("pupils", 0)]


def test_a_log_that_is_named_is_read_without_those_of_the_same_second(inspected) -> None:
    time = "2026-01-02T03-04-05"
    inspected(RIGHT, name=f"{time}_art", task="art")
    place = inspected(RIGHT, name=f"{time}_law", task="law")
    assert list(read(place / f"{time}_law.eval")[0]) == ["law"]


def test_a_log_where_inspect_is_not_installed_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(ImportError, match="which reads it and is not installed; run `pip install inspect_ai`"):
        find_runs([MADE / EVAL], [])


@pytest.mark.skipif(find_spec("inspect_ai") is None, reason="inspect_ai is not installed")
class TestWithInspect:
    def test_a_question_asked_in_two_epochs_is_one_with_the_accuracy_that_inspect_reports(self) -> None:
        (run,) = find_runs([MADE / EVAL], [])
        answers, problems = read(MADE / EVAL)
        assert [answer.question.stem for answer in answers["pupils"]] == [row["question"] for row in PUPILS]
        accuracy = run.results["results"]["pupils"]["acc,choice"]
        assert sum(right(answers["pupils"]).values()) / 6 == pytest.approx(accuracy)
        assert accuracy > 0
        assert not problems

    def test_its_reader_and_the_stand_in_say_the_same_of_a_log(self, monkeypatch) -> None:
        answers, runs = read(MADE / SHUFFLED), find_runs([MADE / SHUFFLED], [])
        install(monkeypatch)
        assert (read(MADE / SHUFFLED), find_runs([MADE / SHUFFLED], [])) == (answers, runs)


# ---------------------------------------------------------------------- lighteval


def test_lighteval_is_a_run_with_its_own_accuracies(tmp_path) -> None:
    (run,) = find_runs([of_lighteval(tmp_path)], problems := [])
    reported = json.loads((MADE / "lighteval/results.json").read_text())["results"]
    assert (run.model, run.time) == ("smollm2", TIME)
    assert {name: metrics["acc,none"] for name, metrics in run.results["results"].items()} == {
        f"pupils:{task}|0": reported[f"pupils:{task}|0"]["acc"] for task in TASKS
    }
    answers, _ = read(tmp_path)
    for name, of_task in answers.items():
        assert sum(right(of_task).values()) / 6 == reported[name]["acc"]
    assert not problems


@pytest.mark.parametrize("task", TASKS)
def test_questions_of_lighteval_are_joined_whether_options_are_choices_or_in_the_prompt(tmp_path, task: str) -> None:
    (annotation,) = annotate([of_lighteval(tmp_path / "run")], [audit_of_pupils(tmp_path / "audit")])
    answers = [answer for answer in annotation.questions if answer.task == f"pupils:{task}|0"]
    joined = [answer.audited.question for answer in answers if answer.audited]
    assert sorted(joined) == sorted(row["question"] for row in PUPILS)
    assert {line.n_shot for line in annotation.rows} == {"0"}


def test_a_results_file_alone_leads_to_its_details(tmp_path) -> None:
    (place,) = of_lighteval(tmp_path).rglob("results_*.json")
    assert {task: len(answers) for task, answers in read(place)[0].items()} == {
        f"pupils:{task}|0": 6 for task in TASKS
    }


def test_results_without_details_say_so(tmp_path) -> None:
    shutil.rmtree(of_lighteval(tmp_path) / "details")
    answers, problems = read(tmp_path)
    assert not answers
    assert "no samples log, so that nothing can be joined" in str(problems[0])


def test_details_without_results_are_one_sentence(tmp_path) -> None:
    shutil.rmtree(of_lighteval(tmp_path / "run") / "results")
    write_run(tmp_path, "m", {"quiz": [answered(0, PUPILS[0], True)]})
    answers, problems = read(tmp_path)
    assert list(answers) == ["quiz"]
    (problem,) = [str(problem) for problem in problems if ".parquet" in str(problem)]
    assert "left out: details of lighteval without their results file, which names the model; copy it here" in problem


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def without_metrics(file: Path) -> None:
    pq.write_table(pq.read_table(file).drop_columns(["metric"]), file)


def with_other_docs(file: Path) -> None:
    pq.write_table(pa.table({"doc": [{"text": "x"}], "metric": [{"acc": 1}]}), file)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (cut, "left out: not the details that lighteval writes (ArrowInvalid"),
        (without_metrics, "left out: its samples cannot be read (ArrowInvalid"),
        (with_other_docs, "left out: its samples cannot be read (KeyError: 'query')"),
    ],
)
def test_damaged_details_are_one_sentence_and_the_others_are_read(tmp_path, damage, what: str) -> None:
    (file,) = of_lighteval(tmp_path).rglob("*cloze*.parquet")
    damage(file)
    answers, problems = read(tmp_path)
    assert len(answers["pupils:letters|0"]) == 6
    assert [str(problem).count("\n") for problem in problems if what in str(problem)] == [0]


# ---------------------------------------------------------------------- OpenCompass


def test_opencompass_is_a_run_of_each_data_set_with_its_own_accuracy(tmp_path) -> None:
    runs = {task: run for run in find_runs([of_opencompass(tmp_path)], []) for task in run.logs}
    assert sorted(runs) == ["pupils-gen", "pupils-ppl"]
    answers, problems = read(tmp_path)
    for task, run in runs.items():
        accuracy = json.loads((MADE / f"opencompass/results/smollm2/{task}.json").read_text())["accuracy"]
        assert (run.model, run.time) == ("smollm2", "2026-11-26T20-45-00")
        assert run.results["results"][task]["acc,none"] == accuracy / 100
        assert sum(right(answers[task]).values()) / 5 == pytest.approx(accuracy / 100)
    assert not problems


@pytest.mark.parametrize("task", ["pupils-gen", "pupils-ppl"])
def test_questions_of_opencompass_are_joined_whether_options_are_texts_or_in_the_prompt(tmp_path, task: str) -> None:
    (annotation,) = annotate([of_opencompass(tmp_path / "run")], [audit_of_pupils(tmp_path / "audit")])
    answers = [answer for answer in annotation.questions if answer.task == task]
    joined = [answer.audited.question for answer in answers if answer.audited]
    assert joined == [row["question"] for row in PUPILS if len(row["choices"]["text"]) == 4]


def test_runs_of_lm_eval_in_a_folder_of_that_name_stay_runs_of_lm_eval(tmp_path) -> None:
    write_run(tmp_path / "predictions", "org__m", {"quiz": [audited(PUPILS[0], False)]})
    (run,) = find_runs([tmp_path], problems := [])
    assert list(run.logs) == ["quiz"]
    assert not problems


def predictions(folder: Path, data_set: str, answers: Mapping[str, Any], results: object = None) -> Path:
    for kind, content in (("predictions", answers), ("results", results)):
        if content is not None:
            place = folder / kind / "m"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{data_set}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def generated(number: int, answer: str = "A") -> dict[str, Any]:
    turns = [{"role": "HUMAN", "prompt": f"Question: What is {number}?\nA. odd\nB. even\nAnswer:"}]
    return {"origin_prompt": turns, "prediction": answer, "gold": "A"}


def test_parts_of_predictions_are_one_run(tmp_path) -> None:
    details = {str(number): {"correct": number % 3 == 0} for number in range(13)}
    for part, size in (("x_0", 2), ("x_2", 1), ("x_1", 10)):
        begin = {"x_0": 0, "x_1": 2, "x_2": 12}[part]
        predictions(tmp_path, part, {str(n): generated(begin + n) for n in range(size)})
    predictions(tmp_path, "unused", {"0": generated(0)}, None)
    (tmp_path / "results/m").mkdir(parents=True)
    (tmp_path / "results/m/x.json").write_text(json.dumps({"accuracy": 50.0, "details": details}))
    answers, _ = read(tmp_path)
    assert right(answers["x"]) == {f"Question: What is {n}?": float(n % 3 == 0) for n in range(13)}


@pytest.mark.parametrize(
    ("details", "scores"),
    [
        ({"0": {"correct": True}, "1": {"correct": False}}, [1.0, 0.0]),
        ({"0": {"predictions": "A", "references": "A"}, "1": {"predictions": "", "references": "A"}}, [1.0, 0.0]),
        ([{"correct": [True, False]}, {"is_correct": [False, False]}], [0.5, 0.0]),
        (None, [None, None]),
    ],
    ids=["evaluator with details", "evaluator without", "several answers per question", "no details"],
)
def test_whether_an_answer_is_correct_is_what_the_details_say(tmp_path, details, scores) -> None:
    two = {str(number): generated(number) for number in range(2)}
    results = {"accuracy": 50.0} | ({} if details is None else {"details": details})
    answers, problems = read(predictions(tmp_path, "x", two, results))
    assert [answer.scores.get("acc,none") for answer in answers["x"]] == scores
    assert [problem.incomplete for problem in problems] == ([True] if details is None else [])


@pytest.mark.parametrize("content", ["{", '{"0": {}, "2": {}}'], ids=["truncated", "a number missing"])
def test_damaged_predictions_are_one_sentence_and_the_others_are_read(tmp_path, content: str) -> None:
    place = predictions(tmp_path, "x", {"0": generated(0)}) / "predictions/m"
    (place / "y.json").write_text(content)
    answers, problems = read(tmp_path)
    assert list(answers) == ["x"]
    assert "y.json: left out: not a complete log of OpenCompass (" in str(problems[0])


# ---------------------------------------------------------------------- what is written


def test_what_follows_is_the_same_as_for_files_of_lm_eval_with_the_same_sections_and_lines(
    tmp_path, monkeypatch
) -> None:
    install(monkeypatch)
    audit = audit_of_pupils(tmp_path / "audit")
    for kind, original in {
        "inspect_ai": MADE / SHUFFLED,
        "lighteval": of_lighteval(tmp_path / "lighteval"),
        "OpenCompass": of_opencompass(tmp_path / "opencompass"),
    }.items():
        copy = as_files_of_lm_eval(find_runs([original], []), tmp_path / f"{kind} as lm_eval")
        assert without_places(annotate([copy], [audit])) == without_places(annotate([original], [audit]))


def as_files_of_lm_eval(runs: Sequence[Run], folder: Path) -> Path:
    for number, run in enumerate(runs):
        place = folder / str(number)
        place.mkdir(parents=True)
        results = {**run.results, "model_name": run.model}
        (place / f"results_{run.time}.json").write_text(json.dumps(results), encoding="utf-8")
        for task, log in run.logs.items():
            lines = [json.dumps(line) for _, line in run.read_log(log, [])]
            (place / f"samples_{task}_{run.time}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def without_places(annotations: Sequence[Annotation]) -> object:
    """Return the results of runs without the places of their files."""
    (annotation,) = annotations
    return (
        annotation.model,
        sorted(json.dumps(flat_row(row)) for row in annotation.rows),
        sorted(json.dumps(flat_question(question)) for question in annotation.questions),
        sorted(problem.what for problem in annotation.problems),
    )


def test_no_clean_task_is_made_of_them(tmp_path) -> None:
    annotations = annotate([of_lighteval(tmp_path / "run")], [audit_of_pupils(tmp_path / "audit")])
    with pytest.raises(ValueError, match="hold no question whose data row is recorded"):
        clean_sets(annotations)


def test_what_is_written_stands_beside_the_logs_and_is_no_run(tmp_path, monkeypatch) -> None:
    install(monkeypatch)
    for place in (of_lighteval(tmp_path / "le"), of_opencompass(tmp_path / "oc"), tmp_path / "in"):
        place.mkdir(exist_ok=True)
    shutil.copy(MADE / SHUFFLED, tmp_path / "in")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    (annotation,) = annotate([tmp_path], [audit_of_pupils(tmp_path.parent / "audit")])
    files = {str(file.relative_to(tmp_path)) for file in write(annotation, "1")}
    details = f"le/details/org/smollm2/{TIME}/details_pupils"
    assert files == {
        f"le/results/org/smollm2/results_{TIME}_leakage.json",
        *(f"{details}:{task}|0_{TIME}_leakage.jsonl" for task in TASKS),
        *(f"in/pupils-shuffled_leakage.{kind}" for kind in ("json", "jsonl")),
        *(
            f"oc/20261126_204500/predictions/smollm2/pupils-{how}_leakage.{kind}"
            for how in ("gen", "ppl")
            for kind in ("json", "jsonl")
        ),
    }
    assert {file: file.read_bytes() for file in before} == before
    columns = json.loads((tmp_path / f"le/results/org/smollm2/results_{TIME}_leakage.json").read_text())
    assert columns["results"]["pupils:cloze|0"]["flagged_rate,leakage"] == pytest.approx(2 / 6)
    assert list(json.loads((tmp_path / "in/pupils-shuffled_leakage.json").read_text())) == ["leakage"]
    assert len(find_runs([tmp_path], [])) == 4
