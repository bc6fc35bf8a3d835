"""The command `lm-eval-leakage ls TASK`: lists the audits of a task, or tests if its published orders are random."""

from __future__ import annotations

import argparse
from typing import Any

from lm_eval_leakage.cli.arguments import FIELDS, add_options
from lm_eval_leakage.cli.ending import refuse
from lm_eval_leakage.cli.output import say, warn
from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.lab.settings import metadata_argument

KINDS = {"ARGS": metadata_argument}
LISTED = {
    "[--format {markdown,json}]": "output format (default: %(default)s)",
    "[--metadata ARGS]": "as for lm_eval: max_orders=24",
    "[--quiet]": "print only the result, without notes of progress",
}


def run_describe(args: argparse.Namespace) -> None:
    """Print the audits of a task or, with --orders, whether its published orders are random."""
    if args.orders:
        _test_orders(args)
    else:
        _list_audits(args)


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, LISTED, KINDS, {"format": "markdown", "metadata": {}})
    orders = parser.add_argument_group("are the published orders random? (from the questions alone; also of files)")
    add_options(orders, {"[--orders]": "test whether they are"} | FIELDS)
    documented = (
        "what the author documents about the orders (random, sealed or written), and where; shown beside the tests"
    )
    orders.add_argument("--documented", nargs=2, metavar=("STATUS", "SOURCE"), help=documented)


def _list_audits(args: argparse.Namespace) -> None:
    from lm_eval_leakage.harness.auditable import as_list, findings_of
    from lm_eval_leakage.harness.task_shelf import TaskShelf

    try:
        print(as_list(findings_of(args.what, TaskShelf(_folders(args)).index, each=True)))
    except KeyError:
        if args.what.endswith(QUESTION_FILES):
            refuse(
                f"{args.what!r} is a file, of which --orders tests the orders and `check --tasks` audits the questions"
            )
        refuse(f"{args.what!r} is not a task, group or tag; `lm-eval-leakage ls tasks` lists them all")


def _folders(args: argparse.Namespace) -> list[str]:
    return [part for part in (args.include_path or "").split(":") if part]


def _test_orders(args: argparse.Namespace) -> None:
    from lm_eval_leakage.harness.own_benchmark import unread_in_words
    from lm_eval_leakage.harness.tasks.given_questions import given_rows
    from lm_eval_leakage.records import Question
    from lm_eval_leakage.results.order_tests import order_tests
    from lm_eval_leakage.results.published_orders import Documented, as_record, null_status, orders_as_markdown

    documented = None if args.documented is None else Documented(*args.documented)
    metadata = {**args.metadata, **({"fields": args.fields} if args.fields else {})}
    readings = [doc.reading for doc in given_rows(args.what, args.include_path, metadata)]
    if args.what.endswith(QUESTION_FILES) and (unread := unread_in_words(readings)):
        warn(f"{args.what}: {unread}")
    tests = order_tests([reading for reading in readings if isinstance(reading, Question)])
    status = null_status(tests, documented)
    _say(args, as_record(tests, status), orders_as_markdown(tests, status))


def _say(args: argparse.Namespace, record: Any, markdown: str) -> None:
    from lm_eval_leakage.texts import as_json

    say(as_json(record, indent=1) if args.format == "json" else markdown)
