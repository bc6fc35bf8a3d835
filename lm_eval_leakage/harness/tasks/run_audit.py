"""Runs one audit of given questions in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.patches.registries import add_models
from lm_eval_leakage.harness.tasks.given_questions import audit_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.statistics.orders import find_device


@dataclass(frozen=True)
class AuditRun:
    """samples: as the harness logs them
    n_tokens: of all requests, including the maximum number of generated tokens
    seconds: of the whole evaluation
    """

    samples: Sequence[Mapping[str, Any]]
    n_tokens: int
    seconds: float


def load_model(model: str, model_args: str) -> Any:
    """A harness model by name and arguments, as on the command line; on an accelerator by default, if there is one."""
    add_models()
    device = {} if "device=" in model_args else {"device": str(find_device())}
    return get_model(model).create_from_arg_string(model_args, device)


def run_audit(
    lm: Any, suffix: str, questions: Sequence[Question], pool: Sequence[Question], metadata: Mapping[str, object]
) -> AuditRun:
    """Runs the audit `suffix` on `questions`, which are part of the benchmark `pool`."""
    task = audit_of(questions, suffix, pool, metadata)
    no_others = TaskManager(include_defaults=False)
    begun = time.perf_counter()
    results = simple_evaluate(model=lm, tasks=[task], task_manager=no_others, bootstrap_iters=0)
    seconds = time.perf_counter() - begun
    asked = dict.fromkeys(instance.of for instance in task.instances)
    n_tokens = sum(_n_tokens(lm, arguments) for question in asked for arguments in question.arguments)
    return AuditRun(results["samples"][suffix], n_tokens, seconds)


def _n_tokens(lm: Any, arguments: Sequence[Any]) -> int:
    text = "".join(part for part in arguments if isinstance(part, str))
    written = sum(part["max_gen_toks"] for part in arguments if isinstance(part, dict))
    return len(lm.tok_encode(text)) + int(written)
