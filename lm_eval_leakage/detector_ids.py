"""Detector ids: short, stable names that people read and type, and the keys of scores in logs and calibration files.

`max_order`; `max_order:orders=12`; `outlier:delta=-0.1,orders=paper`; `max_order@option_pairs`;
`relative_likelihood:reference=gpt2`: the statistic's registered name, the probe if it is not the one that the
statistic is made for, and every parameter of either that differs from its default. So adding a parameter with a
default changes no id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from lm_eval_leakage.registry import registered_name

OUTSIDE_ID = MappingProxyType({"in_id": False})  # field metadata: the parameter affects no question's verdict
NAME = re.compile(r"[A-Za-z0-9_.+/-]+")  # of a model; other names are replaced by a digest
REFERENCE = re.compile(r"[:,]reference=[^,]*$")  # `compose` writes it last
PLAIN = re.compile(r"[A-Za-z0-9_.+/-]{1,24}")


def detector_id(probe: object, statistic: object, reference: str | None = None) -> str:
    """The id of a probe and statistic with their parameters; scores are comparable only if their ids are equal.

    reference: name of the reference model whose log-likelihoods are subtracted
    """
    return compose(
        registered_name(type(statistic)),
        registered_name(type(probe)),
        made_for=getattr(statistic, "probe", ""),
        parameters=_changed(probe) | _changed(statistic),
        reference=reference,
    )


def compose(
    statistic: str, probe: str, *, made_for: str, parameters: Mapping[str, str], reference: str | None = None
) -> str:
    """An id from its parts; the values of `parameters` are already formatted by `spelled`."""
    shown = [f"{name}={value}" for name, value in sorted(parameters.items())]
    if reference is not None:
        shown.append(f"reference={reference if NAME.fullmatch(reference) else spelled(reference)}")
    who = statistic if probe == made_for else f"{statistic}@{probe}"
    return f"{who}:{','.join(shown)}" if shown else who


def without_reference(detector: str) -> str:
    """The id of the same probe and statistic where no other model's log-likelihoods are subtracted."""
    return REFERENCE.sub("", detector)


def spelled(value: object) -> str:
    """A parameter's value as a few characters without spaces or commas; a digest of any other text."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.12g}"
    text = value if isinstance(value, str) else repr(value)
    if PLAIN.fullmatch(text):
        return text
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _changed(part: object) -> dict[str, str]:
    """The parameters of a probe or statistic that are not at their defaults."""
    own = fields(part) if is_dataclass(part) and not isinstance(part, type) else ()
    return {
        field.name: spelled(getattr(part, field.name))
        for field in own
        if field.metadata.get("in_id", True) and getattr(part, field.name) != _default(field)
    }


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()
