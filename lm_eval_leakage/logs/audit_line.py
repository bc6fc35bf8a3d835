"""The harness's own fields in a line of a samples log: the requests and the model's responses.

The line of an audit's samples log: its schema (docs/log_format.md). Read here, and written by `line_writer`.

A line holds one statistic's verdict on one question. The harness writes it, with its own keys next to ours.

Writes the lines of an audit's samples log; nothing else does.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any

from lm_eval_leakage.logs.run import NOT_AS_WRITTEN, Problem
from lm_eval_leakage.questions.fields import content_id, question_from_doc
from lm_eval_leakage.records import Measurement, OrderAnswers, Question, Skipped, UntestableQuestion, Verdict
from lm_eval_leakage.stats.known_scores import Calibrated, class_of
from lm_eval_leakage.stats.order_power import CONTROL_FORMS

Scored = tuple[str, str, float]  # context, continuation, log-likelihood of the latter (nats)


def scored_texts(sample: Mapping[str, Any]) -> Iterator[Scored]:
    """The scored texts in a line of a log; generations and texts without a continuation are skipped."""
    for arguments, response in zip(sample["arguments"].values(), sample["resps"], strict=True):
        if isinstance(arguments.get("arg_1"), str) and isinstance(response[0], list):
            yield arguments["arg_0"], arguments["arg_1"], float(response[0][0])


Scalar = bool | int | float | str | None

LINE_VERSION = 3
VERSION_KEY = "leakage_log"  # in no line of another task
AUDIT_NAME = re.compile(r"(.+)_(?:leakage|choice_confusion)(?:_[a-z0-9_]+)?")
CORE = (  # our keys of every line, in order; the statistic's own values follow under their own names
    VERSION_KEY,
    "benchmark",
    "detector",
    "flagged",
    "pvalue",
    "null_rate",
    "statistic",
    "ranks_by",
    "reason",
    "guards",
    "calibrated_flagged",
    "calibrated_pvalue",
)
OF_ORDERS = ("published_orders", "reference_loglikelihoods")  # only in the lines of an audit's first statistic
QUESTION_KEY = "question_key"  # in lines of questions that could be read, since it is written
COMPARED_ORDERS, RIGHT_PLACES = "compared_orders", "right_places"  # in lines that have OF_ORDERS, likewise
SHARED_TEXTS = "shared_texts"  # likewise
OF_VERSIONS = {"n_wordings", "n_examples"}  # values of the statistics that compare versions of a text
OF_HARNESS = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)


@dataclass(frozen=True)
class Arms:
    """Whether the model answers a question correctly in each arm of the choice-confusion audit."""

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool


@dataclass(frozen=True)
class AuditLine:
    """One question as one statistic judged it.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    doc_id: number of the row in the audit, which distinguishes copies of a row
    doc: the row
    read: the row as a question; None where it cannot be read
    subject: as the benchmark files it, else the audit's file name
    benchmark: the task that was audited
    detector: id; filter: the statistic's name in tables
    scores: a higher one means more leakage; named as by `score_names`; empty where the question was not tested
    guards: which natural orders its options have
    flagged, null_rate, pvalue: by the published rule; None where there is no rule, or no rate
    reason: why it was not tested, in words; None where it was
    margin: nats by which the published form beats the best other one; None for statistics without a margin
    loglikelihoods: of the orders that were asked, published first, nats; empty for other probes
    arms: None for other audits
    calibrated_flagged, calibrated_pvalue: by the calibration that the run had; None without one
    values: every number of the statistic by name: what goes into its rows, and what else it measured
    row_names: of the task's rows, some of which are among `values`
    published_orders: the status of the benchmark's orders; None in lines that say nothing about it
    control: log-likelihoods of the compared orders in each control form, nats; empty if they were not asked
    reference: the reference model's log-likelihoods of the orders, nats; empty without one
    versions: log-likelihoods of a question's wordings, or of a shard in different orders, the published version first,
        nats; empty for other probes
    question_key: as of `questions.copies`; empty where the row could not be read
    shared_texts: as of `questions.families`; empty where the line has no orders
    compared: places of the orders that were asked in the control forms; empty if they were not asked there
    right: of each order, the place of the right option; empty where it is not known
    is_repeated: whether the same row, to the letter, stands earlier in the same audit
    """

    question: str
    doc_id: int | None
    doc: Mapping[str, Any]
    read: Question | None
    subject: str
    benchmark: str
    detector: str
    filter: str
    scores: Mapping[str, float]
    guards: tuple[str, ...]
    flagged: bool | None
    null_rate: float | None
    pvalue: float | None
    reason: str | None
    margin: float | None
    loglikelihoods: array[float]
    arms: Arms | None
    calibrated_flagged: bool | None
    values: Mapping[str, float]
    row_names: tuple[str, ...] = ()
    calibrated_pvalue: float | None = None
    published_orders: str | None = None
    control: array[float] = field(default_factory=lambda: array("f"))
    reference: array[float] = field(default_factory=lambda: array("f"))
    versions: array[float] = field(default_factory=lambda: array("d"))
    question_key: str = ""
    shared_texts: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    is_repeated: bool = False

    @property
    def orders(self) -> OrderAnswers | None:
        """What the verdict on the data set is computed from; None without orders or their status."""
        if len(self.loglikelihoods) < 2 or self.published_orders is None:
            return None
        own, control, reference = map(tuple, (self.loglikelihoods, self.control, self.reference))
        status = intern(self.published_orders)
        return OrderAnswers(
            own, status, self.guarded, control, reference, self.shared_texts, self.compared, self.right
        )

    @property
    def is_controlled(self) -> bool:
        """Whether the compared orders were asked in every control form."""
        return bool(self.compared) and len(self.control) == len(CONTROL_FORMS) * len(self.compared)

    @property
    def guarded(self) -> bool:
        """Whether its options have a natural order."""
        return bool(self.guards)

    @property
    def is_of_shard(self) -> bool:
        """Whether it is about neighbouring questions together, not about one. A damaged log has rows of any kind."""
        return isinstance(self.doc, Mapping) and "members" in self.doc

    @property
    def score(self) -> float | None:
        """What it is ranked by among the questions of its detector; None if it was not tested, or ranks by several."""
        return next(iter(self.scores.values())) if len(self.scores) == 1 else None

    @property
    def of_class(self) -> str:
        """As of `known_scores`."""
        return class_of(0 if self.read is None else len(self.read.options), self.guarded)


def looks_like_audit_line(line: bytes) -> bool:
    """Whether a raw line of a samples log, which may be truncated, is that of an audit. Quotation marks within its
    texts are escaped."""
    return f'"{VERSION_KEY}"'.encode() in line


def score_names(detector: str, ranks_by: Sequence[str]) -> dict[str, str]:
    """Names of a detector's scores by the values that rank questions: its id if there is one such value, else
    `id/value`."""
    return {key: detector if len(ranks_by) == 1 else f"{detector}/{key}" for key in ranks_by}


def benchmark_of(audit: str) -> str:
    """`mmlu` for `mmlu_leakage_perm`, by the suffixes of our own audits; other names are unchanged. Needed only where
    the metadata has no `audit_of`: audits with a YAML of their own, runs without a log."""
    found = AUDIT_NAME.fullmatch(audit)
    return found[1] if found else audit


def with_repeated_rows(lines: Iterable[AuditLine]) -> Iterator[AuditLine]:
    """The lines of one audit; those of a row that stands there twice, to the letter, say so from the second one on."""
    first: dict[tuple[str, str, str], int | None] = {}
    for line in lines:
        place = first.setdefault((line.filter, line.detector, line.question), line.doc_id)
        yield line if place == line.doc_id else replace(line, is_repeated=True)


# ---------------------------------------------------------------------- the one reader

NO_VALUES = frozenset((*CORE, *OF_ORDERS, COMPARED_ORDERS, RIGHT_PLACES, SHARED_TEXTS, *OF_HARNESS))


def audit_lines(
    samples: Iterable[tuple[int, Mapping[str, Any]]], task: str, problems: list[Problem], file: Path | None = None
) -> Iterator[AuditLine]:
    """The lines of an audit's numbered samples; anything else becomes a problem and is left out."""
    for number, sample in samples:
        try:
            yield read_line(sample, task)
        except NOT_AS_WRITTEN as error:
            what = f"left out: not a line of an audit as this package writes them ({error!r})"
            problems.append(Problem(what, file, number))


