// The page: what is shown is said by location.hash, so that a view can be kept, sent and gone back to.

const VIEWS = { overview: "Overview", episodes: "Episodes", members: "Best and worst member", heldout: "Before and after" };
const SETS = { population: "the population", heldout: "held-out evaluations" };
const FLAGS = { invalid: "with invalid actions", truncated: "with cut replies" };
const CHANGES = { left: "only the left one solves", right: "only the right one solves", same: "same outcome" };
let state = {};
let drawnDetail = "";

const list = new LongList("Episodes", drawRow, (item) => go({ open: String(isPair(item) ? item.key : item) }));
document.getElementById("listing").append(list.element);

/** Change some of the state; what is undefined goes away. */
function go(changes) {
  const parts = Object.entries({ ...state, ...changes }).filter(([, value]) => value !== undefined && value !== "");
  location.replace("#" + parts.map((pair) => pair.map(encodeURIComponent).join("=")).join("&"));
}

function readHash() {
  const read = {};
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) read[name] = value;
  if (!Object.hasOwn(VIEWS, read.view)) read.view = "overview";
  return read;
}

function isPair(item) {
  return typeof item === "object";
}

/** Distinct values of a column among some episodes, in order. */
function valuesOf(name, indices) {
  return [...new Set(indices.map((i) => head.columns[name][i]))].sort((a, b) => a - b);
}

function allEpisodes() {
  return [...Array(total).keys()];
}

/** The episodes of the population, of held-out evaluations, or all. */
function inSet() {
  const heldOut = Number(state.set === "heldout");
  return Object.hasOwn(SETS, state.set) ? allEpisodes().filter((i) => head.columns.held_out[i] === heldOut) : allEpisodes();
}

function filtered() {
  const column = head.columns, like = (name, i) => state[name] === undefined || String(column[name][i]) === state[name];
  const word = (state.task || "").toLowerCase();
  return inSet().filter((i) =>
    ["generation", "member", "case", "outcome"].every((name) => like(name, i)) &&
    (!Object.hasOwn(FLAGS, state.flag) || column[state.flag][i] > 0) &&
    (!word || head.tasks[column.task[i]].toLowerCase().includes(word)));
}

/** The two sides of a comparison: their names and whose episodes they are; null when there is nothing to compare. */
function sides() {
  const column = head.columns;
  if (state.view === "members") {
    const generation = Object.hasOwn(head.members, state.generation) ? state.generation : Object.keys(head.members).at(-1);
    if (generation === undefined) return null;
    const side = ({ member, score }, name) => ({
      name: `${name}: member ${member}`,
      note: `fitness ${number(score)}`,
      owns: (i) => !column.held_out[i] && column.generation[i] === Number(generation) && column.member[i] === member,
    });
    return { generation, sides: [side(head.members[generation][0], "best"), side(head.members[generation][1], "worst")] };
  }
  const updates = valuesOf("generation", allEpisodes().filter((i) => column.held_out[i]));
  if (updates.length < 2) return null;
  const side = (at, name) => ({
    name: `${name}: ${at} updates`, note: "held-out", owns: (i) => column.held_out[i] === 1 && column.generation[i] === at,
  });
  return { sides: [side(updates[0], "before"), side(updates.at(-1), "after")] };
}

/** Episodes of both sides on the same case, side by side. */
function pairs(both) {
  const column = head.columns, found = new Map();
  both.sides.forEach((side, place) => allEpisodes().filter(side.owns).forEach((i) => {
    const key = column.case[i] + "." + column.episode[i];
    if (!found.has(key)) found.set(key, { key, at: [null, null] });
    found.get(key).at[place] = i;
  }));
  return [...found.values()].filter((pair) => !Object.hasOwn(CHANGES, state.show) || changeOf(pair) === state.show);
}

function changeOf(pair) {
  const [one, two] = pair.at.map((i) => i !== null && head.columns.outcome[i] === "success");
  return one === two ? "same" : one ? "left" : "right";
}

function drawRow(item) {
  const cell = (kind, ...content) => make("span", { class: "cell " + kind }, ...content);
  if (isPair(item)) {
    const episode = episodeAt(item.at[0] ?? item.at[1]);
    const outcomes = item.at.map((i) => (i === null ? cell("none", "none") : badge(head.columns.outcome[i])));
    return [cell("task", inline(episode.taskId)), cell("case", "case " + episode.case), ...outcomes];
  }
  const episode = episodeAt(item);
  return [
    cell("when", (episode.held_out ? "held-out " : "gen ") + episode.generation),
    cell("who", episode.member < 0 ? "model" : "m " + episode.member),
    cell("task", inline(episode.taskId)),
    cell("turn-count", episode.turns + (episode.turns === 1 ? " turn" : " turns")),
    cell("warn", episode.invalid ? episode.invalid + " invalid" : ""),
    badge(episode.outcome),
  ];
}

