// The browser of trajectories, and one question across iterations. How the data is packed is said in packing.py.
"use strict";

{
  const PAGE = 40; // entries that the list shows at once
  const PURPOSES = { train: "training", sampled: "validation, sampled", greedy: "validation, greedy",
    test_sampled: "test, sampled", test_greedy: "test, greedy" };
  const { trajectories, questions, given, texts } = data;
  const ORDER = Object.keys(PURPOSES);
  trajectories.sort((a, b) => b.i - a.i || ORDER.indexOf(a.p) - ORDER.indexOf(b.p)); // the newest first
  const find = (selector) => document.querySelector(selector);
  const joined = (places) => places.map((place) => texts[place]).join("");
  const plain = (name) => name.replaceAll("_", " ");
  const short = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);
  const signed = (thousandths) => (thousandths === null ? "not a number" : `${thousandths < 0 ? "−" : "+"}${(Math.abs(thousandths) / 1000).toFixed(3)}`);
  const verdict = (one) => (one.m ? "right" : "wrong");
  const mark = (one) => el("span", { class: `mark ${one.m ? "good" : "bad"}` }, one.m ? "✓ right" : "✗ wrong");
  const many = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

  // ---- filters and list

  const filters = find("#trajectories form").elements;
  const list = find(".list ul"), more = find(".more"), count = find(".count"), detail = find(".detail");
  let passing = [], current = null;

  /** The values that occur, as options; a filter with nothing to choose is left out. */
  function offer(select, values, name = String) {
    const found = [...new Set(values)].filter((value) => value !== null && value !== "");
    found.sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)));
    select.append(...found.map((value) => el("option", { value }, name(value))));
    if (found.length < 2) select.parentElement.hidden = true;
  }

  offer(filters.hops, questions.map((one) => one.hops));
  offer(filters.ending, trajectories.map((one) => one.e), plain);
  offer(filters.iteration, trajectories.map((one) => one.i));
  offer(filters.purpose, trajectories.map((one) => one.p), (name) => PURPOSES[name]);
  offer(filters.dataset, questions.map((one) => one.dataset));
  for (const label of document.querySelectorAll("label[hidden]")) label.style.display = "none";

  /** What the text filter looks at, made when it is first asked for. */
  const searched = (one) =>
    (one.searched ??= [questions[one.q].text, ...questions[one.q].answers, one.a ?? "", one.id,
      ...one.t.map((turn) => joined(turn.a))].join("\n").toLowerCase());

  function filter() {
    const wanted = filters.text.value.trim().toLowerCase();
    passing = trajectories.filter((one) =>
      (!filters.result.value || String(one.m) === filters.result.value)
      && (!filters.hops.value || String(questions[one.q].hops) === filters.hops.value)
      && (!filters.ending.value || one.e === filters.ending.value)
      && (!filters.iteration.value || String(one.i) === filters.iteration.value)
      && (!filters.purpose.value || one.p === filters.purpose.value)
      && (!filters.dataset.value || questions[one.q].dataset === filters.dataset.value)
      && (!wanted || searched(one).includes(wanted)));
    const right = passing.filter((one) => one.m).length;
    count.textContent = passing.length ? `${many(passing.length, "trajectory").replace("ys", "ies")}: ${right} right, ${passing.length - right} wrong`
      : trajectories.length ? "No trajectory passes the filters." : "No trajectories are stored yet.";
    list.replaceChildren();
    extend();
  }

  function extend() {
    const from = list.childElementCount;
    list.append(...passing.slice(from, from + PAGE).map(entry));
    more.hidden = list.childElementCount >= passing.length;
    return list.children[from];
  }

  function entry(one) {
    const question = questions[one.q];
    const facts = [`iteration ${one.i}`, PURPOSES[one.p], question.hops === null ? null : many(question.hops, "hop"), plain(one.e),
      one.r === null ? null : `reward\u00a0${signed(one.r)}`].filter(Boolean);
    return el("li", {}, el("button", { type: "button", "aria-current": String(one === current), onclick: () => open(one) },
      mark(one), ` ${short(question.text, 110)}`, el("small", {}, facts.join(" · "))));
  }

  more.addEventListener("click", () => extend()?.firstChild.focus());
  find("#trajectories form").addEventListener("input", filter);
  find("#trajectories form").addEventListener("submit", (event) => event.preventDefault());
  find("#trajectories form").addEventListener("reset", () => setTimeout(filter));
  find("#across form").addEventListener("submit", (event) => event.preventDefault());

  // ---- one trajectory

  const TONES = {
    mask: null,
    probability: (turn, i) => [1 - Math.exp(turn.l[i] / 1000), "--bad"],
    advantage: (turn, i) => turn.d && [Math.abs(turn.d[i]) / 3000, turn.d[i] < 0 ? "--bad" : "--good"],
    value: (turn, i) => turn.v && [Math.abs(turn.v[i]) / 2000, turn.v[i] < 0 ? "--bad" : "--good"],
  };
  let tone = "mask";

  function open(one, jump = true) {
    current = one;
    for (const [index, item] of [...list.children].entries()) item.firstChild.setAttribute("aria-current", String(passing[index] === one));
    detail.hidden = false;
    detail.replaceChildren(...view(one));
    if (jump) {
      detail.focus({ preventScroll: true });
      const top = detail.getBoundingClientRect().top; // where a phone shows it under the list
      if (top > innerHeight * 0.6 || top < 0) detail.scrollIntoView();
    }
  }

  function view(one) {
    const question = questions[one.q];
    const step = (by) => {
      const next = passing[passing.indexOf(one) + by];
      return el("button", { type: "button", disabled: !next, onclick: () => open(next) }, by < 0 ? "Previous" : "Next");
    };
    const followed = across.some(({ q, p }) => q === one.q && p === one.p);
    const colour = el("select", { onchange: (event) => { tone = event.target.value; open(one, false); detail.querySelector("select").focus(); } },
      ...Object.keys(TONES).filter((name) => !TONES[name] || one.t.some((turn) => turn.a.length && TONES[name](turn, 0)))
        .map((name) => el("option", { value: name, selected: name === tone }, name)));
    const readout = el("div", { class: "readout", role: "status", "aria-live": "polite" },
      "Point at a token, tap it, or focus a turn's tokens and press the arrow keys.");
    const facts = [`iteration ${one.i}`, PURPOSES[one.p], `attempt ${one.k}`, `by checkpoint ${one.c}`,
      question.hops === null ? null : many(question.hops, "hop"), question.dataset, `ending: ${plain(one.e)}`, `F1 ${((one.f ?? 0) / 1000).toFixed(2)}`,
      one.r === null ? "without rewards and values" : `reward\u00a0${signed(one.r)}`].filter(Boolean);
    return [
      el("header", {}, el("div", {}, step(-1), step(1), followed
        ? el("button", { type: "button", onclick: () => follow(one) }, "Across iterations") : null),
        el("label", { class: "key" }, "Colour tokens by ", colour)),
      el("h3", { id: "detail-title", dir: "auto" }, question.text),
      el("p", { class: "answers" }, mark(one), el("span", {}, "answer: ", one.a === null ? "none" : el("bdi", {}, one.a)),
        el("span", {}, "gold: ", question.answers.length ? el("bdi", {}, question.answers.join(" or ")) : "none")),
      el("p", { class: "meta" }, facts.join(" · "), el("br"), el("code", {}, one.id)),
      el("p", { class: "key" }, el("span", { class: "chosen" }, "underlined"), " the agent chose it, ", el("span", { class: "given" }, "plain"), " the world gave it"),
      ...(one.t.length ? one.t.map((turn, index) => turnView(turn, index, readout)) : [el("p", {}, "It ended before its first turn.")]),
      readout,
    ];
  }

  function turnView(turn, index, readout) {
    const before = given[turn.g].map((place) => el("span", { class: "given" }, texts[place]));
    const rewards = new Map(turn.w ?? []);
    const chosen = turn.a.map((place, i) => {
      const token = el("span", { class: "chosen" }, texts[place] || "▫"); // ▫: a part of a character
      const found = TONES[tone]?.(turn, i);
      if (found) {
        token.style.setProperty("--heat", `${Math.round(Math.min(1, found[0]) * 45)}%`);
        token.style.setProperty("--tone", `var(${found[1]})`);
      }
      return token;
    });
    const say = (token) => {
      for (const other of detail.querySelectorAll(".now")) other.classList.remove("now");
      token.classList.add("now");
      const i = chosen.indexOf(token);
      const shown = `“${token.textContent.replaceAll("\n", "⏎")}”`;
      if (i < 0) return readout.replaceChildren(el("code", {}, shown), " given by the world");
      const facts = [`probability ${turn.l[i] === null ? "not a number" : `${(100 * Math.exp(turn.l[i] / 1000)).toPrecision(3)} %`}`];
      if (turn.v) facts.push(`value ${signed(turn.v[i])}`, `advantage ${signed(turn.d[i])}`);
      if (turn.b) facts.push(`reward ${rewards.has(i) ? signed(rewards.get(i)) : "0"}`);
      readout.replaceChildren(el("code", {}, shown), ` chosen by the agent · ${facts.join(" · ")}`);
    };
    const tokens = el("div", { class: `tokens${TONES[tone] ? " heat" : ""}`, role: "group", tabindex: 0, dir: "auto",
      "aria-label": `Tokens of turn ${index + 1}; the arrow keys walk through those that the agent chose` },
      ...before, cutNote(turn.x?.[0]), ...chosen, cutNote(turn.x?.[1]));
    const pointed = (event) => { if (event.target !== tokens && event.target.matches(".given, .chosen")) say(event.target); };
    tokens.addEventListener("pointerover", pointed);
    tokens.addEventListener("click", pointed);
    let at = -1;
    tokens.addEventListener("focus", () => { if (at < 0 && chosen.length && tokens.matches(":focus-visible")) say(chosen[(at = 0)]); });
    tokens.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: chosen.length - 1 };
      if (!(event.key in moves) || !chosen.length) return;
      event.preventDefault();
      at = Math.max(0, Math.min(chosen.length - 1, moves[event.key]));
      say(chosen[at]);
      chosen[at].scrollIntoView({ block: "nearest" });
    });
    const title = `Turn ${index + 1}${turn.s ? `, segment ${turn.s + 1}` : ""}`;
    return el("section", { class: "turn", "aria-label": title }, el("h4", {}, title), worth(turn) ?? "", tokens,
      turn.o ? el("ul", { class: "calls" }, ...turn.o.map(call)) : null);
  }

  const cutNote = (rest) => (rest ? el("em", {}, ` … ${rest} more tokens … `) : null);

  /** What the turn earned, by component, and how its tokens were credited. */
  function worth(turn) {
    if (!turn.b && !turn.n) return null;
    const parts = Object.entries(turn.b ?? {}).map(([name, value]) => `${plain(name)} ${signed(value)}`);
    const sum = Object.values(turn.b ?? {}).reduce((all, value) => all + value, 0);
    const mean = turn.d?.length ? ` · mean advantage ${signed(Math.round(turn.d.reduce((all, each) => all + each, 0) / turn.d.length))}` : "";
    return el("p", { class: "parts" }, "reward ", el("b", {}, signed(sum)), parts.length ? ` = ${parts.join(", ")}` : "",
      turn.n ? ` · the environment said ${signed(turn.n)}` : "", mean);
  }

  function call([name, args, how, text]) {
    return el("li", {}, el("b", {}, name || "unreadable call"), " ", el("code", { dir: "auto" }, args), " ",
      el("span", { class: how === "ok" ? "good" : "bad" }, `${how === "ok" ? "✓" : "✗"} ${how}`), ": ", el("q", { dir: "auto" }, text));
  }

  // ---- one question across iterations

  const across = []; // {q, p, all: its trajectories by iteration}
  for (const one of trajectories) {
    if (one.p !== "sampled" && one.p !== "greedy") continue;
    const known = across.find(({ q, p }) => q === one.q && p === one.p);
    if (known) known.all.unshift(one);
    else across.push({ q: one.q, p: one.p, all: [one] });
  }
  for (let i = across.length - 1; i >= 0; i--) if (new Set(across[i].all.map((one) => one.i)).size < 2) across.splice(i, 1);

  const wanted = find("#across form").elements;
  const strip = find(".strip"), columns = find(".columns"), gold = find(".gold");

  function compare() {
    const q = Number(wanted.question.value);
    const purposes = across.filter((each) => each.q === q).map(({ p }) => p);
    const before = wanted.purpose.value;
    wanted.purpose.replaceChildren(...purposes.map((p) => el("option", { value: p, selected: p === before }, p)));
    const { all } = across.find((each) => each.q === q && each.p === wanted.purpose.value);
    gold.textContent = questions[q].answers.length ? `gold: ${questions[q].answers.join(" or ")}` : "";
    columns.replaceChildren(
      ...all.map((one) => el("section", { class: "column", "aria-label": `Iteration ${one.i}, ${verdict(one)}` },
        el("h3", {}, `Iteration ${one.i} `), el("div", {}, mark(one), ` ${one.a === null ? plain(one.e) : short(one.a, 80)}`),
        el("ol", {}, ...one.t.map((turn) => el("li", { dir: "auto" }, short(said(turn), 300),
          ...(turn.o ?? []).map(([, , how, text]) => el("span", { class: "found" }, `→ ${how === "ok" ? "" : `${how}: `}${short(text, 160)}`))))),
        el("button", { type: "button", "aria-label": `Open the trajectory of iteration ${one.i}`, onclick: () => { location.hash = "trajectories"; open(one); } }, "Open"))));
    strip.replaceChildren(...all.map((one, index) =>
      el("button", { type: "button", class: one.m ? "good" : "bad", "aria-label": `Iteration ${one.i}: ${verdict(one)}`,
        onclick: () => columns.children[index].scrollIntoView({ block: "nearest", inline: "start" }) },
        one.m ? "✓" : "✗", el("small", {}, String(one.i)))));
  }

  /** What the agent wrote: its calls in short, else its text. */
  function said(turn) {
    const calls = (turn.o ?? []).filter(([name]) => name).map(([name, args]) => `${name} ${args}`);
    return calls.length ? calls.join("\n") : joined(turn.a);
  }

  function follow(one) {
    wanted.question.value = one.q;
    compare();
    wanted.purpose.value = one.p;
    compare();
    find("#across").scrollIntoView();
    wanted.question.focus({ preventScroll: true });
  }

  if (across.length) {
    const followed = [...new Set(across.map(({ q }) => q))];
    const hops = (q) => (questions[q].hops === null ? "" : `${many(questions[q].hops, "hop")}: `);
    const right = (q) => across.filter((each) => each.q === q)
      .map(({ p, all }) => `${p} ${all.filter((one) => one.m).length} of ${all.length} right`).join(", ");
    wanted.question.append(...followed.map((q) => el("option", { value: q }, `${hops(q)}${short(questions[q].text, 120)} (${right(q)})`)));
    const mixed = ({ all }) => Math.min(all.filter((one) => one.m).length, all.filter((one) => !one.m).length);
    wanted.question.value = across.reduce((best, each) => (mixed(each) > mixed(best) ? each : best)).q; // begin with the most telling
    find("#across form").addEventListener("input", compare);
    compare();
  } else {
    find("#across form").remove();
    strip.remove();
    columns.replaceWith(el("p", { class: "empty" }, "No validation question stands in more than one iteration of this page."));
  }
  filter();
  if (passing.length) open(passing[0], false);
}
