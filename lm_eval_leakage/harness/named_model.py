"""Loads a model, as lm_eval's command line names it, once for all runs that need it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from lm_eval.api.registry import get_model

from lm_eval_leakage.harness.model_checks import why_not_taken
from lm_eval_leakage.harness.models.model_identity import identity_of, named_identity, refuse_replaced
from lm_eval_leakage.harness.resumed_run import METHODS, step_aside
from lm_eval_leakage.harness.seams.command_line import ask_git_only_in_repositories
from lm_eval_leakage.harness.seams.evaluation import ASKED_WITH, Evaluation
from lm_eval_leakage.logs.answer_store import NAMING

BATCH_SIZE, DEVICE = 1, "cuda:0"  # what `lm_eval run` takes by default; backends use the device that there is


@dataclass(frozen=True)
class NamedModel:
    """A model as the command line of lm_eval names it, with how it is run.

    called: the name in the results files, where two models would have the same
    loaded: the model itself, if it is loaded already
    """

    model: str
    model_args: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | str = BATCH_SIZE
    device: str = DEVICE
    apply_chat_template: bool | str = False
    called: str = ""
    system_instruction: str | None = None
    loaded: Any = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Return the name in results files.

        `called`, if it was given, else the argument that names the model, or the backend's name if there is none.
        """
        if self.called:
            return self.called
        names = [str(self.model_args[key]) for key in NAMING if key in self.model_args]
        return names[0] if names else self.model

    @property
    def identity(self) -> dict[str, str]:
        """Return what its answers depend on: name, arguments and files; of a loaded model, its weights."""
        asked_with = {name: getattr(self, name) for name in ASKED_WITH}
        evaluation = Evaluation(self.loaded, model=self.model, model_args=self.model_args, asked_with=asked_with)
        return named_identity(evaluation) if self.loaded is None else identity_of(evaluation) or {}


@dataclass(eq=False)
class KeptModel:
    """A model that is loaded for its first run and kept for the others.

    lm: None until it is loaded
    identity: as it was before it was loaded: its files may change while it is asked
    seconds_of_loading: 0 if it was loaded before
    """

    lm: Any = None
    identity: dict[str, str] = field(default_factory=dict)
    seconds_of_loading: float = 0.0

    def loaded(self, who: NamedModel) -> Any:
        """Return the model, which is called so in all runs.

        Raises ValueError if its files changed while it was loaded.
        """
        if self.lm is None:
            start = perf_counter()
            how = {"batch_size": who.batch_size, "max_batch_size": None, "device": who.device}
            try:
                lm = get_model(who.model).create_from_arg_obj(dict(who.model_args), how)
            except TypeError as error:
                if why := why_not_taken(error, who.model, who.model_args):
                    raise ValueError(why) from error
                raise
            self.seconds_of_loading = perf_counter() - start
            refuse_replaced(self.identity, who.identity, who.model_args)
            self.lm = lm
        return self.lm


@contextmanager
def one_loaded_model(given: Any = None) -> Iterator[KeptModel]:
    """Load a model once for all runs within the block, and free its memory afterwards.

    given: one that is loaded already, which is left as it was
    """
    ask_git_only_in_repositories()
    kept, hook = KeptModel(given), getattr(given, "cache_hook", None)
    before = {} if given is None else {name: method for name, method in vars(given).items() if name in METHODS}
    try:
        yield kept
    finally:
        kept.lm = None
        if given is None:
            _free_memory()
        else:
            step_aside(given)
            vars(given).update(before)
        if hook is not None:
            given.set_cache_hook(hook)


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
