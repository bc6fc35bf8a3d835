"""What a user installs: the wheel and the source distribution, outside of any checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from readme_renderer import markdown

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def done(*command: str | Path, **options) -> str:
    """Return what the command prints; it must succeed."""
    finished = subprocess.run([*command], capture_output=True, text=True, **options)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executables of a new environment in which only the wheel is installed, and only what it requires can be
    imported: links to what is installed here, since torch alone is minutes of downloading and unpacking."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", with_pip=True)
    binaries = folder / "env" / "bin"
    done(binaries / "pip", "install", "--quiet", "--no-compile", "--no-deps", wheel, cwd=folder)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    for name in required(message_of(wheel).get_all("Requires-Dist", [])):
        files = distribution(name)
        for top in {file.parts[0] for file in files.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(files.locate_file(top))
    return binaries


def required(requirements: Iterable[str]) -> set[str]:
    """The names of all distributions that must be installed for these requirements, with those that they require."""
    names: set[tuple[str, ...]] = set()

    def add(text: str, extras: Iterable[str]) -> None:
        requirement = Requirement(text)
        key = (requirement.name, *sorted(requirement.extras))
        if key in names or (
            requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        ):
            return
        names.add(key)
        for further in distribution(requirement.name).requires or ():
            add(further, {"", *requirement.extras})

    for text in requirements:
        add(text, {""})
    return {name for name, *_ in names}


def message_of(wheel: Path) -> Message:
    """The wheel's metadata."""
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(metadata))


def test_both_distributions_carry_what_the_checkout_has_and_nothing_else(built: Path, wheel: Path) -> None:
    ours = {
        Path("lm_eval_leakage"): ROOT / "lm_eval_leakage",
        Path("lm_eval_leakage/task_configs"): ROOT / "task_configs",
    }
    files = {
        str(place / file.relative_to(folder)): str(file.relative_to(ROOT))
        for place, folder in ours.items()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    names = ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == set(files)
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        packed = {name.partition("/")[2] for name in source.getnames()}
    assert set(files.values()) <= packed


def test_the_checks_of_a_package_index_find_nothing(built: Path, wheel: Path) -> None:
    assert done(BIN / "twine", "--no-color", "check", "--strict", *built.iterdir()).count("PASSED") == 2
    assert done(BIN / "check-wheel-contents", wheel).strip().endswith(": OK")


def test_the_page_of_a_package_index_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    readme = message_of(wheel).get_payload(decode=True).decode()
    page = markdown.render(readme)
    anchors = {f"#{anchor}" for anchor in re.findall(r'id="([^"]+)"', page)}
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) > 10
    assert not [link for link in links if not link.startswith("https://") and link not in anchors]
    paths = re.findall(r"\]\((docs/[^)#]+)", (ROOT / "README.md").read_text())
    assert paths
    assert not [path for path in paths if f" ({path})" not in page]


def test_the_installed_wheel_audits_a_model_without_another_install(clean: Path, model: Path) -> None:
    elsewhere = clean.parents[1]
    environment = {"PATH": f"{clean}:/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HOME": str(elsewhere)}
    environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "2")

    def run(*command: str) -> str:
        return done(clean / command[0], *command[1:], env=environment, cwd=elsewhere)

    assert Path(run("lm-eval-leakage", "plugin", "path").strip()).is_relative_to(elsewhere)
    assert "enabled" in run("lm-eval-leakage", "plugin", "enable")
    audit = ["--model", "hf-prefix-tree", "--model_args", f"pretrained={model},dtype=float32", "--limit", "1"]
    options = [*audit, "--tasks", "fresh_leakage_perm", "--log_samples", "--output_path", "runs"]
    assert "no verdict" in run("python", "-m", "lm_eval", *options)
    assert "no verdict" in run("lm-eval-leakage", "annotate", "runs")
    questions = (ROOT / "task_configs" / "fresh" / "fresh.jsonl").read_text(encoding="utf-8").splitlines()[:1]
    (elsewhere / "mine.jsonl").write_text("\n".join(questions), encoding="utf-8")
    assert "NO VERDICT" in run("lm-eval-leakage", "check", *audit[:4], "--tasks", "mine.jsonl")
    assert (elsewhere / "leakage" / "leakage.html").is_file()
    assert "disabled" in run("lm-eval-leakage", "plugin", "disable")
