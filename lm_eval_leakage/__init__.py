"""Leakage audits for the multiple-choice tasks of lm-evaluation-harness.

`lm_eval_leakage.probes` and `lm_eval_leakage.statistics` hold the detectors, `lm_eval_leakage.harness` what
connects them to `lm_eval`.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from lm_eval_leakage.questions import question_from_doc
from lm_eval_leakage.records import Evidence, Question, Request, Skipped, UntestableQuestion

__version__ = version("lm-eval-leakage")

__all__ = [
    "Evidence",
    "Question",
    "Request",
    "Skipped",
    "UntestableQuestion",
    "question_from_doc",
    "task_configs_path",
]


def task_configs_path() -> Path:
    """The folder of this package's task YAMLs, for the harness's `--include_path` and `include_path=`."""
    return Path(str(files("lm_eval_leakage.task_configs")))
