// Shows what the server sends. Each text comes from a cluster, so each goes onto the page as text, never as HTML.
"use strict";

const MOST_LINES = 2000;
const MOST_METRICS = 10;
const RETRY = 5000; // milliseconds
const MOST_DRAWN = 10;
const PHASES = { Ready: "good", Running: "good", Succeeded: "good", Failed: "bad", Unknown: "bad" };
const COLUMNS = ["Name", "Phase", "Where", "CPU", "Memory", "Restarts", "Progress", "Reason", "Log"];

const by = (id) => document.getElementById(id);
const charts = new Charts(by("charts"));
const state = {
  source: null, lists: new Map(), problem: "", place: null, document: null, usage: {}, sort: 0, down: false, log: null, lines: [], waits: false,
};

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  return made;
}

function phase(text) {
  return element("span", text, { class: PHASES[text] || "wait" });
}

function size(bytes) {
  return typeof bytes === "number" ? `${(bytes / 1048576).toFixed(0)} MiB` : "";
}

function moment(text) {
  return text ? new Date(text).toLocaleString() : "";
}

function duration(from, to) {
  if (!from || !to) return "";
  const seconds = Math.round((new Date(to) - new Date(from)) / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  let rest = seconds;
  const shown = [];
  for (const [unit, name] of parts) {
    if (rest >= unit || (name === "s" && !shown.length)) shown.push(`${Math.floor(rest / unit)}${name}`);
    rest %= unit;
  }
  return shown.slice(0, 2).join("");
}

function steps(progress) {
  if (!progress) return "";
  const total = progress.total ? `/${progress.total}` : "";
  const rate = typeof progress.rate === "number" ? `, ${Number(progress.rate.toPrecision(3))} steps/s` : "";
  const metrics = Object.entries(progress.metrics).slice(0, MOST_METRICS).map(([name, value]) => `, ${name}=${value}`).join("");
  return `${progress.step}${total}${rate}${metrics}`;
}

// ---- the connection: one stream for all topics that the page shows

function connect() {
  if (state.source) state.source.close();
  const topics = ["overview"];
  if (state.place) topics.push(`cluster ${state.place.join(" ")}`);
  if (state.place && state.log) topics.push(`log ${state.place.join(" ")} ${state.log}`);
  const source = new EventSource("stream?" + topics.map((topic) => "topic=" + encodeURIComponent(topic)).join("&"));
  source.onopen = () => {
    forget(); // what was kept comes again
    setText("connection", "live");
  };
  source.onerror = () => {
    setText("connection", "not connected; trying again …");
    if (source.readyState === EventSource.CLOSED && source === state.source) refused();
  };
  source.onmessage = (event) => take(JSON.parse(event.data));
  state.source = source;
}

// The server has no such cluster or log, or too many pages are open.
function refused() {
  setText("connection", state.place ? "there is no such cluster or log here" : "refused: too many pages are open");
  leave();
  setTimeout(connect, RETRY);
}

function forget() {
  Object.assign(state, { document: null, usage: {}, lines: [] });
  charts.clear();
  by("events").tBodies[0].replaceChildren();
  by("tasks").tBodies[0].replaceChildren();
  by("lines").textContent = "";
}

function take({ topic, kind, data }) {
  const [first, source] = kind.split(" ");
  const show = {
    clusters: () => { state.lists.set(source, data); showClusters(); },
    history: () => showHistory(data),
    cluster: () => { state.document = data; problem(""); },
    usage: () => { state.usage = data.tasks; charts.addUsage(data.time, data.tasks); },
    progress: () => charts.addProgress(data.time, data.tasks),
    event: () => showEvent(data),
    line: () => state.lines.push(data),
    end: () => state.lines.push(`— ${data}`),
    gone: () => problem(data),
    problem: () => { if (topic === "overview") { state.problem = data; showClusters(); } else problem(data); },
  }[first];
  if (show) show();
  draw();
}

function draw() {
  if (state.waits) return;
  state.waits = true;
  requestAnimationFrame(() => {
    state.waits = false;
    if (state.document) showCluster(state.document);
    if (state.lines.length) showLines(state.lines.splice(0));
  });
}

function setText(id, text) {
  if (by(id).textContent !== text) by(id).textContent = text; // screen readers read each change aloud
}

// ---- clusters

function showClusters() {
  const clusters = [...state.lists.values()].flatMap((list) => list.clusters);
  const list = by("clusters");
  const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  list.replaceChildren(...clusters.map((cluster) => {
    const place = [cluster.source, cluster.name];
    const link = element("a", cluster.name, { href: address(place) });
    if (state.place && place.join(" ") === state.place.join(" ")) link.setAttribute("aria-current", "page");
    const small = element("small");
    small.append(phase(cluster.phase), ` ${cluster.ready}/${cluster.tasks} tasks, ${cluster.source === "local" ? "this machine" : cluster.location}`);
    link.append(small);
    if (cluster.reason) link.append(element("small", cluster.reason));
    const item = element("li");
    item.append(link);
    return item;
  }));
  [...list.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  const texts = [state.problem];
  for (const [source, { problem: text, note, gpus }] of state.lists) texts.push(text && `${source}: ${text}`, note, gpus);
  setText("sources", texts.filter(Boolean).join("\n"));
  const none = !clusters.length && ![...state.lists.values()].some((list) => list.problem);
  by("empty").hidden = !state.lists.size || Boolean(state.place);
  setText("empty", none ? "No cluster runs. `tfk8s up` starts one, and this page shows it." : "Choose a cluster.");
  if (!state.place && clusters.length === 1) open([clusters[0].source, clusters[0].name]);
}

// A source is "local", or "kubernetes/NAMESPACE".
function address([source, name], log = null) {
  return "#" + [...source.split("/"), name, ...(log ? [log] : [])].map(encodeURIComponent).join("/");
}

function open(place, log = null) {
  const changed = !state.place || place.join(" ") !== state.place.join(" ");
  if (!changed && log === state.log) return;
  state.place = place;
  state.log = log;
  const hash = address(place, log);
  if (location.hash !== hash) history.replaceState(null, "", hash);
  forget();
  by("cluster").hidden = false;
  setText("name", place[1]);
  by("facts").replaceChildren();
  by("log").hidden = !log;
  setText("log-name", log ? `Log of ${log}` : "");
  problem("");
  connect();
  showClusters();
}

function leave() {
  state.place = state.log = null;
  by("cluster").hidden = true;
  history.replaceState(null, "", "#");
}

function problem(text) {
  by("problem").hidden = !text;
  setText("problem", text);
}

// ---- one cluster

function showCluster(cluster) {
  document.title = `${cluster.name}: ${cluster.phase} · tfk8s`;
  const cost = cluster.cost ? `${cluster.cost.amount.toFixed(2)} ${cluster.cost.currency}` : "";
  const slow = cluster.stragglers.map((task) => task.task).join(", ");
  const facts = {
    phase: phase(cluster.phase), reason: cluster.reason, where: cluster.location, master: cluster.target,
    started: moment(cluster.created), "is removed": moment(cluster.removed_at), gang: cluster.gang, cost,
    "far slower than the others": slow, limits: cluster.limits_problem,
  };
  by("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => value).map(([name, value]) => {
    const row = element("div");
    const detail = element("dd");
    detail.append(value);
    row.append(element("dt", name), " ", detail);
    return row;
  }));
  const rows = filtered(cluster);
  showRows(rows);
  const names = drawn(rows, cluster);
  setText("drawn", rows.length > MOST_DRAWN ? `${names.length} of ${rows.length} are drawn: the filter chooses others` : "");
  charts.draw(names);
}

