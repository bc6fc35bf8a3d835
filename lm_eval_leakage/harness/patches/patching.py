"""How this room changes lm_eval: once, only what is as `seams.py` says, and otherwise in one sentence to the user."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lm_eval_leakage.harness.patches.exception_hook import Refusal
from lm_eval_leakage.harness.patches.seams import KNOWN_VERSION, SEAMS, Seam

logger = logging.getLogger(__name__)

PATCHED = "_patched_by_lm_eval_leakage"


class OtherHarness(Refusal):
    """A lm_eval without something that a leakage task cannot do without."""


def patched_once(target: str, wrap: Callable[[Any], Any], owner: Any = None) -> bool:
    """Replace a function of lm_eval by `wrap(function)`, unless that was done before. Whether it is replaced now; if
    not, the log says what is lost, or OtherHarness is raised, as the table has it.

    owner: what the function is an attribute of, where that is at hand already
    """
    seam = seam_of(target)
    try:
        owner = _owner_of(target) if owner is None else owner
        original = getattr(owner, seam.attribute)
    except (ImportError, AttributeError) as error:
        return tell_loss(seam, str(error))
    if hasattr(original, PATCHED):
        return True
    if difference := _difference(original, seam):
        return tell_loss(seam, difference)
    replacement = functools.wraps(original)(wrap(original))
    setattr(replacement, PATCHED, True)
    setattr(owner, seam.attribute, replacement)
    return True


def is_as_known(target: str) -> bool:
    """Whether something of lm_eval that is used as it stands is as the table says; if not, as in `patched_once`."""
    return found(target) is not None


def found(target: str) -> Any:
    """The same, and what it is; None where it is not there, or another."""
    seam = seam_of(target)
    try:
        there = getattr(_owner_of(target), seam.attribute)
    except (ImportError, AttributeError) as error:
        tell_loss(seam, str(error))
        return None
    if difference := _difference(there, seam):
        tell_loss(seam, difference)
        return None
    return there


def tell_loss(seam: Seam, difference: str) -> bool:
    """Say what a user loses. Raises OtherHarness where nothing would be right without it, and returns False else."""
    try:
        installed = version("lm_eval")
    except PackageNotFoundError:
        installed = "(of unknown version)"
    sentence = (
        f"{seam.without}: the lm_eval here ({installed}) differs from the one that lm_eval_leakage knows "
        f"({KNOWN_VERSION}), for {difference}; install lm_eval {KNOWN_VERSION} or a newer lm_eval_leakage"
    )
    if seam.refuses:
        raise OtherHarness(sentence)
    logger.warning("%s", sentence)
    return False


@functools.cache
def seam_of(target: str) -> Seam:
    return next(seam for seam in SEAMS if seam.target == target)


def _owner_of(target: str) -> Any:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    for name in path.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def _difference(there: Any, seam: Seam) -> str:
    """What a function lacks of what the table says, in words; empty where it lacks nothing. A wrapper that another
    package has put around it is taken for what it wraps."""
    there = there.fget if isinstance(there, property) else inspect.unwrap(there)
    if there is object.__init__:
        return f"{seam.target} is not there"
    known = inspect.signature(there).parameters if seam.parameters else {}
    takes_anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    if missing := [name for name in seam.parameters if name not in known and not takes_anything]:
        return f"{seam.target} takes no {', '.join(missing)}"
    code = getattr(there, "__code__", None)
    if code is not None and str(there.__module__).startswith("lm_eval."):
        named = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
        if missing := [name for name in seam.names if name not in named]:
            return f"{seam.target} knows no {', '.join(missing)}"
    return ""
