"""Makes the pictures of MLflow in docs/images in headless Chromium: python docs/screenshots.py [NAME...]

Trains two small runs in a home of its own (AGENT_R1_SHOTS names one to keep and use again), starts the pages over it
and looks at them. A picture is a function of PICTURES. Needs playwright, and a Chromium: CHROMIUM, or one on the PATH.
The others are made by screenshots_prefect.py HOME, screenshots_report.py PAGE and screenshots_terminal.py FILE.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flows.ui import mlflow_pages  # noqa: E402 (of this checkout)
from storage.tracking import Tracker  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PORT = 5051
WAIT = 120_000  # milliseconds, of a busy machine
LIMIT = 250_000  # bytes of a picture
SEEN = {  # what MLflow opens over its pages at the first visit
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
    "mlflow.assistant.panelOpen_v1": "false",
    "mlflow.detectIssues.guidanceShown_v1": "true",
}
RUNS = {"dense": [], "outcome": ["--from", "dense@0", "--set", "rewards.evidence=0"]}
SETTINGS = [
    "iterations=4",
    "threads=1", "world.hops=[2]", "world.people=40", "world.cities=10", "world.films=20", "world.warm_start=400",
    "world.train=60", "world.validation=20", "rollout.questions=24", "evaluation.questions=20",
    "warm_start.curriculum_steps=100", "warm_start.steps=600", "warm_start.sloppy_steps=60",
]  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """What a picture is taken of."""

    home: Path
    browser: Browser
    mlflow: str

    def page(self, url: str, width: int = 1400, height: int = 900, dark: bool = False) -> Page:
        """A page in a window of that size."""
        scheme = "dark" if dark else "light"
        page = self.browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(WAIT)
        page.add_init_script("".join(f"localStorage.setItem('{key}', '{value}');" for key, value in SEEN.items()))
        page.goto(url, wait_until="load")
        return page


def mlflow_compare(stage: Stage) -> bytes:
    """The charts of two runs over each other."""
    tracker = Tracker(stage.home)
    url = f"{stage.mlflow}/#/experiments/{tracker.experiment}/runs?compareRunsMode=CHART"
    page = stage.page(url, width=1600, height=1000)
    page.get_by_placeholder("Search metric charts").fill("sampled")
    page.get_by_text("eval/sampled/exact_match").first.wait_for()
    page.wait_for_timeout(5_000)  # until charts are drawn
    return page.screenshot()


def mlflow_trace(stage: Stage) -> bytes:
    """A trajectory with its spans, what was said in its first turn."""
    tracker = Tracker(stage.home)
    traces = tracker.client.search_traces(locations=[tracker.experiment], filter_string="tags.purpose = 'train'")
    longest = max(traces, key=lambda trace: (trace.info.tags["exact_match"], len(trace.data.spans)))
    url = f"{stage.mlflow}/#/experiments/{tracker.experiment}/traces?selectedEvaluationId={longest.info.trace_id}"
    page = stage.page(url, height=640)
    page.get_by_text("turn 0").first.click()
    page.get_by_text("Assistant", exact=True).first.wait_for()
    page.wait_for_timeout(2_000)
    return page.screenshot()


PICTURES: dict[str, Callable[[Stage], bytes]] = {
    "mlflow-compare": mlflow_compare,
    "mlflow-trace": mlflow_trace,
}


def main(names: list[str]) -> None:
    """Take the pictures of these names; all where none is named."""
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        sys.exit(f"no picture {', '.join(unknown)}; there is {', '.join(PICTURES)}")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium found: install one, or name it with CHROMIUM=/path/to/chromium")
    IMAGES.mkdir(exist_ok=True)
    with trained() as home, mlflow_pages(home, PORT) as mlflow, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in names or PICTURES:
            path = IMAGES / f"{name}.png"
            path.write_bytes(small(PICTURES[name](Stage(home, browser, mlflow))))
            print(path)
        browser.close()


@contextmanager
def trained() -> Iterator[Path]:
    """A home with two small runs, the second from the first one's start."""
    kept = os.environ.get("AGENT_R1_SHOTS")
    if kept and (Path(kept) / "runs" / "outcome").is_dir():
        yield Path(kept).absolute()
        return
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(kept or temporary).absolute()
        for run, changed in RUNS.items():
            sets = [word for setting in SETTINGS for word in ("--set", setting)]
            command = [sys.executable, "-m", "flows.cli", "train", "quickstart", "--run", run, "--home", str(home)]
            subprocess.run([*command, *sets, *changed], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        yield home


def small(png: bytes) -> bytes:
    """With as few colours as bring it below the limit."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        buffer = io.BytesIO()
        image.quantize(colours).save(buffer, format="PNG", optimize=True)
        if buffer.tell() <= LIMIT:
            break
    return buffer.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
