"""`lm-eval-leakage plugin`: whether plain `lm_eval` knows the leakage tasks and models, and making it know them."""

from __future__ import annotations

import argparse

from lm_eval_leakage import __version__, task_configs_path
from lm_eval_leakage.harness.seams import pth_hook as hook

ACTIONS = {
    "enable": "make plain `lm_eval` in this environment know the leakage tasks and models",
    "disable": "undo `enable`",
    "status": "say whether plain `lm_eval` knows the leakage tasks, and how",
    "path": "print the folder of the leakage tasks, for the harness's --include_path",
}


def plugin(args: argparse.Namespace) -> None:
    """make plain `lm_eval` know the leakage tasks and models, or undo that"""
    {"enable": enable, "disable": disable, "status": status, "path": path}[args.action]()


def plugin_arguments(parser: argparse.ArgumentParser) -> None:
    told = "; ".join(f"{name}: {what}" for name, what in ACTIONS.items())
    parser.add_argument("action", choices=tuple(ACTIONS), help=told)


def path() -> None:
    print(task_configs_path())


def enable() -> None:
    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        print("nothing to do: this harness discovers the leakage tasks itself")
        return
    try:
        hook.write_hook(file)
    except OSError as error:
        raise ValueError(
            f"cannot write {file} ({error.strerror}); enable the hook as a user who may write to this environment, "
            "or run `lm-eval-leakage` instead of `lm_eval`"
        ) from error
    print(f"enabled: plain `lm_eval` knows the leakage tasks (hook: {file})")


def disable() -> None:
    file = hook.hook_file()
    if not file.exists():
        print("nothing to do: the hook is not enabled")
        return
    try:
        file.unlink()
    except OSError as error:
        raise ValueError(
            f"cannot remove {file} ({error.strerror}); remove it as a user who may write to this environment"
        ) from error
    print(f"disabled: {file} is removed")


def status() -> None:
    from importlib.metadata import version

    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        how = "by the harness's own plugin discovery"
    else:
        how = f"by the hook {file}" if file.exists() else "no; run `lm-eval-leakage plugin enable`"
        if file.exists() and not hook.is_current(file):
            how += ", written by another version; run `lm-eval-leakage plugin enable` again"
    print(f"lm_eval_leakage {__version__}, lm_eval {version('lm_eval')}")
    print(f"tasks: {task_configs_path()}")
    print(f"known to plain `lm_eval`: {how}")
