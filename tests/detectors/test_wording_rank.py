"""The rank of the published wording, by arithmetic and by enumeration of what might have been published."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.wording_rank import WordingRank, Wordings, wording_scores
from lm_eval_leakage.records import Answered, Question, Request, UntestableQuestion
from lm_eval_leakage.stats.order_sum import version_sum
from tests.fakes import by_hash

QUESTION = Question("0", "Which tree is it?", ("apple", "birch"), answer=0)


def requests_of(*wordings: str, stem_prefix: str = "") -> tuple[Request, ...]:
    return Wordings(stem_prefix).with_wordings(lambda question: wordings).requests(QUESTION)


def test_every_wording_is_scored_alone_the_public_one_first() -> None:
    assert requests_of("Which tree is it?", " What tree? ") == (("", "Which tree is it?"), ("", "What tree?"))


def test_what_stands_before_is_the_same_for_all_wordings() -> None:
    assert requests_of("Which?", "What?", stem_prefix="Question:") == (
        ("Question:", " Which?"),
        ("Question:", " What?"),
    )
    assert requests_of("Which?", "What?", stem_prefix="Question:\n") == (
        ("Question:\n", "Which?"),
        ("Question:\n", "What?"),
    )


@pytest.mark.parametrize(
    ("wordings", "reason"),
    [
        ((), "its author gave one wording; at least 2 are needed"),
        (("Which?",), "its author gave one wording"),
        (("Which?", "What?", " What?"), "two of its wordings are the same"),
    ],
)
def test_a_question_whose_wordings_cannot_be_distinguished_is_untestable_with_the_reason(wordings, reason) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        requests_of(*wordings)


def test_without_a_seal_the_remedy_is_reported() -> None:
    with pytest.raises(UntestableQuestion, match="give --metadata seal=PRIVATE_FOLDER"):
        Wordings().requests(QUESTION)


TEXTS = ("Which tree?", "What tree is it?", "Tree?", "Of which kind?")


def judged(loglikelihoods, texts=TEXTS):
    requests = tuple(Request("", text) for text in texts)
    (evidence,) = WordingRank().judge([Answered(QUESTION, requests, tuple(loglikelihoods))])
    return evidence


def test_the_published_wording_is_ranked_by_its_nats_per_byte():
    evidence = judged([-11.0, -17.6, -5.5, -15.4])  # -1.0, -1.1, -1.1 and -1.1 per byte
    assert evidence.scores == pytest.approx((-1.0, -1.1, -1.1, -1.1))
    assert (evidence.flagged, evidence.pvalue, evidence.null_rate, evidence.n_wordings) == (True, 0.25, 0.25, 4)
    assert evidence.wording_z == evidence.statistic == pytest.approx(np.sqrt(3))


def test_bytes_are_counted_so_that_scripts_are_treated_alike():
    assert wording_scores([-9.0, -3.0], ["何の木", "abc"]) == (-1.0, -1.0)


@given(st.lists(st.integers(-3, 0), min_size=2, max_size=4))
def test_over_all_published_wordings_a_question_is_flagged_at_most_as_often_as_its_null_rate_says(per_byte):
    """The statement holds with ties, too, which count against the published wording."""
    texts, verdicts = TEXTS[: len(per_byte)], []
    for at in range(len(per_byte)):
        order = [at, *(other for other in range(len(per_byte)) if other != at)]
        verdicts.append(judged([per_byte[i] * len(texts[i]) for i in order], [texts[i] for i in order]))
    assert sum(evidence.flagged for evidence in verdicts) <= 1
    for level in (0.25, 1 / 3, 0.5, 0.75, 1):
        assert sum(evidence.pvalue <= level + 1e-9 for evidence in verdicts) <= level * len(verdicts) + 1e-9


def test_equal_wordings_say_nothing():
    evidence = judged([-11.0, -16.0, -5.0, -14.0])
    assert (evidence.flagged, evidence.pvalue, evidence.wording_z) == (False, 1.0, 0.0)
    assert version_sum([evidence.scores]).n == 0


def test_what_was_seen_once_is_found_in_the_rows():
    rng = np.random.default_rng(1)
    rows = rng.normal(-1, 0.1, (100, 4)) * [len(text) for text in TEXTS]
    remembered = rows + np.array([0.1 * len(TEXTS[0]), 0, 0, 0])
    clean, seen = ([judged(scores) for scores in given] for given in (rows, remembered))
    values = {
        name: {row.name: row.compute(verdicts) for row in WordingRank.rows}
        for name, verdicts in {"clean": clean, "seen": seen}.items()
    }
    assert values["clean"]["wording_pvalue"] > 0.01
    assert values["seen"]["wording_pvalue"] < 1e-4
    assert values["seen"]["wording_effect"] > 0.3


# ---------------------------------------------------------------------- minus a reference model


def model(name: str, remembers: Collection[str] = ()) -> Callable[[str], float]:
    """Return a model that scores texts as all models do, by up to 30 nats, but for up to a nat of its own."""
    return lambda text: 30 * by_hash("", text) + by_hash(name, text) + 2 * (text in remembers)


def pvalues_of_all_keys(known_of: Callable[[set[str], set[str]], Collection[str]]) -> np.ndarray:
    """Return the p-values of a clean model with every choice of published wordings of four questions, three wordings
    each.

    known_of: what the reference remembers, given all published wordings and all private ones
    """
    texts, pvalues = [[f"{word} {i}?" for word in ("Which", "What kind of", "Name")] for i in range(4)], []
    clean = model("clean")
    for places in product(range(3), repeat=4):
        wordings = [[row[at], *(row[k] for k in range(3) if k != at)] for row, at in zip(texts, places, strict=True)]
        public, private = {row[0] for row in wordings}, {text for row in wordings for text in row[1:]}
        older = model("older", known_of(public, private))
        scores = [wording_scores([clean(text) - older(text) for text in row], row) for row in wordings]
        pvalues.append(version_sum(scores).pvalue)
    return np.array(pvalues)


@pytest.mark.parametrize(
    ("known_of", "exceeds"),
    [
        (lambda public, private: (), (-1, 0.02)),
        (lambda public, private: public, (-1, 0.02)),
        (lambda public, private: private, (0.2, 1)),
    ],
    ids=["nothing", "the published wordings", "the private ones, which is why it has to be older"],
)
def test_over_all_keys_no_level_is_reached_more_often_than_it_says_whatever_published_a_reference_knows(
    known_of, exceeds
) -> None:
    pvalues = pvalues_of_all_keys(known_of)
    # some level is reached more often than it says by at most .02, the error of the drawn sums
    excess = max(float((pvalues <= level + 0.005).mean()) - level for level in np.unique(pvalues))
    assert exceeds[0] < excess < exceeds[1]
    if not known_of({"public"}, {"private"}):
        assert pvalues.min() < 0.02  # of 81 keys, one has every published wording first
