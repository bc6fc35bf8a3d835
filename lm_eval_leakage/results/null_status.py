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

from scipy.stats import norm

from lm_eval_leakage.results.formatting import counted, number, pvalue, pvalue_equation
from lm_eval_leakage.results.markup import markdown_of
from lm_eval_leakage.results.published_orders import FEWEST_TESTED, OrderTest, OrderTests

DRAWN_ORDERS, SEALED_ORDERS, WRITTEN_ORDERS = "drawn", "sealed", "written"
PASSED_ORDERS, UNDECIDED_ORDERS = "consistent with random", "too few to say"
PATTERNED_ORDERS = "patterned"
EXACT = (DRAWN_ORDERS, SEALED_ORDERS)  # the null hypothesis holds whatever the model knows
WEAKEST_FIRST = (
    "",
    PATTERNED_ORDERS,
    WRITTEN_ORDERS,
    UNDECIDED_ORDERS,
    PASSED_ORDERS,
    DRAWN_ORDERS,
    SEALED_ORDERS,
)  # "" if unknown
DOCUMENTED = {"random": DRAWN_ORDERS, "written": WRITTEN_ORDERS, "sealed": SEALED_ORDERS}  # by what the builder says
READ_AS = {"random": PASSED_ORDERS}  # in logs of earlier versions, for orders that passed or were documented
LEVEL = 0.01  # one random benchmark in 100 is called written and loses an exact test, the cheaper of the two mistakes
POWER = 0.8
N_TESTS = 8  # among which Holm adjusts if all can act
ENOUGH_QUESTIONS = 400  # a mean effect of 0.21 is found with probability .8; every written benchmark we know has 0.28
GENERAL = ("likeness of neighbours", "length trend")  # the tests that act on almost any question of three options
PATTERN = 0.9  # mean effect of one of these on a question, in standard deviations; of the written benchmarks that we
# know, C3 has the largest, 0.72, and a benchmark from long to short has 1.7


@dataclass(frozen=True)
class Documented:
    """What a benchmark's builder says about the published orders: a key of `DOCUMENTED`, and where it is said."""

    says: str
    source: str

    def __post_init__(self) -> None:
        if self.says not in DOCUMENTED:
            raise ValueError(f"the documented status is {self.says!r}; choose one of: {', '.join(DOCUMENTED)}")
        if not self.source.strip():
            raise ValueError("the documented status has no source; name where the builder says so, such as a section")


@dataclass(frozen=True)
class NullStatus:
    """status: one of WEAKEST_FIRST, not the first
    reason: the status and what it rests on, in a sentence or two
    contradicted: whether the tests contradict what the builder documents
    """

    status: str
    reason: str
    contradicted: bool = False


def null_status(found: OrderTests, documented: Documented | None = None) -> NullStatus:
    """`written` if any test contradicts random orders; else what is documented; else `consistent with random` if the
    tests that act on almost any question had enough of them. Documentation never overrides a test, and the reason
    shows both."""
    against = [test for test in found.tests if test.adjusted < LEVEL]
    if against:
        return _written(found, against, documented)
    seen = _nothing_found(found)
    if documented is not None:
        status = DOCUMENTED[documented.says]
        return NullStatus(status, f"`{status}`, as documented ({documented.source}). {seen}")
    if all(test.n_questions >= ENOUGH_QUESTIONS for test in _general(found)):
        passed = "which no test can prove; `drawn` is what the builder documents"
        return NullStatus(PASSED_ORDERS, f"`{PASSED_ORDERS}`, {passed}. {seen}")
    return NullStatus(UNDECIDED_ORDERS, f"`{UNDECIDED_ORDERS}`: {_too_few(found)}. {seen}")


def _general(found: OrderTests) -> list[OrderTest]:
    by_name = {test.name: test for test in found.tests}
    return [by_name.get(name, OrderTest(name, 0, "z")) for name in GENERAL]


