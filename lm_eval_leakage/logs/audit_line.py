"""The line of an audit's samples log: its schema (docs/log_format.md), how it is read, and how it is written.

A line holds one statistic's verdict on one question. The harness writes it, with its own keys next to ours.
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
LARGEST_LOGLIKELIHOOD = 0.001  # nats; it is at most 0, up to rounding
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
)
OF_ORDERS = (  # only in the lines of an audit's first statistic, those after the first two where they are not empty
    *("published_orders", "reference_loglikelihoods", "compared_orders", "right_places", "shared_texts", "layouts"),
)
OF_FILLERS = ("block", "block_place", "n_fillers", "document_start")  # only in lines of audits that exchange fillers
FILLERS_DRAWN = "fillers_drawn"  # true in lines of sealed texts, and in no others
FILLERS = "fillers"  # in lines of audits that exchange something else than names
QUESTION_KEY = "question_key"  # in lines of questions that could be read
OF_VERSIONS = {"n_wordings", "n_examples"}  # values of the statistics that compare versions of a text
OF_HARNESS = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)


def too_long(n_tokens: int, window: int) -> str:
    """Return why a question was not asked whose text is longer than the model's window."""
    return f"its text has {n_tokens} tokens; the model's window holds {window}, so raise max_length if possible"


def window_needed(reason: str | None) -> int:
    """Return how many tokens a window must hold for a question that was left out for this reason; 0 for any other."""
    found = TOO_LONG.match(reason or "")
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Arms:
    """Whether the model answers a question correctly in each arm of the choice-confusion audit; and the place of the
    right option when shuffled, None where the model is not shown their order."""

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool
    shuffled_place: int | None = None


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
    loglikelihoods: of the orders that were asked, published first, nats; empty for other probes
    values: every number of the statistic by name: what goes into its rows, and what else it measured
    row_names: of the task's rows, some of which are among `values`
    published_orders: the status of the benchmark's orders; None in lines that say nothing about it
    orders: what the verdict on the data set is computed from; None without two orders or their status
    fillers: likewise, of an audit that exchanges fillers; None for other audits
    versions: log-likelihoods of a question's wordings, or of a shard in different orders, the published version first,
        nats; empty for other probes
    question_key: as of `questions.copies`; empty where the row could not be read
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
        """Log-likelihood of the published text as it is audited and as a row of JSON, nats per character of the
        question and its options; None for other audits."""
        values = self.values
        if self.read is None or not values.keys() >= {"mean_loglikelihood", "n_tokens", "json_loglikelihood"}:
            return None
        n = max(1, sum(map(len, (self.read.stem, *self.read.options))))
        return values["mean_loglikelihood"] * values["n_tokens"] / n, values["json_loglikelihood"] / n

    @property
    def arms(self) -> Arms | None:
        """None for other audits."""
        if not self.values.keys() >= {*ARMS}:
            return None
        place = self.values.get("shuffled_place")
        right = {name: bool(self.values[name]) for name in ARMS}
        return Arms(**right, shuffled_place=None if place is None else int(place))

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

NO_VALUES = frozenset((*CORE, *OF_ORDERS, *OF_FILLERS, FILLERS_DRAWN, FILLERS, *OF_HARNESS))


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
        versions=array("d", (float(one[0][0]) for one in versions)),
        question_key=_typed(sample, QUESTION_KEY, str) or "",
    )


def content_of(doc: Mapping[str, Any]) -> tuple[Question | None, str]:
    """The question in a row and a hash of its text, by which runs are joined whose rows differ in other fields. None
    and an empty hash if the row has no known layout."""
    question = question_if_any(doc) if isinstance(doc, Mapping) else None
    return question, content_id(question.stem, question.options) if question else ""


def _text(sample: Mapping[str, Any], key: str) -> str:
    found = sample[key]
    if not isinstance(found, str) or not found:
        raise TypeError(f"{key} is {found!r}")
    return found


def _probability(sample: Mapping[str, Any], key: str) -> float | None:
    found = _typed(sample, key, (int, float))
    if found is not None and not 0 <= found <= 1:
        raise ValueError(f"{key} is {found!r}, which is not between 0 and 1")
    return None if found is None else float(found)


