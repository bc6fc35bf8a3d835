"""A whole check in this process, with a fake model and a benchmark in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval_leakage.files import sole_use
from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.jobs.planning import NOT_POSSIBLE, THERE, TO_RUN
from lm_eval_leakage.jobs.whole_check import check
from tests.checking.conftest import GivenTasksOnly, NamedFake, questions, written
from tests.cli.conftest import typed  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("only_given_tasks")


def checked(folder: Path, file: Path, **given):
    arguments = {"model": "fake", "model_args": "pretrained=m", "tasks": str(file), "output_path": folder / "out"}
    return check(**(arguments | given))


def statuses(outcome) -> dict[str, str]:
    return {step.what: step.status for step in outcome.plan.steps}


def test_a_benchmark_in_a_file_gets_accuracy_verdict_page_and_json(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(40)))
    (one,) = outcome.verdicts
    assert (one.model, one.task, one.n, one.n_tested) == ("m", "quiz", 40, 40)
    assert one.verdict == "none found"
    assert one.accuracy is not None
    assert one.sentence.startswith("none found: on 40 questions")
    (record,) = json.loads((tmp_path / "out" / "verdicts.json").read_text())["verdicts"]
    assert (record["verdict"], record["sentence"]) == (one.verdict, one.sentence)
    assert one.verdict in outcome.page.read_text()
    assert len(fakes.built) == 1


@pytest.mark.model
def test_the_same_check_again_asks_nothing(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    first = checked(tmp_path, file)
    fakes.asked.clear()
    second = checked(tmp_path, file)
    assert fakes.asked == []
    assert statuses(second) == {
        "accuracy": THERE,
        "option orders": THERE,
        "token-level evidence": NOT_POSSIBLE,
        "choice confusion": THERE,
    }
    assert first.verdicts == second.verdicts


@pytest.mark.model
def test_a_documented_draw_makes_the_verdict_exact_and_is_no_new_benchmark(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file = written(tmp_path, questions(40))
    (before,) = checked(tmp_path, file).verdicts
    outcome = checked(tmp_path, file, orders="random: its README")
    (one,) = outcome.verdicts
    assert (before.published_orders, one.published_orders) == ("too few to say", "drawn")
    assert "with orders drawn at random, as documented" in one.sentence
    assert one.look == 2
    again = checked(tmp_path, file, orders="random: its README")
    assert statuses(again)["option orders"] == THERE
    assert again.verdicts == outcome.verdicts


@pytest.mark.model
def test_a_benchmark_whose_right_option_has_one_place_of_two_is_asked_once(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    """None of its orders can be compared with a control form."""
    docs = [(doc, doc["choices"][doc["answer"]]) for doc in questions(30, n_options=2)]
    right_first = [
        doc | {"choices": sorted(doc["choices"], key=lambda one, right=right: one != right), "answer": 0}
        for doc, right in docs
    ]
    file = written(tmp_path, right_first)
    checked(tmp_path, file)
    fakes.asked.clear()
    outcome = checked(tmp_path, file)
    assert fakes.asked == []
    (one,) = outcome.verdicts
    assert one.verdict == "cannot be told"
    assert "the right option stands in one place" in one.sentence
    assert "No command would change that" in one.summary


def test_questions_with_a_natural_order_are_not_asked_again(fakes: type[NamedFake], tmp_path: Path) -> None:
    """They have no control form, where others do."""
    docs = questions(30)
    for number, doc in enumerate(docs[:10]):
        doc["choices"] = [f"{number + place} metres" for place in range(1, 5)]
    file = written(tmp_path, docs)
    checked(tmp_path, file)
    before = sorted((tmp_path / "out" / "runs").rglob("*"))
    outcome = checked(tmp_path, file)
    assert outcome.plan.to_run == []
    assert outcome.plan.as_text.endswith("Nothing has to be run.")
    assert sorted((tmp_path / "out" / "runs").rglob("*")) == before


@pytest.mark.model
@pytest.mark.parametrize("share", [0.25, 0.5])  # the log has two lines per question, one per statistic
def test_an_audit_whose_log_lost_lines_is_run_again(fakes: type[NamedFake], tmp_path: Path, share: float) -> None:
    file = written(tmp_path, questions(30))
    first = checked(tmp_path, file)
    (log,) = (tmp_path / "out").rglob("samples_*_leakage_perm_*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: round(share * len(lines))]))
    again = checked(tmp_path, file)
    assert statuses(again)["option orders"] == TO_RUN
    assert again.verdicts == first.verdicts


@pytest.mark.model
def test_questions_are_drawn_at_random_and_are_the_same_for_every_run(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    (told,) = checked(tmp_path, file, questions=25, seed=7).verdicts
    asked: dict[str, set[str]] = {}
    for log in (tmp_path / "out" / "runs").rglob("samples_*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        asked[log.name.split("_2")[0]] = {line["doc"]["question"] for line in lines}
    assert len(asked) == 3
    accuracy, *audits = asked.values()
    assert all(own == accuracy for own in audits)
    assert len(accuracy) == 25
    assert accuracy != {doc["question"] for doc in questions(60)[:25]}
    assert (told.seed, "25 questions of" in told.citation, "(drawn with seed 7)" in told.citation) == (7, True, True)
    assert checked(tmp_path, file, questions=25, seed=7).verdicts[0].citation == told.citation  # nothing is run again
    assert checked(tmp_path, file, questions="all").verdicts[0].seed is None


@pytest.mark.model
def test_a_larger_draw_includes_the_smaller_one(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    checked(tmp_path, file, questions=25)
    orders_of_first = len([one for one in fakes.asked if "Answer" not in one[0]])
    fakes.asked.clear()
    outcome = checked(tmp_path, file, questions=30)
    assert outcome.verdicts[0].n == 30
    assert len([one for one in fakes.asked if "Answer" not in one[0]]) < orders_of_first


def test_a_dry_run_loads_no_model(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), dry_run=True)
    assert fakes.built == []
    assert outcome.page is None
    assert statuses(outcome)["option orders"] == TO_RUN
    (orders,) = [step for step in outcome.plan.steps if step.what == "option orders"]
    assert orders.n_requests == 30 * (24 + 2 * 12)  # with the control forms


def test_mistakes_are_told_before_anything_is_loaded(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    (tmp_path / "config.json").touch()
    with pytest.raises(ValueError, match="piqqa.*piqa"):
        checked(tmp_path, file, tasks="piqqa")
    with pytest.raises(ValueError, match="fak.*not a model"):
        checked(tmp_path, file, model="fak")
    with pytest.raises(ValueError, match="there is no such folder"):
        checked(tmp_path, file, model="hf", reference="pretrained=/no/such", model_args=f"pretrained={tmp_path}")
    with pytest.raises(FileNotFoundError, match="no such file"):
        checked(tmp_path, tmp_path / "none.jsonl")
    assert not (tmp_path / "out").exists()


def test_a_chat_model_is_refused_before_anything_is_asked(fakes: type[NamedFake], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leakage_perm cannot run: chat-fake gives no log-likelihoods"):
        checked(tmp_path, written(tmp_path, questions(30)), model="chat-fake")
    assert not (tmp_path / "out").exists()


@pytest.mark.model
def test_verdicts_of_earlier_checks_are_shown_apart(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    checked(tmp_path, file)
    outcome = checked(tmp_path, file, model_args="pretrained=n")
    assert [one.model for one in outcome.verdicts] == ["n"]
    assert [one.model for one in outcome.others] == ["m"]
    told = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    assert [record["model"] for record in told["verdicts"]] == ["n"]
    assert [record["model"] for record in told["earlier"]] == ["m"]
    _, _, earlier = outcome.page.read_text().partition("Earlier checks into this folder")
    assert told["earlier"][0]["time"] in earlier


@pytest.mark.model
def test_runs_that_exist_are_used_and_their_questions_drawn(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(60))
    checked(tmp_path, file, questions=25)
    fakes.asked.clear()
    outcome = checked(tmp_path, file, runs=tmp_path / "out" / "runs", output_path=tmp_path / "other")
    assert fakes.asked == []
    assert {step.n_questions for step in outcome.plan.steps if step.status == THERE} == {25}
    assert outcome.verdicts[0].n == 25


def test_a_notebook_shows_the_verdicts_with_everything_escaped(fakes: type[NamedFake], tmp_path: Path) -> None:
    outcome = checked(tmp_path, written(tmp_path, questions(30)), model_args="pretrained=<b>m</b>")
    html = outcome._repr_html_()
    assert "<caption>" in html
    assert 'scope="col"' in html
    assert "none found" in html
    assert "<b>m</b>" not in html
    assert "&lt;b&gt;m" in html


@pytest.mark.model
def test_a_file_without_right_options_has_a_verdict_and_no_accuracy(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs = [{key: doc[key] for key in ("question", "choices")} for doc in questions(60)]
    outcome = checked(tmp_path, written(tmp_path, docs))
    (one,) = outcome.verdicts
    assert (one.verdict, one.accuracy) == ("none found", None)
    assert statuses(outcome)["accuracy"] == NOT_POSSIBLE
    assert (
        "60 of 60 questions have no right answer, or several (row 1, 2, 3, ...); give each one" in outcome.plan.as_text
    )


@pytest.mark.model
def test_encodings_of_the_right_answers_give_one_accuracy(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs, accuracies = questions(30), []
    for name, key in {
        "letters": lambda doc: "ABCD"[doc["answer"]],
        "texts": lambda doc: doc["choices"][doc["answer"]],
        "from_1": lambda doc: doc["answer"] + 1,
        "from_0": lambda doc: doc["answer"],
    }.items():
        file = written(tmp_path, [doc | {"answer": key(doc)} for doc in docs], f"{name}.jsonl")
        outcome = checked(tmp_path, file)
        accuracies.append(outcome.verdicts[0].accuracy)
    assert accuracies[0] is not None
    assert accuracies == accuracies[:1] * 4


@pytest.mark.parametrize("how", ["tasks", "unseen"])
def test_wrong_right_answers_are_refused_before_the_tasks_are_read(
    fakes: type[NamedFake], tmp_path: Path, how: str
) -> None:
    told: list[str] = []
    files = [written(tmp_path, [doc | {"answer": 5} for doc in questions(30)], "wrong.jsonl")]
    given = {"tasks": [str(written(tmp_path, questions(30)))], how: [str(files[0])] if how == "tasks" else files[0]}
    with pytest.raises(ValueError, match="wrong.jsonl', whose right answers"):
        check("fake", "pretrained=m", output_path=tmp_path / "out", say=told.append, **given)
    assert told == []


def test_a_file_named_like_a_task_of_the_harness_gets_a_name_of_its_own(tmp_path: Path) -> None:
    names = {
        file: write_task(written(tmp_path, questions(3), file), tmp_path).name
        for file in ("mmlu.jsonl", "My quiz!.json")
    }
    assert names == {"mmlu.jsonl": "own_mmlu", "My quiz!.json": "my_quiz"}


def test_two_checks_in_one_folder_at_once_are_refused_in_a_sentence(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, questions(30))
    with (
        sole_use(tmp_path / "out"),
        pytest.raises(ValueError, match="out is in use by another command; wait until it ends, or give another"),
    ):
        checked(tmp_path, file)
    assert not (tmp_path / "out" / "tasks").exists()


FEW, ENOUGH = questions(12, seed=1), questions(30)


@pytest.mark.parametrize(
    ("files", "given", "code"),
    [
        ([ENOUGH], {}, 0),
        ([ENOUGH, FEW], {}, 2),
        ([FEW], {}, 2),
        ([ENOUGH, FEW], {"--allow-untold": None}, 0),
        ([FEW], {"--allow-untold": None}, 0),
        ([ENOUGH, FEW], {"--fail-on": "none_found"}, 1),
    ],
)
def test_a_gate_passes_what_it_cannot_judge_only_where_that_is_allowed(
    fakes: type[NamedFake],
    tmp_path: Path,
    typed: Callable[..., tuple[int, str, str]],  # noqa: F811
    files: list,
    given: dict,
    code: int,
) -> None:
    tasks = [written(tmp_path, docs, f"quiz{number}.jsonl") for number, docs in enumerate(files)]
    options = {"--model": "fake", "--model_args": "pretrained=m", "--fail-on": "evidence", **given}
    words = [word for pair in options.items() for word in pair if word is not None]
    ended, _, errors = typed("check", *words, "--output_path", tmp_path / "out", "--tasks", *tasks)
    assert (ended, "--allow-untold" in errors) == (code, code == 2)


def test_clean_finds_the_task_that_a_check_made_from_a_file(
    fakes: type[NamedFake],
    tmp_path: Path,
    typed: Callable[..., tuple[int, str, str]],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lm_eval.tasks.TaskManager", GivenTasksOnly)
    checked(tmp_path, written(tmp_path, questions(40)))
    code, printed, errors = typed("clean", tmp_path / "out" / "runs", "--output_path", tmp_path / "cleaned")
    assert code == 0, errors
    assert f"--include_path {tmp_path / 'cleaned'} --tasks quiz_clean" in printed
    assert (tmp_path / "cleaned" / "quiz_clean.yaml").exists()


def test_what_cannot_be_told_ends_with_the_command_that_may_change_it_or_says_that_none_would(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    file = written(tmp_path, questions(40))
    (few,) = checked(tmp_path, file, questions=12, seed=3).verdicts
    command = f"lm-eval-leakage check --model fake --model_args pretrained=m --tasks {file} --questions all --seed 3"
    assert few.summary.endswith(f"`{command} --output_path {tmp_path / 'out'}` may change that.")
    (none,) = checked(tmp_path, written(tmp_path, questions(12), "small.jsonl")).verdicts
    assert none.summary.endswith("No command would change that for this model and task.")
