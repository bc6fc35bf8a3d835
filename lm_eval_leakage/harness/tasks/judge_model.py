"""Loads a second model that judges generated answers, given by name and arguments as lm_eval's own models are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from lm_eval_leakage.detectors.masked_option import JudgeModel

logger = logging.getLogger(__name__)
GENERATION = {"until": [], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}


@cache
def load_judge(model: str, arguments: str) -> JudgeModel:
    """Return a function from prompts to replies of a model, which is loaded once.

    model, arguments: as for `--model` and `--model_args`

    If the judge fails, only its opinions are missing: the log says why, and the run's own results are kept.
    """
    try:
        judge = get_model(model).create_from_arg_string(arguments)
    except Exception as error:  # a backend may raise anything while loading
        raise ValueError(f"judge_model {model!r} with judge_args {arguments!r} cannot be used: {error}") from error

    def ask(prompts: Sequence[str]) -> Sequence[str | None]:
        try:
            turns = [(_as_chat(judge, prompt), dict(GENERATION)) for prompt in prompts]
            requests = [Instance("generate_until", {}, turn, index) for index, turn in enumerate(turns)]
            return [str(reply) for reply in judge.generate_until(requests)]
        except Exception as error:  # a judge's failure must not lose hours of the other model's work
            logger.warning("the judge %s did not answer on %d question(s): %s", model, len(prompts), error)
            return [None] * len(prompts)

    return ask


def _as_chat(judge: Any, prompt: str) -> Any:
    """Return the prompt as a user's turn; unchanged for a model without a chat template."""
    try:
        return judge.apply_chat_template([{"role": "user", "content": prompt}])
    except (NotImplementedError, ValueError):
        return prompt
