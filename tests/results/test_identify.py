from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm_eval_leakage.results.identify import as_lines, identify, summary
from lm_eval_leakage.stats.combined import fit
from lm_eval_leakage.stats.known_scores import COMBINED, EVERY_CLASS, OWN, Calibration, KnownScores
from tests.results.harness_files import DETECTOR, audited, row, write_run

pytestmark = pytest.mark.usefixtures("calibrations_are_admitted")

A, B = "test_a", "test_b"
rng = np.random.default_rng(0)
UNSEEN = {name: rng.normal(size=200).tolist() for name in (A, B)}
SEEN = {name: (np.array(values) + 4).tolist() for name, values in UNSEEN.items()}


def line(question: int, detector: str, score: float, **more: object) -> str:
    own = {"benchmark": "x", "filter": detector, "detector": detector, "doc_hash": f"h{question}", "statistic": score}
    return json.dumps(audited({"question": f"Q{question}"}, True) | own | more)


def log(folder: Path, lines: list[str], name: str = "samples_x_2026-01-01T00-00-00.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join([*lines, ""]))
    return folder


def calibration(model: str = "M") -> Calibration:
    together = fit({name: [*SEEN[name], *UNSEEN[name]] for name in UNSEEN}, [True] * 200 + [False] * 200)
    combined = [together.probability({name: UNSEEN[name][i] for name in UNSEEN}) for i in range(200)]
    known = {name: KnownScores({EVERY_CLASS: UNSEEN[name]}, SEEN[name]) for name in UNSEEN}
    return Calibration(
        model, "x", OWN, "by hand", known | {COMBINED: KnownScores({EVERY_CLASS: combined}, ())}, together
    )


def runs_of(folder: Path, shifts: list[float]) -> Path:
    draws = np.random.default_rng(1)
    lines = [line(i, name, float(draws.normal() + shift)) for i, shift in enumerate(shifts) for name in (A, B)]
    return log(folder, lines)


def test_a_question_seen_by_one_of_two_models_is_in_the_joint_set(tmp_path) -> None:
    first = runs_of(tmp_path / "a", [5.0] * 20 + [0.0] * 60)
    second = runs_of(tmp_path / "b", [0.0] * 60 + [5.0] * 20)
    flagged = identify([(first, calibration("M")), (second, calibration("N"))], []).found.flagged
    assert np.mean(flagged[:20]) > 0.8
    assert np.mean(flagged[60:]) > 0.8
    assert np.mean(flagged[20:60]) < 0.15


def test_a_missing_audit_is_named(tmp_path) -> None:
    folder = log(tmp_path / "r", [line(i, A, 0.0) for i in range(3)])
    with pytest.raises(ValueError, match="audits are missing for: test_b"):
        identify([(folder, calibration())], [])


def test_audits_of_other_models_in_the_folder_are_not_used(tmp_path) -> None:
    for model, flagged in (("M", False), ("N", True)):
        write_run(tmp_path, model, {"b_leakage_perm": [audited(row(i), flagged) for i in range(3)]})
    name = DETECTOR
    known = Calibration("M", "b", OWN, "by hand", {name: KnownScores({EVERY_CLASS: [-1.5] * 40}, [1.5] * 40)})
    assert identify([(tmp_path, known)], [], name).found.pvalues == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="holds audits of 'M', 'N', but the calibration is of 'O'"):
        identify([(tmp_path, replace(known, model="O"))], [], name)


def test_a_calibration_of_other_detectors_says_of_what_it_is_and_what_was_run(tmp_path) -> None:
    folder = log(tmp_path / "r", [line(i, f"{A}:max_orders=12", 0.0) for i in range(3)])
    said = "has scores of test_a, but the run has test_a:max_orders=12"
    with pytest.raises(ValueError, match=said):
        identify([(folder, calibration())], [], A)
    with pytest.raises(ValueError, match="but the run has"):
        identify([(folder, calibration())], [])


