"""One sentence per verdict, to copy into a paper or a model card."""

from __future__ import annotations

from lm_eval_leakage import __version__
from lm_eval_leakage.results.data_verdict import (
    BY_CONTROL,
    BY_ORDERS,
    BY_REFERENCE,
    CANNOT_TELL,
    NONE_FOUND,
    DataVerdict,
    detectable_in_words,
    pvalue_in_words,
    seen_in_words,
)
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.null_status import EXACT
from lm_eval_leakage.results.result_types import Row

COMPARED = {
    BY_ORDERS: "compared with other orders of the same options",
    BY_REFERENCE: "compared with a reference model",
    BY_CONTROL: "compared with the model's own control forms",
}
NOT_WRITTEN_DOWN = "revision not written down"


def sentence_to_copy(row: Row) -> str:
    """Empty where there is no verdict."""
    verdict, made = row.verdict, row.provenance
    if not verdict.word:
        return ""
    model = made.model or row.model
    n = verdict.n_asked or row.n
    drawn = "" if made.seed is None else f" (drawn with seed {made.seed})"
    questions = f"{counted(n)} of {row.name}{drawn}" if n else row.name
    lm_eval = f"lm_eval {made.lm_eval}" if made.lm_eval else ""
    by = f"lm_eval_leakage {__version__}" + "".join(f", {part}" for part in (lm_eval, made.date) if part)
    return (
        f"{model} ({made.revision or NOT_WRITTEN_DOWN}) was checked for leakage on {questions} by {by}: "
        f"the verdict is “{verdict.word}” ({_because(verdict)})."
    )


def _because(verdict: DataVerdict) -> str:
    if verdict.word == CANNOT_TELL:
        return verdict.reason
    more = detectable_in_words(verdict.detectable) if verdict.word == NONE_FOUND else seen_in_words(verdict.seen)
    which = "" if verdict.orders in EXACT else " without a natural order"
    return f"{pvalue_in_words(verdict)}; {counted(verdict.n)}{which}, {COMPARED[verdict.basis]}{more}"
