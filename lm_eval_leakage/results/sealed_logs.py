"""The logs of audits of a sealed benchmark, by model, and the tests that they allow: an entry in `LOG_TESTS` each, in
the order in which they are shown. A test of one more kind is a function of the lines that it reads, and its entry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from lm_eval_leakage.detectors.wording_rank import wording_scores
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import audit_logs_of, lines_of_audits
from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.logs.runs import find_runs, without_tasks
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.questions.statements import texts_by_path
from lm_eval_leakage.records import OrderAnswers, Question
from lm_eval_leakage.registry import without_reference
from lm_eval_leakage.results.data_verdict import data_verdict, order_hits
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.results.task_runs import accuracy_metric, choose_runs
from lm_eval_leakage.results.verdict import FEWEST_JUDGED
from lm_eval_leakage.results.verdicts import statistic_of
from lm_eval_leakage.seal.drawn import COMMITMENT_KEY, Seal, SealedQuestion
from lm_eval_leakage.stats.crossed_blocks import block_scores, crossed_blocks, preference
from lm_eval_leakage.stats.filler_power import FillerPower
from lm_eval_leakage.stats.order_power import OrderPower
from lm_eval_leakage.stats.order_sum import OrderSum, standard_scores, version_sum
from lm_eval_leakage.stats.sealed import (
    FILLER_DRAW,
    ORDER_DRAW,
    PLACE_DRAW,
    WORDING_DRAW,
    Hits,
    SealedTest,
    hits_of,
    of_hits,
)

SEAL_OF_ROW = "seal"  # the commitment, in the row of a shard
OWN_ANSWERS = (
    "was run with reference_log, which its table and its flags subtract; here the model's own answers are tested"
)
FEWEST_SHARDS = 5
ORDER_KEPT = "its order was kept by the author"
NO_ANSWERS = "its answers are missing"

Places = tuple[int, ...]  # of a line's questions in the public file: one, or those of a shard
Lines = Mapping[Places, AuditLine]


@dataclass(frozen=True)
class SealedLogs:
    """The logs of one model.

    lines: of the seal's questions, by the detector's id without a `reference_log`, since the answers in a line are the
        model's own with and without one; the newest of each question or shard, one that was skipped only if it never
        was tested
    runs: everything, also without audits
    problems: what is missing or of something else
    """

    seal: Seal
    model: str
    lines: Mapping[str, Lines]
    runs: Sequence[Run]
    problems: tuple[Problem, ...] = ()

    @property
    def digest(self) -> str:
        """Return a digest that is equal for the same answers to the same questions, wherever their logs are."""
        answers = {repr(_answers(line)) for of_detector in self.lines.values() for line in of_detector.values()}
        return sha256("\n".join(sorted(answers)).encode("utf-8", "replace")).hexdigest()


def _answers(line: AuditLine) -> tuple[object, ...]:
    values = (line.loglikelihoods.tobytes().hex(), line.versions.tobytes().hex(), line.flagged, line.pvalue)
    of_fillers = () if line.fillers is None else (line.fillers.loglikelihoods,)
    return line.detector, line.question, line.reason, *values, *of_fillers


# ---------------------------------------------------------------------- reading


def sealed_logs(places: Sequence[Path], seal: Seal, problems: list[Problem]) -> list[SealedLogs]:
    """Return the logs of each model, in the order of their first runs.

    problems: gets those that are of no model

    Raises ValueError if there is no run, or no audit of the seal's questions.
    """
    by_model = grouped(find_runs(places, problems), lambda run: run.key)
    all_logs = [_of_model(runs, seal) for runs in by_model.values()]
    kept = [logs for logs in all_logs if logs.lines]
    if not kept:
        reasons = "; ".join(str(problem) for logs in all_logs for problem in logs.problems[:3])
        raise ValueError(
            f"no audit of {seal.name!r} is in {', '.join(map(str, places))}; run {seal.name}_leakage_seal with "
            f"--metadata seal=PRIVATE_FOLDER, --log_samples and --output_path{f' ({reasons})' if reasons else ''}"
        )
    for logs in all_logs:
        if not logs.lines:
            problems.append(Problem(f"{logs.model}: no audit of {seal.name!r}; left out"))
            problems += logs.problems
    return kept


def _of_model(runs: Sequence[Run], seal: Seal) -> SealedLogs:
    problems: list[Problem] = []
    lines: dict[str, dict[Places, AuditLine]] = defaultdict(dict)
    foreign: dict[str, set[str]] = defaultdict(set)
    subtracted = set[str]()
    for task, line in lines_of_audits([_without_other_seals(run, seal, problems) for run in runs], problems):
        places, key = _places(line, seal), without_reference(line.detector)
        if not places:
            foreign[task].add(line.question)
            continue
        if not any(test.reads(line) for test in LOG_TESTS):
            continue
        earlier = lines[key].get(places)
        if earlier is None or line.reason is None or earlier.reason is not None:
            lines[key][places] = line
        if key != line.detector:
            subtracted.add(task)
    for task, others in foreign.items():
        problems.append(Problem(f"{task}: {counted(len(others), 'row')} not of the seal of {seal.name!r}; left out"))
    problems += [Problem(f"{task} {OWN_ANSWERS}") for task in sorted(subtracted)]
    return SealedLogs(seal, runs[-1].model, lines, runs, tuple(problems))


def _places(line: AuditLine, seal: Seal) -> Places:
    """Return the places of a line; empty for a line of another benchmark, or of shards that no seal put in order."""
    if not line.is_of_shard:
        published = _published_in(line, seal)
        return () if published is None else (int(published.id),)
    if line.doc.get(SEAL_OF_ROW) != seal.commitment:
        return ()
    places = tuple(int(place) for place in line.doc["members"])
    return places if all(0 <= place < len(seal.questions) for place in places) else ()


def _published_in(line: AuditLine, seal: Seal) -> SealedQuestion | None:
    """Return the sealed question of a line; of texts without options, the one that stands in its row."""
    if not seal.is_of_texts:
        return None if line.read is None else seal.find(line.read)
    for _, text in texts_by_path(line.doc):
        published = seal.find(Question("", text, ()))
        if published is not None:
            return published
    return None


def _without_other_seals(run: Run, seal: Seal, problems: list[Problem]) -> Run:
    """Return the run without audits that were made with another seal, or, of texts without options, without any."""
    configs = run.results.get("configs") or {}
    metadata = {task: (configs.get(task) or {}).get("metadata") or {} for task in audit_logs_of(run)}
    sealed_by = {
        task: str(settings[COMMITMENT_KEY]) for task, settings in metadata.items() if COMMITMENT_KEY in settings
    }
    others = {task: other for task, other in sealed_by.items() if other != seal.commitment}
    for task, other in others.items():
        what = (
            f"{task} was run with another seal (commitment {other[:12]}..., not {seal.commitment[:12]}...); left out"
        )
        problems.append(Problem(what, run.results_file))
    tasks = [task for task in metadata if task in configs] if seal.is_of_texts else []
    unsealed = [task for task in tasks if task not in sealed_by]
    for task in unsealed:
        what = f"{task} was run without the seal; run it again with --metadata seal=PRIVATE_FOLDER; left out"
        problems.append(Problem(what, run.results_file))
    return without_tasks(run, {*others, *unsealed})


# ---------------------------------------------------------------------- tests


@dataclass(frozen=True)
class LogTest:
    """A test of the logs of a sealed benchmark.

    name: as shown
    audit: the audit whose logs it reads
    draw: which of the key's draws it tests
    reads: whether it uses a line
    test: from everything of a model, and the lines of one detector
    """

    name: str
    audit: str
    draw: str
    reads: Callable[[AuditLine], bool]
    test: Callable[[SealedTest, SealedLogs, Lines], SealedTest]

    def lines_of(self, logs: SealedLogs) -> dict[str, Lines]:
        """Return the lines that it reads, by the detector's id."""
        read = {
            key: {places: line for places, line in lines.items() if self.reads(line)}
            for key, lines in logs.lines.items()
        }
        return {key: lines for key, lines in read.items() if lines}

    def of(self, logs: SealedLogs) -> list[SealedTest]:
        """Return the tests by each detector that was run, the one with the most questions first; empty if none was."""
        by_detector = sorted(self.lines_of(logs).items(), key=lambda pair: (-len(pair[1]), pair[0]))
        answered = [(key, lines) for key, lines in by_detector if any(line.reason is None for line in lines.values())]
        by_detector = answered or by_detector
        names = [self.name if len(by_detector) == 1 else f"{self.name} ({key})" for key, _ in by_detector]
        tests = [SealedTest(name, self.draw) for name in names]
        return [self.test(test, logs, lines) for test, (_, lines) in zip(tests, by_detector, strict=True)]


