"""Does a test of texts beside those of unseen questions accuse clean models, and what does it find?

    python benchmarks/unseen_texts.py --folder FOLDER --model MODEL --ordinary FILE [--reference OTHER]

Prints the tables of docs/validity.md#texts-beside-those-of-unseen-questions. Clean: of pools of real questions (22
subjects of MMLU, ARC easy and challenge, OpenBookQA, PIQA) 150 or 200 are asked and 60 unseen, from two pools or from
mixtures of MMLU's subjects that are more or less alike; how often is there evidence at .01, by score and tolerance,
and how often do words tell the groups apart first? Power: a copy of the model is trained on 240 questions of these
subjects, 40 in each of six layouts, once, among as many ordinary lines; of 200 asked questions half were seen in one
layout. Answers are kept in FOLDER. On two CPU cores in float32: half an hour.

MODEL, OTHER: checkpoint folders. ordinary: a text file, one text per line. OTHER is a model whose scores are
subtracted; MODEL itself is the reference in the rows that say so.
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

from lm_eval_leakage.detectors.token_evidence import PublishedText, z_scores
from lm_eval_leakage.harness.models.token_scores import token_scores_of_hf
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats import unseen_texts
from lm_eval_leakage.stats.unseen_texts import APART_AT, more_predictable, told_apart

SUBJECTS = (
    *("abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology"),
    *("computer_security", "conceptual_physics", "econometrics", "high_school_psychology", "management", "marketing"),
    *("moral_disputes", "nutrition", "philosophy", "prehistory", "professional_law", "sociology"),
    *("us_foreign_policy", "virology", "world_religions"),
)
OTHERS = ("arc_easy", "arc_challenge", "openbookqa", "piqa")
N_OF_SUBJECT, N_OF_OTHER, LONGEST = 60, 150, 400  # longest: characters of a question
N_ASKED, N_UNSEEN, N_SEEN_OF_LAYOUT = 200, 60, 40
TOLERANCES, LEVEL, LEVEL_OF_TWO, DRAWS = (0.0, 0.1, 0.2, 0.3), 0.01, 0.005, 200
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0)  # of the Dirichlet distribution of two mixtures' subjects; the last is alike
Scores = Mapping[str, np.ndarray]


def drawn(task: str, n: int) -> list[Question]:
    found = [one for one in questions_of(task) if len(one.stem) + sum(map(len, one.options)) <= LONGEST]
    return [replace(one, frame=None) for one in random.Random(0).sample(found, min(n, len(found)))]


def scored(file: Path, model: str, questions: Sequence[Question]) -> Scores:
    """Of each question's published text: log-likelihood per token, nats; per character; and mean z-score."""
    if not file.exists():
        texts = [PublishedText().requests(one)[0].continuation for one in questions]
        asked = [Instance("token_scores", {}, (text,), number) for number, text in enumerate(texts)]
        found = token_scores_of_hf(load_model("hf", f"pretrained={model},dtype=float32"), asked)
        sums = np.array([sum(one.loglikelihoods) for one in found])
        np.savez(
            file,
            log_likelihood=sums / [len(one.loglikelihoods) for one in found],
            per_character=sums / list(map(len, texts)),
            z_score=np.array([z_scores(one).mean() for one in found]),
        )
    return dict(np.load(file))


def pvalue(asked: np.ndarray, unseen: np.ndarray, tolerance: float) -> float:
    """With another tolerance than the package's."""
    shift = (unseen_texts.TEXT_TOLERANCE - tolerance) * unseen.std(ddof=1)
    return more_predictable(asked + shift, unseen).pvalue


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


