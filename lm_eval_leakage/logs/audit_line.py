"""Reads and writes the lines of an audit's samples log (schema: docs/log_format.md).

A line holds one statistic's verdict on one question. The harness writes it, with its keys next to ours.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any

from lm_eval_leakage.logs.run import NOT_AS_WRITTEN, Problem
from lm_eval_leakage.questions.fields import content_id, question_if_any
from lm_eval_leakage.questions.slots import NAMES
from lm_eval_leakage.records import ARMS, FillerAnswers, Measurement, OrderAnswers, Question, Skipped, Verdict
from lm_eval_leakage.stats.crossed_blocks import as_asked, by_form
from lm_eval_leakage.stats.order_sum import averaged, averaged_controls

Scalar = bool | int | float | str | None
TOO_LONG = re.compile(r"its text has (\d+) tokens; the model's window holds (\d+)")

LINE_VERSION = 3
LARGEST_LOGLIKELIHOOD = 0.001  # nats; any is at most 0, up to rounding
VERSION_KEY = "leakage_log"  # no line of another task has it
AUDIT_NAME = re.compile(r"(.+)_(?:leakage|choice_confusion)(?:_[a-z0-9_]+)?")
CORE = (  # our keys of every line, in order; the statistic's values follow under their names
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
)
OF_ORDERS = (  # only in the lines of an audit's first statistic, those after the first two where they are not empty
    *("published_orders", "reference_loglikelihoods", "compared_orders", "right_places", "shared_texts", "layouts"),
)
OF_FILLERS = ("block", "block_place", "n_fillers", "document_start")  # only in lines of audits that exchange fillers
FILLERS_DRAWN = "fillers_drawn"  # true in lines of sealed texts, and in no others
FILLERS = "fillers"  # in lines of audits that exchange anything but names
QUESTION_KEY = "question_key"  # in lines of questions that could be read
KEY = re.compile("[0-9a-f]+")
OF_VERSIONS = {"n_wordings", "n_examples"}  # values of the statistics that compare versions of a text
OF_HARNESS = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)
NO_VALUES = frozenset((*CORE, *OF_ORDERS, *OF_FILLERS, FILLERS_DRAWN, FILLERS, *OF_HARNESS))


def too_long(n_tokens: int, window: int) -> str:
    """Return the reason why a question whose text is longer than the model's window was not scored."""
    return f"its text has {n_tokens} tokens; the model's window holds {window}, so raise max_length if possible"


def window_needed(reason: str | None) -> int:
    """Return how many tokens a window must hold for a question that was left out for this reason; 0 for any other."""
    match = TOO_LONG.match(reason or "")
    return int(match[1]) if match else 0


@dataclass(frozen=True)
class Arms:
    """The answers to a question in the arms of the choice-confusion audit: each field says whether one is right.

    shuffled_place: place of the right option among the shuffled ones; None if the model is shown no other order than
        the published one
    """

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool
    shuffled_place: int | None = None