function filtered(cluster) {
  const rows = [
    ...cluster.tasks.map((task) => ({ ...task, name: task.task, log: task.task })),
    ...cluster.scripts.map((script) => ({ ...script, name: script.script, log: script.script.startsWith("script-") && script.script, restarts: 0, reason: script.reason || script.command })),
  ];
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text = `${row.name} ${row.phase} ${row.where} ${row.reason}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  setText("count", words.length ? `${found.length} of ${rows.length}` : `${rows.length}`);
  if (state.sort) {
    const value = (row) => [row.name, row.phase, row.where, used(row, 0), used(row, 1), row.restarts, row.progress?.step ?? -1, row.reason][state.sort - 1];
    found.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    if (state.down) found.reverse();
  }
  return found;
}

function used(row, number) {
  return (state.usage[row.name] || [])[number] ?? -1;
}

// Stragglers come first.
function drawn(rows, cluster) {
  const slow = new Set(cluster.stragglers.map((task) => task.task));
  const names = rows.map((row) => row.name);
  return [...names.filter((name) => slow.has(name)), ...names.filter((name) => !slow.has(name))].slice(0, MOST_DRAWN);
}

function showRows(rows) {
  const body = by("tasks").tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.name, row]));
  const focused = document.activeElement;
  rows.forEach((item, place) => {
    const row = known.get(item.name) || makeRow(item);
    known.delete(item.name);
    const [cpu, memory] = [used(item, 0), used(item, 1)];
    const texts = [item.name, item.phase, item.where, cpu < 0 ? "" : cpu.toFixed(2), memory < 0 ? "" : size(memory),
      String(item.restarts), steps(item.progress), item.reason];
    texts.forEach((text, number) => { if (row.cells[number].textContent !== text) row.cells[number].textContent = text; });
    row.cells[1].className = PHASES[item.phase] || "wait";
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  for (const row of known.values()) row.remove();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus();
}

function makeRow(item) {
  const row = element("tr");
  row.dataset.name = item.name;
  row.append(...COLUMNS.map((name) => element("td", null, { class: name === "Reason" ? "text" : null })));
  if (item.log) {
    const button = element("button", "show", { type: "button", "aria-label": `show the log of ${item.name}` });
    button.addEventListener("click", () => open(state.place, item.log));
    row.cells[COLUMNS.length - 1].append(button);
  }
  return row;
}

function showHead() {
  const row = element("tr");
  COLUMNS.forEach((name, number) => {
    const cell = element("th");
    if (number === COLUMNS.length - 1) {
      cell.textContent = name;
    } else {
      const button = element("button", name, { type: "button" });
      button.addEventListener("click", () => {
        state.down = state.sort === number + 1 && !state.down;
        state.sort = number + 1;
        for (const other of row.cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        draw();
      });
      cell.append(button);
    }
    row.append(cell);
  });
  by("tasks").tHead.replaceChildren(row);
}

function showEvent(event) {
  const row = element("tr", null, { class: event.warning ? "wait" : null });
  row.append(...[moment(event.time), event.about, event.reason, event.message, String(event.count)].map((text, place) => element("td", text, { class: place === 3 ? "text" : null })));
  const body = by("events").tBodies[0];
  row.dataset.id = event.id;
  [...body.rows].find((other) => other.dataset.id === event.id)?.remove();
  body.prepend(row);
  while (body.rows.length > 300) body.lastElementChild.remove();
}

function showLines(texts) {
  const lines = by("lines");
  const follows = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
  lines.append(...texts.slice(-MOST_LINES).map((text) => `${text}\n`));
  while (lines.childNodes.length > MOST_LINES) lines.firstChild.remove();
  if (follows) lines.scrollTop = lines.scrollHeight;
}

function showHistory(entries) {
  by("past").hidden = !entries.length;
  by("history").tBodies[0].replaceChildren(...entries.map((entry) => {
    const cost = entry.cost ? `${entry.cost.amount.toFixed(2)} ${entry.cost.currency}` : "";
    const texts = [entry.entry, entry.state, entry.exit_code ?? "", moment(entry.started), duration(entry.started, entry.ended),
      cost, steps(entry.progress), entry.reason];
    const row = element("tr");
    row.append(...texts.map((text, place) => element("td", text, { class: place === 7 ? "text" : null })));
    const cell = element("td");
    if (entry.timeline) cell.append(element("a", "open", { href: `timeline/${encodeURIComponent(entry.entry)}`, target: "_blank", rel: "noopener" }));
    row.append(cell);
    return row;
  }));
}

// ---- the start

function route() {
  let words = [];
  try {
    words = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return; // no link of this page
  }
  const source = words.splice(0, words[0] === "kubernetes" ? 2 : 1).join("/");
  const [name, log] = words;
  if (source && name) open([source, name], log || null);
}

showHead();
by("filter").addEventListener("input", draw);
window.addEventListener("hashchange", route);
window.addEventListener("resize", () => charts.resize());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { charts.restyle(); draw(); });
// A browser opens six connections to a server: a page that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => { if (document.hidden) state.source.close(); else connect(); });
route();
if (!state.place) connect();
