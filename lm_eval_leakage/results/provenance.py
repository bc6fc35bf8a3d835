"""Says what a reader needs to repeat a verdict: which model, which questions, which version of lm_eval, when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lm_eval_leakage.logs.audits import audited_task, benchmarks_of_groups, with_audits
from lm_eval_leakage.logs.model_settings import recorded_settings
from lm_eval_leakage.logs.run import CHAT_TEMPLATE, CONTENT, LOCAL, SYSTEM_INSTRUCTION, Run, digest_of, leaves

COMMIT = re.compile(r"[0-9a-f]{40}")
OF_FILES = "files with digest"  # in the provenance of a model with local files
OF_NAME = ("pretrained", "model")  # arguments that name the model itself
SHOWN_OF_DIGEST = 8  # characters
PROMPTS = {"applied": "chat template", "none": "plain text"}
HUB_NAME = re.compile(r"(?P<owner>\w[\w.-]*)/(?P<name>\w[\w.-]*)", re.ASCII)  # of a model or data set


@dataclass(frozen=True)
class Provenance:
    """The provenance of a result: its model, questions and versions. A value is empty or None where the run does not
    say it.

    model: as it was given; weights: the name of its weights, on the hub or on disk, which may be another one
    revision: its commit, or a digest of its files, in words
    asked_as: backend and what else answers depend on, such as `hf, dtype=bfloat16`
    seed: by which the questions were drawn; None if they were not drawn at random
    lm_eval: its version; date: of the run, in ISO 8601
    digest: of all rows of the benchmark, how they are put, and what is documented about them
    dataset: on the hub, of which the questions are; config: the configuration of it, if there is one for all
    prompt_format: whether a chat template was applied, and the digest of a system instruction, in words
    """

    model: str = ""
    revision: str = ""
    asked_as: str = ""
    seed: int | None = None
    lm_eval: str = ""
    date: str = ""
    weights: str = ""
    digest: str = ""
    dataset: str = ""
    config: str = ""
    prompt_format: str = ""


NOT_RECORDED = Provenance()


def provenances(runs: Sequence[Run]) -> dict[str, Provenance]:
    """Return provenances by benchmark and group: that of the newest run with an audit of it; without any, of the
    newest run of it."""
    by_name: dict[str, Provenance] = {}
    for run in runs:
        provenance, groups = provenance_of(run), run.results.get("group_subtasks") or {}
        for name in (*run.logs, *groups):
            tasks = leaves(name, groups)
            dataset, config = _dataset(run, tasks)
            digest = _digest(run, dict(zip(tasks, tasks, strict=True)))
            by_name[name] = replace(provenance, digest=digest, dataset=dataset, config=config)
    for run in with_audits(runs):
        provenance, groups = provenance_of(run), benchmarks_of_groups(run)
        audits = {audited_task(run, audit): audit for audit in run.logs}
        for name in (*audits, *groups):
            of_run = by_name.get(name, NOT_RECORDED)
            digest = _digest(run, {task: audits.get(task, task) for task in leaves(name, groups)})
            by_name[name] = replace(provenance, digest=digest, dataset=of_run.dataset, config=of_run.config)
    return by_name


def _digest(run: Run, tasks: Mapping[str, str]) -> str:
    """Return the digest of a benchmark's tasks, each with its name in the run; empty if that of a task is not
    recorded."""
    digests = {task: run.data[name] for task, name in tasks.items() if name in run.data}
    return digest_of(digests) if digests and len(digests) == len(tasks) else ""


def _dataset(run: Run, tasks: Sequence[str]) -> tuple[str, str]:
    """Return the data set on the hub that all of the tasks are made from, and the configuration that they have in
    common."""
    configs = [(run.results.get("configs") or {}).get(task) or {} for task in tasks]
    (dataset, *others), (config, *different) = (
        [*dict.fromkeys(str(config.get(key) or "") for config in configs)] for key in ("dataset_path", "dataset_name")
    )
    is_of_hub = HUB_NAME.fullmatch(dataset) and not others and not Path(dataset).exists()
    return (dataset, "" if different else config) if is_of_hub else ("", "")


def provenance_of(run: Run) -> Provenance:
    provenance = provenance_of_model(run.named, run.identity)
    commit = (run.results.get("config") or {}).get("model_sha")  # by the harness
    return replace(
        provenance,
        revision=provenance.revision or (f"revision {commit}" if isinstance(commit, str) and commit else ""),
        seed=run.seed,
        prompt_format=_prompt_format(recorded_settings(run)),
        lm_eval=str(run.results.get("lm_eval_version") or ""),
        date=run.time[: len("2026-01-31")],
    )


def _prompt_format(settings: Mapping[str, str]) -> str:
    """Return how a run's prompts were put, in words; empty if it records neither template nor system instruction.

    settings: as in `recorded_settings`
    """
    instruction = settings.get(SYSTEM_INSTRUCTION, "none")
    parts = [
        PROMPTS.get(settings.get(CHAT_TEMPLATE, ""), ""),
        "" if instruction == "none" else f"system instruction {instruction[:SHOWN_OF_DIGEST]}",
    ]
    return " with ".join(filter(None, parts))


def provenance_of_model(name: str, identity: Mapping[str, str]) -> Provenance:
    """Return the provenance of a model that has answered nothing yet. The revision is that of the model, then of what
    it was asked with, such as an adapter."""
    revisions, others = dict[str, str](), [identity.get("backend", "")]
    for argument, value in identity.items():
        if match := CONTENT.fullmatch(value):
            digest = match["digest"]
            revisions[argument] = f"{'revision' if COMMIT.fullmatch(digest) else OF_FILES} {digest}"
        elif argument not in (*OF_NAME, "backend"):
            others.append(f"{argument}={value}")
    of_name = [revisions.pop(argument) for argument in OF_NAME if argument in revisions]
    revision = ", ".join([*of_name, *(f"{argument} {content}" for argument, content in revisions.items())])
    named = next((identity[argument] for argument in OF_NAME if argument in identity), name)
    weights = name if LOCAL.fullmatch(named) else match["name"] if (match := CONTENT.fullmatch(named)) else named
    return Provenance(name, revision, ", ".join(filter(None, others)), weights=weights)
