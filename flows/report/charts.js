// The curves: an SVG a chart, drawn from the data, with one cursor that all of them share. Nothing is loaded.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children; texts are only ever text. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

{
  const WIDTH = 360, HEIGHT = 190, LEFT = 42, RIGHT = 10, TOP = 8, BOTTOM = 24;
  const COLOURS = 8;
  const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "12 3", "4 4", "10 2 1 2 1 2"]; // so that lines differ without colours
  const FEW = 25; // points that are marked one by one
  const shown = []; // what moves the cursor of each chart

  const number = (value) => {
    if (value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size >= 0.01 ? value.toFixed(3) : value.toPrecision(2);
  };

  /** Steps of 1, 2 or 5 times a power of ten, from below `low` to above `high`. */
  function ticks(low, high, count, whole = false) {
    const rough = (high - low || Math.abs(high) || 1) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let i = Math.floor(low / step + 1e-9); i * step < high + step * 0.999; i++) found.push(i * step);
    return found;
  }

  function tickText(value, step, largest) {
    if (largest < 0.01) return value ? value.toExponential(1).replace(".0", "") : "0"; // zeros would leave no room for digits
    return step >= 1 ? value.toFixed(0) : value.toFixed(Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  }

  function draw(chart) {
    const all = chart.lines.flatMap((line) => [line.points, ...line.seeds]).flat();
    const iterations = [...new Set(chart.lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
    const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    const [first, last] = ends(all.map(([at]) => at));
    let [low, high] = chart.share ? [0, 1] : ends(all.map(([, value]) => value));
    if (!chart.share && low > 0 && low < high * 0.6) low = 0;
    if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, low), Math.max(0, high)];
    const yTicks = ticks(low, high, 4);
    low = yTicks[0];
    high = yTicks.length > 1 ? yTicks.at(-1) : low + 1;
    const x = (at) => LEFT + (last === first ? 0.5 : (at - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const path = (points) => points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");

    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "slider", tabindex: 0, "aria-label": summary(chart) });
    picture.setAttribute("aria-valuemin", first);
    picture.setAttribute("aria-valuemax", last);
    const largest = Math.max(Math.abs(low), Math.abs(high));
    const step = yTicks.length > 1 ? yTicks[1] - yTicks[0] : 1;
    for (const value of yTicks) {
      picture.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
      picture.append(svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, tickText(value, step, largest)));
    }
    for (const at of ticks(first, last, 5, true).filter((at) => at >= first && at <= last)) {
      picture.append(svg("text", { x: x(at), y: HEIGHT - 8, "text-anchor": "middle" }, String(at)));
    }
    chart.lines.forEach((line, index) => {
      const colour = `var(--c${index % COLOURS})`;
      if (line.seeds.length) picture.append(band([line.points, ...line.seeds], x, y, colour));
      for (const seed of line.seeds) picture.append(svg("path", { class: "seed", d: path(seed), stroke: colour }));
      picture.append(svg("path", { class: "curve", d: path(line.points), stroke: colour, "stroke-dasharray": DASHES[index % COLOURS] }));
      if (line.points.length <= FEW) {
        for (const [at, value] of line.points) picture.append(svg("circle", { cx: x(at), cy: y(value), r: 2.2, fill: colour }));
      }
    });
    const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    picture.append(cursor);

    const values = chart.lines.map((line) => new Map(line.points));
    const readings = chart.lines.map(() => el("b"));
    const when = el("b");
    const legend = el("ul", { class: "legend" }, el("li", {}, "iteration ", when));
    chart.lines.forEach((line, index) => {
      const swatch = svg("svg", { viewBox: "0 0 24 10", "aria-hidden": "true" },
        svg("path", { class: "curve", d: "M0 5H24", stroke: `var(--c${index % COLOURS})`, "stroke-dasharray": DASHES[index % COLOURS] }));
      legend.append(el("li", {}, swatch, `${line.name} `, readings[index]));
    });

    let now = iterations.at(-1);
    const nearest = (at) => iterations.reduce((best, each) => (Math.abs(each - at) < Math.abs(best - at) ? each : best));
    const show = (at, marked = true) => {
      now = nearest(at);
      when.textContent = now;
      const said = chart.lines.map((line, index) => {
        readings[index].textContent = number(values[index].get(now));
        return `${line.name} ${readings[index].textContent}`;
      });
      picture.setAttribute("aria-valuenow", now);
      picture.setAttribute("aria-valuetext", `iteration ${now}: ${said.join(", ")}`);
      cursor.setAttribute("visibility", marked ? "visible" : "hidden");
      cursor.setAttribute("x1", x(now));
      cursor.setAttribute("x2", x(now));
    };
    show(now, false);
    shown.push(show);
    const everywhere = (at) => shown.forEach((each) => each(at));
    const pointed = (event) => {
      const box = picture.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * WIDTH;
      everywhere(first + ((place - LEFT) / (WIDTH - LEFT - RIGHT)) * (last - first));
    };
    picture.addEventListener("pointermove", pointed);
    picture.addEventListener("pointerdown", pointed);
    picture.addEventListener("pointerleave", () => shown.forEach((each) => each(Infinity, false)));
    picture.addEventListener("keydown", (event) => {
      const place = iterations.indexOf(now);
      const moves = { ArrowRight: place + 1, ArrowUp: place + 1, ArrowLeft: place - 1, ArrowDown: place - 1, Home: 0, End: iterations.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      everywhere(iterations[Math.max(0, Math.min(iterations.length - 1, moves[event.key]))]);
    });

    return el("figure", {},
      el("figcaption", {}, el("h3", {}, chart.title), el("div", { class: "about" }, `${chart.unit}. ${chart.about}`)),
      picture, legend, table(chart, iterations, values));
  }

  /** From the lowest to the highest of all seeds, where there are two or more. */
  function band(series, x, y, colour) {
    const found = new Map();
    for (const [at, value] of series.flat()) found.set(at, [...(found.get(at) ?? []), value]);
    const ends = [...found].filter(([, values]) => values.length > 1).sort(([a], [b]) => a - b);
    const upper = ends.map(([at, values]) => `${x(at)},${y(Math.max(...values))}`);
    const lower = ends.map(([at, values]) => `${x(at)},${y(Math.min(...values))}`).reverse();
    return svg("polygon", { class: "band", points: [...upper, ...lower].join(" "), fill: colour });
  }

  /** What the chart shows, in words. */
  function summary(chart) {
    const lines = chart.lines.map(({ name, points, seeds }) => {
      const values = points.map(([, value]) => value);
      const ends = `${number(values[0])} at iteration ${points[0][0]} to ${number(values.at(-1))} at iteration ${points.at(-1)[0]}`;
      const others = seeds.length ? `, beside ${seeds.length} other seeds` : "";
      return `${name} from ${ends}, lowest ${number(Math.min(...values))}, highest ${number(Math.max(...values))}${others}`;
    });
    return `${chart.title}, ${chart.unit}, by iteration. ${lines.join("; ")}.`;
  }

  /** The numbers, made when they are asked for. */
  function table(chart, iterations, values) {
    const fold = el("details", {}, el("summary", {}, "Table"));
    fold.addEventListener("toggle", () => {
      if (fold.childElementCount > 1) return;
      const head = el("tr", {}, ...["iteration", ...chart.lines.map((line) => line.name)].map((name) => el("th", { scope: "col" }, name)));
      const rows = iterations.map((at) =>
        el("tr", {}, el("th", { scope: "row" }, String(at)), ...values.map((each) => el("td", {}, number(each.get(at))))));
      fold.append(el("div", { class: "wide", role: "region", tabindex: 0, "aria-label": `Table: ${chart.title}` },
        el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
    });
    return fold;
  }

  const place = document.querySelector(".charts");
  if (data.charts.length) place.append(...data.charts.map(draw));
  else place.replaceWith(el("p", { class: "empty" }, "Nothing was measured by iteration yet."));

  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => theme.setAttribute("aria-pressed", String(isDark()));
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();
}
