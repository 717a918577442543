"use strict";

// What the page holds: `head`, read when it opens, and packs of turns, each opened when an episode of it is looked at.

const head = JSON.parse(document.getElementById("head").textContent);
const total = (head.columns.turns || []).length;
const PACKS_KEPT = 6;
const packs = new Map();

/** Episode number `index` as an object. */
function episodeAt(index) {
  const episode = { index };
  for (const name in head.columns) episode[name] = head.columns[name][index];
  episode.taskId = head.tasks[episode.task];
  episode.error = head.errors[index];
  return episode;
}

/** Its turns, and the board before the first: a promise; null when the page does not hold them. */
async function turnsOf(episode) {
  if (episode.pack < 0) return null;
  return (await openPack(episode.pack))[episode.place];
}

/** The episodes of a pack. Those opened last are kept. */
function openPack(number) {
  let pack = packs.get(number);
  packs.delete(number);
  if (!pack) pack = unpack(document.getElementById("pack-" + number).textContent, head.sizes[number]).then(JSON.parse);
  packs.set(number, pack);
  if (packs.size > PACKS_KEPT) packs.delete(packs.keys().next().value);
  return pack;
}

/** Text from gzip and base64; it must come to exactly `size` bytes. */
async function unpack(text, size) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const whole = new Uint8Array(size);
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new Error("a pack of turns is larger than this page says");
    whole.set(value, at);
    at += value.length;
  }
  if (at !== size) throw new Error("a pack of turns is cut short");
  return new TextDecoder().decode(whole);
}
