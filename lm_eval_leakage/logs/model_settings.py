"""Compares the model settings that runs record: runs that contradict each other are of two models with one name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    digest_of,
    identity_differences,
    in_brackets,
    recorded_arguments,
)

HOW_IT_RUNS = frozenset(  # backend arguments that affect how a model runs, but not its answers
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
OF_WEIGHTS = frozenset(  # arguments that matter even if only one of two backends has them
    (
        *("load_in_8bit", "load_in_4bit", "quantization", "autogptq", "gptqmodel", "gguf_file"),
        *("peft", "delta", "lora_local_path", "subfolder", "revision"),
    )
)
NAMING = frozenset({"pretrained", "model"})  # arguments that the model's name is made of
NOT_GIVEN = frozenset({"", "none", "false", "auto"})
# recorded by the harness, if it can
RECORDED = ("model_num_parameters", "model_dtype", "model_sha", "peft_sha", "delta_sha")
IN_COMMIT = re.compile(r".+ \(([0-9a-f]{40})\)", re.DOTALL)  # a model of the hub in an identity
SERVER = re.compile(r"completions|chat|openai|anthropic")  # backends whose templates are the server's
SAME_BACKEND = {"hf-auto": "hf", "huggingface": "hf"}


def named_by_content(runs: Sequence[Run]) -> list[Run]:
    """Return the runs. Runs of one model whose files had several paths all get the name of the oldest run.

    A run that does not record its model is renamed with the others of its name, if these are of one model.
    """
    canonical: dict[str, str] = {}  # names by digest of the identity
    identities: dict[str, set[str]] = {}  # digests of identities by name
    for run in runs:
        if any(map(LOCAL.fullmatch, run.identity.values())):
            canonical.setdefault(digest_of(run.identity), run.model)
        if run.identity:
            identities.setdefault(run.model, set()).add(digest_of(run.identity))

    def name_of(run: Run) -> str:
        digests = {digest_of(run.identity)} if run.identity else identities.get(run.model, set())
        (digest,) = digests if len(digests) == 1 else ("",)
        return canonical.get(digest, run.model)

    return [replace(run, model=name_of(run)) for run in runs]


def separated_by_settings(runs: Sequence[Run], problems: list[Problem]) -> list[Run]:
    """Return the runs. If runs of one name contradict each other, a digest is added to their names.

    Two runs of one name are of one model if they contradict the same other runs. A run that records too little to
    belong to one of several models is therefore a model by itself.
    """
    by_name: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        by_name.setdefault(run.key, []).append(place)
    names: dict[int, str] = {}
    for places in by_name.values():
        differences: dict[tuple[int, int], str] = {}
        for first, second in combinations(places, 2):
            if text := contradiction(runs[first], runs[second]):
                differences[first, second] = text
        contradicted = {place: _partners(place, differences) for place in places}
        for others in dict.fromkeys(contradicted.values()):
            alike = [place for place in places if contradicted[place] == others]
            if others:
                ending = in_brackets(recorded_settings(runs[alike[0]]))
                names |= {place: f"{runs[place].model}{ending}" for place in alike}
        if differences:
            problems.append(_contradictions(runs, places, names, differences))
    return [replace(run, model=names.get(place, run.model)) for place, run in enumerate(runs)]


def _partners(place: int, pairs: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the other members of all pairs that contain a place."""
    return frozenset(member for pair in pairs if place in pair for member in pair) - {place}


def _contradictions(
    runs: Sequence[Run], places: Sequence[int], names: Mapping[int, str], differences: Mapping[tuple[int, int], str]
) -> Problem:
    """Return the problem that runs of one name differ. A benchmark with an audit of the other model is not judged."""
    model = runs[places[0]].model
    (first, second), difference = next(iter(differences.items()))
    audited: dict[str, bool] = {}
    for place in places:
        name = names.get(place, runs[place].model)
        audited[name] = audited.get(name, False) or bool(audit_logs_of(runs[place]))
    what = (
        f"runs of {model!r} contradict each other, so they are not joined: {names[first]!r} and {names[second]!r} "
        f"differ in {difference}"
    )
    if len(audited) > 2:
        what += f"; it is {len(audited)} models in all"
    what += f"; --alias '{names[second]}={names[first]}' joins them all the same"
    return Problem(what, runs[second].results_file, incomplete=len({*audited.values()}) > 1)