def _written(found: OrderTests, against: Sequence[OrderTest], documented: Documented | None) -> NullStatus:
    shown = "; ".join(f"{test.name}, {_numbers(test)}" for test in against)
    reason = (
        f"`{WRITTEN_ORDERS}`: the orders are not random ({shown}), so a model may prefer the published ones without "
        "having seen them."
    )
    status = WRITTEN_ORDERS
    if found.pattern >= PATTERN:
        status = PATTERNED_ORDERS
        reason = reason.replace(f"`{WRITTEN_ORDERS}`", f"`{PATTERNED_ORDERS}`", 1)
        reason += (
            f" They follow a pattern of length or likeness: {number(found.pattern, 2)} standard deviations per "
            f"question without a guard, {PATTERN} or more."
        )
    if documented is None:
        return NullStatus(status, reason)
    if documented.says == WRITTEN_ORDERS:
        return NullStatus(status, f"{reason} That they are written is also documented ({documented.source}).")
    says = f"This contradicts what is documented: `{documented.says}` ({documented.source})."
    return NullStatus(status, f"{reason} {says}", contradicted=True)


def _numbers(test: OrderTest) -> str:
    return (
        f"{test.measure} {_observed(test)} where {_expected(test)} is expected, {counted(test.n_questions)}, "
        f"adjusted {pvalue_equation(test.adjusted)}"
    )


def _observed(test: OrderTest) -> str:
    return number(test.observed, 2 if test.measure == "share" else 1)


def _expected(test: OrderTest) -> str:
    return number(test.expected, 2 if test.measure == "share" else 0)


def _nothing_found(found: OrderTests) -> str:
    """What the tests could have seen."""
    acting = [test for test in found.tests if test.n_questions]
    if not acting:
        return "No test could act."
    able = [test for test in _general(found) if test.n_questions]
    effects = ", ".join(f"{test.name} {number(detectable(test.n_questions), 2)}" for test in able)
    power = f"; the mean effects per question that would be found with probability {POWER}: {effects}" if able else ""
    return f"None of {counted(len(acting), 'test')} finds anything at {LEVEL}{power} (in standard deviations)."


def detectable(n_questions: int) -> float:
    """Smallest mean of a question's standardised value that a `GENERAL` test of so many questions finds with
    probability `POWER`, if Holm asks most of it: normal approximation."""
    asked = norm.ppf(1 - LEVEL / N_TESTS / 2) + norm.ppf(POWER)
    return float(asked) / math.sqrt(n_questions)


def _too_few(found: OrderTests) -> str:
    if not found.tests:
        n = found.n_questions
        return f"there are {n} different questions with two options or more; {FEWEST_TESTED} are needed"
    acted = " and ".join(f"{test.name} on {counted(test.n_questions)}" for test in _general(found))
    return f"it was possible to test {acted}; {ENOUGH_QUESTIONS} each are needed to call orders random"


# ---------------------------------------------------------------------- shown

TEST_COLUMNS = ["test", "questions", "measure", "observed", "by chance", "p", "adjusted p"]


def as_markdown(found: OrderTests, status: NullStatus) -> str:
    """A row per test, and the status in words below."""
    lines = [TEST_COLUMNS, *(_cells(test) for test in found.tests)]
    table = [markdown_of(lines), ""] if found.tests else []
    left_out = f"{counted(found.n_left_out)} with fewer than two options, or copies of others, left out."
    return "\n".join([*table, status.reason, *([left_out] if found.n_left_out else [])])


def _cells(test: OrderTest) -> list[str]:
    error = f" ± {test.pvalue_error:.1g}" if test.pvalue_error else ""
    shown = [_observed(test), _expected(test), pvalue(test.pvalue) + error, pvalue(test.adjusted)]
    return [test.name, f"{test.n_questions:,}", test.measure, *shown]


def as_record(found: OrderTests, status: NullStatus) -> dict[str, object]:
    """For JSON: everything, with null for what is undefined."""
    tests = [{key: _defined(value) for key, value in asdict(test).items()} for test in found.tests]
    return {**asdict(status), "n_questions": found.n_questions, "n_left_out": found.n_left_out, "tests": tests}


def _defined(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value
