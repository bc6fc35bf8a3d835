"""Wordings minus a reference: exact for any that is independent of the key, and refused where it says nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lm_eval_leakage.detectors.wording_rank import wording_scores
from lm_eval_leakage.harness.tasks.task import drawn
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.registry import spelled
from lm_eval_leakage.results import sealed_logs as log_tests
from lm_eval_leakage.results.seal_audit import SealAudit, SealedVerdict, as_table, remarks, seal_audit
from lm_eval_leakage.results.sealed_logs import WORDINGS_TEST, SealedLogs, ceiling_tests
from lm_eval_leakage.seal.drawn import Seal, SealedQuestion
from lm_eval_leakage.stats.looks import as_ranges
from lm_eval_leakage.stats.order_sum import version_sum
from lm_eval_leakage.stats.sealed import SealedTest, together
from tests.fakes import Score, by_hash
from tests.results.harness_files import answered, write_run
from tests.sealed import SealedFolder, looks_in, problems_of, rows, run_sealed, sealed_folder

N = 40
SEEN, CLEAN, OLDER, OTHER = "org/seen", "org/clean", "org/older", "org/other"
MINUS_OLDER = "wordings, minus org/older"


def model(name: str, remembers: Collection[str] = (), by: float = 2.0) -> Score:
    """Thinks of a text as all models do, in which texts differ by up to 30 nats, up to a nat of its own."""
    return lambda context, text: 30 * by_hash("", text) + by_hash(name, context + text) + by * (text in remembers)


# ---------------------------------------------------------------------- exact


def logs_of(name: str, wordings: Sequence[Sequence[str]], score: Score) -> SealedLogs:
    """In memory, of questions whose first wording is the published one."""
    questions = [SealedQuestion(str(i), tuple(own), ("a", "b"), 0, (0,), True) for i, own in enumerate(wordings)]
    lines = {
        (i,): SimpleNamespace(detector="wording_rank", reason=None, versions=[score("", text) for text in own])
        for i, own in enumerate(wordings)
    }
    return SealedLogs(Seal("bench", "a tool", tuple(questions), bytes(32), "00"), name, {"wording_rank": lines}, ())


def pvalues_of_all_keys(of_reference) -> np.ndarray:
    """Of a clean model, with every choice of published wordings of four questions with three wordings each; the
    reference is made from the published ones and the private ones."""
    texts, found = [[f"{word} {i}?" for word in ("Which", "What kind of", "Name")] for i in range(4)], []
    for places in product(range(3), repeat=4):
        wordings = [[own[at], *(own[k] for k in range(3) if k != at)] for own, at in zip(texts, places, strict=True)]
        public, private = {own[0] for own in wordings}, {text for own in wordings for text in own[1:]}
        reference = logs_of(OLDER, wordings, of_reference(public, private))
        (test,) = WORDINGS_TEST.of(replace(logs_of(CLEAN, wordings, model(CLEAN)), reference=reference))
        found.append(test.pvalue)
    return np.array(found)


def most_above_level(pvalues: np.ndarray) -> float:
    """By how much some level is reached more often than it says; up to .02 is error of the drawn sums."""
    return max(float((pvalues <= level + 0.005).mean()) - level for level in np.unique(pvalues))


@pytest.mark.parametrize(
    ("knows", "exceeds"),
    [
        (lambda public, private: (), (-1, 0.02)),
        (lambda public, private: public, (-1, 0.02)),
        (lambda public, private: private, (0.2, 1)),
    ],
    ids=["nothing", "the published wordings", "the private ones, which is why it has to be older"],
)
def test_over_all_keys_no_level_is_reached_more_often_than_it_says_whatever_published_a_reference_knows(
    knows, exceeds, monkeypatch
) -> None:
    monkeypatch.setattr(log_tests, "FEWEST_JUDGED", 1)
    found = pvalues_of_all_keys(lambda *told: model(OLDER, knows(*told)))
    assert exceeds[0] < most_above_level(found) < exceeds[1]
    if not knows("public", "private"):
        assert found.min() < 0.02  # of 81 keys, one has every published wording first


# ---------------------------------------------------------------------- from logs


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[SealedFolder, Path]:
    """A model that remembers, one that does not, and references, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("made")
    sealed = sealed_folder(folder, rows(N))
    public = {one.wordings[0] for one in sealed.seal.questions}
    private = {text for one in sealed.seal.questions for text in one.wordings[1:]}
    run_sealed(sealed, "leakage_wording", model(SEEN, public), folder / "org_seen", SEEN)
    for name, score in (
        (CLEAN, model(CLEAN)),
        (OLDER, model(OLDER)),
        (OTHER, model(OTHER)),
        ("org/renamed", model(SEEN, public)),
        ("org/knows_public", model("p", public, by=40.0)),
        ("org/knows_private", model("q", private, by=40.0)),
    ):
        copy_as(name, score, folder / "org_seen", sealed)
    return sealed, folder


