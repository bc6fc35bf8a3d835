"""Computes digests of the content of files, whatever their names and times.

A file is read whole, once: its digest is remembered in the user's cache folder by path, size, times and inode. The
time of the last change of an inode cannot be set, so that an edit which keeps size and modification time is noticed.
"""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from lm_eval_leakage.files import atomic_write, user_cache

BYTES_AT_ONCE, DIGEST_SIZE = 2**22, 16
SETTLED = 2.0  # seconds; a younger file may change again without a change of its times


def content_digest(file: Path) -> str:
    """Return a digest of all bytes of a file. It is computed again only if the size, times or inode have changed.

    Raises OSError for a file that cannot be read.
    """
    file = file.resolve()
    cache_file = _cache_file(file)
    try:
        cached = cache_file.read_text()
    except (OSError, ValueError):
        cached = ""
    if len(cached) == 2 * DIGEST_SIZE:
        return cached
    digest = blake2b(digest_size=DIGEST_SIZE)
    with file.open("rb") as stream:
        while part := stream.read(BYTES_AT_ONCE):
            digest.update(part)
    is_settled = time.time() - max(file.stat().st_mtime, file.stat().st_ctime) > SETTLED
    if is_settled and _cache_file(file) == cache_file:
        with suppress(OSError):  # such as in a container without a home
            atomic_write(cache_file, digest.hexdigest())
    return digest.hexdigest()


def _cache_file(file: Path) -> Path:
    """Return the file of the user's cache that holds the digest. Its name is another one once the file has changed."""
    stat = file.stat()
    state = (str(file), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)
    name = blake2b(repr(state).encode("utf-8", "surrogateescape"), digest_size=DIGEST_SIZE).hexdigest()
    return user_cache() / "digests" / name


def with_imports(modules: Iterable[Path]) -> list[Path]:
    """Return Python files and all that they use from their own folders, at any depth: imported modules, and files
    whose names stand in string literals. A file that cannot be parsed uses nothing."""
    files: dict[Path, None] = {}
    pending = [file.absolute() for file in modules]
    while pending:
        file = pending.pop()
        if file not in files:
            files[file] = None
            pending += _used_by(file) if file.suffix == ".py" else ()
    return [*files]


def _used_by(module: Path) -> Iterator[Path]:
    """Yield the files that a module imports or names. Some may be yielded twice."""
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(module.parent, alias.name)
        elif isinstance(node, ast.ImportFrom):
            folder = module.parents[min(max(node.level - 1, 0), len(module.parents) - 1)]
            for alias in node.names:
                yield from _modules(folder, ".".join(filter(None, (node.module, alias.name))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = module.parent / node.value
            if os.path.isfile(place):  # noqa: PTH113 (false for a text that cannot be a path)
                yield place


def _modules(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files below a folder that importing a dotted name reads."""
    place = folder
    for part in name.split("."):
        place /= part
        yield from (file for file in (place.with_name(f"{part}.py"), place / "__init__.py") if file.is_file())
