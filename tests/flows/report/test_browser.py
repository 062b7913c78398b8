"""The page in headless Chromium: what it asks for, what it shows, how it is walked, how it fits.

Chromium is the one that AGENT_R1_CHROMIUM names, or one on the PATH; without any these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_home import decode, make

from flows import reports
from flows.report.curves import Chart, Line, Spec
from flows.report.file import write
from flows.report.gather import gather
from flows.report.page import page as page_of

sync_api = pytest.importorskip("playwright.sync_api", reason="the extra dev is not installed")
CHROMIUM = os.environ.get("AGENT_R1_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: name one with AGENT_R1_CHROMIUM")

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => rgb.slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = rgba(getComputedStyle(node).backgroundColor); if (colour[3] === 255) return colour;
  } return [255, 255, 255]; };
  const poor = new Set();
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    const style = getComputedStyle(node);
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest(":disabled")) continue;
    const ink = light(rgba(node instanceof SVGElement ? style.fill : style.color)), paper = light(behind(node));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) poor.add(`${node.tagName}.${node.getAttribute("class")} ${ratio.toFixed(2)}`);
  }
  return [...poor];
}"""
NAMELESS = """() => [...document.querySelectorAll("button, select, input, [tabindex='0'], summary, a")]
  .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
  .map((node) => node.outerHTML)"""


