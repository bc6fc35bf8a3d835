"""Commands that read runs and audits, without running a model: `annotate`, `clean`, `report` and `leaderboard`.

A command's name is that of its function without `run_`, and its help is the function's docstring.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lm_eval_leakage import __version__
from lm_eval_leakage.cli import arguments
from lm_eval_leakage.cli.arguments import add_options
from lm_eval_leakage.cli.ending import CONDITION_MET, refuse
from lm_eval_leakage.cli.output import note, say, warn
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.seams.command_line import AddArguments, Command
from lm_eval_leakage.logs.run import Problem, outermost
from lm_eval_leakage.logs.runs import results_of
from lm_eval_leakage.texts import visible

if TYPE_CHECKING:  # it imports scipy, which would slow `--help` down
    from lm_eval_leakage.results.conditions import Condition
    from lm_eval_leakage.results.result_types import Annotation, Row

PROBLEMS_SHOWN = 20


def run_annotate(args: argparse.Namespace) -> None:
    """Add leakage columns to the results of runs: the verdict, flagged questions, the accuracy without them."""
    from lm_eval_leakage.results.conditions import Condition, check_complete
    from lm_eval_leakage.results.tables import as_text, verdicts_in_words, write

    conditions = [Condition.of(text) for text in args.fail_on or ()]
    annotations = _annotations(args)
    rows = [row for annotation in annotations for row in annotation.rows]
    if not args.dry_run:
        for annotation in annotations:
            for file in write(annotation, __version__, args.output_path):
                note(f"written: {file}")
    shown = rows if args.subjects else [row for row in rows if row.level != "subject"]
    say(as_text(shown, args.format))
    if in_words := verdicts_in_words(rows, args.format):
        say(f"\n{in_words}")
    _print_all_problems(annotations)
    if conditions:
        check_complete(problem for annotation in annotations for problem in annotation.problems)
        _exit_by_conditions(conditions, rows, args.allow_no_verdict)


def _exit_by_conditions(conditions: Sequence[Condition], rows: Sequence[Row], allow_no_verdict: bool) -> None:
    """Exit with code 1 if a condition is met, else with code 2 if one cannot be judged; else return.

    allow_no_verdict: whether a condition that cannot be judged is only reported
    """
    for condition in conditions:
        if condition.reservation:
            note(f"note: {condition.reservation}")
    met = [sentence for condition in conditions for sentence in condition.met_by(rows)]
    unjudged = dict.fromkeys(sentence for condition in conditions for sentence in condition.unjudged_of(rows))
    for sentence in met:
        warn(f"fails: {sentence}")
    for sentence in unjudged:
        warn(f"note: {sentence}")
    if met:
        sys.exit(CONDITION_MET)
    if unjudged and not allow_no_verdict:
        refuse(
            "--fail-on cannot be judged for all benchmarks, so that nothing shows that it holds; --allow-no-verdict "
            "accepts those that are named above"
        )


def clean(args: argparse.Namespace) -> None:
    """Write tasks for plain lm_eval that ask only the questions that are not flagged."""
    from lm_eval.tasks import TaskManager

    from lm_eval_leakage.harness.clean_files import write_clean
    from lm_eval_leakage.harness.run_commands import own_folders
    from lm_eval_leakage.results.clean_sets import NO_GUARANTEE, clean_name, clean_sets

    annotations = _annotations(args)
    sets = clean_sets(annotations, "strong" if args.strong else "weak", args.keep_untested)
    groups = {name: tasks for annotation in annotations for name, tasks in annotation.groups.items()}
    origins = {row.origin for annotation in annotations for row in annotation.rows if row.origin}
    manager = TaskManager(
        include_path=args.include_path or own_folders(results_of(Path(results_file)) for results_file in origins)
    )
    problems = write_clean(sets, groups, args.output_path, manager, overwrite=args.overwrite)
    for clean_set in sets:
        counts = f"{len(clean_set.kept)} of {clean_set.n_questions} questions kept, {clean_set.n_untested} untested"
        say(visible(f"{clean_set.name}: {counts}"))
    say(f"{NO_GUARANTEE[0].upper()}{NO_GUARANTEE[1:]}.")
    _print_all_problems(annotations)
    for problem in problems:
        note(f"note: {problem}")
    names = dict.fromkeys(clean_name(outermost(clean_set.task, groups) or clean_set.task) for clean_set in sets)
    _say_commands(annotations, args.output_path, list(names))


def _say_commands(annotations: Sequence[Annotation], folder: Path, tasks: Sequence[str]) -> None:
    """Print the command that runs the clean tasks with the options of a run, for each model whose results record
    them."""
    from lm_eval_leakage.harness.run_commands import run_command

    commands = []
    for annotation in annotations:
        answered = [row for row in annotation.rows if row.origin]
        results = results_of(Path(answered[0].origin)) if answered else {}
        commands.append(run_command(results, {row.n_shot for row in answered}, folder, tasks))
    for command in filter(None, commands):
        say(visible(f"run them with: {command}"))
    if not any(commands):
        say(visible(f"run them with the run's own options and --include_path {folder} --tasks {','.join(tasks)}"))


def report(args: argparse.Namespace) -> None:
    """Write an HTML page of runs and audits: verdicts, columns, plots, the flagged questions."""
    from lm_eval_leakage.results.page import render_page

    annotations = _annotations(args)
    _write_page(render_page(annotations), args.output_path)
    _print_all_problems(annotations)


def run_leaderboard(args: argparse.Namespace) -> None:
    """Compare many models on many benchmarks: one number per model, verdicts, shares flagged, ranks with intervals."""
    from lm_eval_leakage.results import leaderboard as standings

    chosen = [name.strip() for name in (args.columns or "").split(",") if name.strip()]
    standings.chosen_columns(chosen)  # raises for an unknown column, before anything is read
    annotations = _annotations(args)
    leaderboard = standings.leaderboard(annotations)
    if not (leaderboard.boards or leaderboard.confused):
        _print_all_problems(annotations)
        command = f"lm-eval-leakage check --runs {args.runs[0]}"
        refuse(visible(f"nothing is written, since these runs have no audit to compare; `{command}` makes it"))
    if args.format == "html":
        _write_page(standings.as_page(leaderboard, chosen), args.output_path or Path("leaderboard.html"))
    else:
        as_text = standings.as_csv if args.format == "csv" else standings.leaderboard_as_markdown
        text = as_text(leaderboard, chosen)
        if args.output_path is None:
            say(text)
        else:
            atomic_write(args.output_path, text + "\n")
    _print_all_problems(annotations)


def _annotations(args: argparse.Namespace) -> Sequence[Annotation]:
    """Return the runs of the command's folders joined with their audits, one annotation per model.

    Raises ValueError if there is no audit.
    """
    from lm_eval_leakage.results.annotate import annotate

    aliases = dict(_alias(text) for text in args.alias or ())
    annotations = annotate(
        args.runs,
        args.audit or (),
        detector=args.detector,
        references=args.reference or (),
        aliases=aliases,
        audit_command=_audit_command,
    )
    if not any(annotation.audited_questions for annotation in annotations):
        _raise_no_audit(annotations, args.runs)
    return annotations


def _raise_no_audit(annotations: Sequence[Annotation], folders: Sequence[Path]) -> NoReturn:
    """Raise ValueError, whose text names a command that audits the questions of the runs."""
    from lm_eval_leakage.results.rows import task_of

    places = " ".join(map(str, folders))
    command = f"lm-eval-leakage check --runs {places} --model_args pretrained=MODEL --tasks TASK"
    rows = [row for annotation in annotations for row in annotation.rows if row.origin]
    if rows:
        command = _audit_command(Path(rows[0].origin), rows[0].group or task_of(rows[0]), rows[0].n_shot) or command
    raise ValueError(
        f"no run in {places} is an audit; this audits the questions of the runs and gives the verdict: {command} "
        "(if there are audits elsewhere, give their folder as --audit)"
    )


def _audit_command(results_file: Path, task: str, n_shot: str) -> str:
    """Return the command that audits exactly the questions of a run's task; empty if its options are unknown."""
    from lm_eval_leakage.harness.run_commands import audit_command  # takes seconds, and few commands need it

    return audit_command(results_file, task, n_shot)


