"""Makes lm_eval find what is ours: models, filter and rows by its public registries, since 0.4.13 reads no entry
points; tasks, and audits of any task by name, by patches of TaskManager. EvaluatorConfig.process_tasks is patched to
check a run's options before its model is loaded.

Imported while lm_eval is only half loaded, so it imports no other part of it at its beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.patching import logger, patched_once
from lm_eval_leakage.harness.seams.task_index import installed_index, list_installed

OUR_MODELS = {
    "hf-prefix-tree": "lm_eval_leakage.harness.models.prefix_tree_lm:PrefixTreeLM",
    "vllm-prefix-tree": "lm_eval_leakage.harness.models.vllm_engine:VLLMPrefixTreeLM",
    "chat-completions-echo": "lm_eval_leakage.harness.models.chat_echo:ChatCompletionsEchoLM",
}
REGISTRY = "lm_eval.api.registry"
TASK_MANAGER = "lm_eval.tasks.manager:TaskManager"
DISCOVERY = "discover_plugin_task_paths"  # of a harness that reads entry points (its pull request 4015)
TRIED = "_asked_for_audits_by_lm_eval_leakage"


def add_models() -> None:
    """Makes our models available to `--model`; they are imported only when used. The harness's own names are
    added first, since it adds them only to an empty registry."""
    import_module("lm_eval.models")
    registry = import_module(REGISTRY).model_registry
    for name, target in OUR_MODELS.items():
        if name not in registry:
            registry.register(name, target=target)


def model_names() -> list[str]:
    """Return the names of all models that `--model` knows; imports none."""
    add_models()
    return [*import_module("lm_eval.models").MODEL_MAPPING, *import_module(REGISTRY).model_registry]


def name_of(kind: type) -> str | None:
    """Return the name by which `--model` knows a class or the nearest of its bases; None if it knows none of them."""
    add_models()
    registry, lazy = (
        import_module(REGISTRY).model_registry,
        {**import_module("lm_eval.models").MODEL_MAPPING, **OUR_MODELS},
    )
    names = {registry.get(name): name for name in [*registry.keys()] if name not in lazy}
    for name, target in reversed(lazy.items()):  # of several names, the first one
        names[target] = name
    of_bases = (names.get(base) or names.get(f"{base.__module__}:{base.__qualname__}") for base in kind.__mro__)
    return next(filter(None, of_bases), None)


def class_of(model: str) -> Any:
    """Return the registered class of a model, imported for this; None if it cannot be."""
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


def find_tasks(task_manager_class: type, know_audits: Callable[[Any], None]) -> None:
    """Makes every task manager find our tasks, and the audits of everything that it knows, one that is being created
    included: lm_eval may discover us while it creates it. A user's `include_path` has precedence over our folder.

    know_audits: called with a task manager when it has been created or is first used, since the hook calls this while
        lm_eval is still being imported
    """

    def know_once(manager: Any) -> None:
        """Make the manager know audits, once. Only warns on errors: plain `lm_eval` must not break because of another
        version of it or a fault of ours."""
        if getattr(manager, TRIED, False):
            return
        setattr(manager, TRIED, True)
        try:
            know_audits(manager)
        except Exception as error:
            logger.warning(
                "audits of any task by name are not available with this lm_eval, because of %r; if this is plain "
                "`lm_eval`, `lm-eval-leakage plugin disable` turns the hook off",
                error,
            )

    def search_our_folder(original: Callable[..., None]) -> Callable[..., None]:
        def __init__(  # noqa: N807
            self: Any,
            verbosity: Any = None,
            include_path: Any = None,
            include_defaults: bool = True,
            metadata: Any = None,
            **further: Any,
        ) -> None:
            given = include_path if isinstance(include_path, (list, tuple)) else [include_path] if include_path else []
            module = sys.modules[task_manager_class.__module__]
            with_ours = include_defaults and not hasattr(module, DISCOVERY)
            ours, kept = [task_configs_path()] if with_ours else [], None
            if with_ours and "task_index" in vars(task_manager_class):  # that of lm_eval, none derived from it
                kept = installed_index(Path(str(module.__file__)).parent)
            options = {"verbosity": verbosity, "include_defaults": include_defaults and kept is None}
            original(self, include_path=[*ours, *given] or None, metadata=metadata, **options, **further)
            self.include_path = include_path
            if kept is not None:
                list_installed(self, kept)
            know_once(self)

        return __init__

    def match_audits(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def match_tasks(self: Any, task_list: list[str]) -> list[str]:
            know_once(self)
            matches = original(self, task_list)
            if not hasattr(self.task_index, "audits_like"):
                return matches
            return sorted(
                {*matches, *(name for pattern in task_list for name in self.task_index.audits_like(pattern))}
            )

        return match_tasks

    def load_audits(original: Callable[..., Any]) -> Callable[..., Any]:
        def _load_spec(self: Any, spec: Any) -> Any:
            know_once(self)
            return original(self, spec)

        return _load_spec

    patched_once(f"{TASK_MANAGER}.__init__", search_our_folder, task_manager_class)
    patched_once(f"{TASK_MANAGER}.match_tasks", match_audits, task_manager_class)
    if hasattr(task_manager_class, "_load_spec"):
        patched_once(f"{TASK_MANAGER}._load_spec", load_audits, task_manager_class)


def check_options(check: Callable[[Any], None]) -> None:
    """Registers a check of the run's options, which may raise Refusal. It gets lm_eval's EvaluatorConfig before the
    model's arguments are mixed with the keys of `--metadata`."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
            check(self)
            return original(self, *args, **kwargs)

        return process_tasks

    patched_once("lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks", wrap)