class Opened:
    """A page and what it did: requests other than for itself, errors, messages on the console."""

    def __init__(self, browser: Any, address: str, width: int, scheme: str) -> None:
        self.seen: list[str] = []
        self.page = browser.new_page(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page.on("request", lambda request: request.url == address or self.seen.append(request.url))
        self.page.on("console", lambda message: self.seen.append(message.text))
        self.page.on("pageerror", lambda error: self.seen.append(str(error)))
        self.page.goto(address)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = make(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "decoder", lambda *_: decode)
        write(home, "a", None, 1000)
    return (home / "runs" / "a" / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as player:
        started = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Opened:
    """One page for all tests that look at it wide and light; each leaves it as it was."""
    return Opened(browser, address, 1280, "light")


@pytest.fixture
def page(opened: Opened) -> Iterator[Any]:
    opened.page.reload()
    yield opened.page
    assert opened.seen == []  # no request, no error, whatever a test did


def test_nothing_is_asked_of_the_network_and_hostile_texts_are_texts(page: Any) -> None:
    assert page.title() == "a: report of a run"
    assert page.locator("main img").count() == 0
    page.select_option("[name=dataset]", "world")
    assert (
        "</script><img src=http://127.0.0.1:9/x onerror="
        in page.locator(".list li button", has_text="Who?").first.inner_text()
    )
    page.select_option("[name=dataset]", "<b>real</b>")
    page.locator(".list li button").first.click()
    assert "a␀␛[2Jb‹U+202E›gnp‹U+2028›‹U+0085›" in page.locator(".detail h3").inner_text()


def test_filters_say_how_many_pass(page: Any) -> None:
    count = page.locator(".count")
    assert count.inner_text() == "22 trajectories: 7 right, 15 wrong"
    assert count.get_attribute("aria-live") == "polite"
    for name, value, expected in (
        ("result", "1", "7 trajectories: 7 right, 0 wrong"),
        ("purpose", "sampled", "2 trajectories: 2 right, 0 wrong"),
        ("iteration", "3", "1 trajectory: 1 right, 0 wrong"),
        ("ending", "no_answer", "No trajectory passes the filters."),
    ):
        page.select_option(f"#trajectories [name={name}]", value)
        assert count.inner_text() == expected
    page.click("text=Clear")
    page.fill("[name=text]", "KRISTIANIA")
    assert count.inner_text() == "8 trajectories: 0 right, 8 wrong"
    page.select_option("[name=hops]", "3")
    assert count.inner_text() == "8 trajectories: 0 right, 8 wrong"


def test_a_chosen_token_shows_its_numbers_by_pointer_and_by_keyboard(page: Any) -> None:
    page.select_option("#trajectories [name=purpose]", "train")
    page.select_option("#trajectories [name=result]", "1")
    page.locator(".list li button").first.click()
    turn, readout = page.locator(".turn").nth(0), page.locator(".readout")
    assert turn.locator(".parts").inner_text() == "reward +0.250 = evidence +0.270, turn −0.020 · mean advantage −4.500"
    turn.locator(".chosen").nth(1).hover()
    assert (
        readout.inner_text()
        == "“a” chosen by the agent · probability 77.9 % · value +4.000 · advantage −4.000 · reward 0"
    )
    turn.locator(".given").nth(0).click()
    assert readout.inner_text() == "“Q” given by the world"
    turn.locator(".tokens").focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert (
        readout.inner_text()
        == "“l” chosen by the agent · probability 100 % · value +6.000 · advantage −6.000 · reward +0.250"
    )
    assert turn.locator(".now").inner_text() == "l"


def test_chosen_tokens_differ_by_more_than_colour(page: Any) -> None:
    lines = [
        page.locator(f".tokens .{kind}").first.evaluate("one => getComputedStyle(one).borderBottomStyle")
        for kind in ("chosen", "given")
    ]
    assert lines == ["solid", "none"]


def test_tokens_are_coloured_by_what_is_asked(page: Any) -> None:
    page.select_option("#trajectories [name=purpose]", "train")
    page.locator(".list li button").first.click()
    page.select_option(".detail select", "advantage")
    tones = page.locator(".turn >> nth=0 >> .chosen").evaluate_all("all => all.map(one => one.style.cssText)")
    assert tones[0] == "--heat: 45%; --tone: var(--bad);"
    assert page.evaluate("document.activeElement.value") == "advantage"


def test_a_question_stands_side_by_side_across_iterations(page: Any) -> None:
    columns = page.locator(".column")
    assert [text.split("\n")[0] for text in columns.all_inner_texts()] == [f"Iteration {i}" for i in range(4)]
    assert page.locator(".strip button").all_inner_texts() == ["✗\n0", "✗\n1", "✓\n2", "✓\n3"]
    assert page.locator(".gold").inner_text() == "gold: Ann"
    columns.nth(2).get_by_role("button").click()
    assert "iteration 2" in page.locator(".detail .meta").inner_text()
    page.click("text=Across iterations >> nth=1")
    assert page.evaluate("document.activeElement.name") == "question"


def test_charts_are_read_by_the_arrow_keys_all_together_and_have_tables(page: Any) -> None:
    charts = page.locator("figure svg[role=slider]")
    assert charts.count() == 4
    assert (
        "sampled from 0 at iteration 0 to 0.750 at iteration 3, lowest 0, highest 0.750"
        in charts.first.get_attribute("aria-label")
    )
    charts.first.focus()
    page.keyboard.press("ArrowLeft")
    assert charts.first.get_attribute("aria-valuetext") == "iteration 2: sampled 0.500, greedy 0.250"
    assert charts.nth(1).get_attribute("aria-valuenow") == "2"
    page.locator("figure summary").first.click()
    rows = page.locator("figure >> nth=0 >> tbody tr").all_inner_texts()
    assert rows[3].split() == ["3", "0.750", "0.375"]


def test_the_page_is_walked_by_the_keyboard_from_the_skip_link_on(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("String(document.activeElement.name || document.activeElement.className)"))
    assert {"result", "text", "tokens", "question", "columns"} <= reached


def test_everything_to_be_used_has_a_name_and_the_page_its_landmarks(page: Any) -> None:
    assert page.evaluate(NAMELESS) == []
    assert [page.locator(tag).count() for tag in ("main", "nav", "h1", "html[lang=en]")] == [1, 1, 1, 1]
    named = page.locator("[aria-labelledby]").evaluate_all("all => all.map(n => n.getAttribute('aria-labelledby'))")
    assert [name for name in named if page.locator(f"#{name}").count() != 1] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_and_a_phone_never_scrolls_sideways(browser: Any, address: str, scheme: str) -> None:
    opened = Opened(browser, address, 360, scheme)
    page = opened.page
    for summary in page.locator("details > summary").all():
        summary.click()
    page.locator(".list li button").nth(1).click()
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("#theme").get_attribute("aria-pressed") == str(scheme == "dark").lower()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert page.evaluate(CONTRAST) == []
    assert opened.seen == []
    page.close()


def test_small_values_have_labels_that_differ_and_fit(browser: Any, tmp_path: Path) -> None:
    home = make(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports, "decoder", lambda *_: decode)
        report = gather(home, "a", 1)
    spec = Spec("Small", "nats", "", {})
    small = Chart(spec, [Line("mean", "mean", {1: 1.5e-7, 2: 4.8e-7})])
    (tmp_path / "small.html").write_text(page_of(replace(report, charts=[small])), encoding="utf-8")
    shown = Opened(browser, (tmp_path / "small.html").as_uri(), 1280, "light").page
    labels = shown.locator("figure svg text[text-anchor=end]")
    assert labels.all_text_contents() == ["0", "2e-7", "4e-7", "6e-7"]
    assert all(label.evaluate("(node) => node.getBBox().x >= 0") for label in labels.all())
