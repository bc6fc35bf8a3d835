"""What `seal audit` makes of logs: every model a row and a look, and whatever cannot be used is named."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lm_eval_leakage.results.seal_audit import evalue, remarks, seal_audit
from lm_eval_leakage.seal.looks_file import add_looks, head_text
from lm_eval_leakage.stats.looks import Look
from lm_eval_leakage.stats.order_power import DETECT
from tests.fakes import by_hash
from tests.results.harness_files import audited, row, write_run
from tests.sealed import NAME, SealedFolder, has_seen, looks_in, problems_of, rows, run_sealed, sealed_folder

N = 64
SEEN, CLEAN = "org/seen", "org/clean"


@dataclass
class Place:
    sealed: SealedFolder
    runs: Path

    @property
    def private(self) -> Path:
        return self.sealed.private

    def log_of(self, audit: str, model: str = SEEN) -> Path:
        (file,) = (self.runs / model.replace("/", "__")).glob(f"samples_{NAME}_{audit}_2*.jsonl")
        return file


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Place:
    folder = tmp_path_factory.mktemp("made")
    given = rows(N)
    given[7] |= {"seal": "keep"}
    sealed = sealed_folder(folder, given)
    run_sealed(sealed, "leakage_seal", has_seen(sealed.seal, range(40)), folder / "runs", SEEN)
    run_sealed(sealed, "leakage_perm", by_hash, folder / "runs", CLEAN)
    return Place(sealed, folder / "runs")


@pytest.fixture
def place(made: Place, tmp_path) -> Place:
    """A copy, so that each test has a ledger of its own."""
    shutil.copytree(made.sealed.folder, tmp_path / "sealed")
    shutil.copytree(made.runs, tmp_path / "runs")
    return Place(SealedFolder(tmp_path / "sealed", made.sealed.seal), tmp_path / "runs")


def verdict_on(model: str, place: Place):
    (verdict,) = [
        verdict_of_model
        for verdict_of_model in seal_audit([place.runs], place.private).verdicts
        if verdict_of_model.model == model
    ]
    return verdict


# ---------------------------------------------------------------------- verdicts


def test_all_tests_of_a_model_are_shown_and_combined_with_the_pvalues_of_the_tables_of_its_runs(place) -> None:
    verdict = verdict_on(SEEN, place)
    by_name = {test.name: test for test in verdict.tests}
    assert [(name, test.n) for name, test in by_name.items()] == [
        ("wordings", N),
        ("option orders", N - 1),
        ("question order", N // 4),
    ]
    assert by_name["option orders"].left_out == {
        "its options depend on their order, which its author kept, so that no key drew it": 1
    }
    assert verdict.combined.names == tuple(by_name)
    assert verdict.combined.pvalue < min(test.pvalue for test in verdict.tests) < 1e-6
    assert verdict.combined.log_evalue == pytest.approx(sum(test.log_evalue for test in verdict.tests))
    assert verdict.word == "strong evidence"
    assert 15 < verdict.bound.n_seen <= 40
    (results,) = (place.runs / "org__seen").glob("results_*.json")
    tables = json.loads(results.read_text())["results"]
    for name, audit, row_name in (
        ("wordings", "wording", "wording_pvalue,wording_rank"),
        ("option orders", "perm", "evidence_pvalue,max_order"),
        ("question order", "shared_likelihood", "permutation_pvalue,shared_likelihood"),
    ):
        assert by_name[name].pvalue == pytest.approx(tables[f"{NAME}_leakage_{audit}"][row_name], rel=1e-3)


def test_where_nothing_is_found_it_is_reported_how_many_questions_may_have_been_seen(place) -> None:
    """At every look the same, whose level is another."""
    shares = {}
    for number in (2, 10):
        private = place.private.with_name(f"private{number}")
        shutil.copytree(place.private, private)
        for number_of_seal in range(number - 1):
            add_looks(private, place.sealed.seal, [Look(0, f"m{number_of_seal}", "digest", 0.01, 0.5, 0.0, "0-3")])
        (verdict,) = seal_audit([place.runs / "org__clean"], private).verdicts
        assert verdict.look.number == number
        assert verdict.word == ("none found" if dict(verdict.at_most)[3] <= DETECT else "inconclusive")
        shares[number] = dict(verdict.at_most)[1]
        assert f"; at most {100 * shares[number]:.0f}\xa0% of the questions were seen once or " in verdict.sentence
    assert 0 < shares[2] == shares[10] < 1


def test_finding_nothing_by_a_test_of_unknown_power_is_no_clean_bill(made, tmp_path) -> None:
    run_sealed(made.sealed, "leakage_shared_likelihood", by_hash, tmp_path / "runs", CLEAN)
    shutil.copytree(made.sealed.folder, tmp_path / "sealed")
    (verdict,) = seal_audit([tmp_path / "runs"], tmp_path / "sealed" / made.private.name).verdicts
    assert verdict.look is not None
    assert verdict.look.pvalue > verdict.level()
    assert verdict.word == "no verdict"
    assert "; how many questions may have been seen is not known" in verdict.sentence


def test_too_few_questions_have_no_pvalue_and_cost_no_look(made, tmp_path) -> None:
    run_sealed(made.sealed, "leakage_perm", by_hash, tmp_path / "few", limit=3)
    shutil.copytree(made.private, tmp_path / "private")
    (verdict,) = seal_audit([tmp_path / "few"], tmp_path / "private").verdicts
    assert (verdict.word, verdict.look) == ("no verdict", None)
    assert "option orders: 3 questions; at least 20 are needed" in verdict.sentence
    assert looks_in(tmp_path / "private") == ()


# ---------------------------------------------------------------------- looks


def test_each_model_is_a_look_and_the_same_logs_are_the_same_look_wherever_they_lie(place, tmp_path) -> None:
    first = seal_audit([place.runs], place.private)
    shutil.copytree(place.runs / "org__seen", tmp_path / "elsewhere" / "deep")
    again = seal_audit([tmp_path / "elsewhere", place.runs], place.private)
    assert [look.number for look in looks_in(place.private)] == [1, 2]
    assert [verdict.written for verdict in first.verdicts] == [None, None]
    assert [(verdict.model, verdict.written.number) for verdict in again.verdicts] == [(SEEN, 1), (CLEAN, 2)]
    assert any("no new look is counted" in remark for remark in remarks(again.verdicts[0]))


def test_other_answers_of_a_model_are_another_look_at_a_stricter_level(place) -> None:
    seal_audit([place.runs], place.private)
    run_sealed(place.sealed, "leakage_perm", lambda *texts: 2 * by_hash(*texts), place.runs, CLEAN)
    verdict = verdict_on(CLEAN, place)
    assert (verdict.look.number, verdict.written) == (3, None)
    assert verdict.level() == pytest.approx(0.01 / 12)
    assert (verdict.n_looks, verdict.log_evalue) == (1, looks_in(place.private)[1].log_evalue)


def test_the_order_of_models_that_are_reported_together_changes_no_word(made, tmp_path) -> None:
    """Four models of which the last by name has seen the questions; handed out in their order, its level was .0005."""
    for name in ("a", "b", "c"):
        run_sealed(made.sealed, "leakage_perm", lambda text, of, who=name: by_hash(who + text, of), tmp_path, name)
    run_sealed(made.sealed, "leakage_perm", has_seen(made.sealed.seal, range(40)), tmp_path, "z")
    words = []
    for n, order in enumerate((["a", "b", "c", "z"], ["z", "c", "b", "a"])):
        shutil.copytree(made.private, tmp_path / f"private{n}")
        verdicts = seal_audit([tmp_path / name for name in order], tmp_path / f"private{n}").verdicts
        words.append({verdict.model: (verdict.word, verdict.level()) for verdict in verdicts})
    assert words[0] == words[1]
    assert words[0]["z"] == ("strong evidence", pytest.approx(0.01 * 4 / 5 / 3))
    (again,) = seal_audit([tmp_path / "z"], tmp_path / "private0").verdicts
    assert (again.word, again.level()) == words[0]["z"]


def test_looks_at_different_questions_of_one_model_multiply_their_evalues(made, tmp_path) -> None:
    shutil.copytree(made.private, tmp_path / "private")
    public = (made.sealed.public / f"{NAME}.jsonl").read_text().splitlines(keepends=True)
    verdicts = []
    for half in (0, 1):
        file, runs = tmp_path / f"half{half}.jsonl", tmp_path / f"runs{half}"
        file.write_text("".join(public[half * N // 2 : (half + 1) * N // 2]))
        score = has_seen(made.sealed.seal, range(N))
        run_sealed(made.sealed, "leakage_perm", score, runs, SEEN, data_files=str(file))
        verdicts += seal_audit([runs], tmp_path / "private").verdicts
    first, second = verdicts
    assert (second.n_looks, second.look.number) == (2, 2)
    assert second.log_evalue == pytest.approx(first.combined.log_evalue + second.combined.log_evalue)
    assert any("2 looks at different questions together" in remark for remark in remarks(second))


def test_a_repeated_look_is_computed_again_and_a_difference_from_what_is_written_is_reported(place) -> None:
    """Written by a version of the package whose tests gave .002."""
    first = next(verdict for verdict in seal_audit([place.runs / "org__clean"], place.private).verdicts)
    for file in ("looks.jsonl", "looks_head.json"):
        (place.private / file).unlink()
    (place.private / "looks_head.json").write_text(head_text(place.sealed.seal))
    add_looks(place.private, place.sealed.seal, [replace(first.look, pvalue=0.002)])
    audit = seal_audit([place.runs / "org__clean"], place.private)
    (again,) = audit.verdicts
    assert (again.look, again.written.pvalue) == (first.look, 0.002)
    assert again.word == "none found"
    assert [look.pvalue for look in audit.ledger.looks] == [0.002]
    assert sum("look 1 was written with p = 0.002, and the same answers" in remark for remark in remarks(again)) == 1
    assert not [remark for remark in remarks(first) if "was written with" in remark]


# ---------------------------------------------------------------------- what cannot be used


def test_a_log_that_was_cut_is_named_and_its_other_lines_are_used(place) -> None:
    log = place.log_of("leakage_wording")
    text = log.read_text()
    log.write_text(text[: text.rindex("\n", 0, len(text) // 2) - 40])  # within a line
    audit = seal_audit([place.runs], place.private)
    assert "truncated, not JSON" in problems_of(audit)
    assert f"lacks questions of {NAME}_leakage_wording: it holds " in problems_of(audit)
    wordings, orders, _ = audit.verdicts[0].tests
    assert 20 <= wordings.n < N
    assert orders.n == N - 1


def test_audits_with_another_seal_are_named_and_left_out(place, tmp_path) -> None:
    other = sealed_folder(tmp_path / "other", rows(N), seed=1)
    run_sealed(other, "leakage_seal", has_seen(other.seal, range(N)), place.runs, CLEAN)
    audit = seal_audit([place.runs], place.private)
    clean = next(verdict for verdict in audit.verdicts if verdict.model == CLEAN)
    assert [test.name for test in clean.tests] == ["option orders"]
    assert problems_of(audit).count("was run with another seal (commitment ") == 3
    with pytest.raises(ValueError, match=f"no audit of '{NAME}' is in .*was run with another seal"):
        seal_audit([place.log_of("leakage_wording", CLEAN)], place.private)


def test_logs_of_another_benchmark_are_named_and_left_out_and_alone_refused_with_the_remedy(place, tmp_path) -> None:
    others = {"bench_leakage_perm": [audited(row(i), False) for i in range(5)]}
    write_run(place.runs, CLEAN, others)
    write_run(place.runs, "org/third", others)
    audit = seal_audit([place.runs], place.private)
    assert {verdict.model for verdict in audit.verdicts} == {SEEN, CLEAN}
    assert f"bench_leakage_perm: 5 rows not of the seal of '{NAME}'; left out" in problems_of(audit)
    assert f"org/third: no audit of '{NAME}'; left out" in problems_of(audit)
    n_looks = len(looks_in(place.private))
    write_run(tmp_path / "others", CLEAN, others)
    with pytest.raises(ValueError, match=f"run {NAME}_leakage_seal with --metadata seal=PRIVATE_FOLDER"):
        seal_audit([tmp_path / "others"], place.private)
    assert len(looks_in(place.private)) == n_looks


def test_an_audit_that_was_run_without_the_seal_is_read_too(place) -> None:
    """The log says that the orders may be written; the key says that they were drawn."""
    run_sealed(place.sealed, "leakage_perm", has_seen(place.sealed.seal, range(N)), place.runs, "org/late", seal=None)
    verdict = verdict_on("org/late", place)
    (orders,) = verdict.tests
    assert (orders.n, verdict.word) == (N - 1, "strong evidence")
    assert orders.left_out == {"its order was kept by the author": 1}


# ---------------------------------------------------------------------- shown


@pytest.mark.parametrize(("log", "shown"), [(0.0, "1"), (30.0, "1.1e+13"), (2000.0, "1e+869"), (math.nan, "–")])
def test_an_evalue_of_any_size_can_be_shown(log, shown) -> None:
    assert evalue(log) == shown
