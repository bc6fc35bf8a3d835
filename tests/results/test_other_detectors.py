from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from lm_eval_leakage import load_run
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.columns import AUDIT_COLUMNS, IS_AUDITED, RUN_COLUMNS
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.result_types import detector_values
from lm_eval_leakage.results.rows import flat_row
from lm_eval_leakage.results.tables import as_text
from tests.results.harness_files import answered, audited, row, write_run

N = 12
DOCS = [row(number) for number in range(N)]
MIN_K = [-3.0 - number / 4 for number in range(N)]
SEEN = 5  # questions that the rotation test flags
ANNOTATE_DOCS = Path(__file__).parents[2] / "docs" / "annotate.md"


def measured(number: int) -> dict:
    """A line of a statistic that nobody has installed."""
    line = audited(DOCS[number], None) | {"filter": "k_least", "detector": "k_least:k=10", "ranks_by": "min_k"}
    return line | {"reason": None, "min_k": MIN_K[number], "skipped": 0.0, "metrics": ["min_k", "skipped"]}


def rotated(number: int, null_rate: float = 0.25) -> dict:
    flagged = number < SEEN
    line = audited(DOCS[number], flagged) | {"filter": "rotation", "detector": "rotation", "null_rate": null_rate}
    rows = {"flagged_rate": float(flagged), "flagged_rate_unguarded": float(flagged), "skipped": 0.0}
    return line | rows | {"metrics": [*rows, "null_rate"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [answered(number, doc, number % 2 == 0) for number, doc in enumerate(DOCS)]
    skipped = audited(DOCS[0], None) | {"filter": "k_least", "detector": "k_least:k=10"}
    audits = {
        "bench_leakage_perm": [audited(doc, False) for doc in DOCS],
        "bench_leakage_rotations": [rotated(number) for number in range(N)],
        "bench_leakage_least": [skipped, *[measured(number) for number in range(1, N)]],
    }
    write_run(tmp_path, "m", {"bench": lines} | audits)
    return tmp_path


def test_every_detector_beside_the_main_one_has_its_values_in_json(folder: Path) -> None:
    (annotation,) = annotate([folder])
    (told,) = json.loads(as_text(annotation.rows, "json"))
    assert annotation.detector == "max_order"
    assert told["k_least:k=10.min_k"] == pytest.approx(np.mean(MIN_K[1:]))
    assert told["k_least:k=10.min_k_stderr"] == pytest.approx(np.std(MIN_K[1:], ddof=1) / math.sqrt(N - 1))
    assert told["rotation.flagged_rate"] == pytest.approx(SEEN / N)
    assert told["rotation.null_rate"] == 0.25
    assert (told["k_least:k=10.n"], told["rotation.n"]) == (N - 1, N)
    assert told["rotation.pvalue"] == pytest.approx(binom.sf(SEEN - 1, N, 0.25))
    assert not [key for key in told if key.startswith("max_order") or "skipped" in key or "rate_unguarded." in key]


def test_a_question_has_them_too(folder: Path) -> None:
    first, *_, last = load_run(folder)
    assert "k_least:k=10.min_k" in first
    assert first["k_least:k=10.min_k"] is None  # it was not tested
    assert last["k_least:k=10.min_k"] == MIN_K[-1]
    assert (first["rotation.flagged_rate"], last["rotation.flagged_rate"]) == (1.0, 0.0)


def test_a_run_may_fail_by_them(folder: Path) -> None:
    rows = annotate([folder])[0].rows
    (sentence,) = Condition.of("rotation.pvalue<0.5").met_by(rows)
    assert "rotation.pvalue is" in sentence
    assert not Condition.of("k_least:k=10.min_k>=0").met_by(rows)


def test_questions_of_two_options_count_in_the_p_value_and_not_in_the_rate() -> None:
    two = {"pairs": {"null_rate": 0.5, "flagged_rate": 1.0}}
    four = {"pairs": {"null_rate": 0.25, "flagged_rate": 0.0}}
    (found,) = detector_values([two, two, four, four])
    assert (found.estimate.value, found.null_rate) == (0.0, 0.375)
    assert found.pvalue == pytest.approx(
        1 - binom.pmf(0, 2, 0.5) * binom.cdf(1, 2, 0.25) - binom.pmf(1, 2, 0.5) * binom.pmf(0, 2, 0.25)
    )
    (alone,) = detector_values([two] * 4)
    assert (alone.key, alone.n, bool(alone.estimate), alone.pvalue) == (
        "pairs.flagged_rate",
        4,
        False,
        pytest.approx(1 / 16),
    )


def test_the_docs_have_the_table_of_a_questions_columns() -> None:
    lines = [f"| `{column.key}` | {column.meaning} |" for column in (*RUN_COLUMNS, IS_AUDITED, *AUDIT_COLUMNS)]
    table = "\n".join(["| key | meaning |", "|---|---|", *lines])
    assert table in ANNOTATE_DOCS.read_text(encoding="utf-8"), f"docs/annotate.md must have this table:\n{table}"


def named(number: int, detector: str, pipeline: str, flagged: bool) -> dict:
    return audited(DOCS[number], flagged) | {"filter": pipeline, "detector": detector}


def test_a_statistic_is_found_by_its_name_whatever_its_pipeline_is_called(tmp_path: Path) -> None:
    lines = [named(number, "max_order:orders=12", "strict", number < SEEN) for number in range(N)]
    others = [named(number, "rotation", "outlier", True) for number in range(N)]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines, "bench_leakage_rotations": others})
    for wanted in (None, "max_order"):
        (annotation,) = annotate([tmp_path], detector=wanted)
        assert annotation.detector == "max_order:orders=12"
        assert flat_row(annotation.rows[0])["outlier_rate"] is None
