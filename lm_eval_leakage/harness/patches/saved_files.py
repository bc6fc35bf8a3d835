"""Patches EvaluationTracker to check that lm_eval has saved the files of a run with our tasks completely.

lm_eval turns every error while saving into a log message and exits with 0. A `save_results_aggregated` that raises, or
returns whether it saved, would replace this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval.utils import make_table

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.patches.exception_hook import Refusal
from lm_eval_leakage.harness.patches.patching import patched_once

TRACKER = "lm_eval.loggers.evaluation_tracker:EvaluationTracker"


class NotSaved(Refusal):
    """A results file or samples log was not saved completely."""


def refuse_unwritable(output: Path) -> None:
    """Raises Refusal if results cannot be saved in `output`, the value of `--output_path`."""
    folder = output.parent if output.suffix == ".json" else output
    try:
        probe = folder / f".lm_eval_leakage_{os.getpid()}"
        atomic_write(probe, "")
        probe.unlink()
    except OSError as error:
        raise Refusal(
            f"output_path is {str(output)!r}, where nothing can be written ({error.strerror}); choose a writable "
            "folder, or free some space"
        ) from error


def watch_run_files() -> None:
    """Makes the harness check the files that it saves for our tasks; files of other tasks are not checked."""
    if patched_once(f"{TRACKER}.save_results_aggregated", _looked_at(_look_at_results)):
        patched_once(f"{TRACKER}.save_results_samples", _looked_at(_look_at_samples))


def _looked_at(look: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def wrap(save: Callable[..., None]) -> Callable[..., None]:
        def saved(self: Any, *args: Any, **kwargs: Any) -> None:
            save(self, *args, **kwargs)
            if self.output_path:
                look(self, *args, **kwargs)

        return saved

    return wrap


def _look_at_results(tracker: Any, results: Mapping[str, Any], samples: object = None) -> None:
    tracker._results_with_audits = results if _has_audit(results) else None
    if tracker._results_with_audits is not None:
        files = _files(tracker, ".json")
        try:
            whole = bool(files) and all(isinstance(json.loads(file.read_bytes()), dict) for file in files)
        except (OSError, ValueError):
            whole = False
        if not whole:
            _refuse(tracker, "the results")


def _look_at_samples(tracker: Any, task_name: str, samples: Sequence[object]) -> None:
    if getattr(tracker, "_results_with_audits", None) is None:
        return
    files = [file for file in _files(tracker, ".jsonl") if file.name.startswith(f"samples_{task_name}_")]
    try:
        n_lines = sum(_n_lines(file) for file in files)
    except OSError:
        n_lines = -1
    if n_lines != len(samples):
        _refuse(tracker, f"the samples of {task_name}")


def _refuse(tracker: Any, what: str) -> None:
    """Prints the tables first: they may be all that is left of hours of work."""
    results = tracker._results_with_audits
    print(make_table(results))
    if results.get("groups"):
        print(make_table(results, "groups"))
    raise NotSaved(
        f"{what} could not be saved completely in {tracker.output_path} (full disk? no permission?); the tables above "
        "are correct; when there is space, the same command saves them from the answers that were kept"
    )


def _has_audit(results: Mapping[str, Any]) -> bool:
    """Whether the results include an audit, recognised by settings that only our tasks have."""
    configs = (results.get("configs") or {}).values()
    return any("probe" in (config.get("metadata") or {}) for config in configs)


def _files(tracker: Any, suffix: str) -> list[Path]:
    output, date = Path(tracker.output_path), getattr(tracker, "date_id", None)
    folder = output.parent if output.suffix == ".json" else output
    return [] if date is None else sorted(folder.rglob(f"*_{date}{suffix}"))


def _n_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(line.endswith(b"\n") for line in lines)
