"""Registers our models, filter and rows with lm_eval; version 0.4.13 reads no entry points for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from lm_eval_leakage.harness.seams.patching import found

OUR_MODELS = {
    "hf-prefix-tree": "lm_eval_leakage.harness.models.prefix_tree_lm:PrefixTreeLM",
    "vllm-prefix-tree": "lm_eval_leakage.harness.models.vllm_engine:VLLMPrefixTreeLM",
    "vllm-server-prefix-tree": "lm_eval_leakage.harness.models.vllm_server:VllmServerPrefixTreeLM",
}
REGISTRY = "lm_eval.api.registry"
OF_METRICS = ("metric_registry", "aggregation_registry", "metric_agg_registry")


def add_models() -> None:
    """Makes our models available to `--model`; they are imported only when used. The harness's own names are
    added first, since it adds them only to an empty registry."""
    import_module("lm_eval.models")
    registry = found(f"{REGISTRY}:model_registry")
    for name, target in OUR_MODELS.items() if registry is not None else ():
        if name not in registry:
            registry.register(name, target=target)


def model_classes() -> dict[str, str]:
    """Where the class of each model is, as `module:Class`, by name; empty for a model of another package. Imports no
    model."""
    add_models()
    registry = found(f"{REGISTRY}:model_registry") or {}
    mapping: Mapping[str, str] = import_module("lm_eval.models").MODEL_MAPPING
    return {name: OUR_MODELS.get(name) or mapping.get(name, "") for name in [*mapping, *registry]}


def class_of(model: str) -> Any:
    """The registered class of a model, imported for this; None if it cannot be."""
    add_models()
    try:
        return import_module(REGISTRY).get_model(model)
    except Exception:  # the package of another author may raise anything
        return None


def add_filter(name: str, target: type) -> None:
    """Registers a filter, unless lm_eval has already found it by an entry point."""
    registry = found(f"{REGISTRY}:filter_registry")
    if name not in registry:
        registry.register(name, target=target)


def is_metric(name: str) -> bool:
    return any(name in _of_metrics(registry) for registry in ("metric_registry", "aggregation_registry"))


def add_metric(name: str, aggregation: Callable[..., float], higher_is_better: bool | None) -> None:
    """Registers a metric that is its own aggregation."""
    *of_metrics, of_directions = [_of_metrics(registry) for registry in (*OF_METRICS, "higher_is_better_registry")]
    for registry in of_metrics:
        registry.register(name, target=aggregation)
    of_directions.register(name, target=higher_is_better)


def _of_metrics(registry: str) -> Any:
    import_module("lm_eval.api.metrics")  # lm_eval adds its own metrics only to an empty registry
    return found(f"{REGISTRY}:{registry}")
