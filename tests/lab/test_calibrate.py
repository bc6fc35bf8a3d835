from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lm_eval_leakage.lab.calibrate import from_held_out
from lm_eval_leakage.lab.settings import Simulation
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.logs.audit_line import LINE_VERSION, VERSION_KEY, read_line
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.known_scores import COMBINED, EVERY_CLASS

N = 40


def outcome() -> Outcome:
    """Forty questions per half; scores of the trained ones are two standard deviations higher."""
    rng = np.random.default_rng(0)
    names = [f"q{i}" for i in range(2 * N)]
    questions = [Question(name, "Which?", ("a", "b", "c", "d")[: 3 + i % 2]) for i, name in enumerate(names)]
    lines = [
        {
            VERSION_KEY: LINE_VERSION,
            "benchmark": "mmlu",
            "doc": {"id": name},
            "doc_hash": name,
            "filter": "test",
            "resps": [],
            "detector": "test",
            "ranks_by": "statistic,other" if i else "",
            "guards": "in_order" if i % 5 == 0 else "",
            "statistic": float(rng.normal() + 2 * (i < N)),
            "other": float(rng.normal()),
        }
        for i, name in enumerate(names)
    ]
    audits = SimpleNamespace(questions=questions, lines=lambda suffix: [read_line(one, suffix) for one in lines])
    settings = Simulation("pretrained=M", "mmlu", detectors=("leakage_perm",), epochs=(3,))
    return Outcome(settings, tuple(names[:N]), tuple(names[N:]), 2 * N, {3: audits})


def test_known_scores_are_those_of_the_held_out_half_by_class() -> None:
    calibration = from_held_out(outcome(), 3)
    known = calibration.detectors["test/statistic"]
    assert (calibration.model, calibration.benchmark) == ("M", "mmlu")
    assert "after 3 exposures to 40 others" in calibration.origin
    assert len(known.unseen[EVERY_CLASS]) == N
    assert len(known.seen) == N - 1  # the first question was not tested
    sizes = {name: len(scores) for name, scores in known.unseen.items() if name != EVERY_CLASS}
    assert sum(sizes.values()) == N
    assert sizes["3 options, guarded"] == 4


def test_combined_scores_are_fitted_on_other_questions() -> None:
    calibration = from_held_out(outcome(), 3)
    together = calibration.combined
    assert together is not None
    assert together.detectors == ("test/statistic", "test/other")
    assert together.weights[0] > abs(together.weights[1])
    known = calibration.detectors[COMBINED]
    assert np.mean(known.seen) > np.mean(known.unseen[EVERY_CLASS]) + 0.2
    (seen, n_seen), _ = known.flagged(0.05)
    assert seen / n_seen == pytest.approx(0.6, abs=0.25)
