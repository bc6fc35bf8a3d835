"""Defines a run, which is one call of the harness, and the problems of reading it, which are reported to the user.

It also reads lines of samples logs, walks groups of tasks, and compares the identities of models.
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

# What reading a line raises that is valid JSON but not what its writer would have written.
NOT_AS_WRITTEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
MOST_QUESTIONS = 10**9  # of a task; a larger number in a results file is an error

# names of files and folders
TIME = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d+)?"
RESULTS = re.compile(rf".+_(?P<time>{TIME})\.json", re.DOTALL)  # a name may hold a newline
ANNOTATED = "_leakage"  # ending of the copies that `annotate` writes
PLAN, MANIFEST = "plan.yaml", "manifest.json"
OF_CHECK = frozenset({PLAN, MANIFEST})  # are in a folder that a check has written
RUNS = "runs"  # folder beside them of what is judged
# Folders beside it with audits of a reference model, of unseen questions and of rows that the model may have learned.
# They have the name of the benchmark and are not judged.
REFERENCE, UNSEEN, POSITIVE = "reference", "unseen", "positive"
# Folders beside it whose files count nowhere: of units in progress, and of those that were moved out of the folders of
# their roles, since another model answered them or other questions were asked.
WORK, REPLACED = "work", "replaced"

# sections of a results file, and a key of a line of a samples log
IDENTITY = "leakage_identity"  # what the model's answers depend on
DATA = "leakage_data"  # a digest of all rows of each task
DRAW = "leakage_draw"  # the seed with which its questions were drawn
LEFT_OUT = "leakage_left_out"  # of a line: the reason why it has no metrics

# model arguments, and keys and values of an identity
OF_IDENTITY = ("revision", "subfolder")  # arguments that distinguish models of one name
CHAT_TEMPLATE, SYSTEM_INSTRUCTION = "chat_template", "system_instruction"  # with `_sha` at the end: a digest
OF_COMPUTATION = frozenset(  # keys that describe how a model is prompted or computed, not its weights
    (
        *("backend", "dtype", "softmax_dtype", "mixed_precision_dtype", "attn_implementation"),
        *("load_in_8bit", "load_in_4bit", "quantization", "kv_cache_dtype"),
        *("tokenizer", "add_bos_token", "prefix_token_id", "max_length", "max_model_len", "truncation"),
        *("apply_chat_template", "system_instruction", "chat_template_args", "enable_thinking"),
        *("tokenizer_backend", "tokenized_requests", "logits_cache", "low_cpu_mem_usage", "max_gen_toks", "seed"),
    )
)
WEIGHTS = "weights"  # key: a digest of the weights of a model in memory
LOCAL = re.compile(r"files \([0-9a-f]{16}\)")  # value: stands for the path of a file or folder
# value: the name of a folder, file or repository with the digest of its content
CONTENT = re.compile(r"(?P<name>.+) \((?P<digest>[0-9a-f]{16}|[0-9a-f]{40})\)", re.DOTALL)
Line = tuple[int, dict[str, Any]]  # of a samples log, with its number


@dataclass(frozen=True)
class Problem:
    """A report, in words, that something could not be used or was skipped, with its file and line if it has one.

    incomplete: whether scored questions are, or may be, missing, so that the rest must not be judged
    """

    what: str
    file: Path | None = None
    line: int | None = None
    incomplete: bool = False

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}{'' if self.line is None else f', line {self.line}'}: "
        return visible(where + self.what)


LogReader = Callable[[Path, list[Problem]], Iterator[Line]]


def json_lines(file: Path, problems: list[Problem]) -> Iterator[Line]:
    """Yield number and content of every line of a samples log that is a JSON object.

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


