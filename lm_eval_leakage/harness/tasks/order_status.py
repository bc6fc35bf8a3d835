"""Collects what is said of a benchmark's published orders: by the user, our tests of whole data sets, its own
questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.results.order_tests import order_tests
from lm_eval_leakage.results.published_orders import (
    DOCUMENTED,
    Documented,
    NullStatus,
    OrderStatus,
    is_exact,
    null_status,
)

STATUS_KEY = "published_orders"  # of `--metadata`
WRITTEN_AS_A_WHOLE = {  # data sets of which a task may be too small a part to test (docs/published_orders.md)
    "cais/mmlu",
    "hails/mmlu_no_train",
    "allenai/ai2_arc",
    "regisss/math_qa",
    "allenai/math_qa",
    "ceval/ceval-exam",
    "FreedomIntelligence/CMB",
}
OUR_TESTS = "tests of the whole data set, docs/published_orders.md"


def status_of(metadata: Mapping[str, Any], dataset_path: str | None, questions: Iterable[Question]) -> NullStatus:
    """Return the status by what `metadata` documents, our tests of the data set, or tests of the task's own questions.

    metadata: may give STATUS_KEY, such as "random: section 3.1 of the paper"

    Raises ValueError for a status that is unknown or has no source.
    """
    statement = documented_status(metadata)
    if statement is None and dataset_path in WRITTEN_AS_A_WHOLE and "data_files" not in metadata:
        statement = Documented(OrderStatus.WRITTEN, OUR_TESTS)
    if statement is not None and statement.says == OrderStatus.WRITTEN:
        return NullStatus(OrderStatus.WRITTEN, f"`{OrderStatus.WRITTEN}`, as documented ({statement.source})")
    return null_status(order_tests(questions), statement)


def refuse_undrawn(orders: NullStatus) -> None:
    """Raises UntestableQuestion, with the reason, unless the published orders are known to be drawn at random."""
    if not is_exact(orders.status):
        raise UntestableQuestion(
            f"the published orders are `{orders.status}`, so that some can be guessed without memory; give `seal`, or "
            f"`{STATUS_KEY}` if the author documents that they were drawn at random"
        )


def documented_status(metadata: Mapping[str, Any], key: str = STATUS_KEY) -> Documented | None:
    """Return what the user says about the orders; None if nothing."""
    given = metadata.get(key)
    if given is None:
        return None
    status, _, source = str(given).partition(":")
    try:
        return Documented(status.strip(), source.strip())
    except ValueError as error:
        raise ValueError(
            f"{key} is {given!r}; write STATUS: SOURCE, with one of {', '.join(DOCUMENTED)} and where the "
            f"author documents it ({error})"
        ) from error
