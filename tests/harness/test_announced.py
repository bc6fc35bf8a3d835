"""What a run says before its first request and after its first answers."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from lm_eval.models.api_models import JsonChatStr

from lm_eval_leakage.harness.models import time_left as module
from lm_eval_leakage.harness.models.question_requests import n_request_characters
from lm_eval_leakage.harness.models.request_tokens import (
    FALLS_BACK_TO,
    backend_name,
    has_tokenizer,
    read_by,
    size_estimated,
    tokens_of,
)
from lm_eval_leakage.harness.models.time_left import WORTH_TELLING, Pace, TimeLeft, announced
from lm_eval_leakage.harness.seams.registries import OUR_MODELS
from lm_eval_leakage.scoring.prefix_tree import token_counts
from tests.fakes import FakeLM, by_hash
from tests.harness.test_prefix_tree_lm import UNSUITED, checkpoint, lm_of
from tests.harness.test_task import GOOD, TASK, evaluate
from tests.harness.test_tokenising import OnlyTokens

TASKS = [SimpleNamespace(config=SimpleNamespace(task=name)) for name in ("first", "second")]


@pytest.fixture(autouse=True)
def _logger_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm_eval's own does not pass its messages on once it is set up."""
    logger_of_test = logging.Logger(module.__name__, logging.INFO)
    logger_of_test.parent = logging.root
    monkeypatch.setattr(module, "logger", logger_of_test)


class Bytes(OnlyTokens):
    """The harness's `hf` with a tokenizer over bytes."""

    rank, max_length = 0, 50

    def __init__(self) -> None:
        super().__init__(False, None)


def requests(n_questions: int, texts, task=TASKS[0]):
    return [SimpleNamespace(args=text, task=task, doc_id=i) for i in range(n_questions) for text in texts(i)]


def orders(i: int):
    return [(f"question {i:03}", f" {first}{second}") for first in "abc" for second in "abc"]


def test_before_the_first_request_a_run_says_how_much_it_asks(questions_file, caplog) -> None:
    with caplog.at_level("INFO"):
        evaluate(FakeLM(by_hash), questions_file([GOOD]) | {"control_form": False})
    (line,) = [record.getMessage() for record in caplog.records if record.name == module.__name__]
    assert line.startswith(f"{TASK}: 24 requests with ")


def test_tokens_are_those_of_the_models_own_tokenizer_in_rows_and_shared(caplog) -> None:
    sent = requests(3, orders)
    counts = token_counts(tokens_of(Bytes(), "loglikelihood", [request.args for request in sent]))
    assert counts.n_row_tokens == 27 * (12 + 3 - 1)
    with caplog.at_level("INFO"):
        announced(Bytes(), "loglikelihood", sent)
    assert "first: 27 requests with 380 tokens, 26 with shared prefixes read once; hf reads 130\n" in caplog.text
    assert (counts.n_tree_tokens, counts.n_merged_tokens) == (11 + 3 * (1 + 1 + 3), 9 * 14)
    assert "estimated" not in caplog.text


@pytest.mark.parametrize(("scorer", "name", "n_read"), [(object(), "hf-prefix-tree", 26), (None, "hf", 130)])
def test_a_tree_that_its_model_does_not_allow_is_not_announced(scorer, name: str, n_read: int, caplog) -> None:
    class PrefixTreeLM(Bytes):
        choice = SimpleNamespace(scorer=scorer)

    with caplog.at_level("INFO"):
        announced(PrefixTreeLM(), "loglikelihood", requests(3, orders))
    assert f"with shared prefixes read once; {name} reads {n_read}\n" in caplog.text


def test_a_model_is_known_to_have_fallen_back_when_it_is_loaded(tmp_path) -> None:
    name, config = next(iter(UNSUITED.items()))
    assert backend_name(lm_of(checkpoint(tmp_path, name, config))) == "hf"


def test_blocks_that_an_engine_does_not_share_are_not_announced() -> None:
    shares, not_ = (type("VLLMPrefixTreeLM", (), {"reports_as_it_goes": it})() for it in (True, False))
    counts = token_counts(tokens_of(None, "loglikelihood", [("word " * 30, f" {i}") for i in range(9)]))
    assert read_by(backend_name(shares), counts) == counts.n_block_tokens
    assert read_by(backend_name(not_), counts) == counts.n_row_tokens > counts.n_block_tokens


def test_every_backend_of_ours_that_shares_prefixes_has_one_of_the_harness_to_fall_back_to() -> None:
    assert set(FALLS_BACK_TO) == {name for name in OUR_MODELS if name.endswith("-prefix-tree")}


@pytest.mark.parametrize("n", [31, 300])
def test_many_questions_are_estimated_from_some(n: int, caplog, monkeypatch) -> None:
    monkeypatch.setattr(module, "SECONDS_OF_TOKENISING", math.inf)
    sent = requests(n, orders) + requests(n, orders, TASKS[1])
    with caplog.at_level("INFO"):
        announced(Bytes(), "loglikelihood", sent)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"first and 1 other task: {18 * n:,} requests")
    assert f"estimated from 60 of {2 * n:,} questions" in line
    exact = token_counts(tokens_of(Bytes(), "loglikelihood", [request.args for request in sent])).n_row_tokens
    (n_tokens,) = re.findall(r"with ([\d,]+) tokens", line)
    assert int(n_tokens.replace(",", "")) == pytest.approx(exact, rel=0.02)


