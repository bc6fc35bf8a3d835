"""Reads values of settings from a command line, from Python or from YAML, or raises ValueError with one sentence that
names the value, the rule and the remedy.

What a check is asked for: from the command line, from Python, or from a YAML file with the same names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.results.data_verdict import WORDS
from lm_eval_leakage.texts import brief, from_yaml


def names_in_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"config is {str(file)!r}, which is not a file; give a YAML file with model and tasks")
    try:
        found = from_yaml(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8 ({error}); save it as UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{file} cannot be used: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} holds {brief(found)}; give names and values, such as model: hf")
    return {str(name): value for name, value in found.items() if value is not None}


def refuse_unknown(told: Iterable[str], known: Sequence[str], source: str) -> None:
    """Raises ValueError for a name that is not a setting, with the nearest one."""
    for name in told:
        if name not in known:
            close = get_close_matches(name, known, n=1, cutoff=0.5)
            remedy = f"did you mean {close[0]!r}?" if close else f"choose from: {', '.join(known)}"
            raise ValueError(f"{source} has {name!r}, which is not a setting; {remedy}")


def read_model_arguments(name: str, value: object) -> dict[str, Any]:
    from lm_eval_leakage.harness.preflight import parsed_args

    if isinstance(value, Mapping):
        return {str(key): own for key, own in value.items()}
    if not isinstance(value, str) or any("=" not in part for part in value.split(",") if part):
        raise ValueError(f"{name} is {brief(value)}; write it as for lm_eval: pretrained=MODEL,dtype=bfloat16")
    return parsed_args(value)


def read_names(name: str, value: object) -> tuple[str, ...]:
    parts = [value] if isinstance(value, (str, Path)) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, (str, Path)) for part in parts):
        raise ValueError(f"{name} is {brief(value)}; give one name, or several separated by commas")
    return tuple(part.strip() for text in parts for part in str(text).split(",") if part.strip())


def read_path(name: str, value: object) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError(f"{name} is {brief(value)}; give one path")
    return Path(value).expanduser()


def read_whole_number(name: str, value: object, wanted: str) -> int:
    try:
        if not isinstance(value, bool) and isinstance(value, (int, str)):
            return int(value)
    except ValueError:
        pass
    raise ValueError(f"{name} is {brief(value)}; give {wanted}")


def read_switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {brief(value)}; give true or false")
    return value


def read_chat_template(name: str, value: object) -> bool | str:
    if not isinstance(value, (bool, str)):
        raise ValueError(f"{name} is {brief(value)}; give true, false, or the name of a template")
    return value


def read_batch_size(name: str, value: object) -> int | str:
    text = str(value)
    if not (text.isdecimal() and int(text) > 0) and not text.startswith("auto"):
        raise ValueError(f"{name} is {brief(value)}; give a whole number from 1, or auto")
    return int(text) if text.isdecimal() else text


def read_text(name: str, value: object) -> str:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError(f"{name} is {brief(value)}; give a text")
    return str(value)


DEFAULT_CONFIG = Path("leakage.yaml")  # taken from the working directory if neither a model nor a file is given
CHECKED_AUDITS = ("leakage_perm", "leakage_tokens", "choice_confusion")
N_QUESTIONS = 300
ALL_QUESTIONS = "all"
NOT_REPEATED = ("fail_on", "allow_untold", "dry_run", "quiet")


@dataclass(frozen=True)
class CheckSettings:
    """model, model_args, tasks, batch_size, device, include_path, apply_chat_template: as for `lm_eval run`; a task
        may also be a file of plain questions
    runs: folders of runs and audits that exist already
    reference: a folder of another model's audits, or the model_args of a model to audit as the reference
    unseen: a file of questions of the same kind that the model cannot have seen
    orders: what the builder of the one task says about its published orders, as "random: SOURCE"
    questions: how many are drawn of each task; None for all
    seed: of the draw
    output_path: the folder for runs, page and verdicts
    fail_on: the verdict from which on the command fails
    allow_untold: whether verdicts that cannot be told pass `fail_on`
    dry_run: only plan; quiet: print only the verdicts
    """

    model: str = "hf"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()
    reference: Path | Mapping[str, Any] | None = None
    unseen: Path | None = None
    orders: str | None = None
    questions: int | None = N_QUESTIONS
    seed: int = 0
    output_path: Path = Path("leakage")
    fail_on: str | None = None
    allow_untold: bool = False
    batch_size: int | str | None = None
    device: str | None = None
    include_path: str | None = None
    apply_chat_template: bool | str = False
    dry_run: bool = False
    quiet: bool = False


SETTING_NAMES: tuple[str, ...] = tuple(one.name for one in fields(CheckSettings))


def check_settings(given: Mapping[str, Any], config: str | Path | None = None) -> CheckSettings:
    """The settings of a check; what is given here has precedence over the file.

    given: values as on the command line, as in YAML or of their own type; None for what is not given
    config: a YAML file; by default `leakage.yaml`, if there is one and no model is given

    Raises ValueError, in one sentence, for an unknown name or a value that cannot be used.
    """
    told = {name: value for name, value in given.items() if value is not None}
    if config is None and "model" not in told and DEFAULT_CONFIG.is_file():
        config = DEFAULT_CONFIG
    told = {**({} if config is None else names_in_file(Path(config))), **told}
    refuse_unknown(told, SETTING_NAMES, "check" if config is None else str(config))
    settings = CheckSettings(**{name: READERS[name](name, value) for name, value in told.items()})
    return _checked(settings, set(told))


def as_command(settings: CheckSettings) -> str:
    """The command line of a check that tells, without `--dry_run`, `--quiet` and what only its exit status needs."""
    words = ["lm-eval-leakage", "check", "--model", settings.model]
    for one in fields(CheckSettings):
        value = getattr(settings, one.name)
        if one.name in ("model", *NOT_REPEATED) or value == getattr(CheckSettings(), one.name):
            continue
        for told in _as_words(one.name, value):
            words += [f"--{one.name}", *told]
    return shlex.join(words)


def _as_words(name: str, value: object) -> list[list[str]]:
    """What follows the option each time that it is given."""
    if value is True:
        return [[]]
    if isinstance(value, Mapping):
        return [[",".join(f"{key}={own}" for key, own in value.items())]]
    if isinstance(value, tuple):
        parts = [str(part) for part in value]
        return [[part] for part in parts] if name == "runs" else [[",".join(parts)]]
    return [[ALL_QUESTIONS if value is None else str(value)]]


def _checked(settings: CheckSettings, told: set[str]) -> CheckSettings:
    if not told & {"model", "model_args"}:
        raise ValueError(
            "model is not given; name one as for lm_eval, such as --model hf --model_args pretrained=gpt2, or write "
            f"model and model_args into {DEFAULT_CONFIG}"
        )
    if not settings.tasks:
        raise ValueError("tasks is not given; name benchmarks as for lm_eval, such as --tasks mmlu,arc_challenge")
    for folder in settings.runs:
        if not folder.exists():
            raise ValueError(f"runs is {str(folder)!r}, which does not exist; name the --output_path of a run")
    if settings.unseen is not None and not settings.unseen.is_file():
        raise ValueError(f"unseen is {str(settings.unseen)!r}, which is not a file; give one with a question per row")
    if settings.unseen is not None and len(settings.tasks) != 1:
        raise ValueError("unseen questions are compared with those of one benchmark; name one task with --unseen")
    if settings.orders is not None and len(settings.tasks) != 1:
        raise ValueError("orders is what the builder of one benchmark documents; name one task with --orders")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("check runs in one process; use more accelerators by model_args, such as parallelize=True")
    check_writable(settings.output_path, folder=True)
    return replace(settings, tasks=tuple(dict.fromkeys(settings.tasks)))


def check_early(settings: CheckSettings) -> None:
    """Raises ValueError, OSError or ImportError for what can be known before the index of tasks is built, and before
    what runs models is imported, which takes seconds, too."""
    from lm_eval_leakage.harness.preflight import preflight, warn_if_one_at_a_time
    from lm_eval_leakage.harness.tasks.data import ENDINGS

    told = [settings.model_args, settings.reference]
    models = [(settings.model, one) for one in told if isinstance(one, Mapping)]
    files = [task for task in settings.tasks if task.endswith(ENDINGS)]
    named, audits = [task for task in settings.tasks if task not in files], () if settings.runs else CHECKED_AUDITS
    place, device = settings.include_path, settings.device
    preflight(named, models, audits=audits, include_path=place, files=files, device=device)
    if settings.unseen is not None:
        preflight(named, audits=CHECKED_AUDITS, include_path=place, data_files=settings.unseen)
    warn_if_one_at_a_time(settings.model, settings.model_args)


# ---------------------------------------------------------------------- values


def _paths(name: str, value: object) -> tuple[Path, ...]:
    parts = [value] if isinstance(value, (str, Path)) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, (str, Path)) for part in parts):
        raise ValueError(f"{name} is {brief(value)}; give one folder, or a list of folders")
    return tuple(Path(part).expanduser() for part in parts)


def _reference(name: str, value: object) -> Path | Mapping[str, Any]:
    if isinstance(value, (str, Path)) and Path(value).expanduser().exists():
        return Path(value).expanduser()
    if isinstance(value, Mapping) or (isinstance(value, str) and "=" in value):
        return read_model_arguments(name, value)
    raise ValueError(
        f"{name} is {brief(value)}, which is no folder; give one with another model's audits, or the model_args of "
        "another model, such as pretrained=OTHER"
    )


def _orders(name: str, value: object) -> str:
    from lm_eval_leakage.harness.tasks.base_task import documented

    text = read_text(name, value)
    documented({name: text}, name)
    return text


def _questions(name: str, value: object) -> int | None:
    if value == ALL_QUESTIONS:
        return None
    number = read_whole_number(name, value, f"a whole number from 1, or {ALL_QUESTIONS!r}")
    if number < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number from 1, or {ALL_QUESTIONS!r}")
    return number


def _seed(name: str, value: object) -> int:
    return read_whole_number(name, value, "a whole number")


def _word(name: str, value: object) -> str:
    word = str(value).replace("_", " ")
    if word not in WORDS:
        words = ", ".join(one.replace(" ", "_") for one in reversed(WORDS))
        raise ValueError(f"{name} is {brief(value)}; choose one of: {words}")
    return word


READERS: Mapping[str, Callable[[str, object], Any]] = {
    "model": read_text,
    "model_args": read_model_arguments,
    "tasks": read_names,
    "runs": _paths,
    "reference": _reference,
    "unseen": read_path,
    "orders": _orders,
    "questions": _questions,
    "seed": _seed,
    "output_path": read_path,
    "fail_on": _word,
    "allow_untold": read_switch,
    "batch_size": read_batch_size,
    "device": read_text,
    "include_path": read_text,
    "apply_chat_template": read_chat_template,
    "dry_run": read_switch,
    "quiet": read_switch,
}
