"""The parts of docs/methods/*.md that the code or a results file determines; the rest of the pages is written by hand.

    python -m tests.method_pages

rewrites these parts: the sections "Parameters" and "Rows and keys", and the table of the measurement with known truth.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors import Probe, Statistic, probes, statistics
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.tasks.audit import template_settings
from lm_eval_leakage.harness.tasks.metadata import OWN_KEYS
from lm_eval_leakage.harness.tasks.templates import PARTS_OF_SEAL, SEAL_AUDIT, suffixes
from lm_eval_leakage.records import DeclaredRow
from lm_eval_leakage.registry import detector_id, registered_name
from lm_eval_leakage.results.sealed_logs import LOG_TESTS
from lm_eval_leakage.results.verdict_numbers import VERDICT_ROWS
from lm_eval_leakage.stats.pooling import SKIPPED

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "methods"
RESULTS = PAGES / "results"
WITHOUT_TEMPLATE = (SEAL_AUDIT,)
MEASURED_AFTER = "5"  # exposures
OF_TEMPLATES = ("probe", "version", "description", "audit_of")  # keys that a YAML sets, and no user
TABLES_IN = {"What was found": "training", "What is computed": "test"}  # sections of which a table alone is made
LONG = 24  # characters of a default value that a table shows


def page(suffix: str) -> Path:
    return PAGES / f"{suffix}.md"


def section(text: str, heading: str) -> str:
    (text_of_section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return str(text_of_section).strip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------------- the parts of an audit


def parts(suffix: str) -> tuple[type[Probe], list[type[Statistic]]]:
    """The probe and the statistics of an audit."""
    settings = template_settings(suffix)
    used = [step["statistic"] for pipeline in settings["filter_list"] for step in pipeline["filter"]]
    return probes.get(settings["metadata"]["probe"]), [statistics.get(name) for name in dict.fromkeys(used)]


def probe_of(suffix: str) -> Probe:
    """The probe with the parameters that the audit's template sets."""
    probe, _ = parts(suffix)
    settings = template_settings(suffix)["metadata"]
    return probe(**{field.name: settings[field.name] for field in fields(probe) if field.name in settings})


def parameters_of(part: type[Any]) -> list[Field[Any]]:
    return [field for field in fields(part) if field.repr]


