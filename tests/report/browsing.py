"""A browser for the tests of pages.

Needs Chromium and its driver, of the system: `apt-get install chromium chromium-driver`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "needs a browser: apt-get install chromium chromium-driver"
needs_browser = [pytest.mark.model, pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)]


def written(folder: Path, text: str) -> str:
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return file.as_uri()


def width_is(browser: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme_is(browser: Any, scheme: str) -> None:
    """light, dark, or empty for that of the system."""
    features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def open_all_details(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true })")
