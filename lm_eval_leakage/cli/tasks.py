"""`lm-eval-leakage ls TASK`: its audits, what they will ask, whether its published orders are random."""

from __future__ import annotations

import argparse
import math
from typing import Any

from lm_eval_leakage.cli.arguments import add_options
from lm_eval_leakage.cli.ending import FILES, refuse, say
from lm_eval_leakage.lab.settings import metadata_argument


def _positive(text: str) -> float | None:
    """None for `all`."""
    if text == "all":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


KINDS = {"ARGS": metadata_argument, "N": _positive, "X": _positive}
LISTED = {
    "[--format {markdown,json}]": "output format (default: %(default)s)",
    "[--metadata ARGS]": "as for lm_eval: max_orders=24",
    "[--quiet]": "print only the result, without notes of progress",
}
ASKED = {
    "[--tokenizer NAME]": "count requests and tokens; a folder or a model of the Hugging Face Hub",
    "[--model -M NAME]": "backend, as for lm_eval; it decides which tokens are read (default: %(default)s)",
    "[--questions N]": "questions tokenised of each task, drawn at random, or all (default: %(default)s)",
    "[--limit N]": "as for lm_eval: the run asks only N questions of each task",
}
SPEED = {
    "[--tokens_per_second X]": "that the model reads on your machine; adds the time",
    "[--parameters N]": "of the model, such as 8e9; with --tflops, adds the time",
    "[--tflops X]": "that your machine achieves, such as 400 of an H100's 989",
}


def describe(args: argparse.Namespace) -> None:
    """What `ls` says of a task: its audits, or what the options ask for."""
    if args.orders and args.tokenizer is not None:
        raise ValueError("--orders and --tokenizer ask for different things; give one of them")
    if args.orders:
        _test_orders(args)
    elif args.tokenizer is not None:
        _count(args)
    else:
        _list_audits(args)


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, LISTED, KINDS, {"format": "markdown", "metadata": {}})
    orders = parser.add_argument_group("are the published orders random? (from the questions alone; also of files)")
    add_options(orders, {"[--orders]": "test whether they are"})
    documented = (
        "what the builder says about the orders (random, sealed or written), and where; shown beside the tests"
    )
    orders.add_argument("--documented", nargs=2, metavar=("STATUS", "SOURCE"), help=documented)
    asked = parser.add_argument_group("what will be asked? (without a model)")
    add_options(asked, ASKED, KINDS, {"model": "hf-prefix-tree", "questions": 200})
    asked.add_argument("--num_fewshot", type=int, metavar="N", help="as for lm_eval; audits have no examples")
    asked.add_argument("--apply_chat_template", nargs="?", const=True, metavar="NAME", help="as for lm_eval")
    add_options(asked, SPEED, KINDS)


def _list_audits(args: argparse.Namespace) -> None:
    from lm_eval_leakage.harness.auditable import as_list, findings_of
    from lm_eval_leakage.harness.task_shelf import TaskShelf

    try:
        print(as_list(findings_of(args.what, TaskShelf(_folders(args)).index, each=True)))
    except KeyError:
        if args.what.endswith(FILES):
            refuse(
                f"{args.what!r} is a file, of which --orders tests the orders and `check --tasks` audits the questions"
            )
        refuse(f"{args.what!r} is not a task, group or tag; `lm-eval-leakage ls tasks` lists them all")


def _folders(args: argparse.Namespace) -> list[str]:
    return [part for part in (args.include_path or "").split(":") if part]


def _test_orders(args: argparse.Namespace) -> None:
    from lm_eval_leakage.harness.tasks.given_questions import questions_of
    from lm_eval_leakage.results.published_orders import Documented, as_markdown, as_record, null_status, order_tests

    documented = None if args.documented is None else Documented(*args.documented)
    found = order_tests(questions_of(args.what, args.include_path, args.metadata))
    status = null_status(found, documented)
    _say(args, as_record(found, status), as_markdown(found, status))


def _count(args: argparse.Namespace) -> None:
    from lm_eval_leakage.harness.backends import backend_of, why_cannot_answer
    from lm_eval_leakage.harness.costs import Speed, as_markdown, as_records, costs, speed_of

    names = [name for name in args.what.split(",") if name]
    backend_of(args.model)  # refuses an unknown name now
    _refuse_keys(args.metadata, names)
    speed = Speed(args.tokens_per_second or 0.0)
    if (args.parameters is None) != (args.tflops is None):
        raise ValueError("--parameters and --tflops need each other: time is 2 x parameters x tokens / FLOP/s")
    if args.parameters is not None:
        speed = speed_of(args.parameters, args.tflops)
    found = costs(
        names,
        args.tokenizer,
        questions=args.questions and int(args.questions),
        limit=args.limit,
        metadata=args.metadata,
        num_fewshot=args.num_fewshot,
        include_paths=_folders(args),
        apply_chat_template=args.apply_chat_template or False,
    )
    refusals = {one.method: why_cannot_answer(args.model, one.method) for one in found.values()}
    told = (found, args.model, speed, refusals)
    _say(args, as_records(*told), as_markdown(*told))


def _say(args: argparse.Namespace, record: Any, markdown: str) -> None:
    from lm_eval_leakage.texts import as_json

    say(as_json(record, indent=1) if args.format == "json" else markdown)


def _refuse_keys(metadata: dict[str, object], names: list[str]) -> None:
    from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
    from lm_eval_leakage.harness.tasks.templates import names_an_audit

    audits = [name for name in names if names_an_audit(name)]
    if audits and (refusal := refusal_of_keys(metadata, of_audits_only=len(audits) == len(names))):
        raise ValueError(refusal)
