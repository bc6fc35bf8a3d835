"""The harness's own command line, with our tasks known and our commands beside its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from lm_eval._cli import HarnessCLI

from lm_eval_leakage.cli.outputs import Command


class LeakageCLI(HarnessCLI):  # type: ignore[misc]
    """`run`, `ls` and `validate` are the harness's; so is the old form without a subcommand.

    commands: our own by name; each prints what it finds, its docstring is its help
    arguments: what adds a command's own arguments, for those that take any
    list_audits: what `ls` does when it is given the name of a task
    """

    def __init__(
        self,
        commands: Mapping[str, Command],
        arguments: Mapping[str, Callable[[argparse.ArgumentParser], None]],
        list_audits: Command,
    ) -> None:
        super().__init__()
        self._parser.prog = "lm-eval-leakage"
        self._parser.description = "Leakage audits with the Language Model Evaluation Harness"
        self._parser.epilog = (
            "example:\n  lm-eval-leakage --model hf --model_args pretrained=gpt2 --tasks mmlu_leakage_perm"
        )
        for name, command in commands.items():
            parser = self._subparsers.add_parser(name, help=command.__doc__, description=command.__doc__)
            parser.set_defaults(func=command)
            parser.prog = f"lm-eval-leakage {name}"
            if name in arguments:
                arguments[name](parser)
        self._extend_ls(list_audits)

    def _extend_ls(self, list_audits: Command) -> None:
        parser = self._subparsers.choices["ls"]
        (what,) = [action for action in parser._actions if action.dest == "what"]
        of_harness, original = tuple(what.choices), parser.get_default("func")
        what.choices, what.metavar = None, f"{{{','.join(of_harness)},TASK}}"
        what.help = "what to list; or a task, group or tag, to see which audits it has and why not others"
        parser.usage = None
        parser.set_defaults(func=lambda args: (original if args.what in (None, *of_harness) else list_audits)(args))