def not_run(logs: SealedLogs, tests: Iterable[SealedTest]) -> list[str]:
    """Return what else could have been run, in words."""
    names = [test.name for test in tests]
    drawn = _draws_of(logs.seal)
    missing = [test for test in LOG_TESTS if not any(name.startswith(test.name) for name in names)]
    return [f"{test.name} (TASK_{test.audit})" for test in missing if test.draw in drawn]


def _draws_of(seal: Seal) -> set[str]:
    """Return what the key of a seal drew."""
    if seal.is_of_texts:
        return {FILLER_DRAW, PLACE_DRAW}
    has_wordings = any(len(question.wordings) > 1 for question in seal.questions)
    return {ORDER_DRAW, PLACE_DRAW} | ({WORDING_DRAW} if has_wordings else set())


def _by(statistic: str) -> Callable[[AuditLine], bool]:
    return lambda line: statistic_of(line.detector) == statistic


def _used(
    test: SealedTest, lines: Lines, why_not: Callable[[Places, AuditLine], str | None]
) -> tuple[SealedTest, Lines]:
    """Return the test with what it leaves out, and the lines that it uses, in the order of the public file."""
    reasons = {places: lines[places].reason or why_not(places, lines[places]) for places in sorted(lines)}
    used = {places: lines[places] for places, reason in reasons.items() if not reason}
    left_out = dict(Counter(filter(None, reasons.values())))
    return replace(test, left_out=left_out, places=frozenset(place for members in used for place in members)), used


