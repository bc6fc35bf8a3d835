from __future__ import annotations

from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.shared_likelihood import ExampleOrder, published_text
from lm_eval_leakage.records import Question, UntestableQuestion


def benchmark(*sizes: int) -> list[Question]:
    """Questions of subjects of the sizes given."""
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
