"""The logs of audits of a sealed benchmark, by model: which lines are of its questions, and what else was there.

The ceiling of a sealed benchmark, from an ordinary run of it: which of the equally right options were answered.

Another model's log-likelihoods of the wordings of a sealed benchmark, subtracted from those of each audited model.

Wordings differ by nats for reasons other than memory, and other models find the same ones likely: what they share
is subtracted, so that a faint memory shows. Null hypothesis: model and reference are independent of the key's draws.
Then so are the differences, and the test of wordings is exact, whatever the reference; only its power depends on it. A
model that is older than the seal has certainly seen neither the public nor the private folder.

Limits: a reference that has seen the published wordings hides what the model remembers; one that has seen the private
ones alone makes p-values too small. Both are told where the reference's own answers show them.

The tests that logs of a sealed benchmark allow: an entry in `LOG_TESTS` each, in the order in which they are shown.

A test of one more kind is a function of the lines that it reads, and its entry.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_leakage.detectors.wording_rank import wording_scores
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import audit_logs_of, lines_of_audits
from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.logs.runs import find_runs, without_tasks
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.registry import without_reference
from lm_eval_leakage.results.answered import accuracy_of, chosen_runs
from lm_eval_leakage.results.data_verdict import EVIDENCE_LEVEL, FEWEST_JUDGED, data_verdict, order_hits
from lm_eval_leakage.results.formatting import counted, pvalue_equation
from lm_eval_leakage.results.published_orders import SEALED_ORDERS
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.results.verdicts import statistic_of
from lm_eval_leakage.seal.drawn import COMMITMENT_KEY, Seal
from lm_eval_leakage.stats.order_power import OrderPower
from lm_eval_leakage.stats.order_sum import OrderSum, standard_scores, version_sum
from lm_eval_leakage.stats.pooling import Floats
from lm_eval_leakage.stats.sealed import (
    ORDER_DRAW,
    PLACE_DRAW,
    WORDING_DRAW,
    Ceiling,
    Hits,
    SealedTest,
    ceiling,
    hits_log_evalue,
    hits_of,
    hits_pvalue,
    of_order_sum,
)

SEAL_OF_ROW = "seal"  # the commitment, in the row of a shard
OWN_ANSWERS = (
    "was run with reference_log, which its table and its flags subtract; here the model's own answers are tested, "
    "minus those of `--reference` in the test of wordings"
)


@dataclass(frozen=True)
class SealedLine:
    """A line of an audit of this seal.

    places: of its questions in the public file: one, or those of a shard
    """

    places: tuple[int, ...]
    line: AuditLine


@dataclass(frozen=True)
class SealedLogs:
    """What is there of one model.

    lines: of the seal's questions, oldest first, by the detector's id without a `reference_log`, since the answers in
        a line are the model's own with and without one
    runs: everything, also without audits
    problems: what is missing or of something else
    reference: what is there of another model, whose log-likelihoods of the same wordings are subtracted; None without
        one, and where no wordings were asked
    """

    seal: Seal
    model: str
    lines: Mapping[str, Sequence[SealedLine]]
    runs: Sequence[Run]
    problems: tuple[Problem, ...] = ()
    reference: SealedLogs | None = None

    @property
    def digest(self) -> str:
        """Equal for the same answers to the same questions, minus the same answers of a reference or none, wherever
        their logs are."""
        found = {repr(_answers(one.line)) for own in self.lines.values() for one in own}
        if self.reference is not None:
            found.add(f"minus {self.reference.digest}")
        return sha256("\n".join(sorted(found)).encode("utf-8", "replace")).hexdigest()


def _answers(line: AuditLine) -> tuple[object, ...]:
    own = (line.loglikelihoods.tobytes().hex(), line.versions.tobytes().hex(), line.flagged, line.pvalue)
    return line.detector, line.question, line.reason, *own


def sealed_logs(
    places: Sequence[Path], seal: Seal, wanted: Callable[[AuditLine], bool], problems: list[Problem]
) -> list[SealedLogs]:
    """The logs of each model, in the order of their first runs.

    wanted: whether some test uses a line; others are not kept
    problems: gets those that are of no model

    Raises ValueError if there is no run, or no audit of the seal's questions.
    """
    by_model: dict[str, list[Run]] = defaultdict(list)
    for run in find_runs(places, problems):
        by_model[run.key].append(run)
    found = [_of_model(runs, seal, wanted) for runs in by_model.values()]
    kept = [logs for logs in found if logs.lines]
    if not kept:
        told = "; ".join(str(problem) for logs in found for problem in logs.problems[:3])
        raise ValueError(
            f"no audit of {seal.name!r} is in {', '.join(map(str, places))}; run {seal.name}_leakage_seal with "
            f"--metadata seal=PRIVATE_FOLDER, --log_samples and --output_path{f' ({told})' if told else ''}"
        )
    for logs in found:
        if not logs.lines:
            problems.append(Problem(f"{logs.model}: no audit of {seal.name!r}; left out"))
            problems += logs.problems
    return kept


def _of_model(runs: Sequence[Run], seal: Seal, wanted: Callable[[AuditLine], bool]) -> SealedLogs:
    problems: list[Problem] = []
    own = [_without_other_seals(run, seal, problems) for run in runs]
    finder = _Finder(seal)
    lines: dict[str, list[SealedLine]] = defaultdict(list)
    subtracted = set[str]()
    for task, line in lines_of_audits(own, problems):
        found = finder.places_of(task, line)
        if found and wanted(line):
            key = without_reference(line.detector)
            lines[key].append(SealedLine(found, line))
            if key != line.detector:
                subtracted.add(task)
    problems += [*finder.problems(), *(Problem(f"{task} {OWN_ANSWERS}") for task in sorted(subtracted))]
    return SealedLogs(seal, runs[-1].model, lines, runs, tuple(problems))


def _without_other_seals(run: Run, seal: Seal, problems: list[Problem]) -> Run:
    """The run without audits that were made with another seal."""
    configs = run.results.get("configs") or {}
    others = [
        task
        for task in audit_logs_of(run)
        if (metadata := (configs.get(task) or {}).get("metadata"))
        and isinstance(metadata, Mapping)
        and metadata.get(COMMITMENT_KEY, seal.commitment) != seal.commitment
    ]
    for task in others:
        made = str(configs[task]["metadata"][COMMITMENT_KEY])
        what = f"{task} was run with another seal (commitment {made[:12]}..., not {seal.commitment[:12]}...); left out"
        problems.append(Problem(what, run.results_file))
    return without_tasks(run, others)


class _Finder:
    """Finds the questions of a seal in the lines of audits, and counts what is of something else."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._known: dict[str, tuple[int, ...]] = {}
        self._foreign: dict[str, set[str]] = defaultdict(set)
        self._n_own: Counter[str] = Counter()

    def places_of(self, task: str, line: AuditLine) -> tuple[int, ...]:
        """Empty for a line of another benchmark, or of shards that no seal put in order."""
        if line.question not in self._known:
            self._known[line.question] = self._places(line)
        places = self._known[line.question]
        if places:
            self._n_own[task] += 1
        else:
            self._foreign[task].add(line.question)
        return places

    def _places(self, line: AuditLine) -> tuple[int, ...]:
        if not line.is_of_shard:
            found = None if line.read is None else self._seal.find(line.read)
            return () if found is None else (int(found.id),)
        if line.doc.get(SEAL_OF_ROW) != self._seal.commitment:
            return ()
        places = tuple(int(place) for place in line.doc["members"])
        return places if all(0 <= place < len(self._seal.questions) for place in places) else ()

    def problems(self) -> Iterator[Problem]:
        for task, foreign in self._foreign.items():
            n, seal = counted(len(foreign), "row"), repr(self._seal.name)
            own = f"{task}: {n} not of the seal of {seal}; left out"
            yield Problem(own if self._n_own[task] else f"{task} is of another benchmark than {seal} ({n}); left out")


