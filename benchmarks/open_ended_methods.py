"""Five methods on the same models and rows of a benchmark without options: the table of
docs/methods/details/open_ended_methods.md.

    python -m benchmarks.open_ended_methods MODEL TRAIN TEST NEW [--rows N] [--dtype D]

MODEL: a checkpoint folder or a hub name. TRAIN, TEST, NEW: files of rows with a text, such as `{"question": "..."}`:
rows that the model may have learned from, rows of the benchmark, and rows that it cannot have seen. Answers are left
out, since the files may write them in different ways.

Of each file, N rows with a given name are drawn with seed 0. All methods but the last take these rows:

- exchanged names: the audit `leakage_fillers`. Flagged by the audit's own rule.
- CoDeC (Zawalski et al., arXiv 2510.27055): the share of rows that are less likely after another row of the file than
  alone, from the ninth word on. One row stands before, as in the authors' notebook, which leaves out ten tokens.
  Flagged above 80 %.
- Min-K%++ (Zhang et al., arXiv 2404.02936): the mean of the 20 % lowest z-scores of a row's tokens, and the
  probability that a row of one file has a higher value than a row of another (AUROC, with its 95 % interval).
- completion (Wu et al., arXiv 2507.10532): the model continues the first 60 % of a row's words, greedily and without
  a chat template. Its text is cut to the number of hidden words and compared with these.
- row order (Oren et al., arXiv 2310.17623): a t-test over shards of five neighbouring rows, each in the order of the
  file and in 4 others. N / 5 shards are spread evenly over the file. Flagged at p <= .05.

Nothing or an empty line stands before a text that is scored alone, since a token for the start or the end of a
document may make it much less likely: by .8 nats per token for Qwen2.5-Coder-0.5B.

The table grows by a line when a method is done. 120 rows of each file take about 15 minutes for a model of 0.5B
parameters on one core.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance

from benchmarks.exchanged_names import answers_of, as_shown, beyond_control, probe_of
from lm_eval_leakage.detectors.completions import rouge_l
from lm_eval_leakage.detectors.membership import TokenEvidence, TokenMeasurement
from lm_eval_leakage.detectors.shared_likelihood import ExampleOrder, SharedLikelihood, ttest_pvalue
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.harness.models.token_scores import offer_token_scores
from lm_eval_leakage.harness.tasks.question_files import read_file
from lm_eval_leakage.harness.tasks.task import drawn
from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.questions.statements import statement_reader, with_slot
from lm_eval_leakage.records import Answered, Question, TokenScores
from lm_eval_leakage.results.filler_verdict import filler_verdict
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL
from lm_eval_leakage.stats.crossed_blocks import crossed_blocks, preference
from lm_eval_leakage.stats.detection_quality import auroc_interval
from lm_eval_leakage.stats.order_scores import find_device
from lm_eval_leakage.stats.pooling import mean_and_stderr

SEED = 0
BETWEEN_ROWS = "\n\n"  # as in the notebook of Zawalski et al.
UNCOUNTED_WORDS = 8  # about as many as the ten tokens that the notebook leaves out
RED_FLAG = 0.8  # Zawalski et al. (2025), as summaries of the paper have it
SHOWN = 60  # percent of a row's words; Wu et al. (2025)
TOKENS_STEP = 32  # texts of the same length to generate are generated together
ROWS_PER_SHARD, OTHER_ORDERS = 5, 4
ORDER_LEVEL = 0.05  # Oren et al. (2023)


@dataclass(frozen=True)
class Split:
    """A file of rows.

    name: as the table calls it
    file_rows: all rows in the order of the file
    rows: those that were drawn, each with a given name
    """

    name: str
    file_rows: Sequence[Question]
    rows: Sequence[Question]

    @property
    def texts(self) -> list[str]:
        return [row.stem for row in self.rows]


def read_split(name: str, file: Path, n_rows: int) -> Split:
    docs = [*read_file(file)]
    file_rows = [*map(statement_reader(docs), docs)]
    return Split(name, file_rows, drawn(with_slot(distinct(file_rows)), n_rows, SEED))


# ---------------------------------------------------------------------- methods: a cell for each split


def exchanged_names(lm: Any, splits: Sequence[Split]) -> list[str]:
    cells = []
    for split in splits:
        answers = answers_of(lm, probe_of(lm, split.rows))
        blocks = crossed_blocks(answers)
        sizes = [block.size for block in blocks]
        shown, beyond = (preference(scores, sizes) for scores in (as_shown(blocks), beyond_control(blocks)))
        pvalue = filler_verdict(answers).pvalue
        effects = "; ".join(with_error(result.effect, result.null_error) for result in (shown, beyond))
        cells.append(f"{effects} (p = {pvalue:.2g}, {flagged(pvalue <= EVIDENCE_LEVEL)})")
    return cells


def codec(lm: Any, splits: Sequence[Split]) -> list[str]:
    cells = []
    for split in splits:
        texts, rng = split.texts, random.Random(SEED)
        pairs = []
        for text in texts:
            opening, rest = split_words(text, UNCOUNTED_WORDS)
            other = rng.choice([other for other in texts if other != text])
            pairs += [(opening, rest), (other + BETWEEN_ROWS + opening, rest)]
        scores = loglikelihoods(lm, pairs)
        lowered = [after < alone for alone, after in zip(scores[::2], scores[1::2], strict=True)]
        share, error = mean_and_stderr(lowered)
        cells.append(f"{share:.0%} ± {error:.0%} ({flagged(share > RED_FLAG)})")
    return cells


def min_k(lm: Any, splits: Sequence[Split]) -> list[str]:
    statistic = TokenEvidence()
    values: dict[str, list[float]] = {}
    for split in splits:
        verdicts = [  # the second scores are of the row as JSON, which no value here rests on
            statistic.verdict(Answered(row, (), (), tokens=(scores, scores)))
            for row, scores in zip(split.rows, token_scores(lm, split.texts), strict=True)
        ]
        values[split.name] = [verdict.min_k_zscore for verdict in verdicts if isinstance(verdict, TokenMeasurement)]
    cells = []
    for place, split in enumerate(splits):
        parts = [with_error(*mean_and_stderr(values[split.name]))]
        for other in splits[place + 1 :]:
            area = auroc_interval(values[split.name], values[other.name])
            parts.append(f"AUROC against {other.name} {area.value:.2f} [{area.low:.2f}, {area.high:.2f}]")
        cells.append("; ".join(parts))
    return cells


def completion(lm: Any, splits: Sequence[Split]) -> list[str]:
    cells = []
    for split in splits:
        parts = [split_words(text, n_shown(text)) for text in split.texts]
        requests = [
            Instance("generate_until", {}, (shown, generation(len(lm.tok_encode(hidden)))), number)
            for number, (shown, hidden) in enumerate(parts)
        ]
        hidden_parts = [hidden for _, hidden in parts]
        written = [
            first_words(text, len(hidden.split()))
            for text, hidden in zip(lm.generate_until(requests), hidden_parts, strict=True)
        ]
        rouge = [rouge_l(hidden, text) for hidden, text in zip(hidden_parts, written, strict=True)]
        exact = [is_same(hidden, text) for hidden, text in zip(hidden_parts, written, strict=True)]
        cells.append(f"ROUGE-L {with_error(*mean_and_stderr(rouge))}; {sum(exact)} of {len(exact)} exact")
    return cells


def split_words(text: str, n: int) -> tuple[str, str]:
    """Return a text up to the end of its nth word, and the rest."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    end = ends[min(n, len(ends)) - 1]
    return text[:end], text[end:]


