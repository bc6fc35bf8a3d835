"""The `.pth` hook, in separate interpreters with a stand-in for the harness."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lm_eval_leakage import cli, task_configs_path
from lm_eval_leakage.harness.own_benchmark import INSTALLED_TASKS
from lm_eval_leakage.harness.seams import pth_hook as hook

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
    """A folder with a package `lm_eval` that has only a task manager and a registry of models."""
    tasks = tmp_path / "elsewhere" / "lm_eval" / "tasks"
    tasks.mkdir(parents=True)
    (tasks.parent / "__init__.py").touch()
    (tasks / "__init__.py").write_text("from lm_eval.tasks.manager import TaskManager\n")
    (tasks / "manager.py").write_text(MANAGER)
    for part in ("models", "api"):
        (tasks.parent / part).mkdir()
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
    line = start(tmp_path / hook.HOOK_NAME)
    assert line.count("\n") == 1
    assert line.startswith("import sys;")
    code = f"import sys; before = set(sys.modules)\n{line}\nprint(sorted(set(sys.modules) - before))"
    assert run(code) == "[]"


@pytest.mark.parametrize("n_hooks", [1, 2])  # two where an environment is built on another one
def test_an_ordinary_install_of_the_harness_finds_our_tasks(tmp_path: Path, harness: Path, n_hooks: int) -> None:
    line = n_hooks * start(tmp_path / hook.HOOK_NAME)
    assert run(f"{line}\nimport sys; sys.path.insert(0, {str(harness)!r})\n{REPORT}") == str(task_configs_path())


def test_an_editable_install_of_the_harness_finds_our_tasks(tmp_path: Path, harness: Path) -> None:
    line = start(tmp_path / hook.HOOK_NAME)
    finder = f"FOLDER = {str(harness)!r}\n{EDITABLE_FINDER}"
    hide = "sys.path[:] = [p for p in sys.path if not __import__('os').path.isdir(p + '/lm_eval')]"
    keep = "import lm_eval_leakage"  # found before the real harness is hidden
    assert run(f"{line}\n{finder}\n{keep}\n{hide}\n{REPORT}").endswith(str(task_configs_path()))


BROKEN = {
    "SyntaxError": "def (:",
    "RuntimeError": "raise RuntimeError('two\\nlines')",
    "TypeError": "def extend_harness(task_manager):\n    raise TypeError('another harness')",
    "ModuleNotFoundError": "import a_package_that_is_not_there",
    "SystemExit": "raise SystemExit(3)",
    "PanicException": "class PanicException(BaseException): pass\nraise PanicException('of a library in Rust')",
}


def package_that_is(broken: str, folder: Path) -> Path:
    """A package with our name in which the import by the hook raises an error."""
    harness = folder / "lm_eval_leakage" / "harness"
    harness.mkdir(parents=True)
    (harness.parent / "__init__.py").touch()
    (harness / "__init__.py").write_text(broken)
    return folder


def plain_lm_eval(line: str, *folders: Path, then: str = REPORT) -> subprocess.CompletedProcess[str]:
    """An environment without the packages and the hook of the current one."""
    code = f"{line}\nimport sys; sys.path[:0] = {list(map(str, folders))!r}\n{then}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", BROKEN)
def test_whatever_is_wrong_with_us_plain_lm_eval_lives_with_one_warning(tmp_path: Path, harness: Path, kind) -> None:
    ours = package_that_is(BROKEN[kind], tmp_path / "ours")
    done = plain_lm_eval(start(tmp_path / hook.HOOK_NAME), harness, ours)
    assert (done.returncode, done.stdout) == (0, "nothing\n")
    (warning,) = done.stderr.splitlines()
    assert f"because of {kind}(" in warning
    assert "`lm-eval-leakage plugin disable`" in warning


def test_a_package_that_was_removed_is_not_mourned(tmp_path: Path, harness: Path) -> None:
    done = plain_lm_eval(start(tmp_path / hook.HOOK_NAME), harness)
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing\n", "")


@pytest.mark.parametrize("broken", ["raise RuntimeError('of the harness')", None])
def test_a_harness_module_that_is_missing_or_broken_is_so_as_before(tmp_path: Path, harness: Path, broken) -> None:
    (harness / "lm_eval" / "tasks" / "__init__.py").write_text("")
    manager, then = harness / "lm_eval" / "tasks" / "manager.py", "import lm_eval.tasks.manager"
    manager.unlink() if broken is None else manager.write_text(broken)
    done, bare = (plain_lm_eval(line, harness, then=then) for line in (start(tmp_path / hook.HOOK_NAME), ""))
    assert done.returncode == bare.returncode == 1
    assert done.stderr.splitlines()[-1] == bare.stderr.splitlines()[-1]


def test_enable_status_disable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    file = tmp_path / hook.HOOK_NAME
    monkeypatch.setattr(hook, "hook_file", lambda: file)

    def printed(command) -> str:
        command()
        return capsys.readouterr().out

    assert "no; run `lm-eval-leakage plugin enable`" in printed(cli.status)
    for _ in range(2):
        printed(cli.enable)
    assert file.read_text().startswith("import sys;")
    assert f"by the hook {file}\n" in printed(cli.status)
    file.write_text(file.read_text()[:40])
    assert "written by another version; run `lm-eval-leakage plugin enable` again" in printed(cli.status)
    printed(cli.disable)
    assert not file.exists()
    assert "nothing to do: the hook is not enabled" in printed(cli.disable)
    monkeypatch.setattr(hook, "harness_discovers_plugins", lambda: True)
    assert "nothing to do" in printed(cli.enable)
    assert not file.exists()
    assert "by the harness's own plugin discovery" in printed(cli.status)
    (tmp_path / "missing").touch()  # since root may write anywhere else
    monkeypatch.setattr(hook, "harness_discovers_plugins", lambda: False)
    monkeypatch.setattr(hook, "hook_file", lambda: tmp_path / "missing" / hook.HOOK_NAME)
    with pytest.raises(ValueError, match="cannot write .*missing.*; enable the hook as a user"):
        cli.enable()


DISCOVERING = """
import importlib.util, sys, tomllib
from pathlib import Path
import lm_eval.tasks.manager as manager
manager.__file__ = f"{TASKS}/manager.py"  # beside which it looks for its own tasks
original = manager.TaskManager.__init__
def discover_plugin_task_paths():  # as in pull request 4015 of lm-evaluation-harness
    points = tomllib.loads(Path(PROJECT).read_text())["project"]["entry-points"]["lm_eval.tasks"]
    specs = [importlib.util.find_spec(value) for value in points.values()]
    return [str((spec.submodule_search_locations or [Path(spec.origin).parent])[0]) for spec in specs]
