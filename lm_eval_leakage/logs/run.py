"""Problems met while reading runs, to be reported to the user: nothing is skipped silently.

One call of the harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval_leakage.texts import visible

# Raised by reading a line that is valid JSON but not what its writer would have written.
NOT_AS_WRITTEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Problem:
    """Something that could not be used or was skipped, in words, with its file and line if it has one.

    incomplete: whether questions that were asked are, or may be, missing, so that the rest must not be judged
    """

    what: str
    file: Path | None = None
    line: int | None = None
    incomplete: bool = False

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}{'' if self.line is None else f', line {self.line}'}: "
        return visible(where + self.what)


Line = tuple[int, dict[str, Any]]  # of a samples log, with its number
LogReader = Callable[[Path, list[Problem]], Iterator[Line]]


def json_lines(file: Path, problems: list[Problem]) -> Iterator[Line]:
    """Yield number and content of every line of a samples log that holds a JSON object.

    Other lines, such as those that a killed run or a full disk left behind, become problems. One line at a time is
    held in memory.
    """
    try:
        with file.open("rb") as lines:  # as bytes, since otherwise one invalid byte would end the file
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError) as error:
                    cut = "" if line.endswith(b"\n") else "truncated, "
                    problems.append(Problem(f"left out: {cut}not JSON ({error})", file, number))
                    continue
                if isinstance(content, dict):
                    yield number, content
                else:
                    kind = type(content).__name__
                    problems.append(Problem(f"left out: a {kind} instead of a JSON object", file, number))
    except OSError as error:
        problems.append(Problem(f"cannot be read ({error.strerror})", file))


TIME = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"  # in the names of files
RESULTS = re.compile(rf".+_(?P<time>{TIME})\.json", re.DOTALL)  # a name may hold a newline
ANNOTATED = "_leakage"  # ending of the copies that `annotate` writes
MOST_QUESTIONS = 10**9  # of a task; a larger number in a results file is a fault
OF_IDENTITY = ("revision", "subfolder")  # model arguments that distinguish models of one name
LOCAL = re.compile(r"files \([0-9a-f]{16}\)")  # in an identity, instead of the path of a file or folder
# sections of a results file
IDENTITY = "leakage_identity"  # what the model's answers depend on
DATA = "leakage_data"  # a digest of all rows of each task
DRAW = "leakage_draw"  # how its questions were drawn
# In the folder of a check, beside its manifest: audits of rows that the model may have learned, which say nothing of
# the benchmark that they are named after.
UNSEEN, POSITIVE = "unseen", "positive"  # folders of a check with audits of other rows than the benchmark's
MANIFEST = "manifest.json"
LEFT_OUT = "leakage_left_out"  # in a line of a samples log: why it has no metrics
CHAT_TEMPLATE, SYSTEM_INSTRUCTION = "chat_template", "system_instruction"  # also with `_sha` at the end: a digest


@dataclass(frozen=True)
class Run:
    """One call of the harness.

    model: its name, with the revision if one was requested; the folder's name if the results file is missing
    time: as in the file names, so that it sorts
    results: the sections of the results file that are used; empty if it is missing
    logs: samples log of each task
    read_log: yields the lines of one of the logs, as lm_eval writes them; `doc_hash` is empty where a question's data
        row is not recorded, and `doc` is then the question as the prompt words it
    """

    model: str
    time: str
    results: Mapping[str, Any] = field(default_factory=dict)
    results_file: Path | None = None
    logs: Mapping[str, Path] = field(default_factory=dict)
    read_log: LogReader = field(default=json_lines, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Equal for runs of one model, whether their results could be read or not."""
        return sanitized(self.model)

    @property
    def identity(self) -> Mapping[str, str]:
        """What its model's answers depend on; empty where nobody wrote it down."""
        return self.results.get(IDENTITY) or {}

    @property
    def named(self) -> str:
        """The model's name as it was given, also where its identity was added to tell it from another one."""
        return self.model.removesuffix(in_brackets(self.identity))

    @property
    def data(self) -> Mapping[str, str]:
        """Digests of all rows of its tasks; empty where nobody wrote them down."""
        return self.results.get(DATA) or {}

    @property
    def draw(self) -> Mapping[str, int]:
        """The seed by which its questions were drawn; empty if they were not, or nobody wrote it down."""
        return self.results.get(DRAW) or {}