def n_shown(text: str) -> int:
    """Return how many of a text's words are shown."""
    return max(1, len(text.split()) * SHOWN // 100)


def first_words(text: str, n: int) -> str:
    return " ".join(text.split()[:n])


def is_same(text: str, other: str) -> bool:
    """Return whether two texts are equal but for white space."""
    return text.split() == other.split()


def generation(n_tokens: int) -> dict[str, Any]:
    """Return settings to generate at least so many tokens greedily."""
    return {"until": [], "max_gen_toks": -(-n_tokens // TOKENS_STEP) * TOKENS_STEP, "do_sample": False}


def row_order(lm: Any, splits: Sequence[Split]) -> list[str]:
    statistic = SharedLikelihood()
    cells = []
    for split in splits:
        probe = ExampleOrder(len(split.rows) // ROWS_PER_SHARD, ROWS_PER_SHARD, OTHER_ORDERS)
        shards = [(shard, probe.requests(shard)) for shard in probe.of_shards(split.file_rows)]
        values = iter(loglikelihoods(lm, [request for _, requests in shards for request in requests]))
        gains = [
            statistic.verdict(Answered(shard, requests, tuple(next(values) for _ in requests))).gain
            for shard, requests in shards
        ]
        pvalue = ttest_pvalue(gains)
        effect = with_error(*mean_and_stderr(gains))
        cells.append(f"{effect} nats per shard (p = {pvalue:.2g}, {flagged(pvalue <= ORDER_LEVEL)})")
    return cells


METHODS: dict[str, Callable[[Any, Sequence[Split]], list[str]]] = {
    "exchanged names: as shown; beyond the control form": exchanged_names,
    "CoDeC: share less likely after another row": codec,
    "Min-K%++: mean z-score": min_k,
    "completion of the last 40 %": completion,
    "row order: gain of the file's order": row_order,
}

# ---------------------------------------------------------------------- requests and cells


def loglikelihoods(lm: Any, pairs: Sequence[Sequence[str]]) -> list[float]:
    requests = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(pairs)]
    return [float(answer[0]) for answer in lm.loglikelihood(requests)]


def token_scores(lm: Any, texts: Sequence[str]) -> list[TokenScores]:
    requests = [Instance("token_scores", {}, (text,), number) for number, text in enumerate(texts)]
    scores: list[TokenScores] = lm.token_scores(requests)
    return scores


def with_error(value: float, error: float) -> str:
    return f"{value:.2f} ± {error:.2f}"


def flagged(is_flagged: bool) -> str:
    return "flagged" if is_flagged else "not flagged"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name in ("train", "test", "new"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--rows", type=int, default=120, help="draw so many rows of each file (default: 120)")
    parser.add_argument("--dtype", default="bfloat16")
    args = parser.parse_args()
    lm = PrefixTreeLM(pretrained=args.model, dtype=args.dtype, device=find_device("auto").type, batch_size=8)
    offer_token_scores(lm)
    lm.custom_prefix_token_id = lm.tok_encode(BETWEEN_ROWS)[-1]
    splits = [read_split(name, getattr(args, name), args.rows) for name in ("train", "test", "new")]
    heads = [f"{split.name} ({len(split.rows)} rows)" for split in splits]
    print(f"| method | {' | '.join(heads)} | minutes |")
    print("| --- | --- | --- | --- | --- |")
    for name, method in METHODS.items():
        began = time.perf_counter()
        cells = method(lm, splits)
        print(f"| {name} | {' | '.join(cells)} | {(time.perf_counter() - began) / 60:.1f} |", flush=True)


if __name__ == "__main__":
    main()
