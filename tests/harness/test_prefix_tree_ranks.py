"""`hf-prefix-tree` on several processes, started by torchrun as a user would (gloo, CPUs)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.shared_model import BUDGET, PAIRS
from tests.harness.test_prefix_tree_lm import asked, checkpoint, lm_of


@pytest.mark.model  # starts processes
def test_processes_that_hold_one_model_read_the_same_pieces(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = Path(__file__).parent / "shared_model.py"
    done = subprocess.run(
        [*command, str(script), model, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"told_{rank}").read_text()) for rank in range(2))
    assert first == second
    assert (first["way"], first["agreed"], first["after"]) == ("tree attention", BUDGET, BUDGET // 2)
    assert first["refused"].startswith("the processes that hold this model were given different requests")
    alone = lm_of(model).loglikelihood(asked(PAIRS), disable_tqdm=True)
    assert [value for value, _ in first["answers"]] == pytest.approx([value for value, _ in alone], abs=1e-3)