CEILING_TEST = "ceiling"


def ceiling_tests(logs: SealedLogs) -> list[SealedTest]:
    """A test of each ordinary run of the benchmark; none if no question has several equally right options. They are
    shown, and never combined with others."""
    if not any(len(question.equally_right) > 1 for question in logs.seal.questions):
        return []
    runs = chosen_runs(logs.runs, [])
    found = {(run.task, run.n_shot): ceiling_of(logs.seal, run.answers([])) for run in runs if run.log is not None}
    tested = {key: one for key, one in found.items() if one.n}
    names = {key: CEILING_TEST if len(tested) == 1 else f"{CEILING_TEST} ({key[0]}, {key[1]} shots)" for key in tested}
    return [_as_test(names[key], one) for key, one in tested.items()]


def _as_test(name: str, found: Ceiling) -> SealedTest:
    return SealedTest(
        name,
        n=found.n,
        effect=(found.n_hits - found.expected) / found.n,
        effect_error=found.expected_error / found.n,
        unit="accuracy above the ceiling",
        pvalue=found.pvalue,
        log_evalue=found.log_evalue,
    )


def ceiling_of(seal: Seal, answers: Iterable[AnnotatedQuestion]) -> Ceiling:
    """From a run's answers to the published questions; those that the seal does not have, and those without a metric
    that says whether they are correct, are left out."""
    n_right = {content_id(one.wordings[0], one.options): max(1, len(one.equally_right)) for one in seal.questions}
    found = [
        (is_correct, n_right[answer.content])
        for answer in answers
        if answer.content in n_right and (is_correct := _is_correct(answer)) is not None
    ]
    return ceiling([is_correct for is_correct, _ in found], [n for _, n in found])


