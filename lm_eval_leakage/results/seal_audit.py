"""The results of the audits of a sealed benchmark for each model: all tests, combined, and a look in the ledger.

The audit of a sealed benchmark as a text table with a sentence per model, and as a record for JSON.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.formatting import (
    DASH,
    count,
    counted,
    format_pvalue,
    number,
    pvalue_equation,
    whole_percent,
)
from lm_eval_leakage.results.sealed_logs import (
    LOG_TESTS,
    SealedLogs,
    ceiling_tests,
    not_run,
    sealed_logs,
)
from lm_eval_leakage.results.tabulating import Cells, aligned
from lm_eval_leakage.results.verdict import VerdictWord, word_without_evidence
from lm_eval_leakage.results.verdict_words import at_most_in_words, seen_in_words
from lm_eval_leakage.seal.folders import read_seal
from lm_eval_leakage.seal.looks_file import Ledger, add_looks, read_ledger
from lm_eval_leakage.stats.looks import STRONGER, USUAL_ALPHA, Look, accumulated_evalue, as_ranges, check_alpha
from lm_eval_leakage.stats.order_power import DETECT, DETECT_TIMES, SEEN_ERROR, Shares, seen_at_most
from lm_eval_leakage.stats.order_sum import holm_level
from lm_eval_leakage.stats.pooling import NAN
from lm_eval_leakage.stats.sealed import CombinedTest, SealedTest, SeenBound, best_bound, combined_test
from lm_eval_leakage.texts import visible

SEAL_COLUMNS = ["model", "test", "tested", "effect", "p", "e"]
LARGEST_LOG = 700.0  # of a number that a float can hold


@dataclass(frozen=True)
class SealedVerdict:
    """The verdict of a seal on one model.

    tests: those that were run, in the order in which they are shown
    combined: of the tests of different draws
    bound: on the number of questions that were seen, for this look alone
    look: at what number, as computed now; None if no test could be run
    written: its line in the ledger if the same answers were looked at before; None for a new look
    log_evalue, n_looks: of all looks at this model at different questions, and how many these are
    missing: tests that could have been run
    beside: p-values of the looks that were counted together with this one
    """

    model: str
    tests: tuple[SealedTest, ...]
    combined: CombinedTest
    bound: SeenBound
    look: Look | None = None
    written: Look | None = None
    log_evalue: float = NAN
    n_looks: int = 0
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    beside: tuple[float, ...] = ()

    @property
    def word(self) -> str:
        """Return the word by the level of the look, so that all looks together have the error of the ledger."""
        if self.look is None:
            return VerdictWord.NO_VERDICT
        if self.look.pvalue <= self.level():
            return VerdictWord.STRONG_EVIDENCE if self.look.pvalue <= self.level(STRONGER) else VerdictWord.EVIDENCE
        return word_without_evidence(self.at_most) if self.at_most else VerdictWord.NO_VERDICT

    def level(self, stronger: float = 1.0) -> float:
        """Return the p-value from which this look claims something, by Holm's method among those counted together;
        with `stronger`, at so small a part of their share."""
        assert self.look is not None
        return holm_level([self.look.pvalue, *self.beside], self.look.share / stronger)

    @cached_property
    def at_most(self) -> Shares:
        """Return, by exposures, the largest share of the questions that may have been seen, with 95 % confidence for
        this look alone; empty if no test's power is known."""
        return seen_at_most([test.power for test in self.used if test.power is not None], SEEN_ERROR)

    @property
    def used(self) -> list[SealedTest]:
        """Return the tests that are combined."""
        return [test for test in self.tests if test.name in self.combined.names]

    @property
    def sentence(self) -> str:
        """Return the word, what it rests on, and how many questions were seen at least."""
        return f"{self.word}: {_because(self)}"


@dataclass(frozen=True)
class SealAudit:
    """The verdicts on all models, problems that concern none of them, and the ledger with all looks in it."""

    name: str
    commitment: str
    verdicts: tuple[SealedVerdict, ...]
    problems: tuple[Problem, ...]
    ledger: Ledger


