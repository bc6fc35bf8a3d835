"""Audits of tasks that no YAML of ours describes, through the harness's own task manager and `simple_evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval.utils import make_table

from lm_eval_leakage import leakage_task
from lm_eval_leakage.harness.tasks.audit import RefusedAudit
from lm_eval_leakage.harness.tasks.base_task import refusal_of_readings
from lm_eval_leakage.harness.tasks.data import ReadDoc
from lm_eval_leakage.records import Question
from tests.checking.conftest import written
from tests.fakes import FakeLM, Writer, by_hash, fond_of
from tests.harness.test_task import evaluate
from tests.harness.test_task import manager as manager_of
from tests.written_tasks import LETTERED, published, write_task

COLOURS = ["red", "blue", "lime", "grey"]
ROWS = [
    {"question": f"Which is colour {i}?", "choices": [f"{c} {i}" for c in COLOURS], "answer": i % 4} for i in range(3)
]
TEXTS: dict[str, str] = {}
WORDS = {"text": '"{{question}} True or false?"', "choices": '["true", "false"]'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    return tmp_path / "tasks"


@pytest.fixture
def task(folder: Path):
    """Writes a task's YAML and its data."""

    def write(name: str, shape: dict[str, str], docs: list[dict] = ROWS, more: str = "") -> None:
        write_task(folder, name, docs, **shape, more=more)

    return write


def manager(folder: Path, **metadata: object) -> TaskManager:
    return manager_of(metadata or None, folder)


def run(folder: Path, name: str, lm: FakeLM | None = None, **metadata: object):
    return evaluate(lm or FakeLM(by_hash), metadata or None, [name], folder)


@pytest.mark.parametrize("shape", [LETTERED, TEXTS], ids=["in its own prompt", "with the usual block"])
def test_any_task_has_an_audit_by_name(folder, task, shape) -> None:
    task("colours", shape)
    lm = FakeLM(by_hash)
    results = run(folder, "colours_leakage_perm", lm=lm)
    assert len(lm.requests) == 3 * (24 + 2 * 12)  # every order, and the compared ones in each control form
    assert lm.requests[0] == ("Which is colour 0?", "\nA. red 0\nB. blue 0\nC. lime 0\nD. grey 0")
    assert results["results"]["colours_leakage_perm"]["skipped,max_order"] == 0
    assert results["configs"]["colours_leakage_perm"]["metadata"]["audit_of"] == "colours"


# ---------------------------------------------------------------------- groups and tags


def write_group(folder: Path, *members: str) -> None:
    (folder / "all.yaml").write_text("group: everything\ntask:\n" + "".join(f"  - {name}\n" for name in members))


def test_members_that_cannot_be_audited_are_named_and_the_others_run(folder, task, caplog) -> None:
    task("colours", LETTERED)
    task("words", WORDS)
    write_group(folder, "colours", "words")
    results = run(folder, "everything_leakage_perm")
    assert results["group_subtasks"]["everything_leakage_perm"] == ["colours_leakage_perm"]
    assert "words is not audited: the options are words of the task, the same for every question: true" in caplog.text
    write_group(folder, "words")
    with pytest.raises(RefusedAudit, match="none of the 1 members of everything"):
        run(folder, "everything_leakage_perm")


def test_a_tag_is_the_audits_of_its_tasks(folder, task) -> None:
    task("colours", LETTERED, more="tag: hues\n")
    task("shades", TEXTS, more="tag: hues\n")
    assert set(run(folder, "hues_leakage_perm")["results"]) == {"colours_leakage_perm", "shades_leakage_perm"}


def test_the_tasks_of_a_group_share_the_shards_and_its_tests_are_of_all_of_them(folder, task) -> None:
    many = [{"question": f"Which, {i}?", "choices": COLOURS, "answer": 0} for i in range(40)]
    for name in ("colours", "shades"):
        task(name, LETTERED, many)
    write_group(folder, "colours", "shades")
    results = run(folder, "everything_leakage_shared_likelihood", shards=6, examples=4, permutations=5)
    members = [results["results"][f"{name}_leakage_shared_likelihood"] for name in ("colours", "shades")]
    group = results["groups"]["everything_leakage_shared_likelihood"]
    assert [member["sample_len"] for member in members] == [3, 3]
    gains = [member["order_gain,shared_likelihood"] for member in members]
    assert group["order_gain,shared_likelihood"] == pytest.approx(sum(gains) / 2)
    assert 0 < group["ttest_pvalue,shared_likelihood"] < 1


# ---------------------------------------------------------------------- names