def _is_correct(answer: AnnotatedQuestion) -> bool | None:
    key = accuracy_of(answer.scores)
    return None if key is None or answer.scores[key] not in (0, 1) else bool(answer.scores[key])


SAME_ANSWERS = 1e-3  # nats; the same weights differ by less in single precision, whatever is in a batch
OLDER = "take a model that is older than the seal"


def reference_in(place: Path, seal: Seal, problems: list[Problem]) -> SealedLogs:
    """The answers of the one model whose audits a folder holds.

    problems: gets what is missing there, and whether the reference may have seen what it must not

    Raises ValueError, with the remedy, if the folder holds no answers to wordings of this seal, or those of several
    models.
    """
    try:
        found = sealed_logs([place], seal, WORDINGS_TEST.reads, problems)
    except ValueError as error:
        raise ValueError(f"reference is {str(place)!r}: {error}") from error
    if len(found) > 1:
        names = ", ".join(logs.model for logs in found)
        raise ValueError(f"reference is {str(place)!r}, which holds audits of {names}; name the folder of one")
    (reference,) = found
    if not any(wording_answers(seal, lines) for lines in reference.lines.values()):
        raise ValueError(
            f"reference is {str(place)!r}, where no wording was scored; run {seal.name}_{WORDINGS_TEST.audit} with it"
        )
    problems += [*reference.problems, *_doubts(reference)]
    return reference


def with_reference(logs: SealedLogs, reference: SealedLogs) -> SealedLogs:
    """The logs with the reference's answers to the same wordings; unchanged if no wordings were asked.

    Raises ValueError if the reference is the model itself.
    """
    asked = {
        key: {one.places for one in lines}
        for key, lines in logs.lines.items()
        if any(WORDINGS_TEST.reads(one.line) for one in lines)
    }
    lines = {key: [one for one in reference.lines.get(key, ()) if one.places in own] for key, own in asked.items()}
    if not asked:
        return logs
    found = replace(logs, reference=replace(reference, lines=lines))
    if logs.runs[-1].key == reference.runs[-1].key:
        raise ValueError(
            f"{reference.model} is the reference and is to be audited, too, but minus itself it says nothing; name "
            "the folders of the other models, or another reference"
        )
    differences = [float(np.ptp(own)) for own in _differences(found)]
    if differences and max(differences) < SAME_ANSWERS:
        raise ValueError(
            f"{reference.model}, the reference, answers as {logs.model} does, so that it is the same model by another "
            f"name, and its answers minus its own say nothing; {OLDER} and another one"
        )
    return found


def _differences(logs: SealedLogs) -> Iterator[Floats]:
    """Of each question that both were asked, in nats."""
    assert logs.reference is not None
    for key, lines in logs.reference.lines.items():
        others = wording_answers(logs.seal, lines)
        own = wording_answers(logs.seal, logs.lines[key])
        yield from (own[places] - others[places] for places in own.keys() & others.keys())


def _doubts(reference: SealedLogs) -> Iterator[Problem]:
    for logs, which, then in (
        (reference, "published", "hides what other models remember"),
        (_negated(reference), "private", "makes p-values of other models too small"),
    ):
        for test in WORDINGS_TEST.of(logs):
            if test.was_run and test.pvalue <= EVIDENCE_LEVEL:
                found = f"prefers the {which} wordings ({pvalue_equation(test.pvalue, test.is_bound)})"
                yield Problem(f"{logs.model}, the reference, {found}: if it has seen them, it {then}; {OLDER}")


def _negated(logs: SealedLogs) -> SealedLogs:
    """As of a model that finds likely what this one finds unlikely."""

    def negated(one: SealedLine) -> SealedLine:
        return replace(one, line=replace(one.line, versions=array("d", (-value for value in one.line.versions))))

    return replace(logs, lines={key: [negated(one) for one in lines] for key, lines in logs.lines.items()})


FEWEST_SHARDS = 5
ORDER_KEPT = "its order was kept by the author"
NO_ANSWERS = "its answers are missing"


@dataclass(frozen=True)
class LogTest:
    """name: as shown
    audit: the audit whose logs it reads
    draw: which of the key's draws it tests
    reads: whether it uses a line
    test: from everything of a model, and the lines of one detector, oldest first
    """

    name: str
    audit: str
    draw: str
    reads: Callable[[AuditLine], bool]
    test: Callable[[SealedTest, SealedLogs, Sequence[SealedLine]], SealedTest]

    def of(self, logs: SealedLogs) -> list[SealedTest]:
        """The tests by each detector that was run, the one with the most questions first; empty if none was."""
        own = {key: [one for one in lines if self.reads(one.line)] for key, lines in logs.lines.items()}
        ordered = sorted(own.items(), key=lambda pair: (-len({one.places for one in pair[1]}), pair[0]))
        tested = [key for key, lines in ordered if any(one.line.reason is None for one in lines)]
        found = [(key, lines) for key, lines in ordered if lines and (key in tested or not tested)]
        names = [self.name if len(found) == 1 else f"{self.name} ({key})" for key, _ in found]
        tests = [SealedTest(name, self.draw) for name in names]
        return [self.test(test, logs, lines) for test, (_, lines) in zip(tests, found, strict=True)]


def is_read(line: AuditLine) -> bool:
    """Whether some test uses a line."""
    return any(test.reads(line) for test in LOG_TESTS)


def all_tests(logs: SealedLogs) -> list[SealedTest]:
    """Those that the logs allow."""
    return [*(found for test in LOG_TESTS for found in test.of(logs)), *ceiling_tests(logs)]


def not_run(logs: SealedLogs, tests: Iterable[SealedTest]) -> list[str]:
    """What else could have been run, in words."""
    found = [test.name for test in tests]
    has_wordings = any(len(question.wordings) > 1 for question in logs.seal.questions)
    missing = [test for test in LOG_TESTS if not any(name.startswith(test.name) for name in found)]
    return [f"{test.name} (TASK_{test.audit})" for test in missing if has_wordings or test.name != WORDINGS_TEST.name]


def by(statistic: str) -> Callable[[AuditLine], bool]:
    return lambda line: statistic_of(line.detector) == statistic


Used = tuple[list[SealedLine], dict[str, int]]  # lines, and how many others cannot be used, by reason


def _sorted(lines: Iterable[SealedLine], why_not: Callable[[SealedLine], str | None]) -> Used:
    """The lines that a test uses, the newest of each question or shard; one that was skipped only if it never was
    tested."""
    newest = {one.places: one for one in sorted(lines, key=lambda one: one.line.reason is None)}
    reasons = {places: one.line.reason or why_not(one) for places, one in newest.items()}
    used = [newest[places] for places in sorted(newest) if not reasons[places]]
    return used, dict(Counter(filter(None, reasons.values())))


def _of_used(test: SealedTest, found: Used, **more: Any) -> SealedTest:
    places = frozenset(place for one in found[0] for place in one.places)
    return replace(test, left_out=found[1], places=places, **more)


# ---------------------------------------------------------------------- wordings


def wording_answers(seal: Seal, lines: Iterable[SealedLine]) -> dict[tuple[int, ...], Floats]:
    """Log-likelihoods of the wordings of each question that was answered, nats, the published one first."""
    return {one.places: np.array(one.line.versions) for one in _sorted(lines, partial(_no_wordings, seal))[0]}


