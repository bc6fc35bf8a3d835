"""Audits of option orders with a control: what is asked, and what the verdict on the data set makes of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.harness.tasks.audit import audits_shards
from lm_eval_leakage.harness.tasks.given_questions import audit_of
from lm_eval_leakage.harness.tasks.templates import WORDING_AUDIT, suffixes
from lm_eval_leakage.logs.audit_line import AuditLine, read_line
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.stats.order_power import CONTROL_FORMS
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import ABOVE, ONE, TASK, evaluate, lines
from tests.logs.test_reference_log import log
from tests.written_tasks import write_task

TREES = (["apple", "alder", "cedar", "birch"], ["rowan", "olive", "hazel", "maple"])  # as published: in no known order
DOCS = [
    {
        "question": f"Which tree has number {i}?",
        "subject": f"grove {i % 2}",
        "choices": [f"{tree} n{i}" for tree in TREES[i % 2]],
        "answer": "ABCD"[i % 4],
    }
    for i in range(38)
]
RISING = [doc | {"choices": [f"{i}", f"{i + 3}", f"{i + 7}", f"{i + 9}"]} for i, doc in enumerate(DOCS)]
ORDERS, N_ORDERS, N_COMPARED = "published_orders", 24, 12
N_CONTROL = len(CONTROL_FORMS) * N_COMPARED


def is_control(context: str) -> bool:
    return context.endswith("Question:") or context.isupper()


def fond_of_natural(context: str, continuation: str) -> float:
    """A model without memory that prefers trees in the order of `TREES`, in whatever form they are listed."""
    trees = [word for word in re.findall(r"[a-z]+", continuation.lower()) if any(word in tree for tree in TREES)]
    return by_hash(context, continuation) + 0.3 * (trees in TREES)  # the noise's deviation


def with_memory(context: str, continuation: str) -> float:
    """The same model after it has seen the benchmark."""
    is_published = continuation == "".join(f"\n{letter}. {option}" for letter, option in published(context))
    return fond_of_natural(context, continuation) + is_published


def published(context: str) -> list[tuple[str, str]]:
    return [pair for doc in DOCS if doc["question"] == context for pair in zip("ABCD", doc["choices"], strict=True)]


def verdict(results) -> dict:
    return results["leakage_details"][TASK]["verdict"]


# ---------------------------------------------------------------------- what is asked


def test_half_of_the_orders_are_asked_again_in_words_and_in_capitals(questions_file) -> None:
    lm = FakeLM(by_hash)
    results = evaluate(lm, questions_file(DOCS))
    orders = [request for request in lm.requests if not is_control(request[0])]
    assert len(orders) == len(DOCS) * N_ORDERS
    places = [list(map(int, line["compared_orders"].split(","))) for line in lines(results, "max_order")]
    compared = [
        orders[number * N_ORDERS + place]
        for number, place_of_question in enumerate(places)
        for place in place_of_question
    ]
    in_words = [request for request in lm.requests if request[0] == "Question:"]
    in_capitals = [request for request in lm.requests if request[0].isupper()]
    assert in_capitals == [(context.upper(), continuation.upper()) for context, continuation in compared]
    assert [continuation for _, continuation in in_words] == [
        " first " + ", then ".join(line[3:] for line in continuation.split("\n")[1:]) for _, continuation in compared
    ]
    for line in lines(results, "max_order"):
        assert (line["n_orders"], len(line["resps"])) == (N_ORDERS, N_ORDERS + N_CONTROL)
        assert len(line["compared_orders"].split(",")) == N_COMPARED
        answer = "ABCD".index(line["doc"]["answer"])
        right = list(map(int, line["right_places"].split(",")))
        assert (right[0], [right.count(place) for place in range(4)]) == (answer, [6] * 4)


@pytest.mark.parametrize(
    ("options", "answer", "right"),
    [
        (("oak", "elm"), 0, (0, 1)),
        (("oak", "elm", "ash"), 1, (1, 2, 0, 0, 2, 1)),
        (("oak", "oak ", "elm"), 0, (0, 0, 1)),
        (("oak", "elm"), None, ()),
    ],
    ids=["two", "three", "the right option twice", "unknown"],
)
def test_each_order_of_few_is_compared_and_says_where_the_right_option_stands(options, answer, right) -> None:
    probe, question = OptionOrders(), Question("1", "Which?", tuple(options), answer)
    orders = probe.chosen_orders(question)
    assert probe.compared(question) == tuple(range(len(orders)))
    assert len(probe.control(question)) == len(CONTROL_FORMS) * len(orders)
    assert tuple(sorted(probe.right_places(question))) == tuple(sorted(right))
    assert probe.right_places(question)[:1] == right[:1]


@given(st.text(max_size=5), st.integers(4, 6))
def test_the_compared_orders_are_the_published_one_and_a_draw_of_the_others(name: str, n_options: int) -> None:
    probe, question = OptionOrders(), Question(name, "Which?", tuple("abcdef"[:n_options]), 1)
    places = probe.compared(question)
    assert (places[0], len({*places}), list(places)) == (0, N_COMPARED, sorted(places))
    assert max(places) < len(probe.chosen_orders(question))


def test_every_other_order_is_compared_as_often() -> None:
    probe, counts = OptionOrders(), Counter()
    for number in range(1000):
        counts.update(probe.compared(Question(str(number), "Which?", tuple("abcd"), 1))[1:])
    expected = 1000 * (N_COMPARED - 1) / (N_ORDERS - 1)
    assert chisquare([counts[place] for place in range(1, N_ORDERS)], [expected] * (N_ORDERS - 1)).pvalue > 0.001


def test_a_question_without_letters_reads_the_same_in_capitals_and_is_not_asked_again() -> None:
    assert OptionOrders().control(Question("1", "2 + 2 =", ("3", "5", "4", "8"), 2)) == ()


@pytest.mark.parametrize(
    "metadata",
    [{ORDERS: "random: page 3"}, {ORDERS: "sealed: ours"}, {"control_form": False}],
    ids=["drawn", "sealed", "off"],
)
def test_the_control_form_is_not_asked_where_it_is_not_needed_or_not_wanted(questions_file, metadata: dict) -> None:
    lm = FakeLM(by_hash)
    results = evaluate(lm, questions_file(DOCS) | metadata)
    assert len(lm.requests) == len(DOCS) * N_ORDERS
    assert not any(is_control(context) for context, _ in lm.requests)
    assert verdict(results)["basis"] == ("orders" if ORDERS in metadata else "ratio")


@pytest.mark.parametrize("status", ["random", "sealed"])
def test_documented_orders_that_the_tests_contradict_are_asked_in_the_control_form(questions_file, status) -> None:
    lm = FakeLM(by_hash)
    results = evaluate(lm, questions_file([*RISING, *DOCS]) | {ORDERS: f"{status}: page 3"})
    assert len([context for context, _ in lm.requests if is_control(context)]) == len(DOCS) * N_CONTROL
    assert verdict(results)[ORDERS] == "written"


def test_questions_with_a_natural_order_are_not_asked_in_the_control_form(questions_file) -> None:
    """Their verdict cannot rest on it, so it would be wasted."""
    lm = FakeLM(by_hash)
    results = evaluate(lm, questions_file([*RISING, *DOCS]))
    control = [continuation for context, continuation in lm.requests if is_control(context)]
    assert len(control) == len(DOCS) * N_CONTROL
    assert all(any(trees[0] in continuation.lower() for trees in TREES) for continuation in control)
    assert (verdict(results)["n"], verdict(results)["n_asked"]) == (len(DOCS), 2 * len(DOCS))
    for line in lines(results, "max_order"):
        assert len(line["resps"]) == N_ORDERS + (0 if line["guards"] else N_CONTROL)


def test_with_a_reference_the_control_form_is_not_asked(questions_file, tmp_path: Path) -> None:
    metadata = questions_file(DOCS)
    elder = evaluate(FakeLM(fond_of_natural), metadata | {"control_form": False})
    log(elder, tmp_path / "elder", TASK)
    lm = FakeLM(lambda *texts: with_memory(*texts) + by_hash(*reversed(texts)))
    verdict_of_run = verdict(evaluate(lm, metadata | {"reference_log": str(tmp_path / "elder")}))
    assert not any(is_control(context) for context, _ in lm.requests)
    assert (verdict_of_run["basis"], verdict_of_run["word"], verdict_of_run["n"]) == (
        "reference",
        "strong evidence",
        len(DOCS),
    )


def test_only_the_audit_of_all_orders_asks_the_control_form_and_papers_are_asked_as_they_ask() -> None:
    questions = [question_from_doc(doc) for doc in DOCS]
    asking = set()
    for suffix in suffixes():
        if audits_shards(suffix) or suffix.endswith(("_rotations", "_text_likelihood", WORDING_AUDIT)):
            continue
        if audit_of(questions, suffix, questions, {}).asks_control:
            asking.add(suffix)
    assert asking == {"leakage_perm"}
    of_paper = audit_of(questions, "leakage_perm_r", questions, {"control_form": True})
    assert not of_paper.asks_control, "12 orders that are no random choice have no verdict"
    assert audit_of(questions, "leakage_perm_r", questions, {"control_form": True, "orders": 0.5}).asks_control


# ---------------------------------------------------------------------- the verdict


def test_a_preference_in_both_forms_is_no_evidence_and_one_in_the_published_form_alone_is(questions_file) -> None:
    metadata = questions_file(DOCS)
    clean, seen = (evaluate(FakeLM(score), metadata) for score in (fond_of_natural, with_memory))
    assert clean["leakage_details"][TASK]["dataset_pvalue,max_order"] < 0.01  # the published test is misled
    assert (verdict(clean)["basis"], verdict(clean)["word"]) == ("control", "inconclusive")
    assert (verdict(seen)["basis"], verdict(seen)["word"]) == ("control", "strong evidence")
    row = seen["results"][TASK]
    assert row["evidence,max_order"] == "strong evidence"
    assert row["evidence_pvalue,max_order"] == verdict(seen)["pvalue"] < 1e-4
    assert "order_ratio,max_order" not in row  # what decides is shown alone


def test_without_a_null_hypothesis_there_is_a_ratio_and_no_pvalue(questions_file) -> None:
    results = evaluate(FakeLM(with_memory), questions_file(DOCS) | {"control_form": False})
    row, verdict_of_run = results["results"][TASK], verdict(results)
    assert row["evidence,max_order"] == "no verdict"
    assert "evidence_pvalue,max_order" not in row
    assert row["order_ratio,max_order"].startswith("24.0, at least 22.")  # all where one in 24 is expected
    assert (verdict_of_run["pvalue"], verdict_of_run["ratio"]) == (None, 24)


# ---------------------------------------------------------------------- groups, results file, messages


@pytest.fixture
def group(tmp_path: Path):
    """Runs the audit of a group of two tasks, each with its part of DOCS."""

    def run(lm: FakeLM, name: str = "trees_leakage_perm", **metadata):
        for member, docs in (("few", DOCS[:19]), ("more", DOCS[19:])):
            write_task(tmp_path, member, docs, text='"{{question}}"')
        (tmp_path / "trees.yaml").write_text("group: trees\ntask:\n  - few\n  - more\n")
        (tmp_path / "listed.yaml").write_text(
            "group: listed\ntask:\n  - few_leakage_perm\n  - more_leakage_perm\n"
            "aggregate_metric_list:\n  - metric: flagged_rate\n    filter_list: [max_order]\n"
        )
        return evaluate(lm, metadata or None, [name], tmp_path)

    return run


def test_a_groups_verdict_is_computed_from_all_questions_of_its_members(group, questions_file) -> None:
    results = group(FakeLM(with_memory))
    verdicts = {name: details["verdict"] for name, details in results["leakage_details"].items()}
    assert verdicts["few_leakage_perm"]["word"] == verdicts["more_leakage_perm"]["word"] == "no verdict"
    assert [verdicts[f"{name}_leakage_perm"]["n_asked"] for name in ("few", "more", "trees")] == [19, 19, 38]
    assert verdicts["trees_leakage_perm"] == verdict(evaluate(FakeLM(with_memory), questions_file(DOCS)))
    assert results["groups"]["trees_leakage_perm"]["evidence,max_order"] == "strong evidence"


def sentences(caplog) -> dict[str, str]:
    """Return what was logged about data sets, by the task's name."""
    sentences_logged = [
        record.getMessage() for record in caplog.records if record.name.endswith("harness.tasks.finished_results")
    ]
    assert len(sentences_logged) == len(set(sentences_logged))
    return dict(sentence.split(": ", 1) for sentence in sentences_logged)


