"""Jobs are found again, and no unit gets into the hands of two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lm_eval_leakage.jobs.plan import Unit
from lm_eval_leakage.jobs.slurm_engine import JobCard, JobCards, JobMark, dealt

UNITS = tuple(Unit("m", "quiz", kind, shard, 2) for kind in ("run", "leakage_perm") for shard in range(2))
CARD = JobCard("m-1", "m", UNITS, "slurm")


def test_cards_of_jobs_that_have_not_ended_are_read_as_they_were_written(tmp_path: Path) -> None:
    cards, other = JobCards(tmp_path), JobCard("m-2", "m", UNITS[:1], "local", "17_3")
    cards.write(CARD)
    cards.write(other)
    assert JobCards(tmp_path).all() == [CARD, other]
    cards.remove(CARD)
    assert JobCards(tmp_path).all() == [other]


def test_a_job_that_was_put_back_in_the_queue_may_begin_again_and_no_other(tmp_path: Path) -> None:
    cards = JobCards(tmp_path)
    assert cards.begin("m-1", "17")
    assert cards.begin("m-1", "17")
    assert not cards.begin("m-1", "18")


def test_a_job_whose_card_was_withdrawn_never_begins(tmp_path: Path) -> None:
    cards = JobCards(tmp_path)
    assert cards.withdraw(CARD) is None
    assert not cards.begin("m-1", "17")
    assert cards.withdraw(CARD) is None


def test_a_job_that_has_begun_is_not_withdrawn_but_found_by_its_id(tmp_path: Path) -> None:
    cards = JobCards(tmp_path)
    cards.begin("m-1", "17_0")
    cards.hold("m-1", JobMark("17_0", UNITS[0], 3))
    found = cards.withdraw(CARD)
    assert found == JobCard("m-1", "m", UNITS, "slurm", "17_0")
    assert cards.mark("m-1") == JobMark("17_0", UNITS[0], 3)


def test_a_job_that_has_not_begun_has_no_mark(tmp_path: Path) -> None:
    assert JobCards(tmp_path).mark("m-1") is None


def test_every_unit_is_dealt_once_and_of_each_kind_as_many_to_each_job() -> None:
    units = [
        Unit("m", f"task{task}", kind, shard, 3)
        for task in range(5)
        for kind in ("run", "leakage_perm", "leakage_tokens")
        for shard in range(3)
    ]
    for n_jobs in (1, 2, 3, 4, 7):
        hands = dealt(units, n_jobs)
        assert sorted(unit for hand in hands for unit in hand) == sorted(units)
        for kind in ("run", "leakage_perm", "leakage_tokens"):
            sizes = [Counter(unit.kind for unit in hand)[kind] for hand in hands]
            assert max(sizes) - min(sizes) <= 1, (n_jobs, kind)


def test_no_job_gets_nothing_to_do() -> None:
    assert [len(hand) for hand in dealt(UNITS[:2], 5)] == [1, 1]
