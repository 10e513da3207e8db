"""A real Chromium without a screen, driven through selenium, for tests of pages.

Chromium and its driver are the system's. Where they or selenium are missing, tests that need them
are skipped and say so; `FMEMORY_TEST_CHROMIUM`, the path or name of a Chromium, demands them: then
they fail instead. One browser serves all tests of a process.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "FMEMORY_TEST_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_DRIVER_PLACES = ("/usr/bin", "/usr/lib/chromium", "/usr/lib/chromium-browser")
_WAIT_S = 30
_SCRIPT_WAIT_S = 120
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root, where Chromium's sandbox does not start
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
)


class Browser:
    """A browser that shows one file at a time.

    Attributes:
        driver: A `selenium.webdriver.Chrome`, which from version to version says more or less of
            its types.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._events: list[dict[str, Any]] = []
        self._sent: dict[str, str] = {}

    def open(self, file: Path, anchor: str = "", *, width: int = 1280, height: int = 900) -> int:
        """Show a file as in a window of that size.

        Returns:
            Milliseconds until the page said that it is on the screen.
        """
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get("about:blank")
        self.driver.get(file.as_uri() + anchor)
        return int(self.wait("return document.documentElement.dataset.ready"))

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> Any:
        """What a script returns, once that is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, _WAIT_S, poll_frequency=0.02)
        return wait.until(lambda _driver: self.run(script, *arguments), script)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        from selenium.webdriver import ActionChains

        actions = ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def click(self, selector: str) -> None:
        """Click the first element that a selector finds."""
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def text(self, selector: str) -> str:
        """The text of the first element that a selector finds, as it is seen."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that a selector finds, seen or not."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        return [str(one) for one in self.run(script, selector)]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, granted or refused."""
        sent = [one for one in self._network() if one["method"] == "Network.requestWillBeSent"]
        self._sent = {one["params"]["requestId"]: one["params"]["request"]["url"] for one in sent}
        return [str(one) for one in self._sent.values()]

    def refused_requests(self) -> set[str]:
        """Of the addresses that `requests` gave, those that the page's policy refused."""
        failed = [one for one in self._events if one["method"] == "Network.loadingFailed"]
        refused = [one["params"] for one in failed if one["params"].get("blockedReason") == "csp"]
        return {
            str(self._sent[one["requestId"]]) for one in refused if one["requestId"] in self._sent
        }

    def _network(self) -> list[dict[str, Any]]:
        logged = self.driver.get_log("performance")
        self._events = [json.loads(one["message"])["message"] for one in logged]
        return self._events

    def forgive(self) -> None:
        """Leave the page, and forget what the console said of it."""
        self.driver.get("about:blank")
        self.complaints()

    def complaints(self) -> list[str]:
        """What the browser's console says since the last call: errors and refusals."""
        logged = self.driver.get_log("browser")
        return [str(one["message"]) for one in logged]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of this process."""
    binary, driver = _find()
    if not os.environ.get(VARIABLE):
        pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome import service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=service.Service(driver))
    opened.set_script_timeout(_SCRIPT_WAIT_S)
    opened.get("about:blank")  # What a browser shows first asks for pages of its own.
    try:
        yield Browser(opened)
    finally:
        opened.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser, with nothing left to say of the tests before."""
    chromium.requests()
    chromium.complaints()
    yield chromium
    complaints = chromium.complaints()
    assert not complaints, complaints


def _find() -> tuple[str, str]:
    """Paths of a Chromium and of its driver; skips where there is none, or fails on demand."""
    named = os.environ.get(VARIABLE)
    found = [shutil.which(name) for name in ([named] if named else _NAMES)]
    binary = next((one for one in found if one is not None), None)
    places = os.pathsep.join([os.environ.get("PATH", ""), *_DRIVER_PLACES])
    driver = shutil.which("chromedriver", path=places)
    if binary is not None and driver is not None:
        return binary, driver
    missing = f"Chromium ({named or ', '.join(_NAMES)})" if binary is None else "chromedriver"
    if named:
        pytest.fail(f"{VARIABLE} demands a browser, and there is no {missing}")
    pytest.skip(f"no {missing} on this machine; {VARIABLE} names one, and demands it")