def test_the_sentence_is_logged_for_a_group_instead_of_its_members(group, caplog) -> None:
    results = group(FakeLM(with_memory))
    sentence = results["leakage_details"]["trees_leakage_perm"]["verdict"]["sentence"]
    assert sentences(caplog) == {"trees_leakage_perm": sentence}
    caplog.clear()
    group(FakeLM(with_memory), "listed")  # has no verdict of its own
    assert set(sentences(caplog)) == {"few_leakage_perm", "more_leakage_perm"}


# ---------------------------------------------------------------------- the log


def read(results) -> list[AuditLine]:
    """The lines of the first statistic, as they are read from the saved log."""
    return [read_line(json.loads(json.dumps(line, default=str)), TASK) for line in lines(results, "max_order")]


@pytest.mark.parametrize("with_reference", [False, True])
def test_a_log_is_read_back_as_the_answers_that_the_verdict_was_computed_from(
    questions_file, tmp_path, with_reference: bool
) -> None:
    metadata = questions_file([*DOCS, ONE, ABOVE])
    if with_reference:
        elder = evaluate(FakeLM(fond_of_natural), metadata)
        log(elder, tmp_path / "elder", TASK)
        metadata |= {"reference_log": str(tmp_path / "elder")}
    results = evaluate(FakeLM(with_memory), metadata)
    logged = [line.orders for line in read(results)]
    assert [answer is None for answer in logged] == [False] * len(DOCS) + [True, False]
    answers = [answer for answer in logged if answer is not None]
    assert [answer.guarded for answer in answers] == [False] * len(DOCS) + [True]
    for answer in answers:
        assert len(answer.control) == (0 if with_reference or answer.guarded else N_CONTROL)
        assert len(answer.reference) == (len(answer.loglikelihoods) if with_reference else 0)
    again, verdict_of_log = data_verdict(answers), verdict(results)
    assert (again.word, again.n) == (verdict_of_log["word"], verdict_of_log["n"])
    assert again.pvalue == pytest.approx(verdict_of_log["pvalue"], rel=0.1)
    assert again.tested.mean == pytest.approx(verdict_of_log["mean"], rel=1e-4)
