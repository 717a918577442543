// The run as a whole: title, results, curves, settings.

function drawOverview(choose) {
  const put = (id, ...children) => document.getElementById(id).replaceChildren(...children);
  put("name", inline(head.name));
  put("progress", make("span", { class: "badge " + head.status }, head.status), " ", inline(head.progress), " ");
  document.getElementById("progress").append(make("span", { class: "where" }, inline(head.folder)));
  put("description", inline(head.description));
  put("results", ...head.results.map(drawResult));
  put("charts", ...head.charts.map((chart) => drawChart(chart, choose)));
  put("settings", ...head.settings.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, inline(value)))));
  put("config", block(head.config, "config"));
  const notes = [head.note];
  if (total === 0) notes.push("This run has recorded no episodes; log.trajectories decides which are.");
  else if (!head.decoded) notes.push("What the agent read is not shown: the tokenizer of the run was not found.");
  const left = (head.columns.pack || []).filter((pack) => pack < 0).length;
  if (left) notes.push(`The turns of ${count(left)} episodes are not in this page: it would be too large.`);
  const said = notes.filter((note) => note);
  put("notes", inline(said.join(" ")));
  document.getElementById("notes").hidden = said.length === 0;
}

function drawResult(result) {
  const value = make("dd", { class: "value" }, inline(result.value));
  return make("dl", { class: "result" }, make("dt", {}, result.label), value, make("dd", {}, inline(result.note)));
}