@dataclass(frozen=True)
class AuditLine:
    """A line of an audit: it holds the verdict of one statistic on one question.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    doc_id: number of the row in the audit, which distinguishes copies of a row
    doc: the row
    read: the row as a question; None if it cannot be read
    subject: the benchmark's subject, else the audit's file name
    benchmark: the audited task
    detector: id of the detector
    filter: name of the statistic in tables
    scores: by the names of `score_names`; a higher score means more leakage; empty if the question was not tested
    guards: the natural orders of its options
    flagged, null_rate, pvalue: by the published rule; None without a rule or rate
    reason: why it was not tested, in words; None if it was tested
    loglikelihoods: of the scored orders, the published one first, nats; empty for other probes
    values: every number of the statistic by name, whether a row of the table shows it or not
    row_names: names of the task's rows, some of which are among `values`
    published_orders: the status of the benchmark's orders; None in lines without it
    orders: the answers from which the verdict on the data set is computed; None without two orders or their status
    fillers: the same for an audit that exchanges fillers; None for other audits
    versions: log-likelihoods of a question's wordings, or of a shard in different orders, the published version first,
        nats; empty for other probes
    question_key: equal for copies of a question, see `questions.copies`; empty if the row could not be read
    is_repeated: whether the same row occurs earlier in the same audit
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
    loglikelihoods: array[float]
    values: Mapping[str, float]
    row_names: tuple[str, ...] = ()
    published_orders: str | None = None
    orders: OrderAnswers | None = None
    fillers: FillerAnswers | None = None
    versions: array[float] = field(default_factory=lambda: array("d"))
    question_key: str = ""
    is_repeated: bool = False

    @property
    def text_scores(self) -> tuple[float, float] | None:
        """Return the log-likelihoods of the published text as it is audited and as a row of JSON, nats per character
        of the question and its options; None for other audits."""
        values = self.values
        if self.read is None or not values.keys() >= {"mean_loglikelihood", "n_tokens", "json_loglikelihood"}:
            return None
        n = max(1, sum(map(len, (self.read.stem, *self.read.options))))
        return values["mean_loglikelihood"] * values["n_tokens"] / n, values["json_loglikelihood"] / n

    @property
    def arms(self) -> Arms | None:
        """Return the answers in the arms of choice confusion; None for other audits."""
        if not self.values.keys() >= {*ARMS}:
            return None
        place = self.values.get("shuffled_place")
        right = {name: bool(self.values[name]) for name in ARMS}
        return Arms(**right, shuffled_place=None if place is None else int(place))

    @property
    def guarded(self) -> bool:
        """Return whether the options have a natural order."""
        return bool(self.guards)

    @property
    def is_of_shard(self) -> bool:
        """Return whether the line is about a shard instead of one question. A damaged log has rows of any kind."""
        return isinstance(self.doc, Mapping) and "members" in self.doc

    @property
    def score(self) -> float | None:
        """Return the score that ranks the question; None if it was not tested, or has several scores."""
        return next(iter(self.scores.values())) if len(self.scores) == 1 else None


def score_names(detector: str, ranks_by: Sequence[str]) -> dict[str, str]:
    """Return the names of a detector's scores by the values that rank questions: the detector's id if there is one
    such value, else `id/value`."""
    return {key: detector if len(ranks_by) == 1 else f"{detector}/{key}" for key in ranks_by}


def benchmark_of(audit: str) -> str:
    """Return the benchmark that an audit's name contains, such as `mmlu` for `mmlu_leakage_perm`; other names are
    unchanged. Only audits with a YAML and runs without a log need it, since their metadata has no `audit_of`."""
    match = AUDIT_NAME.fullmatch(audit)
    return match[1] if match else audit


def with_repeated_rows(lines: Iterable[AuditLine]) -> Iterator[AuditLine]:
    """Yield the lines of an audit. Those of a repeated row are marked from its second occurrence on."""
    first: dict[tuple[str, str, str], int | None] = {}
    for line in lines:
        place = first.setdefault((line.filter, line.detector, line.question), line.doc_id)
        yield line if place == line.doc_id else replace(line, is_repeated=True)


# ---------------------------------------------------------------------- reading


def audit_lines(
    samples: Iterable[tuple[int, Mapping[str, Any]]], task: str, problems: list[Problem], file: Path | None = None
) -> Iterator[AuditLine]:
    """Yield the lines of an audit's numbered samples. Anything else becomes a problem and is left out."""
    for number, sample in samples:
        try:
            yield read_line(sample, task)
        except NOT_AS_WRITTEN as error:
            what = f"left out: not a line of an audit as this package writes them ({error!r})"
            problems.append(Problem(what, file, number))


def read_line(sample: Mapping[str, Any], task: str) -> AuditLine:
    """Return the line of a sample of the audit `task`. Raises one of NOT_AS_WRITTEN for any other sample."""
    version = sample.get(VERSION_KEY)
    if version != LINE_VERSION:
        raise ValueError(f"{VERSION_KEY} is {version!r}; this package reads version {LINE_VERSION}")
    detector = intern(_text(sample, "detector"))
    keys = [key for key in sample["ranks_by"].split(",") if key]
    guards = tuple(guard for guard in sample["guards"].split(",") if guard)
    read, _ = content_of(sample["doc"])
    loglikelihoods, orders = _orders(sample, bool(guards))
    names = score_names(detector, keys).items()
    versions = (sample.get("resps") or []) if sample.keys() & OF_VERSIONS else []
    numbers = {key: value for key, value in sample.items() if isinstance(value, (bool, int, float))}
    return AuditLine(
        question=_text(sample, "doc_hash"),
        doc_id=_typed(sample, "doc_id", int),
        doc=sample["doc"],
        read=read,
        subject=(read.subject if read else "") or task,
        benchmark=intern(_text(sample, "benchmark")),
        detector=detector,
        filter=intern(sample["filter"]),
        scores={intern(name): float(sample[key]) for key, name in names if sample[key] is not None},
        guards=guards,
        flagged=_typed(sample, "flagged", bool),
        null_rate=_probability(sample, "null_rate"),
        pvalue=_probability(sample, "pvalue"),
        reason=_typed(sample, "reason", str),
        loglikelihoods=loglikelihoods,
        values={intern(key): float(value) for key, value in numbers.items() if key not in NO_VALUES},
        row_names=tuple(map(intern, sample.get("metrics") or ())),
        published_orders=_typed(sample, "published_orders", str),
        orders=orders,
        fillers=_fillers(sample),
        versions=array("d", (float(response[0][0]) for response in versions)),
        question_key=recorded_key(sample),
    )


