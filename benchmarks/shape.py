"""How much of the code is scaffolding, and how many files a plan passes: tables of docs/architecture.md.

    python -m benchmarks.shape [--folder FOLDER] [--without_run] [--pretrained MODEL]

FOLDER: a checkout (default: this one). MODEL: a folder whose tokenizer counts tokens. Prints three tables:

- Lines of code (without comments, docstrings and blank lines) by what they are: imports, fields of classes, constants
  of modules, signatures; the rest does something. And how many of our own names a module imports.
- The path of a plan: `check` with lm_eval's `dummy` model on the bundled questions runs in a process of its own. Files
  entered are those of which a function ran before the plan was printed. Of functions that get the plan, or what is
  made of it (a unit, a step), the files are counted, and how often the path comes back to one that it had left.
- CPU seconds of a process (user and system): of the plan of `check` for a task and for a file of questions, the median
  of three after the first time, by lm_eval's `dummy` model and, with MODEL, by its tokenizer.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent.parent
PACKAGE = "lm_eval_leakage"
OF_A_PLAN = ("plan", "planning", "estimates", "checked_plan", "units", "steps", "folder", "claims", "task_plan")
QUIZ = [
    {"question": f"How many legs have {n} spiders?", "choices": [str(8 * n), "a", "b", "c"], "answer": 0}
    for n in range(1, 41)
]
TRACED = """
import json, sys
from pathlib import Path
from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.plan_reading import check_plan
PACKAGE, OF_A_PLAN = "lm_eval_leakage", {of_a_plan!r}
files, returns, entered = [], set(), set()
def is_of_a_plan(value):
    module = type(value).__module__
    return any(module == f"{{PACKAGE}}.jobs.{{name}}" for name in OF_A_PLAN)
def note_file(frame, event, argument):
    if event == "call" and PACKAGE in frame.f_code.co_filename:
        entered.add(frame.f_code.co_filename)
def note_plan(frame, event, argument):
    code = frame.f_code
    if event != "call" or PACKAGE not in code.co_filename:
        return
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if not any(is_of_a_plan(frame.f_locals.get(name)) for name in names):
        return
    file = code.co_filename.partition(PACKAGE + "/")[2]
    if files and files[-1] != file and file in files:
        returns.add((files[-1], file))
    files.append(file)
plan = check_plan({{"model": "dummy", "tasks": "fresh", "questions": 30, "output_path": {folder!r}, "quiet": True}})
for one, profile in ((plan.changed(dry_run=True), note_file), (plan, note_plan)):
    sys.setprofile(profile)
    run_plan(one)
    sys.setprofile(None)
print(json.dumps([sorted(set(files)), len(returns), len(entered)]))
"""


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines with code."""
    lines = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    rows = iter(text.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(rows, "")):
        if token.type not in skipped:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return lines


def scaffolding(tree: ast.Module) -> dict[str, set[int]]:
    """Return the numbers of lines by what they are."""
    parts: dict[str, set[int]] = {"imports": set(), "fields": set(), "constants": set(), "signatures": set()}

    def add(part: str, first: int, last: int | None) -> None:
        parts[part] |= {*range(first, (last or first) + 1)}

    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            add("imports", node.lineno, node.end_lineno)
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, (ast.Assign, ast.AnnAssign)):
                    add("fields", child.lineno, child.end_lineno)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            add("signatures", node.lineno, max(node.lineno, node.body[0].lineno - 1))
    for child in tree.body:
        if isinstance(child, (ast.Assign, ast.AnnAssign)):
            add("constants", child.lineno, child.end_lineno)
    return parts


def imported_names(tree: ast.Module) -> int:
    """Return how many names of the package a module imports."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sum(len(node.names) for node in nodes if (node.module or "").startswith(PACKAGE))


def table_of_lines(folder: Path) -> Iterator[str]:
    counts = dict.fromkeys(("imports", "fields", "constants", "signatures"), 0)
    n_lines, sizes, names = 0, [], []
    for file in sorted((folder / PACKAGE).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = code_lines(text, tree)
        for part, numbers in scaffolding(tree).items():
            counts[part] += len(numbers & lines)
        n_lines += len(lines)
        if lines:
            sizes.append(len(lines))
            names.append(imported_names(tree))
    yield from ("| | |", "|---|---|", f"| lines of code; modules | {n_lines:,}; {len(sizes)} |")
    yield from (f"| {part} | {n:,} ({n / n_lines:.0%}) |" for part, n in counts.items())
    yield f"| scaffolding in all | {sum(counts.values()) / n_lines:.1%} |"
    yield f"| lines of a module, median | {statistics.median(sizes):g} |"
    average = f"{statistics.median(names):g}; {statistics.mean(names):.1f}"
    yield f"| names of ours that a module imports, median; mean | {average} |"


def path_of_a_plan(folder: Path) -> Iterator[str]:
    with TemporaryDirectory() as place:
        program = TRACED.format(of_a_plan=OF_A_PLAN, folder=str(Path(place) / "out"))
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment(folder), capture_output=True, text=True, check=True
        )
    files, n_returns, n_entered = json.loads(ran.stdout.splitlines()[-1])
    yield from ("| | |", "|---|---|", f"| files that a plan passes | {len(files)} |", f"| returns | {n_returns} |")
    yield f"| files entered before the plan is printed | {n_entered} |"
    print("\n".join(files), file=sys.stderr)


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}


def planning_seconds(folder: Path, pretrained: str) -> Iterator[str]:
    models = {"": ["dummy"]}
    if pretrained:
        models[", with a tokenizer"] = ["hf-prefix-tree", "--model_args", f"pretrained={pretrained}"]
    yield from ("| CPU seconds of a plan, after the first time | |", "|---|---|")
    with TemporaryDirectory() as place:
        quiz = Path(place) / "quiz.jsonl"
        quiz.write_text("".join(json.dumps(row) + "\n" for row in QUIZ), encoding="utf-8")
        tasks = {"`check --tasks fresh --dry_run`": "fresh", "of a file of questions": str(quiz)}
        for (name, task), (how, model) in product(tasks.items(), models.items()):
            options = ["--model", *model, "--tasks", task, "--dry_run", "--output_path", f"{place}/out"]
            _, *seconds = (_seconds_of_check(folder, options) for _ in range(4))
            yield f"| {name}{how} | {statistics.median(seconds):.1f} |"


def _seconds_of_check(folder: Path, options: list[str]) -> float:
    program = "import sys; from lm_eval_leakage.cli import main; sys.exit(main())"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program, "check", *options]
    subprocess.run(command, env=environment(folder), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--without_run", action="store_true", help="only count lines")
    parser.add_argument("--pretrained", default="", help="a folder of a model with a tokenizer")
    args = parser.parse_args()
    folder = args.folder.resolve()
    tables = [table_of_lines(folder)]
    if not args.without_run:
        tables += [path_of_a_plan(folder), planning_seconds(folder, args.pretrained)]
    for table in tables:
        print(*table, sep="\n", end="\n\n", flush=True)


if __name__ == "__main__":
    main()
