from __future__ import annotations

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.results.data_verdict import BY_ORDERS, BY_REFERENCE, NO_VERDICT, not_judged
from lm_eval_leakage.results.published_orders import DRAWN_ORDERS
from lm_eval_leakage.results.result_types import Provenance
from lm_eval_leakage.results.told_verdicts import sentence_to_copy
from tests.report.made import UNDECIDED, row, verdict

MADE = Provenance("org/m", "revision 93efa2f", "hf, dtype=bfloat16", 7, "0.4.13", "2026-11-23")
BEGINNING = (
    "org/m (revision 93efa2f) was checked for leakage on 100 questions of mmlu (drawn with seed 7) by "
    f"lm_eval_leakage {__version__}, lm_eval 0.4.13, 2026-11-23: the verdict is "
)
NONE = verdict(0.57, n=60, adjusted=1.0, n_together=2, detectable=((1, 0.65),))


@pytest.mark.parametrize(
    ("judged", "ending"),
    [
        (
            NONE,
            "“none found” (p = 0.57, 1 after adjustment for 2 verdicts; 60 questions without a natural order, "
            "compared with the model's own control forms; 65% of the questions seen once would have been found "
            "with probability 0.8).",
        ),
        (
            verdict(0.003, basis=BY_REFERENCE),
            "“evidence” (p = 0.003; 100 questions without a natural order, compared with a reference model).",
        ),
        (
            verdict(2e-5, basis=BY_ORDERS, orders=DRAWN_ORDERS),
            "“strong evidence” (p = 2e-05; 100 questions, compared with other orders of the same options).",
        ),
        (UNDECIDED, f"“cannot be told” ({UNDECIDED.reason})."),
        (not_judged("it has no options"), "“cannot be told” (it has no options)."),
    ],
)
def test_a_verdict_of_any_kind_is_one_sentence_with_model_questions_versions_and_date(judged, ending) -> None:
    assert sentence_to_copy(row(verdict=judged, provenance=MADE)) == BEGINNING + ending


def test_what_nobody_wrote_down_is_said_or_left_out_and_without_a_verdict_there_is_no_sentence() -> None:
    sentence = sentence_to_copy(row(verdict=NONE))
    assert sentence.startswith(
        "M (revision not written down) was checked for leakage on 100 questions of mmlu by "
        f"lm_eval_leakage {__version__}: the verdict is "
    )
    assert sentence_to_copy(row(verdict=NO_VERDICT, provenance=MADE)) == ""
