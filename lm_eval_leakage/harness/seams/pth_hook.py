"""The opt-in hook that makes our tasks available in plain `lm_eval`: one line in a `.pth` file, for `plugin enable`.

The interpreter runs that line at every start, so it imports only `sys`. It installs an import finder that waits until
the harness's task manager is imported, lets the other finders find it and the module load, and then extends it.

`site` executes lines of a `.pth` file that begin with `import` when the interpreter starts, and `sys.meta_path` is
Python's mechanism for import hooks; both are documented. Nothing of this package is imported unless lm_eval's task
manager is. lm_eval 0.4.13 reads no entry points, so there is no other way to extend plain `lm_eval`; once it finds our
tasks by the group `lm_eval.tasks`, `harness_discovers_plugins` is true and `plugin enable` says that there is nothing
to do.

Plain `lm_eval` must work whatever is wrong with this package: any error of ours becomes one warning. If the package
has been uninstalled (pip leaves the hook behind), there is no warning, since the command that it names is gone too.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from lm_eval_leakage.files import atomic_write

HOOK_NAME = "lm_eval_leakage_hook.pth"
TARGET = "lm_eval.tasks.manager"
FOUND_BY_PLUGINS = ("mmlu_leakage_perm", "mmlu_leakage_tokens")  # one with a YAML, one found by its name
SOURCE = f'''
import sys

class LmEvalLeakageHook:
    def find_spec(self, name, path=None, target=None):
        if name != "{TARGET}":
            return None
        others = [one for one in sys.meta_path if type(one).__name__ != "LmEvalLeakageHook"]  # there may be two hooks
        spec = next((spec for one in others if (spec := one.find_spec(name, path, target)) is not None), None)
        try:
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module
                spec.loader.exec_module = lambda module: (load(module), self.extend(module))
        except AttributeError as error:
            self.warn(error)
        return spec

    def extend(self, module):
        try:
            from lm_eval_leakage.harness import extend_harness
            extend_harness(module.TaskManager)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not isinstance(error, ModuleNotFoundError) or error.name != "lm_eval_leakage":
                self.warn(error)

    def warn(self, error):
        if sys.stderr is not None:
            sys.stderr.write(f"warning: lm_eval continues without leakage tasks, because of {{error!r}}; fix it, or "
                             "turn the hook off with `lm-eval-leakage plugin disable`\\n")

sys.meta_path.insert(0, LmEvalLeakageHook())
'''
LINE = f"import sys; exec({SOURCE!r}, {{}})\n"


def hook_file() -> Path:
    """Return the path of this environment's hook file, whether it exists or not."""
    return Path(sysconfig.get_path("purelib")) / HOOK_NAME


def harness_discovers_plugins() -> bool:
    """Return whether the installed harness finds our tasks and audits itself, by entry points (0.4.13 does not)."""
    from lm_eval.tasks import TaskManager

    return set(FOUND_BY_PLUGINS) <= set(TaskManager(include_defaults=False).match_tasks([*FOUND_BY_PLUGINS]))


def write_hook(file: Path) -> None:
    atomic_write(file, LINE)


def is_current(file: Path) -> bool:
    """Return whether the hook file is that of this version."""
    return file.read_text(encoding="utf-8", errors="replace") == LINE
