"""The status of the null hypothesis "all orders of the options are exchangeable" of a benchmark, and what it rests on.

`sealed`: drawn with a secret key. `drawn`: the builder documents a random draw, and no test contradicts it. In both
the null hypothesis is exact. `written`: the published orders are not random, so that a model may prefer them without
having seen them. `patterned`: written, and so much by length or likeness of the options that no control form is known
to take that off. `consistent with random`: no test contradicts a random draw, which proves none: an order that follows
a habit without a test passes. `too few to say`: the tests could not have seen much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from scipy.special import ndtri

from lm_eval_leakage.records import StrEnum
from lm_eval_leakage.results.formatting import counted, defined, format_pvalue, number, pvalue_equation
from lm_eval_leakage.results.order_tests import (
    FEWEST_TESTED,
    GENERAL,
    LEVEL,
    N_TESTS,
    POWER,
    OrderTest,
    OrderTests,
)
from lm_eval_leakage.results.tabulating import markdown_of

ENOUGH_QUESTIONS = 400  # a mean effect of 0.21 is found with probability .8; every written benchmark we know has 0.28
PATTERN = 0.9  # mean effect of one of these on a question, in standard deviations; of the written benchmarks that we
# know, C3 has the largest, 0.72, and a benchmark from long to short has 1.7
TEST_COLUMNS = ["test", "questions", "measure", "observed", "by chance", "p", "adjusted p"]


class OrderStatus(StrEnum):
    """The status of a benchmark's published orders, from the weakest to the strongest."""

    PATTERNED = "patterned"
    WRITTEN = "written"
    UNDECIDED = "too few to say"
    CONSISTENT = "consistent with random"
    DRAWN = "drawn"
    SEALED = "sealed"


DOCUMENTED = {"random": OrderStatus.DRAWN, "written": OrderStatus.WRITTEN, "sealed": OrderStatus.SEALED}


def is_exact(status: str | None) -> bool:
    """Return whether the null hypothesis holds whatever the model knows."""
    return status in (OrderStatus.DRAWN, OrderStatus.SEALED)


@dataclass(frozen=True)
class Documented:
    """The documentation of a benchmark's published orders by its builder: a key of `DOCUMENTED`, and where it is
    said."""

    says: str
    source: str

    def __post_init__(self) -> None:
        if self.says not in DOCUMENTED:
            raise ValueError(f"the documented status is {self.says!r}; choose one of: {', '.join(DOCUMENTED)}")
        if not self.source.strip():
            raise ValueError(
                "the documented status has no source; name where the author documents it, such as a section"
            )


@dataclass(frozen=True)
class NullStatus:
    """The status of published orders.

    reason: the status and what it rests on, in a sentence or two
    contradicted: whether the tests contradict what the author documents
    """

    status: OrderStatus
    reason: str
    contradicted: bool = False


def null_status(tests: OrderTests, documented: Documented | None = None) -> NullStatus:
    """Return the status: `written` if any test contradicts random orders; else what is documented; else `consistent
    with random` if the tests that act on almost any question had enough of them. Documentation never overrides a test,
    and the reason shows both."""
    against = [test for test in tests.tests if test.adjusted < LEVEL]
    if against:
        return _written(tests, against, documented)
    seen = _nothing_found(tests)
    if documented is not None:
        status = DOCUMENTED[documented.says]
        return NullStatus(status, f"`{status}`, as documented ({documented.source}). {seen}")
    if tests.tests and all(test.n_questions >= ENOUGH_QUESTIONS for test in _general(tests)):
        passed = "which no test can prove; `drawn` is what the author documents"
        return NullStatus(OrderStatus.CONSISTENT, f"`{OrderStatus.CONSISTENT}`, {passed}. {seen}")
    return NullStatus(OrderStatus.UNDECIDED, f"`{OrderStatus.UNDECIDED}`: {_too_few(tests)}. {seen}")


def _general(tests: OrderTests) -> list[OrderTest]:
    return [test for test in tests.tests if test.name in GENERAL]


