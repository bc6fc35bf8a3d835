"""Does a test of texts beside those of unseen questions accuse clean models, and what does it find?

    python benchmarks/unseen_texts.py --folder FOLDER --model MODEL --ordinary FILE [--reference OTHER]

Prints the tables of docs/validity/unseen_texts.md. A copy of MODEL is trained on 240
questions of 21 subjects of MMLU, 40 in each of six layouts, once, among as many ordinary lines; the reference is MODEL
before that, nothing, or OTHER. Power: of 200 asked questions half were seen in one layout. Clean: of questions that
the copy has not read (of these subjects, ARC easy and challenge, OpenBookQA, PIQA) 60 stand for unseen ones and up to
200 are asked, from two pools, one pool, mixtures of subjects that are more or less alike, or with typing errors in the
unseen ones; how often are they distinguished without a model, and how often is there evidence at .01? Answers are kept
in FOLDER. On two CPU cores in float32: 20 minutes, and as many for another model of this size.

MODEL, OTHER: checkpoint folders. ordinary: a text file, one text per line.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from copies import COPIES
from lm_eval.api.instance import Instance
from models import load_model

from lm_eval_leakage.detectors.membership import PublishedText
from lm_eval_leakage.harness.models.token_scores import token_scores_of_hf
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats import unseen_texts
from lm_eval_leakage.stats.unseen_texts import ComparedText, group_difference, more_predictable, text_scores

SUBJECTS = (
    *("abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology"),
    *("computer_security", "conceptual_physics", "econometrics", "high_school_psychology", "management", "marketing"),
    *("moral_disputes", "nutrition", "philosophy", "prehistory", "professional_law", "sociology"),
    *("us_foreign_policy", "virology", "world_religions"),
)
OTHERS = ("arc_easy", "arc_challenge", "openbookqa", "piqa")
N_OF_SUBJECT, N_OF_OTHER, LONGEST = 40, 100, 250  # longest: characters of a question
N_ASKED, N_UNSEEN, N_SEEN_OF_LAYOUT, N_TYPED = 200, 60, 40, 120
TOLERANCES, LEVEL, LEVEL_OF_TWO, DRAWS = (0.0, 0.1, 0.2, 0.3), 0.01, 0.005, 200
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0)  # of the Dirichlet distribution of two mixtures' subjects; the last is alike
Scores = Mapping[str, Sequence[ComparedText]]  # of all questions, by the reference


def drawn(task: str, n: int) -> list[Question]:
    questions = [
        question for question in questions_of(task) if len(question.stem) + sum(map(len, question.options)) <= LONGEST
    ]
    return [replace(question, frame=None) for question in random.Random(0).sample(questions, min(n, len(questions)))]


def typed(question: Question, rng: random.Random) -> Question:
    """Return the question with two typing errors: neighbouring letters of the stem in the wrong order."""
    stem = question.stem
    for _ in range(2):
        places = [place for place in range(len(stem) - 1) if stem[place : place + 2].isalpha()]
        place = rng.choice(places)
        stem = stem[:place] + stem[place + 1] + stem[place] + stem[place + 2 :]
    return replace(question, stem=stem)


def scored(file: Path, model: str, questions: Sequence[Question]) -> np.ndarray:
    """Log-likelihood of each question's published text, as it is audited and as a row of JSON, nats per character."""
    if not file.exists():
        texts = [request.continuation for question in questions for request in PublishedText().requests(question)]
        instances = [Instance("token_scores", {}, (text,), number) for number, text in enumerate(texts)]
        measurements = token_scores_of_hf(
            load_model("hf", f"pretrained={model},dtype=float32,batch_size=8"), instances
        )
        lengths = np.array([[len("".join([question.stem, *question.options]))] for question in questions])
        np.save(file, np.reshape([sum(question.loglikelihoods) for question in measurements], (-1, 2)) / lengths)
    scores: np.ndarray = np.load(file)
    return scores


def beside(questions: Sequence[Question], scores: np.ndarray, reference: np.ndarray) -> list[ComparedText]:
    texts = [" ".join([question.stem, *question.options]) for question in questions]
    return [ComparedText(*parts) for parts in zip(texts, map(tuple, scores), map(tuple, reference), strict=True)]


def pvalues(texts: Sequence[ComparedText], places_asked: Sequence[int], unseen: Sequence[int]) -> list[float]:
    """Return the p-values by tolerance."""
    values = text_scores([texts[place] for place in (*places_asked, *unseen)])
    scores_asked, others = values[: len(places_asked)], values[len(places_asked) :]
    deviation = others.std(ddof=1)
    shifts = [(unseen_texts.TEXT_TOLERANCE - tolerance) * deviation for tolerance in TOLERANCES]
    return [more_predictable(scores_asked + shift, others).pvalue for shift in shifts]


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