def test_seen_questions_are_found_and_it_says_what_holds_with_high_probability_beside_what_holds_on_average(
    tmp_path,
) -> None:
    shifts = [4.0] * 140 + [0.0] * 60
    found = identify([(runs_of(tmp_path / "r", shifts), calibration())], [], level=0.1)
    flagged = np.array(found.found.flagged)
    assert flagged[:140].mean() > 0.9
    n_flagged, most = found.bound(found.found.flagged)
    assert n_flagged == flagged.sum()
    assert flagged[140:].sum() <= most < n_flagged / 4
    n_longest, most_of_longest = found.longest(0.1)
    assert most_of_longest <= n_longest / 10
    assert n_longest > 100
    said = summary(found)
    assert said.startswith(f"{n_flagged} of 200 questions flagged, of which at most 10% are expected")
    assert f"With probability 95%, at most {most} of the {n_flagged} flagged are unseen" in said
    assert f"that of the {n_longest} questions ranked highest (at most {most_of_longest} unseen)" in said
    lines = sorted(as_lines(found), key=lambda one: one["rank"])
    assert all(one["doc"] == {"question": f"Q{one['doc_hash'][1:]}"} for one in lines)
    assert lines[-1]["rank"] == 200
    assert lines[-1]["unseen_at_most"] == max(line["unseen_at_most"] for line in lines)
    for line in lines:  # the first 140 are those that were seen
        above = [one for one in lines if one["pvalue"] <= line["pvalue"]]
        assert line["rank"] == len(above)
        assert sum(int(one["doc_hash"][1:]) >= 140 for one in above) <= line["unseen_at_most"]


def test_of_a_model_that_has_seen_nothing_no_list_is_vouched_for(tmp_path) -> None:
    found = identify([(runs_of(tmp_path / "r", [0.0] * 60), calibration())], [])
    assert found.longest(0.1) == (0, 0)
    assert "With probability 95% no list, however short, is known to have at most 10% unseen" in summary(found)


def test_the_bounds_of_several_models_hold_for_questions_that_none_has_seen(tmp_path) -> None:
    runs = [(runs_of(tmp_path / name, [5.0] * 30 + [0.0] * 50), calibration(name)) for name in "MN"]
    lines = as_lines(identify(runs, []))
    for line in lines:
        above = [one for one in lines if one["pvalue"] <= line["pvalue"]]
        assert sum(int(one["doc_hash"][1:]) >= 30 for one in above) <= line["unseen_at_most"]
    assert max(line["unseen_at_most"] for line in lines) < 80


def test_a_calibration_of_three_scores_is_refused(tmp_path) -> None:
    known = Calibration("M", "b", OWN, "by hand", {A: KnownScores({EVERY_CLASS: [0.0, 1.0, 2.0]}, ())})
    told = "^the calibration of 'M' has 3 known-unseen scores of 'test_a'; with fewer than 19 no p-value reaches 5 %"
    with pytest.raises(ValueError, match=told):
        identify([(runs_of(tmp_path / "r", [0.0] * 30), known)], [], A)


def test_of_five_questions_no_set_is_named(tmp_path) -> None:
    found = identify([(runs_of(tmp_path / "r", [9.0] * 5), calibration())], [])
    assert summary(found) == (
        "No set is named: 5 questions with a score from every model, fewer than the 10 that a set is chosen from; "
        "audit more questions."
    )
    assert all(line["flagged"] is line["unseen_at_most"] is None for line in as_lines(found))


def test_questions_of_a_kind_that_the_calibration_lacks_are_not_judged(tmp_path) -> None:
    options = {"choices": ["a", "b", "c", "d"], "answer": 0}
    docs = [{"doc": {"question": f"Q{i}"} | options, "guards": "in_order" if i < 2 else ""} for i in range(40)]
    folder = log(tmp_path / "r", [line(i, A, 9.0, **doc) for i, doc in enumerate(docs)])
    kind = "4 options, no guard"
    known = Calibration("M", "b", OWN, "o", {A: KnownScores({EVERY_CLASS: UNSEEN[A], kind: UNSEEN[A]}, ())})
    found = identify([(folder, known)], problems := [], A)
    assert (len(found.questions), found.untested) == (38, 2)
    assert "2 questions with 4 options, guarded cannot be judged: the calibration of 'M' has no known-unseen" in str(
        problems[-1]
    )