def read_line(sample: Mapping[str, Any], task: str) -> AuditLine:
    """One sample of the audit `task`. Raises one of NOT_AS_WRITTEN if it is not a line of an audit."""
    version = sample.get(VERSION_KEY)
    if version != LINE_VERSION or isinstance(version, bool):
        raise ValueError(f"{VERSION_KEY} is {version!r}; this package reads version {LINE_VERSION}")
    detector = intern(_text(sample, "detector"))
    keys = tuple(key for key in sample["ranks_by"].split(",") if key)
    read, _ = content_of(sample["doc"])
    n_asked, margin = sample.get("n_orders"), sample.get("margin")  # another statistic may use them for anything
    compared = _places(
        sample,
        COMPARED_ORDERS,
        lambda own: 0 == own[0] <= max(own) < sample["n_orders"] and len({*own}) == len(own),
        f"places among {n_asked} orders, 0 first",
    )
    orders, control = _orders(sample, compared)
    right = _places(
        sample,
        RIGHT_PLACES,
        lambda own: not orders or (len(own) == len(orders) and min(own) >= 0),
        f"the places of the right option in {len(orders)} orders",
    )
    return AuditLine(
        question=_text(sample, "doc_hash"),
        doc_id=_typed(sample, "doc_id", int),
        doc=sample["doc"],
        read=read,
        subject=(read.subject if read else "") or task,
        benchmark=intern(_text(sample, "benchmark")),
        detector=detector,
        filter=intern(sample["filter"]),
        scores={
            intern(name): float(sample[key])
            for key, name in score_names(detector, keys).items()
            if sample[key] is not None
        },
        guards=tuple(guard for guard in sample["guards"].split(",") if guard),
        flagged=_typed(sample, "flagged", bool),
        null_rate=_number(sample, "null_rate"),
        pvalue=_number(sample, "pvalue"),
        reason=_typed(sample, "reason", str),
        margin=float(margin) if isinstance(margin, (int, float)) and not isinstance(margin, bool) else None,
        loglikelihoods=orders,
        arms=_arms(sample),
        calibrated_flagged=_typed(sample, "calibrated_flagged", bool),
        calibrated_pvalue=_number(sample, "calibrated_pvalue"),
        published_orders=_typed(sample, "published_orders", str),
        control=control,
        reference=_reference(sample, len(orders)),
        versions=array("d", (float(one[0][0]) for one in sample.get("resps") or []))
        if sample.keys() & OF_VERSIONS
        else array("d"),
        values={
            intern(key): float(value)
            for key, value in sample.items()
            if key not in NO_VALUES and isinstance(value, (bool, int, float))
        },
        row_names=_once(tuple(sample.get("metrics") or ())),
        question_key=_typed(sample, QUESTION_KEY, str) or "",
        shared_texts=tuple((_typed(sample, SHARED_TEXTS, str) or "").split()),
        compared=compared,
        right=right if orders else (),
    )