class Clean:
    def __init__(self, questions: Sequence[Question], pool: np.ndarray, scores: Scores, rng: np.random.Generator):
        self.words = np.array([" ".join([one.stem, *one.options]) for one in questions], dtype=object)
        self.pool, self.scores, self.rng = pool, scores, rng

    def told(self, name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """How often groups of questions are told apart, and of each score how often there is evidence by tolerance:
        in all, and in those that are not told apart."""
        apart = np.array([told_apart(self.words[a].tolist(), self.words[u].tolist())[1] <= APART_AT for a, u in pairs])
        for score, own in self.scores.items():
            found = np.array([[pvalue(own[a], own[u], t) <= LEVEL for t in TOLERANCES] for a, u in pairs])
            rates = [
                " ".join(f"{rate:.2f}" for rate in some.mean(axis=0)) for some in (found, found[~apart]) if len(some)
            ]
            row(name, score, len(pairs), f"{apart.mean():.2f}", *rates)

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
                elif not any(left[one] for one, weight in zip(SUBJECTS, weights, strict=True) if weight > 1e-3):
                    break
            groups.append(np.array(group))
        return groups[1], groups[0]


def power(scores: Scores, layout: np.ndarray, is_subject: np.ndarray, rng: np.random.Generator) -> None:
    """By layout of the copy: how much higher the scores of seen questions are, and the probability at half of .01 that
    a benchmark of which half was seen once is found, by tolerance."""
    unseen = np.flatnonzero(is_subject & (layout == ""))
    for name, own in scores.items():
        cells = []
        for copied in COPIES:
            seen = np.flatnonzero(layout == copied)
            effect = (own[seen].mean() - own[unseen].mean()) / own[unseen].std()
            found = []
            for _ in range(DRAWS):
                others = rng.permutation(unseen)
                asked = np.concatenate([rng.choice(seen, N_ASKED // 2), others[: N_ASKED // 2]])
                known = others[N_ASKED // 2 :][:N_UNSEEN]
                found.append([pvalue(own[asked], own[known], t) <= LEVEL_OF_TWO for t in TOLERANCES])
            cells.append(f"{effect:.2f}; {' '.join(f'{rate:.2f}' for rate in np.mean(found, axis=0))}")
        row(name, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--ordinary", type=Path, required=True)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sizes = {f"mmlu_{name}": N_OF_SUBJECT for name in SUBJECTS} | dict.fromkeys(OTHERS, N_OF_OTHER)
    pools = {name: drawn(name, n) for name, n in sizes.items()}
    questions = [one for own in pools.values() for one in own]
    pool = np.repeat(list(pools), list(map(len, pools.values())))
    rng, is_subject = np.random.default_rng(0), np.char.startswith(pool, "mmlu_")
    clean = scored(asked.folder / "clean.npz", asked.model, questions)

    row("pools", "score", "pairs", "told apart", "evidence by tolerance 0, .1, .2, .3", "the same, not told apart")
    judged = Clean(questions, pool, clean, rng)
    names = list(pools)
    drawn_pairs = [rng.choice(names, 2, replace=False) for _ in range(DRAWS)]
    judged.told("two of all", [(judged.of(a, 150), judged.of(u, N_UNSEEN)) for a, u in drawn_pairs])
    for a, u in (("arc_easy", "arc_challenge"), ("arc_challenge", "arc_easy")):
        judged.told(f"{a}, {u} unseen", [(judged.of(a, 150), judged.of(u, N_UNSEEN)) for _ in range(40)])
    halves = [judged.of(name, 150) for name in OTHERS for _ in range(10)]
    judged.told("one, split", [(one[N_UNSEEN:], one[:N_UNSEEN]) for one in halves])
    for concentration in CONCENTRATIONS:
        judged.told(f"mixtures, {concentration}", [judged.mixed(concentration) for _ in range(100)])

    seen = random.Random(5).sample(np.flatnonzero(is_subject).tolist(), N_SEEN_OF_LAYOUT * len(COPIES))
    layout = np.full(len(questions), "", dtype=object)
    layout[seen] = [copied for copied, _ in product(COPIES, range(N_SEEN_OF_LAYOUT))]
    lines = asked.ordinary.read_text(encoding="utf-8").splitlines()
    texts = [COPIES[layout[place]](questions[place]) for place in seen] + random.Random(6).sample(lines, len(seen))
    (copy,) = train(Path(asked.model), asked.folder / "copy", texts, Recipe(), [1]).values()
    found = scored(asked.folder / "copy.npz", str(copy), questions)
    row("score", *(f"{copied}: effect; half of {N_ASKED} found" for copied in COPIES))
    power(found, layout, is_subject, rng)
    others = {"the model itself": clean}
    if asked.reference:
        others[asked.reference] = scored(asked.folder / "reference.npz", asked.reference, questions)
    for name, own in others.items():
        less = {f"{score} minus that of {name}": found[score] - own[score] for score in found}
        power(less, layout, is_subject, rng)


if __name__ == "__main__":
    main()