@dataclass(frozen=True)
class Run:
    """A run: one call of the harness, described by the files that it wrote.

    model: the model's name, with the revision if one was requested; the folder's name without a results file
    time: time of the run as in its file names, which sorts
    results: the sections of the results file that are used; empty without one
    logs: samples log of each task
    read_log: yields the lines of a log, as lm_eval writes them. If a question's data row is not recorded, `doc_hash`
        is empty, and `doc` is the question as the prompt words it
    """

    model: str
    time: str
    results: Mapping[str, Any] = field(default_factory=dict)
    results_file: Path | None = None
    logs: Mapping[str, Path] = field(default_factory=dict)
    read_log: LogReader = field(default=json_lines, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Return a key that is equal for runs of one model, whether their results can be read or not."""
        return sanitized(self.model)

    @property
    def identity(self) -> Mapping[str, str]:
        """Return the settings on which the model's answers depend; empty if they are not recorded."""
        return self.results.get(IDENTITY) or {}

    @property
    def named(self) -> str:
        """Return the model's name as it was given, without a digest of the identity that was added to it."""
        return self.model.removesuffix(in_brackets(self.identity))

    @property
    def data(self) -> Mapping[str, str]:
        """Return the digest of all rows of each task; empty if they are not recorded."""
        return self.results.get(DATA) or {}

    @property
    def seed(self) -> int | None:
        """Return the seed with which its questions were drawn; None if all were asked, or if it is not recorded."""
        seed: int | None = (self.results.get(DRAW) or {}).get("seed")
        return seed


def n_reported(run: Run, task: str, which: str = "effective") -> int | None:
    """Return the number of questions of a task that the harness reports; None if it reports no plausible number.

    which: "effective" for the questions that were scored, "original" for all questions of the task
    """
    counts = (run.results.get("n-samples") or {}).get(task)
    n = counts.get(which) if isinstance(counts, Mapping) else None
    return n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_QUESTIONS else None


def leaves(group: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks below a group, at any depth, each once."""
    members = subtasks.get(group)
    if not members:
        return [group]
    return list(dict.fromkeys(leaf for member in members if member != group for leaf in leaves(member, subtasks)))


def groups_above(name: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the groups that contain a task or group, the innermost first."""
    inner = next((group for group, members in subtasks.items() if name in members and group != name), "")
    return [inner, *groups_above(inner, subtasks)] if inner else []


def outer_first(subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all groups, each before the groups within it."""
    return sorted(subtasks, key=lambda name: len(groups_above(name, subtasks)))


def outermost(name: str, subtasks: Mapping[str, Sequence[str]]) -> str:
    """Return the outermost group that contains a task or group; empty if none does."""
    return ["", *groups_above(name, subtasks)][-1]


def digest_of(identity: Mapping[str, str]) -> str:
    """Return a digest of eight characters of an identity."""
    text = json.dumps(sorted(identity.items())).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=4).hexdigest()


def in_brackets(identity: Mapping[str, str]) -> str:
    """Return the suffix of a model's name that separates it from others of the name: ` [DIGEST]`."""
    return f" [{digest_of(identity)}]"


def identity_differences(earlier: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the differences between two identities, in words; empty without any."""
    names = sorted(name for name in {*earlier, *now} if earlier.get(name) != now.get(name))
    return "; ".join(f"{name} {earlier.get(name, 'not given')}, now {now.get(name, 'not given')}" for name in names)


def same_weights(identity: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether two identities are of the same weights; their folder and the settings of a run do not count."""
    first, second = _of_weights(identity), _of_weights(other)
    if WEIGHTS not in first or WEIGHTS not in second:
        first.pop(WEIGHTS, None)
        second.pop(WEIGHTS, None)
    return first == second


def _of_weights(identity: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of an identity that describe the weights, with digests and commits instead of names."""
    weights = {name: value for name, value in identity.items() if name not in OF_COMPUTATION}
    contents = {}
    for name, value in weights.items():
        if match := CONTENT.fullmatch(value):
            contents[name] = match["digest"]
    if contents or weights.get("revision") == "main":  # a commit is more precise
        weights.pop("revision", None)
    return weights | contents


def same_model(run: Run, other: Run) -> bool:
    """Return whether two runs are of one model: by its identity, or by its name if either run does not record one."""
    if run.identity and other.identity:
        return same_weights(run.identity, other.identity)
    return sanitized(run.named) == sanitized(other.named)


def sanitized(model: str) -> str:
    """Return a model's name as the harness turns it into a folder name."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def model_named(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a model's name with the arguments that distinguish models of one name."""
    distinguishing = [f"{key}={arguments[key]}" for key in OF_IDENTITY if arguments.get(key) not in (None, "", "main")]
    return " ".join([name, *distinguishing])


def recorded_arguments(arguments: object) -> Mapping[str, Any]:
    """Return a model's arguments as a mapping. Newer versions of the harness write a mapping, older ones a text."""
    if isinstance(arguments, str):
        return dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    return arguments if isinstance(arguments, Mapping) else {}
