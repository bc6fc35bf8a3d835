"""`lm-eval-leakage`: parse, call one function, print."""

from __future__ import annotations

import sys

from lm_eval_leakage import __version__, task_configs_path
from lm_eval_leakage.harness import hook


def path() -> None:
    """print the folder of the leakage tasks, for the harness's --include_path"""
    print(task_configs_path())


def enable() -> None:
    """make plain `lm_eval` in this environment know the leakage tasks and models"""
    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        print("nothing to do: this harness discovers the leakage tasks itself")
        return
    try:
        hook.write_hook(file)
    except OSError as error:
        sys.exit(
            f"cannot write {file} ({error.strerror}); enable the hook where the environment can be written, or run "
            "`lm-eval-leakage` in the place of `lm_eval`"
        )
    print(f"enabled: plain `lm_eval` knows the leakage tasks (hook: {file})")


def disable() -> None:
    """undo `enable`"""
    file = hook.hook_file()
    if not file.exists():
        print("nothing to do: the hook is not enabled")
        return
    try:
        file.unlink()
    except OSError as error:
        sys.exit(f"cannot remove {file} ({error.strerror}); remove it where the environment can be written")
    print(f"disabled: {file} is removed")


def status() -> None:
    """say whether plain `lm_eval` knows the leakage tasks, and how"""
    from importlib.metadata import version

    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        how = "by the harness's own plugin discovery"
    else:
        how = f"by the hook {file}" if file.exists() else "no; run `lm-eval-leakage enable`"
    print(f"lm_eval_leakage {__version__}, lm_eval {version('lm_eval')}")
    print(f"tasks: {task_configs_path()}")
    print(f"known to plain `lm_eval`: {how}")


def main() -> None:
    from lm_eval.utils import setup_logging

    from lm_eval_leakage.harness.cli import LeakageCLI

    cli = LeakageCLI({command.__name__: command for command in (path, enable, disable, status)})
    args = cli.parse_args()
    if args.command in ("run", "ls", "validate"):
        from lm_eval.tasks.manager import TaskManager

        from lm_eval_leakage.harness.wiring import extend_harness

        setup_logging()
        extend_harness(TaskManager)
    cli.execute(args)
