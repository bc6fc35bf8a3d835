"""Ends a run with our tasks whose files could not be saved: listens to EvaluationTracker's logger.

lm_eval turns every error while saving into a log message and exits with 0. A `save_results_aggregated` that raises
would replace this.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from lm_eval.utils import make_table

from lm_eval_leakage.files import try_to_write
from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.harness.seams.run_results import on_results
from lm_eval_leakage.texts import brief

TRACKER = "lm_eval.loggers.evaluation_tracker"  # the name of its logger
NOT_SAVED = "Could not save "
UPLOADING = ("huggingface_hub", "requests", "httpx")
_unsaved: list[dict[str, Any]] = []


class NotSaved(Refusal):
    """A results file or samples log was not saved completely."""


def refuse_unwritable(output: Path) -> None:
    """Raise Refusal if results cannot be saved in `output`, the value of `--output_path`."""
    folder = output.parent if output.suffix == ".json" else output
    try:
        try_to_write(folder)
    except OSError as error:
        raise Refusal(
            f"output_path is {str(output)!r}, where nothing can be written ({error.strerror}); choose a writable "
            "folder, or free some space"
        ) from error


def watch_run_files() -> None:
    """Make a run with our tasks end with an error where the harness fails to save its results or samples."""
    saving = logging.getLogger(TRACKER)
    if _refuse_unsaved not in saving.filters:
        saving.addFilter(_refuse_unsaved)
        on_results(remember_audits)


def remember_audits(results: dict[str, Any]) -> None:
    """Expect results with an audit, recognised by settings that only our tasks have, to be saved as a whole; those of
    other runs are saved as ever."""
    _unsaved.clear()
    configs = (results.get("configs") or {}).values()
    if any("probe" in (config.get("metadata") or {}) for config in configs):
        expect_whole(results)


def expect_whole(results: dict[str, Any]) -> None:
    """Make the harness raise NotSaved if it fails to save these results or their samples.

    The filter sees the failure only if the logger's level lets warnings through.
    """
    _unsaved[:] = [results]
    saving = logging.getLogger(TRACKER)
    if not saving.isEnabledFor(logging.WARNING):
        saving.setLevel(logging.WARNING)


def _refuse_unsaved(record: logging.LogRecord) -> bool:
    """Raise NotSaved for a log message of an error while saving; return whether the message is logged.

    The tables are printed first: they may be all that is left of hours of work. Uploading, which libraries of their
    own do, may fail.
    """
    error = sys.exc_info()[1]
    if not _unsaved or error is None or not record.getMessage().startswith(NOT_SAVED):
        return True
    if type(error).__module__.split(".")[0] in UPLOADING:
        return True
    (results,) = _unsaved
    print(make_table(results))
    if results.get("groups"):
        print(make_table(results, "groups"))
    what = "results" if "aggregated" in record.getMessage() else "samples"
    raise NotSaved(
        f"the {what} could not be saved completely ({brief(error)}; full disk? no permission?); the tables above are "
        "correct; when there is space, the same command saves them from the answers that were kept"
    )
