"""The opt-in hook that makes plain `lm_eval` know what is ours: one line in a `.pth` file, removed by `disable`.

The interpreter runs that line at its start, so it imports `sys` and nothing else. It leaves a finder that
waits for the harness's task manager to be imported, steps aside, lets it load and then extends it.
"""

from __future__ import annotations

import sysconfig
from importlib.util import find_spec
from pathlib import Path

from lm_eval_leakage.files import write_whole

NAME = "lm_eval_leakage_hook.pth"
TARGET = "lm_eval.tasks.manager"
SOURCE = f'''
import sys
class LmEvalLeakageHook:
    def find_spec(self, name, path=None, target=None):
        if name != "{TARGET}":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec
        spec = find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            try:
                from lm_eval_leakage.harness.wiring import extend_harness
            except ImportError:
                return
            extend_harness(module.TaskManager)
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, LmEvalLeakageHook())
'''


def hook_file() -> Path:
    """Where this environment's hook lies, or would lie."""
    return Path(sysconfig.get_path("purelib")) / NAME


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
    write_whole(file, f"import sys; exec({SOURCE!r})\n")
