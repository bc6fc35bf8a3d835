"""`lm-eval-leakage simulate`: command-line arguments, and the settings that they give."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.lab.exposure_text import EXPOSED_LAYOUTS, EXPOSED_ORDERS, ExposureText
from lm_eval_leakage.lab.settings import DETECTORS, PROTOCOLS, SELECTIONS, Simulation
from lm_eval_leakage.lab.training import Recipe


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
    add("--header", action="store_true", default=None, help="train with the subject's header")
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
    typed = {name: value for name, value in vars(args).items() if value is not None}

    def given(kind: type) -> dict[str, Any]:
        return {one.name: typed[one.name] for one in fields(kind) if one.name in typed}

    named = {"benchmark": args.tasks, "detectors": args.audits}
    chosen = Simulation(**{**PROTOCOLS[args.protocol], **given(Simulation), **named})
    text = given(ExposureText) | ({"answer": False} if args.no_answer else {})
    return replace(chosen, recipe=replace(chosen.recipe, **given(Recipe)), text=replace(chosen.text, **text))


def metadata_argument(text: str) -> dict[str, Any]:
    """As for lm_eval: JSON, or pairs."""
    from lm_eval_leakage.harness.preflight import parsed_args

    if text.lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error}); write key=value, or JSON") from error
        return found
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [key for key, is_pair, _ in pairs if not (key and is_pair)]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is no key=value; write key=value,key2=value2, or JSON")
    try:
        return parsed_args(text, "metadata")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
