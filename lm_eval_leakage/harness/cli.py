"""The harness's own command line, with our tasks known and our commands beside its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lm_eval._cli import HarnessCLI


class LeakageCLI(HarnessCLI):  # type: ignore[misc]
    """`run`, `ls` and `validate` are the harness's; so is the old form without a subcommand.

    commands: our own by name; each prints what it finds, its docstring is its help
    """

    def __init__(self, commands: Mapping[str, Callable[[], None]]) -> None:
        super().__init__()
        self._parser.prog = "lm-eval-leakage"
        self._parser.description = "Leakage audits with the Language Model Evaluation Harness"
        self._parser.epilog = (
            "example:\n  lm-eval-leakage --model hf --model_args pretrained=gpt2 --tasks mmlu_leakage_perm"
        )
        for name, command in commands.items():
            parser = self._subparsers.add_parser(name, help=command.__doc__, description=command.__doc__)
            parser.set_defaults(func=lambda _, command=command: command())