def _of_sum(test: SealedTest, total: OrderSum, fewest: int) -> SealedTest:
    """Return the test with the result of T, if there are enough questions or shards."""
    if total.n < fewest:
        return replace(test, n=total.n, reason=f"{counted(total.n, test.units)}; at least {fewest} are needed")
    return replace(
        test,
        n=total.n,
        effect=total.mean,
        effect_error=total.mean_error,
        unit="sd",
        pvalue=total.pvalue,
        is_bound=total.is_bound,
        log_evalue=total.log_evalue,
    )


def _wordings(test: SealedTest, logs: SealedLogs, lines: Lines) -> SealedTest:
    wordings = {places: logs.seal.questions[places[0]].wordings for places in lines}

    def why_not(places: Places, line: AuditLine) -> str | None:
        is_complete = len(line.versions) == len(wordings[places]) and np.isfinite(line.versions).all()
        return None if is_complete else NO_ANSWERS

    test, used = _used(test, lines, why_not)
    scores = [
        wording_scores([*line.versions], [text.strip() for text in wordings[places]]) for places, line in used.items()
    ]
    test = replace(test, hits=(hits_of(WORDINGS_TEST.name, scores),))
    return _of_sum(test, version_sum(scores), FEWEST_JUDGED)


def _is_of_orders(line: AuditLine) -> bool:
    """Return whether a line is of orders, also of a question that was skipped, whose line does not have the status of
    the orders."""
    return line.published_orders is not None or (line.reason is not None and _by("max_order")(line))


def _drawn(test: SealedTest, logs: SealedLogs, lines: Lines) -> tuple[SealedTest, Lines]:
    """Return the lines of questions whose order a key drew."""
    return _used(test, lines, lambda places, _: None if logs.seal.questions[places[0]].order_drawn else ORDER_KEPT)


def _orders(test: SealedTest, logs: SealedLogs, lines: Lines) -> SealedTest:
    test, used = _drawn(test, logs, lines)
    answers = [OrderAnswers(tuple(line.loglikelihoods), OrderStatus.SEALED) for line in used.values()]
    verdict = data_verdict(answers)
    scores = [standard_scores(np.array(answer.loglikelihoods)) for answer in answers]
    power = OrderPower([np.exp(values) for values in scores if values is not None])
    test = replace(test, hits=order_hits(answers), power=power)
    return _of_sum(test, replace(verdict.tested, n=verdict.n), FEWEST_JUDGED)


