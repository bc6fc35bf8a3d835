"""Arguments of models and tasks as typed on a command line: `key=value,key2=value2`, or a JSON object."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from lm_eval_leakage.texts import brief

# characters by which the command lines of lm_eval and of this package divide or group arguments
GROUPING = frozenset("[]{}()\"'\n,")


def parsed_args(text: str) -> dict[str, Any]:
    """Return the arguments as lm_eval reads them. Raises ValueError if they begin as JSON does and are not valid."""
    from lm_eval.utils import simple_parse_args_string  # slow to import, and tests of what is slow import this module

    if not is_json(text):
        return dict(simple_parse_args_string(text))
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{brief(text)} is not valid JSON: {error}") from None


def is_json(text: str) -> bool:
    """Return whether arguments are typed as a JSON object, valid or not."""
    return text.lstrip().startswith("{")


def typed_args(arguments: object) -> str:
    """Return a mapping as pairs if lm_eval reads these back as they are, else as JSON; anything else as text."""
    from lm_eval.utils import simple_parse_args_string

    if not isinstance(arguments, Mapping):
        return str(arguments)
    plain = ",".join(f"{key}={value}" for key, value in arguments.items())
    is_ambiguous = any(GROUPING & set(f"{key}{value}") or _is_constant(value) for key, value in arguments.items())
    if is_ambiguous or repr(simple_parse_args_string(plain)) != repr(dict(arguments)):
        return json.dumps(dict(arguments), default=str)
    return plain


def _is_constant(value: object) -> bool:
    """Return whether `lm_eval run` reads a string as a Python constant, such as ², 0J or 0x10."""
    if not isinstance(value, str):
        return False
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value.isnumeric()
    return True
