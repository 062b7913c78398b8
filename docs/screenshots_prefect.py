"""The picture of a flow run in Prefect's pages, in headless Chromium: python -m docs.screenshots_prefect HOME."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from flows.server import pages, standing_server

IMAGE = Path(__file__).with_name("images") / "prefect-flow-run.png"


def prefect_flow_run(browser: Browser, home: Path, target: Path) -> None:
    """The page of the home's newest flow run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with standing_server(home, port) as url:
        wanted = {"sort": "START_TIME_DESC", "limit": 1}
        request = urllib.request.Request(
            f"{url}/flow_runs/filter", json.dumps(wanted).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            (found,) = json.load(answer)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(f"{pages(url)}/runs/flow-run/{found['id']}")
        page.get_by_text("Task Runs").first.click(timeout=120_000)
        page.get_by_text("publish").first.wait_for(timeout=120_000)
        page.wait_for_timeout(3_000)
        target.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=target)
        page.close()


if __name__ == "__main__":
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        prefect_flow_run(chromium, Path(sys.argv[1]).resolve(), IMAGE)
        chromium.close()
