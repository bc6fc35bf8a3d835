"""`lm-eval-leakage simulate`: command-line arguments, and the settings that they give."""

from __future__ import annotations

import argparse
import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.lab.exposure_text import EXPOSED_LAYOUTS, EXPOSED_ORDERS
from lm_eval_leakage.lab.settings import DETECTORS, PROTOCOLS, SELECTIONS, Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="hf-prefix-tree", help="model of the harness that runs the audits (default: %(default)s)")
    add("--model_args", required=True, help="its arguments; a copy of pretrained=MODEL is trained")
    add("--tasks", required=True, metavar="TASK|FILE", help="one task, group or tag, or a file of questions")
    add(
        "--output_path",
        required=True,
        type=Path,
        help="folder for models, answers and the report; resumed if it exists",
    )
    add("--protocol", choices=sorted(PROTOCOLS), default="ni", help="use a paper's settings (default: %(default)s)")
    add("--n_questions", type=int, default=200, help="trained and held-out questions in total (default: %(default)s)")
    add(
        "--epochs",
        type=_numbers,
        help="numbers of exposures after which to audit, such as 1,2,3 (default: the protocol's)",
    )
    add("--audits", type=_names, default=DETECTORS, help=f"audits to run (default: {','.join(DETECTORS)})")
    add("--select", choices=SELECTIONS, help="which questions are used (default: the protocol's)")
    add("--max_tokens", type=int, help="use only questions of at most this many tokens")
    add("--neighbours", type=int, default=1, help="questions per training document (default: %(default)s)")
    add("--order", choices=EXPOSED_ORDERS, help="order of the options in the training text")
    add("--layout", choices=EXPOSED_LAYOUTS, help="layout of a question in the training text")
    add("--no_answer", action="store_true", help="train on questions without the right letter")
    add("--header", action="store_true", help="train with the subject's header")
    add("--versions", help="file of paraphrased or translated questions to train on instead of the originals")
    add("--ordinary", help="file of ordinary texts, one per line, to also train on")
    add(
        "--ordinary_ratio",
        type=float,
        default=1.0,
        help="ordinary texts per document of questions (default: %(default)s)",
    )
    add("--reference", metavar="MODEL_ARGS", help="reference model that has not seen the benchmark")
    add("--against_reference", type=_names, help="audits that use the reference (default: leakage_relative)")
    add("--control", metavar="TASK|FILE", help="known-unseen questions for MODEL, such as fresh")
    add("--learning_rate", type=float, help="of the training (default: the protocol's)")
    add("--batch_size", type=int, help="of the training (default: the protocol's)")
    add("--lora_rank", type=int, help="train LoRA adapters of this rank instead of all weights")
    add(
        "--metadata",
        type=metadata_argument,
        default={},
        help="parameters of probes and statistics, as key=value,key2=value2 or as JSON",
    )
    add("--seed", type=int, default=0, help="of the draw and the training (default: %(default)s)")
    add("--include_path", metavar="DIR", help="a folder with additional tasks")


def settings(args: argparse.Namespace) -> Simulation:
    """The protocol's settings, overridden by the command line."""

    def given(*names: str) -> dict[str, Any]:
        return {name: getattr(args, name) for name in names if getattr(args, name) is not None}

    chosen = Simulation(
        model_args=args.model_args,
        benchmark=args.tasks,
        model=args.model,
        n_questions=args.n_questions,
        detectors=args.audits,
        max_tokens=args.max_tokens,
        neighbours=args.neighbours,
        versions=args.versions,
        ordinary=args.ordinary,
        ordinary_ratio=args.ordinary_ratio,
        metadata=args.metadata,
        reference=args.reference,
        control=args.control,
        seed=args.seed,
        include_path=args.include_path,
        **{**PROTOCOLS[args.protocol], **given("epochs", "select", "against_reference")},
    )
    recipe = given("learning_rate", "batch_size", "lora_rank")
    text = given("order", "layout")
    text |= {"answer": False} if args.no_answer else {}
    text |= {"header": True} if args.header else {}
    return replace(chosen, recipe=replace(chosen.recipe, **recipe), text=replace(chosen.text, **text))


def metadata_argument(text: str) -> dict[str, Any]:
    """As for lm_eval: JSON, or pairs whose values are read as Python's if they can be."""
    if text.lstrip().startswith("{"):
        found: dict[str, Any] = json.loads(text)
        return found
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [key for key, is_pair, _ in pairs if not (key and is_pair)]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is no key=value; write key=value,key2=value2, or JSON")
    return {key: _value(text) for key, _, text in pairs}


def _value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