def _no_wordings(seal: Seal, one: SealedLine) -> str | None:
    own = one.line.versions
    is_complete = len(own) == len(seal.questions[one.places[0]].wordings) and np.isfinite(own).all()
    return None if is_complete else NO_ANSWERS


def _wordings(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    """Of the model's log-likelihoods minus the reference's, if there is one."""
    others = None
    if logs.reference is not None:
        key = without_reference(lines[0].line.detector)
        others = wording_answers(logs.seal, logs.reference.lines.get(key, ()))
        test = replace(test, name=f"{test.name}, minus {logs.reference.model}")

    def why_not(one: SealedLine) -> str | None:
        is_asked = others is None or one.places in others
        return _no_wordings(logs.seal, one) or (None if is_asked else "the reference was not asked it")

    found = _sorted(lines, why_not)
    scores = []
    for one in found[0]:
        texts = [text.strip() for text in logs.seal.questions[one.places[0]].wordings]
        own = np.array(one.line.versions) - (0.0 if others is None else others[one.places])
        scores.append(wording_scores(own.tolist(), texts))
    test = _of_used(test, found, hits=(hits_of(WORDINGS_TEST.name, scores),))
    return _of_sum(test, version_sum(scores), FEWEST_JUDGED)


def _of_sum(test: SealedTest, found: OrderSum, fewest: int) -> SealedTest:
    if found.n < fewest:
        return replace(test, n=found.n, reason=f"{counted(found.n, test.units)}; at least {fewest} are needed")
    return of_order_sum(test, found)


# ---------------------------------------------------------------------- option orders


def _is_of_orders(line: AuditLine) -> bool:
    """Also a question that was skipped, whose line does not have the status of the orders."""
    return line.published_orders is not None or (line.reason is not None and by("max_order")(line))


def _not_drawn(seal: Seal, one: SealedLine) -> str | None:
    return None if seal.questions[one.places[0]].order_drawn else ORDER_KEPT


def _orders(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, partial(_not_drawn, logs.seal))
    answers = [OrderAnswers(tuple(one.line.loglikelihoods), SEALED_ORDERS) for one in found[0]]
    verdict = data_verdict(answers)
    scores = [standard_scores(np.array(one.loglikelihoods)) for one in answers]
    power = OrderPower([np.exp(own) for own in scores if own is not None])
    test = _of_used(test, found, hits=order_hits(answers), power=power)
    return _of_sum(test, replace(verdict.tested, n=verdict.n), FEWEST_JUDGED)


# ---------------------------------------------------------------------- guesses by chat


def _guesses(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, partial(_not_drawn, logs.seal))
    guesses = [one.line for one in found[0] if one.line.null_rate]
    hits, rates = [bool(guess.flagged) for guess in guesses], [guess.null_rate or 0.0 for guess in guesses]
    test = _of_used(test, found, n=len(found[0]))
    if not guesses:
        return replace(test, reason="no reply names a candidate")
    spread = sum(rate * (1 - rate) for rate in rates)
    return replace(
        test,
        effect=(sum(hits) - sum(rates)) / len(hits),
        effect_error=spread**0.5 / len(hits),
        unit="hits above chance",
        pvalue=hits_pvalue(hits, rates),
        log_evalue=hits_log_evalue(hits, rates),
        hits=(Hits("chat guesses", sum(hits), tuple(rates)),),
    )


# ---------------------------------------------------------------------- question order


def _question_order(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, lambda one: None if len(one.line.versions) > 1 else NO_ANSWERS)
    tested = version_sum([one.line.versions for one in found[0]])
    test = _of_used(test, found, units="shard")
    return _of_sum(test, tested, FEWEST_SHARDS)


WORDINGS_TEST = LogTest("wordings", "leakage_wording", WORDING_DRAW, by("wording_rank"), _wordings)
LOG_TESTS = (
    WORDINGS_TEST,
    LogTest("option orders", "leakage_perm", ORDER_DRAW, _is_of_orders, _orders),
    LogTest("chat guesses", "leakage_sealed_chat", ORDER_DRAW, by("published_guess"), _guesses),
    LogTest("question order", "leakage_shared_likelihood", PLACE_DRAW, by("shared_likelihood"), _question_order),
)
