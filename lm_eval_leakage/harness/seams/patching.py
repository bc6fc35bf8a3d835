"""Applies patches to lm_eval: each once, only if its target is as a table describes it, else with a message.

`SEAMS` is the table of everything in lm_eval and `datasets` that this package patches or uses although private;
docs/harness_seams.md says why. Each entry is compared with the installed lm_eval by tests/harness/seams/test_seams.py,
and here before it is used.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

from lm_eval_leakage.harness.seams.refusals import Refusal

logger = logging.getLogger(__name__)
KNOWN_VERSIONS = {"lm_eval": "0.4.13", "datasets": "5.2.0"}  # that the table describes
PATCHED = "_patched_by_lm_eval_leakage"


class Seam(NamedTuple):
    """One object of lm_eval or `datasets` that is patched, or used although it is private.

    target: `module:Class.attribute`
    without: what is lost if there is no such object; the message to the user begins with it
    refuses: whether that is an error, raised before the model has done any work; else a warning, and the run continues
    parameters: parameters that the function must have
    names: variables and attributes that the function's code must use
    """

    target: str
    without: str
    refuses: bool = False
    parameters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        return self.target.rpartition(".")[2].rpartition(":")[2]

    @property
    def library(self) -> str:
        return self.target.partition(".")[0]


SEAMS = (
    Seam(
        "lm_eval.tasks.manager:TaskManager.__init__",
        "leakage tasks are found only with `--include_path $(lm-eval-leakage plugin path)`",
        parameters=("verbosity", "include_path", "include_defaults", "metadata"),
    ),
    Seam(
        "lm_eval.tasks.manager:TaskManager.match_tasks",
        "the command line knows only the audits that have a YAML of their own",
        parameters=("task_list",),
    ),
    Seam(
        "lm_eval.tasks.manager:TaskManager._load_spec",
        "audits of any task by name are not available",
        names=("_index", "_factory", "build"),
    ),
    Seam(
        "lm_eval.tasks._index:TaskIndex.build",
        "lm_eval indexes its tasks at every start, which takes seconds",
        parameters=("paths",),
    ),
    Seam(
        "lm_eval.tasks._index:Entry",
        "lm_eval indexes its tasks at every start, which takes seconds",
        parameters=("name", "kind", "yaml_path", "cfg", "tags"),
    ),
    Seam(
        "lm_eval.tasks._index:Kind",
        "lm_eval indexes its tasks at every start, which takes seconds",
    ),
    Seam(
        "lm_eval.tasks._factory:TaskFactory.build",
        "audits of any task by name are not available",
        parameters=("entry", "overrides", "registry"),
        names=("_build_task",),
    ),
    Seam(
        "lm_eval.tasks._yaml_loader:load_yaml",
        "YAML files of tasks cannot be read, so no audit can be made",
        refuses=True,
        parameters=("path", "resolve_func"),
    ),
    Seam(
        "lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks",
        "mistakes in a run's options are noticed only after the model is loaded",
        parameters=("metadata",),
    ),
    Seam(
        "lm_eval.evaluator:evaluate",
        "a leakage task cannot find the model that will answer its requests",
        refuses=True,
        names=("lm", "eval_tasks", "build_all_requests"),
    ),
    Seam(
        "lm_eval.evaluator:simple_evaluate",
        "answers are not saved for resuming a run, and the output path is not checked before the run",
        parameters=("model", "model_args", "evaluation_tracker", "random_seed"),
    ),
    Seam(
        "lm_eval.evaluator:get_git_commit_hash",
        "`fatal: not a git repository` is printed outside of a repository, by `check` after every step",
    ),
    Seam(
        "lm_eval.evaluator_utils:EvalAcc._to_eval_results",
        "the results of leakage tasks cannot be post-processed",
        refuses=True,
        parameters=("samples",),
    ),
    Seam(
        "lm_eval.utils:make_table",
        "tables of audits have more rows, and no explanation below them",
        parameters=("result_dict", "column", "sort_results"),
    ),
    Seam(
        "lm_eval.utils:env",
        "rows of tasks are read more slowly",
    ),
    Seam(
        "lm_eval._cli:HarnessCLI.__init__",
        "`lm-eval-leakage` has no commands",
        refuses=True,
        names=("_parser", "_subparsers"),
    ),
    Seam(
        "lm_eval.models.openai_completions:LocalCompletionsAPI._loglikelihood_tokens",
        "what a server answers is not checked, so that wrong answers may count",
        parameters=("requests",),
        names=("model_call", "parse_logprobs", "batch_loglikelihood_requests", "get_batched_requests"),
    ),
    Seam(
        "lm_eval.models.api_models:TemplateAPI.amodel_call",
        "a server's Retry-After is not heeded by concurrent requests",
        parameters=("session", "sem"),
        names=("post", "raise_for_status"),
    ),
    Seam(
        "lm_eval.models.api_models:TemplateAPI.model_call",
        "a server's Retry-After is not heeded by single requests",
        parameters=("messages",),
        names=("post", "raise_for_status"),
    ),
    Seam(
        "lm_eval.api.task:ConfigurableTask.process_results",
        "a question without valid log-likelihoods counts in the accuracy of ordinary tasks",
        parameters=("doc", "results"),
    ),
    Seam(
        "lm_eval.models.huggingface:HFLM._model_call",
        "`hf` gives no next-token distribution, so audits by token scores are skipped",
        parameters=("inps",),
    ),
    Seam(
        "lm_eval.api.task:ConfigurableTask.download",
        "rows that a task's edited function prepares may be those of before, from the cache of `datasets`",
        parameters=("dataset_kwargs",),
    ),
    Seam(
        "datasets.data_files:_get_single_origin_metadata",
        "rows of a file that was edited with its time kept may be those of before, from the cache of `datasets`",
        parameters=("data_file", "download_config"),
    ),
)


class UnsupportedHarness(Refusal):
    """The installed lm_eval lacks something that leakage tasks need."""


def patched_once(target: str, wrap: Callable[[Any], Any], owner: Any = None) -> bool:
    """Replaces a function of the table by `wrap(function)`, unless that was done before. Returns whether it is
    replaced now; if not, logs what is lost or raises UnsupportedHarness, according to the table.

    owner: the object whose attribute the function is, if the caller already has it
    """
    original = seam_object(target, owner)
    if original is None:
        return False
    if not hasattr(original, PATCHED):
        replacement = functools.wraps(original)(wrap(original))
        setattr(replacement, PATCHED, True)
        setattr(_owner_of(target) if owner is None else owner, seam_of(target).attribute, replacement)
    return True


def seam_object(target: str, owner: Any = None) -> Any:
    """Return the object itself if it is as the table says, else None, with a log message or UnsupportedHarness."""
    seam = seam_of(target)
    try:
        there = getattr(_owner_of(target) if owner is None else owner, seam.attribute)
        difference = _difference_of(there, seam)
    except (ImportError, AttributeError) as error:
        there, difference = None, str(error)
    if difference:
        _report_missing(seam, difference)
        return None
    return there


def _report_missing(seam: Seam, difference: str) -> None:
    """Logs what the user loses; raises UnsupportedHarness if leakage tasks need what is missing."""
    library, supported = seam.library, KNOWN_VERSIONS[seam.library]
    sentence = (
        f"{seam.without}: the {library} here ({version(library)}) differs from the one that lm_eval_leakage supports "
        f"({supported}): {difference}; install {library} {supported} or a newer lm_eval_leakage"
    )
    if seam.refuses:
        raise UnsupportedHarness(sentence)
    logger.warning("%s", sentence)


@functools.cache
def seam_of(target: str) -> Seam:
    return next(seam for seam in SEAMS if seam.target == target)


def _owner_of(target: str) -> Any:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    for name in path.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def _difference_of(there: Any, seam: Seam) -> str:
    """Return what the function lacks compared with the table, in words; empty if nothing. Wrappers by other packages
    are unwrapped first."""
    there = inspect.unwrap(there)
    if there is object.__init__:
        return f"{seam.target} does not exist"
    parameters = inspect.signature(there).parameters if seam.parameters else {}
    takes_anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    missing = [] if takes_anything else [name for name in seam.parameters if name not in parameters]
    if missing:
        return f"{seam.target} has no parameter {', '.join(missing)}"
    code = getattr(there, "__code__", None)
    if code is not None and str(there.__module__).startswith("lm_eval."):
        named = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
        if missing := [name for name in seam.names if name not in named]:
            return f"{seam.target} does not use {', '.join(missing)}"
    return ""
