"""Checks a model that a command names: its backend, whether that can run the audits, its files and its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from lm_eval_leakage.detectors import probes
from lm_eval_leakage.harness.backends import (
    GIVES_TOKENS,
    Backend,
    backend_of,
    parameters_of,
    refuse_without_packages,
    why_cannot_answer,
)
from lm_eval_leakage.harness.model_files import check_model_files, check_path
from lm_eval_leakage.harness.seams.registries import class_of
from lm_eval_leakage.harness.tasks.templates import probe_named_by, suffix_parts, suffixes
from lm_eval_leakage.texts import brief, did_you_mean

BY_TRANSFORMERS = ("hf", "hf-auto", "huggingface", "hf-prefix-tree")  # backends that read files as it does
PATHS = ("pretrained", "peft", "delta", "tokenizer")  # arguments that may be folders
NUMBER_FORMATS = ("dtype", "softmax_dtype")
USUAL_FORMATS = ("auto", "bfloat16", "float16", "float32", "float64", "half", "float", "double")
CLOSE_ARGUMENT = 0.85  # difflib ratio; an argument that resembles none may be one of transformers
OF_TRANSFORMERS = (  # arguments that lm_eval passes on to it
    *("attn_implementation", "device_map", "max_memory", "offload_buffers", "quantization_config", "variant"),
    *("load_in_4bit", "load_in_8bit", "torch_dtype", "use_safetensors", "low_cpu_mem_usage", "token"),
)
NOT_TAKEN = re.compile(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def check_model(model: str, audits: Iterable[str], model_args: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError if there is no such model or audit, if it does not take the arguments, or if it cannot answer
    an audit's requests; ImportError if it needs a package that is not installed. Loads nothing.

    audits: such as `leakage_perm`
    """
    for audit in audits:
        if why := why_not(model, audit):
            raise ValueError(f"{audit} cannot run: {why}; leave it out, or choose another model")
    check_backend(model, model_args)
    if model_args is not None:
        check_arguments(model, model_args)


def check_backend(model: str, model_args: Mapping[str, Any] | None) -> None:
    """Raise ValueError or ImportError for an unknown backend, a missing package, or files that are not there; imports
    no backend.

    model_args: None for a model that is loaded
    """
    backend = backend_of(model)
    if backend is None:
        return
    refuse_without_packages(model, backend)
    if model_args is None or backend.has_server:
        return
    if model in BY_TRANSFORMERS:
        check_model_files(model_args)
    for name in PATHS:
        check_path(f"--model_args has {name}={model_args.get(name)}", model_args.get(name))


def check_arguments(model: str, model_args: Mapping[str, Any]) -> None:
    """Raise ValueError for a misspelled argument, one that is missing, and a number format that there is not. Of
    unusual arguments it asks the class of the backend, whose import may take seconds."""
    backend = backend_of(model)
    if backend is None:
        return
    names = backend.arguments if backend.surely_takes(model_args) else _checked_names(model, backend, model_args)
    for name in NUMBER_FORMATS:
        if name in names and name in model_args:
            _check_number_format(name, model_args[name])


def _checked_names(model: str, backend: Backend, model_args: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments that the backend's class takes. Raises ValueError for others among those given, and for
    missing ones."""
    kind = class_of(model)
    if kind is None:
        return frozenset()
    names, required, takes_others = parameters_of(kind)
    passed_on = OF_TRANSFORMERS if GIVES_TOKENS in backend.answers and takes_others else ()
    for name in model_args:
        if name in names or name in passed_on:
            continue
        near = _resembled(name, [*names, *passed_on])
        if near or not takes_others:
            nearest = f"; did you mean {near}" if near else f"; choose from: {', '.join(sorted(names))}"
            raise ValueError(f"--model_args has {name!r}, which {model} does not take{nearest}")
    if missing := [name for name in required if name not in model_args]:
        raise ValueError(f"--model_args lacks {missing[0]}, which {model} needs; add {missing[0]}=NAME_OR_FOLDER")
    return frozenset(names)


def why_not_taken(error: TypeError, model: str, model_args: Mapping[str, Any]) -> str:
    """Return that a model did not take one of its arguments, as a sentence; empty if the error is another one.

    error: raised while it was loaded
    """
    refusal = NOT_TAKEN.search(str(error))
    if refusal is None or refusal[2] not in model_args:
        return ""
    return f"--model_args has {refusal[2]!r}, which neither {model} nor {refusal[1]} takes; leave it out"


def _resembled(name: str, names: Sequence[str]) -> str:
    """Return the argument of which a name is a misspelling: a similar one, or one with the same letters."""
    similar = get_close_matches(name, names, n=1, cutoff=CLOSE_ARGUMENT)
    same_letters = [other for other in names if sorted(other) == sorted(name)]
    return next(iter([*similar, *same_letters]), "")


def _check_number_format(name: str, value: object) -> None:
    if value is None or value in USUAL_FORMATS:
        return
    import torch

    if not isinstance(value, torch.dtype) and not isinstance(getattr(torch, str(value), None), torch.dtype):
        nearest = did_you_mean(str(value), USUAL_FORMATS) or f"; choose one of: {', '.join(USUAL_FORMATS)}"
        raise ValueError(f"--model_args has {name}={brief(value)}, which is no number format of torch{nearest}")


# ---------------------------------------------------------------------- audits


def audit_needs(audit: str) -> list[str]:
    """Return the methods by which a model answers an audit's requests."""
    return [probes.get(probe_named_by(part)).needs for part in suffix_parts(audit)]


def why_not(model: str, audit: str) -> str:
    """Return why the model cannot run an audit, as a sentence; empty if it may.

    Raises ValueError for unknown names."""
    backend_of(model)
    if unknown := [part for part in suffix_parts(audit) if part not in suffixes()]:
        raise ValueError(f"{unknown[0]!r} is not an audit; choose one of: {', '.join(sorted(suffixes()))}")
    return next(filter(None, (why_cannot_answer(model, need) for need in audit_needs(audit))), "")


def refuse_unable(models: Sequence[str], audits: Sequence[str]) -> None:
    """Raise ValueError if none of the models can run any of the audits."""
    reasons = [(model, audit, why_not(model, audit)) for model in models for audit in audits]
    if reasons and all(reason for _, _, reason in reasons):
        model, audit, reason = reasons[0]
        able = ", ".join(f"TASK_{suffix}" for suffix in sorted(suffixes()) if not why_not(model, suffix))
        raise ValueError(
            f"{audit} cannot run: {reason}; choose another model, or an audit that it can run, such as "
            f"{able or 'none'}"
        )
