// One episode: its title, then turn by turn what the agent read and wrote, and what came of it.

const TURNS = 40;

/** The element of an episode, filled when its turns are there; `headed` is put above. */
function drawEpisode(episode, headed) {
  const body = make("div", { class: "turns" });
  const where = `case ${episode.case}, ${who(episode)}, ${when(episode)}, episode ${episode.episode}`;
  const title = make("h2", {}, inline(episode.taskId), " ", badge(episode.outcome));
  const side = headed ? make("p", { class: "side" }, headed) : null;
  const article = make("article", { class: "episode" }, side, title, make("p", { class: "where" }, where), body);
  if (episode.error !== undefined) article.insertBefore(block(episode.error, "error"), body);
  turnsOf(episode).then(
    (held) => drawTurns(body, episode, held),
    (fault) => body.replaceChildren(make("p", { class: "notice" }, "These turns cannot be read: " + visible(fault))),
  );
  return article;
}

function who(episode) {
  return episode.member < 0 ? "unperturbed model" : "member " + episode.member;
}

function when(episode) {
  return episode.held_out ? `held-out after ${episode.generation} updates` : "generation " + episode.generation;
}

/** What shows an episode in a terminal. */
function playCommand(episode) {
  const column = head.columns;
  const same = (i) => column.held_out[i] === episode.held_out && column.generation[i] === episode.generation;
  let place = 0;
  for (let i = 0; i < episode.index; i += 1) if (same(i)) place += 1;
  const name = (episode.held_out ? "eval_" : "gen_") + String(episode.generation).padStart(5, "0");
  return `esopt play --file ${head.folder}/trajectories/${name}.jsonl.gz --index ${place}`;
}

function badge(outcome) {
  return make("span", { class: "badge " + outcome }, outcome);
}

function drawTurns(body, episode, held) {
  body.replaceChildren();
  if (held === null) {
    const command = make("p", {}, inline(playCommand(episode)));
    body.append(make("div", { class: "notice" }, "This run is too long for one page. To read this episode:", command));
  }
  const turns = held === null ? [] : held.turns;
  let drawn = 0;
  const more = make("button", { type: "button", class: "more" });
  const draw = () => {
    const until = Math.min(turns.length, drawn + TURNS);
    for (; drawn < until; drawn += 1) {
      const before = drawn ? turns[drawn - 1].board : held.start;
      more.before(drawTurn(turns[drawn], drawn + 1, before, held.start));
    }
    more.textContent = `show turns ${drawn + 1} to ${Math.min(turns.length, drawn + TURNS)} of ${turns.length}`;
    more.hidden = drawn === turns.length;
  };
  body.append(more);
  draw();
  more.addEventListener("click", draw);
  const sum = `reward ${number(episode.reward)} in ${episode.turns} turn${episode.turns === 1 ? "" : "s"}`;
  body.append(make("p", { class: "verdict" }, badge(episode.outcome), " ", sum));
  body.dataset.turns = turns.length;
  performance.mark("turns");
}

function drawTurn(turn, place, before, start) {
  const flags = [];
  if (turn.invalid) flags.push(make("span", { class: "flag bad" }, "invalid"));
  if (turn.truncated) flags.push(make("span", { class: "flag" }, "cut at rollout.max_new_tokens"));
  if (turn.dropped) flags.push(make("span", { class: "flag" }, count(turn.dropped) + " characters not in this page"));
  const reward = make("span", { class: turn.reward ? "paid" : "" }, "reward " + number(turn.reward));
  const title = make("h3", {}, "Turn " + place, ...flags, reward);
  const words = make("div", { class: "words" }, drawPrompt(turn), make("p", { class: "label" }, wrote(turn)));
  words.append(block(turn.text, turn.invalid ? "answer bad" : "answer"));
  const facts = Object.entries(turn.info).map(([name, value]) => fact(name, value));
  if (facts.length) words.append(make("dl", { class: "info" }, ...facts));
  const beside = turn.board === null ? null : drawBoard(turn.board, before, start, place);
  return make("section", { class: "turn" }, title, make("div", { class: "beside" }, words, beside));
}

function wrote(turn) {
  return `wrote ${count(turn.wrote)} token${turn.wrote === 1 ? "" : "s"} in ${number(turn.seconds)} s`;
}

function drawPrompt(turn) {
  const label = `read ${count(turn.read)} token${turn.read === 1 ? "" : "s"}`;
  if (turn.prompt === null) return make("p", { class: "label" }, label);
  return make(
    "details",
    { open: turn.prompt.length <= 600 },
    make("summary", { class: "label" }, label),
    block(turn.prompt, "prompt"),
  );
}

function fact(name, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return make("div", {}, make("dt", {}, inline(name)), make("dd", {}, text.length > 200 ? block(text, "") : inline(text)));
}

/** A board as a grid of cells where its rows are equally long, otherwise as text. */
function drawBoard(board, before, start, place) {
  const rows = board.split("\n").map((row) => [...row]);
  const width = rows[0].length;
  if (rows.length > 25 || width > 25 || rows.some((row) => row.length !== width)) return block(board, "board-text");
  const [was, first] = [before, start].map((other) => (other === null ? null : other.split("\n").map((row) => [...row])));
  const box = /^[1-9.\n]*$/.test(board) && rows.length === width ? { 4: 2, 9: 3 }[width] : undefined;
  const bad = box ? conflicts(rows, box) : new Set();
  const table = make("table", { class: "board" + (box ? " boxed-" + box : "") });
  const body = make("tbody");
  table.append(make("caption", {}, "after turn " + place), body);
  rows.forEach((row, r) => {
    const line = make("tr");
    row.forEach((cell, c) => {
      const classes = [];
      if (first && first[r] && first[r][c] === cell) classes.push("given");
      if (was && was[r] && was[r][c] !== cell) classes.push("new");
      if (bad.has(r * width + c)) classes.push("clash");
      line.append(fill(make("td", classes.length ? { class: classes.join(" ") } : {}), cell === "." ? " " : cell));
    });
    body.append(line);
  });
  return table;
}

/** Cells of a Sudoku whose digit stands twice in a row, column or box. */
function conflicts(rows, box) {
  const seen = new Map(), bad = new Set();
  rows.forEach((row, r) => row.forEach((digit, c) => {
    if (digit === ".") return;
    for (const unit of ["r" + r, "c" + c, "b" + Math.floor(r / box) + "," + Math.floor(c / box)]) {
      const key = unit + ":" + digit, cell = r * rows.length + c;
      if (seen.has(key)) bad.add(cell).add(seen.get(key));
      else seen.set(key, cell);
    }
  }));
  return bad;
}
