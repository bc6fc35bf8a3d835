"""Keeps the answers of an ordinary task as they come, so that a run that was killed asks only what is left.

lm_eval's own response cache would believe whatever a damaged file says, keeps answers that are none, and ignores the
model; our store of answers does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lm_eval.api.model import CacheHook

from lm_eval_leakage.files import atomic_remove
from lm_eval_leakage.harness.models.abilities import longer_than_window
from lm_eval_leakage.harness.models.answer_faults import UNASKED, NoAnswer
from lm_eval_leakage.harness.models.asking import checked_answer
from lm_eval_leakage.harness.models.question_requests import Broken, request_key
from lm_eval_leakage.harness.tasks.data import row_hash
from lm_eval_leakage.logs.answer_store import Answer, AnswerStore

METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")
Ask = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Unasked:
    """The reasons why questions of one task are not asked, by the hashes of their rows."""

    reasons: dict[str, str] = field(default_factory=dict)

    def __call__(self, doc: Any) -> str:
        """Return the reason of a row; empty if it is asked."""
        return self.reasons.get(row_hash(doc), "") if self.reasons else ""


class ResumedRun(CacheHook):  # type: ignore[misc]
    """Stores what a model answers, and stands before it with what is stored, and with a window.

    tasks: that are asked, by name. Their questions that are longer than the window are not asked: a backend would cut
        them on the left without a word. As in an audit, they are left out.
    """

    def __init__(self, store: AnswerStore, tasks: Mapping[str, Any] | None = None) -> None:
        super().__init__(None)
        self._kept, self._tasks = store, tasks or {}
        for task in self._tasks.values():
            vars(task)[UNASKED] = Unasked()

    def stand_before(self, lm: Any) -> None:
        """Let the model answer only what is not stored, until `step_aside`."""
        for method in METHODS:
            vars(lm)[method] = self._with_stored(lm, method, getattr(lm, method))

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """Store an answer, as backends report it."""
        answer = _storable(attr, req, res)
        if answer is not None:
            self._kept.add(request_key(attr, req), answer)

    def close(self) -> None:
        self._kept.close()

    def remove(self) -> None:
        """Remove the stored answers, as of a run that was saved."""
        self.close()
        atomic_remove(self._kept.folder)

    def _with_stored(self, lm: Any, method: str, ask: Ask) -> Ask:
        def answer(requests: Sequence[Any], *further: Any, **named: Any) -> list[Any]:
            keys = [request_key(method, request.args) for request in requests]
            stored: dict[bytes, Any] = {
                key: _as_returned(method, answer) for key, answer in self._kept.find(keys).items()
            }
            for key, request in zip(keys, requests, strict=True):
                if key not in stored and (reason := _too_long(lm, method, request.args)):
                    stored[key] = _unasked(method, reason)
                    self._note(request, reason)
            left = [request for key, request in zip(keys, requests, strict=True) if key not in stored]
            responses = map(partial(_in_python, method), ask(left, *further, **named) if left else [])
            return [stored[key] if key in stored else next(responses) for key in keys]

        return answer

    def _note(self, request: Any, reason: str) -> None:
        if (task := self._tasks.get(request.task_name)) is not None:
            vars(task)[UNASKED].reasons.setdefault(row_hash(request.doc), reason)


def _too_long(lm: Any, method: str, arguments: Sequence[Any]) -> str | None:
    """Return why a backend would cut the text of a request; None if it would not, or if the model has no window."""
    if method == "loglikelihood":
        return longer_than_window(lm, [(arguments[0], arguments[1])])
    if method == "generate_until" and len(arguments) == 2:
        n_generated = arguments[1].get("max_gen_toks") or getattr(lm, "max_gen_toks", 0)
        return longer_than_window(lm, [(arguments[0], "")], n_generated if isinstance(n_generated, int) else 0)
    return None  # rolling log-likelihoods are computed in windows


def _unasked(method: str, reason: str) -> Any:
    return "" if method == "generate_until" else (NoAnswer(reason), False)


def step_aside(lm: Any) -> None:
    """Let the model answer everything itself again."""
    for method in METHODS:
        vars(lm).pop(method, None)


def _storable(method: str, arguments: Sequence[Any], response: Any) -> Answer | None:
    """Return an answer as it is stored; None for what is sent again."""
    if method == "generate_until" and arguments[1].get("do_sample"):  # one of several
        return None
    answer = _answer(method, response)
    return None if isinstance(answer, Broken) else answer


def _in_python(method: str, response: Any) -> Any:
    """Return a response whose numbers may be those of numpy or torch with Python's, which logs can hold."""
    answer = _answer(method, response)
    return response if isinstance(answer, Broken) else _as_returned(method, answer)


def _answer(method: str, response: Any) -> Answer | Broken:
    is_rolling = method == "loglikelihood_rolling"
    return (
        checked_answer("loglikelihood", (response, False), "") if is_rolling else checked_answer(method, response, "")
    )


def _as_returned(method: str, answer: Answer) -> Any:
    return answer[0] if method == "loglikelihood_rolling" and isinstance(answer, tuple) else answer
