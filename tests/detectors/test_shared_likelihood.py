from __future__ import annotations

import math
from itertools import product
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from lm_eval_leakage.detectors.shared_likelihood import ExampleOrder, SharedLikelihood, published_text, ttest_pvalue
from lm_eval_leakage.records import Answered, Question, UntestableQuestion
from lm_eval_leakage.stats.order_sum import SUM_DRAWS


def benchmark(*sizes: int) -> list[Question]:
    """Return questions of subjects of the sizes given."""
    return [
        Question(f"{subject}/{i}", f"What is {i} in {subject}?", ("yes", "no"), subject=f"s{subject}")
        for subject, size in enumerate(sizes)
        for i in range(size)
    ]


def test_the_first_text_is_the_benchmarks_own_and_the_others_are_its_examples_in_other_orders() -> None:
    probe = ExampleOrder(shards=2, examples=3, permutations=5)
    questions = benchmark(3)
    (shard,) = probe.of_shards(questions)
    texts = [request.continuation for request in probe.requests(shard)]
    assert texts[0] == "\n\n".join(map(published_text, questions))
    assert texts[0].startswith("What is 0 in 0?\nA. yes\nB. no\n\nWhat is 1 in 0?")
    assert len(set(texts)) == len(texts) == 6
    assert {tuple(sorted(text.split("\n\n"))) for text in texts} == {tuple(map(published_text, questions))}


def test_every_order_is_scored_once_if_there_are_few() -> None:
    probe = ExampleOrder(examples=3, permutations=250)
    (shard,) = probe.of_shards(benchmark(3))
    assert len(probe.requests(shard)) == factorial(3)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(2, 12), st.integers(2, 30))
def test_shards_are_neighbours_of_one_subject_and_do_not_overlap(sizes: list[int], examples: int, shards: int) -> None:
    questions = benchmark(*sizes)
    made = ExampleOrder(shards=shards, examples=examples).of_shards(questions)
    members = [member for shard in made for member in shard.members]
    place = {question.id: index for index, question in enumerate(questions)}
    assert len(set(members)) == len(members)
    assert len(made) <= shards
    for shard in made:
        first = place[shard.members[0]]
        assert [place[member] for member in shard.members] == list(range(first, first + len(shard.members)))
        assert {questions[place[member]].subject for member in shard.members} == {shard.subject}
        assert 2 <= len(shard.members) <= examples


def test_shards_are_evenly_spaced_over_the_whole_benchmark() -> None:
    made = ExampleOrder(shards=5, examples=10).of_shards(benchmark(1000))
    assert [shard.members[0] for shard in made] == ["0/100", "0/300", "0/500", "0/700", "0/900"]


def test_the_tasks_of_a_group_share_the_shards() -> None:
    assert len(ExampleOrder(shards=50, examples=2, tasks_of_group=20).of_shards(benchmark(100))) == 3
    assert len(ExampleOrder(shards=50, examples=2, tasks_of_group=57).of_shards(benchmark(100))) == 1


def test_a_lone_question_of_a_subject_is_in_no_shard() -> None:
    assert ExampleOrder().of_shards(benchmark(1, 1)) == []


def test_a_shard_with_identical_examples_is_untestable() -> None:
    question = Question("q", "Same?", ("yes", "no"))
    (shard,) = ExampleOrder().of_shards([question, question])
    with pytest.raises(UntestableQuestion, match="two of its examples are identical"):
        ExampleOrder().requests(shard)


SHARD = Question("shard", "", ("one", "two", "three"))


def permutation_pvalue(shards) -> float:
    """Return the p-value that the table shows."""
    (row,) = [row for row in SharedLikelihood.rows if row.name == "permutation_pvalue"]
    return row.compute([judged(*loglikelihoods) for loglikelihoods in shards])


def judged(*loglikelihoods: float, level: float = 0.05):
    (evidence,) = SharedLikelihood(level).judge([Answered(SHARD, (), loglikelihoods)])
    return evidence


def test_the_gain_is_that_over_the_mean_of_the_other_orders() -> None:
    assert judged(-10.0, -12.0, -16.0).gain == pytest.approx(4.0)


def test_a_shard_is_flagged_by_its_rank_and_a_tie_counts_against() -> None:
    others = [-20.0 - i for i in range(25)]
    assert judged(-10.0, *others).flagged
    assert judged(-10.0, *others).pvalue == pytest.approx(1 / 26)
    assert not judged(-20.0, *others).flagged
    assert judged(-20.0, *others).pvalue == pytest.approx(2 / 26)


@pytest.mark.parametrize(("level", "n_orders", "flagged"), [(0.05, 19, 0), (0.05, 20, 1), (0.29, 100, 29)])
def test_the_null_rate_is_the_most_that_the_level_allows(level: float, n_orders: int, flagged: int) -> None:
    """The rate is right although 0.29 * 100 is 28.999999999999996 in floating point."""
    assert judged(*(-float(i) for i in range(n_orders)), level=level).null_rate == flagged / n_orders
    assert judged(*(-float(i) for i in range(n_orders)), level=level).flagged is (flagged > 0)


def test_the_t_test_is_students_one_sided() -> None:
    gains = [3.0, 1.0, -1.0, 2.0]
    mean, deviation = 1.25, math.sqrt(sum((g - 1.25) ** 2 for g in gains) / 3)
    assert ttest_pvalue(gains) == pytest.approx(t.sf(mean / (deviation / 2), df=3))
    assert ttest_pvalue([-gain for gain in gains]) == pytest.approx(1 - ttest_pvalue(gains))
    assert all(math.isnan(ttest_pvalue(undefined)) for undefined in ([], [1.0], [0.0, 0.0]))
    assert ttest_pvalue([1.0, 3.0]) == pytest.approx(t.sf(2, df=1))  # mean 2, error sqrt(2) / sqrt(2)


def test_the_permutation_test_agrees_with_enumeration() -> None:
    rng = np.random.default_rng(1)
    shards = [rng.normal(size=n) for n in (2, 3, 4, 5, 3)]
    weights = [np.exp((shard - shard.mean()) / shard.std()) for shard in shards]
    sums = [sum(chosen) for chosen in product(*weights)]
    exact = np.mean([total >= sums[0] - 1e-9 for total in sums])
    assert permutation_pvalue(shards) == pytest.approx(exact, abs=5 * math.sqrt(0.25 / SUM_DRAWS))


def test_ties_count_against_leakage_and_equal_orders_say_nothing() -> None:
    tied = [[0.0, 0.0, -1.0]] * 9
    assert permutation_pvalue(tied) > 0.01
    assert math.isnan(permutation_pvalue([[0.0, 0.0]] * 9))
    assert math.isnan(permutation_pvalue([]))
