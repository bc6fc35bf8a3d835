"""Decides whether the units of a campaign are of the models and questions that its plan names now.

A unit is done only if the model that its name stands for now answered it, and if the questions of its task are what
they were. Each unit says what its model's answers depend on (weights, arguments, chat template), and the manifest has
digests of the user's own files that tasks are made of; versions and commits name files of the harness, of this package
and of the Hub's cache. Units of another model or of other questions, and those that do not say, are moved to
`replaced`, so that no table pools them with others, and are run again.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from glob import glob, has_magic
from importlib.metadata import PackageNotFoundError, version
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.digests import content_digest, with_imports
from lm_eval_leakage.files import atomic_remove, published
from lm_eval_leakage.jobs.folder import UNIT_FILE, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.units import Role, Unit
from lm_eval_leakage.logs.run import LOCAL, REPLACED, identity_differences
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.texts import brief, texts_within

if TYPE_CHECKING:
    from lm_eval_leakage.harness.seams.tasks import Entry


MANIFEST_VERSION = 2
RECORDED_PACKAGES = (
    *("lm-eval-leakage", "lm_eval", "torch", "transformers", "datasets", "accelerate", "peft", "vllm"),
    *("ray", "submitit", "numpy", "scipy"),
)
PLAN_MAY_CHANGE = (
    *("output_path", "engine", "address", "retries", "minutes", "workers", "slurm"),
    *("fail_on", "allow_no_verdict", "export", "dry_run", "quiet", "max_tokens_asked"),
)
MODELS_MAY_CHANGE = ("gpus", "workers", "batch_size", "device")
MAY_GROW = ("tasks", "audits")
IDENTITY_OF_UNIT = "identity"  # key of a unit's file
TASK_FILES, MODELS = "task_files", "models"  # keys of the manifest
AUDITS, CONTROLLED = "audits_of_tasks", "tasks_with_positive_control"
OUTDATED = "outdated"  # folder of replaced units whose files were changed, which no later command takes back
UNKNOWN = "no file says which model answered"
GONE = ""  # instead of a digest
FORMATS = ("json", "csv", "parquet", "text", "arrow", "pandas", "xml")  # of `datasets`, instead of a data set's name
Digests = Mapping[str, str]  # by path
Identity = Mapping[str, str]


@lru_cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    packages = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            continue
    return packages


def differences(before: Plan, now: Plan) -> list[str]:
    """Return what makes a plan another campaign than the one in the folder, in words.

    Models, tasks and audits may be added, and it may change how units are run: that leaves valid what is done.
    """
    old, new = (plan.model_dump(mode="json") for plan in (before, now))
    reasons = []
    for name, value in old.items():
        may_differ = name in (*PLAN_MAY_CHANGE, "models") or (name in MAY_GROW and set(value) <= set(new[name]))
        if value != new[name] and not may_differ:
            reasons.append(f"{name} was {value!r} and is {new[name]!r}")
    models = {model["name"]: _fixed(model) for model in new["models"]}
    for model in map(_fixed, old["models"]):
        if model["name"] not in models:
            reasons.append(f"the model {model['name']!r} is missing")
        elif model != models[model["name"]]:
            reasons.append(f"the model {model['name']!r} was {model} and is {models[model['name']]}")
    return reasons


def _fixed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which a plan's model is the same one, with the content of files instead of paths."""
    from lm_eval_leakage.harness.named_model import NamedModel

    arguments = model["model_args"]
    if model["name"]:  # else its folder has the name of the path
        identity = NamedModel(model["model"], arguments).identity
        for name, value in identity.items():
            if name in arguments and LOCAL.fullmatch(value):
                arguments = {**arguments, name: value}
    kept = {key: value for key, value in model.items() if key not in MODELS_MAY_CHANGE and value is not None}
    return kept | {"model_args": arguments}


# ---------------------------------------------------------------------- the user's own files


