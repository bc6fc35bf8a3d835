"""Keeps git quiet where there is no repository: lm_eval asks git for a commit at the end of every run, and git then
prints `fatal: not a git repository`, which reads like the failure of a check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lm_eval_leakage.harness.patches.patching import patched_once

GET_HASH = "lm_eval.evaluator:get_git_commit_hash"


def ask_git_only_in_repositories() -> None:
    """The results file is the same: without a repository, its `git_hash` is null."""
    patched_once(GET_HASH, _quiet)


def _quiet(original: Callable[[], str | None]) -> Callable[[], str | None]:
    def get_git_commit_hash() -> str | None:
        here = Path.cwd()
        return original() if any((folder / ".git").exists() for folder in (here, *here.parents)) else None

    return get_git_commit_hash
