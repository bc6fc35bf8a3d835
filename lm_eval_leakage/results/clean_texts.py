"""The files of a clean set, as text: the list of its questions, its task and its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from lm_eval_leakage.results.clean_sets import RULES, CleanSet
from lm_eval_leakage.texts import as_json, as_yaml


def render_questions(clean: CleanSet, made_with: Mapping[str, str]) -> str:
    """The JSON file of a set.

    made_with: versions by package
    """
    about = {
        "base": clean.task,
        "rule": clean.rule,
        "detector": clean.detector,
        "models": clean.models,
        "n_questions": clean.n_questions,
        "n_kept": len(clean.kept),
        "n_untested": clean.n_untested,
        "guarantee": asdict(clean.guarantee),
        "made_with": made_with,
    }
    lists = {
        key: "[" + ",".join("\n  " + as_json(asdict(one)) for one in found) + "\n ]"
        for key, found in (("kept", clean.kept), ("left_out", clean.left_out))
    }
    items = [f" {as_json(key)}: {value}" for key, value in ({k: as_json(v) for k, v in about.items()} | lists).items()]
    return "{\n" + ",\n".join(items) + "\n}\n"


def render_task(clean: CleanSet, base: Mapping[str, object], version: object, questions: str) -> str:
    """The YAML of a set's task. JSON is valid YAML.

    base: where the base task's settings are, as metadata for clean_task.py
    version: of the base task; None if it has none
    questions: the JSON file's name
    """
    metadata = {} if version is None else {"version": version}
    metadata |= {"base": clean.task, **base, "questions": questions, "how": _how(clean)}
    return f"task: {as_yaml(clean.name)}\nclass: !function clean_task.CleanTask\nmetadata:\n" + "".join(
        f"  {key}: {as_yaml(value)}\n" for key, value in metadata.items()
    )


def render_group(name: str, members: Sequence[str], metrics: Sequence[str], version: object) -> str:
    """The YAML of a group, whose accuracy is that of all its questions together.

    metrics: those that all members have
    """
    text = f"group: {as_yaml(name)}\ntask:\n" + "".join(f"  - {as_yaml(member)}\n" for member in members)
    if metrics:
        text += "aggregate_metric_list:\n" + "".join(
            f"  - metric: {as_yaml(metric)}\n    aggregation: mean\n    weight_by_size: true\n" for metric in metrics
        )
    return text if version is None else f"{text}metadata:\n  version: {as_yaml(version)}\n"


def _how(clean: CleanSet) -> str:
    n_kept, models = len(clean.kept), ", ".join(clean.models)
    return (
        f"{n_kept} of {clean.n_questions} questions of {clean.task}: without those {RULES[clean.rule]} in audits of "
        f"{models} by {clean.detector}; {clean.guarantee.text}; made by lm-eval-leakage clean"
    )