def contradiction(run: Run, other: Run) -> str:
    """Return the settings in which two runs of one name contradict each other, in words; empty if there are none."""
    if run.identity and other.identity:
        return identity_differences(run.identity, other.identity)
    first, second = recorded_settings(run), recorded_settings(other)
    names = {*first, *second}
    if not (_records_arguments(run) and _records_arguments(other)):
        names = {*first} & {*second}
    elif _backend(run) != _backend(other):
        names = ({*first} & {*second}) | (names & OF_WEIGHTS)
    differing = [name for name in sorted(names) if _differ(name, first, second)]
    return "; ".join(f"{name} ({first.get(name, 'not given')}, {second.get(name, 'not given')})" for name in differing)


def _differ(name: str, first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether a setting proves that two runs are of different models."""
    both = name in first and name in second
    if not both and name in (*RECORDED, CHAT_TEMPLATE, f"{CHAT_TEMPLATE}_sha", SYSTEM_INSTRUCTION):
        return False  # not recorded
    if name == "dtype" and "model_dtype" in first and "model_dtype" in second:
        return False  # the loaded type is more precise than the requested one
    if name == "revision" and "model_sha" in first and "model_sha" in second:
        return False
    return first.get(name) != second.get(name)


def recorded_settings(run: Run) -> dict[str, str]:
    """Return the settings on which the model's answers depend, as far as a run records them."""
    config: Mapping[str, Any] = run.results.get("config") or {}
    arguments = recorded_arguments(config.get("model_args"))
    has_base = {"peft", "delta"} & arguments.keys()  # the model is then named by its adapter or delta
    settings = {}
    for name, value in arguments.items():
        is_name_of_model = name in NAMING and not has_base
        if name not in HOW_IT_RUNS and not is_name_of_model and not _is_default(name, value):
            settings[name] = _text(value)
    settings |= {name: str(config[name]) for name in RECORDED if config.get(name) not in (None, "", -1)}
    for name in NAMING & run.identity.keys():
        if match := IN_COMMIT.fullmatch(run.identity[name]):
            settings.setdefault("model_sha", match[1])
    return settings | _of_prompts(run)


def _of_prompts(run: Run) -> dict[str, str]:
    """Return whether a chat template was applied, with its digest, and a digest of the system instruction."""
    settings: dict[str, str] = {}
    if sha := run.results.get(f"{CHAT_TEMPLATE}_sha"):
        settings |= {CHAT_TEMPLATE: "applied", f"{CHAT_TEMPLATE}_sha": str(sha)}
    elif run.identity:
        settings[CHAT_TEMPLATE] = "applied" if run.identity.get(f"apply_{CHAT_TEMPLATE}") else "none"
    elif f"{CHAT_TEMPLATE}_sha" in run.results and not SERVER.search(_backend(run)):
        settings[CHAT_TEMPLATE] = "none"
    if f"{SYSTEM_INSTRUCTION}_sha" in run.results:
        settings[SYSTEM_INSTRUCTION] = str(run.results[f"{SYSTEM_INSTRUCTION}_sha"] or "none")
    elif run.identity:
        text = run.identity.get(SYSTEM_INSTRUCTION)
        settings[SYSTEM_INSTRUCTION] = sha256(text.encode("utf-8", "replace")).hexdigest() if text else "none"
    return settings


def _records_arguments(run: Run) -> bool:
    return "model_args" in (run.results.get("config") or {})


def _backend(run: Run) -> str:
    """Return the backend's name. A backend that only sends requests in another order has the name of the original."""
    name = str((run.results.get("config") or {}).get("model") or "").removesuffix("-prefix-tree")
    return SAME_BACKEND.get(name, name)


def _is_default(name: str, value: object) -> bool:
    """Return whether an argument has a value that means the same as no value."""
    text = str(value).strip().lower()
    return text in NOT_GIVEN or (name, text) == ("revision", "main")


def _text(value: object) -> str:
    """Return a value as text, with one spelling of true."""
    text = str(value)
    return text.capitalize() if text.lower() == "true" else text
