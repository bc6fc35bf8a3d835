"""One run as several processes of the real command line; that their rows are those of one process is tested in
`tests/harness/test_run_shards.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.harness.test_prefix_tree_lm import checkpoint
from tests.harness.test_run_shards import SHAPE, rows
from tests.written_tasks import LETTERED, write_task

pytestmark = pytest.mark.model
N_SHARDS = 2
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what several processes did."""
    place = tmp_path_factory.mktemp("tasks")
    write_task(
        place, "capitals", rows("capitals"), **LETTERED, more=SHAPE.format(examples="train"), train=rows("train")
    )
    model = checkpoint(place / "tiny", hidden_size=32, intermediate_size=64)
    options = ["--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--device", "cpu"]
    options += ["--include_path", str(place), "--tasks", "capitals,capitals_leakage_perm", "--limit", "3"]
    options += ["--log_samples"]
    for index in range(N_SHARDS):
        shard = f"shard={index}/{N_SHARDS}"
        printed = done("run", *options, "--output_path", str(place / "out"), "--metadata", shard)
        assert f"this run is shard {index}/2: its tables are of {4 - 2 * index} of 6 questions" in printed
    return place / "out"


def done(*arguments: str) -> str:
    program = Path(sys.executable).with_name("lm-eval-leakage")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_shards_are_a_whole_run_together(runs: Path, typed: Typed) -> None:  # noqa: F811
    code, out, _ = typed("annotate", runs, "--dry_run", "--format", "json")
    assert (code, '"n_joined": 3' in out) == (0, True)


def test_an_incomplete_set_is_named_and_not_judged(runs: Path, typed: Typed) -> None:  # noqa: F811
    (first, _) = sorted(runs.rglob("results_*.json"))
    code, _, err = typed("annotate", first, "--dry_run", "--fail-on", "verdict>=evidence")
    assert code == 2
    assert "capitals: shard 1/2 is missing: 2 of 3 questions are here" in err
    assert "--fail-on does not judge incomplete logs" in err