def content_of(doc: Mapping[str, Any]) -> tuple[Question | None, str]:
    """Return the question in a row, and a hash of its text by which runs are joined if their rows differ in other
    fields. Returns None and an empty hash if the row has no known schema."""
    question = question_if_any(doc) if isinstance(doc, Mapping) else None
    return question, content_id(question.stem, question.options) if question else ""


def recorded_key(sample: Mapping[str, Any]) -> str:
    """Return the question's key as recorded; empty if it is not. Raises TypeError if it is damaged."""
    key = sample.get(QUESTION_KEY)
    if key is None:
        return ""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise TypeError(f"{QUESTION_KEY} is {key!r}")
    return key


def _text(sample: Mapping[str, Any], key: str) -> str:
    """Return a text of a sample. Raises TypeError if it is empty or no text."""
    value = sample[key]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key} is {value!r}")
    return value


def _probability(sample: Mapping[str, Any], key: str) -> float | None:
    """Return a probability of a sample, or None. Raises ValueError for a number outside [0, 1]."""
    value = _typed(sample, key, (int, float))
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"{key} is {value!r}, which is not between 0 and 1")
    return None if value is None else float(value)


def _typed(sample: Mapping[str, Any], key: str, kind: Any) -> Any:
    """Return a value of a sample, or None. Raises TypeError for any other type than `kind`."""
    value = sample.get(key)
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{key} is {value!r}")
    return value


def _orders(sample: Mapping[str, Any], guarded: bool) -> tuple[array[float], OrderAnswers | None]:
    """Return the log-likelihoods of the orders, and the answers from which the verdict on the data set is computed.

    They are in single precision, since 14,042 questions with 24 orders each are held in memory.
    """
    n_orders = sample.get("n_orders")  # another statistic may use this key for anything
    responses = sample.get("resps") or []
    layouts = tuple(map(intern, (_typed(sample, "layouts", str) or "").split()))
    n_layouts = len(layouts) or 1
    compared = tuple(_numbers(sample, "compared_orders", int))
    if compared and not (0 == compared[0] <= max(compared) < sample["n_orders"] and len({*compared}) == len(compared)):
        raise ValueError(f"compared_orders is {compared}, which are not places among {n_orders} orders, 0 first")
    n_asked = n_orders * n_layouts if isinstance(n_orders, int) else 0
    fitting = n_asked and len(responses) - n_asked in (0, (1 + n_layouts) * len(compared))
    if not fitting or not all(isinstance(response[0], (list, tuple)) for response in responses):
        n_asked, responses = 0, []
    values = array("f", (float(response[0][0]) for response in responses))
    _check_loglikelihoods(values)
    loglikelihoods, control = values[:n_asked], values[n_asked:]
    if n_layouts > 1:
        loglikelihoods = array("f", averaged(loglikelihoods, n_layouts))
        control = array("f", averaged_controls(control, n_layouts))
    right = tuple(_numbers(sample, "right_places", int))
    if loglikelihoods and right and (len(right) != len(loglikelihoods) or min(right) < 0):
        raise ValueError(f"right_places is {right}, which are not the places of the right option in {n_orders} orders")
    reference = array("f", _numbers(sample, "reference_loglikelihoods", float))
    if len(reference) not in (0, len(loglikelihoods)):
        raise ValueError(f"reference_loglikelihoods has {len(reference)} numbers for {len(loglikelihoods)} orders")
    shared = tuple((_typed(sample, "shared_texts", str) or "").split())
    status = _typed(sample, "published_orders", str)
    if status is None or len(loglikelihoods) < 2:
        return loglikelihoods, None
    answers = OrderAnswers(
        tuple(loglikelihoods),
        intern(str(status)),
        guarded,
        tuple(control),
        tuple(reference),
        shared,
        compared,
        right,
        layouts,
    )
    return loglikelihoods, answers


def _check_loglikelihoods(values: Iterable[float]) -> None:
    for value in values:
        if not -math.inf < value <= LARGEST_LOGLIKELIHOOD:
            raise ValueError(f"a log-likelihood is {value:g}")