def seal_audit(runs: Sequence[Path], folder: Path, alpha: float = USUAL_ALPHA) -> SealAudit:
    """Return the verdict on every model in the runs, each a look that is written into the ledger of the private
    folder.

    alpha: probability of any false claim over all looks that this seal will ever have

    Raises ValueError for a folder that is no private folder, a ledger that was changed, or runs without an audit of
    this seal.
    """
    check_alpha(alpha)
    seal, problems = read_seal(folder), list[Problem]()
    read_ledger(folder, seal)  # before minutes of reading logs
    logs = sealed_logs(runs, seal, problems)
    without_looks = [_verdict(model_logs) for model_logs in logs]
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new_looks = []
    for model_logs, verdict in zip(logs, without_looks, strict=True):
        combined, places = verdict.combined, as_ranges(place for test in verdict.used for place in test.places)
        if combined.names:
            look = Look(
                0, model_logs.model, model_logs.digest, alpha, combined.pvalue, combined.log_evalue, places, now
            )
            new_looks.append(look)
    numbered = add_looks(folder, seal, new_looks)
    ledger = read_ledger(folder, seal)
    looks = {look.number: look for look in (*ledger.looks, *(look for look, _ in numbered))}
    next_looks = iter(numbered)
    verdicts = tuple(
        _at_look(verdict, *next(next_looks), looks.values()) if verdict.combined.names else verdict
        for verdict in without_looks
    )
    return SealAudit(seal.name, seal.commitment, verdicts, tuple(problems), ledger)


def _verdict(logs: SealedLogs) -> SealedVerdict:
    """Return the verdict without a look."""
    tests = (*(result for test in LOG_TESTS for result in test.of(logs)), *ceiling_tests(logs))
    bound = best_bound([hits for test in tests for hits in test.hits])
    missing = tuple(not_run(logs, tests))
    return SealedVerdict(logs.model, tests, combined_test(tests), bound, missing=missing, problems=logs.problems)


def _at_look(verdict: SealedVerdict, look: Look, written: Look | None, looks: Collection[Look]) -> SealedVerdict:
    log_evalue, n_looks = accumulated_evalue(looks, verdict.model)
    beside = tuple(other.pvalue for other in looks if other.first == look.first and other.number != look.number)
    return replace(verdict, look=look, written=written, log_evalue=log_evalue, n_looks=n_looks, beside=beside)


def _because(verdict: SealedVerdict) -> str:
    look, combined = verdict.look, verdict.combined
    if look is None:
        reasons = "; ".join(f"{test.name}: {test.reason}" for test in verdict.tests if test.reason)
        return f"no test could be run ({reasons})"
    is_found = look.pvalue <= verdict.level()
    names = " and ".join(filter(None, (", ".join(combined.names[:-1]), combined.names[-1])))
    is_bound = any(test.is_bound for test in verdict.used)
    among = f" among the {count(1 + len(verdict.beside))} reported together" if verdict.beside else ""
    finding = (
        f"by {names}, {pvalue_equation(look.pvalue, is_bound)}, {'below' if is_found else 'above'} "
        f"{format_pvalue(verdict.level())}, the level of look {look.number}{among} ({look.alpha:g} over all looks)"
    )
    if is_found:
        return f"{finding}{seen_in_words(verdict.bound)}"
    if verdict.word == VerdictWord.NO_VERDICT:
        return f"{finding}; how many questions may have been seen is not known"
    few = "" if verdict.word == VerdictWord.NONE_FOUND else "; too few are tested to exclude "
    wanted = f"{whole_percent(DETECT)} of the questions seen {DETECT_TIMES} times" if few else ""
    return f"{finding}{at_most_in_words(verdict.at_most)}{few}{wanted}"


def evalue(log_evalue: float) -> str:
    """Return an e-value as `1.3e+12`; a dash for NaN."""
    if math.isnan(log_evalue):
        return DASH
    return f"{math.exp(log_evalue):.2g}" if abs(log_evalue) < LARGEST_LOG else f"1e{log_evalue / math.log(10):+.0f}"


