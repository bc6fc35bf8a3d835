"""The files that hosts and tools read say the same as pyproject.toml and the Makefile, and name what exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

import lm_eval_leakage

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
    assert {"check", "unit", "test"} == rules <= set(RULES)
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
