"""The parts that benchmarks/open_ended_methods.py computes itself; its statistics are tested where they are
declared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.open_ended_methods import (
    Split,
    codec,
    completion,
    first_words,
    generation,
    is_same,
    min_k,
    n_shown,
    read_split,
    row_order,
    split_words,
)
from lm_eval_leakage.records import Question, TokenScores
from tests.word_problems import word_problems


class ScriptedModel:
    """A model with a token for each word, whose answers a test sets.

    nats: the log-likelihood of the token of a word, by the text and the place of the word; written: what it generates
    """

    def __init__(self, nats=lambda words, place: -1.0, written=lambda context: "") -> None:
        self.nats, self.written = nats, written

    def tok_encode(self, text: str) -> list[str]:
        return text.split()

    def loglikelihood(self, requests):
        pairs = [request.args for request in requests]
        return [(sum(self._nats(context + text)[len(context.split()) :]), False) for context, text in pairs]

    def token_scores(self, requests):
        nats_of_requests = [self._nats(*request.args) for request in requests]
        return [TokenScores(tuple(nats), (-2.0,) * len(nats), (0.5,) * len(nats)) for nats in nats_of_requests]

    def generate_until(self, requests):
        return [self.written(request.args[0]) for request in requests]

    def _nats(self, text: str) -> list[float]:
        words = text.split()
        return [self.nats(words, place) for place in range(len(words))]


def split_of(texts: list[str], name: str = "test") -> Split:
    rows = [Question(str(number), text, ()) for number, text in enumerate(texts)]
    return Split(name, rows, rows)


TEXTS = [f"{name} has {n} " + " ".join(f"w{n}{k}" for k in range(17)) for n, name in enumerate(["Ann", "Bob", "Cid"])]


def test_codec_is_the_share_of_rows_that_another_row_makes_less_likely() -> None:
    def nats(words, place):
        return -2.0 if len(words) > 20 and "Ann" in words[20:] else -1.0

    # one of three rows: the share is 1/3, and its error is sqrt(2/9 / 2)
    assert codec(ScriptedModel(nats), [split_of(TEXTS)]) == ["33% ± 33% (not flagged)"]
    drop = ScriptedModel(lambda words, place: -len(words))
    assert codec(drop, [split_of(TEXTS)]) == ["100% ± 0% (flagged)"]


def test_the_first_eight_words_of_a_row_do_not_count() -> None:
    def lower_until(n):
        return ScriptedModel(lambda words, place: -2.0 if len(words) > 20 and place < 20 + n else -1.0)

    assert codec(lower_until(8), [split_of(TEXTS)]) == ["0% ± 0% (not flagged)"]
    assert codec(lower_until(9), [split_of(TEXTS)]) == ["100% ± 0% (flagged)"]


def test_min_k_is_compared_between_the_files() -> None:
    def nats(words, place):
        return -3.0 if words[0] == "Ann" else -2.0

    # of 20 z-scores each, the four lowest are (-3 + 2) / .5 in one row, and 0 in the others
    (train, new) = min_k(ScriptedModel(nats), [split_of(TEXTS[:2], "train"), split_of(TEXTS[1:], "new")])
    assert train == "-1.00 ± 1.00; AUROC against new 0.25 [nan, nan]"
    assert new == "0.00 ± 0.00"


@pytest.mark.parametrize(
    ("text", "shown", "hidden"),
    [("a b  c d e", "a b  c", " d e"), ("a b c d e f", "a b c", " d e f"), ("a", "a", "")],
)
def test_three_fifths_of_the_words_are_shown(text: str, shown: str, hidden: str) -> None:
    assert split_words(text, n_shown(text)) == (shown, hidden)


def test_a_completion_is_compared_with_as_many_words_as_were_hidden() -> None:
    whole = {shown: hidden + " #### 7" for shown, hidden in [split_words(TEXTS[0], n_shown(TEXTS[0]))]}
    model = ScriptedModel(written=lambda context: whole.get(context, " nothing"))
    # ROUGE-L is 1 for one row and 0 for the others
    assert completion(model, [split_of(TEXTS)]) == ["ROUGE-L 0.33 ± 0.33; 1 of 3 exact"]
    assert first_words(" d\n e f", 2) == "d e"
    assert is_same(" d  e", "d e\n")
    assert not is_same("d e", "d")


@pytest.mark.parametrize(("n_tokens", "generated"), [(1, 32), (32, 32), (33, 64)])
def test_at_least_as_many_tokens_are_generated_as_were_hidden(n_tokens: int, generated: int) -> None:
    assert generation(n_tokens)["max_gen_toks"] == generated


def test_row_order_is_tested_in_shards_of_neighbours() -> None:
    split = split_of([f"r{n} and some words" for n in range(20)])

    def in_order(words, place):
        """Return scores in which every row that comes after one with a higher number costs a nat."""
        if place < 4 or not words[place].startswith("r"):
            return 0.0
        return -1.0 if int(words[place][1:]) < int(words[place - 4][1:]) else 0.0

    (cell,) = row_order(ScriptedModel(in_order), [split])
    gain, rest = cell.split(" ± ")
    assert 1 < float(gain) < 3, "two of the four neighbours in a random order are inverted on average"
    assert ", flagged)" in rest
    assert row_order(ScriptedModel(), [split]) == ["0.00 ± 0.00 nats per shard (p = nan, not flagged)"]


def test_all_files_are_drawn_with_one_seed_and_rows_have_a_name(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [*word_problems(30), {"question": "A robe takes 2 bolts of fibre.", "answer": "2"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    split = read_split("test", file, 12)
    assert (len(split.file_rows), len(split.rows)) == (31, 12)
    assert split == read_split("test", file, 12)
    assert {*split.texts} <= {row["question"] for row in rows[:30]}
    assert {*split.texts} < {*read_split("test", file, 20).texts}
