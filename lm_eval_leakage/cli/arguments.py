"""Command-line arguments as tables, above all those of the commands that read runs and audits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lm_eval_leakage.results.tabulating import STYLES

Kinds = Mapping[str, Callable[[str], Any]]
KINDS: Kinds = {"FOLDER": Path, "RUNS": Path, "FILE": Path, "ALPHA": float}
NO_DEFAULTS: Mapping[str, Any] = {}
FIELDS = {
    "[--fields NAMES]": "which fields of a file hold question, options and answer, if they have names of their own: "
    "question=input,answer=target; options=a+b+c, where each has a field",
}
READING = {
    "RUNS...": "output folders (--output_path) of lm_eval --log_samples",
    "[--audit FOLDER]...": "output folder of audits, if they are not in RUNS; may be repeated",
    "[--alias OTHER=MODEL]...": "treat the model name OTHER as MODEL, where runs of one model name it differently",
    "[--detector ID]": "id of the detector whose flags count, such as max_order:orders=12 (default: max_order, else "
    "the first)",
    "[--reference FOLDER]...": "runs and audits of other models, which show how difficult a question is and which "
    "orders are natural (default: those of the check that made RUNS)",
}
ANNOTATE = READING | {
    f"[--format {{{','.join(STYLES)}}}]": "format of the printed table (default: %(default)s)",
    "[--subjects]": "also print a row per subject",
    "[--fail-on CONDITION]...": "exit with status 1 if the row of a task or group meets it, such as evidence (a "
    "verdict of at least this) or 'confusion_delta<-0.1'; may be repeated",
    "[--allow-no-verdict]": "do not exit with status 2 because a condition cannot be judged for a benchmark, as "
    "where it has no verdict",
    "[--output_path FOLDER]": "folder for the annotated files (default: next to the runs)",
    "[--dry_run]": "print only, write no files",
}
RULES = {
    "[--weak]": "leave out every flagged question (default)",
    "[--strong]": "leave out only questions that are flagged and answered correctly",
}
CLEAN = {
    "[--keep_untested]": "keep questions that no audit tested",
    "[--include_path DIR]": "folder of your own tasks, if it has moved since the runs",
    "[--overwrite]": "replace tasks that already exist in the folder",
}
REPORT = READING | {"[--output_path FILE]": "HTML file to write (default: %(default)s)"}
LEADERBOARD = READING | {
    "[--format {html,markdown,csv}]": "output format (default: %(default)s)",
    "[--columns NAMES]": "columns of the benchmarks' tables, by their names in CSV and separated by commas, such as "
    "verdict,accuracy,accuracy_clean,rank (default: the usual ones)",
    "[--output_path FILE]": "file to write (default: leaderboard.html; markdown and csv are printed)",
}


def add_options(
    parser: argparse._ActionsContainer,
    options: Mapping[str, str],
    kinds: Kinds = KINDS,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> list[argparse.Action]:
    """Add arguments and return them; what is not given and has no default is None, or False without a value.

    options: each as a usage has it (in brackets if it may be left out, with `...` if it may be repeated, with its
        choices in braces), and its help
    kinds: what the values of these names are; others are texts
    defaults: by the names of the options
    """
    actions = []
    for usage, meaning in options.items():
        shown = usage.strip("[].")
        names = [word for word in shown.split() if word.startswith("-")]
        value = shown.removeprefix(" ".join(names)).strip()
        how: dict[str, Any] = {"metavar": value, "type": kinds.get(value)}
        if value.startswith("{"):
            how = {"choices": value[1:-1].split(",")}
        if not value:
            how = {"action": "store_true"}
        elif usage.endswith("..."):
            how |= {"action": "append"} if names else {"nargs": "+"}
        if names:
            how["required"] = not usage.startswith("[")
        actions.append(parser.add_argument(*(names or [value.lower()]), help=meaning, **how))
    parser.set_defaults(**defaults)
    return actions


def clean_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, READING | {"--output_path FOLDER": "folder for the clean tasks"})
    add_options(parser.add_mutually_exclusive_group(), RULES)
    add_options(parser, CLEAN)