def content_of(doc: Mapping[str, Any]) -> tuple[Question | None, str]:
    """The question in a row and a hash of its text, by which runs are joined whose rows differ in other fields. None
    and an empty hash if the row has no known layout."""
    try:
        question = question_from_doc(doc)
    except (UntestableQuestion, TypeError):
        return None, ""
    return question, content_id(question.stem, question.options)


@cache
def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for all lines of an audit, which have the same names."""
    return tuple(map(intern, names))


def _text(sample: Mapping[str, Any], key: str) -> str:
    found = sample[key]
    if not isinstance(found, str) or not found:
        raise TypeError(f"{key} is {found!r}")
    return found


def _number(sample: Mapping[str, Any], key: str) -> float | None:
    found = sample.get(key)
    return None if found is None else float(_typed(sample, key, (int, float)) or 0.0)


def _typed(sample: Mapping[str, Any], key: str, kind: Any) -> Any:
    """None is allowed; any other type than `kind` is an error."""
    found = sample.get(key)
    if found is not None and not isinstance(found, kind):
        raise TypeError(f"{key} is {found!r}")
    return found


def _orders(sample: Mapping[str, Any], compared: Sequence[int]) -> tuple[array[float], array[float]]:
    """Log-likelihoods of the orders, and of the compared ones in each control form unless those were not asked. In
    single precision, since 14,042 questions with 24 orders each are held in memory."""
    n_orders = sample.get("n_orders")
    responses = sample.get("resps") or []
    of_loglikelihoods = all(isinstance(one[0], (list, tuple)) for one in responses)
    if not isinstance(n_orders, int) or not of_loglikelihoods:
        return array("f"), array("f")
    if len(responses) - n_orders not in (0, len(CONTROL_FORMS) * len(compared)):
        return array("f"), array("f")
    found = array("f", (float(response[0][0]) for response in responses))
    return found[:n_orders], found[n_orders:]


def _places(
    sample: Mapping[str, Any], key: str, rule: Callable[[tuple[int, ...]], bool], told: str
) -> tuple[int, ...]:
    """Raises ValueError for places that break the rule."""
    found = _typed(sample, key, str)
    places = tuple(map(int, found.split(","))) if found else ()
    if places and not rule(places):
        raise ValueError(f"{key} is {found}, which are not {told}")
    return places


def _reference(sample: Mapping[str, Any], n_orders: int) -> array[float]:
    found = _typed(sample, "reference_loglikelihoods", str)
    values = array("f", map(float, found.split(","))) if found else array("f")
    if len(values) not in (0, n_orders):
        raise ValueError(f"reference_loglikelihoods has {len(values)} numbers for {n_orders} orders")
    return values


def _arms(sample: Mapping[str, Any]) -> Arms | None:
    arms = [sample.get(arm.name) for arm in fields(Arms)]
    return Arms(*map(bool, arms)) if all(isinstance(right, bool) for right in arms) else None


def written_line(
    verdict: Verdict,
    *,
    benchmark: str,
    detector: str,
    guards: Sequence[str] = (),
    question_key: str = "",
    contributions: Mapping[str, float | None] = MappingProxyType({}),
    calibrated: Calibrated | Skipped | None = None,
    orders: OrderAnswers | None = None,
) -> dict[str, Any]:
    """Our keys of one line: JSON scalars, those of CORE first.

    question_key: as of `questions.copies`, by which a reader recognises copies
    contributions: what the question adds to each row of the task, by the row's name, since the harness's loggers read
        it; None where it adds nothing by itself
    orders: its answers to all orders, of which the line holds what `resps` does not
    """
    core: dict[str, object] = dict.fromkeys(CORE) | {
        VERSION_KEY: LINE_VERSION,
        "benchmark": benchmark,
        "detector": detector,
        "guards": ",".join(guards),
        **({QUESTION_KEY: question_key} if question_key else {}),
        **_decision(verdict),
    }
    if isinstance(calibrated, Calibrated):
        core |= {"calibrated_flagged": calibrated.flagged, "calibrated_pvalue": calibrated.pvalue}
    if orders is not None:
        core |= zip(OF_ORDERS, (orders.orders, ",".join(map(repr, orders.reference)) or None), strict=True)
        more = ((COMPARED_ORDERS, ",", orders.compared), (RIGHT_PLACES, ",", orders.right))
        for key, by, values in (*more, (SHARED_TEXTS, " ", orders.shared)):
            core |= {key: by.join(map(str, values))} if values else {}
    own = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    own |= {name: contributions[name] for name in sorted(contributions)}
    reserved = {*core, *OF_HARNESS}
    line = core | {name: value for name, value in own.items() if name not in reserved and isinstance(value, Scalar)}
    # JSON has no NaN: null for a number that is undefined
    return {key: None if isinstance(one, float) and not math.isfinite(one) else one for key, one in line.items()}


def _decision(verdict: Verdict) -> dict[str, object]:
    """The decision, and the keys of the line by which questions can be ranked, a higher value meaning more leakage."""
    if isinstance(verdict, Skipped):
        return {"reason": verdict.reason, "ranks_by": ""}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    own = ("flagged", "pvalue", "null_rate", "statistic")
    return {"ranks_by": "statistic"} | {key: getattr(verdict, key) for key in own}
