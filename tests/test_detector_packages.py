"""Detectors of other packages are found without an edit of ours, and a broken package affects nobody else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.detectors import probes, statistics
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.tasks.metadata import known_keys
from lm_eval_leakage.harness.tasks.templates import templates
from tests.fakes import FakeLM, by_hash
from tests.scratch_packages import install, site_of_strangers

extend_harness(TaskManager)
FRESH = task_configs_path() / "fresh"
STATISTIC = """
from dataclasses import dataclass
from lm_eval_leakage.stats.pooling import mean_row
from lm_eval_leakage.records import Measurement
from lm_eval_leakage.detectors import Statistic, statistics


@dataclass(frozen=True)
class Counted(Measurement):
    n: int


@statistics.register("NAME")
@dataclass(frozen=True)
class Count(Statistic):
    rows = (mean_row("ROW", "Texts that were asked about", "n"),)
    stride: int = 1

    def verdict(self, question):
        return Counted(len(question.answers))
"""
TEMPLATE = """filter_list:
  - name: NAME
    filter:
      - function: leakage
        statistic: NAME
metadata:
  version: 1.0
  probe: option_orders
"""


def counting(name: str = "n_texts", row: str = "n_texts_asked") -> str:
    return STATISTIC.replace("NAME", name).replace("ROW", row)


def files(package: str = "stranger", suffix: str = "leakage_count", **modules: str) -> dict[str, str]:
    template = {f"{package}/_{suffix}_yaml": TEMPLATE.replace("NAME", "n_texts")}
    sources = {f"{package}/{name}.py": text for name, text in (modules or {"count": counting()}).items()}
    return {f"{package}/__init__.py": "", **sources, **template}


@pytest.fixture
def site(tmp_path_factory):
    yield from site_of_strangers(tmp_path_factory.mktemp("site"))


def test_a_statistic_that_is_not_a_dataclass_does_not_stop_the_check_of_others(site: Path) -> None:
    bare = counting().replace(
        '@statistics.register("n_texts")\n@dataclass(frozen=True)', '@statistics.register("n_texts")'
    )
    install(site, "stranger", "stranger", files(count=bare))
    assert "stride" not in known_keys()
    assert {"orders", "delta"} <= known_keys()


@pytest.mark.parametrize(
    "module", ["import missing_module", "def (:", "raise RuntimeError('why')", counting("max_order"), "1 / 0"]
)
def test_a_package_that_cannot_be_imported_affects_no_other(site: Path, module: str, caplog) -> None:
    install(site, "broken", "broken", files("broken", "leakage_broken", a=counting("early"), b=module))
    install(site, "stranger", "stranger", files())
    names = statistics.names()
    assert {"n_texts", "max_order", "outlier"} <= set(names)
    assert "early" not in names  # registered before the import failed
    assert "stride" in known_keys()
    assert statistics.get("max_order").__module__ == "lm_eval_leakage.detectors.option_orders"
    assert probes.names()
    (record,) = caplog.records
    assert "no detector of the package broken is available: " in record.getMessage()


def test_the_name_of_one_of_ours_stays_ours_whoever_is_imported_first(site: Path) -> None:
    install(site, "stranger", "stranger", files(count=counting("max_order")))
    with pytest.raises(ValueError, match="the statistic 'max_order' is registered twice"):
        __import__("stranger.count")
    assert statistics.get("max_order").__module__ == "lm_eval_leakage.detectors.option_orders"


@pytest.mark.parametrize("row", ["flagged_rate", "skipped", "acc"])
def test_a_row_under_a_name_that_is_taken_affects_only_its_package(
    site: Path, row: str, caplog, questions_file
) -> None:
    install(site, "stranger", "stranger", files(count=counting(row=row)))
    docs = [{"question": "Which?", "choices": ["red", "blue", "lime"], "answer": 0}]
    manager = TaskManager(metadata=questions_file(docs), include_defaults=False, include_path=str(FRESH))
    results = simple_evaluate(model=FakeLM(by_hash), tasks=["fresh_leakage_perm"], task_manager=manager)
    assert "flagged_rate,max_order" in results["results"]["fresh_leakage_perm"]
    assert "n_texts" not in statistics.names()
    messages = [record.getMessage() for record in caplog.records if "stranger" in record.getMessage()]
    assert len(messages) == 1
    assert repr(row) in messages[0]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("_leakage_perm_yaml", TEMPLATE, "already describes the audit 'leakage_perm'; give this file another name"),
        ("_counting_yaml", TEMPLATE, "would be called 'counting'; name the file _leakage_<name>_yaml"),
        ("_leakage_bad_yaml", "a: [", "it cannot be read"),
        (
            "_leakage_bad_yaml",
            TEMPLATE.replace("  probe: option_orders\n", ""),
            "must name the probe in `metadata` and the statistics",
        ),
    ],
)
def test_a_template_that_cannot_be_used_is_left_out_in_a_sentence(site, name, content, why: str, caplog) -> None:
    install(site, "stranger", "stranger", files() | {f"stranger/{name}": content})
    assert {file.name for file in templates().values() if file.parent == site / "stranger"} == {"_leakage_count_yaml"}
    assert templates()["leakage_perm"].parent == task_configs_path()
    (record,) = caplog.records
    assert record.getMessage().startswith(str(site / "stranger" / name))
    assert why in record.getMessage()


def test_of_two_packages_with_one_audit_the_first_by_name_has_it(site: Path, caplog) -> None:
    install(site, "a_stranger", "a_stranger", files("a_stranger", count=counting()))
    install(site, "stranger", "stranger", files(count=counting("other", "other_row")))
    assert templates()["leakage_count"].parent.name == "a_stranger"
    assert f"{site}/stranger/_leakage_count_yaml is left out" in caplog.text


@pytest.mark.parametrize("entry_point", ["nowhere", "nowhere.at_all", "stranger.count", "stranger:Count"])
def test_an_entry_point_that_names_no_package_is_reported(site: Path, entry_point: str, caplog) -> None:
    install(site, "stranger", entry_point, files())
    with caplog.at_level(logging.WARNING):
        assert "max_order" in statistics.names()
    assert "n_texts" not in statistics.names()
    assert f"names {entry_point!r}, which cannot be used" in caplog.text
