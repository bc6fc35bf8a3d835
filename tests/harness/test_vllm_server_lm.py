"""`vllm-server-prefix-tree` against a fake vLLM server, and against a real one where vLLM is installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations, starmap
from types import SimpleNamespace

import numpy as np
import pytest
from lm_eval.models.openai_completions import LocalCompletionsAPI

from lm_eval_leakage.harness.models import vllm_server
from lm_eval_leakage.harness.models.vllm_server import (
    ServerError,
    VllmServer,
    VllmServerPrefixTreeLM,
    metric,
)
from lm_eval_leakage.scoring.engine import EngineScorer
from lm_eval_leakage.scoring.prefix_tree import Text
from tests.harness.fake_completions import expected, logprob
from tests.harness.fake_vllm_server import FakeVllm, serving

STEM = "Which of these does a baker need?\n"
PAIRS = [
    (STEM, "".join(f"{letter}. {option}\n" for letter, option in zip("ABC", order, strict=True)))
    for order in permutations(("flour", "fish", "a hat"))
]


@contextmanager
def model(vllm: FakeVllm, monkeypatch, **given) -> Iterator[VllmServerPrefixTreeLM]:
    """A model whose tokens are bytes; `stock` is what `local-completions` would answer."""
    monkeypatch.setattr("lm_eval.models.api_models.find_spec", lambda name: True)
    monkeypatch.setattr(vllm_server, "LONGEST_WAIT", 0.0)
    monkeypatch.setattr(VllmServerPrefixTreeLM, "tok_encode", lambda self, text, **_: list(text.encode()))
    monkeypatch.setattr(LocalCompletionsAPI, "_loglikelihood_tokens", lambda self, asked, **_: ["stock"] * len(asked))
    with serving(vllm) as url:
        yield VllmServerPrefixTreeLM(base_url=url, model="m", tokenizer_backend="None", **given)


def asked(lm: VllmServerPrefixTreeLM, pairs=PAIRS):
    tokens = [(pair, list(pair[0].encode()), list(pair[1].encode())) for pair in pairs]
    return lm._loglikelihood_tokens(tokens, disable_tqdm=True)


def scorer(url: str, **given) -> EngineScorer:
    how = {"model": "m", "header": {}, "max_retries": 3, "timeout": 300, "verify_certificate": True} | given
    return EngineScorer(VllmServer(SimpleNamespace(base_url=url, **how), 1))


def loglikelihoods(url: str, **given) -> list[float]:
    texts = [Text(np.array(list((a + b).encode())), len(b.encode())) for a, b in PAIRS]
    found = {answer.text: answer.loglikelihood for answer in scorer(url, **given).answers(texts)}
    return [found[place] for place in range(len(PAIRS))]


PLAIN = pytest.approx([expected(*pair)[0] for pair in PAIRS], abs=1e-12)


# ---------------------------------------------------------------------- what the server answers


@pytest.mark.parametrize("n_concurrent", [1, 8])
@pytest.mark.parametrize("whole_lists", [True, False])
def test_log_likelihoods_are_those_of_plain_requests_and_shared_blocks_are_computed_once(
    whole_lists: bool, n_concurrent: int, monkeypatch
) -> None:
    vllm = FakeVllm(whole_lists)
    with model(vllm, monkeypatch, num_concurrent=n_concurrent) as lm:
        assert lm.reports_as_it_goes
        before = vllm.n_computed
        assert asked(lm) == [(pytest.approx(total, abs=1e-12), greedy) for total, greedy in starmap(expected, PAIRS)]
        assert vllm.n_computed - before < 0.6 * sum(len(a + b) for a, b in PAIRS)


def test_a_token_at_the_edge_of_a_cached_block_is_asked_for_on_its_own() -> None:
    vllm = FakeVllm()
    with serving(vllm) as url:
        texts = [Text(np.array(tokens), 4) for tokens in ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 8, 6, 7])]
        found = [answer.loglikelihood for answer in scorer(url).answers(texts)]
    (hole,) = [sent for sent in vllm.asked if "allowed_token_ids" in sent["sampling_params"]]
    assert (hole["token_ids"], hole["sampling_params"]["allowed_token_ids"]) == ([1, 2, 3, 4], [8])
    own = [sum(logprob(t.tokens.tolist()[:i], int(t.tokens[i])) for i in range(3, 7)) for t in texts]
    assert found == pytest.approx(own, abs=1e-12)


@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_request_that_fails_after_it_was_computed_is_computed_again_without_the_cache(status: int) -> None:
    vllm = FakeVllm(fails={0: status, 3: status})
    with serving(vllm) as url:
        assert loglikelihoods(url) == PLAIN
    assert vllm.n_plain == 2


@pytest.mark.parametrize("vllm", [FakeVllm(preempts=(2,)), FakeVllm(counts_requests=False)], ids=["one", "unknown"])
def test_after_a_preemption_texts_are_computed_again_without_the_cache(vllm: FakeVllm, caplog) -> None:
    with serving(vllm) as url:
        assert loglikelihoods(url) == PLAIN
    assert vllm.n_plain == len(PAIRS)
    assert len(caplog.messages) == 1


def n_sent_of_one(vllm: FakeVllm) -> int:
    """How often a text was sent at most."""
    return max(Counter(tuple(sent["token_ids"]) for sent in vllm.asked).values())


def test_a_request_that_is_refused_ends_with_what_the_server_said() -> None:
    vllm = FakeVllm(fails=dict.fromkeys(range(99), 400))
    with serving(vllm) as url, pytest.raises(ServerError, match="refuses a request with status 400: '{}'"):
        loglikelihoods(url)
    assert n_sent_of_one(vllm) == 2  # asking again would not help


def test_a_server_that_keeps_failing_ends_after_the_given_number_of_attempts(monkeypatch) -> None:
    monkeypatch.setattr(vllm_server, "LONGEST_WAIT", 0.0)
    vllm = FakeVllm(fails=dict.fromkeys(range(99), 503))
    with serving(vllm) as url, pytest.raises(ServerError, match="failed 2 times"):
        loglikelihoods(url, max_retries=2)
    assert n_sent_of_one(vllm) == 3  # one from the cache, two without


def test_a_counter_is_summed_over_its_labels_and_no_other() -> None:
    text = '# HELP a_total b\na_total{e="0"} 1.0\na_total{e="1"} 2.0\na_total_sum 5.0\na_totals 7.0\n'
    assert (metric(text, "a_total"), metric(text, "a")) == (3.0, None)


# ---------------------------------------------------------------------- the model of the harness


@pytest.mark.parametrize(
    ("vllm", "said"),
    [
        (FakeVllm(has_endpoint=False), "status 404"),
        (FakeVllm(says_cached=False), "--enable-prompt-tokens-details"),
        (FakeVllm(metrics=False), "--disable-log-stats"),
        (FakeVllm(counts_requests=False), "the URL of one server"),
        (FakeVllm(mistaken=-1.5), "its prefix cache is off by"),
    ],
    ids=lambda value: "" if isinstance(value, FakeVllm) else value,
)
def test_a_server_that_it_does_not_suit_is_asked_as_by_local_completions_and_one_line_says_why(
    vllm: FakeVllm, said: str, monkeypatch, caplog
) -> None:
    with model(vllm, monkeypatch) as lm:
        assert asked(lm) == ["stock"] * len(PAIRS) == asked(lm)
    (line,) = [one.message for one in caplog.records if "scoring as `local-completions` does" in one.message]
    assert said in line


def test_a_failed_answer_during_the_check_is_not_mistaken_for_a_missing_cache(monkeypatch) -> None:
    with model(FakeVllm(fails={1: 400, 3: 400}), monkeypatch) as lm:
        assert lm.reports_as_it_goes


def test_texts_longer_than_the_window_are_cut_as_by_local_completions(monkeypatch) -> None:
    with model(FakeVllm(), monkeypatch, max_length=33) as lm:
        lm.reports_as_it_goes = True
        (rows, lengths, _) = lm.batch_loglikelihood_requests([[(None, list(range(1, 41)), [50, 51])]])
        ((total, _),) = lm._loglikelihood_tokens([(None, list(range(1, 41)), [50, 51])])
    assert (len(rows[0]), lengths) == (32, [30])
    assert total == pytest.approx(sum(logprob(rows[0][:place], rows[0][place]) for place in (30, 31)), abs=1e-12)


def test_a_continuation_without_tokens_is_certain_as_for_local_completions(monkeypatch) -> None:
    with model(FakeVllm(), monkeypatch) as lm:
        found = asked(lm, [("a context", ""), PAIRS[0]])
    assert LocalCompletionsAPI.parse_logprobs(
        {"choices": [{"index": 0, "logprobs": {"token_logprobs": [None, -1.0], "top_logprobs": [None, {}]}}]},
        ctxlens=[1],
    ) == [found[0]]
    assert found[1][0] == pytest.approx(expected(*PAIRS[0])[0], abs=1e-12)


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"])
def test_a_url_of_something_else_is_refused_with_an_example(url: str | None) -> None:
    with pytest.raises(ValueError, match=r"give the URL of a vLLM server's completions, such as http://127"):
        VllmServerPrefixTreeLM(base_url=url, model="m")
