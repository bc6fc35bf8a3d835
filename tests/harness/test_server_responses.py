"""Answers of an OpenAI-compatible server that misbehaves, against those of one that does not; and its Retry-After."""

from __future__ import annotations

import gc
import math
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import permutations

import numpy as np
import pytest
import torch
from datasets import Dataset
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.models import retry_after
from lm_eval_leakage.harness.models.answer_faults import ROUNDING, NoAnswer, as_number, as_truth, fault_of
from lm_eval_leakage.harness.models.retry_after import LONGEST_WAIT, Patience, seconds_asked
from lm_eval_leakage.harness.models.server_proof import accept_valid_answers_only
from tests.fakes import FakeLM
from tests.harness.fake_completions import (
    FAULTS,
    IN_BATCHES,
    ByteCompletions,
    FakeServer,
    Status,
    expected,
    serving,
)
from tests.harness.test_task import GOOD, evaluate, lines

STEM = "Which of these does a baker need?"
PAIRS = [(STEM, "\n" + ", ".join(order)) for order in permutations(("flour", "fish", "a hat"))]
SPOILED = 0  # sent last, so that a server has named its model before
BY_HTTP = {"status 500", "status 429", "cut JSON", "HTML"}  # what the harness itself takes for no response
ROWS = [{"question": word, "answer": n} for n, word in enumerate(("dawn", "dusk", "noon"))]
PLAIN = {
    "task": "plain",
    "output_type": "multiple_choice",
    "custom_dataset": lambda **_: {"test": Dataset.from_list(ROWS)},
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_choice": ["red", "yellow", "a grey one"],
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc"}],
}


RIGHT = [expected(*pair) for pair in PAIRS]


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """Those that a server asked for; neither they nor others are waited for."""
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr(retry_after, "pause", pause)
    monkeypatch.setattr(retry_after, "sleep", waited.append)
    monkeypatch.setattr("tenacity.asyncio._portable_async_sleep", at_once)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    return waited


def answers(server: FakeServer, **given):
    accept_valid_answers_only(ByteCompletions)
    instances = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(PAIRS)]
    with serving(server) as url:
        return ByteCompletions(url, **{"max_retries": 2, **given}).loglikelihood(instances)


def of_one_text(_: int, sent: dict) -> bool:
    """Return whether a request holds the text that is spoiled, alone or in a batch."""
    prompts = sent["prompt"] if isinstance(sent["prompt"][0], list) else [sent["prompt"]]
    return "".join(PAIRS[SPOILED]) in {bytes(prompt).decode() for prompt in prompts}


HOW = pytest.mark.parametrize(
    "how",
    [{}, {"batch_size": 2}, {"num_concurrent": 2, "batch_size": 2}],
    ids=["one", "batch", "concurrent"],
)


@HOW
def test_a_server_that_keeps_to_the_rules_is_believed(how) -> None:
    assert answers(FakeServer(), **how) == RIGHT


@HOW
@pytest.mark.parametrize("fault", sorted(set(FAULTS) - BY_HTTP))
def test_a_text_without_a_valid_response_has_no_answer_and_the_others_have_theirs(fault, how, caplog) -> None:
    results = answers(FakeServer(FAULTS[fault], of_one_text), **how)
    broken = [value for value, _ in results if isinstance(value, NoAnswer)]
    assert 1 <= len(broken) <= how.get("batch_size", 1)
    assert all(
        result == right for result, right in zip(results, RIGHT, strict=True) if not isinstance(result[0], NoAnswer)
    )
    assert all(math.isnan(value) and value.reason.startswith("the server") for value in broken)
    assert "its texts have no answer" in caplog.text


