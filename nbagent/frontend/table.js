// @ts-check
// A table of many rows: its progress, filters and buttons, the questions that are answered together, and only the
// visible rows. The kernel filters and sorts, as only the kernel has all rows. An inbox has only the filters.

import { drawAsks, setOptions } from "./answer-many.js";
import { attr, div, expand, h, makeButton, setText, showText, span, words } from "./dom.js";
import { keepKeysInside } from "./focus.js";
import { worded } from "./format.js";
import {
  every,
  makeTimer,
  nextFrame,
  on,
  onAbort,
  onChange,
  onClick,
  onInput,
} from "./lifetime.js";
import { watchKernel } from "./lost.js";
import withChannel from "./page.js";
import { receiveAlways } from "./receive.js";
import { BEYOND, HEIGHT, KEYS, ROWS, SEEN, setChildren } from "./rows.js";

/** @typedef {[key: string, name: string, status: string, cells: string[]]} Row */
/**
 * The kernel's `TableView.window`: empty for a card that draws its rows itself.
 * @typedef {{
 *   columns: [name: string, label: string][], from: number, total: number, rows: Row[], opened: string,
 *   by: string, order: "ascending"|"descending", none: string,
 * }} Window
 */
/** @typedef {[name: string, label: string, choices: [value: string, label: string][]|null]} Filter */
/** @typedef {[place: string, action: string, label: string, sure: string]} Button */
/** @typedef {{label: string, counts: [string, string, number][], total: number, text: string}} Progress */
/**
 * The kernel's `TableView.state`.
 * @typedef {{
 *   filters: Filter[], found: string, buttons: Button[], progress: Progress|null, wanted: Record<string, string>,
 *   asks: import("./answer-many.js").Asks|null,
 * }} State
 */
/**
 * The common context of the parts.
 * @typedef {{
 *   model: any, send: (message: object) => void, signal: AbortSignal, state: () => State,
 *   t: import("./items/covers.js").Texts, want: (filters: Record<string, string>) => void,
 * }} TableContext
 */

/** Milliseconds after the last step of a scroll, after the last key, and between reports that the page shows rows. */
const STILL = 60;
const LOOK_AFTER = 150;
const SHOWN = 15_000;
/** The messages that no person sends. @type {Set<unknown>} */
const UNASKED = new Set(["hello", "shown"]);
/** Milliseconds within which a second press of a button that asks counts. */
const SURE = 4000;
/** Frames to wait for the card of a row, or for the card beside the filters. */
const FRAMES = 240;
/** The width of a column that takes what the others leave, and the most characters that each of the others shows. */
const FILL = "minmax(0, 1fr)";
const MOST = 16;
/** The width of the columns of a narrow table, after the status. */
const NARROW = /** @type {Record<string, string>} */ ({
  key: "minmax(8ch, 24%)",
  agent: "minmax(8ch, 24%)",
  result: FILL,
  prompt: FILL,
});

