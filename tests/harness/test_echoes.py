"""Texts as servers write them, and log-probabilities beside the most likely tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from lm_eval_leakage.harness.models.echoes import (
    after,
    are_ahead,
    are_misplaced,
    ends_with_all,
    is_text,
    special_texts,
)

TEXTS = {
    "English": "Question: Which of these does a baker need?\nA. flour\nB. a hat (1 %)\nAnswer: A",
    "German": "Frage: Was braucht der Bäcker für süßes Gebäck?\nA. Öl und Käse\nAntwort: A",
    "Chinese": "问题：面包师早上需要什么？\nA. 面粉\nB. 鱼\n答案：A",
    "mixed": "Where is 東京 🦊? naïve — “quoted” \\x41 bytes: <0x41>\nA. В Москве\nB. مصر",
}


def pieces_of(text: str) -> list[bytes]:
    """Tokens of one to three bytes, so that characters are cut."""
    rng, content, pieces = random.Random(0), text.encode(), list[bytes]()
    while content:
        size = rng.randint(1, 3)
        pieces.append(content[:size])
        content = content[size:]
    return pieces


def with_whole_characters_late(pieces: list[bytes]) -> list[str]:
    """Nothing until a character is complete, and then all of it."""
    texts, waiting = [], b""
    for piece in pieces:
        waiting += piece
        done = waiting.decode(errors="ignore") if waiting.decode(errors="replace")[-1:] != "\ufffd" else ""
        texts.append(done)
        waiting = b"" if done else waiting
    return texts


def by_openai(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in piece)


def by_sentencepiece(piece: bytes) -> str:
    try:
        return piece.decode().replace(" ", "\u2581")
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else f"<0x{byte:02X}>" for byte in piece)


WAYS: dict[str, Callable[[list[bytes]], list[str]]] = {
    "unknown characters": lambda pieces: [piece.decode(errors="replace") for piece in pieces],
    "nothing": lambda pieces: [piece.decode(errors="ignore") for piece in pieces],
    "whole characters late": with_whole_characters_late,
    "OpenAI": lambda pieces: [by_openai(piece) for piece in pieces],
    "SentencePiece": lambda pieces: [by_sentencepiece(piece) for piece in pieces],
    "letters for bytes": lambda pieces: ["".join(bytes_to_unicode()[byte] for byte in piece) for piece in pieces],
    "without white space": lambda pieces: [piece.decode(errors="replace").strip() for piece in pieces],
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_recognised_in_every_way_in_which_servers_write_tokens(way: str, language: str) -> None:
    text = TEXTS[language]
    pieces = WAYS[way](pieces_of(text))
    assert is_text(pieces, text)
    assert not is_text([*pieces, " so"], text)
    assert after(text + " so", text) == "so"
    assert ends_with_all(["<|user|>", *pieces_of_all(WAYS[way], text, "Yes.")], [text, "Yes."])


def pieces_of_all(way: Callable[[list[bytes]], list[str]], *texts: str) -> list[str]:
    return [piece for text in texts for piece in ["<|turn|>", *way(pieces_of(text))]]


CHANGES: dict[str, Callable[[str], str]] = {
    "reversed": lambda text: text[::-1],
    "cut on the left": lambda text: text[12:],
    "cut on the right": lambda text: text[:-6],
    "empty": lambda text: "",
    "cut in the middle": lambda text: text[:10] + text[22:],
    "a letter more": lambda text: text[:10] + "x" + text[10:],
    "another letter": lambda text: text.replace("A", "C", 1),
    "another character": lambda text: (
        text.replace("面", "山", 1).replace("京", "山").replace("ä", "x").replace("W", "V")
    ),
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", ["unknown characters", "nothing", "whole characters late", "OpenAI", "SentencePiece"])
def test_another_text_is_not(way: str, change: str, language: str) -> None:
    """Where tokens are whole characters, as they are of most vocabularies."""
    sent = TEXTS[language]
    pieces = WAYS[way]([character.encode() for character in CHANGES[change](sent)])
    assert not is_text(pieces, sent)
    assert not ends_with_all(pieces, [sent]) or change == "a letter more"
    assert after("".join(pieces), sent) is None


def test_all_messages_stand_in_their_order_and_the_last_one_at_the_end() -> None:
    written = ["<|bos|>", "Be brief.", "<|eot|>", "Why?", "<|eot|>", "So.", "<|eot|>", "And now?"]
    assert ends_with_all(written, ["Be brief.", "Why?", "So.", "And now?"])
    assert ends_with_all(written, ["Why?", "And now?"])
    assert ends_with_all(written, [])
    assert not ends_with_all(written, ["Why?", "Be brief.", "So.", "And now?"])
    assert not ends_with_all(written, ["Be brief.", "Why?", "So."])
    assert not ends_with_all(written, ["Be very brief.", "Why?", "So.", "And now?"])


def test_special_tokens_are_those_that_a_tokenizer_names() -> None:
    added = {0: SimpleNamespace(special=False), 1: Special("<|im_end|>"), 2: Special("<|im|>")}
    pattern = special_texts(SimpleNamespace(all_special_tokens=["<s>"], added_tokens_decoder=added))
    assert isinstance(pattern, re.Pattern)
    assert pattern.sub("", "<s>a<|im_end|>b<|im|>c</s>") == "abc</s>"
    assert special_texts(object()) is None


class Special(str):
    special = True


# ---------------------------------------------------------------------- the most likely tokens

N = 30
TOKENS = [f"t{place}" for place in range(N)]
VALUES = [-1.0 - place % 7 for place in range(N)]


def beside_a_likelier_one(values: list[float]) -> list[Mapping[str, float]]:
    """Return the likeliest tokens as vLLM reports them."""
    return [{token: value} | ({"so": -0.5} if place % 3 else {}) for place, (token, value) in enumerated(values)]


def enumerated(values: list[float]):
    return enumerate(zip(TOKENS, values, strict=True))


def only_the_likeliest(values: list[float]) -> list[Mapping[str, float]]:
    """Return the likeliest token as SGLang reports it."""
    return [{"so": value + 0.4} if place % 3 else {token: value} for place, (token, value) in enumerated(values)]


TOPS = pytest.mark.parametrize("tops_of", [beside_a_likelier_one, only_the_likeliest])


@TOPS
def test_values_that_belong_to_the_same_places_are_believed(tops_of) -> None:
    tops = tops_of(VALUES)
    assert not are_misplaced(TOKENS, VALUES, tops)
    assert not are_misplaced(None, VALUES, tops)
    assert not are_misplaced(TOKENS, [value + 0.009 for value in VALUES], tops)
    assert not are_misplaced(TOKENS, VALUES, [None] * N)


@TOPS
def test_values_of_other_places_are_not(tops_of) -> None:
    tops, moved = tops_of(VALUES), [*VALUES[1:], VALUES[0]]
    assert are_misplaced(TOKENS, moved, tops)
    assert are_misplaced(TOKENS, moved, [*tops[1:], tops[0]])
    assert are_misplaced(TOKENS, [value + 1 for value in VALUES], tops)


@TOPS
def test_a_few_tokens_that_are_written_alike_are_no_fault_and_unreadable_ones_never_are(tops_of) -> None:
    tops = tops_of(VALUES)
    tops[:5] = [{token: value + 0.7} for _, (token, value) in [*enumerated(VALUES)][:5]]
    assert not are_misplaced(TOKENS, VALUES, tops)
    unreadable = ["", "\ufffd", "a\ufffd"] * (N // 3)
    assert not are_misplaced(unreadable, VALUES, [{token: -0.1} for token in unreadable])


def test_likeliest_tokens_that_are_the_following_ones_are_ahead() -> None:
    here, ahead = [{token: -1.0} for token in TOKENS], [{token: -1.0, "x": -2.0} for token in [*TOKENS[1:], "so"]]
    assert are_ahead(TOKENS, ahead)
    assert are_ahead(TOKENS, [*ahead[: N // 3], *[{"so": -1.0}] * (N - N // 3)])
    assert not are_ahead(TOKENS, here)
    assert not are_ahead(TOKENS, [*ahead[:3], *[{"so": -1.0}] * (N - 3)])
    assert not are_ahead(["a"] * N, [{"a": -0.1}] * N)
