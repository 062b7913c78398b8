"""The page of a report: a template filled with escaped texts, the style, the scripts, and data that no text can end.

What it says is gathered elsewhere. The page's policy allows its own scripts and style by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template

from flows.report.gather import Report
from flows.report.texts import html, script
from flows.tables import Grid

GIST = ("Model", "Data", "Tools", "Seed")  # facts that stand at the top
KINDS = {"finished": "good", "failed": "bad", "killed": "bad"}


def page(report: Report) -> str:
    """The whole page."""
    style, charts, trajectories = (_asset(name) for name in ("page.css", "charts.js", "trajectories.js"))
    data = {"charts": [chart.record() for chart in report.charts], **report.sample.packed}
    alarms = "".join(
        f"<li><strong>{html(name)}</strong>: {html(seen)}. <span>Try {html(advice)}.</span></li>"
        for name, seen, advice in report.alarms
    )
    return Template(_asset("template.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(charts)} {_hash(trajectories)}; base-uri 'none'; form-action 'none'",
        style=style,
        run=html(report.run),
        status=html(report.status),
        kind=KINDS.get(report.status, "plain"),
        lead=html(report.lead),
        figures="".join(
            f"<div><dt>{html(one.name)}</dt><dd><b>{html(one.value)}</b> <span>{html(one.beside)}</span></dd></div>"
            for one in report.figures
        ),
        alarms=f'<div class="alarms"><h2>Alarms of the doctor</h2><ul>{alarms}</ul></div>' if alarms else "",
        gist=_facts({name: report.facts[name] for name in GIST}),
        remarks="".join(f'<p class="soft">{html(remark)}</p>' for remark in report.remarks),
        shown=f"{report.sample.shown:,}",
        stored=f"{report.sample.stored:,}",
        rule=html(report.sample.rule),
        facts=_facts({name: fact for name, fact in report.facts.items() if name not in GIST}),
        notes=_notes(report.notes),
        grids="".join(_grid(grid) for grid in report.grids),
        data=script(data),
        charts_script=charts,
        trajectories_script=trajectories,
    )


def _asset(name: str) -> str:
    return files("flows.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _facts(facts: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{html(name)}</dt><dd>{html(fact)}</dd></div>" for name, fact in facts.items())


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{html(note)}</li>" for note in notes)
    return f"<h3>Notes of the run</h3><ul>{items}</ul>" if items else ""


def _grid(grid: Grid) -> str:
    """A table that is folded away; it scrolls sideways by itself, also from the keyboard."""
    head = "".join(f'<th scope="col">{html(name)}</th>' for name in grid.columns)
    rows = "".join(
        "<tr>" + f'<th scope="row">{html(first)}</th>' + "".join(f"<td>{html(cell)}</td>" for cell in rest) + "</tr>"
        for first, *rest in grid.texts()
    )
    title = html(grid.title[:1].upper() + grid.title[1:])
    return (
        f'<details><summary>{title} <span class="soft">({len(grid.rows)} rows)</span></summary>'
        f'<div class="wide" role="region" aria-label="{title}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )
