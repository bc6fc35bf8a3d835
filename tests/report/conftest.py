from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report.browsing import CHROMIUM, DRIVER


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The driver of a headless Chromium; skips the test where selenium is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(300)  # seconds; axe is slow on a busy machine
    yield driver
    driver.quit()
