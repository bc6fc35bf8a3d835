"""One verdict of every kind that a line of an audit's log can hold, with what else the line is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.detectors import statistics
from lm_eval_leakage.detectors.choice_confusion import ArmsMeasurement
from lm_eval_leakage.detectors.completions import NgramMeasurement, ReproductionMeasurement
from lm_eval_leakage.detectors.crossed_fillers import FillerMeasurement
from lm_eval_leakage.detectors.guesses import GuessEvidence
from lm_eval_leakage.detectors.masked_option import MaskedMeasurement
from lm_eval_leakage.detectors.membership import ReferencedMeasurement, RelativeMeasurement, TokenMeasurement
from lm_eval_leakage.detectors.option_orders import MaxOrderEvidence
from lm_eval_leakage.detectors.outlier import OutlierEvidence
from lm_eval_leakage.detectors.partial_orders import PairEvidence, StepwiseEvidence
from lm_eval_leakage.detectors.shared_likelihood import ShardEvidence
from lm_eval_leakage.detectors.tail_answered import TailEvidence
from lm_eval_leakage.detectors.wording_rank import WordingEvidence
from lm_eval_leakage.harness.table import JudgedQuestion, registered_rows
from lm_eval_leakage.records import DeclaredRow, FillerAnswers, Skipped, Verdict
from lm_eval_leakage.stats.pooling import SKIPPED

DOC = {"question": "Which metal is liquid?", "subject": "chemistry", "choices": ["gold", "mercury"], "answer": 1}


@dataclass(frozen=True)
class Kind:
    """A kind of verdict, with the rest of its line.

    answers: log-likelihoods of the scored texts, nats
    reference: the model whose log-likelihoods are subtracted
    """

    statistic: str
    probe: str
    verdict: Verdict
    guards: tuple[str, ...] = ()
    reference: str | None = None
    answers: tuple[float, ...] = (-20.5, -21.0)

    @property
    def rows(self) -> dict[str, DeclaredRow]:
        rows = [*statistics.get(self.statistic).rows, SKIPPED]
        errors = {f"{row.name}_stderr": row for row in rows if row.error}
        return {row.name: row for row in rows} | errors

    @property
    def contributions(self) -> Mapping[str, float | None]:
        judged = JudgedQuestion(self.verdict, guards=self.guards)
        registered_rows()
        return {name: judged.value_in_row(name) for name in self.rows}

    @property
    def of_harness(self) -> dict[str, Any]:
        """Return the keys of the same line that the harness writes."""
        return {
            "doc_id": 3,
            "doc": DOC,
            "resps": [[[str(answer), "False"]] for answer in self.answers],
            "filter": self.statistic,
            "metrics": list(self.rows),
            "doc_hash": hashlib.sha256(b"row 3").hexdigest(),
        }


PERM = ("max_order", "option_orders")
RELATIVE = ("relative_likelihood", "altered_text")
MASKED = ("masked_option", "masked_option")
FLAGGED = MaxOrderEvidence(True, 0.5, 0.5, 0.5, 0.5, 0, 2)
FOUR = (-20.5, -27.5, -23.5, -30.75)
KINDS: Mapping[str, Kind] = {
    "max_order": Kind(*PERM, FLAGGED, ("in_order",)),
    "max_order_unguarded": Kind(*PERM, FLAGGED),
    "max_order_with_reference": Kind(*PERM, FLAGGED, reference="org/elder"),
    "skipped": Kind(*PERM, Skipped("two options read alike"), answers=()),
    "outlier": Kind(
        "outlier", "option_orders", OutlierEvidence(True, 0.25, 0.375, -0.25, 1, 3), answers=(-20.5, -19.0, -21.0)
    ),
    "pair_published": Kind("pair_published", "option_pairs", PairEvidence(False, 1.0, 0.5, -0.5, 2)),
    "stepwise": Kind("stepwise", "option_steps", StepwiseEvidence(True, 0.5, 0.5, 1, 0.25)),
    "tail_answered": Kind("tail_answered", "question_tail", TailEvidence(True, 0.5, 0.5, 1.5, True)),
    "shared_likelihood": Kind(
        "shared_likelihood", "example_order", ShardEvidence(False, 0.5, 0.0, 0.5, 10, (-20.5, -21.0))
    ),
    "paired_accuracy": Kind("paired_accuracy", "choice_confusion", ArmsMeasurement(True, True, False, False, 0.75)),
    "masked_option": Kind(*MASKED, MaskedMeasurement(False, 0.5), answers=()),
    "masked_option_judged": Kind(*MASKED, MaskedMeasurement(False, 0.5, True, "Yes."), answers=()),
    "reproduction": Kind(
        "reproduction", "option_completions", ReproductionMeasurement(True, False, 0.5, 0.625, 1.0), answers=()
    ),
    "ngram_accuracy": Kind("ngram_accuracy", "prefix_completions", NgramMeasurement(0.2), answers=()),
    "relative_likelihood": Kind(*RELATIVE, RelativeMeasurement(-0.5, 0.25, 0.125, 1.5), answers=FOUR),
    "relative_likelihood_with_reference": Kind(
        *RELATIVE, ReferencedMeasurement(-0.5, 0.25, 0.125, 1.5, 0.0625), reference="org/elder", answers=FOUR
    ),
    "token_evidence": Kind(
        "token_evidence", "published_text", TokenMeasurement(-2.5, 0.25, -6.0, float("nan"), 12, -31.5)
    ),
    "wording_rank": Kind("wording_rank", "wordings", WordingEvidence(True, 0.5, 0.5, 1.0, 2, (-1.25, -1.5))),
    "crossed_blocks": Kind(
        "crossed_blocks",
        "crossed_fillers",
        FillerMeasurement(FillerAnswers("0a1b", 1, ((-21.0, -20.5),), layouts=("prompt",), start="<s>"), -20.5),
    ),
    "published_guess": Kind("published_guess", "published_guess", GuessEvidence(True, 0.5, 0.5, True, 2), answers=()),
}
