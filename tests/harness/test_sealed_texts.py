"""Sealed texts without options through the harness: the public task, what an audit asks, and what it finds."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from itertools import permutations

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.detectors.crossed_fillers import CrossedFillers
from lm_eval_leakage.harness.tasks.filler_audit import with_likeliest_start
from lm_eval_leakage.harness.tasks.seals import exchange_of
from lm_eval_leakage.logs.audit_line import read_line
from lm_eval_leakage.questions.statements import StatementReader
from lm_eval_leakage.records import FillerAnswers, Question
from lm_eval_leakage.results.seal_audit import SealedVerdict, seal_audit
from lm_eval_leakage.seal import drawn_texts
from lm_eval_leakage.seal.drawn import KeyedDraws, Seal
from lm_eval_leakage.stats.crossed_blocks import block_scores, by_form, crossed_blocks
from tests.fakes import FakeLM, Score, by_hash
from tests.harness.test_filler_audit import Starting
from tests.sealed import NAME, SealedFolder, looks_in, problems_of, run_sealed, sealed_folder
from tests.sealing.test_texts import WOMEN, rows_of, seal_of_texts
from tests.word_problems import word_problems

N = 90
FILLERS, SHARDS = f"{NAME}_leakage_fillers", f"{NAME}_leakage_shared_likelihood"
ROWS = [*word_problems(N), {"question": "How many legs do four cats have together?", "answer": "16"}]
TOWNS = ("Kyiv", "Ulm", "Graz", "Turin", "Cork", "Brno", "Gdansk", "Porto", "Lyon", "Malmo", "Basel", "Riga")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory) -> SealedFolder:
    return sealed_folder(tmp_path_factory.mktemp("sealed"), ROWS)


def remembers(seal: Seal, nats: float = 1.5) -> Score:
    """A model that has read the version of this seal, and for which some names are likelier than others."""
    exchanges = [(text.wordings[0], text.exchange.slot) for text in seal.questions if text.exchange is not None]
    read = {question[: slot.begins[0] + len(slot.filler) + 12] for question, slot in exchanges}

    def score(context: str, continuation: str) -> float:
        is_read = any(text in context + continuation for text in read)
        return by_hash(context, continuation) + 5 * by_hash("", continuation.split()[0]) + nats * is_read

    return score


def verdict_of(sealed: SealedFolder, score: Score, tmp_path, audit: str = "leakage_seal", **settings) -> SealedVerdict:
    run_sealed(sealed, audit, score, tmp_path / "runs", **settings)
    (verdict,) = seal_audit([tmp_path / "runs"], sealed.private).verdicts
    return verdict


# ---------------------------------------------------------------------- the public task


def test_the_public_task_scores_the_first_line_of_an_answer(tmp_path) -> None:
    rows = [row | {"answer": f"A sum: 3. #### {row['answer']}"} for row in word_problems(30)]
    sealed = sealed_folder(tmp_path, rows)
    public = [json.loads(line) for line in (sealed.public / f"{NAME}.jsonl").read_text().splitlines()]
    right = {f"Question: {row['question']}\nAnswer:": row["answer"].split("#### ")[1] for row in public}

    class Answering(FakeLM):
        def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
            assert [request.args[1]["until"] for request in requests] == [["\n"]] * len(public)
            contexts = [request.args[0] for request in requests]
            return [f" {right[context]}" if place % 2 else " none" for place, context in enumerate(contexts)]

    manager = TaskManager(include_path=str(sealed.public), include_defaults=False)
    results = lm_eval.simple_evaluate(Answering(by_hash), tasks=[NAME], task_manager=manager, bootstrap_iters=0)
    assert results["results"][NAME]["exact_match,first_line"] == 0.5


# ---------------------------------------------------------------------- what is asked


def test_all_audits_of_texts_run_under_one_name(sealed) -> None:
    lm, results = run_sealed(sealed, "leakage_seal", by_hash)
    assert {*results["samples"]} == {FILLERS, SHARDS}
    lines = [read_line(line, FILLERS) for line in results["samples"][FILLERS]]
    answers = {line.question: line.fillers for line in lines if line.fillers is not None}
    drawn = [text for text in sealed.seal.questions if text.exchange is not None]
    assert len(answers) == len(drawn)
    assert all(fillers.is_drawn and not fillers.control for fillers in answers.values())
    assert Counter(fillers.block for fillers in answers.values()) == Counter(
        text.exchange.block.name for text in drawn
    )
    left_out = Counter(line.reason for line in lines if line.fillers is None)
    assert [*left_out] == ["no key drew its filler: it has none, or no other row could exchange it"]
    members = [line["doc"]["members"] for line in results["samples"][SHARDS]]
    assert members == [[str(place) for place in range(first, first + 4)] for first in range(0, len(ROWS) - 3, 4)]
    published = [text.wordings[0] for text in sealed.seal.questions]
    assert ("", "\n\n".join(published[:4])) in lm.requests


def test_marked_details_that_are_no_names_are_asked_too(tmp_path) -> None:
    rows = [
        {"question": f"A train to [[{town}]] takes {n} hours for {n * 70} km.", "answer": str(n)}
        for n, town in enumerate(TOWNS, 2)
    ]
    sealed = sealed_folder(tmp_path, rows)
    lm, results = run_sealed(sealed, "leakage_fillers", by_hash)
    assert not [line["reason"] for line in results["samples"][FILLERS] if line["reason"]]
    towns = {continuation.split()[0] for context, continuation in lm.requests if context.endswith("A train to ")}
    assert towns == {*TOWNS}


def test_without_the_seal_the_blocks_are_those_of_the_run_and_the_control_form_is_asked(sealed) -> None:
    _, results = run_sealed(sealed, "leakage_fillers", by_hash, seal=None)
    lines = [read_line(line, FILLERS) for line in results["samples"][FILLERS]]
    assert all(line.fillers.control and not line.fillers.is_drawn for line in lines if line.fillers)


# ---------------------------------------------------------------------- exactness


def fixed_placement(order: tuple[int, ...]) -> type[KeyedDraws]:
    class OnePlacement(KeyedDraws):
        """Draws this placement of a block's fillers."""

        def order(self, n: int) -> tuple[int, ...]:
            return order

    return OnePlacement


