"""The page of an experiment: one HTML file, regime, tables and plots inside, that asks the network for nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

import yaml

from agent_r1.comparison import CONFIDENCE, RESAMPLES
from agent_r1.questions.records import Json
from flows.experiment_summary import Summed
from flows.tables import Grid

STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5c6770; --line: #dfe3e6; --paper: #fff; --shade: #f5f7f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9eb; --soft: #9aa5ad; --line: #333b41; --paper: #14181b; --shade: #1d2327; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.05rem; margin: 2.6rem 0 .2rem; }
p, li, dd { max-width: 46rem; }
.lead, figcaption, .title { color: var(--soft); }
.title { margin: 0 0 .6rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 1.2rem 0 0; }
dt { color: var(--soft); }
dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .4rem .9rem .4rem 0; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
td:first-child { font-weight: 600; }
figure { margin: 1rem 0 0; padding: .8rem; background: #ffffff; border: 1px solid var(--line); border-radius: 8px; }
figure img { display: block; width: 100%; height: auto; }
pre { background: var(--shade); border-radius: 8px; padding: 1rem; overflow-x: auto; font-size: .85rem; }
"""


def page(summed: Summed, tables: Sequence[Grid], plots: Mapping[str, bytes]) -> str:
    """The whole page; `plots` are PNGs by what they show."""
    parts = [
        f"<h1>{escape(summed.plan.name)}</h1>",
        f'<p class="lead">{escape(_lead(summed))}</p>',
        _facts(_regime(summed)),
    ]
    for title, png in plots.items():
        data = base64.b64encode(png).decode()
        parts.append(f"<h2>{escape(title)}</h2>")
        parts.append(f'<figure><img alt="{escape(title)}" src="data:image/png;base64,{data}"></figure>')
    parts += [_table(grid) for grid in tables]
    if summed.remarks:
        items = "".join(f"<li>{escape(remark)}</li>" for remark in summed.remarks)
        parts.append(f"<h2>To know when reading this</h2><ul>{items}</ul>")
    parts.append(f"<h2>The experiment</h2><pre>{escape(_definition(summed))}</pre>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(summed.plan.name)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _lead(summed: Summed) -> str:
    done, total = len(summed.results), len(summed.plan.pieces)
    whole = f"All {total} runs are finished" if done == total else f"{done} of {total} runs are finished"
    return (
        f"{whole}. The metric that decides was fixed beforehand: {summed.plan.experiment.primary}. Brackets are "
        f"{CONFIDENCE:.0%} bootstrap intervals over seeds ({RESAMPLES} resamples, percentile, ratios paired by seed); "
        "with a handful of seeds they tend to be too narrow."
    )


def _regime(summed: Summed) -> dict[str, str]:
    experiment, config = summed.plan.experiment, summed.plan.pieces[0].config
    results = list(summed.results.values())
    draw = config.rollout.questions * config.rollout.attempts
    asked = f"{config.evaluation.questions} validation questions every {_iterations(config.evaluation.every)}"
    if config.evaluation.test:
        asked += f", {config.world.test} test questions once, after the last"
    machines = {
        f"{one.get('processor')} ({one.get('architecture')}, {one.get('cpus')} processors){_gpu(one)}": None
        for one in _machines(summed)
    }
    days = sorted({result.finished_at[:10] for result in results})
    return {
        "Base": experiment.base,
        "Seeds": ", ".join(map(str, experiment.seeds)),
        "Budget of a run": f"{config.iterations} iterations of {draw} trajectories, the same for all variants",
        "Start": "one warm start a seed, shared by its variants",
        "Evaluated on": asked,
        "Code": ", ".join(sorted({result.code_version for result in results})),
        "Machine": "; ".join(machines),
        "Finished": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
    }


def _gpu(machine: Mapping[str, Json]) -> str:
    return f", {machine['device']}" if "device" in machine else ""


def _iterations(count: int) -> str:
    return "iteration" if count == 1 else f"{count} iterations"


def _machines(summed: Summed) -> list[dict[str, Json]]:
    return [result.machine for result in summed.results.values()]


def _facts(facts: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(key)}</dt><dd>{escape(value)}</dd>' for key, value in facts.items())}</dl>"


def _table(grid: Grid) -> str:
    title, _, meaning = grid.title.partition(": ")
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.columns)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in grid.texts())
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<h2>{escape(title[:1].upper() + title[1:])}</h2><p class="title">{escape(meaning)}</p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _definition(summed: Summed) -> str:
    return yaml.safe_dump(summed.plan.experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
