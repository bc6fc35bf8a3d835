"""The `.pth` hook, in interpreters of their own with a stand-in for the harness."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lm_eval_leakage import cli, task_configs_path
from lm_eval_leakage.harness import hook

MANAGER = """
class TaskManager:
    def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None):
        self.searched = include_path
"""
REGISTRY = """
class Registry(dict):
    def register(self, name, target):
        self[name] = target
model_registry = Registry()
"""
REPORT = "from lm_eval.tasks.manager import TaskManager; print(*map(str, TaskManager().searched or ['nothing']))"
MODELS = "import lm_eval.tasks.manager; from lm_eval.api.registry import model_registry; print(*model_registry)"
EDITABLE_FINDER = """
import sys
from importlib.util import spec_from_file_location
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "lm_eval":
            return spec_from_file_location(
                name, FOLDER + "/lm_eval/__init__.py", submodule_search_locations=[FOLDER + "/lm_eval"])
sys.meta_path.append(Finder())
"""


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """A folder that holds a package `lm_eval` with nothing but a task manager and a registry of models."""
    tasks = tmp_path / "elsewhere" / "lm_eval" / "tasks"
    tasks.mkdir(parents=True)
    (tasks.parent / "__init__.py").touch()
    (tasks / "__init__.py").write_text("from lm_eval.tasks.manager import TaskManager\n")
    (tasks / "manager.py").write_text(MANAGER)
    for room in ("models", "api"):
        (tasks.parent / room).mkdir()
    (tasks.parent / "api" / "__init__.py").touch()
    (tasks.parent / "models" / "__init__.py").write_text(
        "from lm_eval.api.registry import model_registry\nmodel_registry.register('hf', target='a:b')\n"
    )
    (tasks.parent / "api" / "registry.py").write_text(REGISTRY)
    return tmp_path / "elsewhere"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def start(file: Path) -> str:
    hook.write_hook(file)
    return file.read_text()


def test_the_hook_is_one_line_that_imports_nothing_but_sys(tmp_path: Path) -> None:
    line = start(tmp_path / hook.NAME)
    assert line.count("\n") == 1
    assert line.startswith("import sys;")
    code = f"import sys; before = set(sys.modules)\n{line}\nprint(sorted(set(sys.modules) - before))"
    assert run(code) == "[]"


def test_an_ordinary_install_of_the_harness_finds_our_tasks(tmp_path: Path, harness: Path) -> None:
    line = start(tmp_path / hook.NAME)
    assert run(f"{line}\nimport sys; sys.path.insert(0, {str(harness)!r})\n{REPORT}") == str(task_configs_path())


def test_an_editable_install_of_the_harness_finds_our_tasks(tmp_path: Path, harness: Path) -> None:
    line = start(tmp_path / hook.NAME)
    finder = f"FOLDER = {str(harness)!r}\n{EDITABLE_FINDER}"
    hide = "sys.path[:] = [p for p in sys.path if not __import__('os').path.isdir(p + '/lm_eval')]"
    keep = "import lm_eval_leakage"  # found before the real harness is hidden
    assert run(f"{line}\n{finder}\n{keep}\n{hide}\n{REPORT}").endswith(str(task_configs_path()))


def test_our_models_join_those_of_the_harness(tmp_path: Path, harness: Path) -> None:
    line = start(tmp_path / hook.NAME)
    # the harness's own come first: it adds them only where there is none
    assert run(f"{line}\nimport sys; sys.path.insert(0, {str(harness)!r})\n{MODELS}") == "hf hf-prefix-tree"


def test_without_our_package_the_hook_does_no_harm(tmp_path: Path, harness: Path) -> None:
    line = start(tmp_path / hook.NAME)
    gone = "sys.modules['lm_eval_leakage'] = None"
    assert run(f"{line}\nimport sys; {gone}; sys.path.insert(0, {str(harness)!r})\n{REPORT}") == "nothing"


def test_this_harness_does_not_discover_plugins_itself() -> None:
    # fails on the day it does: then the hook has had its time
    assert not hook.harness_discovers_plugins()


def test_a_harness_that_discovers_plugins_is_recognised(harness: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (harness / "lm_eval" / "tasks" / "manager.py").write_text('entry_points(group="lm_eval.tasks")\n')
    found = type("Spec", (), {"origin": str(harness / "lm_eval" / "__init__.py")})
    monkeypatch.setattr(hook, "find_spec", lambda name: found)
    assert hook.harness_discovers_plugins()


def test_enable_status_disable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    file = tmp_path / hook.NAME
    monkeypatch.setattr(hook, "hook_file", lambda: file)
    cli.status()
    assert "no; run `lm-eval-leakage enable`" in capsys.readouterr().out
    cli.enable()
    cli.enable()
    assert file.read_text().startswith("import sys;")
    cli.status()
    assert f"by the hook {file}" in capsys.readouterr().out
    cli.disable()
    assert not file.exists()
    cli.disable()
    assert "nothing to do: the hook is not enabled" in capsys.readouterr().out


def test_where_plugins_are_discovered_enable_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file = tmp_path / hook.NAME
    monkeypatch.setattr(hook, "hook_file", lambda: file)
    monkeypatch.setattr(hook, "harness_discovers_plugins", lambda: True)
    cli.enable()
    assert not file.exists()
    assert "nothing to do" in capsys.readouterr().out
    cli.status()
    assert "by the harness's own plugin discovery" in capsys.readouterr().out


def test_an_environment_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hook, "hook_file", lambda: tmp_path / "missing" / hook.NAME)
    with pytest.raises(ValueError, match="cannot write .*missing.*; enable the hook where"):
        cli.enable()
