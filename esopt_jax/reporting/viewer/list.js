// A list of any length of which only what can be seen is on the page.

const ROW = 30;
const SPARE = 8;

/** `draw(item)` gives the children of a row, `choose(item)` is told what was selected. */
class LongList {
  constructor(label, draw, choose) {
    this.draw = draw;
    this.choose = choose;
    this.items = [];
    this.selected = -1;
    this.rows = make("div", { class: "rows", role: "presentation" });
    this.element = make("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": label }, this.rows);
    this.element.addEventListener("scroll", () => this.render());
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("click", (event) => {
      const row = event.target.closest("[data-place]");
      if (row) this.pick(Number(row.dataset.place));
    });
    new ResizeObserver(() => this.render()).observe(this.element);
  }

  /** Show other items; `selected` is the place of the one that is open, -1 for none. */
  show(items, selected) {
    this.items = items;
    this.selected = selected;
    this.rows.style.height = items.length * ROW + "px";
    this.reveal();
    this.render();
  }

  pick(place) {
    if (place < 0 || place >= this.items.length) return;
    this.selected = place;
    this.reveal();
    this.render();
    this.choose(this.items[place]);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 1);
    const last = this.items.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -last - 1, End: last + 1 };
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.pick(Math.max(0, Math.min(last, this.selected + moves[event.key])));
  }

  /** Scroll so that the selected row is seen. */
  reveal() {
    if (this.selected < 0) return;
    const top = this.selected * ROW, view = this.element;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + ROW > view.scrollTop + view.clientHeight) view.scrollTop = top + ROW - view.clientHeight;
  }

  render() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - SPARE);
    const seen = Math.ceil(this.element.clientHeight / ROW) + 2 * SPARE;
    const drawn = [];
    for (let place = first; place < Math.min(this.items.length, first + seen); place += 1) {
      const row = make("div", { class: "row", role: "option", id: "row-" + place, "data-place": place });
      row.setAttribute("aria-selected", String(place === this.selected));
      row.setAttribute("aria-setsize", this.items.length);
      row.setAttribute("aria-posinset", place + 1);
      row.style.top = place * ROW + "px";
      row.append(...this.draw(this.items[place]));
      drawn.push(row);
    }
    this.rows.replaceChildren(...drawn);
    if (this.selected >= 0) this.element.setAttribute("aria-activedescendant", "row-" + this.selected);
    else this.element.removeAttribute("aria-activedescendant");
  }
}
