"""Leakage audits for the multiple-choice tasks of lm-evaluation-harness.

`check` audits a model and returns one verdict per task. `load_run` returns the results of runs and audits, question by
question. `leakage_task` returns the audit of a task for `lm_eval.simple_evaluate`. Importing this package is quick:
torch, lm_eval and others are imported when they are used.
"""

from __future__ import annotations

import logging
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import Evidence, Question, Request, Skipped, UntestableQuestion

if TYPE_CHECKING:
    from lm_eval.api.task import Task

    from lm_eval_leakage.harness.tasks.task import LeakageTask
    from lm_eval_leakage.jobs.check import check
    from lm_eval_leakage.results.loaded_run import LoadedRun

__version__ = version("lm-eval-leakage")

__all__ = [
    "Evidence",
    "Question",
    "Request",
    "Skipped",
    "UntestableQuestion",
    "check",
    "leakage_task",
    "load_run",
    "question_from_doc",
    "task_configs_path",
]


def __getattr__(name: str) -> object:
    """Return `check`. Its module is imported only when it is used, since it needs PyYAML and more."""
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lm_eval_leakage.jobs.check import check

    return check


def __dir__() -> list[str]:
    return [*globals(), "check"]


def task_configs_path() -> Path:
    """Return the folder of this package's task YAMLs, for `--include_path` and for `TaskManager(include_path=...)`.

    >>> (task_configs_path() / "fresh" / "fresh.jsonl").is_file()
    True
    """
    return Path(str(resources.files("lm_eval_leakage.task_configs")))


def leakage_task(task: Task, probe: str = "option_orders", **metadata: object) -> LeakageTask:
    """Return the audit of an lm_eval task, for `lm_eval.simple_evaluate(tasks=[...])`.

    task: a task as lm_eval loads it
    probe: the name of a probe, such as option_orders
    metadata: the probe's parameters, such as max_orders=24

    Raises RefusedAudit, with the reason, if an audit is impossible or would be meaningless, and ValueError if no audit
    uses the probe.

    >>> from lm_eval.tasks import TaskManager
    >>> arc_easy = TaskManager().load(["arc_easy"])["tasks"]["arc_easy"]  # doctest: +SKIP
    >>> lm_eval.simple_evaluate("hf-prefix-tree", tasks=[leakage_task(arc_easy)])  # doctest: +SKIP
    """
    from lm_eval_leakage.harness.tasks.audit import audit_with_probe

    return audit_with_probe(task, probe, metadata)


def load_run(*paths: str | Path) -> LoadedRun:
    """Return the results of runs of `lm_eval --log_samples` and of audits of the same models, question by question.

    paths: output folders of runs and of audits, in any order

    The result is a list of flat records, one per question: model, task, doc_id, doc_hash, subject, the metrics by
    "name,filter", flagged, pvalue, null_rate, margin (nats) and so on; None where a value is not recorded. A notebook
    shows it as a table of the verdicts. `to_pandas()` returns a data frame, and `plot()` a plot that compares models
    and benchmarks. Whatever cannot be read or joined is logged as a warning. Raises ValueError if a folder holds no
    run.

    >>> run = load_run("runs", "audits")
    >>> run
    <LoadedRun: 24 questions, 1 model: m>
    >>> sum(record["flagged"] for record in run)
    8
    >>> float(run.to_pandas().groupby("flagged")["acc,none"].mean()[True])
    1.0
    """
    from lm_eval_leakage.results.annotate import annotate
    from lm_eval_leakage.results.loaded_run import LoadedRun

    annotations = annotate([Path(path) for path in paths])
    for annotation in annotations:
        for problem in annotation.problems:
            logging.getLogger(__name__).warning("%s", problem)
    return LoadedRun(annotations)
