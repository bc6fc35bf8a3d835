"""The oldest lm_eval that pyproject.toml allows instead of the installed one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the oldest lm_eval is imported."""
    folder = tmp_path_factory.mktemp("harness")
    (version,) = re.findall(r'"lm-eval\[hf\]>=([\d.]+),', (ROOT / "pyproject.toml").read_text())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, f"lm-eval=={version}"]
    subprocess.run(pip, check=True)
    environment = os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    code = "from importlib.metadata import version; import lm_eval; print(version('lm_eval'), lm_eval.__file__)"
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.startswith(f"{version} {folder}")
    return environment


def test_it_is_as_our_table_of_its_private_parts_says(oldest: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not model"]
    done = subprocess.run(
        [*command, "tests/harness/seams"], env=oldest, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_it_audits_a_model(oldest: dict[str, str], model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from lm_eval_leakage.cli import main; main()", "--model", "hf-prefix-tree"]
    command += ["--model_args", f"pretrained={model},dtype=float32", "--tasks", "fresh_leakage_perm", "--limit", "1"]
    done = subprocess.run([*command, "--output_path", tmp_path], env=oldest, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no verdict" in done.stdout