/** The unused id and the repeated class let these rules win over the card's rules for tables and buttons. */
const ROOT = ".nba-table-card.nba-table-card:not(#nba)";
const STYLE = `
${ROOT} {
  --done: color-mix(in srgb, var(--nba-good) 78%, var(--nba-page));
  --asks: color-mix(in srgb, var(--nba-warn) 84%, var(--nba-page));
  --runs: color-mix(in srgb, var(--nba-link) 74%, var(--nba-page));
  --bad: color-mix(in srgb, var(--nba-bad) 80%, var(--nba-page));
  --off: color-mix(in srgb, var(--nba-ink) 40%, var(--nba-page));
  display: flex; flex-direction: column; gap: 12px; margin-top: 0; padding: 0 16px 14px; border-top: 0; border-radius: 0 0 10px 10px; font: 13px/20px var(--nba-font);
${ROWS}
  &.t-bare { padding: 0 16px 12px; border: 0; }
  & .t-bar { display: flex; gap: 1px; height: 8px; border-radius: 4px; overflow: hidden; background: var(--nba-line); }
  & .t-bar i { flex: 0 0 auto; min-width: 0; transition: width .3s; }
  & .t-bar i[data-of]:not([style*="width: 0"]) { min-width: 2px; }
  & :is(i, b)[data-of="completed"] { background: var(--done); }
  & :is(i, b):is([data-of="interrupted"], [data-of="stuck"]) { background: var(--asks); }
  & :is(i, b)[data-of="running"] { background: var(--runs); }
  & :is(i, b)[data-of="failed"] { background: var(--bad); }
  & :is(i, b)[data-of="cancelled"] { background: var(--off); }
  & b[data-of="left"] { background: var(--nba-line); }
  & .t-progress { display: grid; gap: 8px; }
  & .t-chips { display: flex; flex-wrap: wrap; gap: 6px; margin-inline-end: auto; }
  & .t-chip { display: inline-flex; align-items: center; gap: 6px; min-height: 0; margin: 0; padding: 1px 9px 1px 8px; border: 1px solid var(--nba-line); border-radius: 12px; background: none; color: inherit; font: 12px/20px var(--nba-font); font-variant-numeric: tabular-nums; cursor: pointer; }
  & .t-chip b { width: 8px; height: 8px; border-radius: 50%; }
  & .t-chip:hover { background: var(--nba-fill); }
  & .t-chip[aria-pressed="true"] { border-color: var(--nba-accent); background: color-mix(in srgb, var(--nba-accent) 14%, var(--nba-page)); font-weight: 600; }
  & select { width: auto; max-width: 15em; }
  & .t-button[data-look="main"] { border-color: var(--nba-accent); background: var(--nba-accent); color: var(--nba-on-accent); }
  & .t-button[data-look="main"]:hover:not(:disabled) { background: color-mix(in srgb, var(--nba-accent) 86%, #000); }
  & .t-button[data-look="sure"] { border-color: var(--nba-bad); color: var(--nba-bad); }
  & .t-asks { display: flex; flex-direction: column; gap: 8px; margin: 0; padding: 10px 12px 12px; border: 1px solid color-mix(in srgb, var(--nba-warn) 45%, var(--nba-line)); border-radius: 8px; background: color-mix(in srgb, var(--nba-warn) 6%, var(--nba-page)); }
  & .t-title { margin: 0; padding: 0; color: var(--nba-warn-ink); font: 600 13px/20px var(--nba-font); }
  & label { display: inline-flex; align-items: center; gap: 6px; margin: 0; white-space: nowrap; color: inherit; font: inherit; }
  & label > span { flex: none; }
  & .t-value { flex: 0 1 8em; min-width: 5em; width: 8em; }
  & .t-reason { flex: 1 1 14em; min-width: 0; }
  & .t-look { display: grid; gap: 6px; margin: 0; padding-top: 8px; border-top: 1px solid var(--nba-line); }
  & .t-space .t-row:hover { background: var(--nba-fill); }
  & .t-space .t-row[data-open] { background: color-mix(in srgb, var(--nba-accent) 12%, var(--nba-page)); }
  & [data-col="number"] { color: var(--nba-soft); }
  & :is([data-col="number"], [data-col="cost"]) { text-align: end; }
  & :is([data-col="number"], [data-col="cost"], [data-col="updated"], [data-col="deadline"]) { font-variant-numeric: tabular-nums; }
  & .t-head :is([data-col="number"], [data-col="cost"]) .t-sort { justify-content: flex-end; }
  & .t-space :is([data-col="key"], [data-col="id"]) { font: 12px/20px var(--nba-mono); }
  & [data-col="open"] { padding: 0 10px 0 0; text-align: end; }
  & [data-col="open"] .t-button { min-height: 0; padding: 1px 9px; font: 12px/20px var(--nba-font); }
  & :is([data-status="interrupted"], [data-status="stuck"]) [data-col="status"] { color: var(--nba-warn-ink); font-weight: 600; }
  & :is([data-status="failed"], [data-status="unreadable"]) :is([data-col="status"], [data-col="result"]) { color: var(--nba-bad); }
  & [data-status="completed"] [data-col="status"] { color: var(--nba-good-ink); }
  & [data-status="running"] [data-col="status"] { color: var(--nba-link); }
  & .t-lost { color: var(--nba-bad); }
}
@container nbagent (max-width: 620px) {
  ${ROOT} {
    & .t-row { grid-template-columns: var(--narrow); }
    & [data-col="status"] { order: -1; }
    & .t-head [data-col="status"] .t-sort { padding: 0 0 0 10px; font-size: 0; }
    & .t-space [data-col="status"] { display: flex; align-items: center; height: 100%; padding: 0 0 0 10px; font-size: 0; }
    & :is(.t-space [data-col="status"], .t-head [data-col="status"] .t-sort)::before { content: ""; flex: none; width: 8px; height: 8px; border-radius: 50%; background: currentColor; }
    & [data-wide] { display: none; }
    & .t-find { flex-basis: 100%; max-width: none; }
    & .t-asks :is(label, select, .t-value) { flex: 1 1 auto; max-width: none; }
    & .t-reason { flex-basis: 100%; max-width: none; }
  }
}
@media (prefers-reduced-motion: reduce) { ${ROOT} .t-bar i { transition: none; } }
@media (forced-colors: active) { ${ROOT} :is(.t-bar i, .t-chip b) { forced-color-adjust: none; } }
`;

