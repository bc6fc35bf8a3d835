"""Files for tools, hosting services and contributors agree with pyproject.toml and the Makefile; paths exist."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml

import lm_eval_leakage
from tests.test_import_direction import PACKAGE, TIERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RULES = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
ONLY_MAKE = re.compile(r"make ([a-z]+)( [A-Z]+=\S*( matrix\.\w+ }})?)*")


def read(name: str):
    return yaml.safe_load((ROOT / name).read_text())


# ---------------------------------------------------------------------- checks are defined once


def test_the_hosted_checks_run_make_and_nothing_else() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    rules = {ONLY_MAKE.fullmatch(command)[1] for command in commands}
    assert {"check", "docs", "unit", "test", "dist"} == rules <= set(RULES)
    assert {step["uses"].split("@")[0] for step in steps if "uses" in step} == {
        "actions/checkout",
        "actions/setup-python",
    }
    assert "secrets" not in (ROOT / ".github/workflows/ci.yml").read_text()


def test_the_hosted_checks_begin_with_the_oldest_python_that_is_promised() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    versions = {
        tuple(map(int, version.split("."))) for version in re.findall(r'python(?:-version)?: "([\d.]+)"', text)
    }
    (oldest,) = re.findall(r">=(\d+\.\d+)", PROJECT["requires-python"])
    assert min(versions) == tuple(map(int, oldest.split(".")))
    assert versions == {(3, minor) for minor in range(min(versions)[1], max(versions)[1] + 1)}


def test_before_a_commit_make_check_runs_and_nothing_else() -> None:
    (repo,) = read(".pre-commit-config.yaml")["repos"]
    (hook,) = repo["hooks"]
    assert (repo["repo"], hook["entry"], hook["language"]) == ("local", "make check", "system")
    assert (hook["pass_filenames"], hook["always_run"]) == (False, True)


@pytest.mark.parametrize("command", ["ruff check .", "make check; rm -r build", "make test && true", "pip install x"])
def test_this_test_would_see_another_command(command: str) -> None:
    assert ONLY_MAKE.fullmatch(command) is None


# ---------------------------------------------------------------------- the citation


def test_the_citation_has_the_keys_that_its_format_requires() -> None:
    cited = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The lm_eval_leakage developers"}]
    assert cited["type"] in ("software", "dataset")
    assert all(isinstance(cited[key], str) for key in ("message", "title", "abstract", "version", "license"))
    assert len(set(cited["keywords"])) == len(cited["keywords"]) > 0


def test_the_citation_is_of_this_version_and_licence() -> None:
    cited = read("CITATION.cff")
    assert cited["version"] == PROJECT["version"] == lm_eval_leakage.__version__
    assert cited["license"] == PROJECT["license"]


# ---------------------------------------------------------------------- releases


def test_the_commands_of_the_releasing_page_set_the_version_everywhere(tmp_path: Path) -> None:
    files = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")
    for file in files:
        (tmp_path / file).write_text((ROOT / file).read_text())
    commands = re.findall(r"^ *(sed .*)$", (ROOT / "docs/releasing.md").read_text(), re.M)
    subprocess.run(["bash", "-ec", "\n".join(["V=98.7.6", *commands])], check=True, cwd=tmp_path)
    release, citation, changes = ((tmp_path / file).read_text() for file in files)
    assert tomllib.loads(release)["project"]["version"] == yaml.safe_load(citation)["version"] == "98.7.6"
    assert re.search(r"^## (.*)$", changes, re.M)[1] == f"98.7.6 ({date.today():%F})"
    for file, changed in zip(files, (release, citation, changes), strict=True):
        unchanged = (ROOT / file).read_text().splitlines()
        assert sum(old != new for old, new in zip(unchanged, changed.splitlines(), strict=True)) == 1


def test_the_changelog_begins_with_this_version() -> None:
    assert re.search(r"^## (\S+) \(", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == PROJECT["version"]


def test_the_constraints_pin_what_the_package_requires_on_every_python() -> None:
    extras = PROJECT["optional-dependencies"]
    required = {canonical(text) for text in (*PROJECT["dependencies"], *extras["lab"], *extras["dev"])}
    names = {}
    for file in ("constraints.txt", "constraints-py310.txt"):
        pins = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins)
        names[file] = {canonical(pin) for pin in pins}
    assert required - {"lm-eval-leakage", "tomli"} <= names["constraints.txt"] == names["constraints-py310.txt"]


def canonical(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


# ---------------------------------------------------------------------- pages for contributors

PAGES = ("CONTRIBUTING.md", "docs/adding_a_detector.md", "docs/architecture.md", "docs/releasing.md")
NAMED = re.compile(r"`([\w./-]+/(?:[\w-]+\.\w+)?|[\w.-]+\.(?:py|md|toml|txt|yaml|cff))`")
LINKED = re.compile(r"\]\(([\w./-]+\.\w+)(?:#[\w-]+)?\)")
OF_THE_EXAMPLE = ("my_detectors/",)


def named(page: str) -> list[str]:
    """The paths that a page names, relative to the repository or to the package."""
    found = dict.fromkeys(NAMED.findall((ROOT / page).read_text()))
    return [path for path in found if not path.startswith(OF_THE_EXAMPLE)]


@pytest.mark.parametrize(("page", "path"), [(page, path) for page in PAGES for path in named(page)])
def test_a_path_that_a_page_names_exists(page: str, path: str) -> None:
    places = [root / path for root in (ROOT, PACKAGE, PACKAGE / "harness")]
    assert any(place.is_dir() if path.endswith("/") else place.is_file() for place in places)


@pytest.mark.parametrize(
    ("page", "link"), [(page, link) for page in PAGES for link in LINKED.findall((ROOT / page).read_text())]
)
def test_a_link_of_a_page_leads_somewhere(page: str, link: str) -> None:
    if link in ("harness_seams.md", "log_format.md") and not (ROOT / "docs" / link).exists():
        pytest.skip("waits for that page")
    assert ((ROOT / page).parent / link).is_file()


def test_pages_name_many_paths() -> None:
    assert len(named("docs/architecture.md")) > 60
    assert {"results/column_registry.py", "harness/patches/", "docs/annotate.md"} <= set(named("docs/architecture.md"))


def test_the_drawing_has_the_packages_in_the_bands_of_the_import_test() -> None:
    drawing = re.search(r"```\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.S)[1]
    bands = re.split(r"^\+-.*$", drawing, flags=re.M)[1:-1]
    known = set().union(*TIERS)
    drawn = [set(re.findall(r"(?:^|[|\s])([a-z_]+)(?:/|\.py)\s", band)) & known for band in bands]
    assert drawn == TIERS


def test_every_package_is_described() -> None:
    packages = {f"{file.parent.name}/" for file in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+/)` \|", (ROOT / "docs/architecture.md").read_text(), re.M)) == packages
    inside = {f"`{file.parent.name}/`" for file in PACKAGE.glob("harness/*/__init__.py")}
    (row,) = re.findall(r"^\| `harness/` \|.*$", (ROOT / "docs/architecture.md").read_text(), re.M)
    assert inside == set(re.findall(r"`\w+/`", row)) - {"`harness/`"}


def test_the_glossary_has_each_word_once() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    words = [word for word in re.findall(r"^\| ([^|]+) \|", text, re.M) if word not in ("word", "---")]
    assert len(words) == len(set(words)) > 40
    asked = {
        "false discovery rate (FDR)",
        "false-positive rate (FPR)",
        "held-out",
        "calibration set",
        "membership inference",
    }
    assert asked | {"contamination", "leakage", "published order", "natural order", "flagged", "tested"} <= set(words)
    assert {"verdict", "control form", "reference model", "calibration", "null hypothesis"} <= set(words)


def test_the_contributing_page_names_rules_of_the_makefile() -> None:
    rules = set(re.findall(r"`?make (?:CONSTRAINTS= )?([a-z]+)\b", (ROOT / "CONTRIBUTING.md").read_text()))
    assert rules - {"and"} <= set(RULES)
    assert {"install", "check", "unit", "test", "demo", "faults", "mutants"} <= rules
