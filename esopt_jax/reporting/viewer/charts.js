// Curves over generations, as SVG. Arrow keys or the pointer move a reading line.

const WIDTH = 420, HEIGHT = 190, LEFT = 44, RIGHT = 10, TOP = 8, BOTTOM = 22;
const MANY_BARS = 40;

/** A figure: title, legend and curves. `choose(generation)` is called for the one that is clicked. */
function drawChart(chart, choose) {
  const xs = [...new Set(chart.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const numbers = chart.lines.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]);
  const values = numbers.filter((value) => value !== null);
  const x = scale(xs[0], xs[xs.length - 1], LEFT, WIDTH - RIGHT);
  const ends = outward(Math.min(0, least(values)), Math.max(0, -least(values.map((value) => -value))));
  const y = scale(...ends, HEIGHT - BOTTOM, TOP);
  const svg = vector("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "img" });
  svg.setAttribute("aria-label", chart.title + " over generations; arrow keys read values");
  svg.append(axes(x, y));
  chart.lines.forEach((line, place) => svg.append(curve(line, place, x, y)));
  const cursor = vector("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  const legend = make("p", { class: "legend" });
  const figure = make("figure", { class: "chart" }, make("figcaption", {}, chart.title), svg, legend);
  let at = null;
  const read = (index) => {
    at = index === null ? null : Math.max(0, Math.min(xs.length - 1, index));
    cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(xs[at]));
    writeLegend(legend, chart.lines, at === null ? null : xs[at]);
  };
  read(null);
  svg.addEventListener("pointermove", (event) => read(nearest(xs, x, svg, event)));
  svg.addEventListener("pointerleave", () => read(null));
  svg.addEventListener("blur", () => read(null));
  svg.addEventListener("click", (event) => choose(xs[nearest(xs, x, svg, event)]));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) read(at === null ? (step > 0 ? 0 : xs.length - 1) : at + step);
    else if (event.key === "Enter" && at !== null) choose(xs[at]);
    else return;
    event.preventDefault();
  });
  return figure;
}

function vector(tag, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function least(values) {
  return values.reduce((low, value) => Math.min(low, value), Infinity);
}

function scale(low, high, from, to) {
  const span = high - low || 1;
  const map = (value) => from + ((value - low) / span) * (to - from);
  return Object.assign(map, { low, high: low + span });
}

/** A round number, about a quarter of the way from `low` to `high`. */
function roundStep(low, high) {
  const rough = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough * 0.999);
}

/** The ends of a scale, moved outward to round numbers. */
function outward(low, high) {
  const step = roundStep(low, high);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
}

/** A few round numbers between the ends of a scale. */
function ticks(along, whole) {
  const fine = roundStep(along.low, along.high), step = whole ? Math.max(1, Math.round(fine)) : fine;
  const first = Math.ceil(along.low / step - 1e-9);
  const places = [];
  for (let i = first; i * step <= along.high + step * 1e-9 && places.length < 12; i += 1) places.push(i * step);
  return places;
}

function axes(x, y) {
  const group = vector("g", { class: "axes" });
  for (const value of ticks(y, false)) {
    group.append(vector("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    group.append(vector("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  for (const value of ticks(x, true)) {
    group.append(vector("text", { x: x(value), y: HEIGHT - 6, "text-anchor": "middle" }, number(value)));
  }
  return group;
}

function curve(line, place, x, y) {
  const group = vector("g", { class: "line-" + place });
  const at = (i, values) => `${x(line.x[i]).toFixed(1)},${y(values[i]).toFixed(1)}`;
  const bounded = [...line.x.keys()].filter((i) => line.low && line.low[i] !== null && line.high[i] !== null);
  if (bounded.length > MANY_BARS) {
    const edge = [...bounded.map((i) => at(i, line.high)), ...bounded.reverse().map((i) => at(i, line.low))];
    group.append(vector("polygon", { points: edge.join(" ") }));
  } else {
    for (const i of bounded) {
      const [low, high] = [at(i, line.low), at(i, line.high)].map((pair) => pair.split(","));
      group.append(vector("line", { x1: low[0], y1: low[1], x2: high[0], y2: high[1] }));
    }
  }
  group.append(vector("polyline", { points: [...line.x.keys()].map((i) => at(i, line.y)).join(" ") }));
  if (line.x.length <= MANY_BARS) {
    for (const i of line.x.keys()) group.append(vector("circle", { cx: x(line.x[i]), cy: y(line.y[i]), r: 2.5 }));
  }
  return group;
}

function nearest(xs, x, svg, event) {
  const box = svg.getBoundingClientRect();
  const wanted = ((event.clientX - box.left) / box.width) * WIDTH;
  let best = 0;
  for (let i = 1; i < xs.length; i += 1) {
    if (Math.abs(x(xs[i]) - wanted) < Math.abs(x(xs[best]) - wanted)) best = i;
  }
  return best;
}

/** Names of the lines, and what they are at `generation`. */
function writeLegend(legend, lines, generation) {
  const parts = lines.map((line, place) => {
    const i = generation === null ? -1 : line.x.indexOf(generation);
    let text = " " + line.name;
    if (i >= 0) text += " " + number(line.y[i]);
    if (i >= 0 && line.low && line.low[i] !== null) text += ` (${number(line.low[i])} .. ${number(line.high[i])})`;
    return make("span", { class: "key-" + place }, make("i", { "aria-hidden": "true" }), text);
  });
  legend.replaceChildren(...parts);
  if (generation !== null) legend.prepend(make("b", {}, "generation " + generation));
}
