"""Compares what runs record of their model and of how it was asked: runs that contradict each other are of two models,
whatever both are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from typing import Any

from lm_eval_leakage.logs.audits import audit_logs_of
from lm_eval_leakage.logs.run import (
    CHAT_TEMPLATE,
    LOCAL,
    SYSTEM_INSTRUCTION,
    Problem,
    Run,
    arguments_of,
    digest_of,
    identity_differences,
    in_brackets,
)

HOW_IT_RUNS = frozenset(  # backend arguments that affect how a model is run, but not its answers
    (
        *("batch_size", "max_batch_size", "max_tokens", "device", "device_map", "parallelize", "tp_plan"),
        *("device_map_option", "max_memory_per_gpu", "max_cpu_memory", "offload_folder", "cache_dir"),
        "download_dir",
        *("gpu_memory_utilization", "swap_space", "enforce_eager", "max_num_seqs", "max_num_batched_tokens"),
        *("enable_prefix_caching", "block_size", "disable_log_stats", "distributed_executor_backend"),
        *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "tp_size", "dp_size", "gpus"),
        *("num_concurrent", "max_retries", "timeout", "verify_certificate", "trust_remote_code"),
        *("api_key", "auth_token", "token", "header", "headers", "use_fast_tokenizer"),
        *("logits_cache", "low_cpu_mem_usage"),
    )
)
OF_WEIGHTS = frozenset(  # arguments that count even if only one of two backends has them
    (
        *("load_in_8bit", "load_in_4bit", "quantization", "autogptq", "gptqmodel", "gguf_file"),
        *("peft", "delta", "lora_local_path", "subfolder", "revision"),
    )
)
NAMING = frozenset({"pretrained", "model"})  # arguments that the model's name is made of
NOT_GIVEN = frozenset({"", "none", "false", "auto"})
RECORDED = ("model_num_parameters", "model_dtype", "model_sha", "peft_sha", "delta_sha")  # by the harness, if it can
IN_COMMIT = re.compile(r".+ \(([0-9a-f]{40})\)", re.DOTALL)  # a model of the hub in an identity
SERVER = re.compile(r"completions|chat|openai|anthropic")  # backends whose templates are the server's
SAME_BACKEND = {"hf-auto": "hf", "huggingface": "hf"}


def named_by_content(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, where those of one model whose files had several paths have the name of the oldest of them.

    A run that does not record its model follows a name that stands for no other model.
    """
    canonical: dict[str, str] = {}  # names by identities
    identities: dict[str, set[str]] = {}  # by names
    for run in runs:
        if any(map(LOCAL.fullmatch, run.identity.values())):
            canonical.setdefault(digest_of(run.identity), run.model)
        if run.identity:
            identities.setdefault(run.model, set()).add(digest_of(run.identity))

    def name_of(run: Run) -> str:
        own = {digest_of(run.identity)} if run.identity else identities.get(run.model, set())
        (digest,) = own if len(own) == 1 else ("",)
        return canonical.get(digest, run.model)

    return [replace(run, model=name_of(run)) for run in runs]


def told_apart(runs: Sequence[Run], problems: list[Problem]) -> list[Run]:
    """Return the runs, where those of one name that contradict each other have a digest after the name.

    Of runs of one name, two are of one model if they contradict the same other runs. So a run that records too little
    to tell which of several models it is of stands alone.
    """
    by_name: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        by_name.setdefault(run.key, []).append(place)
    names: dict[int, str] = {}
    for places in by_name.values():
        differences = {
            pair: text for pair in combinations(places, 2) if (text := contradiction(*(runs[one] for one in pair)))
        }
        against = {
            place: frozenset(one for pair in differences if place in pair for one in pair) - {place}
            for place in places
        }
        for others in dict.fromkeys(against.values()):
            alike = [place for place in places if against[place] == others]
            if others:
                ending = in_brackets(settings_of(runs[alike[0]]))
                names |= {place: f"{runs[place].model}{ending}" for place in alike}
        if differences:
            problems.append(_told(runs, places, names, differences))
    return [replace(run, model=names.get(place, run.model)) for place, run in enumerate(runs)]


