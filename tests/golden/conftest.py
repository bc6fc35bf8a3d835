"""Cases of `cases.py`, carried out in this process with stand-ins for models."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import model_registry
from lm_eval.tasks import TaskManager

from lm_eval_leakage import cli, task_configs_path
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.results.verdict_record import VERDICTS
from tests.campaign.conftest import here  # noqa: F401 (a fixture)
from tests.checking.conftest import GivenTasksOnly, NamedFake, fakes  # noqa: F401
from tests.cli.conftest import typed  # noqa: F401
from tests.golden.cases import CASES
from tests.golden.given import lay_out, model_named, trained
from tests.golden.texts import files_of, printed, remarks, same_everywhere, sections_of_files

PROGRAMS = {"lm-eval-leakage": cli.main, "lm_eval": cli_evaluate}
KEY = sha256(b"golden").digest()
TOLD_AT = re.compile(r'("time": ")[^"]+')
PLACES = {str(task_configs_path()): "TASK_CONFIGS"}


class StandIn(NamedFake):
    """`--model fake --model_args pretrained=NAME`: one of the models of `given.py`."""

    requests: list[tuple[str, str]] = []  # noqa: RUF012
    built: list[dict[str, object]] = []  # noqa: RUF012

    def __init__(self, pretrained: str, **arguments: object) -> None:
        super().__init__(pretrained=pretrained, **arguments)
        self.answer = model_named(pretrained)


class OwnTasksOnly(GivenTasksOnly):
    """This package's tasks, and no others: the data of lm_eval's are not on this machine."""

    def __init__(self, verbosity=None, include_path=None, include_defaults=True, metadata=None) -> None:
        given = [include_path] if isinstance(include_path, str) else include_path or []
        super().__init__(verbosity, [str(task_configs_path()), *given], False, metadata)


@pytest.fixture
def stand_ins(
    monkeypatch: pytest.MonkeyPatch,
    fakes: type[NamedFake],  # noqa: F811
    here: object,  # noqa: F811
) -> None:
    """Every command finds the stand-ins as `--model fake`, and a seal draws by the same key."""
    extend_harness(TaskManager)
    monkeypatch.setitem(model_registry._objs, "fake", StandIn)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", OwnTasksOnly)
    monkeypatch.setattr("lm_eval_leakage.harness.task_shelf.TaskManager", TaskManager)  # knows what may be meant
    monkeypatch.setattr("lm_eval_leakage.harness.sealing.new_key", lambda: KEY)
    monkeypatch.setattr("lm_eval_leakage.lab.simulation.train", trained)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # which audits replace
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("LMEVAL_LOG_LEVEL", raising=False)


@pytest.fixture(scope="session")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of all cases, and the texts of those that this process has carried out."""
    return tmp_path_factory.mktemp("golden"), {}


@pytest.fixture
def output_of(
    stand_ins: None,
    typed: Callable[..., tuple[int, str, str]],  # noqa: F811
    carried_out: tuple[Path, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], str]:
    """Carries out a case, once; returns what it printed and wrote, as text."""
    base, texts = carried_out

    def run(name: str) -> str:
        if name not in texts:
            texts[name] = carry_out(name)
        return texts[name]

    def carry_out(name: str) -> str:
        case, folder = CASES[name], base / name
        if case.after:
            run(case.after)
            shutil.copytree(base / case.after, folder)
            for file in folder.rglob(VERDICTS):  # else it may be written again within a second, and look unchanged
                file.write_text(TOLD_AT.sub(r"\g<1>2026-01-01T00:00:00+00:00", file.read_text()))
        else:
            lay_out(folder)
        before = files_of(folder)
        monkeypatch.chdir(folder)
        sections = []
        for line in case.typed:
            program, *words = shlex.split(line)
            code, out, err = typed(*words, main=PROGRAMS[program])
            sections += [(f"$ {line}", f"exit status {code}\n{printed(out)}".strip()), ("stderr of it", remarks(err))]
        sections += sections_of_files(before, files_of(folder), case.without)
        text = "".join(f"==> {title} <==\n{body}\n" for title, body in sections if body)
        return same_everywhere(text, {f"{base}/[a-z-]+": "FOLDER", **PLACES})

    return run
