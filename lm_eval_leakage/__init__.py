"""Leakage audits for the multiple-choice tasks of lm-evaluation-harness.

`load_run` returns what runs and audits say about each question; `lm_eval_leakage.probes` and
`lm_eval_leakage.statistics` hold the detectors, and `lm_eval_leakage.harness` connects them to `lm_eval`.
"""

from __future__ import annotations

from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Evidence, Question, Request, Skipped, UntestableQuestion

__version__ = version("lm-eval-leakage")

__all__ = [
    "Evidence",
    "Question",
    "Request",
    "Skipped",
    "UntestableQuestion",
    "load_run",
    "question_from_doc",
    "task_configs_path",
]


def task_configs_path() -> Path:
    """The folder of this package's task YAMLs, for the harness's `--include_path` and `include_path=`."""
    return Path(str(resources.files("lm_eval_leakage.task_configs")))


def load_run(*paths: str | Path) -> list[dict[str, Any]]:
    """Every question of runs of `lm_eval` with what audits of the same model say about it, for `pandas.DataFrame`.

    paths: output folders of runs and of audits, in any order

    Returns flat records: model, task, doc_id, doc_hash, subject, the metrics by "name,filter", flagged, pvalue,
    null_rate, margin (nats) and so on; None where a value is not known. What could not be read or joined is logged as
    warnings. Raises ValueError if a folder holds no run.
    """
    from lm_eval_leakage.results.annotate import annotate
    from lm_eval_leakage.results.written import records, warn_of_problems

    annotations = annotate([Path(path) for path in paths])
    warn_of_problems(annotations)
    return records(annotations)
