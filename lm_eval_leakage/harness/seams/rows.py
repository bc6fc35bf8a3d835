"""Makes rows and prompts those of a task's files as they are now, whatever caches of other libraries hold.

`datasets` keeps the rows of a local file by its path and time, and rows that a function prepares by the name of the
function: a file that was edited with its time kept, and a function that was edited at all, would give the rows of
before. Files count by their content, and functions by that of their modules. Digests of content in `datasets` would
replace both patches.

Python keeps modules that it has imported, and compiled copies of them by size and time. Both are dropped of a task's
module that has changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import cache_from_source
from inspect import getsourcefile, unwrap
from pathlib import Path
from typing import Any

import datasets
import lm_eval

from lm_eval_leakage.digests import content_digest, with_imports
from lm_eval_leakage.harness.seams.patching import patched_once

OF_FILE = "datasets.data_files:_get_single_origin_metadata"
INSTALLED = Path(lm_eval.__file__).resolve().parent
DOWNLOAD = "lm_eval.api.task:ConfigurableTask.download"
_imported: dict[Path, str] = {}  # digests of modules of tasks, as they were when they were last imported


def read_rows_anew() -> None:
    """Make rows be prepared again if a local file or the code that makes them has another content."""
    patched_once(OF_FILE, _by_content)
    patched_once(DOWNLOAD, _by_code)


def _by_content(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_single_origin_metadata(data_file: str, download_config: Any = None) -> Any:
        place = str(data_file).rpartition("::")[2]  # of an archive, such as zip://*.jsonl::/folder/rows.zip
        if os.path.isfile(place):  # noqa: PTH113 (false for a text that cannot be a path)
            return (content_digest(Path(place)),)
        return original(data_file, download_config=download_config)

    return _get_single_origin_metadata


def _by_code(original: Callable[..., None]) -> Callable[..., None]:
    def download(self: Any, dataset_kwargs: dict[str, Any] | None = None, **more: Any) -> None:
        if callable(self.config.custom_dataset):
            with _without_cache():
                original(self, dataset_kwargs, **more)
        else:
            original(self, dataset_kwargs, **more)
        if callable(self.config.process_docs) and isinstance(self.dataset, Mapping):
            code = _digest_of_code(modules_of([self.config.process_docs]))
            for rows in self.dataset.values():
                if before := getattr(rows, "_fingerprint", None):
                    rows._fingerprint = datasets.fingerprint.Hasher.hash([before, code])

    return download


@contextmanager
def _without_cache() -> Iterator[None]:
    """Compute what functions make of rows again, within the block."""
    is_kept = datasets.is_caching_enabled()
    datasets.disable_caching()
    try:
        yield
    finally:
        if is_kept:
            datasets.enable_caching()


def modules_of(functions: Iterable[Any]) -> list[Path]:
    """Return the files of the modules that define the functions; compiled modules have none."""
    files: dict[Path, None] = {}
    for function in functions:
        inner = unwrap(getattr(function, "func", function))  # of a `functools.partial`
        with suppress(TypeError):
            if (file := getsourcefile(inner)) and Path(file).is_file():
                files[Path(file)] = None
    return [*files]


def digest_of_own_code(values: Iterable[Any]) -> str:
    """Return a digest of the modules of the values that are a user's functions; empty without any.

    Modules of lm_eval do not count: its version names them.
    """
    return _digest_of_code(file for file in modules_of(filter(callable, values)) if not file.is_relative_to(INSTALLED))


def _digest_of_code(modules: Iterable[Path]) -> str:
    """Return a digest of modules and of what they import from their folders; empty without any."""
    files = with_imports(modules)
    contents = "".join(f"{file.name} {content_digest(file)}\n" for file in files)
    return blake2b(contents.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest() if files else ""


# ---------------------------------------------------------------------- modules in memory


def import_anew(modules: Iterable[Path]) -> None:
    """Make Python import a task's modules again, and compile them from their source, if one of them has changed since
    this process imported them: the others may hold its functions."""
    files = {module.resolve() for module in modules if module.suffix == ".py" and module.is_file()}
    digests = {file: content_digest(file) for file in files}
    if all(_imported.get(file) == digest for file, digest in digests.items()):
        return
    names = {file.name for file in files}
    for name, module in [*sys.modules.items()]:
        source = getattr(module, "__file__", None)
        place = Path(source) if isinstance(source, str) else None
        if place is not None and place.name in names and place.resolve() in files and name != "__main__":
            del sys.modules[name]
    for file in files:
        with suppress(OSError, NotImplementedError):
            Path(cache_from_source(str(file))).unlink(missing_ok=True)
    _imported.update(digests)
