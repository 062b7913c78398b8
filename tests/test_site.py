"""The site made of docs/: it builds without a warning, links lead somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urldefrag

import markdown
import pytest
from markdown_it import MarkdownIt
from mkdocs.config import load_config
from playwright.sync_api import Browser, Route, sync_playwright

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHAPES = re.compile("h[1-4]|[uo]l|li|table|tr|t[hd]|pre|blockquote|img|strong|em")

CONFIG = load_config(str(ROOT / "mkdocs.yml"))
EXTENSIONS = [name for name in CONFIG.markdown_extensions if name != "toc"]  # which adds a sign to each heading


class Seen(HTMLParser):
    """Of a page: its ids, what it links to, what it loads, how many elements of each kind it has, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.shapes: Counter[str] = Counter()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])
        if SHAPES.fullmatch(tag):
            self.shapes[tag] += 1

    def handle_data(self, data: str) -> None:
        """Note words, without white space."""
        self.words += "".join(data.split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def seen(site: Path) -> dict[Path, Seen]:
    """Every page of the site."""
    return {path: Seen(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_link_of_the_site_leads_to_a_file_and_a_place_in_it(site: Path, seen: dict[Path, Seen]) -> None:
    dead = []
    for page, what in seen.items():
        for link in [*what.links, *what.loaded]:
            address, fragment = urldefrag(link)
            if "://" in address or link.startswith("mailto:"):
                continue
            base = site if page.name == "404.html" else page.parent  # the page of errors is served anywhere
            target = (base / unquote(address).lstrip("/")).resolve() if address else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (fragment and target in seen and unquote(fragment) not in seen[target].ids):
                dead.append((str(page.relative_to(site)), link))
    assert dead == []


def test_pages_load_nothing_from_elsewhere(seen: dict[Path, Seen]) -> None:
    assert {source for what in seen.values() for source in what.loaded if re.match(r"(\w+:)?//", source)} == set()


def test_every_page_of_docs_is_in_the_navigation_and_code_is_not_published(site: Path, seen: dict[Path, Seen]) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in PAGES}
    assert pages - {"index.html"} <= set(seen[site / "index.html"].links)
    assert list(site.rglob("*.py")) == []


def test_code_that_is_linked_is_a_page_with_all_its_lines(site: Path, seen: dict[Path, Seen]) -> None:
    page = seen[site / "source" / "tasks" / "stage.py.html"]
    assert "".join((ROOT / "tasks" / "stage.py").read_text(encoding="utf-8").split()) in page.words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_reads_alike_in_the_site_and_as_github_s_markdown(page: Path) -> None:
    """Lists, tables and words: the two kinds of Markdown differ in what must stand apart, be indented or escaped."""
    text = page.read_text(encoding="utf-8")
    bars = runpy.run_path(str(DOCS / "escaped_bars.py"))["on_page_markdown"]
    ours = Seen(markdown.markdown(bars(text), extensions=EXTENSIONS, extension_configs=CONFIG.mdx_configs))
    theirs = Seen(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))
    assert ours.shapes == theirs.shapes
    assert ours.words == theirs.words


def test_the_page_of_commands_is_current() -> None:
    page = runpy.run_path(str(DOCS / "commands.py"))["page"]()
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == page, "run: make docs"


CONCEPTS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in sorted((DOCS / "concepts").glob("*.md"))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", CONCEPTS)
def test_what_the_concepts_compute_is_true(block: str) -> None:
    assert "assert" in block
    exec(compile(block, "docs/concepts", "exec"), {})


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.slow
def test_a_browser_asks_for_nothing_but_the_site_s_files_and_every_page_fits_a_phone(
    site: Path, chromium: Browser
) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        if route.request.url.startswith(site.as_uri()):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.route("**/*", answer)
    for path in PAGES:
        page.goto((site / path.relative_to(DOCS).with_suffix(".html")).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
    assert asked == []


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_the_search_finds_a_configuration_key_by_one_of_its_words(site: Path, chromium: Browser) -> None:
    """Served by HTTP: opened as a file, a page has no search."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator(".md-search__input").click()
        page.keyboard.type("minibatches")
        page.locator(".md-search-result__item", has_text="Configuration").first.wait_for()
        server.shutdown()