@pytest.mark.model
def test_lines_are_shown_where_those_of_lm_eval_are() -> None:
    code = (
        "import logging; from lm_eval.utils import setup_logging\n"
        "from lm_eval_leakage.harness.models import time_left as announced\n"
        "for level in (logging.INFO, logging.WARNING):\n"
        "    setup_logging(level); announced.logger.info('shown at %s', level)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.partition("] ")[2] for line in process.stderr.splitlines()] == ["shown at 20"]


def test_without_a_tokenizer_four_bytes_are_taken_for_a_token(caplog) -> None:
    chat = SimpleNamespace(tok_encode=lambda text: [text], rank=0)
    assert not has_tokenizer(chat)
    assert not has_tokenizer(SimpleNamespace(tokenizer_backend="remote", tok_encode=None))
    turns = (("[4 bytes!]",), {"max_gen_toks": 30})
    with caplog.at_level("INFO"):
        announced(chat, "generate_until", requests(5, lambda i: [turns]))
    assert "5 requests with 10 tokens, and at most 150 to generate; four bytes taken for a token" in caplog.text


def test_the_turns_of_a_chat_are_measured_by_their_text() -> None:
    turns = JsonChatStr('[{"role": "user"}]')
    assert n_request_characters((turns, {"max_gen_toks": 3})) == 18
    assert n_request_characters(("four", " more")) == 9
    (tokens,) = tokens_of(None, "generate_until", [(turns, {})])
    assert len(tokens) == 5


def test_equal_beginnings_are_shared_without_a_tokenizer_too() -> None:
    counts = token_counts(tokens_of(None, "loglikelihood", [("abcdefgh", " one"), ("abcdefgh", " two!"), ("", "")]))
    assert (counts.n_row_tokens, counts.n_tree_tokens) == (2 + 3 + 0, 2 + 1)


def test_texts_to_be_continued_share_nothing() -> None:
    rows = [tokens_of(Bytes(), "generate_until", [request.args for request in requests(9, orders)])]
    written = size_estimated("generate_until", rows, 1).counts
    assert read_by("hf-prefix-tree", written) == written.n_row_tokens > 0


def test_a_tokenizer_that_fails_does_not_end_the_run_and_other_ranks_say_nothing(caplog) -> None:
    def fails(text):
        raise RuntimeError

    with caplog.at_level("INFO"):
        assert announced(SimpleNamespace(tok_encode=fails), "loglikelihood", requests(2, orders)) is None
        assert announced(SimpleNamespace(rank=1), "loglikelihood", requests(2, orders)) is None
        assert announced(None, "loglikelihood", []) is None
    assert caplog.text == ""


def test_the_time_left_is_reported_in_tokens(caplog, monkeypatch) -> None:
    sent = requests(300, orders)
    with caplog.at_level("INFO"):
        time_left = announced(Bytes(), "loglikelihood", sent)
        monkeypatch.setattr(time_left, "_clock", iter(range(0, 300 * 9 * 60, 60)).__next__)
        for request in sent[:20]:
            time_left.done(len("".join(request.args)))
    assert re.search(r"about \d+\.\d h left \([\d,]+ of [\d,]+ tokens in", caplog.text)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def paces_of(bursts: list[tuple[float, int]], total: int) -> list[Pace]:
    """Return the paces that are announced.

    bursts: how long each takes, and how many answers of amount 1 come at its end
    """
    clock, paces = Clock(), []
    time_left = TimeLeft(total, paces.append, clock)
    for seconds, n in bursts:
        clock.now += seconds
        for _ in range(n):
            time_left.done(1)
    return paces


@pytest.mark.parametrize("size", [1, 7, 50])
def test_the_first_estimate_is_right_whatever_the_size_of_a_batch_and_is_reported_once(size: int) -> None:
    n = 7000 // size
    (pace,) = paces_of([(0.1 * size, size)] * n, size * n)
    passed = pace.share * size * n * 0.1
    assert pace.seconds == pytest.approx(passed)
    assert pace.left == pytest.approx(700 - passed, rel=0.01)
    assert pace.seconds <= 35


def test_warming_up_before_the_first_answer_does_not_count() -> None:
    (pace,) = paces_of([(300, 1), *[(1, 1)] * 999], 1000)
    assert pace.left + pace.seconds == pytest.approx(1000)


def test_little_time_left_is_not_worth_a_line() -> None:
    assert paces_of([(0.1, 1)] * 299, 300) == []
    assert WORTH_TELLING == 30


def test_a_run_that_slows_down_is_never_reported_to_end_much_later_than_said_without_a_word() -> None:
    """Each answer takes longer than the one before; at every moment the last estimate ends in the future, or the rest
    is not worth a line."""
    bursts = [(0.002 * n, 1) for n in range(1, 1001)]
    paces = paces_of(bursts, 1000)
    ends = [pace.seconds + pace.left for pace in paces]
    for end, after in zip(ends, paces[1:], strict=False):
        assert after.seconds <= end + 2.5
    assert sum(seconds for seconds, _ in bursts) - ends[-1] <= WORTH_TELLING + 0.3 * ends[-1]


def test_without_work_or_answers_nothing_is_reported() -> None:
    assert paces_of([(50, 1)] * 3, 0) == []
    assert paces_of([], 10) == []