def test_each_placement_is_scored_alike_whichever_is_published(monkeypatch) -> None:
    """So that the rank of the published one is exactly uniform, for any model that does not know which it is."""
    published, all_scores, starts = [], [], []
    for order in permutations(range(4)):
        monkeypatch.setattr(drawn_texts, "KeyedDraws", fixed_placement(order))
        seal = seal_of_texts(*rows_of(*WOMEN))
        probe = CrossedFillers(start="").with_exchanges(partial(exchange_of, seal))
        answers, of_start = [], []
        for text in seal.questions:
            question = StatementReader(("question",))({"question": text.wordings[0]})
            answers.append(scored(probe, question))
            of_start += probe.start_requests(question)
        (block,) = crossed_blocks(answers)
        scores = block_scores(block.layouts)
        assert scores is not None
        published.append(float(scores[0]))
        all_scores.append(sorted(scores))
        starts.append(sorted(of_start))
        assert len(of_start) == 4 * len(probe.asked_layouts), "no more than of other benchmarks"
    assert len(all_scores) == math.factorial(4)
    assert all(scores == pytest.approx(all_scores[0]) for scores in all_scores)
    assert sorted(published) == pytest.approx(all_scores[0])
    ranks = [sum(other >= score - 1e-9 for other in published) for score in published]
    assert sorted(ranks) == [*range(1, 25)]
    assert all(requests == starts[0] for requests in starts), "the choice of the start says nothing of the key"


def test_the_choice_of_the_start_does_not_depend_on_the_order_of_the_file(sealed) -> None:
    """The key draws that order, too, and its test is combined with that of the fillers."""
    reader = StatementReader(("question",))
    questions = tuple(reader({"question": text.wordings[0]}) for text in sealed.seal.questions)
    requests = []
    for pool in (questions, questions[::-1]):
        lm = Starting("<s>")
        probe = CrossedFillers().with_exchanges(partial(exchange_of, sealed.seal)).with_pool(partial(tuple, pool))
        assert with_likeliest_start(probe, lm).start == "<s>"
        requests.append(lm.requests)
    assert requests[0] == requests[1]


def scored(probe: CrossedFillers, question: Question) -> FillerAnswers:
    block, values = probe.block(question), [by_hash(*request) for request in probe.requests(question)]
    return FillerAnswers(
        block.name, block.place, by_form(values, len(block.fillers), block.place), layouts=probe.asked_layouts
    )


# ---------------------------------------------------------------------- what is found


