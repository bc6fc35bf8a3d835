"""Requests and tokens counted without a model, against what the harness's own `hf` is given in a run of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.costs import ROWS_MEASURED, RunSize, size_of_chosen
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.given_questions import NO_METADATA
from tests.checking.conftest import GivenTasksOnly, questions, written
from tests.harness.test_prefix_tree_lm import checkpoint, tokenizer_over_bytes
from tests.harness.test_task import FIVE, TASK, TWINS
from tests.written_tasks import write_task

TEMPLATE = "{% for message in messages %}<{{message.role}}>{{message.content}}{% endfor %}<reply>"
FEW = "fewshot_split: test\nmetric_list: [{metric: acc}]\n"
WRITTEN = """task: few
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{max_gen_toks: 50, until: []}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    checkpoint(folder, max_position_embeddings=1024)
    tokenizer = tokenizer_over_bytes(adds_bos=True)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", GivenTasksOnly)


def sent(model: str, task: str, monkeypatch, include: str | None = None, **given: Any) -> list[tuple[int, ...]]:
    """The token ids of every text that a run of the stock backend would compute."""
    tokens: list[tuple[int, ...]] = []

    def record(self, requests, **_):
        tokens.extend((*context, *continuation) for _, context, continuation in requests)
        return [(0.0, False)] * len(requests)

    monkeypatch.setattr(HFLM, "_loglikelihood_tokens", record)
    manager = GivenTasksOnly(include_path=include, metadata=given.pop("metadata", None))
    lm = HFLM(pretrained=model, device="cpu", dtype="float32")
    simple_evaluate(lm, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=False, **given)
    return tokens


def prefixes(texts: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {text[:stop] for text in texts for stop in range(1, len(text))}


def size(
    model: str, task: str, *, n: int | None = None, include: str = "", metadata=NO_METADATA, chat=False
) -> RunSize:
    """The size of the first `n` questions of a task, or of all."""
    leaves = TaskShelf([include] if include else []).load(task, metadata).leaves
    samples = {name: range(len(task.eval_docs) if n is None else n) for name, task in leaves.items()}
    return size_of_chosen(leaves, samples, TokenizerOnly(model, {}), chat)


@pytest.mark.parametrize("chat", [False, True])
def test_an_audit_is_counted_as_a_run_sends_it(model, chat: bool, questions_file, monkeypatch) -> None:
    row = {"question": "One?", "choices": ["a"], "answer": 0}
    metadata = questions_file([*questions(4), FIVE | {"answer": 0}, TWINS | {"answer": 3}, row])
    size_of_run = size(model, TASK, metadata=metadata, chat=chat)
    texts = sent(model, TASK, monkeypatch, metadata=metadata, apply_chat_template=chat)
    counts = size_of_run.tokens.counts
    assert (counts.n_texts, counts.n_tree_tokens) == (len(texts), len(prefixes(texts)))
    assert counts.n_row_tokens == sum(len(text) - 1 for text in texts)
    assert sum(size_of_run.untestable.values()) == 1


@pytest.mark.parametrize("n_examples", [0, 3])
def test_a_task_with_examples_is_counted_as_a_run_sends_it(model, n_examples: int, tmp_path, monkeypatch) -> None:
    write_task(tmp_path, "few", questions(12), more=f"{FEW}num_fewshot: {n_examples}\n")
    size_of_run = size(model, "few", n=10, include=str(tmp_path))
    texts = sent(model, "few", monkeypatch, include=str(tmp_path), limit=10)
    assert size_of_run.tokens.counts.n_tree_tokens == len(prefixes(texts))
    assert size_of_run.n_requests == len(texts) == 40


def test_a_task_that_generates_counts_what_it_may_write(model, tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text(WRITTEN.format(file=written(tmp_path, questions(3))))
    size_of_run = size(model, "few", include=str(tmp_path))
    assert (size_of_run.method, size_of_run.n_requests, size_of_run.n_generated) == ("generate_until", 3, 150)


def test_requests_about_equal_questions_are_counted_once(model, questions_file, monkeypatch) -> None:
    metadata = questions_file([*questions(4), *questions(2)])
    counts = size(model, TASK, metadata=metadata).tokens.counts
    texts = sent(model, TASK, monkeypatch, metadata=metadata)
    assert counts.n_texts == len(texts) == len({*texts})
    assert counts.n_row_tokens == sum(len(text) - 1 for text in texts)
    assert counts == size(model, TASK, metadata=questions_file(questions(4))).tokens.counts


def test_some_of_many_questions_are_measured_and_the_rest_is_taken_to_be_like_them(model, questions_file) -> None:
    n = 2 * ROWS_MEASURED
    size_of_run = size(model, TASK, metadata=questions_file(questions(n)))
    assert (size_of_run.tokens.n_measured, size_of_run.tokens.n_questions) == (ROWS_MEASURED, n)
    each = size(model, TASK, metadata=questions_file(questions(1))).n_requests
    assert size_of_run.n_requests == pytest.approx(n * each, rel=0.02)  # equal requests are sent once
