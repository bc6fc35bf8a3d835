"""Lines of JSON out of files that may be broken, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_eval_leakage.results.problems import Problem


def json_lines(file: Path, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of every line that holds a mapping; the others, as a killed run or a full disk leaves them,
    become problems. No more than a line is held at a time."""
    try:
        with file.open("rb") as lines:  # bytes, since one wrong byte would else end the file
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError) as error:
                    cut = "" if line.endswith(b"\n") else "cut off: "
                    problems.append(Problem(f"left out, {cut}no JSON ({error})", file, number))
                    continue
                if isinstance(found, dict):
                    yield number, found
                else:
                    kind = type(found).__name__
                    problems.append(Problem(f"left out, {kind} in the place of a mapping", file, number))
    except OSError as error:
        problems.append(Problem(f"cannot be read ({error.strerror})", file))