def _written(tests: OrderTests, against: Sequence[OrderTest], documented: Documented | None) -> NullStatus:
    status = OrderStatus.PATTERNED if tests.pattern >= PATTERN else OrderStatus.WRITTEN
    shown = "; ".join(f"{test.name}, {_numbers(test)}" for test in against)
    reason = (
        f"`{status}`: the orders are not random ({shown}), so a model may prefer the published ones without having "
        "seen them."
    )
    if status == OrderStatus.PATTERNED:
        reason += (
            f" They follow a pattern of length or likeness: {number(tests.pattern, 2)} standard deviations per "
            f"question without a guard, {PATTERN} or more."
        )
    if documented is None:
        return NullStatus(status, reason)
    if documented.says == OrderStatus.WRITTEN:
        return NullStatus(status, f"{reason} That they are written is also documented ({documented.source}).")
    says = f"This contradicts what is documented: `{documented.says}` ({documented.source})."
    return NullStatus(status, f"{reason} {says}", contradicted=True)


def _numbers(test: OrderTest) -> str:
    observed, by_chance = _figures(test)
    return (
        f"{test.measure} {observed} where {by_chance} is expected, {counted(test.n_questions)}, "
        f"adjusted {pvalue_equation(test.adjusted)}"
    )


def _figures(test: OrderTest) -> tuple[str, str]:
    """Return what was observed, and what is expected by chance."""
    decimals = (2, 2) if test.measure == "share" else (1, 0)
    return number(test.observed, decimals[0]), number(test.expected, decimals[1])


def _nothing_found(tests: OrderTests) -> str:
    """Return what the tests could have seen."""
    acting = [test for test in tests.tests if test.n_questions]
    if not acting:
        return "No test could act."
    able = [test for test in _general(tests) if test.n_questions]
    effects = ", ".join(f"{test.name} {number(detectable(test.n_questions), 2)}" for test in able)
    power = f"; the mean effects per question that would be found with probability {POWER}: {effects}" if able else ""
    return f"None of {counted(len(acting), 'test')} finds anything at {LEVEL}{power} (in standard deviations)."


def detectable(n_questions: int) -> float:
    """Return the smallest mean of a question's standardised value that a `GENERAL` test of so many questions finds
    with probability `POWER`, if Holm asks most of it: normal approximation."""
    effect = ndtri(1 - LEVEL / N_TESTS / 2) + ndtri(POWER)
    return float(effect) / math.sqrt(n_questions)


def _too_few(tests: OrderTests) -> str:
    if not tests.tests:
        n = tests.n_questions
        return f"there are {n} different questions with two options or more; {FEWEST_TESTED} are needed"
    acted = " and ".join(f"{test.name} on {counted(test.n_questions)}" for test in _general(tests))
    return f"it was possible to test {acted}; {ENOUGH_QUESTIONS} each are needed to call orders random"


# ---------------------------------------------------------------------- shown


def orders_as_markdown(tests: OrderTests, status: NullStatus) -> str:
    """Return a row per test, and the status in words below."""
    lines = [TEST_COLUMNS, *(_cells(test) for test in tests.tests)]
    table = [markdown_of(lines), ""] if tests.tests else []
    left_out = f"{counted(tests.n_left_out)} with fewer than two options, or copies of others, left out."
    return "\n".join([*table, status.reason, *([left_out] if tests.n_left_out else [])])


def _cells(test: OrderTest) -> list[str]:
    error = f" ± {test.pvalue_error:.1g}" if test.pvalue_error else ""
    shown = [*_figures(test), format_pvalue(test.pvalue) + error, format_pvalue(test.adjusted)]
    return [test.name, f"{test.n_questions:,}", test.measure, *shown]


def as_record(order_tests: OrderTests, status: NullStatus) -> dict[str, object]:
    """Return everything for JSON, with null for what is undefined."""
    tests = [{key: defined(value) for key, value in asdict(test).items()} for test in order_tests.tests]
    return {
        **asdict(status),
        "n_questions": order_tests.n_questions,
        "n_left_out": order_tests.n_left_out,
        "tests": tests,
    }
