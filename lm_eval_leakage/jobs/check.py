"""The function `lm_eval_leakage.check`: a check from Python, of a model by name or of one that is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.backends import backend_of_loaded, named_as_loaded
from lm_eval_leakage.harness.saved_run import random_numbers_kept
from lm_eval_leakage.jobs.driver import Say, run_plan, silent
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.texts import in_one_sentence

logger = logging.getLogger(__name__)


def check(
    model: str | object | None = None,
    model_args: str | Mapping[str, Any] | None = None,
    tasks: str | Sequence[str] | None = None,
    *,
    fields: str | Mapping[str, str | Sequence[str]] | None = None,
    config: str | Path | None = None,
    runs: str | Path | Sequence[str | Path] | None = None,
    reference: str | Path | Mapping[str, Any] | None = None,
    unseen: str | Path | None = None,
    positive_control: str | Path | None = None,
    orders: str | None = None,
    questions: int | str | None = None,
    budget: int | None = None,
    detect: float | str | None = None,
    max_tokens_asked: int | None = None,
    seed: int | None = None,
    output_path: str | Path | None = None,
    fail_on: str | None = None,
    allow_no_verdict: bool | None = None,
    export: str | Sequence[str] | None = None,
    batch_size: int | str | None = None,
    device: str | None = None,
    include_path: str | Path | None = None,
    apply_chat_template: bool | str | None = None,
    system_instruction: str | None = None,
    num_fewshot: int | None = None,
    metadata: str | Mapping[str, Any] | None = None,
    dry_run: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> CheckOutcome:
    """Check models for leakage of benchmarks: run what is missing and return one verdict per model and task.

    Parameters are those of the command `lm-eval-leakage check`, with its defaults: model, model_args, tasks as for
    `lm_eval run`, where a task may also be a file of plain questions. `config` is a plan in YAML; what is given beside
    it has precedence. Runs, page and verdicts are written into `output_path` (`leakage`); calling it again continues
    where it was killed.

    model: or one that lm_eval has loaded, such as an HFLM, which is asked as it is and left as it was. It is known by
        its weights; `model_args` name it where it has no name. Then nothing is raised, so that a harness's own loop
        goes on: the outcome's `problems` say why there is no verdict
    say: called with what the command would print meanwhile, such as `print`; by default nothing is printed

    Raises ValueError, in one sentence, for what the caller has to change.
    """
    settings = dict(locals())
    given = {name: value for name, value in settings.items() if name not in ("config", "say")}
    if model is not None and not isinstance(model, str):
        return _check_loaded(model, given, config, say)
    plan = check_plan(given, config)
    return run_plan(plan.changed(quiet=say is None), say=say or silent)


def _check_loaded(lm: Any, given: dict[str, Any], config: str | Path | None, say: Say | None) -> CheckOutcome:
    try:
        backend = backend_of_loaded(lm)
        plan = check_plan({**given, "model": backend}, config)
        (model,) = plan.models
        model = model.model_copy(update={"model_args": named_as_loaded(lm, backend, model.model_args)})
        held = plan.changed(models=(model.holding(lm),), quiet=say is None)
        if not held.is_here:
            raise ValueError("a loaded model runs in this process; leave out engine and workers")
        with random_numbers_kept():
            return run_plan(held, say=say or silent)
    except (Exception, SystemExit) as error:
        reason = in_one_sentence(error)
        logger.warning("the loaded model could not be checked: %s", reason)
        return CheckOutcome((), (), problems=(reason,))
