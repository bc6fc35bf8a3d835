"""The log's format byte for byte, and how it is read. A change of these files is a change of the format: raise the
version, and say so in docs/log_format.md."""

from __future__ import annotations

import inspect
import json
import math
import sys
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_origin

import pytest

from lm_eval_leakage.detectors import probes, statistics
from lm_eval_leakage.logs.audit_line import (
    CORE,
    OF_HARNESS,
    Arms,
    AuditLine,
    benchmark_of,
    read_line,
    written_line,
)
from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Described, Evidence, Measurement, Skipped
from lm_eval_leakage.registry import detector_id
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import COMBINED, COPY, EVERY_CLASS, Calibration, KnownScores
from tests.logs.kinds import DOC, KINDS, Kind

GOLDEN = Path(__file__).with_name("golden")
LINES = (GOLDEN / "lines.jsonl").read_text(encoding="utf-8").splitlines()
every_kind = pytest.mark.parametrize(("kind", "line"), list(zip(KINDS.values(), LINES, strict=True)), ids=KINDS)

PUBLISHED = AuditLine(
    question="bb858e06516117b563ef929766e61ee93586a94d89312442c7259dad2e3c3a02",
    doc_id=3,
    doc=DOC,
    read=question_from_doc(DOC),
    subject="chemistry",
    benchmark="bench",
    detector="max_order",
    filter="max_order",
    scores={"max_order": 0.5},
    guards=("in_order",),
    flagged=True,
    null_rate=0.5,
    pvalue=0.5,
    reason=None,
    margin=0.5,
    loglikelihoods=array("f", (-20.5, -21.0)),
    arms=None,
    calibrated_flagged=None,
    values={
        "fixed_z": 0.5,
        "margin": 0.5,
        "best_order": 0,
        "n_orders": 2,
        "skipped": 0,
        "flagged_rate": 1,
        "flagged_rate_guarded": 1,
    },
)
UNGUARDED = {name: value for name, value in PUBLISHED.values.items() if name != "flagged_rate_guarded"} | {
    "flagged_rate_unguarded": 1
}
NOTHING = replace(
    PUBLISHED, guards=(), flagged=None, null_rate=None, pvalue=None, margin=None, loglikelihoods=array("f")
)
READ = {
    "max_order": PUBLISHED,
    "max_order_calibrated": replace(
        PUBLISHED,
        guards=(),
        calibrated_flagged=True,
        calibrated_pvalue=0.02,
        values=UNGUARDED | {"calibrated_rate": 1},
    ),
    "max_order_with_reference": replace(
        PUBLISHED,
        guards=(),
        detector="max_order:reference=org/elder",
        scores={"max_order:reference=org/elder": 0.5},
        values=UNGUARDED,
    ),
    "skipped": replace(NOTHING, scores={}, reason="two options read alike", values={"skipped": 1}),
    "paired_accuracy": replace(
        NOTHING,
        detector="paired_accuracy",
        filter="paired_accuracy",
        scores={"paired_accuracy": 0.75},
        arms=Arms(True, True, False, False),
        values={
            **{"original": 1, "shuffled": 1, "replaced": 0, "generalized": 0, "confusion": 0.75, "skipped": 0},
            **{"accuracy_original": 1, "accuracy_shuffled": 1, "accuracy_replaced": 0, "accuracy_generalized": 0},
        },
    ),
    "masked_option_judged": replace(
        NOTHING,
        detector="masked_option",
        filter="masked_option",
        scores={"masked_option": 0.5},
        flagged=True,
        values={"exact": 0, "rouge": 0.5, "judged": 1, "skipped": 0, "exact_rate": 0, "judged_rate": 1},
    ),
    "token_evidence": replace(
        NOTHING,
        detector="token_evidence",
        filter="token_evidence",
        scores={
            "token_evidence/mean_loglikelihood": -2.5,
            "token_evidence/mean_zscore": 0.25,
            "token_evidence/min_k": -6.0,
        },
        values={"mean_loglikelihood": -2.5, "mean_zscore": 0.25, "min_k": -6.0, "n_tokens": 12, "skipped": 0},
    ),
}


def id_of_kind(kind: Kind) -> str:
    return detector_id(probes.get(kind.probe)(), statistics.get(kind.statistic)(), kind.reference)


def written(kind: Kind) -> dict:
    return written_line(
        kind.verdict,
        benchmark="bench",
        detector=id_of_kind(kind),
        guards=kind.guards,
        contributions=kind.contributions,
        calibrated=kind.calibrated,
    )


# ---------------------------------------------------------------------- lines


@every_kind
def test_a_line_is_written_as_it_always_was(kind: Kind, line: str) -> None:
    assert json.dumps(kind.of_harness | written(kind)) == line


@every_kind
def test_a_line_holds_flat_scalars_and_begins_with_the_keys_that_every_line_has(kind: Kind, line: str) -> None:
    own = written(kind)
    assert tuple(own)[: len(CORE)] == CORE
    assert all(value is None or isinstance(value, (bool, int, float, str)) for value in own.values())
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in own.values())
    assert not set(own) & set(OF_HARNESS)
    assert set(kind.rows) <= set(own)  # the harness's loggers look each row up