@pytest.mark.parametrize(
    "how", [{"batch_size": 3}, {"num_concurrent": 2, "batch_size": 2}], ids=["batch", "concurrent"]
)
@pytest.mark.parametrize("fault", sorted(IN_BATCHES))
def test_no_answer_of_a_batch_counts_if_one_is_about_another_text(fault, how) -> None:
    results = answers(FakeServer(IN_BATCHES[fault], of_one_text), **how)
    broken = [value for value, _ in results if isinstance(value, NoAnswer)]
    assert len(broken) == how["batch_size"]
    assert all("about another text" in value.reason for value in broken)
    assert all(
        result == right for result, right in zip(results, RIGHT, strict=True) if not isinstance(result[0], NoAnswer)
    )
    assert all(math.isnan(value) for value, _ in answers(FakeServer(IN_BATCHES[fault]), **how))


@pytest.mark.parametrize("how", [{}, {"num_concurrent": 2}], ids=["one", "concurrent"])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_request_is_sent_again_after_any_fault(fault, how) -> None:
    faulty = iter([True])
    server = FakeServer(FAULTS[fault], lambda number, sent: of_one_text(number, sent) and next(faulty, False))
    assert answers(server, **how) == RIGHT


def test_an_alias_of_the_model_is_said_and_another_model_is_not_believed(caplog) -> None:
    assert answers(FakeServer(), model="asked/for") == RIGHT
    assert "requests name the model asked/for, the responses the model served" in caplog.text
    results = answers(FakeServer(lambda response: response | {"model": "new"}, lambda n, _: n >= 3))
    assert sum(isinstance(value, NoAnswer) for value, _ in results) == len(PAIRS) - 3


def test_log_likelihoods_are_at_most_0_up_to_rounding() -> None:
    assert [bool(fault_of(value)) for value in (0.0, ROUNDING, 1.01 * ROUNDING, -1e9)] == [False, False, True, False]


SCALARS = [-2.5, np.float32(-2.5), np.float64(-2.5), np.array(-2.5), torch.tensor(-2.5, dtype=torch.bfloat16)]
NO_NUMBERS = [True, np.True_, torch.tensor(False), "-1", None, [-1.0], np.array([-1.0]), torch.tensor([-1.0]), -1j]
TRUTHS = [True, 1, np.True_, np.int64(1), np.array(True), torch.tensor(True)]
NO_TRUTHS = ["False", np.array([True]), torch.tensor([True]), 0.5, math.nan, (True,)]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_a_real_scalar_of_any_library_is_a_number_of_python(value) -> None:
    assert (as_number(value), type(as_number(value)), fault_of(value)) == (-2.5, float, "")


@pytest.mark.parametrize("value", [*NO_NUMBERS, 10**400, torch.tensor(-1.0, device="meta")], ids=repr)
def test_a_truth_value_a_text_and_an_array_are_no_numbers(value) -> None:
    assert math.isnan(as_number(value))
    assert fault_of(value).endswith("it must be finite and at most 0")


@pytest.mark.parametrize("value", TRUTHS, ids=repr)
def test_a_truth_value_of_any_library_is_one_of_python(value) -> None:
    assert as_truth(value) is True


@pytest.mark.parametrize("value", NO_TRUTHS, ids=repr)
def test_a_text_and_an_array_are_no_truth_values(value) -> None:
    assert as_truth(value) is None


class Spoiling(FakeLM):
    """Has no answer, or an impossible one, to one option of the question about dusk."""

    def __init__(self, bad: float) -> None:
        super().__init__(lambda context, option: bad if "dusk" in context and "red" in option else -len(option))


@pytest.mark.parametrize("bad", [NoAnswer("the server answered with 3 instead of choices"), math.nan, math.inf, 1.0])
def test_an_ordinary_task_leaves_a_question_without_a_valid_answer_out_of_its_accuracy(bad, caplog) -> None:
    lm = Spoiling(bad)
    accept_valid_answers_only(type(lm))
    task, manager = ConfigurableTask(config=PLAIN), TaskManager(include_defaults=False)
    results = simple_evaluate(model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0)
    assert results["results"]["plain"]["acc,none"] == 0.5  # of two questions
    (line,) = [sample for sample in results["samples"]["plain"] if "acc" not in sample]
    assert line["doc"]["question"] == "dusk"
    assert "a question of plain is left out, of its accuracy too: the " in caplog.text