function choice(name, label, options) {
  const select = make("select", { name, change: (event) => go({ [name]: event.target.value, open: undefined }) });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  select.value = state[name] ?? "";
  return make("label", {}, label, select);
}

function drawFilters(both) {
  const any = ["", "all"], same = (values) => values.map((value) => [String(value), String(value)]);
  let fields;
  if (state.view === "episodes") {
    const here = inSet();
    const task = make("input", { name: "task", type: "search", placeholder: "part of its id", autocomplete: "off" });
    task.value = state.task ?? "";
    task.addEventListener("change", () => go({ task: task.value, open: undefined }));
    fields = [
      choice("set", "of", [any, ...Object.entries(SETS)]),
      choice("generation", "generation", [any, ...same(valuesOf("generation", here))]),
      choice("member", "member", [any, ...valuesOf("member", here).map((m) => [String(m), m < 0 ? "unperturbed" : String(m)])]),
      choice("case", "case", [any, ...same(valuesOf("case", here))]),
      choice("outcome", "outcome", [any, ...same(["success", "failure", "error"])]),
      choice("flag", "turns", [any, ...Object.entries(FLAGS)]),
      make("label", {}, "task", task),
    ];
  } else {
    fields = [choice("show", "show", [any, ...Object.entries(CHANGES)])];
    if (both && both.generation) fields.unshift(choice("generation", "generation", same(Object.keys(head.members))));
    const select = fields[0].querySelector("select");
    if (both && both.generation) select.value = both.generation;
  }
  const form = document.getElementById("filters"), focused = document.activeElement;
  const name = form.contains(focused) ? focused.name : undefined;
  form.replaceChildren(...fields);
  if (name) form.elements.namedItem(name)?.focus();
}

function drawBrowser() {
  const both = state.view === "episodes" ? null : sides();
  drawFilters(both);
  const items = state.view === "episodes" ? filtered() : both ? pairs(both) : [];
  const of = state.view === "episodes" ? `of ${count(total)} episodes` : "cases";
  const output = document.getElementById("shown");
  output.textContent = `${count(items.length)} ${of}` + (state.view === "episodes" ? "" : ":");
  output.dataset.shown = items.length;
  const about = document.getElementById("about");
  about.textContent = state.view === "episodes" ? "" : both
    ? both.sides.map((side) => `${side.name} (${side.note})`).join(" beside ")
    : "There is nothing to compare: this needs two sets of recorded episodes.";
  const place = items.findIndex((item) => String(isPair(item) ? item.key : item) === state.open);
  const opened = items[Math.max(0, place)];
  list.show(items, items.length ? Math.max(0, place) : -1);
  drawDetail(opened, both);
}

function drawDetail(item, both) {
  const name = JSON.stringify([state.view, both && both.generation, item ?? null]);
  if (name === drawnDetail) return;
  drawnDetail = name;
  const detail = document.getElementById("detail");
  detail.scrollTop = 0;
  detail.className = item !== undefined && isPair(item) ? "two" : "";
  if (item === undefined) detail.replaceChildren();
  else if (!isPair(item)) detail.replaceChildren(drawEpisode(episodeAt(item), ""));
  else detail.replaceChildren(...item.at.map((i, side) => i === null
    ? make("article", { class: "episode" }, make("p", { class: "side" }, both.sides[side].name + ": no such episode"))
    : drawEpisode(episodeAt(i), both.sides[side].name)));
}

function drawTabs() {
  const tabs = Object.entries(VIEWS).map(([view, label]) =>
    make("a", { href: "#view=" + view, "aria-current": view === state.view ? "page" : undefined }, label));
  document.getElementById("tabs").replaceChildren(...tabs);
}

function draw() {
  state = readHash();
  drawTabs();
  document.getElementById("overview").hidden = state.view !== "overview";
  document.getElementById("browser").hidden = state.view === "overview";
  if (state.view !== "overview") drawBrowser();
}

document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
drawOverview((generation) => {
  location.hash = "#view=episodes&generation=" + generation;
});
addEventListener("hashchange", draw);
draw();
document.documentElement.dataset.ready = String(Math.round(performance.now()));
