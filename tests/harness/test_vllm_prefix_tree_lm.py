"""`vllm-prefix-tree` against the harness's `vllm`, both on a toy engine that answers as vLLM does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lm_eval_leakage.scoring import engine as engine_scorer
from tests.harness.fake_vllm import LLM, Behaviour, installed
from tests.harness.test_prefix_tree_lm import instances, tokenizer_over_bytes

STEM = "Question: Which of these is a river that flows into the sea?\n"
OPTIONS = ["the Nile", "Mount Everest", "a baker"]
ORDERS = [(STEM, " ".join(order)) for order in itertools.permutations(OPTIONS)]
LETTERS = [(f"{STEM}{' '.join(OPTIONS)}\nAnswer:", f" {letter}") for letter in "ABC"]
MIXED = [
    *ORDERS,
    *LETTERS,
    ORDERS[3],  # the same again
    (STEM, "the Nile"),  # other texts begin with this one
    ("The sky is ", "blue"),  # the space moves to the continuation
    ("", "No context at all"),
    ("", "No"),
    ("中文", "の"),
    ("nothing follows", ""),
    ("A" * 390, "B" * 40),  # longer than the window
    ("A" * 390, "B" * 39),
    ("x", "y"),
]


PARTING = [("abc", "defg"), ("abc", "dxyz"), ("abc", "d123")]  # after four tokens


@pytest.fixture(scope="module")
def module() -> Iterator[ModuleType]:
    with installed() as imported:
        yield imported


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with all that the harness itself reads of a model."""
    from transformers import LlamaConfig

    folder = tmp_path_factory.mktemp("model")
    tokenizer_over_bytes().save_pretrained(folder)
    LlamaConfig().save_pretrained(folder)
    return str(folder)


class Loaded:
    """Both models of an engine that behaves as said."""

    def __init__(self, module: ModuleType, model: str, behaviour: Behaviour, **arguments: Any) -> None:
        LLM.behaviour = behaviour
        self.ours = module.VLLMPrefixTreeLM(pretrained=model, **arguments)
        self.stock = module.VLLM(pretrained=model, **arguments)
        if self.ours.data_parallel_size == 1:
            self.ours.model.calls.clear()
            self.ours.model.n_computed = 0

    def assert_equal(self, pairs: list[tuple[str, str]]) -> None:
        assert answers(self.ours, pairs) == answers(self.stock, pairs)


def answers(lm: Any, pairs: list[tuple[str, str]]) -> list[tuple[float, bool]]:
    return lm.loglikelihood(instances(pairs), disable_tqdm=True)


