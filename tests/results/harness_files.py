"""Files as the harness and our audits write them, for tests of what reads them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import (
    LINE_VERSION,
    QUESTION_KEY,
    VERSION_KEY,
    benchmark_of,
    content_of,
)
from lm_eval_leakage.questions.families import question_key, shared_texts

DETECTOR = "max_order"
CONFUSION = "paired_accuracy:score=letters"
_seconds = count()


def time() -> str:
    """Later at each call."""
    number = next(_seconds)
    return f"2026-01-{1 + number // 86400:02}T{number // 3600 % 24:02}-{number // 60 % 60:02}-{number % 60:02}.000001"


def row(number: int, subject: str = "history", **fields: Any) -> dict[str, Any]:
    return {
        "question": f"Question {number}?",
        "subject": subject,
        "choices": ["a", "b", f"c of {subject}", f"d{number}"],
        "answer": 0,
    } | fields


def doc_hash(doc: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(doc, indent=2, ensure_ascii=False).encode(errors="surrogatepass")).hexdigest()


def answered(
    number: int, doc: Mapping[str, Any], right: bool, filter_: str = "none", metric: str = "acc"
) -> dict[str, Any]:
    """A line of an ordinary task's samples log."""
    return {
        "doc_id": number,
        "doc": doc,
        "target": "0",
        "arguments": {},
        "resps": [[["-1.0", "False"]]],
        "filter": filter_,
        "metrics": [metric],
        "doc_hash": doc_hash(doc),
        metric: float(right),
    }


def audited(doc: Mapping[str, Any], flagged: bool | None, guards: str = "", **values: Any) -> dict[str, Any]:
    """A line of max_order's log; `flagged` None is a question that was skipped."""
    line = {
        VERSION_KEY: LINE_VERSION,
        "benchmark": "bench",
        "doc": doc,
        "doc_hash": doc_hash(doc),
        "filter": "max_order",
        "detector": DETECTOR,
        "guards": guards,
        "flagged": flagged,
        "reason": "two options read alike" if flagged is None else None,
        "ranks_by": "" if flagged is None else "statistic",
    }
    if (read := content_of(doc)[0]) is not None:
        line |= {QUESTION_KEY: question_key(read), "shared_texts": " ".join(shared_texts(read))}
    if flagged is not None:
        margin = 1.5 if flagged else -1.5
        line |= {"null_rate": 1 / 24, "pvalue": 1 / 24 if flagged else 0.5, "margin": margin, "statistic": margin}
        line |= {"n_orders": 24, "resps": [[[str(-20.0 - i), "False"]] for i in range(24)]}
    return line | values


def confused(doc: Mapping[str, Any], original: bool, generalized: bool) -> dict[str, Any]:
    """A line of choice confusion's log."""
    arms = {"original": original, "shuffled": original, "replaced": generalized, "generalized": generalized}
    named = {"filter": "paired_accuracy", "detector": CONFUSION, "ranks_by": "confusion", "confusion": 0.5}
    return audited(doc, None, reason=None, **arms, **named)


def write_run(
    folder: Path,
    model: str,
    logs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    results: bool = True,
    groups: Mapping[str, Sequence[str]] | None = None,
    n_shot: int = 0,
    arguments: Mapping[str, Any] | str | None = None,
) -> Path:
    """One call of the harness; the folder of its model."""
    at, place = time(), folder / model.replace("/", "__")
    place.mkdir(parents=True, exist_ok=True)
    for task, lines in logs.items():
        text = "".join(json.dumps(line) + "\n" for line in numbered(lines, task))
        (place / f"samples_{task}_{at}.jsonl").write_text(text, encoding="utf-8")
    if results:
        content = results_of(model, logs, groups or {}, n_shot, arguments)
        (place / f"results_{at}.json").write_text(json.dumps(content), encoding="utf-8")
    return place


def numbered(lines: Sequence[Mapping[str, Any]], task: str) -> list[Mapping[str, Any]]:
    """Return each line with its question's number, counted by filter, as the harness does; an audit's with the
    benchmark that the audit's name says."""
    seen: Counter[str] = Counter()
    with_numbers = []
    for line in lines:
        versions = {"benchmark": benchmark_of(task)} if VERSION_KEY in line else {}
        with_numbers.append({"doc_id": seen[line["filter"]]} | line | versions)
        seen[line["filter"]] += 1
    return with_numbers


def results_of(
    model: str,
    logs: Mapping[str, Sequence[Mapping[str, Any]]],
    groups: Mapping[str, Sequence[str]],
    n_shot: int,
    arguments: Mapping[str, Any] | str | None,
) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for task, lines in logs.items():
        if any("ranks_by" in line for line in lines):
            rows[task] = {"alias": task, **{f"skipped,{line['filter']}": 0.0 for line in lines}}
        else:
            right = [line["acc"] for line in lines if "acc" in line]
            rows[task] = {"alias": task, "acc,none": sum(right) / max(1, len(right)), "acc_stderr,none": 0.01}
    for group, members in groups.items():
        of_members = [line["acc"] for member in members for line in logs.get(member, ()) if "acc" in line]
        if of_members:
            rows[group] = {"alias": group, "acc,none": sum(of_members) / len(of_members), "acc_stderr,none": 0.02}
    n_asked = {task: max([*Counter(line["filter"] for line in lines).values(), 0]) for task, lines in logs.items()}
    return {
        "results": rows,
        "groups": {group: rows[group] for group in groups if group in rows},
        "group_subtasks": {group: list(members) for group, members in groups.items()},
        "configs": {},
        "versions": dict.fromkeys(rows, 1),
        "n-shot": dict.fromkeys(logs, n_shot),
        "higher_is_better": {},
        "n-samples": {task: {"original": 1000, "effective": n} for task, n in n_asked.items()},
        "config": {"model": "hf", "model_args": {"pretrained": model} if arguments is None else arguments},
        "model_name": model,
        "lm_eval_version": "0.4.13",
    }
