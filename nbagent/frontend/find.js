// @ts-check
// The search in a long run: it shows only the rows and messages that match, opens what contains the match, and
// restores everything afterwards. This module is loaded when it is first used.

import {
  div,
  focused,
  h,
  isComposing,
  makeButton,
  prevent,
  sanitized,
  setClass,
  setLabel,
  setText,
  span,
} from "./dom.js";
import { makeTimer, nextFrame, on, onClick, onInput } from "./lifetime.js";

/** @import { CardContext } from "./items/item.js" */
/** @import { Item } from "./wire.js" */

/** Milliseconds after the last key until the search starts. */
const LOOK_AFTER = 120;
/** The maximum number of marks on the page. */
const MAX_MARKS = 2000;
/** Rows that are opened in one frame, and frames to wait until a row is drawn. */
const AT_ONCE = 40;
const FRAMES = 60;
/** Elements that `expand_all` and `collapse_all` open and close. */
const ROWS = ".nba-call, .nba-think, .nba-rest";
/** Keys of an item whose values are not shown as text. */
const NO_TEXT = new Set(["type", "key", "call", "group", "interrupt", "kind", "state", "tone"]);
/** Questions that wait are never hidden. */
const ASKS = "form, .nba-group";

/** The text of an item, in lower case; an item that changes is another object. @type {WeakMap<Item, string>} */
const itemTexts = new WeakMap();

/**
 * The strings in a value, those of sanitized HTML as their text.
 * @param {unknown} value
 * @returns {string[]}
 */
function strings(value) {
  if (typeof value === "string")
    return value.startsWith("data:") ? [] : [/<\w/.test(value) ? textIn(value) : value];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, each]) => (NO_TEXT.has(name) ? [] : strings(each)));
}

/** @param {string} html */
function textIn(html) {
  return sanitized(html).textContent ?? "";
}

/**
 * Whether an item has this text, also in its folded parts.
 * @param {Item} item
 * @param {string} wanted in lower case
 */
export function hasText(item, wanted) {
  let text = itemTexts.get(item);
  if (text === undefined) {
    text = (
      item.type === "text" ? [textIn(item.blocks.join("") + item.tail), item.raw] : strings(item)
    )
      .join("\n")
      .toLowerCase();
    itemTexts.set(item, text);
  }
  return text.includes(wanted);
}

/** The functions that open the search boxes, by the element of the card's items. @type {WeakMap<HTMLElement, (first?: string) => void>} */
const boxes = new WeakMap();

/**
 * Opens the search box of a card, above its footer. When it is closed, the previous element gets the focus
 * back.
 * @param {CardContext} card
 * @param {HTMLElement} items the element of its items
 * @param {string} first the text that was typed before the box was there
 */
export default function find(card, items, first = "") {
  const open = boxes.get(items) ?? drawFinder(card, items);
  boxes.set(items, open);
  open(first);
}

/**
 * Draws the search box of a card.
 * @param {CardContext} card
 * @param {HTMLElement} items
 */
