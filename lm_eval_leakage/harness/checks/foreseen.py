"""Checks before a model is loaded that it exists and can run the given audits."""

from __future__ import annotations

from collections.abc import Iterable

import lm_eval.models  # noqa: F401 (registers the harness's models, before ours)
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.capabilities import MEANING
from lm_eval_leakage.harness.patches.registries import add_models
from lm_eval_leakage.harness.tasks.audit import template
from lm_eval_leakage.harness.tasks.audit_suffixes import suffixes
from lm_eval_leakage.probes import probes


def check_model(model: str, audits: Iterable[str]) -> None:
    """Raises ValueError if there is no such model or audit, or if the model cannot answer an audit's requests;
    ImportError if the model needs a package that is not installed. Loads nothing."""
    add_models()
    kind = get_model(model)
    for audit in audits:
        if audit not in suffixes():
            raise ValueError(f"{audit!r} is not an audit; choose one of: {', '.join(sorted(suffixes()))}")
        need = probes.get(template(audit)["metadata"]["probe"]).needs
        offered = need == "token_scores" and issubclass(kind, HFLM)  # the method is added once it is loaded
        if not offered and not hasattr(kind, need):
            raise ValueError(f"{audit} cannot run: {model} {MEANING[need]}; leave it out, or choose another model")