def test_names_are_matched_as_the_command_line_does(folder, task) -> None:
    for name in ("colours", "shades"):
        task(name, LETTERED, more="tag: hues\n")
    manager_of_task = manager(folder)
    assert manager_of_task.match_tasks(["colours_leakage_perm"]) == ["colours_leakage_perm"]
    assert manager_of_task.match_tasks(["*s_leakage_perm"]) == ["colours_leakage_perm", "shades_leakage_perm"]
    assert manager_of_task.match_tasks(["hues_leakage_perm", "shades"]) == ["hues_leakage_perm", "shades"]
    assert manager_of_task.match_tasks(["nothing_leakage_perm", "colours_leakage_perm_leakage_perm"]) == []
    assert "colours_leakage_perm" not in manager_of_task.all_tasks  # not listed, since every task has one


# ---------------------------------------------------------------------- other audits

MANY = [
    {"question": f"Which is colour number {i} here?", "choices": [f"{c} {i}" for c in COLOURS], "answer": i % 4}
    for i in range(8)
]


def test_permutation_r_asks_for_what_the_paper_asks(folder, task) -> None:
    task("colours", LETTERED)
    lm = FakeLM(by_hash)
    run(folder, "colours_leakage_perm_r", lm=lm)
    assert len(lm.requests) == 3 * 12
    blocks = [continuation for _, continuation in lm.requests[:12]]
    orders = ["ABCD", "ABDC", "ACBD", "BACD", "BCDA", "BDAC", "CABD", "CADB", "DABC", "DACB", "DBAC", "DCAB"]
    assert blocks == [
        "".join(f"\n{label}. {COLOURS['ABCD'.index(shown)]} 0" for label, shown in zip("ABCD", order, strict=True))
        for order in orders
    ]


def test_a_model_that_writes_the_options_of_one_question_is_seen(folder, task) -> None:
    task("colours", LETTERED, MANY)
    published_text = published(MANY[2])
    lm = Writer(
        lambda context: (
            published_text[len(context) :].split("\n")[0] if published_text.startswith(context) else "nothing"
        )
    )
    results = run(folder, "colours_leakage_ngram", lm=lm)
    row = results["results"]["colours_leakage_ngram"]
    assert row["reproduced_rate,reproduction"] == 1 / 8
    assert row["reproduced_rate_stderr,reproduction"] == pytest.approx(1 / 8)
    assert row["control_rate,reproduction"] == 0
    logged = results["samples"]["colours_leakage_ngram"]
    assert [line["hit_rate"] for line in logged] == [0, 0, 1, 0, 0, 0, 0, 0]
    context, options = lm.requests[0]
    assert context == "Which is colour number 0 here?\nA."
    assert options["max_gen_toks"] == len(MANY[0]["choices"][0].split()) + 1


# ---------------------------------------------------------------------- data_files


@pytest.fixture
def mine(tmp_path: Path):
    """Writes a user's file."""
    return lambda *docs: str(written(tmp_path, docs, "mine.jsonl"))


def requests_of(folder: Path, name: str, file: str) -> list[tuple[str, str]]:
    lm = FakeLM(by_hash)
    run(folder, name, lm, data_files=file, orders=2, control_form=False)
    return lm.requests


MINE = {"question": "Which is mine?", "choices": ["oak", "elm", "ash", "yew"], "answer": "B"}


def test_a_users_file_is_audited_in_the_tasks_own_prompt(folder, task, mine) -> None:
    task("colours", LETTERED | {"text": LETTERED["text"].replace("{{question}}", "Pick: {{question}}")})
    first, second = requests_of(folder, "colours_leakage_perm", mine(MINE))
    assert first == ("Pick: Which is mine?", "\nA. oak\nB. elm\nC. ash\nD. yew")
    assert second[0] == first[0]


def test_a_users_file_is_prepared_as_the_tasks_own_data_are(folder, task, mine) -> None:
    (folder / "prepare.py").write_text(
        "def prepare(docs):\n    return docs.map(lambda doc: {'query': doc['question'].upper()})\n"
    )
    task("colours", {"text": '"{{query}}\\nAnswer:"'}, more="process_docs: !function prepare.prepare\n")
    (audit,) = manager(folder, data_files=mine(MINE)).load(["colours_leakage_perm"])["tasks"].values()
    assert [question.prompt for question in audit.benchmark()] == ["WHICH IS MINE?\nAnswer:"]


def test_a_users_file_that_the_task_cannot_render_is_audited_as_plain_questions_with_a_warning(
    folder, task, mine, caplog
) -> None:
    task("colours", {"text": '"{{stem}}"'}, [{"stem": row["question"]} | row for row in ROWS])
    requests = requests_of(folder, "colours_leakage_perm", mine(MINE))
    assert requests[0] == ("Which is mine?", "\nA. oak\nB. elm\nC. ash\nD. yew")
    assert "colours cannot render the rows of data_files=" in caplog.text
    assert "'stem' is undefined" in caplog.text