def _fillers(sample: Mapping[str, Any]) -> FillerAnswers | None:
    """Return the log-likelihoods of a row with the fillers of its block; None for another audit's line."""
    block, n_fillers, place = sample.get("block"), sample.get("n_fillers"), sample.get("block_place")
    if block is None or sample.get("reason") is not None:
        return None
    if not (isinstance(block, str) and isinstance(n_fillers, int) and isinstance(place, int)):
        raise TypeError(f"block is {block!r}, n_fillers {n_fillers!r} and block_place {place!r}")
    layouts = tuple(map(intern, (_typed(sample, "layouts", str) or "").split()))
    answers = [float(response[0][0]) for response in sample["resps"]]
    n_forms, rest = divmod(len(answers), n_fillers)
    if rest or n_forms - len(layouts) not in (0, 1) or not 0 <= place < n_fillers or not layouts:
        raise ValueError(f"{len(answers)} answers and place {place} do not fit {n_fillers} fillers in {layouts}")
    _check_loglikelihoods(answers)
    reference = [*_numbers(sample, "reference_loglikelihoods", float)]
    if len(reference) not in (0, n_fillers * len(layouts)):
        raise ValueError(f"reference_loglikelihoods has {len(reference)} numbers for {len(answers)} texts")
    forms = by_form(answers, n_fillers, place)
    return FillerAnswers(
        intern(block),
        place,
        forms[: len(layouts)],
        forms[len(layouts)] if n_forms > len(layouts) else (),
        by_form(reference, n_fillers, place),
        layouts,
        _typed(sample, "document_start", str) or "",
        _typed(sample, FILLERS_DRAWN, bool) or False,
        _typed(sample, FILLERS, str) or NAMES,
    )


def _numbers(sample: Mapping[str, Any], key: str, kind: Callable[[str], float]) -> Iterator[Any]:
    """Yield the numbers in a text of a sample, which are separated by commas."""
    text = _typed(sample, key, str)
    return map(kind, text.split(",") if text else ())


def written_line(
    verdict: Verdict,
    *,
    benchmark: str,
    detector: str,
    guards: Sequence[str] = (),
    question_key: str = "",
    contributions: Mapping[str, float | None] = MappingProxyType({}),
    orders: OrderAnswers | None = None,
    fillers: FillerAnswers | None = None,
) -> dict[str, Any]:
    """Return our keys of a line as JSON scalars, those of CORE first.

    question_key: equal for copies of a question, see `questions.copies`
    contributions: the question's contribution to each row of the task, by the row's name, for the harness's loggers;
        None if it has none by itself
    orders: the answers to all orders, of which the line holds what `resps` does not
    fillers: the answers with the fillers of the block, likewise
    """
    core: dict[str, object] = dict.fromkeys(CORE) | {
        VERSION_KEY: LINE_VERSION,
        "benchmark": benchmark,
        "detector": detector,
        "guards": ",".join(guards),
        **({QUESTION_KEY: question_key} if question_key else {}),
        **_decision(verdict),
    }
    if orders is not None:
        numbers = (",".join(map(repr, values)) for values in (orders.reference, orders.compared, orders.right))
        texts = (orders.orders, *numbers, " ".join(orders.shared), " ".join(orders.layouts))
        for key, text in zip(OF_ORDERS, texts, strict=True):
            if text or key in OF_ORDERS[:2]:
                core[key] = text or None
    if fillers is not None:
        reference = [value for layout in fillers.reference for value in as_asked(layout, fillers.place)]
        of_block = (fillers.block, fillers.place, fillers.n_fillers, fillers.start)
        core |= dict(zip(OF_FILLERS, of_block, strict=True)) | {"layouts": " ".join(fillers.layouts)}
        core |= {FILLERS_DRAWN: True} if fillers.is_drawn else {}
        core |= {FILLERS: fillers.fillers} if fillers.fillers != NAMES else {}
        core |= {"reference_loglikelihoods": ",".join(map(repr, reference))} if reference else {}
    values = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    values |= {name: contributions[name] for name in sorted(contributions)}
    line = dict(core)
    for name, value in values.items():
        if name not in core and name not in OF_HARNESS and isinstance(value, Scalar):
            line[name] = value
    # JSON has no NaN: null for a number that is undefined
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in line.items()
    }


def _decision(verdict: Verdict) -> dict[str, object]:
    """Return the keys of a line that hold the decision, and `ranks_by`: the keys whose values rank questions, a higher
    one meaning more leakage."""
    if isinstance(verdict, Skipped):
        return {"reason": verdict.reason, "ranks_by": ""}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    keys = ("flagged", "pvalue", "null_rate", "statistic")
    return {"ranks_by": "statistic"} | {key: getattr(verdict, key) for key in keys}
