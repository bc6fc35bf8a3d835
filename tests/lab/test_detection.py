"""How a simulation runs an audit, keeps it and reads it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.detectors.membership import TokenMeasurement
from lm_eval_leakage.lab.detection import COST, Audits, read_detectors
from lm_eval_leakage.lab.settings import Simulation
from lm_eval_leakage.logs.audit_line import written_line
from lm_eval_leakage.records import Question, Skipped
from tests.checking.conftest import NamedFake

QUESTIONS = [Question(f"q{number}", f"Which, {number}?", (f"x{number}", "y", "z")) for number in range(4)]


def test_a_statistic_with_several_scores_is_one_detector_per_score(tmp_path: Path) -> None:
    tokens = TokenMeasurement(-2.5, 0.25, -6.0, 0.5, 12, -31.5)
    undefined = TokenMeasurement(float("nan"), 0.0, -1.0, 0.0, 3, -9.0)
    samples = [
        written_line(verdict, benchmark="bench", detector="token_evidence", guards=())
        | {"doc": {"id": name}, "doc_hash": name, "filter": "token_evidence", "resps": []}
        for name, verdict in (("q1", tokens), ("q2", undefined), ("q3", Skipped("its text has no token")))
    ]
    (tmp_path / "samples_x.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    (tmp_path / COST).write_text("[200, 10.0]")
    detectors = {detector.name: detector for detector in read_detectors(tmp_path)}
    assert list(detectors) == [f"token_evidence/{key}" for key in tokens.ranks_by]
    likelihood = detectors["token_evidence/mean_loglikelihood"]
    assert likelihood.scores == pytest.approx({"q1": -2.5, "q2": float("nan")}, nan_ok=True)
    assert (likelihood.skipped, likelihood.flags) == ({"q3": "its text has no token"}, None)
    assert (likelihood.n_tokens, likelihood.seconds) == (200, 10)


def audits(folder: Path, name: str = "a", **options: object) -> Audits:
    references = options.pop("references", {})
    return Audits(Simulation(f"pretrained={name}", "b", "fake", **options), folder, QUESTIONS, QUESTIONS, references)


@pytest.mark.parametrize(
    ("metadata", "n_requests"),
    [({}, 4 * 6), ({"orders": 2}, 4 * 2), ({"control_form": True}, 3 * 4 * 6), ({"control_form": False}, 4 * 6)],
)
def test_the_control_form_is_asked_only_if_the_user_wants_it(
    fakes: type[NamedFake], tmp_path: Path, metadata: dict, n_requests: int
) -> None:
    done = audits(tmp_path, metadata=metadata).answered(["leakage_perm"])
    (line, *_) = done.lines("leakage_perm")
    assert (line.question, len(fakes.requests)) == ("q0", n_requests)
    assert len(line.loglikelihoods) == metadata.get("orders", 6)
    assert line.orders is not None
    assert len(line.orders.control) == (2 * 6 if metadata.get("control_form") else 0)


def test_an_audit_is_run_once_and_what_a_killed_one_has_answered_is_not_asked_again(
    fakes: type[NamedFake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, n_before = fakes.score, 5

    def killed(context: str, continuation: str) -> float:
        if len(fakes.requests) == n_before:
            raise KeyboardInterrupt
        return score(context, continuation)

    monkeypatch.setattr(fakes, "score", staticmethod(killed))
    with pytest.raises(KeyboardInterrupt):
        audits(tmp_path).answered(["leakage_perm"])
    monkeypatch.setattr(fakes, "score", staticmethod(score))
    audits(tmp_path).answered(["leakage_perm"])
    assert len(fakes.requests) == 4 * 6
    assert [place.name for place in tmp_path.iterdir()] == ["leakage_perm"]
    audits(tmp_path).answered(["leakage_perm", "leakage_shared_likelihood"][:1])
    assert len(fakes.requests) == 4 * 6


def test_a_shard_is_named_by_its_first_question(fakes: type[NamedFake], tmp_path: Path) -> None:
    done = audits(tmp_path, block=2).answered(["leakage_shared_likelihood"])
    assert [line.question for line in done.lines("leakage_shared_likelihood")] == ["q0", "q2"]


def test_a_reference_is_subtracted_and_not_asked_in_the_control_form(fakes: type[NamedFake], tmp_path: Path) -> None:
    reference = audits(tmp_path / "reference").answered(["leakage_perm"])
    assert len(fakes.requests) == 4 * 6
    against = audits(tmp_path, "b", references={"leakage_perm": reference.folder / "leakage_perm"})
    (line, *_) = against.answered(["leakage_perm"]).lines("leakage_perm")
    assert line.orders is not None
    assert line.orders.reference == line.orders.loglikelihoods
    assert not line.orders.control
