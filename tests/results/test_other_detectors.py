from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, poisson_binom

from lm_eval_leakage import load_run
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.conditions import Condition
from lm_eval_leakage.results.detector_values import detector_values
from lm_eval_leakage.results.question_columns import AUDIT_COLUMNS, IS_AUDITED, RUN_COLUMNS
from lm_eval_leakage.results.rows import flat_row
from lm_eval_leakage.results.tables import as_text
from tests.results.harness_files import answered, audited, row, write_run

N = 12
DOCS = [row(number) for number in range(N)]
MIN_K = [-3.0 - number / 4 for number in range(N)]
SEEN = 5  # questions that the rotation test flags
COLUMN_DOCS = Path(__file__).parents[2] / "docs" / "annotate" / "columns.md"


def measured(number: int) -> dict:
    """A line of a statistic that nobody has installed."""
    rows = {"min_k": MIN_K[number], "skipped": 0.0, "metrics": ["min_k", "skipped"], "ranks_by": "min_k"}
    return audited(DOCS[number], None, filter="k_least", detector="k_least:k=10", reason=None, **rows)


def rotated(number: int) -> dict:
    flagged = number < SEEN
    rows = {"flagged_rate": float(flagged), "flagged_rate_unguarded": float(flagged), "skipped": 0.0}
    named = {"filter": "rotation", "detector": "rotation", "null_rate": 0.25, "metrics": [*rows, "null_rate"]}
    return audited(DOCS[number], flagged, **rows, **named)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [answered(number, doc, number % 2 == 0) for number, doc in enumerate(DOCS)]
    skipped = audited(DOCS[0], None, filter="k_least", detector="k_least:k=10")
    audits = {
        "bench_leakage_perm": [audited(doc, False) for doc in DOCS],
        "bench_leakage_rotations": [rotated(number) for number in range(N)],
        "bench_leakage_least": [skipped, *[measured(number) for number in range(1, N)]],
    }
    write_run(tmp_path, "m", {"bench": lines} | audits)
    return tmp_path


def test_every_detector_beside_the_main_one_has_its_values_in_json_in_conditions_and_of_each_question(folder) -> None:
    (annotation,) = annotate([folder])
    (record,) = json.loads(as_text(annotation.rows, "json"))
    assert annotation.detector == "max_order"
    assert record["k_least:k=10.min_k"] == pytest.approx(np.mean(MIN_K[1:]))
    assert record["k_least:k=10.min_k_stderr"] == pytest.approx(np.std(MIN_K[1:], ddof=1) / math.sqrt(N - 1))
    assert record["rotation.flagged_rate"] == pytest.approx(SEEN / N)
    assert record["rotation.null_rate"] == 0.25
    assert (record["k_least:k=10.n"], record["rotation.n"]) == (N - 1, N)
    assert record["rotation.pvalue"] == pytest.approx(binom.sf(SEEN - 1, N, 0.25))
    assert not [key for key in record if key.startswith("max_order") or "skipped" in key or "rate_unguarded." in key]
    assert len(Condition.of("rotation.pvalue<0.5").met_by(annotation.rows)) == 1
    assert not Condition.of("k_least:k=10.min_k>=0").met_by(annotation.rows)
    first, *_, last = load_run(folder)
    assert first["k_least:k=10.min_k"] is None  # it was not tested
    assert last["k_least:k=10.min_k"] == MIN_K[-1]
    assert (first["rotation.flagged_rate"], last["rotation.flagged_rate"]) == (1.0, 0.0)


def test_questions_of_two_options_count_in_the_p_value_and_not_in_the_rate() -> None:
    two = {"pairs": {"null_rate": 0.5, "flagged_rate": 1.0}}
    four = {"pairs": {"null_rate": 0.25, "flagged_rate": 0.0}}
    (value,) = detector_values([two, two, four, four])
    assert (value.key, value.n, value.estimate.value, value.null_rate) == ("pairs.flagged_rate", 4, 0.0, 0.375)
    assert value.pvalue == pytest.approx(poisson_binom.sf(1, [0.5, 0.5, 0.25, 0.25]))
    (alone,) = detector_values([two] * 4)
    assert (bool(alone.estimate), alone.pvalue) == (False, pytest.approx(1 / 16))


def test_the_docs_have_the_table_of_a_questions_columns() -> None:
    lines = [f"| `{column.key}` | {column.meaning} |" for column in (*RUN_COLUMNS, IS_AUDITED, *AUDIT_COLUMNS)]
    table = "\n".join(["| key | meaning |", "|---|---|", *lines])
    assert table in COLUMN_DOCS.read_text(encoding="utf-8"), f"docs/annotate/columns.md must have this table:\n{table}"


def test_a_statistic_is_found_by_its_name_whatever_its_pipeline_is_called(tmp_path: Path) -> None:
    logs = {
        "bench_leakage_perm": {"detector": "max_order:orders=12", "filter": "strict"},
        "bench_leakage_rotations": {"detector": "rotation", "filter": "outlier"},
    }
    write_run(tmp_path, "m", {task: [audited(doc, True, **names) for doc in DOCS] for task, names in logs.items()})
    for wanted in (None, "max_order"):
        (annotation,) = annotate([tmp_path], detector=wanted)
        assert annotation.detector == "max_order:orders=12"
        assert flat_row(annotation.rows[0])["outlier_rate"] is None
