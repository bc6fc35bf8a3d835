"""Verdicts in the formats in which others publish scores, and as a badge: one file for each model and benchmark.

The accuracy is the reported score. The verdict, how many questions may have been seen and what leakage adds stand
beside it where the format has room for them; the sentence to copy holds them all. To add a format, add an entry to
`EXPORTS`.

What nobody wrote down, such as who publishes the score, is `unknown` in a record of Every Eval Ever.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from html import escape
from typing import TYPE_CHECKING, Any
from uuid import UUID

from lm_eval_leakage import __version__
from lm_eval_leakage.texts import as_json, visible

if TYPE_CHECKING:  # the command line needs the names of formats, and these take seconds
    from lm_eval_leakage.results.result_types import Row

LONGEST_PART = 80  # characters of a name in a path
UNKNOWN = "unknown"
SCHEMA_VERSION = "0.3.0"  # of its eval.schema.json
LABEL = "leakage"
COLOURS = {  # white texts have a contrast of at least 4.5 on each
    "strong evidence": "#a3130c",
    "evidence": "#b33c00",
    "inconclusive": "#7a5c00",
    "none found": "#00795a",
    "no verdict": "#565e69",
}
PIXELS = 6.5  # of a letter
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" aria-label="{name}">
<title>{name}</title>
<rect width="{whole}" height="20" rx="3" fill="#3a414a"/>
<path d="M{left} 0h{square}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{square}z" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="{label_length}">{label}</text>
<text x="{start}" y="14" textLength="{word_length}">{word}</text>
</g>
</svg>
"""


@dataclass(frozen=True)
class Export:
    """A format of files.

    meaning: for `--help` and the docs
    path: of a row's file, in the folder that is named like the format; text: of the file, as of a time
    lacking: why there is no file for a row; empty if there is one
    """

    meaning: str
    path: Callable[[Row], str]
    text: Callable[[Row, datetime], str]
    lacking: Callable[[Row], str]


def exported(rows: Sequence[Row], formats: Sequence[str], now: datetime) -> tuple[dict[str, str], list[str]]:
    """Return the texts of all files by their paths, and a sentence for each row that is left out."""
    texts, left_out = dict[str, str](), list[str]()
    for name in formats:
        for row in rows:
            path = f"{name}/{EXPORTS[name].path(row)}"
            why = EXPORTS[name].lacking(row) or (f"{path} is the file of another one" if path in texts else "")
            if why:
                left_out.append(f"{name} leaves out {row.model} on {row.name}: {why}")
            else:
                texts[path] = EXPORTS[name].text(row, now)
    return texts, left_out


def _part(name: str) -> str:
    """Return a name as a part of a path on any system; Every Eval Ever keeps `data` for itself."""
    safe = re.sub(r"[^\w.+-]+", "_", name).strip("._")[-LONGEST_PART:]
    return f"{safe}_" if safe in ("", "data") else safe


def _by_model(ending: str) -> Callable[[Row], str]:
    return lambda row: f"{_part(row.model)}/{_part(row.name)}.{ending}"


def _no_accuracy(row: Row) -> str:
    from lm_eval_leakage.results.task_runs import ACCURACIES

    if not row.accuracy:
        return "it has no accuracy, and the format is one of scores"
    is_known = row.metric.partition(",")[0] in ACCURACIES
    return "" if is_known else f"{row.metric} is not an accuracy, so it is not known which values are good"


# ---------------------------------------------------------------------- Every Eval Ever


def _owner_and_name(row: Row) -> tuple[str, str]:
    """Return the model's owner and name; a folder on disk has no owner."""
    from lm_eval_leakage.results.provenance import HUB_NAME

    named = row.provenance.weights or row.model
    match = HUB_NAME.fullmatch(named)
    return (match["owner"], match["name"]) if match else (UNKNOWN, named.rstrip("/").rpartition("/")[2] or UNKNOWN)


def _place_of_record(row: Row) -> str:
    """Return the path of a record: the same for the same model and benchmark, whose record is replaced."""
    made = row.provenance
    digest = blake2b(json.dumps([row.model, made.revision, row.name, made.digest]).encode(), digest_size=16)
    parts = (row.task, *_owner_and_name(row))
    return f"data/{'/'.join(map(_part, parts))}/{UUID(bytes=digest.digest(), version=4)}.json"


def _record(row: Row, now: datetime) -> str:
    made, model = row.provenance, _model(row)
    record = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{row.name}/{model['id']}/{now.timestamp()}",
        **({"evaluation_timestamp": made.date} if made.date else {}),
        "retrieved_timestamp": str(now.timestamp()),
        "source_metadata": {
            "source_name": "lm_eval_leakage",
            "source_type": "evaluation_run",
            "source_organization_name": UNKNOWN,
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "lm_eval",
            "version": made.lm_eval or UNKNOWN,
            "additional_details": {"lm_eval_leakage": __version__},
        },
        "model_info": model,
        "evaluation_results": [_result(row)],
    }
    return as_json(record, indent=1) + "\n"


