"""How a simulation stores an audit and reads it back."""

from __future__ import annotations

import json

import pytest

from lm_eval_leakage.detectors.option_orders import MaxOrderEvidence
from lm_eval_leakage.detectors.token_evidence import TokenMeasurement
from lm_eval_leakage.lab.detection import Audits, _stored, read_detectors, read_lines
from lm_eval_leakage.logs.audit_line import written_line
from lm_eval_leakage.records import Question, Skipped
from tests.fakes import FakeLM, by_hash

COST = {"n_tokens": 600, "seconds": 30.0, "n_questions": 3}


def sample(name: str, verdict, detector: str, guards=()) -> dict:
    own = written_line(verdict, benchmark="bench", detector=detector, guards=guards)
    doc = {"id": name, "a long text": "which is not kept"}
    return own | {"doc": doc, "filter": detector, "resps": [[(-20.5, False)], [(-21.0, False)]], "arguments": []}


def kept(*samples) -> dict:
    return json.loads(json.dumps({"lines": [_stored(one) for one in samples], **COST}))


def test_a_line_is_stored_without_its_texts_and_read_with_its_answers() -> None:
    audit = kept(sample("q1", MaxOrderEvidence(True, 0.5, 0.5, 0.5, 0.5, 0, 2), "max_order", ("in_order",)))
    assert "which is not kept" not in json.dumps(audit)
    (line,) = read_lines("leakage_perm", audit)
    assert (line.question, line.detector, line.guarded, line.flagged) == ("q1", "max_order", True, True)
    assert list(line.loglikelihoods) == [-20.5, -21.0]


def test_a_shard_is_identified_by_its_first_question() -> None:
    shard = sample("s", Skipped("too long"), "shared_likelihood") | {"doc": {"id": "s", "members": ["q7", "q8"]}}
    assert [line.question for line in read_lines("leakage_shared_likelihood", kept(shard))] == ["q7"]


def test_a_statistic_with_several_scores_is_one_detector_per_score() -> None:
    tokens = TokenMeasurement(-2.5, 0.25, -6.0, 0.5, 12)
    undefined = TokenMeasurement(float("nan"), 0.0, -1.0, 0.0, 3)
    found = {
        detector.name: detector
        for detector in read_detectors(
            "leakage_tokens",
            kept(
                sample("q1", tokens, "token_evidence"),
                sample("q2", undefined, "token_evidence"),
                sample("q3", Skipped("its text has no token"), "token_evidence"),
            ),
        )
    }
    assert list(found) == [f"token_evidence/{key}" for key in tokens.ranks_by]
    likelihood = found["token_evidence/mean_loglikelihood"]
    assert likelihood.scores == pytest.approx({"q1": -2.5, "q2": float("nan")}, nan_ok=True)
    assert (likelihood.skipped, likelihood.flags) == ({"q3": "its text has no token"}, None)
    assert (likelihood.n_tokens, likelihood.seconds) == (200, 10)


@pytest.fixture
def lm(monkeypatch: pytest.MonkeyPatch) -> FakeLM:
    """The model that every audit loads."""
    model = FakeLM(by_hash)
    monkeypatch.setattr("lm_eval_leakage.harness.tasks.given_questions.load_model", lambda *_: model)
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)  # it takes longer than the audit
    return model


QUESTIONS = [Question(f"q{number}", f"Which, {number}?", (f"x{number}", "y", "z")) for number in range(4)]


@pytest.mark.parametrize(
    ("metadata", "n_requests"),
    [({}, 4 * 6), ({"orders": 2}, 4 * 2), ({"control_form": True}, 3 * 4 * 6), ({"control_form": False}, 4 * 6)],
)
def test_the_control_form_is_asked_only_if_the_user_wants_it(lm, tmp_path, metadata: dict, n_requests: int) -> None:
    audits = Audits(tmp_path, "fake", "pretrained=a", QUESTIONS, QUESTIONS, metadata=metadata)
    (line, *_) = audits.lines("leakage_perm")
    assert len(lm.asked) == n_requests
    assert len(line.loglikelihoods) == metadata.get("orders", 6)
    assert line.orders is not None
    assert len(line.orders.control) == (2 * 6 if metadata.get("control_form") else 0)
    assert audits.metadata == {"control_form": False} | metadata


def test_a_reference_is_not_asked_in_the_control_form_either(lm, tmp_path) -> None:
    audits = Audits(tmp_path, "fake", "pretrained=a", QUESTIONS, QUESTIONS)
    (log,) = audits.answer_as_reference(tmp_path / "reference", ["leakage_perm"]).values()
    assert len(lm.asked) == 4 * 6
    against = Audits(tmp_path, "fake", "pretrained=b", QUESTIONS, QUESTIONS, references={"leakage_perm": log})
    (line, *_) = against.lines("leakage_perm")
    assert line.orders is not None
    assert line.orders.reference == line.orders.loglikelihoods
    assert not line.orders.control
