"""Checks the options of a command-line run with audits before its model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.patches.saved_files import refuse_unwritable
from lm_eval_leakage.harness.tasks.data_files import read_file
from lm_eval_leakage.harness.tasks.known_keys import names_audit_or_group, refusal_of_keys
from lm_eval_leakage.harness.tasks.order_status import documented
from lm_eval_leakage.harness.tasks.parameters import SWITCHES, switch_of


def check_run(config: Any, index: Mapping[str, Any]) -> None:
    """Exits with a message for an unknown key of `--metadata`, an invalid value of a key of the package itself, a data
    file that cannot be read, or an output path that cannot be written.

    config: the harness's EvaluatorConfig, in which the model's arguments and the user's keys are still separate
    """
    audits = [task for task in config.tasks if names_audit_or_group(task, index)]
    if not audits:
        return
    metadata = config.metadata or {}
    keys = sorted(metadata.keys() - (config.model_args or {}))
    if refusal := refusal_of_keys(keys, of_audits_only=len(audits) == len(config.tasks)):
        raise SystemExit(refusal)
    try:
        for switch in SWITCHES:
            switch_of(metadata, switch)
        documented(metadata)
        if metadata.get("data_files") is not None:
            read_file(metadata["data_files"])
        if config.output_path:
            refuse_unwritable(Path(config.output_path))
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from error