def _model(row: Row) -> dict[str, Any]:
    made, (owner, name) = row.provenance, _owner_and_name(row)
    # who has the weights, of which there is a commit or a digest, runs them
    deployed = {"deployment_type": "self_deployed" if made.revision else UNKNOWN, "model_availability": UNKNOWN}
    return {
        "name": row.model,
        "id": name if owner == UNKNOWN else f"{owner}/{name}",
        "developer": owner,
        "additional_details": {**deployed, **_given_values(revision=made.revision, asked_as=made.asked_as)},
    }


def _result(row: Row) -> dict[str, Any]:
    made, metric = row.provenance, row.metric.partition(",")[0]
    place = {"source_type": "hf_dataset", "hf_repo": made.dataset} if made.dataset else {"source_type": "other"}
    accuracy, errors = row.accuracy, dict[str, Any]()
    if accuracy.stderr >= 0:
        errors["standard_error"] = {"value": accuracy.stderr}
    if not math.isnan(accuracy.low):
        errors["confidence_interval"] = {"lower": accuracy.low, "upper": accuracy.high, "confidence_level": 0.95}
    return {
        "evaluation_name": row.name,
        "source_data": {
            "dataset_name": row.task,
            **place,
            "additional_details": _given_values(config=made.config, digest=made.digest),
        },
        "metric_config": {
            "metric_id": "accuracy" if metric == "acc" else f"lm_eval.{metric}",
            "metric_name": row.metric,
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": {
            "score": row.accuracy.value,
            "details": _details(row),
            "uncertainty": {**errors, "num_samples": row.n - row.n_left_out},
        },
        "generation_config": {"additional_details": _given_values(num_fewshot=row.n_shot, seed_of_draw=made.seed)},
    }


def _details(row: Row) -> dict[str, str]:
    """Return the verdict with its numbers, and what the accuracy is worth."""
    from lm_eval_leakage.results.columns import ACCURACY_CLEAN, INFLATION, PVALUE_ADJUSTED
    from lm_eval_leakage.results.tabulating import flat_value
    from lm_eval_leakage.results.verdict_numbers import details
    from lm_eval_leakage.results.verdict_texts import sentence_to_copy

    values = {f"leakage_{name}": value for name, value in details(row.verdict).items()}
    further = {
        "leakage_pvalue_adjusted": PVALUE_ADJUSTED,
        "accuracy_without_leakage": ACCURACY_CLEAN,
        "leakage_inflation": INFLATION,
    }
    for name, column in further.items():
        values |= flat_value(name, column.kind, column.of(row))
    return _given_values(leakage_citation=sentence_to_copy(row), **values)


def _given_values(**values: object) -> dict[str, str]:
    """Return the values as texts, without those that are not known; the format has texts only."""
    return {key: str(value) for key, value in values.items() if value not in (None, "")}


# ---------------------------------------------------------------------- the Hugging Face Hub


def _no_dataset(row: Row) -> str:
    of_hub = "" if row.provenance.dataset else "its questions are not of a data set that the hub names OWNER/NAME"
    return _no_accuracy(row) or of_hub


def _entry(row: Row, now: datetime) -> str:
    import yaml

    from lm_eval_leakage.results.verdict_texts import sentence_to_copy

    made = row.provenance
    entry = {
        "dataset": {"id": made.dataset, "task_id": made.config or row.task},
        "value": round(100 * float(row.accuracy.value), 2),
        **({"date": made.date} if made.date else {}),
        "notes": visible(sentence_to_copy(row)),
    }
    return str(yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=math.inf))


# ---------------------------------------------------------------------- badges


def _badge(row: Row, now: datetime) -> str:
    from lm_eval_leakage.results.verdict_words import word_with_aim

    colour, word = COLOURS[row.verdict.word], word_with_aim(row.verdict.word, row.verdict.detect)
    label_length, word_length = (round(PIXELS * len(text)) for text in (LABEL, word))
    left, right = label_length + 12, word_length + 12
    return SVG.format(
        name=escape(visible(f"Check of {row.model} for leakage of {row.name}: {word}")),
        colour=colour,
        label=LABEL,
        word=escape(word),
        label_length=label_length,
        word_length=word_length,
        left=left,
        start=left + 6,
        square=right - 3,
        whole=left + right,
    )


def _no_verdict(row: Row) -> str:
    return "" if row.verdict.word else "it has no verdict"


EXPORTS: Mapping[str, Export] = {
    "every-eval-ever": Export(
        "records in JSON for the data store of Every Eval Ever", _place_of_record, _record, _no_accuracy
    ),
    "hf-eval-results": Export(
        "YAML files for the folder .eval_results of a model on the Hugging Face Hub",
        _by_model("yaml"),
        _entry,
        _no_dataset,
    ),
    "badge": Export("SVG drawings with the verdict's word", _by_model("svg"), _badge, _no_verdict),
}