def as_table(audit: SealAudit) -> str:
    """Return a row per model and test, and a row of all together; below, a sentence per model."""
    lines: Cells = [SEAL_COLUMNS]
    for verdict in audit.verdicts:
        lines += [[visible(cell) for cell in line] for line in _lines(verdict)]
    sentences = [visible(f"{verdict.model}: {verdict.sentence}") for verdict in audit.verdicts]
    return "\n".join([aligned(lines), "", *sentences])


def _lines(verdict: SealedVerdict) -> Iterator[list[str]]:
    for test in verdict.tests:
        effect = f"{number(test.effect, 2)} ± {number(test.effect_error, 2)} {test.unit}" if test.was_run else DASH
        shown = [format_pvalue(test.pvalue, test.is_bound), evalue(test.log_evalue)]
        yield [verdict.model, test.name, counted(test.n, test.units), effect, *shown]
    if verdict.combined.names:
        combined = verdict.combined
        shown = [format_pvalue(combined.pvalue), evalue(combined.log_evalue)]
        yield [verdict.model, "together", counted(len(combined.names), "test"), "", *shown]


def remarks(verdict: SealedVerdict) -> Iterator[str]:
    """Return what was left out of the tests, what could not be run, and what the looks so far say together."""
    for test in verdict.tests:
        if test.reason:
            yield f"{test.name}: {test.reason}"
        for reason, n in test.left_out.items():
            yield f"{test.name}: {counted(n, test.units)} left out: {reason}"
    if verdict.missing:
        yield f"not run: {', '.join(verdict.missing)}"
    if verdict.look is not None and verdict.written is not None:
        yield f"the same answers were look {verdict.look.number}, at {verdict.look.time}; no new look is counted"
        now, then = pvalue_equation(verdict.look.pvalue), pvalue_equation(verdict.written.pvalue)
        if now != then:
            yield (
                f"look {verdict.look.number} was written with {then}, and the same answers now give {now}, which is "
                "shown: another version of this package computes something else"
            )
    if verdict.n_looks > 1:
        yield f"{count(verdict.n_looks)} looks at different questions together: e = {evalue(verdict.log_evalue)}"


def ledger_report(ledger: Ledger) -> str:
    """Return what to publish of the ledger, and why."""
    return (
        f"ledger: {counted(len(ledger.looks), 'look')}, head {ledger.head}; publish it where nothing can be changed "
        "later (a commit in a public repository, a timestamp service): whoever has the key can write another ledger, "
        "and only a published head shows that"
    )


def as_seal_record(audit: SealAudit) -> dict[str, object]:
    """Return everything about an audit, for JSON."""
    return {
        "benchmark": audit.name,
        "commitment": audit.commitment,
        "ledger": {"looks": len(audit.ledger.looks), "head": audit.ledger.head},
        "models": [_record(verdict) for verdict in audit.verdicts],
        "problems": [str(problem) for problem in audit.problems],
    }


def _record(verdict: SealedVerdict) -> dict[str, object]:
    look = None if verdict.look is None else asdict(verdict.look) | {"level": verdict.level()}
    tests = []
    for test in verdict.tests:
        kept = {field.name: getattr(test, field.name) for field in fields(test) if field.name != "power"}
        tests.append(kept | {"hits": {hits.rule: hits.n_hits for hits in test.hits}, "places": len(test.places)})
    return {
        "model": verdict.model,
        "word": verdict.word,
        "sentence": verdict.sentence,
        "tests": tests,
        "combined": asdict(verdict.combined),
        "seen_at_least": asdict(verdict.bound),
        "at_most": [] if look is None else [{"seen": n, "share": share} for n, share in verdict.at_most],
        "look": look,
        "is_new_look": look is not None and verdict.written is None,
        "log_evalue_of_looks": verdict.log_evalue,
        "n_looks": verdict.n_looks,
        "remarks": [*remarks(verdict), *map(str, verdict.problems)],
    }