def test_a_users_file_of_other_fields_is_refused_with_those_that_it_has_and_those_that_are_needed(
    folder, task, mine
) -> None:
    task("colours", LETTERED)
    with pytest.raises(RefusedAudit) as refused:
        run(folder, "colours_leakage_perm", data_files=mine({"frage": "Welche?", "wahl": ["a", "b"]}))
    reason = str(refused.value)
    assert "mine.jsonl', whose rows have the fields ['frage', 'wahl'], and colours cannot read them as" in reason
    assert "own rows have ['question', 'choices', 'answer']; rename the fields to those" in reason


def test_one_file_is_not_audited_once_per_task_of_a_group_or_tag(folder, task, mine) -> None:
    for name in ("few", "more"):
        task(name, LETTERED, more="tag: hues\n")
    write_group(folder, "few", "more")
    for name in ("everything_leakage_perm", "hues_leakage_perm"):
        with pytest.raises(RefusedAudit, match="2 tasks, each of which would audit that one file; name one of"):
            requests_of(folder, name, mine(MINE))
    assert requests_of(folder, "few_leakage_perm", mine(MINE))[0][0] == "Which is mine?"
    with pytest.raises(RefusedAudit, match="leakage_perm has 7 tasks"):
        manager_of({"data_files": mine(MINE)}).load(["leakage_perm"])


def test_shards_of_a_users_file_are_made_of_its_rows(folder, task, mine) -> None:
    task("colours", LETTERED)
    file = mine(*(MINE | {"question": f"Which is mine, {i}?"} for i in range(20)))
    manager_of_task = manager(folder, data_files=file, shards=2, examples=4, permutations=2)
    (audit,) = manager_of_task.load(["colours_leakage_shared_likelihood"])["tasks"].values()
    assert all("Which is mine" in shard.options[0] for shard in audit.shards.values())


def test_half_a_surrogate_pair_of_a_row_is_replaced_before_the_harness_hashes_it() -> None:
    row = ReadDoc({"question": "Which\ud800?", "choices": ["a\udfff"]}, lambda doc: question(*doc["choices"]))
    assert json.dumps(row, ensure_ascii=False).encode()
    assert row.reading == question("a\ufffd")


# ---------------------------------------------------------------------- in Python


def test_a_task_object_is_audited_without_names(folder, task) -> None:
    task("colours", LETTERED)
    base = manager(folder).load(["colours"])["tasks"]["colours"]
    audit = leakage_task(base, probe="option_orders", orders=2, control_form=False)
    lm = FakeLM(by_hash)
    results = simple_evaluate(model=lm, tasks=[audit], task_manager=manager(folder))
    assert len(lm.requests) == 3 * 2
    assert "flagged_rate,max_order" in results["results"]["colours_leakage_perm"]
    with pytest.raises(ValueError, match="no audit uses the probe 'nothing'"):
        leakage_task(base, probe="nothing")


# ---------------------------------------------------------------------- what is refused, skipped or noted


def question(*options: str) -> Question:
    return Question("q", "Which?", options)


def test_options_that_are_the_tasks_own_words_are_refused_and_the_benchmarks_own_are_not() -> None:
    wrong = [question("Wrong", "Not wrong"), question("Wrong", "Not wrong")]
    assert "same for every question" in (refusal_of_readings(wrong) or "")
    assert refusal_of_readings(wrong, in_data={"Wrong", "Not wrong", "Which?"}) is None
    assert refusal_of_readings([question("Wrong", "Not wrong"), question("Right", "Not wrong")]) is None
    unknown = ("not said", "nobody knows", "who knows")
    reason = refusal_of_readings([question("Ann", *unknown), question("Bob", *unknown)]) or ""
    assert reason.startswith("3 of 4 options are words of the task, the same for every question: not said, nobody")


def test_with_two_options_the_pooled_test_is_shown_instead_of_a_rate(folder, task, caplog) -> None:
    pairs = [row | {"choices": row["choices"][:2], "answer": i % 2} for i, row in enumerate(ROWS)]
    task("pairs", TEXTS, pairs)
    results = run(folder, "pairs_leakage_perm", lm=FakeLM(fond_of(*map(published, pairs))))
    row = results["results"]["pairs_leakage_perm"]
    assert row["flagged_rate,max_order"] == "2 options: no rate"
    assert results["leakage_details"]["pairs_leakage_perm"]["dataset_pvalue,max_order"] == pytest.approx(1 / 8)
    assert row["skipped,outlier"] == 3
    assert "2 options: no rate" in make_table(results)
    assert "3 of 3 questions meet the criterion, 2 would by chance" in caplog.text


def test_answers_that_never_move_are_noted(folder, task, caplog) -> None:
    same = [row | {"question": f"{row['question']} {i}", "answer": 2} for i in range(7) for row in ROWS]
    task("colours", LETTERED, same)
    manager(folder).load(["colours_leakage_perm"])
    assert "the right option is always the third published one" in caplog.text
