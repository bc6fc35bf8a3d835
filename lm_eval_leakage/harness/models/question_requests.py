"""The methods by which audits ask models, in words.

All requests about one question, and the model's answers to them, in little memory: full MMLU has 336,900 of them.

The harness holds every request of a run from before the model's work until the results are saved. So the texts of a
question with many requests are rendered when they are read, and answers are kept as numbers, not as objects.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, overload

from lm_eval_leakage.detectors import Probe
from lm_eval_leakage.logs.answer_store import Answer
from lm_eval_leakage.records import Question, Request, Skipped, TokenScores

MEANING = {
    "loglikelihood": "gives no log-likelihoods of given texts",
    "generate_until": "does not generate text",
    "token_scores": "does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
}


def refuses(method: Any, *arguments: object) -> bool:
    """Whether a backend answers nothing by a method: it has none, or only one that raises NotImplementedError, as chat
    models inherit it.

    arguments: an empty list of requests, after any object if the method is that of a class
    """
    try:
        method(*arguments)
    except NotImplementedError:
        return True
    except Exception:  # the method needs requests, or a loaded model
        return method is None
    return False


REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | str
Arguments = tuple[Any, ...]
Metadata = tuple[str | None, int | None, int | None]
NOT_ASKED: Mapping[str, Response] = {"loglikelihood": (math.nan, False), "token_scores": (math.nan, False)}
RENDERED_AGAIN = 12  # requests; the texts of a question with fewer are kept
NOTHING_ELSE: dict[int, Any] = {}  # shared by all questions, never changed
KEY_SIZE = 16  # bytes
NOT_ANSWERED = 2  # beside 0 and 1, whether each token of a text was the most likely


@dataclass(frozen=True)
class Broken:
    """An invalid response; describes what the backend returned instead of an answer."""

    reason: str


class QuestionRequests:
    """The requests about one question, or a placeholder for a question that cannot be tested, since the harness needs
    at least one request per question.

    doc, metadata: as in the harness's Instance; metadata is the task's name, the question's number and 1
    arguments: of the model's method, for each request
    render: returns them again; None if they cannot be rendered again at little cost
    method: the model's method that answers them
    task: an AskedTask
    skipped: why the question is not tested
    judged: the verdicts, by pipeline
    is_judged: whether they are complete; samples then hold this object instead of texts and responses
    """

    __slots__ = (
        *("doc", "metadata", "method", "task", "skipped", "judged", "is_judged", "n_requests"),
        *("_render", "_kept", "_sizes", "_loglikelihoods", "_greedy", "_others"),
    )
    _last: ClassVar[tuple[object, Sequence[Arguments]]] = (None, ())  # texts are read question by question

    def __init__(
        self,
        doc: Mapping[str, Any],
        metadata: Metadata,
        arguments: Sequence[Arguments],
        method: str,
        task: Any,
        skipped: Skipped | None = None,
        render: Callable[[], Sequence[Arguments]] | None = None,
    ) -> None:
        self.doc, self.metadata, self.method, self.task, self.skipped = doc, metadata, method, task, skipped
        self.judged: dict[str, Any] = {}
        self.is_judged = False
        self.n_requests = len(arguments)
        self._render = render if self.n_requests >= RENDERED_AGAIN else None
        self._kept = arguments if self._render is None else arguments[:1]
        self._sizes = array("I", map(n_characters, arguments))
        self._loglikelihoods: array[float] | None = None
        self._greedy = bytearray()
        self._others: dict[int, str | TokenScores | Broken] = NOTHING_ELSE

    def instances(self) -> list[LeakageInstance]:
        """The requests as the harness holds them."""
        return [LeakageInstance(self, idx) for idx in range(self.n_requests)]

    @property
    def first(self) -> Arguments:
        """The arguments of the first request, of which the harness logs a digest for each sample."""
        return self._kept[0]

    @property
    def arguments(self) -> Sequence[Arguments]:
        """The arguments of the model's method, for each request."""
        if self._render is None:
            return self._kept
        of, rendered = QuestionRequests._last
        if of is not self:
            rendered = self._render()
            QuestionRequests._last = self, rendered
        return rendered

    def n_characters(self, place: int) -> int:
        """Length of a request's texts, which are not rendered for it."""
        return self._sizes[place]

    def answer(self, place: int) -> Answer | Broken | None:
        """The model's answer to a request; None if there is none yet."""
        if self._others and place in self._others:
            return self._others[place]
        if self._loglikelihoods is None or self._greedy[place] == NOT_ANSWERED:
            return None
        return self._loglikelihoods[place], bool(self._greedy[place])

    def take(self, place: int, answer: Answer | Broken) -> None:
        if not isinstance(answer, tuple):
            self._others = {**self._others, place: answer}
            return
        if self._loglikelihoods is None:
            self._loglikelihoods = array("d", bytes(8 * self.n_requests))
            self._greedy = bytearray([NOT_ANSWERED]) * self.n_requests
        self._loglikelihoods[place], self._greedy[place] = answer
        if place in self._others:
            self._others = {key: other for key, other in self._others.items() if key != place}

    @property
    def responses(self) -> list[Response]:
        """In the harness's format: the log-likelihood in nats, of a text whose tokens are scored their sum, and NaN
        where there is no valid answer; or a text."""
        return [self._response(place) for place in range(self.n_requests)]

    def _response(self, place: int) -> Response:
        answer = self.answer(place)
        if answer is None or isinstance(answer, Broken):
            return NOT_ASKED.get(self.method, "")
        return (sum(answer.loglikelihoods), False) if isinstance(answer, TokenScores) else answer

    def append(self, _: object) -> None:
        """The harness gives a response back to its request, which already has it."""

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Sent to another process, in a sample, only what is logged."""
        return Logged, ([*self.arguments], self.responses)


@dataclass(frozen=True)
class Logged:
    """What a samples log holds of the requests about one question, and of the responses."""

    arguments: Sequence[Arguments]
    responses: Sequence[Response]


class LeakageInstance:
    """One request about a question: what the harness reads of its `Instance`, without anything of its own."""

    __slots__ = ("idx", "of")
    request_type = REQUEST_TYPE

    def __init__(self, of: QuestionRequests, idx: int) -> None:
        self.of, self.idx = of, idx

    @property
    def doc(self) -> Mapping[str, Any]:
        return self.of.doc

    @property
    def metadata(self) -> Metadata:
        return self.of.metadata

    @property
    def task_name(self) -> str | None:
        return self.of.metadata[0]

    @property
    def doc_id(self) -> int | None:
        return self.of.metadata[1]

    @property
    def repeats(self) -> int | None:
        return self.of.metadata[2]

    @property
    def task(self) -> Any:
        return self.of.task

    @property
    def arguments(self) -> Arguments:
        return self.of.arguments[self.idx] if self.idx else self.of.first

    @property
    def args(self) -> Any:
        """The arguments; once the question is judged, an object that stands for those of all its requests."""
        return self.of if self.of.is_judged else self.of.arguments[self.idx]

    @property
    def n_characters(self) -> int:
        return self.of.n_characters(self.idx)

    @property
    def resps(self) -> QuestionRequests:
        return self.of

    @property
    def filtered_resps(self) -> dict[str, Any]:
        return self.of.judged

    @property
    def answer(self) -> Answer | Broken | None:
        return self.of.answer(self.idx)

    @answer.setter
    def answer(self, answer: Answer | Broken | None) -> None:
        assert answer is not None, "an answer is never taken back"
        self.of.take(self.idx, answer)

    def __repr__(self) -> str:
        return f"LeakageInstance(task={self.task_name!r}, doc_id={self.doc_id}, idx={self.idx}, args={self.args!r})"


class RequestsAgain(Sequence[Request]):
    """A probe's requests about a question, made anew whenever they are read, since most statistics never read them and
    those about all questions of a benchmark would fill hundreds of megabytes."""

    __slots__ = ("_length", "_probe", "_question")

    def __init__(self, probe: Probe, question: Question, length: int) -> None:
        self._probe, self._question, self._length = probe, question, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Request: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Request, ...]: ...

    def __getitem__(self, place: int | slice) -> Request | tuple[Request, ...]:
        return self._probe.requests(self._question)[place]

    def __iter__(self) -> Iterator[Request]:
        return iter(self._probe.requests(self._question))


# ---------------------------------------------------------------------- what is kept of each request's texts


def n_characters(arguments: Sequence[Any]) -> int:
    """Length of a request's texts: the measure by which the work done is compared with the work left."""
    texts = [part[0] if isinstance(part, tuple) else part for part in arguments]
    return sum([len(text) for text in texts if isinstance(text, str)])


def request_key(method: str, arguments: Sequence[Any]) -> bytes:
    """A digest of a request, equal for equal requests; the 336,900 texts of full MMLU would need too much memory."""
    parts = [part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str) for part in arguments]
    whole = f"{method} {','.join([str(len(part)) for part in parts])} {''.join(parts)}"
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=KEY_SIZE).digest()
