"""Translates the detector names in logs and calibration files of version 1 into ids.

Version 1 named a detector `OptionOrders(max_orders=120, orders=None, ...)/MaxOrder()`, with ` against MODEL` where a
reference model's log-likelihoods were subtracted, and a score by that and `/statistic` or another value. The classes,
names and defaults below are those of that version, whatever they have become since.

Logs and calibration files of versions 1 and 2, in which `max_order` ranked questions by its margin.

Since version 3 it ranks them by `fixed_z`, so that scores of the two kinds must not share a name, and a calibration
says whose scores it holds.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from lm_eval_leakage.registry import compose, spelled
from lm_eval_leakage.stats.known_scores import FORMER_VALUE

PROBES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "AlteredText": ("altered_text", {"format": "none"}),
    "ChoiceConfusion": ("choice_confusion", {"scope": "subject", "score": "own"}),
    "ExampleOrder": ("example_order", {"examples": "10", "permutations": "25"}),
    "MaskedOption": ("masked_option", {"hides": "wrong", "instruction": "#7d3577eb"}),
    "OptionCompletions": ("option_completions", {"format": "none"}),
    "OptionOrders": ("option_orders", {"max_orders": "120", "orders": "none", "move": "all", "format": "none"}),
    "OptionPairs": ("option_pairs", {"format": "usual"}),
    "OptionSteps": ("option_steps", {"format": "none"}),
    "PrefixCompletions": ("prefix_completions", {"starts": "5", "n": "5"}),
    "PublishedText": ("published_text", {"format": "none"}),
    "QuestionTail": ("question_tail", {"words": "7"}),
}
STATISTICS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {  # name, the probe that it is made for, defaults
    "MaskedOptionWritten": (
        "masked_option",
        "masked_option",
        {"judge_model": "none", "judge_args": "#1271cf25", "judge_prompt": "#dd5e81b2"},
    ),
    "MaxOrder": ("max_order", "option_orders", {}),
    "NgramAccuracy": ("ngram_accuracy", "prefix_completions", {}),
    "Outlier": ("outlier", "option_orders", {"delta": "none"}),
    "PairDirection": ("pair_direction", "option_pairs", {}),
    "PairPublished": ("pair_published", "option_pairs", {}),
    "PairedAccuracy": ("paired_accuracy", "choice_confusion", {}),
    "RelativeLikelihood": ("relative_likelihood", "altered_text", {}),
    "Reproduction": ("reproduction", "option_completions", {"rouge": "0.75", "share": "0.25"}),
    "SharedLikelihood": ("shared_likelihood", "example_order", {"level": "0.05"}),
    "Stepwise": ("stepwise", "option_steps", {}),
    "TailAnswered": ("tail_answered", "question_tail", {}),
    "TokenEvidence": ("token_evidence", "published_text", {"k": "20"}),
}
LEFT_OUT = frozenset(("shards", "tasks_of_group", "benchmark", "reference", "reference_stderr"))
AGAINST = ") against "


@cache
def id_of(detector: str) -> str:
    """The id of a detector that version 1 named; a name of another form or of unknown classes stays as it is."""
    call, found, reference = detector.rpartition(AGAINST)
    try:
        probe, statistic = _calls(f"{call})" if found else detector)
        probe_name, probe_defaults = PROBES[probe[0]]
        name, made_for, defaults = STATISTICS[statistic[0]]
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError):
        return detector
    parameters = _changed(probe[1], probe_defaults) | _changed(statistic[1], defaults)
    return compose(name, probe_name, made_for=made_for, parameters=parameters, reference=reference if found else None)


def score_ids(keys: Iterable[str], *, kept: str) -> dict[str, str]:
    """The names of a calibration's scores by those of version 1; `kept` is no detector's."""
    parts = {key: key.rpartition("/") for key in keys if key != kept}
    counts = Counter(detector for detector, _, _ in parts.values())
    found = {
        key: id_of(detector) if counts[detector] == 1 else f"{id_of(detector)}/{value}"
        for key, (detector, _, value) in parts.items()
    }
    return {kept: kept} | found


def _calls(text: str) -> list[tuple[str, dict[str, object]]]:
    """Class and arguments of both parts of `Probe(...)/Statistic(...)`."""
    match ast.parse(text, mode="eval").body:
        case ast.BinOp(left=ast.Call(args=[]) as probe, op=ast.Div(), right=ast.Call(args=[]) as statistic):
            return [
                (ast.unparse(part.func), {str(key.arg): ast.literal_eval(key.value) for key in part.keywords})
                for part in (probe, statistic)
            ]
    raise ValueError(f"{text!r} is no probe and statistic")


def _changed(given: Mapping[str, object], defaults: Mapping[str, str]) -> dict[str, str]:
    told = {name: spelled(value) for name, value in given.items() if name not in LEFT_OUT}
    return {name: value for name, value in told.items() if value != defaults.get(name)}


UNKNOWN_CALIBRATION = (
    "its calibrated flags are not used: they were made before calibrations said whose scores they hold; give a "
    "calibration of the model's own scores (--calibration, see `lm-eval-leakage calibrate`)"
)


def name_before_version_3(name: str) -> str:
    """The name today of a score that was named `name`: `max_order/margin` for `max_order`."""
    return f"{name}/{FORMER_VALUE}" if re.match("max_order([@:]|$)", name) else name