def _told(
    runs: Sequence[Run], places: Sequence[int], names: Mapping[int, str], differences: Mapping[tuple[int, int], str]
) -> Problem:
    """Say where they differ. What was to be judged by an audit of the other model is not judged at all."""
    model = runs[places[0]].model
    (one, other), difference = next(iter(differences.items()))
    audited: dict[str, bool] = {}
    for place in places:
        name = names.get(place, runs[place].model)
        audited[name] = audited.get(name, False) or bool(audit_logs_of(runs[place]))
    what = (
        f"runs of {model!r} contradict each other, so they are not joined: {names[one]!r} and {names[other]!r} differ "
        f"in {difference}"
    )
    if len(audited) > 2:
        what += f"; it is {len(audited)} models in all"
    what += f"; --alias '{names[other]}={names[one]}' joins them all the same"
    return Problem(what, runs[other].results_file, incomplete=len({*audited.values()}) > 1)


def contradiction(one: Run, other: Run) -> str:
    """Return where two runs of one name contradict each other, in words; empty if they may be of one model."""
    if one.identity and other.identity:
        return identity_differences(one.identity, other.identity)
    first, second = settings_of(one), settings_of(other)
    names = {*first, *second}
    if not (_records_arguments(one) and _records_arguments(other)):
        names = {*first} & {*second}
    elif _backend(one) != _backend(other):
        names = {name for name in names if (name in first and name in second) or name in OF_WEIGHTS}
    differing = [name for name in sorted(names) if _differ(name, first, second)]
    return "; ".join(f"{name} ({first.get(name, 'not given')}, {second.get(name, 'not given')})" for name in differing)


def _differ(name: str, first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    both = name in first and name in second
    if not both and name in (*RECORDED, CHAT_TEMPLATE, f"{CHAT_TEMPLATE}_sha", SYSTEM_INSTRUCTION):
        return False  # not recorded
    if name == "dtype" and "model_dtype" in first and "model_dtype" in second:
        return False  # what was loaded says more than what was asked for
    if name == "revision" and "model_sha" in first and "model_sha" in second:
        return False
    return first.get(name) != second.get(name)


def settings_of(run: Run) -> dict[str, str]:
    """Return what a run records of all that its model's answers depend on."""
    config: Mapping[str, Any] = run.results.get("config") or {}
    arguments = arguments_of(config.get("model_args"))
    on_another = {"peft", "delta"} & arguments.keys()  # which names the model then
    found = {
        name: _text(value)
        for name, value in arguments.items()
        if name not in HOW_IT_RUNS and (name not in NAMING or on_another) and not _is_default(name, value)
    }
    found |= {name: str(config[name]) for name in RECORDED if config.get(name) not in (None, "", -1)}
    for name in NAMING & run.identity.keys():
        if match := IN_COMMIT.fullmatch(run.identity[name]):
            found.setdefault("model_sha", match[1])
    return found | _of_prompts(run)


def _of_prompts(run: Run) -> dict[str, str]:
    """Whether there was a chat template, and which; and a digest of the system instruction."""
    found: dict[str, str] = {}
    if sha := run.results.get(f"{CHAT_TEMPLATE}_sha"):
        found |= {CHAT_TEMPLATE: "applied", f"{CHAT_TEMPLATE}_sha": str(sha)}
    elif run.identity:
        found[CHAT_TEMPLATE] = "applied" if run.identity.get(f"apply_{CHAT_TEMPLATE}") else "none"
    elif f"{CHAT_TEMPLATE}_sha" in run.results and not SERVER.search(_backend(run)):
        found[CHAT_TEMPLATE] = "none"
    if f"{SYSTEM_INSTRUCTION}_sha" in run.results:
        found[SYSTEM_INSTRUCTION] = str(run.results[f"{SYSTEM_INSTRUCTION}_sha"] or "none")
    elif run.identity:
        text = run.identity.get(SYSTEM_INSTRUCTION)
        found[SYSTEM_INSTRUCTION] = sha256(text.encode("utf-8", "replace")).hexdigest() if text else "none"
    return found


def _records_arguments(run: Run) -> bool:
    return "model_args" in (run.results.get("config") or {})


def _backend(run: Run) -> str:
    """The backend's name; those that only ask in another order are the same."""
    name = str((run.results.get("config") or {}).get("model") or "").removesuffix("-prefix-tree")
    return SAME_BACKEND.get(name, name)


def _is_default(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    return text in NOT_GIVEN or (name, text) == ("revision", "main")


def _text(value: object) -> str:
    text = str(value)
    return text.capitalize() if text.lower() == "true" else text
