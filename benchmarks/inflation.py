"""How well is the accuracy without leakage estimated? Against the truth, from the copies of copies.py.

    python benchmarks/inflation.py FOLDER [FOLDER ...]

Each folder holds the copies of one model. A case is a copy, and 200 questions of which a share (0, 20, 50, 100 %) is
among those it was trained on; the others are not. Truth: the same copy's accuracy on all its other unseen questions,
plus the difference that the clean model has between both sets, since they differ in difficulty by chance. Questions
are answered by letters, as published and in one of four orders at random.

Models of this size answer by letters at chance, so that an estimate of 1/n would be right, too. Hence also `able`
answerers: to the letters' log-likelihoods, that of each option's text after the question, by the clean model, is
added with a weight, which knows nothing of the copies' memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from copies import N_OPTIONS, N_SEEN

from lm_eval_leakage.stats.inflation import AnsweredTwice, by_shuffling, by_unseen

SHARES, WEIGHTS, N_ASKED, N_UNSEEN = (0.0, 0.2, 0.5, 1.0), (0.0, 0.1, 0.3, 1.0), 200, 60
IN_90_PERCENT = 1.645 / 1.96
HEADINGS = (
    *("weight", "seen", "cases", "inflation", "by", "mean error", "mean absolute error"),
    *("90 % interval holds", "95 % interval holds", "width of the latter"),
)


def right_by_letters(copy: dict[str, np.ndarray], clean: dict[str, np.ndarray], weight: float) -> np.ndarray:
    """`(n_questions, 4)`: whether it is answered correctly with its options turned by 0 to 3 places."""
    letters = copy["letters"].reshape(-1, N_OPTIONS, N_OPTIONS).astype(float)
    turns = []
    for turn in range(N_OPTIONS):
        texts = np.roll(clean["text"].astype(float), -turn, axis=1)
        turns.append((letters[:, turn] + weight * texts).argmax(axis=1) == (copy["answer"] - turn) % N_OPTIONS)
    return np.array(turns).T


def cases(folder: Path, weight: float, rng: np.random.Generator) -> Iterator[tuple]:
    clean = dict(np.load(folder / "clean.npz"))
    before = right_by_letters(clean, clean, weight)
    for file in sorted(folder.glob("*_*.npz")):
        copy = dict(np.load(file))
        right = right_by_letters(copy, clean, weight)
        unseen = np.arange(N_SEEN, len(right))
        for share in SHARES:
            n_seen = round(share * N_ASKED)
            places_asked = np.concatenate(
                [rng.choice(N_SEEN, n_seen, replace=False), rng.choice(unseen, N_ASKED - n_seen, replace=False)]
            )
            others = np.setdiff1d(unseen, places_asked)
            truth = right[others].mean() + before[places_asked].mean() - before[others].mean()
            turns = rng.integers(N_OPTIONS, size=N_ASKED)
            places = copy["answer"][places_asked]
            answers = [
                AnsweredTwice(
                    bool(right[question, 0]), bool(right[question, turn]), int(place), int(place - turn) % N_OPTIONS
                )
                for question, turn, place in zip(places_asked, turns, places, strict=True)
            ]
            published = right[places_asked, 0]
            places_known = rng.choice(others, N_UNSEEN, replace=False)
            estimates = (
                by_shuffling(answers),
                by_unseen([*map(bool, published)], (int(right[places_known, 0].sum()), N_UNSEEN)),
            )
            yield file.stem, share, float(published.mean()), float(published.mean() - truth), estimates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--each", action="store_true", help="print the cases in which all questions were seen")
    args = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
    for weight in WEIGHTS:
        rng = np.random.default_rng(0)
        cases_of_folders = [case for folder in args.folders for case in cases(folder, weight, rng)]
        for share in (*SHARES, None):
            cases_of_share = [case for case in cases_of_folders if share in (None, case[1])]
            truth = np.array([case[3] for case in cases_of_share])
            for place, name in enumerate(("shuffling", "60 unseen")):
                figures = np.array(
                    [(case[4][place].value, case[4][place].low, case[4][place].high) for case in cases_of_share]
                )
                value, low, high = figures.T
                error = value - truth
                narrow = (value - truth <= IN_90_PERCENT * (value - low)) & (
                    truth - value <= IN_90_PERCENT * (high - value)
                )
                holds = (low <= truth) & (truth <= high)
                shown = "all" if share is None else f"{share:.0%}"
                numbers = (
                    f"{error.mean():+.3f} | {np.abs(error).mean():.3f} | {narrow.mean():.2f} | {holds.mean():.2f}"
                )
                print(
                    f"| {weight} | {shown} | {len(cases_of_share)} | {truth.mean():.3f} | {name} "
                    f"| {numbers} | {(high - low).mean():.2f} |"
                )
        if args.each:
            for name, share, accuracy, truth_, (by, _) in cases_of_folders:
                if share == 1 and truth_ > 0.1:
                    figures = f"{by.value:.2f} [{by.low:.2f}, {by.high:.2f}]"
                    print(f"  {name}: accuracy {accuracy:.2f}, inflation {truth_:.2f}, reported {figures}")


if __name__ == "__main__":
    main()
