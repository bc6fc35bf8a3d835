from __future__ import annotations

from lm_eval.models.api_models import JsonChatStr

from lm_eval_leakage.harness.models.asking import longer_than_window, n_tokens_of
from tests.fakes import FakeLM, by_hash


class Hidden(FakeLM):
    """A model behind an API without a known tokenizer, with the harness's placeholder for it."""

    def tok_encode(self, text: str) -> list[str]:
        return [text]


def test_a_text_longer_than_the_window_is_named_with_the_remedy() -> None:
    short = FakeLM(by_hash, max_length=3)
    assert longer_than_window(short, [("one two", " three")]) is None
    reason = longer_than_window(short, [("one two", " three four")])
    assert reason == "its text has 4 tokens; the model's window holds 3, so raise max_length if possible"


def test_turns_of_a_chat_are_left_to_the_model() -> None:
    turns = JsonChatStr('[{"role": "user", "content": "one two three four"}]')
    assert longer_than_window(FakeLM(by_hash, max_length=3), [(turns, " five")]) is None


def test_tokens_are_counted_or_estimated_without_a_tokenizer() -> None:
    assert n_tokens_of(FakeLM(by_hash), "one two three") == 3
    assert n_tokens_of(Hidden(by_hash), "one two three") == 1 + 13 // 3
    assert n_tokens_of(None, "") == 1
