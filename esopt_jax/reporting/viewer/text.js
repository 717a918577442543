// Elements and text. Whatever a run recorded gets onto the page through `textContent` and nothing else.

const FOLD = 4000;
const INLINE = 400;
const MARKED = 2000;
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** An element: attributes by name (functions are listeners), children are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** What stands for a character that would not be seen, or would move others: its escape, as `esopt play` writes it. */
function shown(char) {
  const code = char.codePointAt(0), short = { "\r": "\\r" }[char];
  const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return short || "\\" + letter + code.toString(16).padStart(digits, "0");
}

/** Text without anything that would not be seen: one string. */
function visible(text) {
  return String(text).replace(HIDDEN, (char) => (char === "\n" || char === "\t" ? char : shown(char)));
}

/** Put text into an element so that all of it is seen; what stands for a hidden character is marked as such. */
function fill(element, text) {
  const hidden = (text.match(HIDDEN) || []).filter((char) => char !== "\n" && char !== "\t").length;
  if (hidden === 0 || hidden > MARKED) {
    element.textContent = visible(text);
    return element;
  }
  element.textContent = "";
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match[0] === "\n" || match[0] === "\t") continue;
    element.append(text.slice(from, match.index), make("span", { class: "hidden-char" }, shown(match[0])));
    from = match.index + match[0].length;
  }
  element.append(text.slice(from));
  return element;
}

/** Inline text of any origin, which cannot reorder what stands beside it; the rest of a very long one is left out. */
function inline(text) {
  const whole = String(text);
  return fill(make("bdi"), whole.length > INLINE ? whole.slice(0, INLINE) + "\u2026" : whole);
}

/** A block of text of any origin; a long one is folded. */
function block(text, kind) {
  const pre = make("pre", { class: "said " + kind, tabindex: text.length > 400 ? 0 : undefined });
  if (text.length <= FOLD) return fill(pre, text);
  let cut = FOLD;
  if (/[\ud800-\udbff]/.test(text[cut - 1])) cut -= 1; // not through the middle of a character
  fill(pre, text.slice(0, cut));
  const open = () => {
    fill(pre, text);
    button.remove();
    pre.focus();
  };
  const label = "show all " + count(text.length) + " characters";
  const button = make("button", { type: "button", class: "more", click: open }, label);
  return make("div", { class: "folded" }, pre, button);
}

/** A number for people. */
function number(value, digits = 3) {
  if (value === null || value === undefined) return "none";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}

/** A whole number with separators. */
function count(value) {
  return value.toLocaleString("en-US");
}
