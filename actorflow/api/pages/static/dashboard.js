// Keys, the command palette, charts and graphs. Without it, all pages and forms work nevertheless.
"use strict";

// Keys: one for each page, / for the search field, Ctrl-K for commands. Fields are left alone.

const palette = document.getElementById("palette");

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const typing = event.target.closest("input, textarea, select");
  if (typing || palette.open || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find").focus();
    return;
  }
  const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
  if (link) {
    link.click();
  }
});

// The palette: pages by name, executions by id or text.

const command = document.getElementById("command");
const commands = document.getElementById("commands");
let chosen = 0;

function openPalette() {
  command.value = "";
  list();
  palette.showModal();
  command.focus();
}

function list() {
  const wanted = command.value.trim();
  const found = [...document.querySelectorAll("nav a")]
    .filter((link) => link.textContent.toLowerCase().includes(wanted.toLowerCase()))
    .map((link) => [link.textContent, link.getAttribute("href")]);
  if (wanted) {
    const text = encodeURIComponent(wanted);
    found.push([`Execution ${wanted}`, `execution?id=${text}`]);
    found.push([`Executions whose id or error has ${wanted}`, `executions?text=${text}`]);
    found.push([`Workers whose name has ${wanted}`, `workers?text=${text}`]);
  }
  chosen = 0;
  commands.replaceChildren(
    ...found.map(([text, href], index) => {
      const item = document.createElement("li");
      item.id = `command-${index}`;
      item.setAttribute("role", "option");
      item.dataset.href = href;
      item.textContent = text;
      item.addEventListener("click", () => go(href));
      return item;
    }),
  );
  mark();
}

function mark() {
  [...commands.children].forEach((item, index) => {
    item.setAttribute("aria-selected", String(index === chosen));
  });
  const item = commands.children[chosen];
  if (item) {
    command.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  }
}

function go(href) {
  palette.close();
  window.location.assign(href);
}

command.addEventListener("input", list);
command.addEventListener("keydown", (event) => {
  const count = commands.children.length;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    chosen = count ? (chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count : 0;
    mark();
  } else if (event.key === "Enter" && commands.children[chosen]) {
    event.preventDefault();
    go(commands.children[chosen].dataset.href);
  }
});
document.getElementById("open-palette").addEventListener("click", openPalette);

// Sliders say what they stand at.

for (const slider of document.querySelectorAll('input[type="range"]')) {
  slider.addEventListener("input", () => {
    slider.parentElement.querySelector("output").textContent = `${slider.value} ms`;
  });
}

// Filters that a person has saved stay in this browser.

const SAVED = "actorflow-filters";
const savedFilters = document.getElementById("saved-filters");
const saveFilter = document.getElementById("save-filter");

function readSaved() {
  try {
    const found = JSON.parse(localStorage.getItem(SAVED));
    return Array.isArray(found) ? found.map(String) : [];
  } catch {
    return [];
  }
}

function writeSaved(filters) {
  localStorage.setItem(SAVED, JSON.stringify(filters));
  listSaved();
}

function filterOf(query) {
  return [...new URLSearchParams(query)].filter(([name, value]) => value && name !== "after" && name !== "note");
}

function listSaved() {
  const saved = readSaved();
  savedFilters.replaceChildren(
    ...saved.map((query) => {
      const text = filterOf(query).map(([name, value]) => `${name} ${value}`).join(", ");
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `executions?${query}`;
      link.textContent = text;
      const forget = document.createElement("button");
      forget.type = "button";
      forget.textContent = "Forget";
      forget.setAttribute("aria-label", `Forget the filter ${text}`);
      forget.addEventListener("click", () => writeSaved(saved.filter((each) => each !== query)));
      item.append(link, " ", forget);
      return item;
    }),
  );
  const query = new URLSearchParams(filterOf(window.location.search)).toString();
  saveFilter.hidden = !query || saved.includes(query);
}

