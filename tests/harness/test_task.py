"""End to end through the harness's own `simple_evaluate`, with a fake model."""

from __future__ import annotations

import logging

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.questions.fields import question_from_doc
from tests.fakes import FakeLM, by_hash, fond_of

OURS = task_configs_path()
TASK = "mmlu_leakage_perm"
GOOD = {
    "question": "Which colour has the sky?",
    "subject": "art",
    "choices": ["red", "blue", "lime", "grey"],
    "answer": "B",
}
TWINS = GOOD | {"question": "And at dusk?", "choices": ["red", "blue", "red", "grey"]}
FIVE = GOOD | {"question": "And at dawn?", "choices": ["red", "blue", "lime", "grey", "teal"]}
ONE = GOOD | {"question": "One option only", "choices": ["red"]}
SAME = GOOD | {"question": "Identical options", "choices": ["red", "red", "red", "red"]}
EMPTY = GOOD | {"question": " "}


def manager(metadata=None, folder=OURS) -> TaskManager:
    return TaskManager(include_path=str(folder), include_defaults=False, metadata=metadata)


def evaluate(lm, metadata=None, tasks=(TASK,), folder=OURS, **kwargs):
    return simple_evaluate(model=lm, tasks=list(tasks), task_manager=manager(metadata, folder), **kwargs)


def published(doc: dict) -> str:
    first = OptionOrders().requests(question_from_doc(doc))[0]
    return first.context + first.continuation


def lines(results, filter_name: str, task: str = TASK) -> list[dict]:
    return [line for line in results["samples"][task] if line["filter"] == filter_name]


TURNS = [GOOD["choices"][i:] + GOOD["choices"][:i] for i in range(4)]
MANY = [GOOD | {"question": f"Colour {i}?", "choices": [f"{c} {i}" for c in TURNS[i % 4]]} for i in range(60)]
STATISTICS = ("max_order", "outlier")
PER_STATISTIC = {f"{name},{of}" for name in ("flagged_rate", "null_rate", "skipped") for of in STATISTICS}
IN_DETAILS = ("flagged_rate_guarded", "flagged_rate_unguarded", "dataset_pvalue", "dataset_pvalue_unguarded")


def details(results) -> dict:
    return results["leakage_details"][TASK]


@pytest.mark.parametrize(
    ("metadata", "rows"),
    [
        ({}, {"evidence", "evidence_pvalue"}),
        ({"published_orders": "sealed: this test"}, {"evidence", "evidence_pvalue"}),
        ({"control_form": False}, {"evidence", "order_ratio"}),
    ],
)
def test_the_table_has_the_verdicts_rows_once_three_per_statistic_and_no_others(
    questions_file, metadata: dict, rows: set[str]
) -> None:
    results = evaluate(FakeLM(by_hash), questions_file([*MANY, ABOVE]) | metadata)
    printed = {key for key in results["results"][TASK] if "," in key}
    errors = {f"flagged_rate_stderr,{of}" for of in STATISTICS}
    assert printed == PER_STATISTIC | {f"{name},max_order" for name in rows} | errors
    in_details = {key for key in details(results) if "_stderr," not in key}
    assert in_details == {f"{name},{of}" for name in IN_DETAILS for of in STATISTICS} | {"verdict"}


ABOVE = GOOD | {"question": "And at night?", "choices": ["red", "blue", "lime", "all of the above"]}
YEARS = GOOD | {"question": "When was it black?", "choices": ["1901", "1902", "1903", "1904"]}


