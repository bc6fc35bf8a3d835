"""Costs without a model, against what the harness's own `hf` is given in a run of the same task."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.costs import RunSize, Speed, as_markdown, as_records, costs, speed_of
from lm_eval_leakage.scoring.prefix_tree import TokenCounts, TokenEstimate
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
    asked: list[tuple[int, ...]] = []

    def record(self, requests, **_):
        asked.extend((*context, *continuation) for _, context, continuation in requests)
        return [(0.0, False)] * len(requests)

    monkeypatch.setattr(HFLM, "_loglikelihood_tokens", record)
    manager = GivenTasksOnly(include_path=include, metadata=given.pop("metadata", None))
    lm = HFLM(pretrained=model, device="cpu", dtype="float32")
    simple_evaluate(lm, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=False, **given)
    return asked


def prefixes(texts: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {text[:stop] for text in texts for stop in range(1, len(text))}


@pytest.mark.parametrize("chat", [False, True])
def test_an_audit_costs_what_a_run_sends(model, chat: bool, questions_file, monkeypatch) -> None:
    one = {"question": "One?", "choices": ["a"], "answer": 0}
    metadata = questions_file([*questions(4), FIVE | {"answer": 0}, TWINS | {"answer": 3}, one])
    (found,) = costs([TASK], model, metadata=metadata, apply_chat_template=chat).values()
    texts = sent(model, TASK, monkeypatch, metadata=metadata, apply_chat_template=chat)
    counts = found.tokens.counts
    assert (counts.n_texts, counts.n_tree_tokens) == (len(texts), len(prefixes(texts)))
    assert counts.n_row_tokens == sum(len(text) - 1 for text in texts)
    assert sum(found.untestable.values()) == 1


def test_an_audit_with_a_limit_costs_what_its_drawn_questions_do(model, questions_file, monkeypatch) -> None:
    metadata = questions_file([doc | {"question": "Which? " * (1 + row)} for row, doc in enumerate(questions(12))])
    (found,) = costs([TASK], model, metadata=metadata, limit=3).values()
    texts = sent(model, TASK, monkeypatch, metadata=metadata, limit=3)
    assert found.tokens.counts.n_tree_tokens == len(prefixes(texts))


@pytest.mark.parametrize("n_examples", [0, 3])
def test_a_task_with_examples_costs_what_a_run_sends(model, n_examples: int, tmp_path: Path, monkeypatch) -> None:
    write_task(tmp_path, "few", questions(12), more=FEW)
    (found,) = costs(["few"], model, include_paths=[str(tmp_path)], num_fewshot=n_examples, limit=10).values()
    texts = sent(model, "few", monkeypatch, include=str(tmp_path), num_fewshot=n_examples, limit=10)
    assert found.tokens.counts.n_tree_tokens == len(prefixes(texts))
    assert found.n_requests == len(texts) == 40


def test_a_task_that_generates_is_told_by_what_it_may_write(model, tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text(WRITTEN.format(file=written(tmp_path, questions(3))))
    (found,) = costs(["few"], model, include_paths=[str(tmp_path)]).values()
    assert (found.method, found.n_requests, found.n_generated) == ("generate_until", 3, 150)


def test_requests_about_equal_questions_are_counted_once(model, questions_file, monkeypatch) -> None:
    metadata = questions_file([*questions(4), *questions(2)])
    (found,) = costs([TASK], model, metadata=metadata).values()
    texts = sent(model, TASK, monkeypatch, metadata=metadata)
    counts = found.tokens.counts
    assert counts.n_texts == len(texts) == len({*texts})
    assert counts.n_row_tokens == sum(len(text) - 1 for text in texts)
    (without,) = costs([TASK], model, metadata=questions_file(questions(4))).values()
    assert counts == without.tokens.counts


def test_a_sample_is_close_to_all_questions(model, questions_file) -> None:
    metadata = questions_file(questions(150))
    exact, found = (costs([TASK], model, metadata=metadata, questions=n)[TASK] for n in (None, 15))
    assert (exact.tokens.errors.n_tree_tokens, found.tokens.n_measured) == (0, 15)
    for name in ("n_row_tokens", "n_tree_tokens", "n_block_tokens"):
        error, all_of_them = (getattr(one, name) for one in (found.tokens.errors, exact.tokens.counts))
        # numbered questions share more with each other the more there are
        assert abs(getattr(found.tokens.counts, name) - all_of_them) <= 3 * error + 0.02 * all_of_them
        assert error < 0.02 * all_of_them


# ---------------------------------------------------------------------- on screen


def size_of(n_requests: int, n_error: int = 0, method: str = "loglikelihood", **given: Any) -> RunSize:
    counts = TokenCounts(n_requests, 100 * n_requests, 100 * n_requests, 25 * n_requests, 40 * n_requests)
    errors = TokenCounts(0, n_error, n_error, n_error, n_error)
    tokens = TokenEstimate(counts, errors, 50 if n_error else 1000, 1000)
    usual = {"n_generated": 0, "n_characters": 0, "untestable": Counter[str]()} | given
    return RunSize(method, tokens, **usual)


def test_the_table_shows_errors_ratio_and_time() -> None:
    found = {"a": size_of(24_000, 31_234, untestable=Counter({"too short": 3})), "b": size_of(1000)}
    text = as_markdown(found, "hf-prefix-tree", speed_of(8e9, 400), {})
    assert "| a | 1,000 | 24,000 | 2,400,000 ± 1.3 % | 600,000 ± 5.2 % | 960,000 ± 3.3 % | 4.00 | 24 s |" in text
    assert "| b | 1,000 | 1,000 | 100,000 | 25,000 | 40,000 | 4.00 | 1 s |" in text
    assert "| all | 2,000 | 25,000 |" in text
    assert "time: 8e+09 parameters at 400 TFLOP/s, which is 25,000 tokens/s; an estimate" in text
    assert "a: about 3 questions not asked: too short" in text


def test_generated_tokens_are_at_most_and_share_nothing() -> None:
    text = as_markdown({"a": size_of(10, method="generate_until", n_generated=5000)}, "hf", Speed(), {})
    assert "| a | 1,000 | 10 | 1,000 | 5,000 |" in text
    assert "time" not in text


def test_a_task_that_the_model_cannot_answer_is_marked() -> None:
    refusals = {"loglikelihood": "chat gives no log-likelihoods"}
    given = ({"a": size_of(10)}, "chat", Speed(), refusals)
    assert "a cannot run: chat gives no log-likelihoods" in as_markdown(*given)
    assert as_records(*given)[0]["why_not"] == refusals["loglikelihood"]