def files_of_tasks(
    tasks: Iterable[str],
    index: Mapping[str, Entry],
    include_paths: Iterable[str],
    metadata: Mapping[str, Any],
    given: Iterable[Path],
) -> dict[str, Digests]:
    """Return digests of the files of each task.

    They are its YAML in the include_paths, what that names, and the files that the metadata name or that are given.
    Tasks without any are left out.
    """
    from lm_eval_leakage.harness.auditable import tasks_of

    of_all = {*_files_named(metadata, Path()), *given}
    folders = [Path(folder).resolve() for folder in include_paths]
    digests = {}
    for task in tasks:
        leaves = tasks_of(task, index) if task in index else [name for name in index if name.startswith(f"{task}_")]
        roots = []
        for path in filter(None, (index[leaf].yaml_path for leaf in leaves)):
            if any(Path(path).resolve().is_relative_to(folder) for folder in folders):
                roots.append(Path(path))
        digests[task] = digests_now([*roots, *of_all])
    return {task: files for task, files in digests.items() if files}


def digests_now(files: Iterable[Path]) -> Digests:
    """Return digests of these files, of those that the YAML files among them name, and of what Python files import."""
    seen: set[Path] = set()
    left = [file.absolute() for file in files]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += _named_by(file) if file.suffix in (".yaml", ".yml") else with_imports([file])
    return {str(file): content_digest(file) if file.is_file() else GONE for file in sorted(seen)}


def _named_by(file: Path) -> Iterator[Path]:
    """Yield the files that a task's YAML names."""
    from lm_eval_leakage.harness.seams.tasks import own_settings

    try:
        settings, with_includes = own_settings(file), own_settings(file, includes=True)
    except Exception:  # the file is gone, or anything may be in it; its own digest shows that
        return
    yield from _files_named(settings, file.parent)
    yield from _data_of(with_includes, file.parent)


