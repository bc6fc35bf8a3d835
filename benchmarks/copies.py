"""Copies of a model that saw questions a known number of times, and all that an audit or an estimate may ask of them.

    python benchmarks/copies.py --folder FOLDER --model MODEL --ordinary FILE [--tasks arc_easy] [--minutes M]

For doses.py and inflation.py, which read FOLDER/NAME.npz, a file for each copy; those that are there are not made
again. Questions of four options without a guard are drawn from the task, and their options shuffled, so that the null
hypothesis of drawn orders is exact. Two experiments, on questions apart from each other:

- `matrix`: 200 questions are copied in one of three layouts, with their answers, among as many ordinary lines; a copy
  of the model is asked after 1, 3, 5 and 10 passes over them, about these and about 400 others of the same draw.
- `doses`: each question is assigned by chance to one of six layouts and to a number of insertions (0, 1, 3, 4, 16, 64)
  among `--tokens` tokens of ordinary lines; one pass. Asked in four layouts, and in their control forms; once more
  for each further of `--seeds`, with other assignments, and of the model before (`doses_clean.npz`).

MODEL: a checkpoint folder or a hub name. ordinary: a text file, one text per line. Training: all weights, AdamW, 5e-5,
8 texts a step (16 among a million tokens), as `simulate` trains, but in memory, since each copy is asked at
once. On an H200 both experiments took 9 minutes for SmolLM2-135M and 9 for Gemma 3 270M, side by side.
Needs no lm_eval once FOLDER/questions.json exists.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.training import Recipe
from lm_eval_leakage.questions.guards import guards_of
from lm_eval_leakage.questions.rendering import LAYOUTS, frame_of, in_orders, laid_out
from lm_eval_leakage.records import Question
from lm_eval_leakage.stats.order_scores import find_device
from lm_eval_leakage.texts import in_capitals

LONGEST, N_OPTIONS = 300, 4  # characters of a question
N_SEEN, N_UNSEEN, PASSES = 200, 400, (1, 3, 5, 10)
N_ASKED_ORDERS = 400  # of the matrix: those seen and as many others; of the rest only what accuracy needs
DOSES: Mapping[int, int] = {0: 60, 1: 100, 3: 100, 4: 20, 16: 20, 64: 5}  # how many questions of each layout
N_TOKENS = 1_000_000
TOKENS_AT_ONCE, ROWS_OF_HEAD = 2**16, 2**13


def as_list(question: Question) -> str:
    lines = [f"{letter}) {option}" for letter, option in zip(ascii_uppercase, question.options, strict=False)]
    return "\n".join([question.stem.strip(), *lines, f"Correct answer: {ascii_uppercase[question.answer or 0]}"])


COPIES: Mapping[str, Callable[[Question], str]] = {
    "audited": ExposureText().write,
    "json": ExposureText(layout="json").write,
    "csv": ExposureText(layout="csv").write,
    "inline": ExposureText(layout="inline").write,
    "list": as_list,
    "prose": ExposureText(layout="prose").write,
}
IN_MATRIX = ("audited", "json", "prose")
Pair = tuple[str, str]


# ---------------------------------------------------------------------- questions


def drawn_questions(tasks: Sequence[str], n: int) -> list[Question]:
    """Return as many questions of each task, in random order."""
    from lm_eval_leakage.harness.tasks.given_questions import questions_of

    rng = random.Random(0)
    chosen = []
    for task in tasks:
        by_stem = {
            question.stem: question
            for question in questions_of(task)
            if question.answer is not None
            and len({*question.options}) == len(question.options) == N_OPTIONS
            and len(question.stem) + sum(map(len, question.options)) <= LONGEST
            and not guards_of(question)
        }
        chosen += [_shuffled(question, rng) for question in rng.sample([*by_stem.values()], math.ceil(n / len(tasks)))]
    return rng.sample(chosen, n)


def _shuffled(question: Question, rng: random.Random) -> Question:
    order = rng.sample(range(N_OPTIONS), N_OPTIONS)
    assert question.answer is not None
    options = tuple(question.options[place] for place in order)
    return replace(question, options=options, answer=order.index(question.answer), frame=None)


def kept_questions(folder: Path, tasks: Sequence[str]) -> list[Question]:
    kept = folder / "questions.json"
    n = N_SEEN + N_UNSEEN + len(COPIES) * sum(DOSES.values())
    if not kept.exists():
        rows = [
            {
                name: value
                for name, value in asdict(drawn_question).items()
                if name in ("id", "stem", "options", "answer")
            }
            for drawn_question in drawn_questions(tasks, n)
        ]
        atomic_write(kept, json.dumps(rows, ensure_ascii=False, indent=0))
    rows = json.loads(kept.read_text(encoding="utf-8"))
    return [Question(**{**row, "options": tuple(row["options"])}) for row in rows]


# ---------------------------------------------------------------------- what is asked


def texts_of(question: Question, others: Sequence[str], *, orders: bool, every_layout: bool) -> dict[str, list[Pair]]:
    """Return (context, continuation) pairs by name. Accuracy: each option after the question (`text`), after it in
    capitals, after its second half, after nothing; right answers of other questions; each letter after the options in
    four orders, in which each option has each place once. Texts as they are published, in three layouts."""
    stem, options = question.stem.strip(), question.options
    words = stem.split()
    by_text = [(f"Question: {stem}\nAnswer:", f" {option}") for option in options]
    pairs = {
        "text": by_text,
        "capitals": [(context.upper(), option.upper()) for context, option in by_text],
        "half": [(f"Question: {' '.join(words[len(words) // 2 :])}\nAnswer:", option) for _, option in by_text],
        "alone": [("Answer:", option) for _, option in by_text],
        "others": [(by_text[0][0], f" {option}") for option in others],
        "letters": [pair for turn in range(N_OPTIONS) for pair in _letters(question, turn)],
        "whole": [("", _whole(question, layout)) for layout in ("audited", "json", "csv")],
        "prose": [("", ExposureText(layout="prose", answer=False).write(question))],
    }
    if orders:
        pairs["orders"], pairs["control"] = in_layouts(question, LAYOUTS if every_layout else LAYOUTS[:1])
    return pairs


def in_layouts(question: Question, layouts: Sequence[str]) -> tuple[list[Pair], list[Pair]]:
    """All orders in each layout; and the compared ones in the control forms: in words, then in capitals in each."""
    probe = OptionOrders()
    orders, compared = probe.chosen_orders(question), probe.compared(question)
    published: list[Pair] = []
    capitals: list[Pair] = []
    for layout in layouts:
        frame, options = laid_out(question, layout)
        published += [(frame.before, block) for block in in_orders(frame.markers, options, orders)]
        markers, options = [*map(in_capitals, frame.markers)], [*map(in_capitals, options)]
        blocks = in_orders(markers, options, [orders[place] for place in compared])
        capitals += [(in_capitals(frame.before), block) for block in blocks]
    in_words = [(request.context, request.continuation) for request in probe.control(question)[: len(compared)]]
    return published, [*in_words, *capitals]


def _letters(question: Question, turn: int) -> Iterator[Pair]:
    frame = frame_of(question)
    prompt = frame.before + frame.block([*question.options[turn:], *question.options[:turn]]) + "\nAnswer:"
    return ((prompt, f" {letter}") for letter in ascii_uppercase[:N_OPTIONS])


def _whole(question: Question, layout: str) -> str:
    frame, options = laid_out(question, layout)
    return frame.before + frame.block(options)


# ---------------------------------------------------------------------- the model


class Copy:
    """A model in memory, which is trained and asked."""

    def __init__(self, source: str, device: torch.device) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.device = device
        self.tokenizer = AutoTokenizer.from_pretrained(source)
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device)
        self._published = {name: value.clone() for name, value in self.model.state_dict().items()}
        first = self.tokenizer("a")["input_ids"][0]
        self.prefix = first if first == self.tokenizer.bos_token_id else self.tokenizer.eos_token_id

    def forget(self) -> None:
        self.model.load_state_dict(self._published)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, self.tokenizer(list(texts))["input_ids"])) if texts else []

    def passes(self, texts: Sequence[str], n: int, recipe: Recipe, seed: int) -> Iterator[int]:
        """Trains; after each pass over the texts, its number."""
        rows = self.tokenizer([text + self.tokenizer.eos_token for text in texts])["input_ids"]
        optimizer = torch.optim.AdamW(
            self.model.parameters(), recipe.learning_rate, weight_decay=0.0, fused=self.device.type == "cuda"
        )
        rng = random.Random(seed)
        for number in range(1, n + 1):
            self.model.train()
            order = rng.sample(range(len(rows)), len(rows))
            for start in tqdm(range(0, len(rows), recipe.batch_size), desc=f"pass {number}", leave=False):
                batch = [rows[place] for place in order[start : start + recipe.batch_size]]
                ids, mask = self._padded(batch)
                labels = ids.masked_fill(mask == 0, -100)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                    loss = self.model(input_ids=ids, attention_mask=mask, labels=labels).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            yield number

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        return ids.to(self.device), mask.to(self.device)

    def encoded(self, pairs: Sequence[Pair]) -> list[tuple[list[int], int]]:
        """Tokens of context and continuation, and how many are the context's."""
        contexts = {context for context, _ in pairs}
        tokens_of_context = dict(zip(contexts, self.tokenizer(list(contexts))["input_ids"], strict=True))
        whole = self.tokenizer([context + continuation for context, continuation in pairs])["input_ids"]
        rows = []
        for (context, _), row in zip(pairs, whole, strict=True):
            n = len(tokens_of_context[context]) if context else (1 if row[0] == self.prefix else 0)
            rows.append((row, n) if n else ([self.prefix, *row], 1))
        return rows

    @torch.inference_mode()
    def scores(self, rows: Sequence[tuple[list[int], int]]) -> np.ndarray:
        """Log-likelihoods of the continuations, nats."""
        self.model.eval()
        body, head = self.model.base_model, self.model.get_output_embeddings().weight.float()
        order = sorted(range(len(rows)), key=lambda place: len(rows[place][0]))
        scores = np.empty(len(rows))
        start = 0
        bar = tqdm(total=len(rows), unit="text", leave=False)
        while start < len(rows):
            size = max(1, TOKENS_AT_ONCE // len(rows[order[min(len(rows) - 1, start + 64)]][0]))
            places = order[start : start + size]
            ids, mask = self._padded([rows[place][0] for place in places])
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                hidden = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            first = torch.tensor([rows[place][1] for place in places], device=self.device)
            columns = torch.arange(ids.shape[1], device=self.device)
            scored = (columns >= first[:, None]) & (mask > 0)
            row, column = scored.nonzero(as_tuple=True)
            states, tokens = hidden[row, column - 1].float(), ids[row, column]
            logprobs = torch.cat(
                [
                    _logprobs(part @ head.T, of)
                    for part, of in zip(states.split(ROWS_OF_HEAD), tokens.split(ROWS_OF_HEAD), strict=True)
                ]
            )
            sums = torch.zeros(len(places), dtype=torch.float64, device=self.device).index_add_(0, row, logprobs)
            scores[places] = sums.cpu().numpy()
            start += len(places)
            bar.update(len(places))
        bar.close()
        return scores


def _logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    logprobs = logits.gather(1, tokens[:, None])[:, 0]
    return (logprobs - logits.logsumexp(dim=1)).double()


# ---------------------------------------------------------------------- the experiments


class Asker:
    def __init__(self, copy: Copy, questions: Sequence[Question], *, n_orders: int, every_layout: bool) -> None:
        """Prepare the questions' texts.

        n_orders: of how many of the first questions the orders are asked
        """
        self.copy = copy
        self.places: dict[str, list[tuple[int, int]]] = {}
        pairs: list[Pair] = []
        answers = [question.options[question.answer or 0] for question in questions]
        for number, question in enumerate(questions):
            others = random.Random(question.id).sample([text for text in answers if text not in question.options], 3)
            for name, pairs_of_question in texts_of(
                question, others, orders=number < n_orders, every_layout=every_layout
            ).items():
                self.places.setdefault(name, []).append((len(pairs), len(pairs) + len(pairs_of_question)))
                pairs += pairs_of_question
        self.rows = copy.encoded(pairs)
        self.lengths = np.array([len(row) - n for row, n in self.rows])
        self.n_characters = np.array([len(text) for _, text in pairs])

    def ask(self) -> dict[str, np.ndarray]:
        values = self.copy.scores(self.rows)
        scores = {
            name: np.array([values[first:last] for first, last in places], dtype=np.float32)
            for name, places in self.places.items()
        }
        for name in ("text", "whole", "prose"):
            scores[f"{name}_tokens"] = np.array([self.lengths[first:last] for first, last in self.places[name]])
            scores[f"{name}_characters"] = np.array(
                [self.n_characters[first:last] for first, last in self.places[name]]
            )
        return scores


def kept(folder: Path, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    scratch = folder / f".{name}.npz"
    np.savez_compressed(scratch, **arrays)
    scratch.rename(folder / f"{name}.npz")


def matrix(
    folder: Path, copy: Copy, questions: Sequence[Question], lines: Sequence[str], layouts: Sequence[str], end: float
) -> None:
    asker = Asker(copy, questions, n_orders=N_ASKED_ORDERS, every_layout=False)
    answer = np.array([question.answer for question in questions])
    if not (folder / "clean.npz").exists():
        copy.forget()
        kept(folder, "clean", {**asker.ask(), "answer": answer})
    ordinary = random.Random(1).sample(list(lines), N_SEEN)
    for layout in layouts:
        names = {n: f"{layout}_{n}" for n in PASSES}
        if all((folder / f"{name}.npz").exists() for name in names.values()) or time.monotonic() > end:
            continue
        copy.forget()
        texts = [*map(COPIES[layout], questions[:N_SEEN]), *ordinary]
        for number in copy.passes(texts, max(PASSES), Recipe(), seed=len(layout)):
            if number in names:
                kept(folder, names[number], {**asker.ask(), "answer": answer})
                print(f"{names[number]}: {time.monotonic() - START:.0f} s", flush=True)


def doses(
    folder: Path, copy: Copy, questions: Sequence[Question], ordinary: Sequence[str], *, seeds: int, end: float
) -> None:
    places = [folder / f"doses{'' if seed == 0 else f'_{seed}'}.npz" for seed in range(seeds)]
    if all(place.exists() for place in (*places, folder / "doses_clean.npz")):
        return
    asker = Asker(copy, questions, n_orders=len(questions), every_layout=True)
    if not (folder / "doses_clean.npz").exists():
        copy.forget()
        kept(folder, "doses_clean", asker.ask())
        print(f"doses_clean: {time.monotonic() - START:.0f} s", flush=True)
    for seed, place in enumerate(places):
        if place.exists() or time.monotonic() > end:
            continue
        cells = [(layout, dose) for layout in COPIES for dose, n in DOSES.items() for _ in range(n)]
        random.Random(seed).shuffle(cells)
        copy.forget()
        texts: list[str] = []
        for (layout, dose), question in zip(cells, questions, strict=True):
            texts += [COPIES[layout](question)] * dose
        print(f"{place.stem}: {sum(copy.lengths(texts)):,} tokens inserted in {len(texts):,} texts", flush=True)
        for _ in copy.passes([*texts, *ordinary], 1, Recipe(batch_size=16), seed=3 + seed):
            arrays = asker.ask()
        layout_of, dose_of = zip(*cells, strict=True)
        kept(folder, place.stem, {**arrays, "layout": np.array(layout_of), "dose": np.array(dose_of)})
        print(f"{place.stem}: {time.monotonic() - START:.0f} s", flush=True)


def ordinary_of(copy: Copy, lines: Sequence[str], n_tokens: int) -> list[str]:
    total, drawn = 0, []
    for line, length in zip(lines, copy.lengths(lines), strict=True):
        if total >= n_tokens:
            break
        drawn.append(line)
        total += length
    if total < n_tokens:
        print(f"{total:,} tokens of ordinary text, fewer than {n_tokens:,}: repeated", flush=True)
        drawn *= math.ceil(n_tokens / total)
    return drawn


START = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--ordinary", type=Path, required=True)
    parser.add_argument("--tasks", default="arc_easy", help="as many questions of each")
    parser.add_argument("--tokens", type=int, default=N_TOKENS)
    parser.add_argument("--seeds", type=int, default=1, help="trainings among ordinary tokens")
    parser.add_argument("--layouts", default=",".join(IN_MATRIX))
    parser.add_argument("--only", choices=("matrix", "doses"))
    parser.add_argument("--minutes", type=float, default=math.inf, help="no further copy is begun after so many")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    end = START + 60 * args.minutes
    args.folder.mkdir(parents=True, exist_ok=True)
    questions = kept_questions(args.folder, args.tasks.split(","))
    lines = [line for line in args.ordinary.read_text(encoding="utf-8").split("\n") if line.strip()]
    random.Random(0).shuffle(lines)
    copy = Copy(args.model, find_device())
    print(f"loaded: {time.monotonic() - START:.0f} s", flush=True)
    n_matrix = N_SEEN + N_UNSEEN
    if args.only != "doses":
        matrix(args.folder, copy, questions[:n_matrix], lines, args.layouts.split(","), end)
    if args.only != "matrix" and time.monotonic() < end:
        drawn = ordinary_of(copy, lines, args.tokens)
        doses(args.folder, copy, questions[n_matrix:], drawn, seeds=args.seeds, end=end)


if __name__ == "__main__":
    main()