def one_line(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = [text for text in caplog.messages if text.startswith("vllm-prefix-tree")]
    return line


BEHAVIOURS = [
    Behaviour(whole=whole, forgets=forgets, block=block)
    for whole, forgets, block in itertools.product([True, False], [0.0, 0.1], [1, 4, 16])
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
def test_answers_equal_those_of_vllm_to_the_last_bit(module, model, behaviour, caplog) -> None:
    loaded = Loaded(module, model, behaviour)
    assert loaded.ours.reports_as_it_goes
    assert not caplog.messages
    loaded.assert_equal(MIXED)
    if not behaviour.forgets:
        assert loaded.ours.model.n_computed < loaded.stock.model.n_computed / 2


def test_requests_are_sent_in_the_order_of_their_tokens_with_a_salt_of_their_own(module, model) -> None:
    loaded = Loaded(module, model, Behaviour())
    answers(loaded.ours, ORDERS[::-1])
    answers(loaded.ours, ORDERS)
    sent = [[tokens for tokens, params, _, _ in call if params.prompt_logprobs] for call in loaded.ours.model.calls]
    first, second = [tokens for tokens in sent if tokens]
    assert first == second == sorted(first)
    salts = {salt for call in loaded.ours.model.calls for _, _, salt, _ in call}
    assert len(salts) == 2
    assert None not in salts


def test_a_token_after_the_last_cached_block_is_asked_for_alone(module, model) -> None:
    loaded = Loaded(module, model, Behaviour(block=4))
    loaded.assert_equal(PARTING)
    _, holes = loaded.ours.model.calls
    first, *others = sorted(loaded.ours.tok_encode(text) for text in ("abcde", "abcdx", "abcd1"))
    assert [([*tokens], params.allowed_token_ids) for tokens, params, _, _ in holes] == [
        (first[:-1], other[-1:]) for other in others
    ]
    assert {params.prompt_logprobs for _, params, _, _ in holes} == {None}


def test_portions_report_as_they_go(module, model, monkeypatch) -> None:
    monkeypatch.setattr(engine_scorer, "TOKENS_OF_FIRST_CALL", 200)
    monkeypatch.setattr(engine_scorer, "TOKENS_OF_CALL", 200)
    loaded = Loaded(module, model, Behaviour(block=4))
    reported: list[tuple[int, tuple[str, str]]] = []
    monkeypatch.setattr(
        loaded.ours.cache_hook,
        "add_partial",
        lambda method, pair, answer: reported.append((len(loaded.ours.model.calls), pair)),
    )
    loaded.assert_equal(MIXED)
    assert sorted(pair for _, pair in reported) == sorted(pair for pair in MIXED if pair[1])
    assert len({calls for calls, _ in reported}) > 5, "answers come with the portions"


def test_texts_are_asked_again_plainly_if_requests_were_interrupted(module, model, monkeypatch, caplog) -> None:
    behaviour = Behaviour(block=4)
    loaded = Loaded(module, model, behaviour)
    behaviour.interrupts = (0,)
    loaded.assert_equal(PARTING)
    with_salt, plain = loaded.ours.model.calls
    assert {params.skip_reading_prefix_cache for _, params, _, _ in with_salt} == {False}
    assert {params.skip_reading_prefix_cache for _, params, _, _ in plain} == {True}
    (line,) = [text for text in caplog.messages if "interrupted" in text]
    assert line.startswith("the engine interrupted requests")
    monkeypatch.setattr(module.VllmEngine, "n_preemptions", lambda self: 0.0)
    behaviour.interrupts = (2,)
    assert answers(loaded.ours, PARTING) != answers(loaded.stock, PARTING), "else nothing is tested here"


@pytest.mark.parametrize(
    ("behaviour", "arguments", "reason"),
    [
        (Behaviour(off_by=0.01), {}, "its prefix cache is off by 0.0"),
        (Behaviour(caches=False), {}, "this engine has no prefix cache"),
        (Behaviour(counts=False), {}, "this engine does not count the requests that it interrupts"),
        (Behaviour(), {"disable_log_stats": True}, "this engine does not count the requests that it interrupts"),
    ],
)
def test_an_engine_that_does_not_suit_is_used_as_by_vllm_with_one_line(
    module, model, behaviour, arguments, reason, caplog
) -> None:
    loaded = Loaded(module, model, behaviour, **arguments)
    line = one_line(caplog)
    assert reason in line
    assert line.endswith("; scoring as `vllm` does")
    loaded.assert_equal(MIXED)
    assert not loaded.ours.reports_as_it_goes
    assert loaded.ours.model.n_computed == loaded.stock.model.n_computed


def test_an_engine_that_refuses_the_check_is_used_as_by_vllm(module, model, monkeypatch, caplog) -> None:
    def refuses(self: Any, texts: Any, salt: str) -> Any:
        raise ValueError("allowed_token_ids is not implemented\nhere")

    monkeypatch.setattr(module.VllmEngine, "last_tokens", refuses)
    Loaded(module, model, Behaviour()).assert_equal(MIXED)
    assert "refuses the requests (ValueError: allowed_token_ids is not implemented here); scoring as" in one_line(
        caplog
    )


def test_several_engines_are_used_as_by_vllm_with_one_line(module, model, monkeypatch, caplog) -> None:
    monkeypatch.setattr("lm_eval.models.vllm_causallms.find_spec", lambda name: True)
    lm = module.VLLMPrefixTreeLM(pretrained=model, data_parallel_size=2)
    assert not lm.reports_as_it_goes
    assert "data_parallel_size=2 starts new engines for every call" in one_line(caplog)


def test_a_value_that_is_not_a_number_is_asked_for_again(module, model) -> None:
    loaded = Loaded(module, model, Behaviour(off_by=float("nan"), block=4))
    assert loaded.ours.reports_as_it_goes
    loaded.assert_equal(PARTING)


def test_every_request_has_the_lora_adapter(module, model) -> None:
    loaded = Loaded(module, model, Behaviour(block=4), lora_local_path="adapter")
    loaded.assert_equal(ORDERS)
    adapters = {adapter for call in loaded.ours.model.calls for *_, adapter in call}
    assert adapters == {("finetuned", 1, "adapter")}


@pytest.mark.parametrize(
    "arguments", [{"add_bos_token": True}, {"add_bos_token": False}, {"prefix_token_id": 9}, {"max_model_len": 50}]
)
def test_tokens_are_those_of_vllm(module, model, arguments) -> None:
    loaded = Loaded(module, model, Behaviour(window=50 if "max_model_len" in arguments else 400), **arguments)
    loaded.assert_equal([pair for pair in MIXED if len(pair[1]) < 40] + [("<s>a", "b"), ("<s>", " c")])