function drawFinder({ store, signal, say }, items) {
  const { t } = store;
  const box = h("input", { type: "search", class: "nba-seek", dir: "auto", autocomplete: "off" });
  const statusEl = span({ class: "nba-help", role: "status" });
  const makeStep = (
    /** @type {string} */ sign,
    /** @type {string} */ name,
    /** @type {() => void} */ act,
  ) => {
    const stepButton = makeButton("nba-button nba-step", sign);
    stepButton.title = t(name);
    setLabel(stepButton, t(name));
    onClick(signal, stepButton, act);
    return stepButton;
  };
  const makeLink = (/** @type {string} */ name, /** @type {() => void} */ act) => {
    const linkButton = makeButton("nba-link", t(name));
    onClick(signal, linkButton, act);
    return linkButton;
  };
  const el = div(
    { class: "nba-finder", role: "search", hidden: true },
    box,
    statusEl,
    makeStep("↑", "find_before", () => step(-1)),
    makeStep("↓", "find_next", () => step(1)),
    makeLink("expand_all", () => expand(true)),
    makeLink("collapse_all", () => expand(false)),
    makeStep("×", "find_close", () => close()),
  );
  setLabel(box, t("find_in"));
  box.placeholder = t("find_in");
  const timer = makeTimer(signal);
  /** @type {string[]} The keys of the items that match, in order. */
  let found = [];
  let query = "";
  let position = -1;
  /** @type {Set<HTMLDetailsElement>} The elements that were opened to show a match. */
  const opened = new Set();
  /** @type {HTMLElement|null} */
  let previousFocus = null;
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

  /** Searches again after the text or the run has changed. */
  const search = () => {
    const all = store.view?.items ?? [];
    found = query ? all.filter((item) => hasText(item, query)).map(({ key }) => key) : [];
    position = Math.min(position, found.length - 1);
    filter();
    showCount();
    mark();
  };
  /** Hides the rows that neither match nor contain a match. */
  const filter = () => {
    const keys = new Set(found);
    const keep = (/** @type {Element} */ row) =>
      !query || keys.has(row.getAttribute("data-key") ?? "");
    for (const row of items.children) {
      const stretch = row.matches(".nba-stretch");
      const inside = stretch && (!query || holds(row, keys));
      setClass(row, "nba-unfound", !(keep(row) || inside || row.matches(ASKS)));
      for (const each of stretch ? row.querySelectorAll(".nba-call") : [])
        setClass(each, "nba-unfound", !keep(each));
    }
  };
  /** Whether a folded stretch has one of these keys: its rows need not be drawn. @param {Element} row @param {Set<string>} keys */
  const holds = (row, keys) => stretchOf(row).some((key) => keys.has(key));
  /** The keys of a stretch's calls; the stretch's own key contains the first of these. @param {Element} row */
  const stretchOf = (row) => {
    const all = (store.view?.items ?? []).map(({ key }) => key);
    const first = all.indexOf((row.getAttribute("data-key") ?? "").slice(2));
    return all.slice(first, first + Number(row.getAttribute("data-n")));
  };
  const showCount = () => {
    const n = found.length;
    const text =
      position < 0 ? t(n ? "found" : "found_none", { n }) : t("found_at", { i: position + 1, n });
    setText(statusEl, query && text);
  };
  /** Highlights the visible matches. */
  const mark = () => {
    setClass(items, "nba-finding", !!query);
    if (!CSS.highlights) return;
    const ranges = query ? rangesOf(items, query) : [];
    const key = found[position];
    const currentRow = key === undefined ? null : elementOf(key);
    CSS.highlights.set("nba-found", new Highlight(...ranges));
    const here = ranges.filter(({ startContainer }) => currentRow?.contains(startContainer));
    CSS.highlights.set("nba-found-here", new Highlight(...here));
  };

  /**
   * Goes to the next match, or to the one before.
   * @param {-1|1} by
   */
  const step = (by) => {
    timer.stop();
    if (box.value.trim().toLowerCase() !== query) searchTyped();
    if (!found.length) return;
    position = (Math.max(position, by < 0 ? 0 : -1) + by + found.length) % found.length;
    restore();
    showCount();
    show(found[position] ?? "", FRAMES);
  };
  /**
   * Shows a match once it is drawn. The elements around it are opened, and the row itself if its summary does
   * not contain the text.
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
    if (frames > 0) nextFrame(signal, () => found[position] === key && show(key, frames - 1));
  };
  /** @param {HTMLElement} row */
  const unfold = (row) => {
    const around = row.parentElement?.closest("details");
    if (around && items.contains(around)) open(around);
    const parts = [row, ...row.querySelectorAll("details")];
    for (const part of parts) {
      const details = /** @type {HTMLDetailsElement} */ (part);
      const line = part.querySelector(":scope > summary")?.textContent?.toLowerCase() ?? "";
      const text = part.textContent?.toLowerCase() ?? "";
      if (part.matches("details") && text.includes(query) && !line.includes(query)) open(details);
    }
  };
  const firstMark = (/** @type {HTMLElement} */ row) =>
    rangesOf(row, query)
      .map(({ startContainer }) => startContainer.parentElement)
      .find((part) => part?.checkVisibility());

  /** Opens or closes every row, some rows in each frame. @param {boolean} all */
  const expand = (all) => {
    opened.clear();
    unfolding = all;
    const rows = () => /** @type {HTMLDetailsElement[]} */ ([...items.querySelectorAll(ROWS)]);
    const expandSome = () => {
      const left = rows().filter(
        (row) => row.open !== unfolding && row.matches("details:not([hidden])"),
      );
      for (const row of left.slice(0, AT_ONCE)) row.open = unfolding;
      if (left.length) nextFrame(signal, expandSome);
      else say(t(unfolding ? "expanded" : "collapsed"));
    };
    expandSome();
  };
  const searchTyped = () => {
    query = box.value.trim().toLowerCase();
    position = -1;
    restore();
    search();
    el.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    query = box.value = "";
    unfolding = false;
    searchTyped();
    el.hidden = true;
    previousFocus?.focus();
  };

  onInput(signal, box, () => timer.start(LOOK_AFTER, searchTyped));
  on(signal, el, "keydown", (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && event.target === box) step(event.shiftKey ? -1 : 1);
    else return;
    prevent(event);
  });
  store.listen((event) => {
    if (event.type === "view" && query) search();
  }, signal);
  const onToggle = () => {
    if (!query) return;
    filter();
    mark();
  };
  on(signal, items, "toggle", onToggle, true);
  items.parentElement?.querySelector(".nba-footer")?.before(el);
  return (first = "") => {
    previousFocus = focused();
    el.hidden = false;
    box.focus();
    box.select();
    if (!first) return;
    box.value = first;
    searchTyped();
  };
}

/**
 * The ranges of the text, each within one text node.
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
    if (text.length !== node.data.length) continue; // a letter whose lower case has another length
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
