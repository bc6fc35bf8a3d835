"""What a user installs: the wheel and the source distribution, outside of any checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]
CARRIED = (
    "task_configs/_leakage_perm_yaml",
    "task_configs/mmlu/mmlu_leakage_perm.yaml",
    "task_configs/fresh/fresh.jsonl",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_both_distributions_carry_the_tasks(built: Path) -> None:
    with ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    for file in CARRIED:
        assert f"lm_eval_leakage/{file}" in names
    assert {"lm_eval_leakage/py.typed", "lm_eval_leakage/statistics/outlier_null.npz"} <= set(names)
    package = ROOT / "lm_eval_leakage"
    ours = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert {str(file.relative_to(ROOT)) for file in ours} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "task_configs"))]
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        packed = source.getnames()
    for file in CARRIED:
        assert [name for name in packed if name.endswith(file)]


def test_the_installed_wheel_finds_its_tasks_and_runs_enable(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--no-deps", next(built.glob("*.whl"))]
    subprocess.run(install, check=True, capture_output=True)
    # The dependencies are lent by this environment; a folder on PYTHONPATH does not bring its editable installs.
    borrowed = {"PYTHONPATH": sysconfig.get_path("purelib"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}

    def run(*command: str | Path) -> str:
        done = subprocess.run([*command], capture_output=True, text=True, env=borrowed, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = tmp_path / "env" / "bin" / "lm-eval-leakage"
    folder = Path(run(script, "path").strip())
    assert folder.is_relative_to(tmp_path)
    assert (folder / "mmlu" / "mmlu_leakage_perm.yaml").is_file()
    assert "enabled" in run(script, "enable")
    found = run(
        python,
        "-c",
        "from lm_eval.tasks import TaskManager; print(TaskManager().task_index['fresh_leakage_perm'].yaml_path)",
    )
    assert Path(found.strip()).is_relative_to(tmp_path)
    assert "disabled" in run(script, "disable")