/** Whether only a wide table has the column. In a narrow table the status is a point, before the other columns. @param {string} name */
const isWide = (name) => !NARROW[name] && name !== "status";

/** The table, as anywidget defines it. */
export default {
  /** @param {{model: any}} context */
  initialize({ model }) {
    receiveAlways(model);
  },
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} context */
  render({ model: hostModel, el, signal }) {
    /** @type {any} */
    const model = withChannel({ model: hostModel, signal });
    const isBare = !model.get("window").columns;
    const root = div(isBare ? "nba-table-card t-bare" : "nbagent nba-table-card");
    const style = h("style");
    style.textContent = STYLE;
    el.append(style, root);
    const lostEl = span({ class: "t-lost", role: "alert", hidden: true });
    let gone = false;
    const disableAll = () => {
      gone = true;
      showText(lostEl, model.get("labels")["gone"] ?? "");
      for (const each of root.querySelectorAll("button, input, select"))
        attr(each, "disabled", true);
    };
    const kernel = watchKernel(model, signal, disableAll);
    /** @param {object} message */
    const send = (message) => {
      if (gone) return;
      try {
        model.send(message);
        if (!("type" in message && UNASKED.has(message.type))) kernel.pressed();
      } catch {
        disableAll();
      }
    };
    const state = () => /** @type {State} */ (model.get("state"));
    const t = (/** @type {string} */ name, values = {}) =>
      worded(model.get("labels")[name], values);
    /** The filters in this page's controls, once a person has set one. @type {Record<string, string>|null} */
    let wanted = null;
    const want = (/** @type {Record<string, string>} */ filters) => {
      wanted = { ...(wanted ?? state().wanted), ...filters };
      send({ type: "want", filters: wanted });
      table?.toTop();
    };
    const context = { model, send, signal, state, t, want };
    const draws = isBare ? [drawTools] : [drawProgress, drawAsks, drawTools];
    const parts = draws.map((draw) => draw(context));
    const table = isBare ? null : drawTable(context);
    root.append(...parts.map((part) => part.el), ...(table ? [table.el] : []), lostEl);
    const update = () => {
      for (const part of parts) part.update();
      if (isBare) root.hidden = !state().filters.length;
      if (gone) disableAll();
    };
    const reportShown = () =>
      document.visibilityState === "visible" && root.isConnected && send({ type: "shown" });
    const follow = (/** @type {string} */ name, /** @type {() => void} */ act) => {
      model.on(`change:${name}`, act);
      onAbort(signal, () => model.off(`change:${name}`, act));
    };
    follow("state", update);
    follow("covers", update);
    if (table) follow("window", table.update);
    onAbort(signal, () => root.remove());
    every(signal, SHOWN, reportShown);
    on(signal, document, "visibilitychange", reportShown);
    keepKeysInside(root, signal);
    update();
    table?.update();
    if (isBare) moveBelowHeader(root, el, signal);
    send({ type: "hello" });
    reportShown();
  },
};

/**
 * Puts the filters below the head of the card beside them, once that is drawn.
 * @param {HTMLElement} root @param {HTMLElement} el where they were drawn @param {AbortSignal} signal
 */
function moveBelowHeader(root, el, signal, frames = FRAMES) {
  const header = el.closest(".widget-vbox")?.querySelector("section.nbagent > .nba-header");
  if (header) header.after(root);
  else if (frames > 0) nextFrame(signal, () => moveBelowHeader(root, el, signal, frames - 1));
}

