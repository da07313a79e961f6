// @ts-check
// Finding in a long run: leaves the rows and messages that match, opens what holds a match, and puts all back.
// A module of its own, loaded when it is first used.

import {
  div,
  focused,
  h,
  makeButton,
  prevent,
  sanitized,
  setClass,
  setLabel,
  setText,
  span,
} from "./dom.js";
import { makeTimer, nextFrame, on, onClick, onInput } from "./lifetime.js";

/**
 * @typedef {import("./wire.js").Item} Item
 * @typedef {import("./items/item.js").CardContext} CardContext
 */

/** Milliseconds after the last key until it is looked for. */
const LOOK_AFTER = 120;
/** Marks on the page; of more nobody sees each. */
const MAX_MARKS = 2000;
/** Rows that are opened in one frame, and frames in which one may take to be drawn. */
const AT_ONCE = 40;
const FRAMES = 60;
/** Elements that open and close with all others. */
const ROWS = ".nba-call, .nba-think, .nba-rest";
/** Elements that are not text of an item. */
const SILENT = new Set(["type", "key", "call", "group", "interrupt", "kind", "state", "tone"]);
/** Questions that wait are never hidden. */
const ASKS = "form, .nba-group";

/** The text of an item, in lower case; an item that changes is another object. @type {WeakMap<Item, string>} */
const said = new WeakMap();

/**
 * The strings in a value, those of sanitized HTML as their text.
 * @param {unknown} value
 * @returns {string[]}
 */
function strings(value) {
  if (typeof value === "string")
    return value.startsWith("data:") ? [] : [/<\w/.test(value) ? textIn(value) : value];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, each]) => (SILENT.has(name) ? [] : strings(each)));
}

/** @param {string} html */
function textIn(html) {
  return sanitized(html).textContent ?? "";
}

/**
 * Whether an item has this text, whatever is folded in it.
 * @param {Item} item
 * @param {string} wanted in small letters
 */
export function says(item, wanted) {
  let text = said.get(item);
  if (text === undefined) {
    text = (
      item.type === "text" ? [textIn(item.blocks.join("") + item.tail), item.raw] : strings(item)
    )
      .join("\n")
      .toLowerCase();
    said.set(item, text);
  }
  return text.includes(wanted);
}

/** The boxes of the cards that have one, by the element of their items. @type {WeakMap<HTMLElement, (first?: string) => void>} */
const boxes = new WeakMap();

/**
 * Opens the box that finds in a card, above its footer; the previous element gets the focus back when that closes.
 * @param {CardContext} card
 * @param {HTMLElement} items the element of its items
 * @param {string} first what was typed before this was there
 */
export default function find(card, items, first = "") {
  const open = boxes.get(items) ?? drawFinder(card, items);
  boxes.set(items, open);
  open(first);
}

/**
 * The box that finds in a card.
 * @param {CardContext} card
 * @param {HTMLElement} items
 */
