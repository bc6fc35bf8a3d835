"""What a case printed and wrote, as text that is the same on every machine and can be read in a diff."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.report.parsed import Parsed

# What must differ between two machines or two days, in the order in which it is replaced.
DIFFERS = {
    r"\d{4}-\d\d-\d\d[T ]\d\d[:-]\d\d[:-]\d\d(?:\.\d+)?(?:\+00:00|Z)?": "TIME",
    r"((?:lm_eval_leakage|lm-eval-leakage) |\"version\": \")\d+\.\d+\.\d+": r"\1VERSION",
    r"TIME,\d{3}(?= )": "TIME",
    r"(?<=[1-9] looks, head )[0-9a-f]{64}": "HEAD",
    r"on \S+ \(process \d+\), \d+ s ago": "on HOST (process ID), SOME s ago",
    r"speed: [\d.,]+ units per hour, [\d.,]+ tokens": "speed: SOME units per hour, SOME tokens",
    r"(?m)(\| \d+ \| )\d+\.\d\d( \|)$": r"\1SECONDS\2",  # per question, after tokens per question
    r"(?<=[ ])\d+\.\d(?= seconds)": "SOME",
    r"\b(\w+)-[0-9a-f]{8}-\d+(?:-[\w.-]+(?=\.jsonl))?": r"\1-WORKER",
    r"\b20\d\d-\d\d-\d\d\b": "DATE",
}
KEYS_THAT_DIFFER = frozenset(  # in JSON
    (
        *("date", "seconds", "total_evaluation_time_seconds", "host", "pid", "git_hash"),
        *("retrieved_timestamp", "evaluation_id"),  # of records of Every Eval Ever
        *("units_per_hour", "requests_per_second", "tokens_per_second"),
        *("lm_eval", "lm_eval_leakage", "lm_eval_version", "transformers_version"),
    )
)
PACKAGES = "python"  # a dict with this key has the versions of all packages that are installed
SETTINGS_OF_HARNESS = frozenset(("configs", "higher_is_better"))
DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")
# Of files that hold times or paths, and of ledgers, whose looks have times.
DIGESTS_THAT_DIFFER = re.compile(r"results_[^/]*\.json$|unit\.json$|\.yaml$|^head$|^code$")
LISTED = (".parquet",)  # that they are written is kept, not what they hold
LEFT_OUT = ("*.lock", "*.sqlite")
LONG = 6  # entries of requests and responses that are kept of a line of a samples log
PER_LINE = frozenset(
    ("doc", "target", "arguments", "resps", "filtered_resps", "metrics", "doc_hash", "prompt_hash", "target_hash")
)
MOST_ROWS, ROWS_SHOWN = 40, 3  # of a file of questions
FLAT_LIST, NEW_LINE = re.compile(r"\[\n +([^\[\]{}]*?)\n *\]"), "\n"
CELLS = frozenset(("td", "th"))
INLINE = frozenset(("a", "b", "code", "em", "i", "q", "small", "span", "strong", "sub", "sup", "tspan"))
LOGGED = re.compile(r"^[\d-]+:[\d:]+ ([A-Z]+) +\[([\w.]+):\d+\]")  # by the harness's logger
BAR = re.compile(r"\r[^\n\r]*")  # a progress bar, which begins anew in its line


def printed(text: str) -> str:
    """Return what remains on a screen, without progress bars."""
    return "\n".join(line.rstrip() for line in BAR.sub("", text).strip("\n").split("\n"))


def remarks(text: str) -> str:
    """The lines of stderr, without the empty ones of a progress bar and what the harness notes on its own progress."""
    lines = (line for line in printed(text).split("\n") if line)
    return "\n".join(LOGGED.sub(r"\1 [\2]", line) for line in lines if not is_of_harness(line))


def is_of_harness(line: str) -> bool:
    match = LOGGED.match(line)
    return match is not None and match[1] == "INFO" and "leakage" not in match[2]


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files, by their path in the folder."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not is_one_of(name, LEFT_OUT)}


def is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def sections_of_files(
    before: Mapping[str, bytes], after: Mapping[str, bytes], without: Sequence[str]
) -> list[tuple[str, str]]:
    """The name and text of every file that was written, changed or removed."""
    names = [name for name in dict.fromkeys([*after, *before]) if after.get(name) != before.get(name)]
    shown = [name for name in names if not is_one_of(name, without)]
    return [(name, readable(name, after[name]) if name in after else "removed") for name in shown]


def readable(name: str, content: bytes) -> str:
    if name.endswith(LISTED):
        return f"a file {name[name.rindex('.') :]}"
    text = content.decode()
    if name.endswith(".html"):
        return of_page(text)
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in text.splitlines()]
        return of_samples(lines) if lines and "doc" in lines[0] else of_rows(lines)
    return as_json(without_settings(json.loads(text))) if name.endswith(".json") else text


def without_settings(content: Any) -> Any:
    """A results file without what the harness knows of the tasks, beside what this package wrote there."""
    if not (isinstance(content, dict) and SETTINGS_OF_HARNESS.issubset(content)):
        return content
    metadata = {name: config.get("metadata") for name, config in content["configs"].items()}
    others = {key: value for key, value in content.items() if key not in SETTINGS_OF_HARNESS}
    return others | {"metadata of configs": metadata}


def of_rows(rows: list[Any]) -> str:
    if len(rows) <= MOST_ROWS:
        return as_lines(rows)
    others = as_lines(rows[ROWS_SHOWN:])
    digest = sha256(others.encode()).hexdigest()[:16]
    return f"{as_lines(rows[:ROWS_SHOWN])}\nand {len(rows) - ROWS_SHOWN} more rows (their digest: {digest})"


def as_lines(values: Iterable[object]) -> str:
    return "\n".join(json.dumps(alike(value), ensure_ascii=False) for value in values)


def as_json(value: object) -> str:
    """Indented, with a list of numbers or texts in one line."""
    text = json.dumps(alike(value), indent=1, ensure_ascii=False)
    return FLAT_LIST.sub(lambda match: f"[{' '.join(line.strip() for line in match[1].split(NEW_LINE))}]", text)


def alike(value: Any) -> Any:
    """Return content without the values that must differ between two runs."""
    if isinstance(value, dict) and PACKAGES in value:
        return "VERSIONS"
    if isinstance(value, dict):
        return {key: "DIFFERS" if must_differ(key, part) else alike(part) for key, part in value.items()}
    return [alike(part) for part in value] if isinstance(value, list) else value


def must_differ(key: str, value: Any) -> bool:
    if key in KEYS_THAT_DIFFER:
        return isinstance(value, str | int | float)
    is_digest = isinstance(value, str) and DIGEST.fullmatch(value) is not None
    return is_digest and DIGESTS_THAT_DIFFER.search(key) is not None


def of_samples(lines: list[dict[str, Any]]) -> str:
    """Lines on questions, as of a samples log: the first one of each filter, and a table of the scalars of all."""
    first = {line.get("filter"): line for line in reversed(lines)}
    wholes = [as_json({key: shortened(value) for key, value in line.items()}) for line in first.values()]
    names = list(dict.fromkeys(key for line in lines for key in line if key not in PER_LINE))
    table = io.StringIO()
    rows = csv.DictWriter(table, names, extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    rows.writerows(lines)
    return "\n".join([*wholes, table.getvalue().rstrip("\n")])


def shortened(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > LONG:
        value = dict(list(value.items())[:LONG]) | {"more": len(value) - LONG}
    if isinstance(value, list) and len(value) > LONG:
        return [*value[:LONG], f"and {len(value) - LONG} more"]
    return value


class PageText(Parsed):
    """A page as lines: one for each paragraph, item, row of a table and label of a chart."""

    def handle_data(self, data: str) -> None:
        super().handle_data(data if "script" in self.open else re.sub(r"\s+", " ", data))

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        if tag in CELLS:
            self.texts.append(("", " | "))
        elif tag not in INLINE:
            self.texts.append(("", "\n"))


def of_page(page: str) -> str:
    """A page's text, and the data that its scripts read."""
    parsed = PageText(page)
    text = "".join(text for tag, text in parsed.texts if tag not in ("script", "style"))
    data = [data_of_script for tag, text in parsed.texts if tag == "script" and (data_of_script := data_in(text))]
    lines = [line.strip(" |") for line in text.split("\n")]
    return "\n".join([*filter(None, lines), *(as_lines(value) for value in data)])


def data_in(script: str) -> list[Any]:
    try:
        data = json.loads(script)
    except ValueError:
        return []
    return data if isinstance(data, list) else [data]


def same_everywhere(text: str, places: Mapping[str, str]) -> str:
    """Return text in which what must differ is replaced: paths, by their patterns in `places`, and what `DIFFERS`
    lists."""
    for pattern, name in {**places, **DIFFERS}.items():
        text = re.sub(pattern, name, text)
    return text
