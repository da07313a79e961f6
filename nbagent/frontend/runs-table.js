// @ts-check
// The runs of a store as a table: a press on a column's head sorts, one on a row opens its run below. The
// kernel sorts and filters, as only the kernel has all runs.

import { attr, div, expand, h, makeButton, setText, showText, span, words } from "./dom.js";
import { nextFrame, on, onClick } from "./lifetime.js";

/**
 * The table of the kernel's `RunsView.table`.
 * @typedef {{
 *   columns: [string, string, "ascending"|"descending"|"", boolean][],
 *   rows: [string, string[], string][],
 *   said: string, none: string, more: string, opened: string, open: string, close: string, gone: string,
 * }} Table
 */

/** Frames to wait for the card of an opened run. */
const FRAMES = 240;
const KEYS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);

/** The unused id and the repeated class let these rules win over the card's rules for tables. */
const ROOT = ".nba-runs.nba-runs:not(#nba)";
/** In a narrow card a run is a few lines instead of a row; with more columns the limit is higher. */
const narrow = (/** @type {string} */ root, /** @type {number} */ width) => `
@container nbagent (max-width: ${width}px) {
  ${root} {
    & :is(table, tbody) { display: block; }
    & thead { display: block; position: sticky; top: 0; z-index: 1; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); }
    & thead tr { display: flex; padding: 0 4px; overflow-x: auto; scrollbar-width: none; }
    & thead tr :is(th, td)[data-of] { flex: none; min-width: 0; max-width: none; }
    & thead :is(th, td)[data-of] { position: static; width: auto; border: 0; background: none; }
    & thead [data-of="open"] { display: none; }
    & .nba-sort { padding: 3px 6px; }
    & tbody tr { display: flex; flex-wrap: wrap; column-gap: 10px; align-items: baseline; position: relative; padding: 8px 76px 8px 10px; border-bottom: 1px solid var(--nba-line); }
    & tbody tr:last-child { border-bottom: 0; }
    & tbody td[data-of] { display: block; width: auto; max-width: 100%; padding: 0; border: 0; text-align: start; font-size: 12px; line-height: 18px; }
    & tbody td[data-of]:not([data-of="status"], [data-of="prompt"]) { color: var(--nba-soft); }
    & tbody tr td[data-of]:is([data-of="prompt"], [data-of="status"]) { width: 100%; order: -1; }
    & tbody tr td[data-of][data-of="prompt"] { order: -2; font-size: 13px; line-height: 20px; }
    & tbody tr:has([data-of="prompt"]:empty) td[data-of][data-of="agent"] { width: 100%; order: -2; color: inherit; font-size: 13px; line-height: 20px; }
    & tbody td[data-of]:is(:empty, [hidden]) { display: none; }
    & tbody td[data-of="id"] { max-width: 10ch; }
    & tbody tr td[data-of][data-of="open"] { position: absolute; top: 8px; right: 10px; }
  }
}`;
export const STYLE = `
${ROOT} {
  display: flex; flex-direction: column; gap: 10px; margin-top: 0; padding: 2px 16px 12px; border-top: 0; border-radius: 0 0 10px 10px;
  & .nba-chooser { padding: 0; }
  & .nba-scroll { max-height: 356px; overflow: auto; border: 1px solid var(--nba-line); border-radius: 6px; }
  & table { display: table; width: 100%; margin: 0; border: 0; border-collapse: separate; border-spacing: 0; table-layout: auto; font: 13px/20px var(--nba-font); }
  & .nba-scroll:has(> table[hidden]) { border: 0; }
  & :is(th, td) { padding: 5px 8px; border: 0; border-bottom: 1px solid var(--nba-line); text-align: start; vertical-align: middle; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; background: none; color: inherit; max-width: none; min-width: 0; }
  & tbody tr:last-child td { border-bottom: 0; }
  & thead :is(th, td) { position: sticky; top: 0; z-index: 1; padding: 0; background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); color: var(--nba-soft); font: 12px/20px var(--nba-font); }
  & th[aria-sort] { color: var(--nba-ink); font-weight: 600; }
  & tbody tr { background: none; cursor: pointer; }
  & tbody tr:hover { background: var(--nba-fill); }
  & tbody tr[data-open] { background: color-mix(in srgb, var(--nba-accent) 12%, var(--nba-page)); }
  & .nba-sort { display: flex; gap: 4px; width: 100%; min-height: 0; margin: 0; padding: 5px 8px; border: 0; background: none; color: inherit; font: inherit; text-align: start; cursor: pointer; }
  & .nba-sort:hover { text-decoration: underline; }
  & :is(.nba-sort, .nba-button, input, select):focus-visible { outline: 2px solid var(--nba-accent); outline-offset: -2px; }
  & td[data-of="id"] { max-width: max(74px, 10cqi); font: 12px/20px var(--nba-mono); }
  & td:is([data-of="agent"], [data-of="asks"]) { max-width: 15cqi; }
  & td[data-of="status"] { max-width: 26cqi; }
  & [data-of="prompt"] { width: 99%; max-width: 0; }
  & th[data-of="prompt"] { min-width: 90px; }
  & td[data-of="open"] { text-align: end; }
  & [hidden] { display: none; }
  & td:is([data-of="updated"], [data-of="deadline"], [data-of="cost"]) { font-variant-numeric: tabular-nums; }
  & td[data-of="cost"] { text-align: end; }
  & th[data-of="cost"] .nba-sort { justify-content: flex-end; }
  & tr[data-status="interrupted"] [data-of="status"] { color: var(--nba-warn-ink); font-weight: 600; }
  & tr:is([data-status="failed"], [data-status="unreadable"]) [data-of="status"] { color: var(--nba-bad); }
  & tr[data-status="completed"] [data-of="status"] { color: var(--nba-good-ink); }
  & tr[data-status="running"] [data-of="status"] { color: var(--nba-link); }
  & .nba-button { min-height: 0; margin: 0; padding: 1px 9px; font: 12px/20px var(--nba-font); }
  & button:disabled { color: var(--nba-soft); border-style: dashed; cursor: default; text-decoration: none; }
  & table[hidden] + .nba-none { padding: 0; text-align: start; }
  & .nba-none { margin: 0; padding: 18px; color: var(--nba-soft); text-align: center; }
  & .nba-foot { display: flex; align-items: center; gap: 12px; min-height: 24px; margin-top: 8px; color: var(--nba-soft); font: 12px/20px var(--nba-font); }
  & .nba-foot [role="alert"] { color: var(--nba-bad); }
}
${narrow(ROOT, 560)}
${narrow(`${ROOT}.nba-many`, 680)}
`;

