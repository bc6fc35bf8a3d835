"""Requests are scored portion by portion; the next one is prepared meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.harness.models import tokenising as portions
from lm_eval_leakage.harness.models.tokenising import AS_HF, AS_VLLM, FittedTexts, in_portions, one_ahead
from lm_eval_leakage.scoring.prefix_tree import Texts
from tests.harness.test_prefix_tree_lm import asked, assert_as_hf, checkpoint, lm_of


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 5), st.integers(1, 20))
def test_portions_are_consecutive_and_as_large_as_allowed(sizes, most_requests, most_characters) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portions, "MOST_REQUESTS", most_requests)
        patch.setattr(portions, "MOST_CHARACTERS", most_characters)
        found = in_portions(sizes)
    assert [index for some in found for index in range(some.start, some.stop)] == [*range(len(sizes))]
    for some, following in zip(found, [*found[1:], None][: len(found)], strict=True):
        n_requests, total = some.stop - some.start, sum(sizes[some])
        assert n_requests == 1 or (n_requests <= most_requests and total <= most_characters)
        assert following is None or n_requests == most_requests or total + sizes[some.stop] > most_characters


def test_the_next_task_is_done_while_the_caller_works_on_one_and_no_more_than_that() -> None:
    done = [threading.Event() for _ in range(5)]

    def task(number: int):
        return lambda: (done[number].set(), number)[1]

    for number in one_ahead(task(number) for number in range(5)):
        if number < 4:
            assert done[number + 1].wait(10)
        assert not any(event.is_set() for event in done[number + 2 :])


def test_an_error_in_the_thread_is_raised_where_its_result_is_due() -> None:
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(one_ahead([lambda: 1, lambda: 1 // 0, lambda: 3]))
    assert [*one_ahead([])] == []


@pytest.mark.parametrize(("fit", "longest", "argument"), [(AS_HF, 9, "max_length"), (AS_VLLM, 7, "max_model_len")])
def test_a_window_of_eight_tokens_holds_nine_for_hf_and_seven_for_vllm(fit, longest, argument, caplog) -> None:
    fitted, tokens = FittedTexts(8, fit), np.arange(20, dtype=np.int32)
    (fits,) = fitted.texts([("", "")], Texts.of_pairs([(tokens[:1], tokens[1:longest])]))
    assert (fits.tokens.tolist(), fits.n_scored) == ([*range(longest)], longest - 1)
    fitted.warn_if_cut()
    assert not caplog.messages
    (cut,) = fitted.texts([("", "")], Texts.of_pairs([(tokens[:2], tokens[2 : longest + 1])]))
    assert (cut.tokens.tolist(), cut.n_scored) == ([*range(1, longest + 1)], longest - 1)
    fitted.warn_if_cut()
    assert (
        f"1 of 2 texts are longer than the model's window of 8 tokens, and truncated on the left as by `{fit.backend}`"
        in caplog.text
    )
    with pytest.raises(ValueError, match=f"at most {longest - 1} in the model's window of 8: raise {argument}, or"):
        fitted.texts([("", "")], Texts.of_pairs([(tokens[:1], tokens[:longest])]))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint(tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("most_requests", [1, 5])
def test_any_size_of_portions_gives_the_answers_of_hf_in_order(llama, most_requests, monkeypatch) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", most_requests)
    assert_as_hf(llama, lm_of(llama))


def test_a_continuation_that_does_not_fit_is_named_with_the_remedy(llama) -> None:
    with pytest.raises(ValueError, match="101 of continuation .'zzz.*window of 100: raise max_length"):
        lm_of(llama).loglikelihood(asked([("The sky", " is"), ("a", "z" * 101)]), disable_tqdm=True)


def test_texts_that_are_cut_are_counted_over_all_portions(llama, monkeypatch, caplog) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", 3)
    lm_of(llama).loglikelihood(asked(), disable_tqdm=True)
    assert caplog.text.count("truncated on the left") == 1
    assert "2 of 12 texts are longer" in caplog.text


def test_only_the_portions_with_texts_that_are_too_long_are_left_to_hf(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(portions, "MOST_REQUESTS", 1)
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    model = checkpoint(tmp_path, max_position_embeddings=64, rope_parameters=rope)
    lm = lm_of(model, batch_size=1)
    n_scored = []
    usual = lm.choice.scorer.batches
    lm.choice.scorer.batches = lambda texts: n_scored.append(len(texts)) or usual(texts)
    assert_as_hf(model, lm, [("a" * 5, "b"), ("c" * 70, "bc"), ("d" * 80, "bc"), ("a" * 5, "c")], batch_size=1)
    assert n_scored == [1, 1]
    assert caplog.text.count("rotary embedding depends on") == 1