if (savedFilters) {
  saveFilter.addEventListener("click", () => {
    const query = new URLSearchParams(filterOf(window.location.search)).toString();
    writeSaved([...readSaved(), query]);
  });
  listSaved();
}

// Charts: the data is an attribute of an element that updates replace; the chart stays.

const plots = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function aligned(series) {
  const times = [...new Set(series.flatMap((each) => each.at))].sort((a, b) => a - b);
  const columns = series.map((each) => {
    const values = new Map(each.at.map((at, index) => [at, each.values[index]]));
    return times.map((at) => values.get(at) ?? null);
  });
  return [times, ...columns];
}

// At least a minute; uPlot widens a single moment to years.
function minutes(plot) {
  const at = plot.data[0];
  const last = at.length ? at[at.length - 1] : Date.now() / 1000;
  return [Math.min(at.length ? at[0] : last, last - 60), last];
}

function drawPlots() {
  for (const place of document.querySelectorAll(".plot")) {
    const source = document.getElementById(place.dataset.from);
    if (!source || typeof uPlot === "undefined") {
      continue;
    }
    const series = JSON.parse(source.dataset.series);
    const data = aligned(series);
    const width = place.clientWidth;
    let plot = plots.get(place);
    if (plot) {
      plot.setData(data);
      if (plot.width !== width) {
        plot.setSize({ width, height: 180 });
      }
      continue;
    }
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
    const strokes = ["--link", "--good", "--busy"];
    plot = new uPlot(
      {
        width,
        height: 180,
        cursor: { drag: { x: false, y: false } },
        scales: { x: { range: minutes }, y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [axis, axis],
        series: [{}, ...series.map((each, index) => ({
          label: each.label, stroke: colour(strokes[index % strokes.length]), width: 2,
          value: (_plot, value) => (value === null ? "" : value.toFixed(1)),
        }))],
      },
      data,
      place,
    );
    plots.set(place, plot);
  }
}

// The graph of a plan, laid out by dagre.

const SVG = "http://www.w3.org/2000/svg";
const MOST = 300; // jobs that a picture can show
const drawn = new Map();

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  if (text !== undefined) {
    made.textContent = text;
  }
  return made;
}

function drawGraphs() {
  for (const place of document.querySelectorAll(".graph")) {
    const source = document.getElementById(place.dataset.from);
    if (!source || typeof dagre === "undefined" || drawn.get(place) === source.dataset.graph) {
      continue;
    }
    drawn.set(place, source.dataset.graph);
    const { nodes, edges } = JSON.parse(source.dataset.graph);
    if (nodes.length > MOST) {
      place.textContent = `The graph has ${nodes.length} jobs or more, too many to draw.`;
      continue;
    }
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 16, ranksep: 40, marginx: 8, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) {
      graph.setNode(node.id, { width: 24 + 7.5 * Math.min(node.id.length, 30), height: 30, ...node });
    }
    for (const [from, to] of edges) {
      if (graph.hasNode(from) && graph.hasNode(to)) {
        graph.setEdge(from, to);
      }
    }
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points.map((each) => `${each.x},${each.y}`).join(" ");
      picture.append(shape("polyline", { points, class: "edge" }));
    }
    for (const id of graph.nodes()) {
      const node = graph.node(id);
      const box = shape("g", { class: `job ${node.status}` });
      const { x, y, width: wide, height: high } = node;
      box.append(shape("rect", { x: x - wide / 2, y: y - high / 2, width: wide, height: high, rx: 6 }));
      const label = id.length > 30 ? `${id.slice(0, 29)}…` : id;
      box.append(shape("text", { x, y: y + 4, "text-anchor": "middle" }, label));
      box.append(shape("title", {}, `${id}: ${node.status}`));
      picture.append(box);
    }
    place.replaceChildren(picture);
  }
}

function draw() {
  drawPlots();
  drawGraphs();
}

const live = document.getElementById("live");
if (live) {
  new MutationObserver(draw).observe(live, { subtree: true, childList: true, attributes: true });
}
window.addEventListener("resize", drawPlots);
draw();