def _typed(sample: Mapping[str, Any], key: str, kind: Any) -> Any:
    """None is allowed; any other type than `kind` is an error."""
    found = sample.get(key)
    if found is not None and not isinstance(found, kind):
        raise TypeError(f"{key} is {found!r}")
    return found


def _orders(sample: Mapping[str, Any], guarded: bool) -> tuple[array[float], OrderAnswers | None]:
    """Log-likelihoods of the orders, and what the verdict on the data set is computed from. In single precision, since
    14,042 questions with 24 orders each are held in memory."""
    n_orders = sample.get("n_orders")  # another statistic may use it for anything
    responses = sample.get("resps") or []
    layouts = tuple(map(intern, (_typed(sample, "layouts", str) or "").split()))
    n_layouts = len(layouts) or 1
    compared = tuple(_listed(sample, "compared_orders", int))
    if compared and not (0 == compared[0] <= max(compared) < sample["n_orders"] and len({*compared}) == len(compared)):
        raise ValueError(f"compared_orders is {compared}, which are not places among {n_orders} orders, 0 first")
    n_asked = n_orders * n_layouts if isinstance(n_orders, int) else 0
    fitting = n_asked and len(responses) - n_asked in (0, (1 + n_layouts) * len(compared))
    if not fitting or not all(isinstance(one[0], (list, tuple)) for one in responses):
        n_asked, responses = 0, []
    found = array("f", (float(response[0][0]) for response in responses))
    if impossible := [value for value in found if not -math.inf < value <= LARGEST_LOGLIKELIHOOD]:
        raise ValueError(f"a log-likelihood is {impossible[0]:g}")
    own, control = found[:n_asked], found[n_asked:]
    if n_layouts > 1:
        own, control = array("f", averaged(own, n_layouts)), array("f", averaged_controls(control, n_layouts))
    right = tuple(_listed(sample, "right_places", int))
    if own and right and (len(right) != len(own) or min(right) < 0):
        raise ValueError(f"right_places is {right}, which are not the places of the right option in {n_orders} orders")
    reference = array("f", _listed(sample, "reference_loglikelihoods", float))
    if len(reference) not in (0, len(own)):
        raise ValueError(f"reference_loglikelihoods has {len(reference)} numbers for {len(own)} orders")
    shared = tuple((_typed(sample, "shared_texts", str) or "").split())
    status = _typed(sample, "published_orders", str)
    if status is None or len(own) < 2:
        return own, None
    asked = OrderAnswers(
        tuple(own), intern(status), guarded, tuple(control), tuple(reference), shared, compared, right, layouts
    )
    return own, asked


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
    if impossible := [value for value in answers if not -math.inf < value <= LARGEST_LOGLIKELIHOOD]:
        raise ValueError(f"a log-likelihood is {impossible[0]:g}")
    reference = [*_listed(sample, "reference_loglikelihoods", float)]
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


def _listed(sample: Mapping[str, Any], key: str, kind: Callable[[str], float]) -> Iterator[Any]:
    """The numbers of a text, separated by commas."""
    found = _typed(sample, key, str)
    return map(kind, found.split(",") if found else ())


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
    """Our keys of one line: JSON scalars, those of CORE first.

    question_key: as of `questions.copies`, by which a reader recognises copies
    contributions: what the question adds to each row of the task, by the row's name, since the harness's loggers read
        it; None where it adds nothing by itself
    orders: its answers to all orders, of which the line holds what `resps` does not
    fillers: likewise its answers with the fillers of its block
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
        numbers = (",".join(map(repr, own)) for own in (orders.reference, orders.compared, orders.right))
        told = (orders.orders, *numbers, " ".join(orders.shared), " ".join(orders.layouts))
        core |= {key: text or None for key, text in zip(OF_ORDERS, told, strict=True) if text or key in OF_ORDERS[:2]}
    if fillers is not None:
        reference = [value for layout in fillers.reference for value in as_asked(layout, fillers.place)]
        of_block = (fillers.block, fillers.place, fillers.n_fillers, fillers.start)
        core |= dict(zip(OF_FILLERS, of_block, strict=True)) | {"layouts": " ".join(fillers.layouts)}
        core |= {FILLERS_DRAWN: True} if fillers.is_drawn else {}
        core |= {FILLERS: fillers.fillers} if fillers.fillers != NAMES else {}
        core |= {"reference_loglikelihoods": ",".join(map(repr, reference))} if reference else {}
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