def _files_named(settings: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Yield the files that texts name, and the modules of functions written as FOLDER/package.module.function."""
    for text in texts_within(settings):
        module = text.removeprefix(f"{folder}/").rpartition(".")[0].replace(".", "/")
        for place in (folder / text, Path(text), folder / f"{module}.py"):
            if isfile(place):  # noqa: PTH113 (unlike `Path.is_file`, false for a text that cannot be a path)
                yield place.absolute()


def _data_of(settings: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Yield the local files of rows in the folders and by the patterns that a task's settings name."""
    dataset, kwargs = settings.get("dataset_path"), settings.get("dataset_kwargs")
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    is_format = dataset in FORMATS  # else a folder, or a name on the hub
    roots = [folder, Path()] if is_format else _folders_of(dataset, [folder, Path()])
    data_folders = _folders_of(kwargs.get("data_dir"), roots)
    for data_folder in data_folders if is_format else [*roots, *data_folders]:
        yield from (file.absolute() for file in data_folder.rglob("*") if file.is_file())
    for pattern in filter(has_magic, texts_within(kwargs.get("data_files"))):
        for root in roots:
            files = glob(str(root / pattern), recursive=True)  # noqa: PTH207
            yield from (Path(file).absolute() for file in files if isfile(file))  # noqa: PTH113


def _folders_of(name: Any, roots: Iterable[Path]) -> list[Path]:
    """Return the folders of this name below the roots; none if it is no text."""
    return [root / name for root in roots if isinstance(name, str) and isdir(root / name)]  # noqa: PTH112


def changed_files(before: Digests) -> list[str]:
    """Return the files that are no longer as they were, or were not there."""
    now = digests_now(map(Path, before))
    return [file for file in {**before, **now} if before.get(file, GONE) != now[file]]


def with_changed_files(folder: CampaignFolder, unseen: Path | None, units: Iterable[Unit]) -> dict[Unit, str]:
    """Return the units whose files are no longer as they were, with the files in words.

    unseen: the file of unseen questions, which counts only for audits of them
    """
    recorded: Mapping[str, Digests] = folder.manifest().get(TASK_FILES) or {}
    changed = {task: changed_files(digests) for task, digests in recorded.items()}
    file_of_unseen = "" if unseen is None else str(unseen.absolute())
    in_words = {}
    for unit in units:
        files = changed.get(unit.task, [])
        if unit.role is not Role.UNSEEN:
            files = [file for file in files if file != file_of_unseen]
        if files:
            in_words[unit] = brief(", ".join(files))
    return in_words


# ---------------------------------------------------------------------- whose answers a unit holds


def differs(earlier: Identity, present: Identity) -> str:
    """Return how a unit's model differs from the present one, in words; empty if it does not.

    A file or a commit that this machine does not see, so that the present one has no digest in parentheses, cannot be
    compared: a worker that sees it compares it.
    """
    if not earlier:
        return UNKNOWN
    seen = {}
    for name, value in present.items():
        before = earlier.get(name, "")
        is_seen = value.endswith(")") or not (LOCAL.fullmatch(before) or before.startswith(f"{value} ("))
        seen[name] = value if is_seen else before
    return identity_differences(earlier, seen)


def is_same_model(earlier: Identity, present: Identity) -> bool:
    """Return whether `differs` finds no difference."""
    return not differs(earlier, present)


def identity_of_unit(folder: CampaignFolder, unit: Unit) -> Identity:
    """Return the identity of the model that answered a unit; empty if the unit does not record it."""
    identity = folder.unit_file(unit).get(IDENTITY_OF_UNIT)
    return identity if isinstance(identity, Mapping) else {}


def _complete_units(folder: CampaignFolder, model: str) -> list[Unit]:
    """Return the units of a model that are done, also those of earlier plans."""
    files = sorted(file for place in folder.done_folders for file in (place / model).glob(f"*/*/{UNIT_FILE}"))
    return [Unit.of_id("/".join(file.parts[-4:-1])) for file in files]


def refuse_another(folder: CampaignFolder, model: str, present: Identity) -> None:
    """Raise ValueError if a unit of this model in the plan was answered by another one: one whose files have changed
    since the campaign was started, or that another machine has."""
    for unit in _complete_units(folder, model):
        if not folder.was_asked(unit):
            continue
        if difference := differs(identity_of_unit(folder, unit), present):
            raise ValueError(
                f"{model} is not the model that answered {unit.id} ({brief(difference)}); start the campaign again "
                "where its files can be seen: units of another model are then moved aside and run again"
            )


def set_apart(
    folder: CampaignFolder,
    present: Mapping[str, Identity],
    unseen: Path | None,
    units: Iterable[Unit],
    stale: Mapping[Unit, str] | None = None,
) -> list[str]:
    """Move the units of other models, of other questions and without results aside.

    Return a sentence per model and difference.

    present: the identities of the plan's models as they are now, by their keys
    unseen: as for `with_changed_files`
    units: of the plan; those of earlier plans are compared, too
    stale: why further units are moved
    """
    manifest = folder.manifest()
    recorded: Mapping[str, Digests] = manifest.get(TASK_FILES) or {}
    place = folder.path / REPLACED / now().replace(":", "-")
    n_apart: dict[tuple[str, str], int] = defaultdict(int)
    every = dict.fromkeys([*units, *(unit for model in present for unit in _complete_units(folder, model))])
    changed = with_changed_files(folder, unseen, every)
    for unit in every:
        if unit in changed:
            atomic_remove(folder.work_of(unit))  # it may be complete
        if not (folder.done(unit) and folder.was_asked(unit)):
            continue
        why = differs(identity_of_unit(folder, unit), present[unit.model])
        if unit in changed:
            why = f"{changed[unit]} was changed"
        elif why and why != UNKNOWN:
            why = f"another model answered: {why}"
        elif not (why or any(folder.run_of(unit).rglob("results_*.json"))):
            why = "its results file is gone"
        if why := why or (stale or {}).get(unit, ""):
            run = folder.run_of(unit)
            published(run, (place / OUTDATED if unit in changed else place) / run.relative_to(folder.path))
            n_apart[unit.model, why] += 1
    digests = {task: digests_now(map(Path, files)) for task, files in recorded.items()}
    folder.write_manifest({**manifest, TASK_FILES: digests})
    return [
        f"{counted(n, 'unit')} of {model} will be run again ({why}); the earlier files are now in {place}"
        for (model, why), n in n_apart.items()
    ]
