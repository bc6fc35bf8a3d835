"""Settings of a simulation, and the protocols of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.training import Recipe

RELATIVE = "leakage_relative"
DETECTORS = ("leakage_tokens", RELATIVE, "leakage_perm", "leakage_perm_q", "leakage_ngram_steps", "leakage_semihalf")
SELECTIONS = ("random", "hard")


@dataclass(frozen=True)
class Simulation:
    """Settings of a simulation; they are stored with its results, and must not be mixed with others.

    model, model_args: as for lm_eval; model_args hold `pretrained=`
    benchmark: a task, group or tag of the harness, or a file of questions
    n_questions: trained and held-out questions in total
    epochs: numbers of exposures after which audits are run; 0, the untrained model, is always included
    detectors: suffixes of audits
    select: "random" (Ni et al.), or "hard": answered incorrectly, and with a perplexity above the mean of such
        questions (Hidayat et al.)
    max_tokens: maximum length of a question
    neighbours: questions per training document, as in a benchmark's file; these are also drawn together
    block: neighbours drawn together, for tests of their order, but trained on one by one
    versions: file of paraphrased or translated questions to train on instead of the originals
    ordinary: file of ordinary texts, one per line, to add to the training set
    ordinary_ratio: number of them per document of questions
    reference: model_args of a reference model, run by the same `model`, that has not seen the benchmark
    against_reference: the audits that subtract the reference's log-likelihoods
    control: benchmark or file of known-unseen questions, such as "fresh"; the untrained model is audited on it too
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
    control: str | None = None
    seed: int = 0
    include_path: str | None = None

    def __post_init__(self) -> None:
        if self.select not in SELECTIONS:
            raise ValueError(f"select is {self.select!r}; choose one of: {', '.join(SELECTIONS)}")
        if not self.epochs or any(isinstance(e, bool) or not isinstance(e, int) or e < 1 for e in self.epochs):
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
        """Number of neighbours that are drawn together."""
        return max(self.block, self.neighbours)

    @property
    def pretrained(self) -> str:
        """The model that `model_args` names."""
        return pretrained_of(self.model_args)


def pretrained_of(model_args: str) -> str:
    """The value of `pretrained` in a model's arguments."""
    return next(part.split("=", 1)[1] for part in model_args.split(",") if part.startswith("pretrained="))


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