def test_guarded_and_unguarded_questions_have_rates_of_their_own_in_the_details(questions_file) -> None:
    docs = [GOOD, FIVE, ABOVE, YEARS, ONE]
    results = evaluate(FakeLM(fond_of(*map(published, (GOOD, ABOVE, YEARS)))), questions_file(docs))
    row = results["results"][TASK]
    assert row["flagged_rate,max_order"] == 3 / 4
    rows = details(results)
    assert rows["flagged_rate_guarded,max_order"] == 1
    assert rows["flagged_rate_guarded_stderr,max_order"] == 0
    assert rows["flagged_rate_unguarded,max_order"] == 1 / 2
    assert rows["flagged_rate_unguarded_stderr,max_order"] == 1 / 2
    # one of GOOD (1 in 24) and FIVE (1 in 120) is flagged
    assert rows["dataset_pvalue_unguarded,max_order"] == pytest.approx(1 - 23 / 24 * 119 / 120)
    assert row["skipped,max_order"] == 1
    logged = lines(results, "max_order")
    assert [line["guards"] for line in logged] == ["", "", "anchored", "in_order", ""]
    assert [line["flagged_rate_guarded"] for line in logged] == [None, None, 1.0, 1.0, None]
    assert [line["flagged_rate_unguarded"] for line in logged] == [1.0, 0.0, None, None, None]


def test_templates_are_counted_over_the_whole_benchmark_not_over_the_run(questions_file) -> None:
    docs = [GOOD | {"question": f"Colour {i}?"} for i in range(5)]
    results = evaluate(FakeLM(by_hash), questions_file(docs), limit=1)
    assert [line["guards"] for line in lines(results, "max_order")] == ["templated"]


def test_bad_questions_are_skipped_and_each_reason_is_logged_once(questions_file, caplog) -> None:
    results = evaluate(FakeLM(fond_of(published(GOOD))), questions_file([ONE, GOOD, SAME, EMPTY, ONE]))
    row = results["results"][TASK]
    assert row["skipped,max_order"] == row["skipped,outlier"] == 3  # a copy is counted once
    assert row["flagged_rate,max_order"] == 1
    assert row["null_rate,max_order"] == 1 / 24
    first, good, same, empty, _ = lines(results, "outlier")
    assert [first["flagged"], good["flagged"], same["flagged"], empty["flagged"]] == [None, True, None, None]
    assert first["reason"].startswith("all orders of its 1 option(s) read the same")
    assert same["reason"].startswith("all orders of its 4 option(s) read the same")
    assert empty["reason"] == "question is empty; it must have text"
    messages = [text for text in caplog.messages if "max_order" in text]
    assert messages == [
        f"{TASK}, max_order: {n} question(s) skipped: {line['reason']}"
        for n, line in ((2, first), (1, same), (1, empty))
    ]


def test_a_question_longer_than_the_models_window_is_skipped_before_it_is_scored(questions_file) -> None:
    long = GOOD | {"question": "Why " + "very " * 60 + "long?"}
    lm = FakeLM(by_hash, max_length=40)
    first, second = lines(evaluate(lm, questions_file([long, GOOD])), "max_order")
    assert first["reason"] == "its text has 70 tokens; the model's window holds 40, so raise max_length if possible"
    assert second["flagged"] is not None
    assert not [context for context, _ in lm.requests if "long?" in context]


def test_parameters_of_the_probe_come_from_metadata(questions_file) -> None:
    lm = FakeLM(by_hash)
    evaluate(lm, questions_file([GOOD]) | {"orders": 12, "format": "papers"})
    assert len(lm.requests) == 12 + 2 * 12
    assert lm.requests[0] == ("Which colour has the sky?:", "\nA:red\nB:blue\nC:lime\nD:grey")