def test_a_model_that_has_read_the_published_version_is_found(sealed, tmp_path) -> None:
    verdict = verdict_of(sealed, remembers(sealed.seal), tmp_path)
    assert verdict.word == "strong evidence"
    fillers, order = verdict.tests
    assert (fillers.name, fillers.draw, fillers.unit) == ("fillers", "fillers", "sd")
    assert fillers.n == sum(text.exchange is not None for text in sealed.seal.questions)
    assert fillers.effect > 0.5
    assert fillers.pvalue < 1e-6
    assert fillers.log_evalue > 6
    assert order.name == "question order"
    assert verdict.combined.names == ("fillers", "question order")
    assert fillers.left_out == {
        "no key drew its filler: it has none, or no other row could exchange it": len(ROWS) - fillers.n
    }
    assert verdict.missing == ()


def test_a_model_that_has_read_the_version_of_another_key_is_not_found_and_is_bounded(tmp_path) -> None:
    sealed, other = sealed_folder(tmp_path / "one", ROWS), sealed_folder(tmp_path / "other", ROWS, seed=1)
    verdict = verdict_of(sealed, remembers(other.seal), tmp_path)
    assert "evidence" not in verdict.word
    assert {times for times, _ in verdict.at_most} == {1, 3}
    assert all(0 < share < 1 for _, share in verdict.at_most)
    assert "at most" in verdict.sentence


@pytest.mark.parametrize("seed", range(5))
def test_a_model_without_memory_is_not_found(sealed, tmp_path, seed: int) -> None:
    verdict = verdict_of(sealed, lambda context, text: by_hash(context, f"{text}{seed}"), tmp_path, "leakage_fillers")
    (fillers,) = verdict.tests
    assert fillers.pvalue > 0.01
    assert verdict.missing == ("question order (TASK_leakage_shared_likelihood)",)


def test_the_table_of_lm_eval_says_that_a_key_drew_the_names(sealed) -> None:
    _, results = run_sealed(sealed, "leakage_fillers", remembers(sealed.seal))
    verdict = results["leakage_details"][FILLERS]["verdict"]
    assert verdict["word"] == "strong evidence"
    assert verdict["published_orders"] == "sealed"
    assert (
        "with names drawn with a secret key, the model prefers the published names to the names of other rows ("
        in (verdict["sentence"])
    )


def test_runs_without_the_seal_are_no_test_of_it(sealed, tmp_path) -> None:
    """Their blocks were formed of the public texts, which the key drew."""
    run_sealed(sealed, "leakage_fillers", remembers(sealed.seal), tmp_path, seal=None)
    with pytest.raises(ValueError, match=rf"no audit of '{NAME}' is in .*{FILLERS} was run without the seal"):
        seal_audit([tmp_path], sealed.private)


def test_runs_with_another_seal_are_left_out(sealed, tmp_path) -> None:
    other = sealed_folder(tmp_path / "other", ROWS, seed=1)
    run_sealed(other, "leakage_fillers", by_hash, tmp_path / "runs", "org/other")
    run_sealed(sealed, "leakage_fillers", by_hash, tmp_path / "runs", "org/one")
    audit = seal_audit([tmp_path / "runs"], sealed.private)
    assert [verdict.model for verdict in audit.verdicts] == ["org/one"]
    assert f"{FILLERS} was run with another seal" in problems_of(audit)


def test_the_same_answers_are_the_same_look_and_others_are_another(tmp_path) -> None:
    sealed = sealed_folder(tmp_path, ROWS)
    for place, score in (("a", by_hash), ("b", by_hash), ("c", remembers(sealed.seal))):
        run_sealed(sealed, "leakage_fillers", score, tmp_path / place)
        seal_audit([tmp_path / place], sealed.private)
    assert [look.number for look in looks_in(sealed.private)] == [1, 2]


def test_rows_of_a_limited_run_are_asked_with_all_fillers_of_their_blocks(sealed, tmp_path) -> None:
    verdict = verdict_of(sealed, remembers(sealed.seal, 4), tmp_path, "leakage_fillers", limit=60)
    (fillers,) = verdict.tests
    assert 50 < fillers.n <= 60
    assert fillers.pvalue < 1e-3
    (log,) = (tmp_path / "runs").rglob(f"samples_{FILLERS}_*.jsonl")
    lines = [read_line(json.loads(line), FILLERS) for line in log.read_text(encoding="utf-8").splitlines()]
    sizes = {
        text.exchange.block.name: len(text.exchange.block.fillers) for text in sealed.seal.questions if text.exchange
    }
    assert all(line.fillers.n_fillers == sizes[line.fillers.block] for line in lines if line.fillers)
