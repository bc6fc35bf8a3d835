"""Finds out whether tasks can be audited, as `ls TASK` prints it: from their settings, or else from their first
rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.harness.seams.tasks import Entry, kind_of, task_settings
from lm_eval_leakage.harness.tasks.audited_rows import docs_to_audit, statements_to_audit, why_not_audited
from lm_eval_leakage.harness.tasks.base_task import ROWS_TRIED, RefusedAudit, refusal_of_constant_options
from lm_eval_leakage.harness.tasks.data import ReadDoc
from lm_eval_leakage.harness.tasks.templates import (
    FILLER_AUDIT,
    FIRST_AUDIT,
    SEAL_AUDIT,
    SEAL_KEY,
    needs_seal,
    suffixes,
)
from lm_eval_leakage.questions.prompt_parser import labels_among, texts_in
from lm_eval_leakage.questions.reader import IN_CONTEXTS
from lm_eval_leakage.questions.slots import NAMES, NUMBERS
from lm_eval_leakage.questions.statements import NO_DETAIL, with_slot
from lm_eval_leakage.records import Question, StrEnum
from lm_eval_leakage.results.formatting import count, counted
from lm_eval_leakage.texts import brief

PATHS = re.compile(r" ?\(/[^)]*\)")  # in messages
TO_COMPARE = {NAMES: "", NUMBERS: ", for a verdict beside a reference or unseen rows"}
FEW_OPTIONS = 3  # of which there are at most six orders, too few to find much by
WRITTEN_IN_PYTHON = "it is written in Python and does not render the prompt and choices of a row"


class Coverage(StrEnum):
    """The answer to whether a task can be audited: it can; an audit is impossible or would be meaningless; nobody can
    say."""

    COVERED = "covered"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """The finding on whether one task can be audited.

    reason: why it is not covered, or how its options are read if it is
    audits: suffixes of those that a check makes of it: of option orders where it has options, and of exchanged names
        where it has none, or so few that their orders find little
    """

    task: str
    status: Coverage
    reason: str
    audits: tuple[str, ...] = (FIRST_AUDIT,)


def findings_of(name: str, index: Mapping[str, Entry], *, each: bool = False) -> list[Finding]:
    """Return the findings on a task, or on the tasks of a group or tag; raises KeyError for an unknown name.

    each: whether the data of all tasks are loaded, or those after the first covered one are left unknown
    """
    findings: list[Finding] = []
    for task in dict.fromkeys(tasks_of(name, index)):
        if not each and any(finding.status == Coverage.COVERED for finding in findings):
            findings.append(Finding(task, Coverage.UNKNOWN, "its data were not loaded"))
        else:
            findings.append(judge(task, index[task]))
    return findings


def judge(name: str, entry: Entry) -> Finding:
    """Return the finding on a task in the index, whose data are loaded."""
    config = entry.cfg or {}
    if "class" in config:
        return Finding(name, Coverage.REFUSED, WRITTEN_IN_PYTHON)
    try:
        settings = task_settings(entry.yaml_path) if entry.yaml_path else dict(config)
        if reason := constant_choices(settings):
            return Finding(name, Coverage.REFUSED, reason)
        loaded = TaskManager(include_defaults=False).load(str(entry.yaml_path) if entry.yaml_path else settings)
        (task,) = loaded["tasks"].values()
        docs, rows = docs_to_audit(task, {})
        if why := why_not_audited(docs, rows):
            has_options = settings.get("output_type") == "multiple_choice" and why != IN_CONTEXTS
            return Finding(name, Coverage.REFUSED, why) if has_options else _by_names(name, task, why)
        if _most_options(docs) > FEW_OPTIONS:
            return Finding(name, Coverage.COVERED, _how(docs))
        beside = _by_names(name, task, "")
        if beside.status != Coverage.COVERED:
            return Finding(name, Coverage.COVERED, _how(docs))
        return Finding(name, Coverage.COVERED, f"{_how(docs)}; {beside.reason}, too", (FIRST_AUDIT, *beside.audits))
    except Refusal:
        raise
    except (Exception, SystemExit) as error:  # a task's functions, or the loading of its data, may raise anything
        return Finding(name, Coverage.UNKNOWN, _not_loaded(error))


def _by_names(name: str, task: Any, why: str) -> Finding:
    """Return the finding on a task without options, or with few.

    why: the reason why it has no other audit; empty if it has one
    """
    try:
        docs = statements_to_audit(task, {})
    except RefusedAudit as error:
        return Finding(name, Coverage.REFUSED, f"{why}; and {error}")
    if not why and docs.fillers != NAMES:  # beside the orders of options, numbers add nothing without a reference
        return Finding(name, Coverage.REFUSED, NO_DETAIL)
    questions = [doc.reading for doc in docs if isinstance(doc.reading, Question)]
    share = f"{count(len(with_slot(questions, docs.fillers)))} of {counted(len(docs), 'row')}"
    coverage = f"{docs.fillers} of {share} can be exchanged{TO_COMPARE[docs.fillers]}"
    return Finding(name, Coverage.COVERED, f"{coverage} ({why})" if why else coverage, (FILLER_AUDIT,))


def _most_options(docs: Sequence[ReadDoc]) -> int:
    """Return the largest number of options among the first rows."""
    first = (doc.reading for doc in docs[:ROWS_TRIED])
    return max((len(question.options) for question in first if isinstance(question, Question)), default=0)


def _not_loaded(error: BaseException) -> str:
    return f"the harness cannot load it ({type(error).__name__}: {brief(PATHS.sub('', str(error)))})"


def constant_choices(settings: Mapping[str, Any]) -> str:
    """Return why a task is refused whose choices are words in its YAML, the same for all questions; empty if they are
    not."""
    choices = settings.get("doc_to_choice")
    if not isinstance(choices, (list, dict)):  # a template or a function, which a row is needed for
        return ""
    options = [str(choice) for choice in (choices.values() if isinstance(choices, dict) else choices)]
    return "" if labels_among(options) is not None else refusal_of_constant_options(options, len(options))


def _how(docs: Sequence[ReadDoc]) -> str:
    doc, question = next((doc, doc.reading) for doc in docs if isinstance(doc.reading, Question))
    if question.frame is None:
        return "options are the choices"
    values = {text.strip() for text in texts_in(doc)}
    are_values = all(option.strip() in values for option in question.options)
    return "options in the prompt" if are_values else "options inside one field, found by their labels"


def tasks_of(name: str, index: Mapping[str, Entry]) -> Iterator[str]:
    """Return the name itself, or the tasks of a group or tag; raises KeyError for an unknown name."""
    entry = index[name]
    if kind_of(entry) == "TAG":
        yield from sorted(entry.tags)
    elif kind_of(entry) == "GROUP":
        for member in _members(entry.cfg or {}):
            yield from tasks_of(member, index) if member in index else ()
    else:
        yield name


def _members(config: Mapping[str, Any]) -> Iterator[str]:
    """Return the names in a group's list, including those of nested groups."""
    listed = config.get("task") or []
    for member in [listed] if isinstance(listed, str) else listed:
        if isinstance(member, str):
            yield member
        elif isinstance(member.get("task"), str):
            yield member["task"]
        else:
            yield from _members(member)


def as_list(findings: Sequence[Finding]) -> str:
    """Return one line per task: its name, whether it can be audited, how or why not; then the names of its audits,
    those that need a seal apart."""
    width = max((len(finding.task) for finding in findings), default=0)
    lines = [f"{finding.task:{width}}  {finding.status:8} {finding.reason}" for finding in findings]
    covered = [finding for finding in findings if finding.status == Coverage.COVERED]
    task = covered[0].task if covered and len(findings) == 1 else "TASK"
    if any(FIRST_AUDIT in finding.audits for finding in covered):
        sealed = {SEAL_AUDIT, *filter(needs_seal, suffixes())}
        lines += ["", f"audits: {_names(task, {*suffixes()} - sealed)}"]
        lines += [f"if it is sealed, with --metadata {SEAL_KEY}=PRIVATE_FOLDER: {_names(task, sealed)}"]
    elif covered:
        lines += ["", f"audits: {_names(task, [FILLER_AUDIT])}"]
    return "\n".join(lines)


def _names(task: str, audits: Iterable[str]) -> str:
    return ", ".join(f"{task}_{suffix}" for suffix in sorted(audits))
