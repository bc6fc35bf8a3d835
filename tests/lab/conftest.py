from __future__ import annotations

from tests.checking.conftest import fakes  # noqa: F401
