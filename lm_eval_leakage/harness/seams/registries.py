"""Registers our models, filter and rows with lm_eval by its public registries, since 0.4.13 reads no entry points."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

OUR_MODELS = {
    "hf-prefix-tree": "lm_eval_leakage.harness.models.prefix_tree_lm:PrefixTreeLM",
    "vllm-prefix-tree": "lm_eval_leakage.harness.models.vllm_engine:VLLMPrefixTreeLM",
    "vllm-server-prefix-tree": "lm_eval_leakage.harness.models.vllm_server:VllmServerPrefixTreeLM",
}
REGISTRY = "lm_eval.api.registry"


def add_models() -> None:
    """Makes our models available to `--model`; they are imported only when used. The harness's own names are
    added first, since it adds them only to an empty registry."""
    import_module("lm_eval.models")
    registry = import_module(REGISTRY).model_registry
    for name, target in OUR_MODELS.items():
        if name not in registry:
            registry.register(name, target=target)


def model_names() -> list[str]:
    """Of all models that `--model` knows; imports none."""
    add_models()
    return [*import_module("lm_eval.models").MODEL_MAPPING, *import_module(REGISTRY).model_registry]


def class_of(model: str) -> Any:
    """The registered class of a model, imported for this; None if it cannot be."""
    add_models()
    try:
        return import_module(REGISTRY).get_model(model)
    except Exception:  # the package of another author may raise anything
        return None


def add_filter(name: str, target: type) -> None:
    """Registers a filter, unless lm_eval has already found it by an entry point."""
    registry = import_module(REGISTRY)
    if name not in registry.filter_registry:
        registry.register_filter(name)(target)


def is_metric(name: str) -> bool:
    import_module("lm_eval.api.metrics")  # lm_eval adds its own metrics only to an empty registry
    registry = import_module(REGISTRY)
    return name in registry.metric_registry or name in registry.aggregation_registry


def add_metric(name: str, aggregation: Callable[..., float], higher_is_better: bool | None) -> None:
    """Registers a metric that is its own aggregation."""
    import_module("lm_eval.api.metrics")
    registry = import_module(REGISTRY)
    registry.register_aggregation(name)(aggregation)
    registry.register_metric(metric=name, higher_is_better=higher_is_better, aggregation=name)(aggregation)