function drawFinder({ store, signal, say }, items) {
  const { t } = store;
  const box = h("input", { type: "search", class: "nba-seek", dir: "auto", autocomplete: "off" });
  const told = span({ class: "nba-help", role: "status" });
  const button = (
    /** @type {string} */ sign,
    /** @type {string} */ name,
    /** @type {() => void} */ act,
  ) => {
    const made = makeButton("nba-button nba-step", sign);
    made.title = t(name);
    setLabel(made, t(name));
    onClick(signal, made, act);
    return made;
  };
  const link = (/** @type {string} */ name, /** @type {() => void} */ act) => {
    const made = makeButton("nba-link", t(name));
    onClick(signal, made, act);
    return made;
  };
  const el = div(
    { class: "nba-finder", role: "search", hidden: true },
    box,
    told,
    button("↑", "find_before", () => step(-1)),
    button("↓", "find_next", () => step(1)),
    link("expand_all", () => expand(true)),
    link("collapse_all", () => expand(false)),
    button("×", "find_close", () => close()),
  );
  setLabel(box, t("find_in"));
  box.placeholder = t("find_in");
  const due = makeTimer(signal);
  /** @type {string[]} Keys of what matches, in order. */
  let found = [];
  let wanted = "";
  let at = -1;
  /** @type {Set<HTMLDetailsElement>} What was opened to show a match. */
  const opened = new Set();
  /** @type {HTMLElement|null} */
  let before = null;
  let unfolding = false;

  const elementOf = (/** @type {string} */ key) =>
    /** @type {HTMLElement|null} */ (items.querySelector(`[data-key="${CSS.escape(key)}"]`));

  const open = (/** @type {HTMLDetailsElement} */ details) => {
    if (details.open) return;
    details.open = true;
    opened.add(details);
  };
  const restore = () => {
    for (const details of opened) details.open = false;
    opened.clear();
  };

  /** Finds again, as the text or the run has changed. */
  const look = () => {
    const all = store.view?.items ?? [];
    found = wanted ? all.filter((item) => says(item, wanted)).map(({ key }) => key) : [];
    at = Math.min(at, found.length - 1);
    filter();
    tell();
    mark();
  };
  /** Leaves what matches, and what is around it. */
  const filter = () => {
    const keys = new Set(found);
    const keep = (/** @type {Element} */ row) =>
      !wanted || keys.has(row.getAttribute("data-key") ?? "");
    for (const row of items.children) {
      const stretch = row.matches(".nba-stretch");
      const inside = stretch && (!wanted || holds(row, keys));
      setClass(row, "nba-unfound", !(keep(row) || inside || row.matches(ASKS)));
      for (const each of stretch ? row.querySelectorAll(".nba-call") : [])
        setClass(each, "nba-unfound", !keep(each));
    }
  };
  /** Whether a folded stretch has one of these: its rows need not be drawn. @param {Element} row @param {Set<string>} keys */
  const holds = (row, keys) => stretchOf(row).some((key) => keys.has(key));
  /** The keys of a stretch's calls: its own has the first. @param {Element} row */
  const stretchOf = (row) => {
    const all = (store.view?.items ?? []).map(({ key }) => key);
    const first = all.indexOf((row.getAttribute("data-key") ?? "").slice(2));
    return all.slice(first, first + Number(row.getAttribute("data-n")));
  };
  const tell = () => {
    const n = found.length;
    const text = at < 0 ? t(n ? "found" : "found_none", { n }) : t("found_at", { i: at + 1, n });
    setText(told, wanted && text);
  };
  /** Marks the words that are seen. */
  const mark = () => {
    setClass(items, "nba-finding", !!wanted);
    if (!CSS.highlights) return;
    const ranges = wanted ? rangesOf(items, wanted) : [];
    const key = found[at];
    const current = key === undefined ? null : elementOf(key);
    CSS.highlights.set("nba-found", new Highlight(...ranges));
    const here = ranges.filter(({ startContainer }) => current?.contains(startContainer));
    CSS.highlights.set("nba-found-here", new Highlight(...here));
  };

  /**
   * Goes to the next match, or to the one before.
   * @param {-1|1} by
   */
  const step = (by) => {
    due.stop();
    if (box.value.trim().toLowerCase() !== wanted) typed();
    if (!found.length) return;
    at = (Math.max(at, by < 0 ? 0 : -1) + by + found.length) % found.length;
    restore();
    tell();
    show(found[at] ?? "", FRAMES);
  };
  /**
   * Shows a match, once it is drawn: what is folded around it opens, and it too where its line does not say it.
   * @param {string} key
   * @param {number} frames
   */
  const show = (key, frames) => {
    const row = elementOf(key);
    if (row) {
      unfold(row);
      filter();
      mark();
      (firstMark(row) ?? row).scrollIntoView({ block: "nearest" });
      return;
    }
    for (const stretch of items.querySelectorAll(".nba-stretch"))
      if (stretchOf(stretch).includes(key)) open(/** @type {HTMLDetailsElement} */ (stretch));
    if (frames > 0) nextFrame(signal, () => found[at] === key && show(key, frames - 1));
  };
  /** @param {HTMLElement} row */
  const unfold = (row) => {
    const around = row.parentElement?.closest("details");
    if (around && items.contains(around)) open(around);
    const parts = [row, ...row.querySelectorAll("details")];
    for (const part of parts) {
      const details = /** @type {HTMLDetailsElement} */ (part);
      const line = part.querySelector(":scope > summary")?.textContent?.toLowerCase() ?? "";
      const whole = part.textContent?.toLowerCase() ?? "";
      if (part.matches("details") && whole.includes(wanted) && !line.includes(wanted))
        open(details);
    }
  };
  const firstMark = (/** @type {HTMLElement} */ row) =>
    rangesOf(row, wanted)
      .map(({ startContainer }) => startContainer.parentElement)
      .find((part) => part?.checkVisibility());

  /** Opens or closes every row, some in a frame. @param {boolean} all */
  const expand = (all) => {
    opened.clear();
    unfolding = all;
    const rows = () => /** @type {HTMLDetailsElement[]} */ ([...items.querySelectorAll(ROWS)]);
    const go = () => {
      const left = rows().filter(
        (row) => row.open !== unfolding && row.matches("details:not([hidden])"),
      );
      for (const row of left.slice(0, AT_ONCE)) row.open = unfolding;
      if (left.length) nextFrame(signal, go);
      else say(t(unfolding ? "expanded" : "collapsed"));
    };
    go();
  };
  const typed = () => {
    wanted = box.value.trim().toLowerCase();
    at = -1;
    restore();
    look();
    el.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    wanted = box.value = "";
    unfolding = false;
    typed();
    el.hidden = true;
    before?.focus();
  };

  onInput(signal, box, () => due.start(LOOK_AFTER, typed));
  on(signal, el, "keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.target === box) step(event.shiftKey ? -1 : 1);
    else return;
    prevent(event);
  });
  store.listen((event) => {
    if (event.type === "view" && wanted) look();
  }, signal);
  const toggled = () => {
    if (!wanted) return;
    filter();
    mark();
  };
  on(signal, items, "toggle", toggled, true);
  items.parentElement?.querySelector(".nba-footer")?.before(el);
  return (first = "") => {
    before = focused();
    el.hidden = false;
    box.focus();
    box.select();
    if (!first) return;
    box.value = first;
    typed();
  };
}

/**
 * The places of the text, as far as each is within one piece of text.
 * @param {HTMLElement} root
 * @param {string} wanted
 */
function rangesOf(root, wanted) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  /** @type {Range[]} */
  const ranges = [];
  while (ranges.length < MAX_MARKS && walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue; // a letter that has more than one small one
    for (
      let from = text.indexOf(wanted);
      from >= 0;
      from = text.indexOf(wanted, from + wanted.length)
    ) {
      const range = new Range();
      range.setStart(node, from);
      range.setEnd(node, from + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}
