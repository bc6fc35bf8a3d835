"""Reads the settings of a simulation from its command line or a paper's protocol, and checks them before any work.
Draws the questions on which a copy of the model is trained."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval_leakage.detectors import is_count
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.arguments import parsed_args
from lm_eval_leakage.lab.exposure_text import EXPOSED_LAYOUTS, EXPOSED_ORDERS, ExposureText
from lm_eval_leakage.lab.training import Recipe
from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.records import Question

TRAINING = ("transformers", "accelerate")  # packages
LORA = ("peft",)
RELATIVE = "leakage_relative"
DETECTORS = ("leakage_tokens", RELATIVE, "leakage_perm", "leakage_perm_q", "leakage_ngram_steps", "leakage_semihalf")
SELECTIONS = ("random", "hard")
FEWEST_DRAWN = 4  # two trained and two held out, the minimum for a variance
CLAIM = "settings.json"  # file in the output folder
MAY_CHANGE = ("include_path", "epochs", "detectors")  # settings of a claimed folder that may change
PROTOCOLS: dict[str, dict[str, Any]] = {
    "ni": {"recipe": Recipe(learning_rate=5e-5, batch_size=8), "epochs": (1, 2, 3, 5, 10)},
    "hidayat": {
        "recipe": Recipe(
            learning_rate=5e-4,
            batch_size=8,
            schedule="cosine",
            warmup=0.1,
            lora_rank=128,
            lora_alpha=32,
            head_learning_rate=1e-5,
        ),
        "epochs": (1, 5, 10),
        "select": "hard",
    },
    "yao": {
        "recipe": Recipe(learning_rate=5e-5, batch_size=16, optimizer="adafactor"),
        "text": ExposureText(header=True),
        "epochs": (36,),
    },
}


def need_packages(names: Iterable[str]) -> None:
    """Raise ImportError, with the remedy, if one of these packages is not installed. None of them is imported."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise ImportError(f"{', '.join(missing)}: needed but not installed; `pip install 'lm-eval-leakage[lab]'`")


@dataclass(frozen=True)
class Simulation:
    """The settings of a simulation; they are stored with its results, which must not be mixed with those of others.

    model, model_args: as for lm_eval; model_args contain `pretrained=`
    benchmark: a task, group or tag of the harness, or a file of questions
    n_questions: trained and held-out questions in total
    epochs: numbers of exposures after which audits are run; 0, the untrained model, is always added
    detectors: suffixes of audits
    select: "random" (Ni et al.), or "hard": answered incorrectly, and with a perplexity above the mean of such
        questions (Hidayat et al.)
    max_tokens: maximum length of a question
    neighbours: questions per training document, as in a benchmark's file; these are also drawn together
    block: number of neighbours that are drawn together, for tests of their order, but trained on one by one
    versions: file of paraphrased or translated questions to train on instead of the originals
    ordinary: file of ordinary texts, one per line, to add to the training set
    ordinary_ratio: number of ordinary texts per document of questions
    reference: model_args of a reference model, run by the same `model`, that has not seen the benchmark
    against_reference: the audits that subtract the reference's log-likelihoods
    include_path: folder of additional tasks, in which `benchmark` may be
    """

    model_args: str
    benchmark: str
    model: str = "hf-prefix-tree"
    n_questions: int = 200
    epochs: tuple[int, ...] = (1, 2, 3, 5, 10)
    detectors: tuple[str, ...] = DETECTORS
    select: str = "random"
    max_tokens: int | None = None
    neighbours: int = 1
    block: int = 1
    versions: str | None = None
    ordinary: str | None = None
    ordinary_ratio: float = 1.0
    recipe: Recipe = field(default_factory=Recipe)
    text: ExposureText = field(default_factory=ExposureText)
    metadata: Mapping[str, object] = field(default_factory=dict)
    reference: str | None = None
    against_reference: tuple[str, ...] = (RELATIVE,)
    seed: int = 0
    include_path: str | None = None

    def __post_init__(self) -> None:
        if not self.epochs or not all(is_count(epoch, 1) for epoch in self.epochs):
            raise ValueError(f"epochs is {self.epochs!r}; give whole numbers of at least 1, such as 1,2,3")
        for name, value in (("model_args", self.model_args), ("reference", self.reference)):
            if value is not None and "pretrained=" not in value:
                raise ValueError(f"{name} is {value!r}; it must name the model as pretrained=FOLDER_OR_NAME")
        if self.reference is not None and not set(self.against_reference) & set(self.detectors):
            raise ValueError(
                f"reference is {self.reference!r}, but none of the audits that use it "
                f"({', '.join(self.against_reference)}) is among the detectors; add one, or leave it out"
            )

    @property
    def together(self) -> int:
        """Return the number of neighbours that are drawn together."""
        return max(self.block, self.neighbours)

    @property
    def pretrained(self) -> str:
        """Return the model that `model_args` names."""
        return pretrained_of(self.model_args)


