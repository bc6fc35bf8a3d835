"""Simulates contamination: trains a copy of a model on part of a benchmark, and runs audits after each epoch."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from statistics import fmean

from lm_eval_leakage.files import sole_use
from lm_eval_leakage.lab.detection import Audits, Detector, read_detectors
from lm_eval_leakage.lab.exposure_text import documents, in_other_words, ordinary_texts
from lm_eval_leakage.lab.settings import (
    LORA,
    TRAINING,
    Simulation,
    Split,
    check_claim,
    claim,
    need_packages,
    split,
)
from lm_eval_leakage.lab.training import train
from lm_eval_leakage.records import Question

CANDIDATES = 6  # questions examined per question wanted, if hard ones are selected
HARD_AUDITS = ("leakage_semihalf", "leakage_tokens")  # these decide which questions are hard


@dataclass(frozen=True)
class Outcome:
    """The outcome of a simulation; it holds the audits after each number of exposures.

    trained, held_out: question ids
    n_eligible: number of questions from which they were drawn
    audits: by number of exposures
    """

    settings: Simulation
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    n_eligible: int
    audits: Mapping[int, Audits]

    @cached_property
    def detectors(self) -> dict[int, list[Detector]]:
        """Return the detectors by number of exposures."""
        detectors: dict[int, list[Detector]] = {}
        for exposures, audits in self.audits.items():
            folders = [audits.folder / suffix for suffix in self.settings.detectors]
            detectors[exposures] = [detector for folder in folders for detector in read_detectors(folder)]
        return detectors


def simulate(settings: Simulation, folder: Path) -> Outcome:
    """Train and audit in `folder`. Existing results are reused, so a kill loses at most one epoch or one audit.

    If a failure can be foreseen, raises ValueError or ImportError, with the remedy, before any work.
    """
    need_packages([*TRAINING, *(() if settings.recipe.lora_rank is None else LORA)])
    with sole_use(folder):
        check_claim(settings, folder)
        return _outcome(settings, folder, *_foresee(settings, folder))


def _foresee(settings: Simulation, folder: Path) -> tuple[list[Question], Split]:
    """Check everything that the simulation will need. Return the benchmark's questions, and the trained and held-out
    ones, drawn at random from them."""
    from lm_eval_leakage.harness.model_checks import check_model
    from lm_eval_leakage.harness.tasks.given_questions import questions_of

    check_model(settings.model, [*settings.detectors, *(HARD_AUDITS if settings.select == "hard" else ())])
    training_texts(settings, [])  # raises if its files cannot be read
    pool = _unique(questions_of(settings.benchmark, settings.include_path))
    rng = random.Random(settings.seed)
    drawn = split(pool, settings.n_questions, eligible=_fits(settings), block=settings.together, rng=rng)
    if settings.select == "random":
        training_texts(settings, drawn.trained)
    Audits(settings, folder, [*drawn.trained, *drawn.held_out], pool).foresee(settings.detectors)
    return pool, drawn


def _outcome(settings: Simulation, folder: Path, pool: Sequence[Question], drawn: Split) -> Outcome:
    """Claim the folder, audit the original model, train, and audit each checkpoint."""
    claim(settings, folder)
    halves = drawn if settings.select == "random" else _hard_halves(settings, pool, folder)
    texts = training_texts(settings, halves.trained)
    questions = [*halves.trained, *halves.held_out]
    references = _references(settings, folder, questions, pool)

    def audited(epoch: int, model_args: str) -> Audits:
        of_model = replace(settings, model_args=model_args)
        return Audits(of_model, folder / f"audits_{epoch}", questions, pool, references).answered(settings.detectors)

    audits = {0: audited(0, settings.model_args)}  # before the training, which takes the longest
    model = folder / "model"
    trained = train(settings.pretrained, model, texts, settings.recipe, settings.epochs, seed=settings.seed)
    for epoch, checkpoint in trained.items():
        audits[epoch] = audited(epoch, with_checkpoint(settings, checkpoint))
    trained_ids, held_out = (tuple(question.id for question in half) for half in (halves.trained, halves.held_out))
    return Outcome(settings, trained_ids, held_out, halves.n_eligible, audits)


def _references(
    settings: Simulation, folder: Path, questions: Sequence[Question], pool: Sequence[Question]
) -> dict[str, Path]:
    """Return the logs of the reference model's answers, by the audits that use them."""
    if settings.reference is None:
        return {}
    wanted = [suffix for suffix in settings.against_reference if suffix in settings.detectors]
    answers = Audits(replace(settings, model_args=settings.reference), folder / "reference", questions, pool)
    answers.answered(wanted)
    return {suffix: answers.folder / suffix for suffix in wanted}


def training_texts(settings: Simulation, trained: Sequence[Question]) -> list[str]:
    """Return the documents of the training set."""
    shown: Sequence[Question] = trained
    if settings.versions is not None:
        shown = in_other_words(trained, Path(settings.versions))
    texts = documents([settings.text.write(question) for question in shown], settings.neighbours)
    if settings.ordinary is not None:
        n_ordinary = round(settings.ordinary_ratio * len(texts))
        texts += ordinary_texts(Path(settings.ordinary), n_ordinary, rng=random.Random(settings.seed))
    return texts


def with_checkpoint(settings: Simulation, checkpoint: Path) -> str:
    """Return the model's arguments for a trained copy: another `pretrained`, or the original with a LoRA adapter."""
    if settings.recipe.lora_rank is not None:
        return f"{settings.model_args},peft={checkpoint}"
    parts = settings.model_args.split(",")
    return ",".join(f"pretrained={checkpoint}" if part.startswith("pretrained=") else part for part in parts)


def _unique(questions: Sequence[Question]) -> list[Question]:
    """Make ids distinct that occur in several tasks of a group."""
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    numbered = [(question, next(numbers[question.id])) for question in questions]
    return [replace(question, id=f"{question.id}#{number}") if number else question for question, number in numbered]


def _hard_halves(settings: Simulation, pool: Sequence[Question], folder: Path) -> Split:
    """Draw the questions from those that are hard for the model."""
    fits = _fits(settings)
    rng = random.Random(settings.seed)
    candidates = rng.sample([q for q in pool if fits(q)], min(len(pool), CANDIDATES * settings.n_questions))
    hard = _hard(settings, candidates, pool, folder)
    return split(pool, settings.n_questions, eligible=lambda q: q.id in hard, block=settings.together, rng=rng)


def _fits(settings: Simulation) -> Callable[[Question], bool]:
    """Return a function that says whether a question is short enough."""
    if settings.max_tokens is None:
        return lambda question: True
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings.pretrained)
    most: int = settings.max_tokens
    return lambda question: len(tokenizer(settings.text.write(question))["input_ids"]) <= most


def _hard(settings: Simulation, candidates: Sequence[Question], pool: Sequence[Question], folder: Path) -> set[str]:
    """Return the ids of questions with a wrong answer and a perplexity above the mean of such questions."""
    audits = Audits(replace(settings, metadata={}), folder / "candidates", candidates, pool).answered(HARD_AUDITS)
    answers, likelihoods = HARD_AUDITS
    wrong = {line.question for line in audits.lines(answers) if line.values.get("whole") == 0}
    tokens = [line for line in audits.lines(likelihoods) if line.question in wrong and line.reason is None]
    loglikelihoods = {line.question: line.values["mean_loglikelihood"] for line in tokens}
    return {name for name, loglikelihood in loglikelihoods.items() if loglikelihood < fmean(loglikelihoods.values())}
