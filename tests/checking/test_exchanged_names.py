"""Checks of benchmarks without options, whose rows exchange their names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.check import check
from lm_eval_leakage.results.annotate import annotate
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, statuses, written
from tests.fakes import by_hash
from tests.harness.test_filler_audit import fond_of_rows
from tests.word_problems import road, town, word_problems, write_generating_task
from tests.written_tasks import LETTERED, write_task

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")
ROWS = word_problems(120)
MOODS = [
    {
        "question": f"{row['question'].split()[0]} went by {road(number)} and came home late.",
        "choices": [town(first + number)[::-1] for first in (100, 300, 500)],
        "answer": number % 3,
    }
    for number, row in enumerate(ROWS)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    write_generating_task(tmp_path / "tasks", "sums", ROWS)
    return tmp_path


def of_task(folder: Path, **given):
    return checked(folder, "sums", include_path=str(folder / "tasks"), **given)


def test_a_task_that_generates_its_answers_is_checked_by_its_names(fakes: type[NamedFake], folder: Path) -> None:
    outcome = of_task(folder)
    assert statuses(outcome) == {"accuracy": "not needed", "exchanged names": "to run"}
    (verdict,) = outcome.verdicts
    assert (verdict.basis, verdict.n, verdict.verdict) == ("fillers", 120, "none found")
    assert "names of other rows" in verdict.sentence
    assert "The published" not in verdict.summary
    page = (folder / "out" / "leakage.html").read_text(encoding="utf-8")
    assert "published names" in page
    texts = [text for context, text in fakes.requests]
    assert len(texts) > 120 * 15


def test_memory_of_the_rows_is_evidence_and_fails_the_command(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows(ROWS))
    outcome = of_task(folder, fail_on="evidence")
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "strong evidence"
    assert "prefers the published names to the names of other rows" in verdict.sentence
    assert len(outcome.failed) == 1
    saved = json.loads((folder / "out" / "verdicts.json").read_text(encoding="utf-8"))
    assert saved["verdicts"][0]["pvalue"] == verdict.pvalue < 1e-4


def test_the_same_check_again_asks_nothing_and_another_sample_is_a_second_look(fakes, folder: Path) -> None:
    first = of_task(folder, questions=60)
    fakes.requests.clear()
    again = of_task(folder, questions=60)
    assert (fakes.requests, again.verdicts) == ([], first.verdicts)
    assert [verdict.look for verdict in of_task(folder, questions=90).verdicts] == [2]
    assert (first.verdicts[0].look, first.verdicts[0].n) == (1, 60)
    (few,) = of_task(folder, questions=30, detect="25%", out="few").verdicts
    assert few.verdict == "inconclusive"
    assert "--questions all" in few.summary


def test_a_file_of_texts_without_options_is_a_benchmark(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, [*ROWS, {"question": "A robe takes 2 bolts of fibre."}], "stories.jsonl")
    outcome = checked(tmp_path, file)
    (verdict,) = outcome.verdicts
    assert (verdict.task, verdict.basis, verdict.n, verdict.verdict) == ("stories", "fillers", 120, "none found")
    assert "which answers to them are right" in next(
        step.note for step in outcome.plan.steps if step.what == "accuracy"
    )
    named = [{"tale": row["question"]} for row in ROWS]
    other = checked(tmp_path, written(tmp_path, named, "tales.jsonl"), fields="question=tale")
    assert other.verdicts[0].verdict == "none found"


def test_a_file_without_names_says_why(tmp_path: Path) -> None:
    rows = [{"question": f"A robe takes {n} bolts of blue fibre."} for n in range(30)]
    with pytest.raises(ValueError, match="no question can be read"):
        checked(tmp_path, written(tmp_path, rows, "robes.jsonl"))


def test_too_few_rows_have_no_verdict(fakes: type[NamedFake], folder: Path) -> None:
    (verdict,) = of_task(folder, questions=12).verdicts
    assert (verdict.verdict, verdict.n) == ("no verdict", 12)
    assert "Only 12 questions can be tested; at least 20 are needed." in verdict.summary


def test_the_reference_is_asked_the_same_names(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows(ROWS))
    fakes.score_of_other = staticmethod(lambda context, text: fakes.score(context, text) + by_hash(text, context))
    outcome = of_task(folder, reference="pretrained=other")
    assert statuses(outcome)["reference: exchanged names"] == "to run"
    (verdict,) = outcome.verdicts
    assert verdict.verdict in ("none found", "inconclusive"), "both models prefer the published names"
    assert "does not significantly prefer the published names more than the reference model does" in verdict.sentence
    fakes.score_of_other = staticmethod(by_hash)
    (beyond,) = of_task(folder, reference="pretrained=other", out="beyond").verdicts
    assert beyond.verdict == "strong evidence"


def with_train_split(folder: Path) -> list[dict]:
    """A task of 120 rows to be scored on, and as many of a train split, which are returned."""
    learned = word_problems(130, seed=1)
    write_generating_task(folder / "tasks", "sums", ROWS, learned)
    return learned


def test_the_train_split_is_audited_as_a_positive_control(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows(with_train_split(folder)))
    outcome = of_task(folder)
    assert statuses(outcome)["positive control: exchanged names"] == "to run"
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "none found"
    assert verdict.positive_pvalue < 1e-4 < verdict.pvalue
    assert 0 < verdict.positive_at_most < 0.5
    share = f"at most {100 * verdict.positive_at_most:.0f} % of the questions were seen as often as those"
    assert "the model shows memory of its train split" in verdict.sentence
    assert share in verdict.sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert "shows memory of its train split" in verdict.summary
    assert verdict.look == 1, "the control is no look"
    assert of_task(folder).plan.to_run == []


def test_who_reads_the_folder_of_a_check_does_not_learn_that_the_benchmark_was_seen(fakes, folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows(with_train_split(folder)))
    (verdict,) = of_task(folder).verdicts
    (annotation,) = annotate([folder / "out"])
    assert [(row.task, row.verdict.pvalue) for row in annotation.rows] == [("sums", verdict.pvalue)]
    (control,) = annotate([folder / "out" / "positive"])
    assert [row.verdict.word for row in control.rows] == ["strong evidence"], "it is read where it is named"


def test_who_reads_the_folder_of_a_check_learns_nothing_of_its_unseen_rows(fakes, folder: Path) -> None:
    others = word_problems(90, seed=2)
    fakes.score = staticmethod(fond_of_rows(others))
    of_task(folder, unseen=str(written(folder, others, "others.jsonl")))
    (annotation,) = annotate([folder / "out"])
    assert [(row.task, row.verdict.n) for row in annotation.rows] == [("sums", len(ROWS))]
    assert "evidence" not in annotation.rows[0].verdict.word
    (control,) = annotate([folder / "out" / "unseen"])
    assert [row.verdict.word for row in control.rows] == ["strong evidence"], "it is read where it is named"


def test_a_train_split_without_names_is_reported_in_the_verdict(fakes: type[NamedFake], folder: Path) -> None:
    robes = [{"question": f"A robe takes {n % 9} bolts of {town(n)}.", "answer": ""} for n in range(30)]
    write_generating_task(folder / "tasks", "sums", ROWS, robes)
    (verdict,) = of_task(folder).verdicts
    assert "the positive control, its train split, could not be tested: its rows have no detail" in verdict.sentence
    assert verdict.positive_effect is None


def test_a_positive_control_without_memory_says_that_none_found_says_less(fakes, folder: Path) -> None:
    with_train_split(folder)
    (verdict,) = of_task(folder).verdicts
    assert "120 questions of its train split, shows no memory either" in verdict.sentence
    assert verdict.positive_at_most is None


def test_memory_of_the_benchmark_itself_has_no_bound(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows([*with_train_split(folder), *ROWS]))
    (verdict,) = of_task(folder).verdicts
    assert verdict.verdict == "strong evidence"
    assert "shows memory of its train split" in verdict.sentence
    assert "at most" not in verdict.sentence


def test_the_positive_control_may_be_left_out_or_be_a_file(fakes: type[NamedFake], folder: Path) -> None:
    learned = with_train_split(folder)
    fakes.score = staticmethod(fond_of_rows(learned))
    without = of_task(folder, out="without", positive_control="none")
    assert [*statuses(without)] == ["accuracy", "exchanged names"]
    assert without.verdicts[0].positive_pvalue is None
    file = written(folder, learned, "learned.jsonl")
    given = of_task(folder, out="given", positive_control=str(file))
    assert f"the model shows memory of the file {file}" in given.verdicts[0].sentence
    with pytest.raises(ValueError, match="positive_control is 'test'; give train, none, or a file"):
        of_task(folder, positive_control="test")


def test_what_only_options_use_is_refused_and_a_damaged_control_early(fakes, folder: Path) -> None:
    with pytest.raises(ValueError, match="orders is 'random: page 3', but sums has no options"):
        of_task(folder, orders="random: page 3")
    (folder / "broken.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="broken.jsonl.* is not valid JSON"):
        of_task(folder, positive_control=str(folder / "broken.jsonl"))
    assert fakes.requests == []


def test_option_orders_have_a_positive_control_too(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs, learned = questions(80), questions(90, seed=1)
    write_task(tmp_path, "quiz", docs, **LETTERED, more="training_split: train\n", train=learned)
    fakes.score = staticmethod(OptionOrders(learned, (3.0, 0.0)))
    outcome = checked(tmp_path, "quiz", include_path=str(tmp_path), metadata="layouts=audited")
    assert statuses(outcome)["positive control: option orders"] == "to run"
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "none found"
    assert verdict.positive_pvalue < 0.01
    assert verdict.positive_at_most < 1


def test_the_plan_counts_tokens_and_says_how_many_rows_are_needed(folder: Path) -> None:
    outcome = check(
        model="fake",
        model_args="pretrained=m",
        tasks="sums",
        include_path=str(folder / "tasks"),
        output_path=folder / "out",
        dry_run=True,
    )
    (step,) = (step for step in outcome.plan.steps if step.what == "exchanged names")
    assert step.n_questions == 120
    assert step.n_requests > 120 * 15
    assert re.search(r"about [0-9,]+ questions are usually needed to find 25.% seen 3 times", step.note)


@pytest.fixture
def of_three_options(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks", "moods", MOODS)
    return tmp_path


def test_few_options_are_checked_by_their_orders_and_by_names(fakes: type[NamedFake], of_three_options: Path) -> None:
    tasks = str(of_three_options / "tasks")
    outcome = checked(of_three_options, "moods", include_path=tasks, questions=40)
    steps = {step.what: (step.status, step.n_questions) for step in outcome.plan.steps}
    assert steps["option orders"] == ("to run", 40)
    assert steps["exchanged names"] == ("to run", 40)
    (verdict,) = outcome.verdicts
    assert verdict.pvalue == pytest.approx(min(1, 2 * min(verdict.pvalue_orders, verdict.pvalue_names)))
    assert verdict.look == 1
    fakes.score = staticmethod(fond_of_rows(MOODS))
    (remembered,) = checked(of_three_options, "moods", include_path=tasks, out="seen", questions=100).verdicts
    assert remembered.verdict == "strong evidence"
    assert remembered.pvalue_names < 0.001 < remembered.pvalue_orders
    assert remembered.summary.startswith("Prefers the published names")


def test_a_reference_is_asked_for_both(fakes: type[NamedFake], of_three_options: Path) -> None:
    outcome = checked(
        of_three_options, "moods", include_path=str(of_three_options / "tasks"), reference="pretrained=other"
    )
    assert {step.what for step in outcome.plan.steps} >= {"reference: option orders", "reference: exchanged names"}


# ---------------------------------------------------------------------- beside unseen rows; numbers


def test_unseen_rows_say_how_much_of_the_preference_is_natural(fakes: type[NamedFake], folder: Path) -> None:
    others = word_problems(90, seed=2)
    file = written(folder, others, "others.jsonl")
    fakes.score = staticmethod(fond_of_rows([*ROWS, *others]))
    outcome = of_task(folder, unseen=str(file))
    assert "unseen questions: exchanged names" in statuses(outcome)
    (verdict,) = outcome.verdicts
    assert "evidence" not in verdict.verdict
    assert "are natural by 90 unseen questions" in verdict.sentence
    fakes.score = staticmethod(fond_of_rows(ROWS))
    (remembered,) = of_task(folder, unseen=str(file), out="seen").verdicts
    assert remembered.verdict in ("evidence", "strong evidence")


def test_unseen_rows_that_are_in_the_benchmark_are_not_used(fakes: type[NamedFake], folder: Path) -> None:
    outcome = of_task(folder, unseen=str(written(folder, ROWS[:60], "others.jsonl")))
    assert any(
        "60 of the 60 questions that the model is said not to have seen" in problem for problem in outcome.problems
    )
    assert "are natural by" not in outcome.verdicts[0].sentence


SUMS = [
    {"question": f"How much is {10 + (37 * n) % 89} of {road(n + 200)}, and twice that?", "answer": str(n)}
    for n in range(120)
]


@pytest.fixture
def without_names(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    write_generating_task(tmp_path / "tasks", "sums", SUMS)
    return tmp_path


def fond_of_numbers(rows: Sequence[Mapping[str, str]]) -> Callable[[str, str], float]:
    """A model that remembers these rows."""
    texts = tuple(row["question"][:40] for row in rows)

    def score(context: str, continuation: str) -> float:
        return by_hash(context, continuation) + 2 * any(text in context + continuation for text in texts)

    return score


def test_numbers_alone_have_no_verdict_and_the_plan_says_what_would_give_one(fakes, without_names: Path) -> None:
    with pytest.raises(ValueError, match=r"published numbers without having seen them.*--reference.*--unseen FILE"):
        of_task(without_names)
    assert fakes.requests == []


def test_numbers_are_tested_beside_a_reference(fakes: type[NamedFake], without_names: Path) -> None:
    fakes.score_of_other = staticmethod(lambda context, text: by_hash(text, context))
    outcome = of_task(without_names, reference="pretrained=other")
    assert {"exchanged numbers", "reference: exchanged numbers"} <= statuses(outcome).keys()
    (verdict,) = outcome.verdicts
    assert verdict.verdict in ("none found", "inconclusive")
    assert "prefer the published numbers more than the reference model does" in verdict.sentence
    assert "control form" not in verdict.sentence


def test_numbers_are_tested_beside_unseen_rows(fakes: type[NamedFake], without_names: Path) -> None:
    others = [
        {"question": row["question"].replace(road(number + 200), road(number + 500)), "answer": ""}
        for number, row in enumerate(SUMS[:90])
    ]
    file = written(without_names, others, "others.jsonl")
    fakes.score = staticmethod(fond_of_numbers([*SUMS, *others]))
    (natural,) = of_task(without_names, unseen=str(file)).verdicts
    assert natural.verdict in ("none found", "inconclusive")
    fakes.score = staticmethod(fond_of_numbers(SUMS))
    (remembered,) = of_task(without_names, unseen=str(file), out="seen").verdicts
    assert remembered.verdict == "strong evidence"
    assert "to the numbers of other rows, more than in unseen rows" in remembered.sentence
    assert remembered.n == 120