def pretrained_of(model_args: str) -> str:
    """Return the value of `pretrained` in a model's arguments."""
    return next(part.split("=", 1)[1] for part in model_args.split(",") if part.startswith("pretrained="))


class Split(NamedTuple):
    """The questions that were drawn, in two halves; only the first half is trained on.

    trained, held_out: questions in the benchmark's order, in whole blocks of neighbours
    n_eligible: number of questions from which they were drawn
    """

    trained: list[Question]
    held_out: list[Question]
    n_eligible: int


def split(
    questions: Sequence[Question],
    n_questions: int,
    *,
    eligible: Callable[[Question], bool] = lambda question: True,
    block: int = 1,
    rng: random.Random,
) -> Split:
    """Draw `n_questions` at random, half of them to train on.

    block: number of neighbours in the benchmark that are drawn together, for tests of their order

    A copy of an earlier question is left out, since its twin could be in the other half. Raises ValueError if too few
    questions are left.
    """
    blocks = list(_blocks(distinct(questions), eligible, block))
    n_blocks = 2 * (n_questions // (2 * block))
    if n_questions < FEWEST_DRAWN or n_blocks < 2:
        raise ValueError(
            f"n_questions is {n_questions}; half are trained on, so it must be {max(FEWEST_DRAWN, 2 * block)} or more"
        )
    if n_blocks > len(blocks):
        raise ValueError(
            f"n_questions is {n_questions}, but {len(blocks) * block} of {len(questions)} are eligible; "
            "ask for fewer, or raise max_tokens"
        )
    chosen = rng.sample(range(len(blocks)), n_blocks)
    halves = sorted(chosen[: n_blocks // 2]), sorted(chosen[n_blocks // 2 :])
    trained, held_out = ([question for place in half for question in blocks[place]] for half in halves)
    return Split(trained, held_out, len(blocks) * block)


def _blocks(
    questions: Sequence[Question], eligible: Callable[[Question], bool], size: int
) -> Iterator[tuple[Question, ...]]:
    """Yield non-overlapping groups of `size` eligible neighbours of one subject."""
    for (_, fit), run in groupby(questions, key=lambda question: (question.subject, eligible(question))):
        neighbours = tuple(run)
        if fit:
            yield from (neighbours[i : i + size] for i in range(0, len(neighbours) - size + 1, size))


def check_claim(settings: Simulation, folder: Path) -> None:
    """Raise ValueError if `folder` has results of different settings, which must not be mixed with these. Epochs and
    detectors may be added."""
    file = folder / CLAIM
    if not file.exists():
        return
    recorded, wanted = json.loads(file.read_text(encoding="utf-8")), _claim_of(settings)
    for key in {**recorded, **wanted}:
        if recorded.get(key) != wanted.get(key):
            raise ValueError(
                f"{folder} has a simulation with {key} = {recorded.get(key)!r}, not {wanted.get(key)!r}; give "
                "another output folder, or remove that one"
            )


def claim(settings: Simulation, folder: Path) -> None:
    """Record the settings of the results in `folder`."""
    atomic_write(folder / CLAIM, json.dumps(_claim_of(settings), indent=1))


def _claim_of(settings: Simulation) -> dict[str, Any]:
    wanted: Mapping[str, Any] = json.loads(json.dumps(asdict(settings)))
    fixed = {key: value for key, value in wanted.items() if key not in MAY_CHANGE}
    if settings.recipe.schedule != "constant":
        fixed["last epoch"] = max(settings.epochs)  # the learning-rate schedule ends there
    return fixed


# ---------------------------------------------------------------------- `lm-eval-leakage simulate`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `simulate` to a parser."""
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


def simulation_settings(args: argparse.Namespace) -> Simulation:
    """Return the protocol's settings, overridden by the command line."""
    typed = {name: value for name, value in vars(args).items() if value is not None}

    def given(kind: type) -> dict[str, Any]:
        names = [field.name for field in fields(kind)]
        return {name: typed[name] for name in names if name in typed}

    named = {"benchmark": args.tasks, "detectors": args.audits}
    chosen = Simulation(**{**PROTOCOLS[args.protocol], **given(Simulation), **named})
    text = given(ExposureText) | ({"answer": False} if args.no_answer else {})
    return replace(chosen, recipe=replace(chosen.recipe, **given(Recipe)), text=replace(chosen.text, **text))


def metadata_argument(text: str) -> dict[str, Any]:
    """Return the value of `--metadata`, which is JSON or pairs, as for lm_eval."""
    try:
        return parsed_args(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write key=value,key2=value2, or JSON") from error


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
