"""Checks what a command names in a few seconds, before data is downloaded and a model loaded.

`check`, `run`, `simulate` and `ls TASK` all call `preflight`. What it cannot decide from names and the settings of
tasks is left to the command. What needs no slow import is checked first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.backends import SCORES, backend_of, why_cannot_answer
from lm_eval_leakage.harness.model_checks import audit_needs, check_arguments, check_backend, refuse_unable
from lm_eval_leakage.harness.seams.registries import class_of
from lm_eval_leakage.harness.tasks.audit_names import SINGLE, AuditIndex, check_task_names
from lm_eval_leakage.harness.tasks.metadata import SWITCHES, refusal_of_keys, switch_of
from lm_eval_leakage.harness.tasks.templates import (
    FILLER_AUDIT,
    FIRST_AUDIT,
    SEAL_KEY,
    names_an_audit,
    needs_seal,
    no_seal,
    split_name,
    suffixes,
)
from lm_eval_leakage.questions.named_fields import NO_FIELDS, OF_ROWS, QUESTION, Fields, fields_named

logger = logging.getLogger(__name__)
Models = Sequence[tuple[str, Mapping[str, Any] | None]]
shown_logger = logging.getLogger("lm_eval.leakage")  # a child of lm_eval's, so that its notes are shown
USUAL_MODEL = "hf"  # of lm_eval, without --model
SET_BY_HARNESS = ("trust_remote_code",)  # added to the model's arguments by an option of its own


def one_at_a_time(model: str, model_args: Mapping[str, Any]) -> str:
    """Return that a server is asked one request at a time, as a sentence, if nothing else was chosen; else empty."""
    backend = backend_of(model)
    if backend is None or not backend.has_server or "num_concurrent" in model_args:
        return ""
    return (
        "--model_args does not give num_concurrent, so that the server gets one request at a time; num_concurrent=16 "
        "keeps it busy"
    )


def scored_by(model: str, audits: Iterable[str]) -> Any:
    """Return the class of a model behind a server that must return log-likelihoods of given texts for one of these
    audits; None for other models and audits."""
    backend, needed = backend_of(model), {need for audit in audits for need in audit_needs(audit)}
    may_ask_a_server = backend is None or backend.has_server
    return class_of(model) if may_ask_a_server and SCORES in needed and not why_cannot_answer(model, SCORES) else None


def preflight(
    tasks: Sequence[str],
    models: Models = (),
    *,
    audits: Sequence[str] = (),
    include_path: str | Path | None = None,
    data_files: object = None,
    files: Sequence[str | Path] = (),
    fields: Fields = NO_FIELDS,
    leaves_out: bool = False,
    needs_data: bool = False,
) -> None:
    """Raises ValueError, ImportError or OSError, in one sentence with the remedy, for an unknown task or model, an
    argument that a model does not take, a file without questions or whose right answers cannot be read; and if only
    audits are asked for, and no model can run any of them or a task cannot be audited.

    tasks: as the user names them; patterns and YAML files are not examined
    models: backends with their arguments; None for a model that is loaded
    audits: suffixes of the audits of these tasks, such as `leakage_perm`; empty where tasks are audits by name
    data_files: of `--metadata`: the file of questions that audits read instead of the tasks' own data
    files: of plain questions, instead of tasks
    fields: of the rows of all these files, that hold the parts of a question
    leaves_out: whether the command leaves out tasks that cannot be audited; then one that can is enough
    needs_data: whether audits are refused whose data sets are not on this machine, if nothing may be downloaded
    """
    named = {task: _parted(task) for task in tasks}
    audit_suffixes = [*audits, *dict.fromkeys(suffix for _, suffix in named.values() if suffix)]
    is_of_audits = bool(audit_suffixes) and all(suffix or audits for _, suffix in named.values())
    check_models(models, audit_suffixes if is_of_audits else ())
    index = AuditIndex()
    if tasks:
        from lm_eval_leakage.harness.task_shelf import TaskShelf  # imports scipy

        index = TaskShelf([part for part in str(include_path or "").split(":") if part]).index
        check_task_names(tasks, index)
    if needs_data and data_files is None:
        from lm_eval_leakage.harness.data_checks import refuse_missing_data  # imports datasets

        audited = {task: base for task, (base, suffix) in named.items() if suffix and base}
        refuse_missing_data([task if index.lists(task) else base for task, base in audited.items()], index)
    for file in files:
        _refuse_without_question(file, _questions_in(file, fields), fields)
    if not is_of_audits:
        return
    bases = [base for base, _ in named.values()]
    if data_files is not None:
        _refuse_file(data_files, fields, bases, index)
    elif named:
        needs_options = FILLER_AUDIT not in audit_suffixes
        _refuse_unauditable(bases, index, leaves_out, needs_options=needs_options)


def check_models(models: Models, audits: Sequence[str]) -> None:
    """Raise ValueError or ImportError for what is wrong with models and is known before they are loaded: names,
    packages, files and arguments, and audits of which no model can run any.

    audits: suffixes; empty where tasks are run that are no audits
    """
    refuse_unable([model for model, _ in models], audits)
    for model, model_args in models:
        check_backend(model, model_args)
    for model, model_args in models:  # which imports the backends
        if model_args is not None:
            check_arguments(model, model_args)


def _parted(task: str) -> tuple[str, str]:
    """Return an audit's name as task and suffix; the suffix is empty for a task, and the task for an audit of a
    file."""
    return ("", task) if task in suffixes() else split_name(task) or (task, "")


def _refuse_file(file: object, fields: Fields, bases: Sequence[str], index: AuditIndex) -> None:
    """Raises ValueError or OSError if the file or its right answers cannot be read, or if it has no question for tasks
    that read plain questions; whether another task can read it is left to the run."""
    rows = _questions_in(file, fields)
    if all(_is_own(base, index) or base not in index for base in bases):
        _refuse_without_question(file, rows, fields)


def _questions_in(file: object, fields: Fields) -> Any:
    from lm_eval_leakage.harness.tasks.question_files import read_questions  # imports datasets

    return read_questions(file, fields)


def _refuse_without_question(file: object, rows: Any, fields: Fields) -> None:
    from lm_eval_leakage.harness.tasks.audited_rows import why_unreadable
    from lm_eval_leakage.questions.fields import question_from_doc
    from lm_eval_leakage.questions.statements import has_statements

    if has_statements([*rows], fields.get(QUESTION)):
        return
    if why := why_unreadable(rows, question_from_doc, n_tried=None):
        raise ValueError(f"in the file {str(file)!r} no question can be read ({why}); {OF_ROWS}")


# ---------------------------------------------------------------------- the kind of a task


def _refuse_unauditable(tasks: Sequence[str], index: AuditIndex, leaves_out: bool, *, needs_options: bool) -> None:
    """Raises ValueError if the settings of one of the tasks show that it cannot be audited (where the command
    `leaves_out` such tasks: of all of them), with the reason that `ls` gives. The others are tried on their rows, by
    the command.

    needs_options: whether all audits that are asked for need options
    """
    reasons = {}
    for task in tasks:
        reason = _why_unauditable(task, index, needs_options)
        if reason:
            reasons[task] = reason
    if not reasons or (leaves_out and len(reasons) < len(set(tasks))):
        return
    task, reason = next(iter(reasons.items()))
    raise ValueError(
        f"{task} cannot be audited: {reason}; leave it out, or choose another benchmark (`lm-eval-leakage ls TASK` "
        "says whether one can be audited)"
    )


def _why_unauditable(name: str, index: AuditIndex, needs_options: bool) -> str:
    entry = None if _is_own(name, index) else index.get(name)
    if entry is None or entry.kind.name not in SINGLE:
        return ""
    from lm_eval_leakage.harness.auditable import WRITTEN_IN_PYTHON, constant_choices

    settings = entry.cfg or {}
    if "class" in settings:
        return WRITTEN_IN_PYTHON
    return constant_choices(settings) if needs_options else ""


def _is_own(name: str, index: AuditIndex) -> bool:
    """Return whether it is one of our own data sets, whose first audit has a YAML of its own and reads plain
    fields."""
    return index.lists(f"{name}_{FIRST_AUDIT}")


def check_run_options(options: Any) -> None:
    """Raises ValueError, ImportError or OSError, with the remedy, for what can be seen before a model is loaded: a
    misspelled task, a model that does not exist, lacks a package or an argument or cannot run the audits, a file that
    does not exist, an output path that cannot be written, an invalid key of `--metadata`, data sets of audits that are
    not on this machine and cannot be downloaded.

    options: lm_eval's EvaluatorConfig, or the parsed command line
    """
    tasks = _tasks(options)
    if not tasks and not any(options.tasks or ()):
        raise ValueError("--tasks names no task; name tasks or audits, such as --tasks mmlu_leakage_perm")
    model_args = {name: value for name, value in (options.model_args or {}).items() if name not in SET_BY_HARNESS}
    models, audits = [(options.model or USUAL_MODEL, model_args)], [task for task in tasks if names_an_audit(task)]
    file = (options.metadata or {}).get("data_files") if audits else None
    given = (options.metadata or {}).get("fields")
    fields = fields_named(given) if given else NO_FIELDS
    preflight(tasks, models, include_path=options.include_path, data_files=file, fields=fields, needs_data=True)
    if audits:
        _check_metadata(options, tasks, audits)
    if options.output_path:
        from lm_eval_leakage.harness.seams.run_files import refuse_unwritable  # imports lm_eval.utils

        refuse_unwritable(Path(options.output_path))


def look_at_server(options: Any) -> None:
    """Says how the server of a run with audits is asked, and what it gives for a known text. Raises ValueError if that
    is not what they need."""
    model, model_args = options.model or USUAL_MODEL, options.model_args or {}
    if slow := one_at_a_time(model, model_args):
        logger.warning("%s", slow)
    from lm_eval_leakage.harness.models.server_proof import proven  # imports requests

    if (kind := scored_by(model, audits_of(options))) and (summary := proven(kind, model_args)):
        shown_logger.info("%s", summary)


def audits_of(options: Any) -> list[str]:
    """Return the suffixes of the audits among a run's tasks."""
    return [_parted(task)[1] for task in _tasks(options) if names_an_audit(task)]