/** The progress: a bar, and the number of rows in each state; a press on one shows only those rows. @param {TableContext} about */
function drawProgress({ want, signal, state }) {
  const bar = div({ class: "t-bar", role: "progressbar", "aria-valuemin": 0 });
  const chips = div({ class: "t-chips", role: "group" });
  const statusEl = span("t-soft");
  const el = div("t-progress", bar, div("t-line", chips, statusEl));
  /** @type {Map<string, {part: HTMLElement, chip: HTMLButtonElement, text: HTMLElement}>} */
  const entries = new Map();
  const makePart = (/** @type {string} */ name) => {
    const part = h("i", { "data-of": name });
    const text = span();
    const chip = makeButton("t-chip", h("b", { "data-of": name }), text);
    onClick(signal, chip, () => want({ status: state().wanted["status"] === name ? "" : name }));
    const entry = { part, chip, text };
    entries.set(name, entry);
    return entry;
  };
  const update = () => {
    const { progress, wanted } = state();
    el.hidden = !progress;
    if (!progress) return;
    const { counts, total, label, text } = progress;
    attr(chips, "aria-label", label);
    attr(bar, "aria-label", label);
    attr(bar, "aria-valuemax", total);
    attr(bar, "aria-valuenow", counts.find(([name]) => name === "completed")?.[2] ?? 0);
    for (const { part } of entries.values()) part.style.width = "0";
    for (const [name, words, n] of counts) {
      const { part, chip, text } = entries.get(name) ?? makePart(name);
      part.style.width = `${total ? (100 * n) / total : 0}%`;
      setText(text, words);
      attr(chip, "aria-pressed", String(wanted["status"] === name));
      attr(chip, "disabled", name === "left");
      if (name !== "left" && !part.isConnected) bar.append(part);
    }
    setChildren(
      chips,
      counts.flatMap(([name]) => entries.get(name)?.chip ?? []),
    );
    showText(statusEl, text);
  };
  return { el, update };
}

/** The filters, the number of matching rows, and the buttons for all rows. @param {TableContext} about */
function drawTools({ send, want, signal, state }) {
  const found = span({ class: "t-soft", role: "status" });
  const el = div("t-line", found);
  /** @type {Map<string, {el: HTMLElement, update: (filter: Filter) => void}>} */
  const filters = new Map();
  /** @type {Map<string, {el: HTMLElement, update: (button: Button) => void}>} */
  const buttons = new Map();
  const addSearch = (/** @type {string} */ name) => {
    const input = h("input", { type: "search", class: "t-find" });
    const timer = makeTimer(signal);
    input.value = state().wanted[name] ?? "";
    onInput(signal, input, () => timer.start(LOOK_AFTER, () => want({ [name]: input.value })));
    return {
      el: input,
      update: (/** @type {Filter} */ [, label]) => {
        attr(input, "placeholder", label);
        attr(input, "aria-label", label);
      },
    };
  };
  const addChoice = (/** @type {string} */ name) => {
    const text = span();
    const select = h("select");
    onChange(signal, select, () => want({ [name]: select.value }));
    return {
      el: h("label", "", text, select),
      update: (/** @type {Filter} */ [, label, choices]) => {
        setText(text, label);
        const isNew = !select.options.length;
        setOptions(select, choices ?? [], isNew ? (state().wanted[name] ?? "") : select.value);
      },
    };
  };
  const addButton = () => {
    const button = makeButton("t-button");
    const timer = makeTimer(signal);
    /** @type {Button} */
    let shown = ["", "", "", ""];
    let isSure = false;
    const setSure = (/** @type {boolean} */ isOn) => {
      isSure = isOn;
      attr(button, "data-look", isOn ? "sure" : null);
      setText(button, isOn ? shown[3] : shown[2]);
    };
    onClick(signal, button, () => {
      const [, action, , sure] = shown;
      if (isSure || !sure) send({ type: "press", action });
      setSure(!isSure && sure !== "");
      timer.start(SURE, () => setSure(false));
    });
    on(signal, button, "blur", () => setSure(false));
    return {
      el: button,
      update: (/** @type {Button} */ next) => {
        shown = next;
        setSure(isSure);
      },
    };
  };
  const update = () => {
    const { filters: wantedFilters, buttons: wantedButtons, found: text } = state();
    /** @type {HTMLElement[]} */
    const inOrder = [];
    for (const filter of wantedFilters) {
      const [name, , choices] = filter;
      const entry = filters.get(name) ?? (choices ? addChoice(name) : addSearch(name));
      filters.set(name, entry);
      entry.update(filter);
      inOrder.push(entry.el);
    }
    inOrder.push(found);
    for (const button of wantedButtons) {
      const entry = buttons.get(button[0]) ?? addButton();
      buttons.set(button[0], entry);
      entry.update(button);
      inOrder.push(entry.el);
    }
    setChildren(el, inOrder);
    setText(found, text);
  };
  return { el, update };
}