@pytest.mark.parametrize(
    "fault", ["one log-probability too few", "another model's answer", "NaN", "status 500", "null"]
)
def test_an_audit_skips_the_question_that_a_server_answers_faultily(fault, questions_file) -> None:
    right = audited(FakeServer(), questions_file)
    results = audited(FakeServer(FAULTS[fault], lambda _, sent: b"dusk" in bytes(sent["prompt"][0])), questions_file)
    assert [line["flagged"] is None for line in results] == [False, True, False]
    assert [line for line in results if line["flagged"] is not None] == [right[0], right[2]]
    assert "the server" in results[1]["reason"] or "the backend failed on it" in results[1]["reason"]


def audited(server: FakeServer, questions_file) -> list[dict]:
    docs = [GOOD, GOOD | {"question": "And at dusk?"}, GOOD | {"question": "And on Mars?"}]
    with serving(server) as url:
        lm = ByteCompletions(url, max_retries=1)
        return lines(evaluate(lm, questions_file(docs) | {"control_form": False}), "max_order")


# ---------------------------------------------------------------------- Retry-After

ONE_OR_MORE = pytest.mark.parametrize("how", [{}, {"num_concurrent": 3}], ids=["one", "concurrent"])


@ONE_OR_MORE
def test_a_request_waits_as_its_server_asks_however_few_retries_there_are(how, waits) -> None:
    server = FakeServer(lambda response: Status(429).asking("17"), lambda number, _: number < 2)
    assert answers(server, max_retries=1, **how) == RIGHT
    assert waits == [17.0, 17.0]
    assert server.n_asked == len(PAIRS) + 2


@ONE_OR_MORE
@pytest.mark.parametrize("delay", ["", "soon", str(int(LONGEST_WAIT) + 1)])
def test_a_server_that_does_not_say_when_or_asks_for_too_long_is_tried_as_often_as_before(how, delay, waits) -> None:
    server = FakeServer(lambda response: Status(429).asking(delay))
    with pytest.raises(Exception, match="429"):
        answers(server, max_retries=2, **how)
    assert waits == []


def test_of_requests_that_fail_at_once_one_is_raised_and_no_traceback_of_the_others_is_printed(caplog) -> None:
    server = FakeServer(lambda response: Status(429).asking(""))
    with pytest.raises(Exception, match="429"):
        answers(server, max_retries=1, num_concurrent=len(PAIRS))
    gc.collect()  # asyncio reports errors that nobody asked for when it forgets their tasks
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_all_waits_of_a_request_together_are_not_longer_than_the_longest() -> None:
    patience = Patience()
    given = [patience.seconds(503, {"Retry-After": "250"}) for _ in range(3)]
    assert given == [250.0, 250.0, None]
    patience = Patience()
    for _ in range(int(LONGEST_WAIT)):
        assert patience.seconds(429, {"Retry-After": "0"}) == 1.0  # so that it ends
    assert patience.seconds(429, {"Retry-After": "0"}) is None


@pytest.mark.parametrize("status", [200, 400, 500])
def test_other_responses_are_not_waited_for(status) -> None:
    assert Patience().seconds(status, {"Retry-After": "1"}) is None


def test_retry_after_is_a_number_of_seconds_or_a_date() -> None:
    hour = datetime.now(timezone.utc) + timedelta(hours=1)
    assert [seconds_asked(text) for text in ("0", "12", "0.5", "-1", "nan", "inf", "")] == [0, 12, 0.5, *[None] * 4]
    assert seconds_asked("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert 3500 < seconds_asked(format_datetime(hour, usegmt=True)) <= 3600
