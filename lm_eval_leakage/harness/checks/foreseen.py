"""What would end an audit of a model, said before the model is loaded."""

from __future__ import annotations

from collections.abc import Iterable

import lm_eval.models  # noqa: F401 (makes the harness's models known, before ours)
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.capabilities import MEANING
from lm_eval_leakage.harness.patches.registries import add_models
from lm_eval_leakage.harness.tasks.audit import template
from lm_eval_leakage.harness.tasks.audit_suffixes import suffixes
from lm_eval_leakage.probes import probes


def check_model(model: str, audits: Iterable[str]) -> None:
    """Raises ValueError where there is no such model or audit, or where the model cannot do what an audit asks of it;
    ImportError where the model needs a package that is not installed. Nothing is loaded."""
    add_models()
    kind = get_model(model)
    for audit in audits:
        if audit not in suffixes():
            raise ValueError(f"{audit!r} is no audit; choose one of: {', '.join(sorted(suffixes()))}")
        need = probes.get(template(audit)["metadata"]["probe"]).needs
        offered = need == "token_scores" and issubclass(kind, HFLM)  # given to it once it is loaded
        if not offered and not hasattr(kind, need):
            raise ValueError(f"{audit} cannot run: {model} {MEANING[need]}; leave it out, or choose another model")