def copy_as(name: str, score: Score, source: Path, sealed: SealedFolder) -> None:
    """The run as if another model had answered."""
    folder = shutil.copytree(source, source.parent / name.replace("/", "_"))
    (log,), (results,) = folder.rglob("samples_*.jsonl"), folder.rglob("results_*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line, question in zip(lines, sealed.seal.questions, strict=True):
        line["resps"] = [[[str(score("", text)), "False"]] for text in question.wordings]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    results.write_text(json.dumps(json.loads(results.read_text()) | {"model_name": name}))


class Place:
    """A ledger of its own."""

    def __init__(self, made: tuple[SealedFolder, Path], folder: Path) -> None:
        (self.sealed, self.runs), self.private = made, folder / "private"
        shutil.copytree(self.sealed.private, self.private)

    def of(self, name: str) -> Path:
        return self.runs / name.replace("/", "_")

    def audit(self, *names: str, reference: str | Path | None = None) -> SealAudit:
        other = self.of(reference) if isinstance(reference, str) else reference
        return seal_audit([self.of(name) for name in names], self.private, reference=other)

    def verdict(self, name: str, reference: str | Path | None = None) -> SealedVerdict:
        (found,) = self.audit(name, reference=reference).verdicts
        return found

    def answers(self, name: str) -> list[list[float]]:
        (log,) = self.of(name).rglob("samples_*.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [[float(response[0][0]) for response in line["resps"]] for line in lines]


@pytest.fixture
def place(made, tmp_path) -> Place:
    return Place(made, tmp_path)


def test_a_faint_memory_shows_once_what_models_share_is_subtracted_per_byte(place) -> None:
    (alone,), (minus,) = place.verdict(SEEN).tests, place.verdict(SEEN, OLDER).tests
    assert (alone.name, minus.name, minus.n) == ("wordings", MINUS_OLDER, N)
    assert alone.pvalue > 0.01
    assert minus.pvalue < 1e-6
    assert place.verdict(CLEAN, OLDER).tests[0].pvalue > 0.01
    differences = (np.array(place.answers(SEEN)) - np.array(place.answers(OLDER))).tolist()
    texts = [one.wordings for one in place.sealed.seal.questions]
    scores = [wording_scores(one, words) for one, words in zip(differences, texts, strict=True)]
    assert minus.pvalue == version_sum(scores).pvalue


def test_several_models_share_a_reference_which_is_no_look_itself(place) -> None:
    audit = place.audit(SEEN, CLEAN, reference=OLDER)
    assert [[test.name for test in own.tests] for own in audit.verdicts] == [[MINUS_OLDER]] * 2
    assert sorted(look.model for look in looks_in(place.private)) == [CLEAN, SEEN]
    assert f"{SEEN}: strong evidence: by {MINUS_OLDER}, p ≤ " in as_table(audit)
    assert problems_of(audit) == ""


def test_another_reference_is_another_look_and_the_same_answers_are_the_same_one(place, tmp_path) -> None:
    shutil.copytree(place.of(OLDER), tmp_path / "deep" / "elsewhere")
    asked = [None, OLDER, OTHER, tmp_path / "deep", None]
    found = [place.verdict(CLEAN, reference).look for reference in asked]
    assert [look.number for look in found] == [1, 2, 3, 2, 1]
    assert len({look.pvalue for look in found}) == 3
    assert place.verdict(CLEAN, OTHER).n_looks == 1  # the draws are the same, so their e-values do not add up


def test_a_reference_changes_no_look_at_a_model_whose_wordings_were_not_asked(place, tmp_path) -> None:
    run_sealed(place.sealed, "leakage_perm", by_hash, tmp_path / "runs", CLEAN)
    for other in (None, place.of(OLDER)):
        (found,) = seal_audit([tmp_path / "runs"], place.private, reference=other).verdicts
        assert [test.name for test in found.tests] == ["option orders"]
        assert found.look.number == 1
        assert "wordings (TASK_leakage_wording)" in found.missing


def test_questions_that_the_reference_was_not_asked_are_left_out_and_counted(place, tmp_path) -> None:
    run_sealed(place.sealed, "leakage_wording", model(OLDER), tmp_path / "few", OLDER, limit=25)
    found = place.verdict(SEEN, tmp_path / "few")
    assert (found.tests[0].n, found.look.places) == (25, as_ranges(drawn(range(N), 25, seed=0)))
    assert f"{MINUS_OLDER}: 15 questions left out: the reference was not asked it" in list(remarks(found))


def test_a_reference_that_was_asked_otherwise_is_not_compared(place, tmp_path) -> None:
    run_sealed(place.sealed, "leakage_wording", model(SEEN), tmp_path / "runs", SEEN, stem_prefix="Question:")
    (both,) = seal_audit([place.of(SEEN), tmp_path / "runs"], place.private, reference=place.of(OLDER)).verdicts
    not_asked = {"the reference was not asked it": N}
    assert {test.name: (test.n, dict(test.left_out)) for test in both.tests} == {
        "wordings (wording_rank), minus org/older": (N, {}),
        f"wordings (wording_rank:stem_prefix={spelled('Question:')}), minus org/older": (0, not_asked),
    }
    (alone,) = seal_audit([tmp_path / "runs"], place.private, reference=place.of(OLDER)).verdicts
    assert alone.look is None


# ---------------------------------------------------------------------- refused and told


@pytest.mark.parametrize(
    ("names", "reference", "said"),
    [
        ((OLDER,), OLDER, "org/older, the reference, is org/older by its name or its answers"),
        ((CLEAN, OLDER), OLDER, "minus itself says nothing; take .* another one, or leave org/older out of the runs"),
        ((SEEN,), "org/renamed", "org/renamed, the reference, is org/seen by its name or its answers"),
        ((SEEN,), "", "reference is '.*', which holds audits of .*org/clean.*; name the folder of one"),
        ((SEEN,), "org/nowhere", "org_nowhere"),
    ],
)
def test_a_reference_that_says_nothing_is_refused_and_costs_no_look(place, names, reference, said) -> None:
    with pytest.raises(ValueError, match=said):
        place.audit(*names, reference=reference)
    assert looks_in(place.private) == ()


def test_a_reference_without_wordings_is_refused_with_what_to_run(place, tmp_path) -> None:
    run_sealed(place.sealed, "leakage_perm", by_hash, tmp_path / "runs", OLDER)
    said = "reference is .*, where no wording was scored; run trees_leakage_wording with it"
    with pytest.raises(ValueError, match=said):
        place.audit(SEEN, reference=tmp_path / "runs")


@pytest.mark.parametrize(("which", "sign"), [("public", "≤"), ("private", "=")])
def test_a_reference_that_may_have_seen_what_it_must_not_is_told(place, which, sign) -> None:
    told = problems_of(place.audit(CLEAN, reference=f"org/knows_{which}"))
    wordings = {"public": "published", "private": "private"}[which]
    assert f"org/knows_{which}, the reference, prefers the {wordings} wordings (p {sign} " in told
    assert told.endswith("take a model that is older than the seal")


# ---------------------------------------------------------------------- a run with a reference of its own


def test_runs_with_reference_log_are_read_as_the_models_own_answers_and_that_is_told(place, tmp_path) -> None:
    log = str(place.of(OLDER))
    run_sealed(place.sealed, "leakage_wording", model(CLEAN), tmp_path / "runs", CLEAN, reference_log=log)
    both = seal_audit([place.of(CLEAN), tmp_path / "runs"], place.private)
    alone = place.verdict(CLEAN).tests[0]
    assert [(test.name, test.pvalue) for test in both.verdicts[0].tests] == [("wordings", alone.pvalue)]
    said = "trees_leakage_wording was run with reference_log, which its table and its flags subtract; here"
    assert said in problems_of(both)


# ---------------------------------------------------------------------- the ceiling

N_ASKED = 12


def sealed(number: int) -> SealedQuestion:
    """Every third question has two equally right options."""
    right = (0, 2) if number % 3 == 0 else (0,)
    return SealedQuestion(str(number), (f"Question {number}?", "private"), ("a", "b", "c"), 0, right, True)


SEAL_OF_ASKED = Seal("bench", "a tool", tuple(map(sealed, range(N_ASKED))), bytes(32), "00")


def line(number: int, right: bool, stem: str = "Question") -> dict[str, object]:
    doc = {"question": f"{stem} {number}?", "choices": ["a", "b", "c"], "answer": 0}
    return answered(number, doc, right)


def found_by(folder: Path, seal: Seal) -> list[SealedTest]:
    problems: list[Problem] = []
    return ceiling_tests(SealedLogs(seal, "m", {}, find_runs([folder], problems)))


def test_every_ordinary_run_of_a_benchmark_with_several_right_options_is_tested_and_none_is_combined(tmp_path) -> None:
    right = [line(number, True) for number in range(N_ASKED)]
    write_run(tmp_path, "m", {"bench": right, "other": [line(0, True, "Not")]})
    (one,) = found_by(tmp_path, SEAL_OF_ASKED)
    assert (one.name, one.n, one.pvalue) == ("ceiling", 4, pytest.approx(1 / 16))
    assert (one.effect, one.effect_error) == (0.5, pytest.approx(0.25))
    assert together([one]).names == ()
    plain = tuple(replace(one, equally_right=(0,)) for one in SEAL_OF_ASKED.questions)
    assert found_by(tmp_path, replace(SEAL_OF_ASKED, questions=plain)) == []
    write_run(tmp_path, "m", {"bench": [line(number, False) for number in range(N_ASKED)]}, n_shot=5)
    names = {test.name: test.pvalue for test in found_by(tmp_path, SEAL_OF_ASKED)}
    assert names == {"ceiling (bench, 0 shots)": pytest.approx(1 / 16), "ceiling (bench, 5 shots)": pytest.approx(1)}


@pytest.mark.parametrize(
    ("lines", "n"),
    [
        ([line(number, True) for number in range(6)] + [line(7, True, "Another"), line(9, True, "private")], 2),
        ([line(number, True) | {"metrics": ["perplexity"], "perplexity": 3.5} for number in range(N_ASKED)], 0),
    ],
)
def test_only_answers_to_published_questions_with_a_score_count(tmp_path: Path, lines, n: int) -> None:
    write_run(tmp_path, "m", {"bench": lines})
    assert sum(test.n for test in found_by(tmp_path, SEAL_OF_ASKED)) == n
