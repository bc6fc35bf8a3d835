"""What a run's model can do for our tasks, settled before anything is computed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from lm_eval.api.group import Group
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.columns_of_run import add_columns
from lm_eval_leakage.harness.token_scores import offer_token_scores

logger = logging.getLogger(__name__)
MARK = "_tells_leakage_tasks"
MEANING = {
    "loglikelihood": "gives no log-likelihoods of a given text",
    "generate_until": "does not generate text",
    "token_scores": "does not show the distribution of the next token (`hf` and `hf-prefix-tree` do)",
}


def tell_model_to(task_class: type) -> None:
    """Have `evaluate` set `lm` on tasks of `task_class` before they build requests: the harness does not pass it to
    them. Tasks whose method the model cannot serve are left out, each with one sentence; the others run. Tasks that
    are asked beside an audit of theirs get its columns."""
    from lm_eval import evaluator

    original: Callable[..., Any] = evaluator.evaluate
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def evaluate(lm: Any, task_dict: Any, *args: Any, **kwargs: Any) -> Any:
        unfit = {}
        for task in _tasks(task_dict):
            if isinstance(task, task_class):
                task.meet(lm)  # type: ignore[attr-defined]
                if reason := lacking(lm, task.probe.needs):  # type: ignore[attr-defined]
                    unfit[task.config.task] = f"{task.config.task} cannot run: {reason}"  # type: ignore[attr-defined]
        if unfit and len(unfit) == len(list(_tasks(task_dict))):
            raise ValueError("; ".join(unfit.values()))
        for sentence in unfit.values():
            logger.warning(sentence)
        _leave_out(task_dict, unfit)
        results = original(lm, task_dict, *args, **kwargs)
        add_columns(results)
        return results

    setattr(evaluate, MARK, True)
    evaluator.evaluate = evaluate


def lacking(lm: Any, need: str) -> str | None:
    """What `lm` cannot do of what a probe needs, in words; None where it can."""
    model = getattr(lm, "lm", lm)  # below the harness's response cache
    if need == "token_scores":
        can = offer_token_scores(lm)
    else:
        can = isinstance(model, HFLM) or _answers_nothing(getattr(model, need, None))
    return None if can else f"{type(model).__name__} {MEANING[need]}"


def _answers_nothing(method: Any) -> bool:
    """Whether a method takes an empty list. Chat models have it by inheritance and raise NotImplementedError."""
    try:
        method([])
    except NotImplementedError:
        return False
    except Exception:  # a method that needs requests to work is there
        return method is not None
    return True


def _tasks(task_dict: Any) -> Iterator[object]:
    """The tasks of either form of dictionary that `evaluate` takes: by kind, or nested below groups."""
    if isinstance(task_dict, dict):
        for value in task_dict["tasks"].values() if "tasks" in task_dict else task_dict.values():
            yield from _tasks(value)
    elif not isinstance(task_dict, Group):
        yield task_dict


def _leave_out(task_dict: Any, names: dict[str, str]) -> None:
    for name, value in list(task_dict.items()):
        if name in names:
            del task_dict[name]
        elif isinstance(value, dict):
            _leave_out(value, names)
        elif isinstance(value, Group):
            for group in (value, *value.get_all_groups()):
                for unfit in names:
                    group.pop(unfit)