class Clean:
    def __init__(self, questions: Sequence[Question], pool: np.ndarray, scores: Scores, rng: np.random.Generator):
        self.words = np.array([" ".join([question.stem, *question.options]) for question in questions], dtype=object)
        self.pool, self.scores, self.rng = pool, scores, rng

    def report(self, name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Print how often groups of questions are distinguished, and of each score how often there is evidence by
        tolerance: in all, and in those that are not distinguished."""
        groups = [(self.words[a].tolist(), self.words[u].tolist()) for a, u in pairs]
        apart = np.array([bool(group_difference(*pair_of_groups)) for pair_of_groups in groups])
        for score, values in self.scores.items():
            rejected = np.array([pvalues(values, a, u) for a, u in pairs]) <= LEVEL
            rates = [" ".join(f"{n}" for n in some.sum(axis=0)) for some in (rejected, rejected[~apart])]
            row(name, score, len(pairs), apart.sum(), *rates)

    def of(self, pool: str, n: int) -> np.ndarray:
        return self.rng.permutation(np.flatnonzero(self.pool == pool))[:n]

    def mixed(self, concentration: float) -> tuple[np.ndarray, np.ndarray]:
        left = {name: list(self.of(f"mmlu_{name}", N_OF_SUBJECT)) for name in SUBJECTS}
        groups = []
        for n in (N_UNSEEN, N_ASKED):
            weights, group = self.rng.dirichlet([concentration] * len(SUBJECTS)), list[int]()
            while len(group) < n:
                name = self.rng.choice(SUBJECTS, p=weights)
                if left[name]:
                    group.append(left[name].pop())
                elif not any(
                    left[subject] for subject, weight in zip(SUBJECTS, weights, strict=True) if weight > 1e-3
                ):
                    break
            groups.append(np.array(group))
        return groups[1], groups[0]


def power(scores: Scores, layout: np.ndarray, is_subject: np.ndarray, rng: np.random.Generator) -> None:
    """Print by layout of the copy how much higher the scores of seen questions are, and the probability at half of .01
    that a benchmark of which half was seen once is found, by tolerance."""
    unseen = np.flatnonzero(is_subject & (layout == ""))
    for name, scores_of_method in scores.items():
        cells = []
        for copied in COPIES:
            seen = np.flatnonzero(layout == copied)
            values = text_scores([scores_of_method[place] for place in (*seen, *unseen)])
            effect = (values[: len(seen)].mean() - values[len(seen) :].mean()) / values[len(seen) :].std()
            rejected = []
            for _ in range(DRAWS):
                others = rng.permutation(unseen)
                places_asked = np.concatenate([rng.choice(seen, N_ASKED // 2), others[: N_ASKED // 2]])
                places_known = others[N_ASKED // 2 :][:N_UNSEEN]
                rejected.append(pvalues(scores_of_method, places_asked, places_known))
            rates = np.mean(np.array(rejected) <= LEVEL_OF_TWO, axis=0)
            cells.append(f"{effect:.2f}; {' '.join(f'{rate:.2f}' for rate in rates)}")
        row(name, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--ordinary", type=Path, required=True)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sizes = {f"mmlu_{name}": N_OF_SUBJECT for name in SUBJECTS} | dict.fromkeys(OTHERS, N_OF_OTHER)
    pools = {name: drawn(name, n) for name, n in sizes.items()}
    questions = [half for pool in pools.values() for half in pool]
    pool = np.repeat(list(pools), list(map(len, pools.values())))
    rng, is_subject = np.random.default_rng(0), np.char.startswith(pool, "mmlu_")
    seen = random.Random(5).sample(np.flatnonzero(is_subject).tolist(), N_SEEN_OF_LAYOUT * len(COPIES))
    right = random.Random(7).sample(np.setdiff1d(np.flatnonzero(is_subject), seen).tolist(), N_TYPED)
    questions += [typed(questions[place], random.Random(place)) for place in right]
    pool = np.append(pool, np.repeat("typed", N_TYPED))

    layout = np.full(len(questions), "", dtype=object)
    layout[seen] = [copied for copied, _ in product(COPIES, range(N_SEEN_OF_LAYOUT))]
    lines = args.ordinary.read_text(encoding="utf-8").splitlines()
    texts = [COPIES[layout[place]](questions[place]) for place in seen] + random.Random(6).sample(lines, len(seen))
    (copy,) = train(Path(args.model), args.folder / "copy", texts, Recipe(), [1]).values()
    scores_of_copy = scored(args.folder / "copy.npy", str(copy), questions)
    references = {
        "none": np.zeros_like(scores_of_copy),
        "the model before": scored(args.folder / "clean.npy", args.model, questions),
    }
    if args.reference:
        references["another model"] = scored(args.folder / "other.npy", args.reference, questions)
    scores = {name: beside(questions, scores_of_copy, reference) for name, reference in references.items()}

    row("reference", *(f"{copied}: effect; half of {N_ASKED} found" for copied in COPIES))
    power(scores, layout, np.char.startswith(pool, "mmlu_"), rng)
    row(
        "asked, unseen",
        "reference",
        "pairs",
        "distinguished",
        "evidence by tolerance 0, .1, .2, .3",
        "not distinguished",
    )
    judged = Clean(questions, np.where(layout == "", pool, ""), scores, rng)
    pairs = [rng.choice(list(pools), 2, replace=False) for _ in range(DRAWS)]
    judged.report("two pools", [(judged.of(a, N_ASKED), judged.of(u, N_UNSEEN)) for a, u in pairs])
    for a, u in (("arc_easy", "arc_challenge"), ("arc_challenge", "arc_easy")):
        judged.report(f"{a}, {u}", [(judged.of(a, N_ASKED), judged.of(u, N_UNSEEN)) for _ in range(50)])
    halves = [judged.of(name, N_OF_OTHER) for name in OTHERS for _ in range(25)]
    judged.report("one pool", [(half[N_UNSEEN:], half[:N_UNSEEN]) for half in halves])
    for concentration in CONCENTRATIONS:
        judged.report(f"mixtures, {concentration}", [judged.mixed(concentration) for _ in range(100)])
    unread = np.setdiff1d(np.flatnonzero(np.char.startswith(judged.pool, "mmlu_")), right)
    typing = [(rng.permutation(unread)[:N_ASKED], judged.of("typed", N_UNSEEN)) for _ in range(100)]
    judged.report("mixture, with typing errors", typing)


if __name__ == "__main__":
    main()