/**
 * Draws the table; `update` draws it again.
 * @param {{send: (message: object) => boolean, signal: AbortSignal}} page
 */
export function drawRuns({ send, signal }) {
  const head = h("tr", { role: "row" });
  const body = h("tbody", { role: "rowgroup" });
  const emptyEl = h("p", { class: "nba-none", hidden: true });
  const table = h("table", { role: "table", "aria-label": "Runs" });
  table.append(h("thead", { role: "rowgroup" }, head), body);
  const statusEl = span({ role: "status" });
  const moreButton = makeButton("nba-button");
  const lostEl = span({ role: "alert", hidden: true });
  const foot = div("nba-foot", statusEl, moreButton, lostEl);
  const el = div("", div("nba-scroll", table, emptyEl), foot);
  /** @type {Map<string, {row: HTMLTableRowElement, button: HTMLButtonElement, cells: HTMLElement[]}>} */
  const rows = new Map();
  /** @type {Map<string, {th: HTMLElement, button: HTMLButtonElement, label: HTMLElement, mark: HTMLElement}>} */
  const heads = new Map();
  /** @type {Table|null} */
  let shown = null;
  /** The row that Tab goes to. */
  let tabRow = "";

  const sendMessage = (/** @type {object} */ message) => {
    const isSent = send(message);
    if (!isSent) disableButtons();
    return isSent;
  };
  /** Disables all buttons, as the kernel no longer receives presses. */
  const disableButtons = () => {
    showText(lostEl, shown?.gone ?? "");
    for (const button of el.querySelectorAll("button")) button.disabled = true;
  };
  const open = (/** @type {string} */ run) => {
    setTabRow(run);
    if (sendMessage({ type: "open", run }) && shown?.opened !== run) scrollToCard(run);
  };
  /** Brings the card of the run into view once it is there. */
  const scrollToCard = (/** @type {string} */ run, frames = FRAMES) => {
    const outer = el.closest(".widget-vbox, .jp-OutputArea-output") ?? el;
    const card = [...outer.querySelectorAll("section.nbagent")].at(-1);
    const below = card && card.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_PRECEDING;
    if (shown?.opened === run && below && card.childElementCount) {
      card.scrollIntoView({ block: "nearest" });
    } else if (frames > 0) nextFrame(signal, () => scrollToCard(run, frames - 1));
  };
  /** Makes this row the one that Tab goes to. */
  const setTabRow = (/** @type {string} */ run) => {
    tabRow = run;
    for (const [id, { button }] of rows) button.tabIndex = id === tabRow ? 0 : -1;
  };
  on(signal, body, "keydown", (event) => {
    const step = KEYS.get(event.key);
    if (step === undefined || !shown) return;
    event.preventDefault();
    const ids = shown.rows.map(([id]) => id);
    const to = Math.min(Math.max(ids.indexOf(tabRow) + step, 0), ids.length - 1);
    setTabRow(ids[to] ?? "");
    rows.get(tabRow)?.button.focus();
  });
  onClick(signal, body, (event) => {
    const row = event.target instanceof Element ? event.target.closest("tr") : null;
    const selected = document.getSelection()?.toString() && event.detail > 0;
    if (row?.dataset["run"] !== undefined && !selected) open(row.dataset["run"]);
  });
  onClick(signal, moreButton, () => sendMessage({ type: "more" }));

  const drawHead = (/** @type {Table} */ { columns }) => {
    for (const [name, label, order, isShown] of columns) {
      let headCell = heads.get(name);
      if (!headCell) {
        const text = span();
        const mark = span({ "aria-hidden": "true" });
        const button = makeButton("nba-sort", text, mark);
        const th = h("th", { scope: "col", role: "columnheader", "data-of": name }, button);
        onClick(signal, button, () => sendMessage({ type: "sort", column: name }));
        headCell = { th, button, label: text, mark };
        heads.set(name, headCell);
        head.append(th);
      }
      setText(headCell.label, label);
      setText(headCell.mark, order === "ascending" ? "▲" : order === "descending" ? "▼" : "");
      attr(headCell.th, "aria-sort", order || null);
      headCell.th.hidden = !isShown;
    }
    if (!head.querySelector('[data-of="open"]'))
      head.append(h("td", { role: "cell", "data-of": "open" }));
  };
  /** @param {Table} next @param {string} id */
  const makeRow = ({ columns, open: label }, id) => {
    const cells = columns.map(([name]) => words("td", { role: "cell", "data-of": name }));
    const button = makeButton("nba-button", label);
    const row = h("tr", { role: "row", "data-run": id }, ...cells);
    row.append(h("td", { role: "cell", "data-of": "open" }, button));
    button.tabIndex = -1;
    const parts = { row, button, cells };
    rows.set(id, parts);
    return parts;
  };
  const update = (/** @type {Table} */ next) => {
    shown = next;
    drawHead(next);
    const rare = next.columns.filter(([name, , , has]) => has && /deadline|cost/.test(name));
    el.parentElement?.classList.toggle("nba-many", rare.length > 0);
    const ids = new Set(next.rows.map(([id]) => id));
    const active = document.activeElement;
    for (const [id, { row }] of rows) {
      if (ids.has(id)) continue;
      row.remove();
      rows.delete(id);
    }
    /** @type {Element|null} */
    let before = null;
    for (const [id, texts, status] of next.rows) {
      const { row, button, cells } = rows.get(id) ?? makeRow(next, id);
      texts.forEach((text, index) => {
        const cell = cells[index];
        if (!cell) return;
        setText(cell, text);
        attr(cell, "title", text.length > 12 ? text : null);
        cell.hidden = !next.columns[index]?.[3];
      });
      attr(row, "data-status", status);
      attr(row, "data-open", id === next.opened);
      expand(button, id === next.opened);
      setText(button, id === next.opened ? next.close : next.open);
      attr(button, "aria-label", `${button.textContent} ${id}`);
      /** @type {Element|null} */
      const place = before === null ? body.firstElementChild : before.nextElementSibling;
      if (place !== row) body.insertBefore(row, place);
      before = row;
    }
    // A row that moved has lost the focus; a row that was removed cannot have it.
    if (active instanceof HTMLElement && body.contains(active)) active.focus();
    if (!ids.has(tabRow)) setTabRow(next.rows[0]?.[0] ?? "");
    showText(emptyEl, next.rows.length ? "" : next.none);
    table.hidden = !next.columns.length;
    setText(statusEl, next.said);
    foot.hidden = !next.said;
    showText(moreButton, next.more);
  };
  return { el, update, disable: disableButtons };
}