def _alias(text: str) -> tuple[str, str]:
    """Return the two names of a model in an argument OTHER=MODEL of `--alias`."""
    other, is_given, model = text.partition("=")
    if not (other and is_given and model):
        raise ValueError(f"--alias is {text!r}; write it as OTHER=MODEL, two names of the same model")
    return other, model


def _print_all_problems(annotations: Sequence[Annotation]) -> None:
    """Print the problems of all annotations; their models are named if there are several."""
    has_several = len(annotations) > 1
    problems = [
        (annotation.model if has_several else "", problem)
        for annotation in annotations
        for problem in annotation.problems
    ]
    print_problems(problems)


def print_problems(problems: Iterable[tuple[str, Problem]]) -> None:
    """Print problems as notes, those that cost questions first; of many, only the first PROBLEMS_SHOWN.

    problems: each with the name of its model, which is empty if it needs no mention
    """
    ordered = sorted(problems, key=lambda pair: not pair[1].incomplete)
    for model, problem in ordered[:PROBLEMS_SHOWN]:
        print_line = warn if problem.incomplete else note  # what costs questions is printed with --quiet, too
        print_line(f"note: {model}: {problem}" if model else f"note: {problem}")
    if len(ordered) > PROBLEMS_SHOWN:
        more = len(ordered) - PROBLEMS_SHOWN
        note(f"note: and {more} more (`annotate` without --dry_run writes all of them into results_*_leakage.json)")


def _write_page(page: str, file: Path) -> None:
    """Write an HTML page, and print its file and size."""
    atomic_write(file, page)
    say(f"written: {visible(str(file))} ({len(page.encode()) / 1e6:.1f} MB)")


COMMANDS_ON_RESULTS: Mapping[Command, AddArguments] = {
    run_annotate: partial(add_options, options=arguments.ANNOTATE, defaults={"format": "table"}),
    clean: arguments.clean_arguments,
    report: partial(add_options, options=arguments.REPORT, defaults={"output_path": Path("leakage.html")}),
    run_leaderboard: partial(add_options, options=arguments.LEADERBOARD, defaults={"format": "html"}),
}