/** The visible rows, and some beyond them. @param {TableContext} about */
function drawTable({ model, send, signal }) {
  const head = div({ class: "t-row t-head", role: "row", "aria-rowindex": 1 });
  const space = div({ class: "t-space", role: "rowgroup" });
  const scroll = div({ class: "t-scroll" }, space);
  const emptyEl = h("p", { class: "t-none", role: "status", hidden: true });
  const table = div({ class: "t-table", role: "table" }, div({ role: "rowgroup" }, head), scroll);
  const el = div("", table, emptyEl);
  const scrollTimer = makeTimer(signal);
  /** @type {Map<string, {row: HTMLElement, cells: HTMLElement[], button: HTMLButtonElement}>} */
  const rows = new Map();
  /** @type {Map<string, {cell: HTMLElement, text: HTMLElement, mark: HTMLElement}>} */
  const heads = new Map();
  const openHead = div({ role: "cell", "data-col": "open" });
  /** The index of the row that Tab goes to, and whether that row gets the focus once it is drawn. */
  let current = 0;
  let isFocusWanted = false;
  let requested = "";
  /** The names of the drawn columns, and the characters of the longest text that each has shown. */
  let drawn = "";
  const longest = /** @type {Map<string, number>} */ (new Map());

  const currentWindow = () => /** @type {Window} */ (model.get("window"));
  const label = (/** @type {string} */ name) => model.get("labels")[name] ?? "";
  /** Requests the rows that are visible now. */
  const requestRows = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / HEIGHT) - BEYOND);
    const count = Math.ceil(SEEN / HEIGHT) + 2 * BEYOND;
    const key = `${first} ${count}`;
    if (key === requested) return;
    requested = key;
    send({ type: "window", from: first, count });
  };
  on(signal, scroll, "scroll", () => scrollTimer.start(STILL, requestRows));
  /** Shows the first row, as the kernel sends the first rows after a change of the filters or the order. */
  const toTop = () => {
    scroll.scrollTop = 0;
    current = 0;
  };
  const open = (/** @type {string} */ key) => {
    send({ type: "open", key });
    if (currentWindow().opened !== key) scrollToCard(key);
  };
  /** Brings the card of the row into view once it is drawn. */
  const scrollToCard = (/** @type {string} */ key, frames = FRAMES) => {
    const outer = el.closest(".widget-vbox, .jp-OutputArea-output") ?? el;
    const card = [...outer.querySelectorAll("section.nbagent")].at(-1);
    const below = card && card.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_PRECEDING;
    if (currentWindow().opened === key && below && card.childElementCount)
      card.scrollIntoView({ block: "nearest" });
    else if (frames > 0) nextFrame(signal, () => scrollToCard(key, frames - 1));
  };
  const indexOf = (/** @type {Element} */ row) => Number(row.getAttribute("aria-rowindex")) - 2;
  /** The row of an event, which becomes the current one. @param {Event} event */
  const rowOf = ({ target }) => {
    const row = target instanceof Element ? target.closest(".t-row") : null;
    if (row) current = indexOf(row);
    return row;
  };
  onClick(signal, space, (event) => {
    const selected = document.getSelection()?.toString() && event.detail > 0;
    const key = selected ? null : rowOf(event)?.getAttribute("data-key");
    if (typeof key === "string") open(key);
  });
  on(signal, space, "keydown", (event) => {
    const step = KEYS.get(event.key);
    if (step === undefined) return;
    event.preventDefault();
    if (!isFocusWanted) rowOf(event); // else a row that is not drawn yet is the current one
    const { total } = currentWindow();
    current = Math.min(Math.max(current + step, 0), total - 1);
    const top = current * HEIGHT;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + HEIGHT > scroll.scrollTop + SEEN) scroll.scrollTop = top + HEIGHT - SEEN;
    isFocusWanted = true;
    requestRows();
    updateTabRow();
  });
  /** Makes the current row the one that Tab goes to, and gives it the focus if that is wanted. */
  const updateTabRow = () => {
    for (const { row, button } of rows.values()) {
      const isAt = indexOf(row) === current;
      button.tabIndex = isAt ? 0 : -1;
      if (isAt && isFocusWanted) {
        isFocusWanted = false;
        button.focus({ preventScroll: true });
      }
    }
  };
  const makeHead = (/** @type {string} */ name) => {
    const text = span();
    const mark = span({ "aria-hidden": "true" });
    const button = makeButton("t-sort", text, mark);
    const cell = div({ role: "columnheader", "data-col": name, "data-wide": isWide(name) }, button);
    onClick(signal, button, () => {
      send({ type: "sort", column: name });
      toTop();
    });
    const parts = { cell, text, mark };
    heads.set(name, parts);
    return parts;
  };
  const makeRow = (/** @type {string} */ key, /** @type {string[]} */ names) => {
    const cells = names.map((name) =>
      words("div", { class: "t-cell", role: "cell", "data-col": name, "data-wide": isWide(name) }),
    );
    const button = makeButton("t-button");
    button.tabIndex = -1;
    const row = div(
      { class: "t-row", role: "row", "data-key": key },
      ...cells,
      div({ role: "cell", "data-col": "open" }, button),
    );
    const parts = { row, cells, button };
    rows.set(key, parts);
    return parts;
  };
  const update = () => {
    const { columns, from, total, rows: next, opened, by, order, none } = currentWindow();
    const names = columns.map(([name]) => name);
    const isChanged = drawn !== names.join();
    if (isChanged) {
      drawn = names.join();
      longest.clear();
      const narrow = names.flatMap((name) => NARROW[name] ?? []);
      table.style.setProperty("--narrow", ["24px", ...narrow, "60px"].join(" "));
      setChildren(head, [
        ...names.map((name) => (heads.get(name) ?? makeHead(name)).cell),
        openHead,
      ]);
    }
    for (const [name, text] of columns) {
      const parts = heads.get(name);
      if (!parts) continue;
      const sorted = name === by ? order : null;
      setText(parts.text, text);
      attr(parts.cell, "aria-sort", sorted);
      setText(parts.mark, sorted ? (sorted === "ascending" ? "▲" : "▼") : "");
    }
    attr(table, "aria-rowcount", total + 1);
    attr(table, "aria-label", label("rows"));
    table.hidden = total === 0;
    showText(emptyEl, total ? "" : none);
    scroll.style.height = `${Math.min(total * HEIGHT, SEEN)}px`;
    space.style.height = `${total * HEIGHT}px`;
    head.style.setProperty("--bar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    const active = document.activeElement;
    const keys = new Set(next.map(([key]) => key));
    for (const [key, { row }] of rows) {
      if (keys.has(key) && !isChanged) continue;
      if (row.contains(active)) isFocusWanted = true;
      rows.delete(key);
    }
    const inOrder = next.map(([key, name, status, texts], index) => {
      const { row, cells, button } = rows.get(key) ?? makeRow(key, names);
      const place = from + index;
      row.style.transform = `translateY(${place * HEIGHT}px)`;
      attr(row, "aria-rowindex", place + 2);
      attr(row, "data-status", status);
      attr(row, "data-open", key === opened);
      for (const [n, cell] of cells.entries()) {
        const text = texts[n] ?? "";
        setText(cell, text);
        attr(cell, "title", text.length > 12 ? text : null);
      }
      expand(button, key === opened);
      setText(button, label(key === opened ? "close" : "open"));
      attr(button, "aria-label", `${button.textContent} ${name}`);
      return row;
    });
    setChildren(space, inOrder);
    columns.forEach(([name, text], n) => {
      const lengths = next.map(([, , , texts]) => texts[n]?.length ?? 0);
      const most = Math.max(longest.get(name) ?? 0, text.length + 1, ...lengths);
      longest.set(name, Math.min(most, MOST));
    });
    const widths = names.map((name) => {
      const share = name === "status" ? 1.05 : 0.95; // letters are narrower than digits, and a status may be bold
      return NARROW[name] === FILL ? FILL : `calc(${share * (longest.get(name) ?? 0)}ch + 16px)`;
    });
    const wide = [...widths, "64px"].join(" ");
    if (table.style.getPropertyValue("--wide") !== wide) table.style.setProperty("--wide", wide);
    if (current >= total) current = Math.max(0, total - 1);
    if (current < from || current >= from + next.length) {
      if (!isFocusWanted)
        current = Math.min(Math.floor(scroll.scrollTop / HEIGHT), Math.max(0, total - 1));
    }
    updateTabRow();
    requestRows();
  };
  return { el, update, toTop };
}
