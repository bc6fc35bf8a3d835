"""Values of a plan's settings: how each kind is read, and what is refused with its rule and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
)

from lm_eval_leakage.harness.arguments import is_json, parsed_args
from lm_eval_leakage.harness.tasks.templates import suffixes
from lm_eval_leakage.results.exports import EXPORTS
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.texts import brief, did_you_mean

TABLES = (".csv", ".tsv", ".parquet")  # endings of files that hold no run
TRAIN, NO_CONTROL = "train", "none"  # positive controls; else a file
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # it is the name of a folder and of a node's resource
BESIDE_MODEL_ARGS = ("batch_size", "device")  # which lm_eval takes as options of their own
FROM_ONE, FROM_ZERO = Field(description="a whole number from 1"), Field(description="a whole number from 0")
NAMES = Field(description="one name, or several separated by commas")
Switch = Annotated[bool, Field(description="true or false")]
OptionalSwitch = Annotated[bool | None, Field(description="true or false")]
Count = Annotated[NonNegativeInt, FROM_ZERO]
OptionalCount = Annotated[NonNegativeInt | None, FROM_ZERO]
Limit = Annotated[PositiveInt | None, FROM_ONE]
BatchSize = Annotated[
    PositiveInt | Annotated[str, Field(pattern="^auto")] | None,
    Field(description="a whole number from 1, or auto"),
]


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, Path)) else value


def _names(value: Any) -> Any:
    parts = _listed(value)
    if not isinstance(parts, Sequence):
        return value
    return tuple(dict.fromkeys(name.strip() for part in parts for name in str(part).split(",") if name.strip()))


def _folders(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    folders = tuple(map(Path.expanduser, paths))
    for folder in folders:
        if not folder.exists():
            raise ValueError(f"is {str(folder)!r}, which does not exist; name the --output_path of a run")
    return folders


def _share(value: Any) -> Any:
    text = str(value).strip()
    return f"{text[:-1]}e-2" if text.endswith("%") else value


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    usual_form = "write it as for lm_eval: pretrained=MODEL,dtype=bfloat16"
    if not is_json(value) and any("=" not in part for part in value.split(",") if part):
        raise ValueError(f"is {brief(value)}; {usual_form}")
    try:
        return parsed_args(value)
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}; {usual_form}") from None


def _model_args(arguments: dict[str, Any]) -> dict[str, Any]:
    for key in BESIDE_MODEL_ARGS:
        if key in arguments:
            raise ValueError(f"has {key!r}, which lm_eval takes beside them; give it on its own")
    return arguments


def _reference(value: Any) -> Any:
    if isinstance(value, (str, Path)) and Path(value).expanduser().exists() and not str(value).endswith(TABLES):
        return Path(value).expanduser()
    if isinstance(value, Mapping) or (isinstance(value, str) and ("=" in value or is_json(value))):
        return _arguments(value)
    raise ValueError(
        f"is {brief(value)}, which is no folder; give one with another model's audits, or the model_args of another "
        "model, such as pretrained=OTHER"
    )


def _unseen(file: Path) -> Path:
    if not file.expanduser().is_file():
        raise ValueError(f"is {str(file)!r}, which is not a file; give one with a question per row")
    return file.expanduser()


def _positive_control(value: Any) -> Any:
    if value in (None, TRAIN, NO_CONTROL):
        return value
    file = Path(value).expanduser() if isinstance(value, (str, Path)) else None
    if file is None or not file.is_file():
        raise ValueError(f"is {brief(value)}; give {TRAIN}, {NO_CONTROL}, or a file of rows that a model has learned")
    return str(file.absolute())  # workers may have another working directory


def _orders(value: str) -> str:
    from lm_eval_leakage.harness.tasks.order_status import documented_status

    documented_status({"orders": value}, "orders")
    return value


def _one_of(value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"is {brief(value)}; choose one of: {', '.join(choices)}")
    return value


def _word(value: str) -> str:
    words = [word.replace(" ", "_") for word in reversed(VerdictWord)]
    return _one_of(value.replace(" ", "_"), words).replace("_", " ")


def _exports(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_one_of(name, [*EXPORTS]) for name in names)


def _model_name(name: str) -> str:
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(
            f"is {brief(name)}, which cannot be the name of a folder; use letters, digits, '.', '_', '+', '-'"
        )
    return name


def without_none(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if value is not None}


def nearest_or_all(name: str, names: Sequence[str]) -> str:
    return did_you_mean(name, names) or f"; choose from: {', '.join(names)}"


def _audits(names: tuple[str, ...]) -> tuple[str, ...]:
    for audit in names:
        if audit not in suffixes():
            raise ValueError(f"has {audit!r}, which is not an audit{nearest_or_all(audit, sorted(suffixes()))}")
    return names


Names = Annotated[tuple[str, ...], BeforeValidator(_names), NAMES]
Audits = Annotated[Names, AfterValidator(_audits)]
Exports = Annotated[Names, AfterValidator(_exports)]
ModelName = Annotated[str, AfterValidator(_model_name)]
Arguments = Annotated[dict[str, Any], BeforeValidator(_arguments)]
ModelArguments = Annotated[
    Arguments, AfterValidator(_model_args), Field(description="arguments as for lm_eval: pretrained=MODEL")
]
RunFolders = Annotated[
    tuple[Path, ...],
    BeforeValidator(_listed),
    AfterValidator(_folders),
    Field(description="one folder, or a list of folders"),
]
ReferenceSetting = Annotated[Path | dict[str, Any], BeforeValidator(_reference)]
UnseenFile = Annotated[Path, AfterValidator(_unseen)]
PositiveControlSetting = Annotated[str, BeforeValidator(_positive_control)]
DocumentedOrders = Annotated[str, AfterValidator(_orders)]
Share = Annotated[
    float,
    Field(gt=0, le=1, description="a share of the questions above 0, such as 20% or 0.2"),
    BeforeValidator(_share),
]
IncludePath = Annotated[str, BeforeValidator(_text)]
SlurmSettings = Annotated[
    dict[str, Any], AfterValidator(without_none), Field(description="names and values, such as partition: gpu")
]
FailOn = Annotated[str, AfterValidator(_word)]