def _guesses(test: SealedTest, logs: SealedLogs, lines: Lines) -> SealedTest:
    test, used = _drawn(test, logs, lines)
    guesses = [(bool(line.flagged), line.null_rate) for line in used.values() if line.null_rate]
    if not guesses:
        return replace(test, n=len(used), reason="no reply names a candidate")
    hits, rates = zip(*guesses, strict=True)
    tested = of_hits(test, hits, rates, "hits above chance")
    return replace(tested, n=len(used), hits=(Hits("chat guesses", sum(hits), rates),))


def _question_order(test: SealedTest, logs: SealedLogs, lines: Lines) -> SealedTest:
    test, used = _used(test, lines, lambda _, line: None if len(line.versions) > 1 else NO_ANSWERS)
    tested = version_sum([line.versions for line in used.values()])
    return _of_sum(replace(test, units="shard"), tested, FEWEST_SHARDS)


def _is_of_fillers(line: AuditLine) -> bool:
    """Return whether a line is of fillers, also of a row that was skipped. Fillers that no key drew were exchanged in
    other blocks."""
    if line.fillers is not None:
        return line.fillers.is_drawn
    return line.reason is not None and _by("crossed_blocks")(line)


def _fillers(test: SealedTest, logs: SealedLogs, lines: Lines) -> SealedTest:
    def why_not(places: Places, line: AuditLine) -> str | None:
        exchange, answers = logs.seal.questions[places[0]].exchange, line.fillers
        if exchange is None or answers is None:
            return NO_ANSWERS
        is_of_block = (answers.block, answers.place) == (exchange.block.name, exchange.block.place)
        return None if is_of_block else NO_ANSWERS

    test, used = _used(test, lines, why_not)
    blocks = crossed_blocks(line.fillers for line in used.values() if line.fillers is not None)
    preferred = preference([block_scores(block.layouts) for block in blocks], [block.size for block in blocks])
    if blocks:
        test = replace(test, power=FillerPower(preferred.effect, preferred.n_rows, preferred.null_error))
    return _of_sum(
        test,
        replace(preferred.test, n=preferred.n_rows, mean=preferred.effect, mean_error=preferred.error),
        FEWEST_JUDGED,
    )


WORDINGS_TEST = LogTest("wordings", "leakage_wording", WORDING_DRAW, _by("wording_rank"), _wordings)
LOG_TESTS = (
    WORDINGS_TEST,
    LogTest("option orders", "leakage_perm", ORDER_DRAW, _is_of_orders, _orders),
    LogTest("chat guesses", "leakage_sealed_chat", ORDER_DRAW, _by("published_guess"), _guesses),
    LogTest("fillers", "leakage_fillers", FILLER_DRAW, _is_of_fillers, _fillers),
    LogTest("question order", "leakage_shared_likelihood", PLACE_DRAW, _by("shared_likelihood"), _question_order),
)


# ---------------------------------------------------------------------- the ceiling


def ceiling_tests(logs: SealedLogs) -> list[SealedTest]:
    """Return a test of each ordinary run of the benchmark, see `stats.sealed`; none if no question has several equally
    right options. They are shown, and never combined with others."""
    several = {
        content_id(question.wordings[0], question.options): 1 / len(question.equally_right)
        for question in logs.seal.questions
        if len(question.equally_right) > 1
    }
    if not several:
        return []
    tests = {}
    for run in choose_runs(logs.runs, []):
        answered = run.read_answers([]) if run.log is not None else ()
        hits = [
            (is_right, several[answer.content])
            for answer in answered
            if answer.content in several
            for is_right in _is_correct(answer)
        ]
        if hits:
            correct, rates = zip(*hits, strict=True)
            test = of_hits(SealedTest("ceiling"), correct, rates, "accuracy above the ceiling")
            tests[run.task, run.n_shot] = test
    if len(tests) == 1:
        return [*tests.values()]
    return [replace(test, name=f"ceiling ({task}, {n_shot} shots)") for (task, n_shot), test in tests.items()]


def _is_correct(answer: AnnotatedQuestion) -> list[bool]:
    """Return whether the answer is correct; empty without a metric that says so."""
    key = accuracy_metric(answer.scores)
    return [] if key is None or answer.scores[key] not in (0, 1) else [bool(answer.scores[key])]
