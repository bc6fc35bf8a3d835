"""Uses of private parts of TemplateAPI, the base class of lm_eval's models behind a URL."""

from __future__ import annotations

from lm_eval_leakage.harness.patches.patching import is_as_known

API = "lm_eval.models.api_models:TemplateAPI"


def refuse_other_api() -> None:
    """Raises UnsupportedHarness, before anything is sent, if `local-completions` lacks what vllm-server-prefix-tree
    overrides."""
    is_as_known(f"{API}._loglikelihood_tokens")
