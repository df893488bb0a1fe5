"""A browser, and a report that is opened in it as a person does."""

import json
import shutil

import pytest
from amanda_tools.html_report import write_page
from reports import many, peak, shares, small
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from visit import Visit

WIDTHS = {"wide": 1400, "narrow": 400}


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium, with its window closed; nothing is downloaded for it."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("these tests need a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for name in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    yield running
    running.quit()


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Files of reports, by name."""
    folder = tmp_path_factory.mktemp("pages")
    made = (small, many, shares, peak)
    for make in made:
        write_page(folder / f"{make.__name__}.html", make())
    return {make.__name__: folder / f"{make.__name__}.html" for make in made}


@pytest.fixture
def opened(chromium, pages):
    """Opens a report, and holds at the end that all was well and nothing was asked for."""
    visits = []

    def open_page(name="small", width="wide", scheme="light"):
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": WIDTHS[width], "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        for kind in ("browser", "performance"):
            chromium.get_log(kind)  # what is of the page before
        address = pages[name].as_uri()
        chromium.get(address)
        visits.append((address, Visit(chromium)))
        return visits[-1][1]

    yield open_page
    for address, _ in visits[-1:]:
        complaints = [entry["message"] for entry in chromium.get_log("browser")]
        assert complaints == []
        assert requested(chromium) <= {address, "data:,"}
        chromium.execute_script("localStorage.clear()")


def requested(chromium):
    """The addresses that a page has asked for."""
    messages = (json.loads(e["message"])["message"] for e in chromium.get_log("performance"))
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
