"""Installs scratch detector packages as `pip install` would: modules, templates, and an entry point."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from lm_eval.api import registry as of_harness

from lm_eval_leakage import registry
from lm_eval_leakage.detectors import probes
from lm_eval_leakage.harness import table as declared_rows
from lm_eval_leakage.harness.tasks import metadata as known_keys
from lm_eval_leakage.harness.tasks import templates
from lm_eval_leakage.harness.tasks import templates as audit_suffixes

CACHES = (
    registry.detector_packages,
    registry._import_detector_packages,
    templates.templates,
    audit_suffixes.suffixes,
    known_keys.known_keys,
)
OF_HARNESS = ("metric_registry", "aggregation_registry", "metric_agg_registry", "higher_is_better_registry")


def install(site: Path, distribution: str, entry_point: str, files: Mapping[str, str]) -> None:
    """Install a package; files: contents by path, package folder first."""
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content, encoding="utf-8")
    info = site / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{distribution} = {entry_point}\n")


def site_of_strangers(site: Path) -> Iterator[Path]:
    """A folder on the import path that is forgotten afterwards; for fixtures."""
    before = set(sys.modules)
    for lookup in (probes.names, declared_rows.registered_rows, audit_suffixes.suffixes):
        lookup()  # imports our own modules first, so that they stay
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        for registry_of_ours in registry.Registry._all:
            patch.setattr(registry_of_ours, "_objects", dict(registry_of_ours._objects))
        patch.setattr(declared_rows, "_registered", dict(declared_rows._registered))
        for name in OF_HARNESS:
            patch.setattr(getattr(of_harness, name), "_objs", dict(getattr(of_harness, name)._objs))
        forget()
        yield site
    forget()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(sys.modules[name].__file__).startswith(str(site)):
            del sys.modules[name]


def forget() -> None:
    """Clears what was found in installed packages, so that it is searched again."""
    for cached in CACHES:
        cached.cache_clear()
