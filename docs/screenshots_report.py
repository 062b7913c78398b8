"""Pictures of a report for the docs: docs/images/report-*.png, of a page that `agent-r1 report` wrote.

    python docs/screenshots_report.py PAGE

Chromium is the one that AGENT_R1_CHROMIUM names, or one on the PATH. It also prints how long the page took to open:
from its address to the first chart and the list of trajectories, each of five times in seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
READY = "figure svg[role=slider] path.curve", ".list li button", ".detail .chosen"


def report_wide(browser: Browser, page: Path, target: Path) -> None:
    """The top of the page in a wide window."""
    opened = _open(browser, page, 1280, 900, "light")
    opened.screenshot(path=target)
    opened.close()


def report_dark(browser: Browser, page: Path, target: Path) -> None:
    """A trajectory of training, dark, a token's numbers shown."""
    opened = _open(browser, page, 1280, 900, "dark")
    opened.select_option("#trajectories [name=purpose]", "train")
    opened.select_option("#trajectories [name=result]", "0")
    opened.locator(".list li button").first.click()
    opened.evaluate("document.getElementById('trajectories').scrollIntoView({behavior: 'instant'})")
    opened.locator(".turn .chosen").nth(4).hover()
    opened.screenshot(path=target)
    opened.close()


def report_narrow(browser: Browser, page: Path, target: Path) -> None:
    """One question across iterations, on a phone."""
    opened = _open(browser, page, 360, 780, "light")
    opened.evaluate("document.getElementById('across').scrollIntoView({behavior: 'instant'})")
    opened.screenshot(path=target)
    opened.close()


def seconds_to_open(browser: Browser, page: Path) -> float:
    """Until the load event, and until curves, list and a trajectory are there."""
    started = time.perf_counter()
    opened = _open(browser, page, 1280, 900, "light")
    taken = time.perf_counter() - started
    opened.close()
    return taken


def _open(browser: Browser, page: Path, width: int, height: int, scheme: str) -> Page:
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    opened.goto(page.absolute().as_uri())
    for selector in READY:
        opened.locator(selector).first.wait_for(state="attached")
    return opened


def main() -> None:
    """All pictures, and the time."""
    page = Path(sys.argv[1])
    chromium = os.environ.get("AGENT_R1_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        taken = [seconds_to_open(browser, page) for _ in range(5)]
        print(f"{page}: {page.stat().st_size / 1e6:.2f} MB, opened in {', '.join(f'{each:.2f}' for each in taken)} s")
        for draw in (report_wide, report_dark, report_narrow):
            draw(browser, page, IMAGES / f"{draw.__name__.replace('_', '-')}.png")
        browser.close()


if __name__ == "__main__":
    main()
