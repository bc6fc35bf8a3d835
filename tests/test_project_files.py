"""The releasing page's commands run; constraints, citation and version fit pyproject.toml; named paths exist."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml

import lm_eval_leakage

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PACKAGE = Path(lm_eval_leakage.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = ("CONTRIBUTING.md", "docs/adding_a_detector.md", "docs/architecture.md", "docs/releasing.md")
NAMED = re.compile(r"`([\w./-]+/(?:[\w-]+\.\w+)?|[\w.-]+\.(?:py|md|toml|txt|yaml|cff))`")
OF_THE_EXAMPLE = ("my_detectors/",)
NOT_ON_THE_INDEX = "Today only the second works: nothing is on the index yet.\n\n"


def test_one_version_and_one_licence_are_given_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert {cited["version"], newest, lm_eval_leakage.__version__} == {PROJECT["version"]}
    assert cited["license"] == PROJECT["license"]


def test_the_commands_of_the_releasing_page_set_the_version_everywhere(tmp_path: Path) -> None:
    files = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")
    pages = ("README.md", "docs/install.md")
    (tmp_path / "docs").mkdir()
    for file in (*files, *pages):
        (tmp_path / file).write_text((ROOT / file).read_text())
    commands = re.findall(r"^ *(sed .*)$", (ROOT / "docs/releasing.md").read_text(), re.M)
    subprocess.run(["bash", "-ec", "\n".join(["V=98.7.6", *commands])], check=True, cwd=tmp_path)
    release, citation, changes = ((tmp_path / file).read_text() for file in files)
    assert tomllib.loads(release)["project"]["version"] == yaml.safe_load(citation)["version"] == "98.7.6"
    assert yaml.safe_load(citation)["date-released"] == date.today()
    assert re.search(r"^## (.*)$", changes, re.M)[1] == f"98.7.6 ({date.today():%F})"
    new_lines = (1, 2, 1)  # in the citation those of version and date
    for file, changed, count in zip(files, (release, citation, changes), new_lines, strict=True):
        before, after = (ROOT / file).read_text().splitlines(), changed.splitlines()
        assert len([line for line in after if line not in before]) == count
        assert 1 <= len([line for line in before if line not in after]) <= count
    for page in pages:
        assert (ROOT / page).read_text().replace(NOT_ON_THE_INDEX, "") == (tmp_path / page).read_text()


def test_the_constraints_pin_what_the_package_requires_on_every_python() -> None:
    extras = PROJECT["optional-dependencies"]
    required = {canonical(text) for text in (*PROJECT["dependencies"], *extras["lab"], *extras["dev"])}
    pinned = [
        {canonical(line) for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")}
        for file in ("constraints.txt", "constraints-py310.txt")
    ]
    assert required - {"lm-eval-leakage", "tomli"} <= pinned[0] == pinned[1]


def canonical(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_that_a_page_names_exist(page: str) -> None:
    """Relative to the repository or to the package."""
    named = [path for path in NAMED.findall((ROOT / page).read_text()) if not path.startswith(OF_THE_EXAMPLE)]
    places = (ROOT, PACKAGE, PACKAGE / "harness")
    assert not [path for path in named if not any((place / path).exists() for place in places)]