def n_told(run: Run, task: str, which: str = "effective") -> int | None:
    """Return how many questions of a task the harness reports to have asked or, for `original`, that the task has;
    None if it reports no number that can be right."""
    counts = (run.results.get("n-samples") or {}).get(task)
    n = counts.get(which) if isinstance(counts, Mapping) else None
    return n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_QUESTIONS else None


def leaves(group: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Tasks below a group, at any depth, each once."""
    members = subtasks.get(group)
    if not members:
        return [group]
    return list(dict.fromkeys(leaf for member in members if member != group for leaf in leaves(member, subtasks)))


def groups_above(name: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups that contain a task or group, the innermost first."""
    inner = next((group for group, members in subtasks.items() if name in members and group != name), "")
    return [inner, *groups_above(inner, subtasks)] if inner else []


def outer_first(subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """All groups, each before the groups within it, in whatever order the harness wrote them."""
    return sorted(subtasks, key=lambda name: len(groups_above(name, subtasks)))


def outermost(name: str, subtasks: Mapping[str, Sequence[str]]) -> str:
    """The outermost group that contains a task or group; empty if none does."""
    return ["", *groups_above(name, subtasks)][-1]


def digest_of(identity: Mapping[str, str]) -> str:
    """A short name for an identity."""
    told = json.dumps(sorted(identity.items())).encode("utf-8", "surrogatepass")
    return blake2b(told, digest_size=4).hexdigest()


def in_brackets(identity: Mapping[str, str]) -> str:
    """What follows a model's name where another one has the same name."""
    return f" [{digest_of(identity)}]"


def identity_differences(earlier: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between two identities, in words; empty if nothing does."""
    names = sorted(name for name in {*earlier, *now} if earlier.get(name) != now.get(name))
    return "; ".join(f"{name} {earlier.get(name, 'not given')}, now {now.get(name, 'not given')}" for name in names)


OF_COMPUTATION = frozenset(  # keys of an identity that say how a model is asked or computed, not what its weights are
    (
        *("backend", "dtype", "softmax_dtype", "mixed_precision_dtype", "attn_implementation"),
        *("load_in_8bit", "load_in_4bit", "quantization", "kv_cache_dtype"),
        *("tokenizer", "add_bos_token", "prefix_token_id", "max_length", "max_model_len", "truncation"),
        *("apply_chat_template", "system_instruction", "chat_template_args", "enable_thinking"),
        *("tokenizer_backend", "tokenized_requests", "logits_cache", "low_cpu_mem_usage", "max_gen_toks", "seed"),
    )
)
WEIGHTS = "weights"  # key of an identity: a digest of the weights of a model in memory
CONTENT = re.compile(
    r"(?P<name>.+) \((?P<digest>[0-9a-f]{16}|[0-9a-f]{40})\)", re.DOTALL
)  # of a named folder, file or commit


def same_weights(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether two identities are of one model, whatever its folder is called and however it is asked."""
    first, second = _of_weights(one), _of_weights(other)
    if WEIGHTS not in first or WEIGHTS not in second:
        first.pop(WEIGHTS, None)
        second.pop(WEIGHTS, None)
    return first == second


def _of_weights(identity: Mapping[str, str]) -> dict[str, str]:
    """Return what an identity says of the weights, with digests and commits instead of names."""
    weights = {name: value for name, value in identity.items() if name not in OF_COMPUTATION}
    contents = {}
    for name, value in weights.items():
        if match := CONTENT.fullmatch(value):
            contents[name] = match["digest"]
    if contents or weights.get("revision") == "main":  # a commit says more
        weights.pop("revision", None)
    return weights | contents


def same_model(run: Run, other: Run) -> bool:
    """Return whether two runs are of one model: by what they record of it, by its name where one records nothing."""
    if run.identity and other.identity:
        return same_weights(run.identity, other.identity)
    return sanitized(run.named) == sanitized(other.named)


def sanitized(model: str) -> str:
    """A model's name as the harness turns it into a folder name."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def model_named(name: str, arguments: Mapping[str, Any]) -> str:
    """A model's name with what distinguishes models of one name."""
    told = [f"{key}={arguments[key]}" for key in OF_IDENTITY if arguments.get(key) not in (None, "", "main")]
    return " ".join([name, *told])


def arguments_of(arguments: object) -> Mapping[str, Any]:
    """A model's arguments: a mapping in the newer harness, a text in the older one."""
    if isinstance(arguments, str):
        return dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    return arguments if isinstance(arguments, Mapping) else {}
