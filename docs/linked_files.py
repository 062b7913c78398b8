"""Hook of the site: what pages link to outside docs/, code and folders of the repository, becomes pages, too.

In the Markdown such links are paths in the repository, so that they also work where that is browsed. Here each goes
to source/PATH: code as a page that shows it, Markdown as it stands, a folder as the list of what is in it, anything
else (pictures, data) as the file itself. None of these pages is searched or in the navigation.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("CHANGELOG.md",)  # the navigation names it
CODE = {".py": "python", ".yaml": "yaml", ".sql": "sql", ".jinja": "jinja", ".toml": "toml", ".txt": "text"}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#\s])")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page or file for everything that is linked, and for what those link to."""
    open_paths = [ROOT / name for name in ALWAYS]
    for page in files.documentation_pages():
        open_paths += _outside(page.content_string, ROOT / "docs" / PurePosixPath(page.src_uri).parent)
    done: set[Path] = set()
    while open_paths:
        path = open_paths.pop()
        if path in done:
            continue
        done.add(path)
        if path.is_dir():
            content = UNSEARCHED + _listing(path)
        elif path.suffix == ".md":
            content = UNSEARCHED + path.read_text(encoding="utf-8")
        elif path.suffix in CODE:
            content = UNSEARCHED + _shown(path)
        else:
            files.append(File.generated(config, _place(path), abs_src_path=str(path)))
            continue
        files.append(File.generated(config, _place(path), content=content))
        if path.is_dir() or path.suffix == ".md":
            open_paths += _outside(content, path if path.is_dir() else path.parent)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links to what is outside docs/ into links to what was made of it."""
    del config, files
    place = PurePosixPath(page.file.src_uri)
    if place.parts[0] != "source":
        folder = ROOT / "docs" / place.parent
    elif place.name != "index.md" and place.suffixes[-2:-1] and f"{place.suffixes[-2]}" in CODE:
        return markdown  # code that is shown has no links
    else:
        folder = ROOT / PurePosixPath(*place.parts[1:]).parent

    def moved(match: re.Match[str]) -> str:
        target = _target(match[0], folder)
        if target is None:
            return match[0]
        inside = target.is_relative_to(ROOT / "docs")
        there = target.relative_to(ROOT / "docs").as_posix() if inside else _place(target)
        return PurePosixPath(os.path.relpath(there, place.parent)).as_posix()

    return LINK.sub(moved, markdown)


def _target(link: str, folder: Path) -> Path | None:
    """The file or folder of the repository that a link means; None for addresses, and for what is not there."""
    path = Path(os.path.normpath(folder / link))
    return path if "://" not in link and path.is_relative_to(ROOT) and path.exists() else None


def _outside(text: str, folder: Path) -> list[Path]:
    found = [_target(link, folder) for link in LINK.findall(text)]
    return [path for path in found if path is not None and not path.is_relative_to(ROOT / "docs")]


def _place(path: Path) -> str:
    inside = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"source/{inside}/index.md"
    return f"source/{inside}.md" if path.suffix in CODE else f"source/{inside}"


def _shown(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return f"# {path.relative_to(ROOT)}\n\n~~~~~{CODE[path.suffix]}\n{text.rstrip()}\n~~~~~\n"


def _listing(folder: Path) -> str:
    lines = []
    for path in sorted(folder.iterdir()):
        if path.suffix in {".md", *CODE} or (path.is_dir() and any(path.glob("*.md"))):
            lines.append(f"- [{path.name}]({path.name})\n")
    return f"# {folder.relative_to(ROOT)}\n\n{''.join(lines)}"