def _tasks(options: Any) -> list[str]:
    given = options.tasks or []
    given = given.split(",") if isinstance(given, str) else given
    names = [name for task in given if isinstance(task, str) for name in task.split(",")]
    return [name for name in names if name]


def _check_metadata(options: Any, tasks: Sequence[str], audits: Sequence[str]) -> None:
    metadata = options.metadata or {}
    for switch in SWITCHES:
        switch_of(metadata, switch)
    if "published_orders" in metadata:
        from lm_eval_leakage.harness.tasks.order_status import documented_status  # imports scipy

        documented_status(metadata)
    # the user's keys, without the model's arguments, which lm_eval adds to them
    keys = sorted((options.metadata or {}).keys() - (options.model_args or {}))
    if refusal := refusal_of_keys(keys, of_audits_only=len(audits) == len(tasks)):
        raise ValueError(refusal)
    _check_seal(metadata, audits)


def _check_seal(metadata: Mapping[str, Any], audits: Sequence[str]) -> None:
    if metadata.get(SEAL_KEY) is not None:
        from lm_eval_leakage.harness.tasks.seals import seal_in  # imports scipy

        seal_in(metadata[SEAL_KEY])
        return
    for audit in audits:
        _, suffix = split_name(audit) or ("", audit)
        if needs_seal(suffix):
            raise ValueError(no_seal(audit))
