"""`lm-eval-leakage simulate`: its arguments as the settings of a simulation."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.lab.exposure_text import EXPOSED_LAYOUTS, EXPOSED_ORDERS
from lm_eval_leakage.lab.settings import DETECTORS, PROTOCOLS, SELECTIONS, Simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="hf-prefix-tree", help="model of the harness that runs the audits (default: %(default)s)")
    add("--model_args", required=True, help="its arguments; pretrained=MODEL is also what is trained")
    add("--tasks", required=True, metavar="TASK|FILE", help="one task, group or tag, or a file of questions")
    add("--output_path", required=True, type=Path, help="folder for models, answers and the report; reused")
    add("--protocol", choices=sorted(PROTOCOLS), default="ni", help="a paper's settings (default: %(default)s)")
    add("--n_questions", type=int, default=200, help="trained and held out together (default: %(default)s)")
    add("--epochs", type=_numbers, help="exposures after which to look, such as 1,2,3 (default: the protocol's)")
    add("--detectors", type=_names, default=DETECTORS, help=f"audits to run (default: {','.join(DETECTORS)})")
    add("--select", choices=SELECTIONS, help="which questions are used (default: the protocol's)")
    add("--max_tokens", type=int, help="only questions of at most so many tokens")
    add("--neighbours", type=int, default=1, help="questions of one training document (default: %(default)s)")
    add("--order", choices=EXPOSED_ORDERS, help="order of the options in the training text")
    add("--layout", choices=EXPOSED_LAYOUTS, help="how a question stands in the training text")
    add("--no_answer", action="store_true", help="train on questions without the right letter")
    add("--header", action="store_true", help="train with the subject's header")
    add("--versions", help="file of paraphrased or translated questions to train on in the place of the originals")
    add("--ordinary", help="file of ordinary texts, one a line, to train on too")
    add("--ordinary_ratio", type=float, default=1.0, help="so many of them for each document (default: %(default)s)")
    add("--reference", metavar="MODEL_ARGS", help="another model, not having seen the benchmark, to compare with")
    add("--against_reference", type=_names, help="audits that are compared with it (default: leakage_relative)")
    add("--control", metavar="TASK|FILE", help="questions that nobody has seen, such as fresh: known-unseen for MODEL")
    add("--learning_rate", type=float)
    add("--batch_size", type=int, help="of the training")
    add("--lora_rank", type=int, help="train LoRA of this rank instead of all weights")
    add("--metadata", type=json.loads, default={}, help="parameters of probes and statistics, as JSON")
    add("--seed", type=int, default=0)


def settings(args: argparse.Namespace) -> Simulation:
    """The protocol's settings, with what the command line changes."""

    def given(*names: str) -> dict[str, Any]:
        return {name: getattr(args, name) for name in names if getattr(args, name) is not None}

    chosen = Simulation(
        model_args=args.model_args,
        benchmark=args.tasks,
        model=args.model,
        n_questions=args.n_questions,
        detectors=args.detectors,
        max_tokens=args.max_tokens,
        neighbours=args.neighbours,
        versions=args.versions,
        ordinary=args.ordinary,
        ordinary_ratio=args.ordinary_ratio,
        metadata=args.metadata,
        reference=args.reference,
        control=args.control,
        seed=args.seed,
        **{**PROTOCOLS[args.protocol], **given("epochs", "select", "against_reference")},
    )
    recipe = given("learning_rate", "batch_size", "lora_rank")
    text = given("order", "layout")
    text |= {"answer": False} if args.no_answer else {}
    text |= {"header": True} if args.header else {}
    return replace(chosen, recipe=replace(chosen.recipe, **recipe), text=replace(chosen.text, **text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
