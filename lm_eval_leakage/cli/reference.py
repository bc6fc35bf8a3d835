"""The reference of the command line, docs/cli.md: `python -m lm_eval_leakage.cli.reference > docs/cli.md`.

Written from the parser, so that it says what `--help` says; a test compares the two. Options of lm_eval's own commands
are left to lm_eval, since they change with its version; `ls` has further ones of ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lm_eval_leakage.cli import COMMANDS, commands
from lm_eval_leakage.cli.of_results import COMMANDS_ON_RESULTS
from lm_eval_leakage.harness.seams.command_line import PROGRAM, CommandLine, arguments_of

INTRODUCTION = """# The command line

Written by `python -m lm_eval_leakage.cli.reference > docs/cli.md` from the program's own help.

`lm-eval-leakage --version` prints the versions of this package, lm_eval and Python; `lm-eval-leakage COMMAND --help`
describes one command.

**Commands of lm_eval.** `run`, `ls` and `validate` are those of `lm_eval` and take its options; without a command,
`run` is meant. `lm-eval-leakage run` knows the leakage tasks with `lm-eval-leakage plugin enable` or without it.
[`ls TASK`](#ls) is ours: which audits a task has, what they cost, whether its published orders are random. Our own
commands spell the options that they share with lm_eval in the same way (`--output_path`, `--include_path`,
`--model_args`).

**Output.** Results are printed to stdout, notes and errors to stderr. `--quiet` leaves out notes of progress; errors
and notes of questions that were lost remain. On a terminal, verdicts, notes and errors are coloured; set `NO_COLOR=1`
to turn colours off. A misspelled command, option, task, audit, model or argument is answered with the nearest names,
before lm_eval indexes its tasks or loads a model.

**Exit status.** 0: done. 1: a condition was met. 2: whatever keeps a command from doing all of its work: an input that
has to be changed, an error of a model, a server or a task, a condition that cannot be judged. One sentence says why;
where the error was not foreseen, it names the file that has the traceback. 130: interrupted. 141: the reader of the
output closed the pipe.

| command | 1 | 2, besides inputs that have to be changed |
|---|---|---|
| `check` | a verdict meets `--fail-on` | a run or unit fails; `--fail-on` cannot be judged (`--allow-untold`) |
| `check --verify` | something differs from the manifest | the folder has no manifest |
| `annotate` | a row meets `--fail-on` | a condition cannot be judged (`--allow-untold`), or an audit is incomplete |
| `seal verify` | something differs from key or commitment | there is no commitment, or nothing to compare |
| `run` | never | the model, a server or a task fails, or a file was not saved; so does plain `lm_eval` with an audit |
| `validate` | never | a task is not found |
| all others | never | |

## Completion in the shell

Commands, options and file names are completed by a script that shtab writes from the parser; it runs no Python. Once
per installation:

| shell | command |
|---|---|
| bash | `lm-eval-leakage --print-completion bash > ~/.local/share/bash-completion/completions/lm-eval-leakage` |
| zsh | `lm-eval-leakage --print-completion zsh > ~/.zsh/completions/_lm-eval-leakage` (a folder of your `fpath`) |
| tcsh | `lm-eval-leakage --print-completion tcsh > ~/.lm-eval-leakage.tcsh`, then `source` it in `~/.tcshrc` |
"""


def reference() -> str:
    """The page, in Markdown."""
    cli = commands()
    ours = [*(command.__name__ for command in (*COMMANDS, *COMMANDS_ON_RESULTS)), "ls"]
    return "\n".join([INTRODUCTION, "## Commands", "", *_contents(cli, ours), *_sections(cli, ours)])


def _contents(cli: CommandLine, names: list[str]) -> Iterator[str]:
    yield from ("| command | what it does |", "|---|---|")
    yield from (f"| [`{name}`](#{name}) | {_cell(cli.commands[name].description)} |" for name in names)


def _sections(cli: CommandLine, names: list[str]) -> Iterator[str]:
    for name in names:
        own = cli.commands[name]
        arguments = [action for action in arguments_of(own) if action.help != argparse.SUPPRESS]
        words = [_usage(action) for action in arguments if action.dest != "help"]
        positional_first = sorted(words, key=lambda word: word.startswith(("[-", "-")))
        yield from ("", f"### {name}", "", f"{_sentence(own.description)}.", "")
        yield from ("```text", " ".join([PROGRAM, name, *positional_first]), "```", "")
        yield from ("| argument | meaning |", "|---|---|")
        yield from (
            f"| {_names(action)} | {_cell(_meaning(action))} |" for action in arguments if action.dest != "help"
        )
    yield ""


def _usage(action: argparse.Action) -> str:
    shown = (action.option_strings[-1:] or [""])[0]
    word = f"{shown} {_value(action)}".strip()
    return word if action.required and action.nargs != "?" else f"[{word}]"


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_value(action)}`"
    return ", ".join(f"`{f'{name} {_value(action)}'.strip()}`" for name in action.option_strings)


def _value(action: argparse.Action) -> str:
    """How the value of an argument is written."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    shown = action.metavar or (",".join(map(str, action.choices)) if action.choices else "")
    name = shown if action.metavar or not shown else f"{{{shown}}}"
    name = name or (action.dest.upper() if action.option_strings else action.dest)
    return {"+": f"{name} [{name} ...]", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _meaning(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": PROGRAM}


def _sentence(text: str | None) -> str:
    return f"{(text or '')[:1].upper()}{(text or '')[1:]}"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
