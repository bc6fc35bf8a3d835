"""Looks at one benchmark by one model share one error, whatever the number of questions that is asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.jobs.findings import LOOKS, TaskFindings, at_their_looks, ends_first_stage, read_looks
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.provenance import Provenance
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_record import CheckedTask
from lm_eval_leakage.results.verdict_words import sentence_of
from tests.checking.conftest import NamedFake, OptionOrders, questions, written
from tests.checking.conftest import checked as checked_with
from tests.report.made import annotation, audited, row, verdict

SPENT = {1: 3 / 4, 2: 5 / 36, 3: 7 / 144}
TOLD = Provenance("m", asked_as="hf")


# ---------------------------------------------------------------------- whole checks


def checked(folder: Path, **given: Any) -> CheckedTask:
    (verdict,) = checked_with(folder, **given).verdicts
    return verdict


@pytest.mark.model
@pytest.mark.usefixtures("only_given_tasks")
def test_more_questions_are_another_look_and_the_same_ones_are_not(fakes: type[NamedFake], tmp_path: Path) -> None:
    docs = questions(120)
    written(tmp_path, docs)
    fakes.score = staticmethod(OptionOrders(docs, (2.0, 0.6)))
    verdicts = [checked(tmp_path, questions=n) for n in (10, 40, 80, "all")]
    assert [verdict.look for verdict in verdicts] == [None, 1, 2, 3]  # of ten questions there is no p-value
    for later in verdicts[1:]:
        assert later.pvalue_adjusted == pytest.approx(min(1.0, later.pvalue / SPENT[later.look]))
        clause = f"after adjustment for look {later.look} at this benchmark in this folder"
        page = (tmp_path / "out" / "leakage.html").read_text()
        assert [clause in text for text in (later.summary, later.sentence, later.citation)] == [later.look > 1] * 3
    assert "look 3 at this benchmark in this folder" in page
    (record,) = json.loads((tmp_path / "out" / "verdicts.json").read_text())["verdicts"]
    assert record["look"] == 3
    before = (tmp_path / "out" / LOOKS).read_text()
    assert checked(tmp_path, questions=40) == verdicts[1]
    assert (tmp_path / "out" / LOOKS).read_text() == before
    assert [look.number for look in read_looks(tmp_path / "out")] == [1, 2, 3]
    assert checked(tmp_path, questions=40, seed=4).look == 4
    assert checked(tmp_path, questions=40, model_args="pretrained=n").look == 1


@pytest.mark.model
@pytest.mark.usefixtures("only_given_tasks")
def test_looks_by_runs_that_do_not_say_their_model_are_counted_apart(fakes: type[NamedFake], tmp_path: Path) -> None:
    written(tmp_path, questions(40))
    checked(tmp_path, output_path=tmp_path / "earlier", questions=30)
    for file in (tmp_path / "earlier" / "runs").rglob("results_*.json"):
        kept = json.loads(file.read_text())
        del kept["leakage_identity"]
        file.write_text(json.dumps(kept))
    assert checked(tmp_path, runs=tmp_path / "earlier" / "runs").look == 1
    assert checked(tmp_path).look == 1
    first, second = read_looks(tmp_path / "out")
    assert "m [unknown] on quiz [" in first.model
    assert "unknown" not in second.model


@pytest.mark.model
@pytest.mark.usefixtures("only_given_tasks", "fakes")
def test_the_sentence_has_the_digest_by_which_looks_know_the_benchmark(tmp_path: Path) -> None:
    written(tmp_path, questions(40))
    verdict = checked(tmp_path)
    (look,) = read_looks(tmp_path / "out")
    assert look.model.endswith(f" on quiz [{verdict.digest}]")
    assert f"on 40 questions of quiz (digest {verdict.digest}) by" in verdict.citation
    written(tmp_path, questions(41)[1:])
    assert checked(tmp_path, out="other").digest != verdict.digest


@pytest.mark.usefixtures("only_given_tasks")
def test_a_file_of_looks_that_was_changed_is_refused_before_a_model_is_loaded(
    fakes: type[NamedFake], tmp_path: Path
) -> None:
    written(tmp_path, questions(30))
    (tmp_path / "out").mkdir()
    for text in ("{}\n", "not JSON", '["a"]'):
        (tmp_path / "out" / LOOKS).write_text(text)
        with pytest.raises(ValueError, match="which counts the looks .* restore it, or give another output_path"):
            checked(tmp_path)
    assert fakes.built == []


# ---------------------------------------------------------------------- verdicts


def audited_questions(n: int, benchmark: str = "mmlu") -> list[Any]:
    return [audited(number, benchmark=benchmark, orders=OrderAnswers((-1.0, -2.0))) for number in range(n)]


def findings(
    task: str = "mmlu",
    *rows: Any,
    n: int = 30,
    model: str = "m",
    benchmarks: Mapping[str, str] | None = None,
    asked_as: str = "",
) -> TaskFindings:
    """Return the findings on a task.

    asked_as: the benchmark of the questions, if another
    """
    tasks = {task: "d"} if benchmarks is None else benchmarks
    questions = [question for name in tasks for question in audited_questions(n, asked_as or name)]
    result = annotation(*questions, rows=rows or (row(task, verdict=verdict(0.5), provenance=TOLD),), model=model)
    return TaskFindings(NamedModel("hf", {"pretrained": model}), task, result, tasks)


def looked(folder: Path, *tasks: TaskFindings) -> list[Any]:
    return [row.verdict for annotated in at_their_looks(tasks, folder) for row in annotated.annotation.rows]


def test_the_word_is_that_of_the_look(tmp_path: Path) -> None:
    words = []
    for n in (20, 30, 40):
        (adjusted_verdict,) = looked(tmp_path, findings("mmlu", row(verdict=verdict(0.001), provenance=TOLD), n=n))
        assert adjusted_verdict.level == pytest.approx(0.01 * SPENT[adjusted_verdict.look])
        assert adjusted_verdict.pvalue == 0.001
        words.append((adjusted_verdict.look, adjusted_verdict.word))
    assert words == [(1, VerdictWord.EVIDENCE), (2, VerdictWord.EVIDENCE), (3, VerdictWord.INCONCLUSIVE)]


def test_a_first_stage_and_the_whole_spend_together_what_one_look_does(tmp_path: Path) -> None:
    """Bonferroni: evidence at a tenth of the level by the first stage, or evidence by all questions."""

    def staged(pvalue: float) -> Any:
        result = findings("mmlu", row(verdict=verdict(pvalue), provenance=TOLD))
        return looked(tmp_path, replace(result, staged=True))[0]

    whole = staged(0.2)
    assert not ends_first_stage(whole)
    first_stage = 0.01 * SPENT[1] - whole.level
    assert first_stage == pytest.approx(0.1 * 0.01 * SPENT[1])
    for share, word in (
        (0.99, VerdictWord.EVIDENCE),
        (1.01, VerdictWord.EVIDENCE),
        (0.01, VerdictWord.STRONG_EVIDENCE),
    ):
        second = staged(share * first_stage)
        assert (second.word, ends_first_stage(second)) == (word, share < 1)
    assert not ends_first_stage(replace(whole, tested=replace(whole.tested, pvalue=math.nan)))


def test_looks_and_verdicts_that_are_shown_together_are_both_adjusted_for(tmp_path: Path) -> None:
    """At look 2 of one benchmark and look 1 of another."""
    looked(tmp_path, findings("a", n=20))
    a, b = looked(tmp_path, findings("a", row("a", verdict=verdict(0.0005), provenance=TOLD)), findings("b"))
    assert (a.look, b.look) == (2, 1)
    assert (a.adjusted, b.adjusted) == pytest.approx((2 * 0.0005 / SPENT[2], 0.5 / SPENT[1]))
    assert "0.0072 after adjustment for 2 verdicts and look 2 at this benchmark in this folder" in sentence_of(a)
    assert "0.67 after adjustment for 2 verdicts and later looks" in sentence_of(b)
    assert (a.level, b.level) == pytest.approx((0.01 * SPENT[2], 0.01 * SPENT[1]))


def test_members_and_subjects_are_at_the_look_of_the_group_that_was_asked_for(tmp_path: Path) -> None:
    rows = [
        row("mmlu", "group", verdict=verdict(0.5), provenance=TOLD),
        row("mmlu_a", group="mmlu", verdict=verdict(0.5)),
        row("mmlu_a/algebra", "subject", group="mmlu", verdict=verdict(0.5)),
    ]
    tasks = {"mmlu_a": "d", "mmlu_b": "e", "mmlu_without_audit": ""}
    alone = findings("mmlu_a", n=20, benchmarks={"mmlu_a": "d"})
    for n, look in ((20, 1), (21, 2)):
        verdicts = looked(tmp_path, findings("mmlu", *rows, n=n, benchmarks=tasks), alone)
        assert [verdict.look for verdict in verdicts] == [look, look, look, 1]
    assert [look.model.partition(" on ")[2].partition(" ")[0] for look in read_looks(tmp_path)] == [
        "mmlu",
        "mmlu_a",
        "mmlu",
    ]


def test_subjects_of_a_task_that_is_asked_for_alone_and_in_a_group_are_adjusted_apart(tmp_path: Path) -> None:
    of_group = [
        row("grp", "group", verdict=verdict(0.5), provenance=TOLD),
        row("quiz", group="grp", verdict=verdict(0.3)),
        *(row(f"quiz/{name}", "subject", group="grp", verdict=verdict(p)) for name, p in (("a", 0.2), ("b", 0.5))),
    ]
    alone = [
        row("quiz", verdict=verdict(0.004), provenance=TOLD),
        *(row(f"quiz/{name}", "subject", verdict=verdict(p)) for name, p in (("a", 0.01), ("b", 0.4), ("c", 0.5))),
    ]
    verdicts = looked(tmp_path, findings("grp", *of_group, benchmarks={"quiz": "d"}), findings("quiz", *alone))
    assert [verdict.n_together for verdict in verdicts] == [2, 1, 2, 2, 2, 3, 3, 3]
    assert [verdict.adjusted for verdict in verdicts[1:5]] == pytest.approx(
        [0.4, 0.4 / SPENT[1], 0.5 / SPENT[1], 0.008 / SPENT[1]]
    )


def test_questions_of_given_runs_under_another_name_are_kept_apart_too(tmp_path: Path) -> None:
    """Else all of their looks would be the first one."""
    for n in (20, 21):
        at_their_looks([findings(n=n, asked_as="other name")], tmp_path)
    assert [look.number for look in read_looks(tmp_path)] == [1, 2]


def test_another_model_or_benchmark_has_looks_of_its_own(tmp_path: Path) -> None:
    assert looked(tmp_path, findings(n=20))[0].look == 1
    assert looked(tmp_path, findings(model="n", n=21))[0].look == 1
    assert looked(tmp_path, findings(benchmarks={"mmlu": "of other rows"}, n=21))[0].look == 1
    assert looked(tmp_path, findings(n=21))[0].look == 2
