from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lm_eval_leakage.results.identify import as_lines, identify, summary
from lm_eval_leakage.results.samples import judged
from lm_eval_leakage.statistics.combined import fit
from lm_eval_leakage.statistics.known_scores import COMBINED, EVERY_CLASS, Calibration, KnownScores

A, B = "ProbeA()/TestA()", "ProbeB()/TestB()"
rng = np.random.default_rng(0)
UNSEEN = {f"{name}/statistic": rng.normal(size=200).tolist() for name in (A, B)}
SEEN = {name: (np.array(values) + 4).tolist() for name, values in UNSEEN.items()}


def line(question: int, detector: str, score: float | None, **more: object) -> str:
    reason = {"reason": "too long", "ranks_by": ""} if score is None else {"reason": None, "ranks_by": "statistic"}
    own = {"doc_hash": f"h{question}", "doc": {"question": f"Q{question}"}, "detector": detector, "guards": ""}
    return json.dumps(own | reason | ({} if score is None else {"statistic": score}) | more)


def log(folder: Path, lines: list[str], name: str = "samples_x_2026-01-01T00-00-00.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join([*lines, ""]))
    return folder


def calibration(model: str = "M") -> Calibration:
    together = fit({name: [*SEEN[name], *UNSEEN[name]] for name in UNSEEN}, [True] * 200 + [False] * 200)
    combined = [together.probability({name: UNSEEN[name][i] for name in UNSEEN}) for i in range(200)]
    known = {name: KnownScores({EVERY_CLASS: UNSEEN[name]}, SEEN[name]) for name in UNSEEN}
    return Calibration(model, "b", "by hand", known | {COMBINED: KnownScores({EVERY_CLASS: combined}, ())}, together)


def runs_of(folder: Path, shifts: list[float]) -> Path:
    draws = np.random.default_rng(1)
    lines = [line(i, name, float(draws.normal() + shift)) for i, shift in enumerate(shifts) for name in (A, B)]
    return log(folder, lines)


def test_seen_questions_are_in_the_set_and_few_others(tmp_path) -> None:
    folder = runs_of(tmp_path / "r", [4.0] * 40 + [0.0] * 60)
    found = identify([(folder, calibration())], level=0.1)
    flagged = np.array(found.found.flagged)
    assert flagged[:40].mean() > 0.9
    assert flagged[40:].sum() <= 12
    assert summary(found).startswith(f"{flagged.sum()} of 100 questions flagged, of which at most 10% are expected")
    assert as_lines(found)[0]["doc"] == {"question": "Q0"}


def test_one_detector_may_be_asked_for(tmp_path) -> None:
    folder = runs_of(tmp_path / "r", [4.0] * 40 + [0.0] * 60)
    assert sum(identify([(folder, calibration())], f"{A}/statistic").found.flagged[:40]) > 30
    with pytest.raises(ValueError, match="detector is 'C', of which the calibration of 'M' has no scores"):
        identify([(folder, calibration())], "C")


def test_a_question_seen_by_one_of_two_models_is_in_the_joint_set(tmp_path) -> None:
    first = runs_of(tmp_path / "a", [5.0] * 20 + [0.0] * 60)
    second = runs_of(tmp_path / "b", [0.0] * 60 + [5.0] * 20)
    flagged = identify([(first, calibration("M")), (second, calibration("N"))]).found.flagged
    assert np.mean(flagged[:20]) > 0.8
    assert np.mean(flagged[60:]) > 0.8
    assert np.mean(flagged[20:60]) < 0.15


def test_a_question_without_a_score_is_counted(tmp_path) -> None:
    lines = [line(0, A, 0.1), line(0, B, 0.2), line(1, A, None), line(1, B, 0.3)]
    found = identify([(log(tmp_path / "r", lines), calibration())])
    assert (len(found.questions), found.untested) == (1, 1)
    assert "1 question(s) lack a score" in summary(found)


def test_a_missing_audit_is_named(tmp_path) -> None:
    folder = log(tmp_path / "r", [line(i, A, 0.0) for i in range(3)])
    with pytest.raises(ValueError, match=r"audits are missing for: ProbeB\(\)/TestB\(\)/statistic"):
        identify([(folder, calibration())])


def test_broken_lines_are_named_and_other_tasks_are_passed_over(tmp_path, caplog) -> None:
    lines = [line(0, A, 1.0), line(0, A, 1.0)[:30], json.dumps({"doc_hash": "other"}), line(2, A, 1.0, statistic="?")]
    assert [found.question for found in judged(log(tmp_path / "r", lines))] == ["h0"]
    assert "line 2: left out" in caplog.text
    assert "line 4: left out" in caplog.text


def test_a_folder_without_logs_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="holds no samples log; run the audit with --log_samples"):
        list(judged(tmp_path))
