"""Digests of a unit's files, by which a changed one is found."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

CHUNK = 2**20  # bytes


def digests_of(folder: Path, without: str = "") -> dict[str, str]:
    """BLAKE2b digests (32 bytes, hexadecimal) of all files of a folder, by their paths within it.

    without: a folder in it that is left out
    """
    files = sorted(
        file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder).parts[0] != without
    )
    return {file.relative_to(folder).as_posix(): digest_of(file) for file in files}


def digest_of(file: Path) -> str:
    digest = blake2b(digest_size=32)
    with file.open("rb") as stream:
        while part := stream.read(CHUNK):
            digest.update(part)
    return digest.hexdigest()
