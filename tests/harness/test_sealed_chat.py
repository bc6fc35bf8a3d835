"""The exact test by generated text, through the harness's own chat backend and a stand-in server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.detectors.guesses import CHAT_FORMS, NEXT_INSTRUCTION
from lm_eval_leakage.results.seal_audit import seal_audit
from tests.fakes import Writer
from tests.harness.fake_completions import serving
from tests.sealed import NAME, run_sealed, sealed_folder
from tests.sealed import rows as sealed_rows

of_apis = pytest.mark.skipif(find_spec("tenacity") is None, reason="the harness needs tenacity for APIs: lm_eval[api]")

Reply = Callable[[str], "str | None"]
COLOURS = ["red", "blue", "lime", "grey"]
AUDIT = "fresh_leakage_sealed_chat"
INSTRUCTED = NEXT_INSTRUCTION.replace("{{ question }}", "")
DRAWN = "random: drawn in this test"


def rows(seed: int, n: int = 40) -> list[dict[str, Any]]:
    """The same questions for every seed, their options in the order that it draws."""
    rng = random.Random(seed)
    drawn = []
    for i in range(n):
        choices = rng.sample([f"{c} {i}" for c in COLOURS], 4)
        drawn.append({"question": f"Which is colour {i}?", "choices": choices, "answer": choices.index(f"red {i}")})
    return drawn


PUBLISHED = rows(1)


def text_of(row: dict[str, Any]) -> str:
    options = zip("ABCD", row["choices"], strict=True)
    return row["question"] + "".join(f"\n{letter}. {option}" for letter, option in options)


def remembering(rows: Sequence[dict[str, Any]], otherwise: str) -> Reply:
    """A model that completes the texts which it knows, after an instruction or not, and says which of two listings is
    in them."""
    texts = [text_of(row) for row in rows]

    def reply(prompt: str) -> str:
        if "Listing 1:" in prompt:
            stem, _, listings = prompt.partition("\n")
            shown = ["\n".join([stem, *part.splitlines()[1:5]]) for part in listings.split("Listing")[1:3]]
            places = [place for place, text in enumerate(shown) if text in texts]
            return str(1 + places[0]) if places else otherwise
        start = prompt.removeprefix(INSTRUCTED)
        return next((text[len(start) :].split("\n")[0] for text in texts if text.startswith(start)), otherwise)

    return reply


@contextmanager
def chat_server(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a chat API, and what it was asked."""
    requests: list[dict[str, Any]] = []

    def answer(sent: dict[str, Any]) -> dict[str, Any]:
        requests.append(sent)
        content = reply(sent["messages"][-1]["content"])
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}

    with serving(SimpleNamespace(answer=answer)) as address:
        yield address, requests


@pytest.fixture
def audited(questions_file):
    """Runs the audit with `model`, arguments of simple_evaluate; gives its rows, without the pipeline's name."""

    def run(model: Any, **metadata: object) -> dict[str, Any]:
        settings = {"published_orders": DRAWN} | questions_file(PUBLISHED) | metadata
        tasks = TaskManager(include_path=str(task_configs_path()), include_defaults=False, metadata=settings)
        results = simple_evaluate(tasks=[AUDIT], task_manager=tasks, metadata=settings, **model)
        figures = results["results"][AUDIT] | results["leakage_details"][AUDIT]
        return {key.split(",")[0]: value for key, value in figures.items()}

    return run


def chat(address: str) -> dict[str, Any]:
    arguments = {"model": "stand-in", "base_url": address, "num_concurrent": 4}
    return {"model": "local-chat-completions", "model_args": arguments, "apply_chat_template": True}


HALF = remembering(PUBLISHED[::2], otherwise="I do not know.")
every_form = pytest.mark.parametrize("form", CHAT_FORMS)


@of_apis
@every_form
def test_a_chat_model_that_remembers_half_of_the_benchmark_is_found(audited, form: str) -> None:
    with chat_server(HALF) as (address, requests):
        row = audited(chat(address), chat_form=form)
    rate = 1 / 2 if form == "pair" else 1 / 4
    assert row["guess_hits"] == row["guesses"] == 0.5
    assert row["null_rate"] == pytest.approx(rate / 2)
    assert row["guess_pvalue"] == pytest.approx(rate**20)
    assert 0.3 < row["guess_seen_low"] <= 0.5
    assert row["guess_log_evalue"] > 10
    assert row["skipped"] == 0
    assert len(requests) == 40
    for sent in requests:
        assert sent["max_tokens"] <= 40
        assert "\n" in sent["stop"]
        assert sent["temperature"] == 0


@of_apis
def test_refusals_empty_replies_and_none_at_all_are_counted_as_misses(audited) -> None:
    replies = cycle(["I'm sorry, but I can't help with that.", "", None, " \n"])
    with chat_server(lambda prompt: next(replies)) as (address, _):
        row = audited(chat(address))
    assert (row["guess_hits"], row["guesses"], row["skipped"]) == (0, 0, 0)
    assert (row["guess_pvalue"], row["guess_seen_low"]) == (1, 0)
    assert row["guess_pvalue_of_all"] == pytest.approx(1)


@every_form
def test_a_model_that_knows_the_questions_in_another_order_is_not_found(audited, form: str) -> None:
    row = audited({"model": Writer(remembering(rows(seed=2), otherwise="1"))}, chat_form=form)
    assert row["guess_pvalue"] > 0.05
    assert row["guess_seen_low"] == 0


def test_of_a_sealed_benchmark_the_key_says_what_a_guess_is_worth_and_seal_audit_reads_it(tmp_path: Path) -> None:
    given = sealed_rows(30)
    given[3] |= {"seal": "keep"}
    given[4] |= {"answer": [0, 2]}
    sealed = sealed_folder(tmp_path, given)
    public = [{"question": question.wordings[0], "choices": question.options} for question in sealed.seal.questions]
    wordings = [question.wordings[0] for question in sealed.seal.questions[:20] if question.order_drawn]
    model = Writer(remembering(public[:20], "No idea."))
    _, results = run_sealed(sealed, "leakage_sealed_chat", model, tmp_path / "runs", instruction="{{ question }}")
    row = {key.split(",")[0]: value for key, value in results["results"][f"{NAME}_leakage_sealed_chat"].items()}
    assert row["skipped"] == 1
    assert row["guess_hits"] == pytest.approx(len(wordings) / 29)
    assert row["guess_pvalue"] == pytest.approx(0.25 ** len(wordings))
    (verdict,) = seal_audit([tmp_path / "runs"], sealed.private).verdicts
    (test,) = verdict.tests
    assert (test.name, test.pvalue) == ("chat guesses", pytest.approx(row["guess_pvalue"]))
    assert sum(test.left_out.values()) == 1
    assert verdict.word == "strong evidence"


@pytest.mark.parametrize("orders", ["written: by their author", None])
def test_where_orders_were_not_drawn_nothing_is_asked(audited, orders: str | None) -> None:
    model = Writer(HALF)
    row = audited({"model": model}, published_orders=orders)
    assert row["skipped"] == 40
    assert not model.requests