def test_under_a_chat_template_the_question_is_the_users_turn(questions_file) -> None:
    lm = FakeLM(by_hash)
    lm.apply_chat_template = lambda turns: "".join(f"<{turn['role']}>{turn['content']}" for turn in turns) + "<bot>"
    type(lm).tokenizer_name = "fake"
    evaluate(lm, questions_file([GOOD]), apply_chat_template=True, system_instruction="Be brief.")
    assert lm.requests[0][0] == "<system>Be brief.<user>Which colour has the sky?<bot>"
    evaluate(plain := FakeLM(by_hash), questions_file([GOOD]), system_instruction="Be brief.")
    assert plain.requests[0][0] == "Be brief.\n\nWhich colour has the sky?"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"probe": "optionorders"}, r"unknown probe 'optionorders'; choose one of: .*option_orders"),
        ({"max_orders": 1}, "max_orders is 1; it must be"),
        ({"format": "tex"}, "format is 'tex'"),
        ({"published_orders": False}, "published_orders is False; write STATUS: SOURCE"),
    ],
)
def test_a_parameter_that_makes_no_sense_ends_the_run_before_the_model_works(
    questions_file, metadata, message
) -> None:
    lm = FakeLM(by_hash)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        evaluate(lm, questions_file([GOOD]) | metadata)
    assert not lm.requests


def inline(questions_file, function: dict) -> dict:
    return {
        "task": "inline",
        "class": LeakageTask,
        "dataset_path": "cais/mmlu",
        "test_split": "test",
        "output_type": "loglikelihood",
        "num_fewshot": 0,
        "metric_list": [{"metric": "skipped", "aggregation": "skipped", "higher_is_better": False}],
        "filter_list": [{"name": "own", "filter": [{"function": "leakage"} | function]}],
        "metadata": {"probe": "option_orders"} | questions_file([GOOD]),
    }


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ({"statistic": "outlier", "delta": 0.2}, "delta is 0.2; scores of an outlier lie between"),
        ({"statistic": "maxorder"}, "unknown statistic 'maxorder'; choose one of:"),
        ({"statistic": "max_order", "delta": -0.2}, "'delta': -0.2} do not fit the statistic 'max_order'"),
    ],
)
def test_a_filter_that_makes_no_sense_ends_the_run_before_the_model_works(questions_file, function, message) -> None:
    with pytest.raises(ValueError, match=message):
        LeakageTask(config=inline(questions_file, function))


def test_the_request_cache_cannot_serve_another_probes_requests(questions_file, monkeypatch, tmp_path, caplog) -> None:
    import lm_eval.caching.cache as cache

    monkeypatch.setattr(cache, "PATH", str(tmp_path / "requests"))
    metadata = questions_file([GOOD, ONE])
    for orders in (12, 6):
        results = evaluate(FakeLM(by_hash), metadata | {"orders": orders}, cache_requests=True)
        assert lines(results, "max_order")[0]["n_orders"] == orders
    assert "mmlu_leakage_perm: --cache_requests is ignored" in caplog.text


def test_the_response_cache_serves_a_second_run(questions_file, tmp_path) -> None:
    first, second = FakeLM(by_hash), FakeLM(by_hash)
    metadata = questions_file([GOOD, ONE])
    before, after = (evaluate(lm, metadata, use_cache=str(tmp_path / "cache")) for lm in (first, second))
    assert lines(before, "outlier") == lines(after, "outlier")
    # the orders of the only testable question, and the compared ones in each control form
    assert len(first.requests) == 24 + 2 * 12
    assert not second.requests


def test_fewer_questions_than_processes_are_refused(questions_file) -> None:
    task = manager(questions_file([GOOD, FIVE, TWINS])).load([TASK])["tasks"][TASK]
    with pytest.raises(ValueError, match="2 questions for 8 processes; .* raise --limit or start fewer"):
        task.build_all_requests(limit=2, rank=5, world_size=8)


def test_the_bundled_benchmark_runs_without_a_hub(caplog) -> None:
    with caplog.at_level(logging.ERROR):
        results = evaluate(FakeLM(by_hash), None, tasks=["fresh_leakage_perm"])
    row = results["results"]["fresh_leakage_perm"]
    assert row["sample_len"] == 200
    assert row["skipped,max_order"] == 0
    assert row["null_rate,max_order"] == pytest.approx(1 / 24)
    assert results["leakage_details"]["fresh_leakage_perm"]["dataset_pvalue,max_order"] > 0.001
    assert not caplog.records