@every_kind
def test_every_value_of_a_verdict_is_read(kind: Kind, line: str) -> None:
    read = read_line(json.loads(line), "another_name")
    known = {key for key in json.loads(line) if key in CORE or key in OF_HARNESS}
    numbers = {
        key: value for key, value in json.loads(line).items() if key not in known and not isinstance(value, str | None)
    }
    assert read.values == numbers
    assert (read.benchmark, read.detector) == ("bench", id_of_kind(kind))


@pytest.mark.parametrize("name", READ)
def test_a_line_is_read_into_its_fields(name: str) -> None:
    line = LINES[list(KINDS).index(name)]
    expected = replace(READ[name], row_names=tuple(KINDS[name].rows))
    assert read_line(json.loads(line), KINDS[name].task) == expected


def test_every_verdict_of_a_statistic_has_a_golden_line() -> None:
    """So that a field that is renamed is noticed."""
    statistics.names()
    kinds = {
        found
        for name, module in sys.modules.items()
        if name.startswith("lm_eval_leakage.detectors.")
        for _, found in inspect.getmembers(module, inspect.isclass)
        if get_origin(found) is None  # Python 3.10 counts `Sequence[object]` as a class
        and issubclass(found, (Evidence, Measurement))
        and found not in (Evidence, Measurement)
    }
    assert kinds == {type(kind.verdict) for kind in KINDS.values()} - {type(KINDS["skipped"].verdict)}


@pytest.mark.parametrize("version", [4, 2, "3", None, True, 2.5])
def test_a_line_of_a_version_that_is_not_known_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="leakage_log is .*; this package reads version 3"):
        read_line(json.loads(LINES[0]) | {"leakage_log": version}, "bench_leakage_perm")


@pytest.mark.parametrize("key", ["detector", "benchmark", "ranks_by", "guards", "doc", "doc_hash"])
def test_a_line_without_what_it_is_known_by_is_refused(key: str) -> None:
    line = {name: value for name, value in json.loads(LINES[0]).items() if name != key}
    with pytest.raises(KeyError, match=key):
        read_line(line, "bench_leakage_perm")


# ---------------------------------------------------------------------- calibrations


CALIBRATION = Calibration(
    "org/model",
    "mmlu",
    COPY,
    "held-out questions after 3 exposures to 40 others",
    {
        name: KnownScores({EVERY_CLASS: [0.5, -1.0], "4 options, guarded": [0.5]}, [2.0])
        for name in ("max_order", "token_evidence/min_k", "token_evidence/mean_zscore", "mymodule.Odd()/Test()")
    }
    | {COMBINED: KnownScores({EVERY_CLASS: [0.25]}, [0.75])},
    CombinedScore(
        ("max_order", "token_evidence/min_k", "token_evidence/mean_zscore"),
        (0.5, 1.5, -0.25),
        -0.125,
        dict.fromkeys(("max_order", "token_evidence/min_k", "token_evidence/mean_zscore"), (-1.0, 0.5)),
    ),
    Described({"number of options": (4.0, 5.0)}, {"ab12": "", "cd34": ""}),
)


def test_a_calibration_is_written_as_it_always_was(tmp_path: Path) -> None:
    write_calibration(tmp_path / "c.json", CALIBRATION)
    assert (tmp_path / "c.json").read_bytes() == (GOLDEN / "calibration.json").read_bytes()


def test_a_calibration_is_read() -> None:
    assert read_calibration(str(GOLDEN / "calibration.json")) == CALIBRATION


@dataclass(frozen=True)
class Shadowing(Measurement):
    """A statistic of others, whose values take names of the log."""

    benchmark: str = "mine"
    detector: float = 0.5
    texts: tuple[str, ...] = ("a", "b")

    def values(self) -> dict[str, float]:
        return {"reason": 0.5}


def test_what_every_line_says_is_not_overwritten_by_a_statistics_own_values() -> None:
    added = {"reason": 0.5, "skipped": 0.0}
    line = written_line(Shadowing(), benchmark="bench", detector="shadowing", contributions=added)
    assert (line["benchmark"], line["detector"], line["reason"]) == ("bench", "shadowing", None)
    assert "texts" not in line


@pytest.mark.parametrize("own", [{"generalized": True}, {"margin": "wide"}, {"n_orders": 1, "resps": [["a text"]]}])
def test_a_strangers_value_under_a_name_of_ours_costs_that_value_alone(own: dict) -> None:
    line = json.loads(LINES[list(KINDS).index("reproduction")]) | own
    read = read_line(line, "bench_leakage_x")
    assert (read.arms, read.margin, len(read.loglikelihoods)) == (None, None, 0)


def test_a_statistics_values_never_replace_those_of_the_harness() -> None:
    line = written_line(Skipped("why"), benchmark="b", detector="d", contributions={"target": 1.0, "mine": 2.0})
    assert "target" not in line
    assert line["mine"] == 2.0


@pytest.mark.parametrize(
    ("audit", "benchmark"),
    [
        ("mmlu_leakage_perm", "mmlu"),
        ("code_leakage_arc_leakage_top2", "code_leakage_arc"),
        ("mmlu_choice_confusion", "mmlu"),
        ("mmlu", "mmlu"),
    ],
)
def test_a_benchmark_is_what_stands_before_the_last_suffix(audit: str, benchmark: str) -> None:
    assert benchmark_of(audit) == benchmark
