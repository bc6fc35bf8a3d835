"""`lm-eval-leakage cost`: what audits and tasks will ask, without a model."""

from __future__ import annotations

import argparse
import math

from lm_eval_leakage.cli.ending import say
from lm_eval_leakage.lab.command import metadata_argument

ALL = "all"


def cost(args: argparse.Namespace) -> None:
    """count the requests and tokens of audits and tasks with a tokenizer, without a model"""
    from lm_eval_leakage.harness.backends import backend_of, why_cannot_answer
    from lm_eval_leakage.harness.costs import Speed, as_markdown, as_records, costs, speed_of
    from lm_eval_leakage.texts import as_json

    names = [name for task in args.tasks for name in task.split(",") if name]
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
        questions=args.questions,
        limit=args.limit,
        metadata=args.metadata,
        num_fewshot=args.num_fewshot,
        include_paths=[part for part in (args.include_path or "").split(":") if part],
        apply_chat_template=args.apply_chat_template or False,
    )
    refusals = {one.method: why_cannot_answer(args.model, one.method) for one in found.values()}
    if args.format == "json":
        say(as_json(as_records(found, args.model, speed, refusals), indent=1))
    else:
        say(as_markdown(found, args.model, speed, refusals))


def cost_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tasks", nargs="+", metavar="TASK", help="audits, tasks, groups or tags of lm_eval")
    add("--tokenizer", required=True, metavar="NAME", help="a folder or a model of the Hugging Face Hub")
    add(
        "--model",
        "-M",
        default="hf-prefix-tree",
        metavar="NAME",
        help="backend, as for lm_eval; it decides which tokens are read (default: %(default)s)",
    )
    add(
        "--questions",
        type=_questions,
        default=200,
        metavar="N",
        help="questions tokenised of each task, drawn at random, or all (default: %(default)s)",
    )
    add("--limit", type=_positive, metavar="N", help="as for lm_eval: the run asks only N questions of each task")
    add("--num_fewshot", type=int, metavar="N", help="as for lm_eval; audits have no examples")
    add("--metadata", type=metadata_argument, default={}, metavar="ARGS", help="as for lm_eval: max_orders=24")
    add("--include_path", metavar="DIR", help="a folder with additional tasks")
    add("--apply_chat_template", nargs="?", const=True, metavar="NAME", help="as for lm_eval")
    add("--tokens_per_second", type=_positive, metavar="X", help="that the model reads on your machine; adds the time")
    add("--parameters", type=_positive, metavar="N", help="of the model, such as 8e9; with --tflops, adds the time")
    add("--tflops", type=_positive, metavar="X", help="that your machine achieves, such as 400 of an H100's 989")
    add("--format", choices=("markdown", "json"), default="markdown", help="output format (default: %(default)s)")


def _refuse_keys(metadata: dict[str, object], names: list[str]) -> None:
    from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
    from lm_eval_leakage.harness.tasks.templates import names_an_audit

    audits = [name for name in names if names_an_audit(name)]
    if audits and (refusal := refusal_of_keys(metadata, of_audits_only=len(audits) == len(names))):
        raise ValueError(refusal)


def _questions(text: str) -> int | None:
    if text == ALL:
        return None
    return int(_positive(text))


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
