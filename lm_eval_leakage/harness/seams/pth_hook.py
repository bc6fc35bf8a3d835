"""The opt-in hook that makes our tasks available in plain `lm_eval`: one line in a `.pth` file, removed by `disable`.

The interpreter runs that line at every start, so it imports only `sys`, and the code that is needed later is compiled
later. It installs an import finder that waits until the harness's task manager is imported, removes itself, lets the
module load and then extends it.

`site` executes lines of a `.pth` file that begin with `import` when the interpreter starts, and `sys.meta_path` is
Python's mechanism for import hooks; both are documented. Nothing of this package is imported unless lm_eval's task
manager is. lm_eval 0.4.13 reads no entry points for tasks and imports no plugins, so there is no other way to extend
plain `lm_eval`; once it reads the group `lm_eval.tasks`, `harness_discovers_plugins` is true and `enable` says that
there is nothing to do.

Plain `lm_eval` must work whatever is wrong with this package: any error of ours becomes one warning. If the package
has been uninstalled (pip leaves the hook behind), there is no warning, since the command that it names is gone too.
"""

from __future__ import annotations

import sysconfig
from importlib.util import find_spec
from pathlib import Path

from lm_eval_leakage.files import atomic_write

HOOK_NAME = "lm_eval_leakage_hook.pth"
TARGET = "lm_eval.tasks.manager"
WHEN_IMPORTED = f'''
import sys
from importlib.util import find_spec

def extended_spec(hook):
    sys.meta_path.remove(hook)
    spec = find_spec("{TARGET}")
    if spec is None or spec.loader is None:
        sys.meta_path.insert(0, hook)
        return None
    try:
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), extend(module))
    except AttributeError as error:
        warn(error)
    return spec

def extend(module):
    try:
        from lm_eval_leakage.harness import extend_harness
        extend_harness(module.TaskManager)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        is_gone = isinstance(error, ModuleNotFoundError) and error.name == "lm_eval_leakage"
        if not is_gone:
            warn(error)

def warn(error):
    if sys.stderr is not None:
        sys.stderr.write(f"warning: lm_eval continues without leakage tasks, because of {{error!r}}; fix it, or "
                         "turn the hook off with `lm-eval-leakage disable`\\n")
'''
SOURCE = f'''
import sys
class LmEvalLeakageHook:
    def find_spec(self, name, path=None, target=None):
        if name == "{TARGET}":
            known = {{}}
            exec({WHEN_IMPORTED!r}, known)
            return known["extended_spec"](self)
sys.meta_path.insert(0, LmEvalLeakageHook())
'''


def hook_file() -> Path:
    """Path of this environment's hook file, whether it exists or not."""
    return Path(sysconfig.get_path("purelib")) / HOOK_NAME


def harness_discovers_plugins() -> bool:
    """Whether the installed harness reads the entry-point group `lm_eval.tasks` itself (0.4.13 does not)."""
    found = find_spec("lm_eval")
    if found is None or found.origin is None:
        return False
    package = Path(found.origin).parent
    sources = [*package.glob("*.py"), *package.glob("tasks/*.py"), *package.glob("api/*.py")]
    texts = (source.read_text(encoding="utf-8") for source in sources)
    return any("entry_points" in text and '"lm_eval.tasks"' in text for text in texts)


def write_hook(file: Path) -> None:
    atomic_write(file, _line())


def is_current(file: Path) -> bool:
    """Whether the hook file is that of this version."""
    return file.read_text(encoding="utf-8", errors="replace") == _line()


def _line() -> str:
    return f"import sys; exec({SOURCE!r})\n"