def meanings(part: type[Any]) -> dict[str, str]:
    """Return what a class's docstring says about its fields; "as in `X`" is resolved."""
    text = inspect.cleandoc(part.__doc__ or "")
    names = "|".join(field.name for field in parameters_of(part)) or "-"
    matches = re.findall(rf"^({names}): (.*?)(?=\n\w+: |\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    said = {name: " ".join(meaning.split()) for name, meaning in matches}
    for name, meaning in said.items():
        if elsewhere := re.fullmatch(r"as in `(\w+)`", meaning):
            said[name] = meanings(probes.get(elsewhere[1]))[name]
    return said


def parameters(suffix: str) -> str:
    probe, judges = parts(suffix)
    settings = template_settings(suffix)["metadata"]
    rows = []
    for part, kind in [(probe, "probe"), *((judge, registered(judge)) for judge in judges)]:
        said = meanings(part)
        for field in parameters_of(part):
            value = settings.get(field.name, default(field))
            rows.append([f"`{field.name}`", shown(value), kind, said[field.name].replace("|", "\\|")])
    common = "The keys that [every audit takes](../methods.md#keys-that-every-audit-takes) come in addition."
    if not rows:
        return f"None of its own. {common}"
    return f"{table(['parameter', 'default', 'of', 'meaning'], rows)}\n\n{common}"


def default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def shown(value: object) -> str:
    """A default as a YAML would have it; "a text" for a long one."""
    if value is None:
        return "none"
    text = str(value)
    return "a template" if len(text) > LONG else f"`{text}`" if text else "empty"


def registered(statistic: type[Statistic]) -> str:
    return f"`{registered_name(statistic)}`"


# ---------------------------------------------------------------------- rows and keys


def rows_and_keys(suffix: str) -> str:
    _, judges = parts(suffix)
    used: dict[DeclaredRow, list[str]] = {}
    if probe_of(suffix).asks_orders or probe_of(suffix).exchanges_fillers:
        used |= {row: [] for row in VERDICT_ROWS}
    for judge in judges:
        for row in judge.rows:
            used.setdefault(row, []).append(registered(judge))
    used[SKIPPED] = []
    rows = [
        [f"`{row.name}`", ", ".join(by) or "the audit", "yes" if row.error else "", place(row), row.meaning]
        for row, by in used.items()
    ]
    listed = table(["row", "of", "error", "printed", "meaning"], rows)
    names = ", ".join(f"`{key}`" for key in keys([registered(judge) for judge in judges]))
    return (
        f"{listed}\n\n“Printed” rows are in `lm_eval`'s table; the others are in the section `leakage_details` of the "
        f"results file. In the samples log, each question has, next to the keys of every line, {names} "
        "([meanings](../log_format/values.md))."
    )


def place(row: DeclaredRow) -> str:
    return "yes" if row.in_table else ""


def keys(of: Sequence[str]) -> Iterator[str]:
    """Keys of the samples log that lines of these statistics have, from the table in docs/log_format/values.md."""
    text = (DOCS / "log_format" / "values.md").read_text(encoding="utf-8")
    for line in section(text, "Values of statistics").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and set(of) & set(cells[1].split(", ")):
            yield cells[0].strip("`")


def own_keys() -> str:
    """The keys of `--metadata` that every audit takes."""
    rows = [[f"`{key}`", meaning] for key, meaning in OWN_KEYS.items() if key not in OF_TEMPLATES]
    return table(["key", "meaning"], rows)


def tests_of_seals() -> str:
    """The tests that `seal audit` knows, each with the draw of the key that it tests."""
    rows = [
        [test.name, f"[`{test.audit}`]({test.audit}.md)", test.draw, "yes" if test.audit in PARTS_OF_SEAL else ""]
        for test in LOG_TESTS
    ]
    return table(["test", "audit", "the key's draw of", "part of `leakage_seal`"], rows)


# ---------------------------------------------------------------------- measured


def results(name: str = "quality") -> list[dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def methods_of(suffix: str) -> list[str]:
    """The names in quality.csv of an audit's scores."""
    ids = [detector_id(probe_of(suffix), judge()) for judge in parts(suffix)[1]]
    names = dict.fromkeys(row["method"] for row in results())
    # the measurement took shards of 5 questions instead of 10
    return [name for name in names if detector(name).removesuffix(":examples=5") in ids]


def detector(method: str) -> str:
    return method.partition("/")[0]


def measured(names: Sequence[str], suffix: str = "") -> str:
    """A table: AUROC of each score, the shares that its rule flags, and choice confusion, after the last exposure."""
    after = [row for row in results() if row["exposures"] == MEASURED_AFTER and row["method"] in names]
    columns: dict[str, dict[tuple[str, str], str]] = {}
    for heading, cell in (("AUROC of `{method}`", ranked), ("flagged by `{detector}`: trained, held out", flagged)):
        for row in after:
            name = heading.format(method=row["method"], detector=detector(row["method"]))
            columns.setdefault(name, {})[row["training"], row["benchmark"]] = cell(row)
    for row in results("choice_confusion"):
        if row["audit"] == suffix and row["exposures"] == MEASURED_AFTER:
            cells = f"{row['accuracy']}, {row['delta']} ± {row['delta_stderr']}"
            columns.setdefault(f"accuracy, delta: {row['half']}", {})[row["training"], row["benchmark"]] = cells
    columns = {name: cells for name, cells in columns.items() if any(cells.values())}
    places = sorted(dict.fromkeys((row["training"], row["benchmark"]) for row in after), key=by_training)
    return table(
        ["training", "benchmark", *columns],
        [[*place, *(cells.get(place, "") for cells in columns.values())] for place in places],
    )


def by_training(row: Sequence[str]) -> int:
    return list(dict.fromkeys(result["training"] for result in results())).index(row[0])


def ranked(row: Mapping[str, str]) -> str:
    return f"{row['auroc']} [{row['auroc_low']}, {row['auroc_high']}]" if row.get("auroc") else ""


def flagged(row: Mapping[str, str]) -> str:
    halves = ("flagged_trained", "flagged_held_out")
    return ", ".join(f"{row[half]} ± {row[f'{half}_stderr']}" for half in halves if row.get(half))


# ---------------------------------------------------------------------- pages


def generated(suffix: str) -> dict[str, str]:
    """Return by section of an audit's page the text that it must have, and for "What was found" the table in it."""
    if suffix == SEAL_AUDIT:
        return {"What is computed": tests_of_seals()}
    tables = {"Parameters": parameters(suffix), "Rows and keys": rows_and_keys(suffix)}
    return tables | ({"What was found": measured(names, suffix)} if (names := methods_of(suffix)) else {})


def rewritten(text: str, suffix: str) -> str:
    for heading, new in generated(suffix).items():
        old = section(text, heading)
        if heading in TABLES_IN:
            (old,) = re.findall(rf"^\| {TABLES_IN[heading]} \|.*(?:\n\|.*)*", old, re.MULTILINE)
        text = text.replace(old, new)
    return text


def main() -> None:
    for suffix in (*suffixes(), *WITHOUT_TEMPLATE):
        atomic_write(page(suffix), rewritten(page(suffix).read_text(encoding="utf-8"), suffix))


if __name__ == "__main__":
    main()