def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None):
    given = [include_path] if isinstance(include_path, str) else include_path or []
    original(self, verbosity, [*discover_plugin_task_paths(), *given], include_defaults, metadata)
manager.TaskManager.__init__ = __init__
manager.discover_plugin_task_paths = discover_plugin_task_paths
from lm_eval.tasks import TaskManager
"""
FOUND = """
names = ["mmlu_leakage_perm", "mmlu_leakage_tokens", "arc_easy_leakage_perm", "mmlu_x"]
print(*TaskManager().match_tasks(names))
print(TaskManager(include_defaults=False).task_index["mmlu_leakage_tokens"].name)
from lm_eval_leakage.harness.seams.pth_hook import harness_discovers_plugins
print(harness_discovers_plugins())
"""
HOOK = "from lm_eval_leakage.harness import extend_harness; extend_harness(TaskManager)\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
@pytest.mark.parametrize("hook_too", [False, True])
def test_a_harness_that_discovers_plugins_finds_tasks_and_audits_and_warns_of_nothing(
    tmp_path: Path, hook_too: bool
) -> None:
    for name in ("arc", "mmlu"):  # of 14,000 tasks
        shutil.copytree(INSTALLED_TASKS / name, tmp_path / name)
    project = Path(__file__).parents[3] / "pyproject.toml"
    places = f"PROJECT = {str(project)!r}; TASKS = {str(tmp_path)!r}"
    code = f"import logging; logging.basicConfig(level='INFO'); {places}\n{DISCOVERING}"
    done = subprocess.run(
        [sys.executable, "-c", code + HOOK * hook_too + FOUND], capture_output=True, text=True, check=False
    )
    names, name, discovers = done.stdout.splitlines() or [done.stderr, "", ""]
    assert names == "arc_easy_leakage_perm mmlu_leakage_perm mmlu_leakage_tokens"
    assert name == "mmlu_leakage_tokens"
    assert discovers == "True"
    assert "uplicate" not in done.stderr
    assert "overrides" not in done.stderr
