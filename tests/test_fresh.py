"""The bundled benchmark has the properties that make it a control."""

from __future__ import annotations

import json
import re
from collections import Counter

from lm_eval.tasks import TaskManager

from lm_eval_leakage import question_from_doc, task_configs_path

DOCS = [
    json.loads(line)
    for line in (task_configs_path() / "fresh" / "fresh.jsonl").read_text(encoding="utf-8").splitlines()
]
NATURAL = re.compile(
    r"of the above|both [A-D]\b|neither|\d|^(true|false|yes|no|always|never|sometimes)$", re.IGNORECASE
)


def test_200_questions_over_at_least_ten_subjects() -> None:
    assert len(DOCS) == len({doc["id"] for doc in DOCS}) == len({doc["question"] for doc in DOCS}) == 200
    assert min(Counter(doc["subject"] for doc in DOCS).values()) == 20
    assert len({doc["subject"] for doc in DOCS}) >= 10


def test_four_options_without_a_natural_order() -> None:
    for doc in DOCS:
        options = doc["choices"]
        assert len({option.strip().lower() for option in options}) == 4, doc
        assert not [option for option in options if NATURAL.search(option)], doc
        assert options not in (sorted(options), sorted(options, reverse=True)), doc
        assert all(text.isascii() and text == " ".join(text.split()) for text in (doc["question"], *options)), doc
        assert question_from_doc(doc).answer == doc["answer"], doc


def test_the_correct_option_is_given_away_neither_by_place_nor_by_length() -> None:
    assert set(Counter(doc["answer"] for doc in DOCS).values()) == {50}
    longest = sum(max(doc["choices"], key=len) == doc["choices"][doc["answer"]] for doc in DOCS)
    assert 30 <= longest <= 70  # 50 expected


def test_a_limit_takes_questions_of_all_subjects() -> None:
    assert len({doc["subject"] for doc in DOCS[:10]}) == 10


def test_no_two_questions_have_the_same_options() -> None:
    assert max(Counter(frozenset(doc["choices"]) for doc in DOCS).values()) == 1


def test_it_is_a_task_that_asks_for_the_letter_of_the_right_option(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the file of questions is found from anywhere
    manager = TaskManager(include_path=str(task_configs_path()), include_defaults=False)
    task = manager.load(["fresh"])["tasks"]["fresh"]
    docs = list(task.eval_docs)
    assert [doc["id"] for doc in docs] == [doc["id"] for doc in DOCS]
    first, right = docs[0], "ABCD"[DOCS[0]["answer"]]
    options = [f"{letter}. {option}" for letter, option in zip("ABCD", DOCS[0]["choices"], strict=True)]
    assert task.doc_to_text(first) == "\n".join([DOCS[0]["question"], *options, "Answer:"])
    assert task.doc_to_choice(first)[task.doc_to_target(first)] == right
