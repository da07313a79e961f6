// @ts-check
// The field for many rows: a grid that draws the visible rows, whose cells are edited in place. A form that has a
// grid brings this module: ../notebook/view/grids.py.

import {
  attr,
  div,
  fill,
  focusInPlace,
  h,
  isComposing,
  makeButton,
  prevent,
  setText,
  showText,
  span,
  words,
} from "./dom.js";
import { errorLine, helpOf } from "./fields/help.js";
import { reveal } from "./fields/hidden.js";
import { NUMBERS } from "./fields/numbers.js";
import { groupDigits, worded } from "./format.js";
import { DATE, GridModel } from "./grid-model.js";
import { makeTimer, nextFrame, on, onClick, onInput, onResize } from "./lifetime.js";
import { HEIGHT, KEYS, ROWS, SEEN, setChildren } from "./rows.js";

/** @import { Context, Field, Place } from "./fields/field.js" */
/** @import { Draft, SpecNode } from "./fields/spec.js" */
/** @import { Cell, Step } from "./grid-model.js" */
/** @typedef {HTMLInputElement|HTMLTextAreaElement|HTMLSelectElement} Input */

/** Milliseconds after the last key until rows are searched. */
const FIND_AFTER = 150;
/** Milliseconds of a paste in one task. */
const SLICE = 12;
/** Rows by which a column's width is chosen, and the least and most characters of a column. */
const [SAMPLE, LEAST, MOST] = [200, 6, 26];
/** Characters of a text that a cell draws. */
const DRAWN = 300;
/** The height of the head, and rows beyond those in sight, on each side. */
const [HEAD, BEYOND] = [30, 6];

const ROOT = ".nba-sheet.nba-sheet:not(#nba)";
const STYLE = `
${ROOT} {
  display: flex; flex-direction: column; flex-wrap: nowrap; align-items: stretch; gap: 8px; grid-column: 1 / -1; width: 100%; max-width: none; contain: inline-size; font: 13px/20px var(--nba-font);
${ROWS}
  & .s-name { font-weight: 500; }
  & .t-line > .t-soft { flex: 1 1 100%; }
  & .t-button[aria-pressed="true"] { border-color: var(--nba-accent); background: color-mix(in srgb, var(--nba-accent) 14%, var(--nba-page)); }
  & .s-next { border-color: var(--nba-warn); }
  & .s-next[data-bad] { border-color: var(--nba-bad); color: var(--nba-bad); }
  & .t-find { width: auto; }
  & .t-scroll { height: auto; max-height: ${SEEN + HEAD + 2}px; border: 1px solid var(--nba-line); border-radius: 6px; background: var(--nba-page); }
  & .t-row { min-width: var(--least); align-items: stretch; }
  & .s-head { position: sticky; top: 0; z-index: 3; min-width: var(--least); background: var(--nba-page); }
  & .t-head { height: ${HEAD}px; padding: 0; }
  & .t-space { min-width: var(--least); }
  & .t-space .t-row { cursor: cell; contain: layout style; }
  & .t-cell { position: relative; scroll-margin: ${HEAD}px 0 0 56px; padding: 0 8px; border-inline-start: 1px solid color-mix(in srgb, var(--nba-line) 60%, transparent); line-height: ${HEIGHT - 1}px; }
  & .t-cell[data-kind="number"] { text-align: end; font-variant-numeric: tabular-nums; }
  & .t-head [data-kind="number"] .t-sort { justify-content: flex-end; }
  & .t-cell[data-kind="json"] { font: 12px/${HEIGHT - 1}px var(--nba-mono); }
  & .s-number { position: sticky; inset-inline-start: 0; z-index: 1; padding: 0 8px; border: 0; background: var(--nba-page); color: var(--nba-soft); font: 12px/${HEIGHT - 1}px var(--nba-font); text-align: end; font-variant-numeric: tabular-nums; overflow: hidden; }
  & .t-head .s-number { background: inherit; line-height: ${HEAD - 1}px; }
  & .t-cell[data-soft] { color: var(--nba-soft); font-style: italic; }
  & .t-cell[aria-readonly] { color: var(--nba-soft); }
  & .t-cell[data-changed], & [data-added] .s-number { background: color-mix(in srgb, var(--nba-warn) 14%, var(--nba-page)); }
  & [data-deleted] .t-cell { text-decoration: line-through; color: var(--nba-soft); }
  & .t-cell[data-marked] { background: color-mix(in srgb, var(--nba-warn) 30%, var(--nba-page)); }
  & .t-cell[aria-invalid] { background: color-mix(in srgb, var(--nba-bad) 14%, var(--nba-page)); padding-inline-end: 18px; }
  & .t-cell[aria-invalid]::after { content: "!"; position: absolute; inset-inline-end: 6px; top: 0; color: var(--nba-bad); font-weight: 700; }
  & .t-cell[aria-selected="true"] { box-shadow: inset 0 0 0 99px color-mix(in srgb, var(--nba-accent) 14%, transparent); }
  & .t-cell:focus-visible { outline: none; }
  & .t-scroll:focus-within .t-cell[tabindex="0"] { outline: 2px solid var(--nba-link); outline-offset: -2px; }
  & .t-row:has(.s-edited) { z-index: 2; }
  & .t-cell.s-edited { padding: 0; overflow: visible; z-index: 2; }
  & .t-cell :is(input, select, textarea) { position: absolute; inset: 0; width: 100%; min-width: 0; max-width: none; height: 100%; min-height: 0; margin: 0; padding: 0 7px; border: 0; border-radius: 0; outline: 2px solid var(--nba-link); outline-offset: -2px; background: var(--nba-input); color: inherit; font: inherit; line-height: ${HEIGHT - 2}px; text-align: inherit; resize: none; overflow: hidden; }
  & .t-cell textarea[data-tall] { width: max(100%, 300px); height: 132px; padding: 6px 7px; line-height: 20px; white-space: pre-wrap; overflow: auto; box-shadow: 0 4px 14px rgb(0 0 0 / 25%); }
  & .s-about { min-height: 20px; white-space: pre-wrap; overflow-wrap: anywhere; }
  & .s-about[data-bad] { color: var(--nba-bad); }
}
@container nbagent (max-width: 620px) { ${ROOT} .t-find { flex-basis: 100%; max-width: none; } }
`;

/**
 * The field for many rows, drawn into an element that the form has already.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {Place} place
 * @param {HTMLElement} el
 * @returns {Field}
 */
export default function gridField(ctx, node, saved, place, el) {
  const { signal } = ctx;
  const texts = node.module?.texts ?? {};
  const t = (
    /** @type {string} */ key,
    /** @type {Record<string, string|number>} */ values = {},
  ) => (key in texts ? worded(texts[key], values) : ctx.t(key, values));
  const tn = (/** @type {string} */ key, /** @type {number} */ n) =>
    t(n === 1 ? `${key}_one` : key, { n: groupDigits(n) });
  const columns = node.item?.fields ?? [];
  const last = columns.length - 1;
  const model = new GridModel(columns, node.cells ?? "[]", t, saved?.grid);
  const marks = node.marks ?? [];
  const remarks = new Map(marks.map(([row, column, what]) => [`${row} ${column}`, what]));

  const find = h("input", {
    type: "search",
    class: "t-find",
    autocomplete: "off",
    "aria-label": t("grid_find"),
    placeholder: t("grid_find"),
  });
  const changedOnly = makeButton("t-button", t("grid_changed_only"));
  const add = makeButton("t-button", t("grid_add"));
  const remove = makeButton("t-button");
  const undo = makeButton("t-button", t("grid_undo"));
  const next = makeButton("t-button s-next");
  const status = span({ class: "t-soft", role: "status" });
  const head = div({ class: "t-row t-head", role: "row", "aria-rowindex": 1 });
  const space = div({ class: "t-space", role: "rowgroup" });
  const grid = div(
    {
      class: "t-scroll",
      role: "grid",
      "aria-multiselectable": "true",
      "aria-colcount": columns.length + 1,
    },
    div({ class: "s-head", role: "rowgroup" }, head),
    space,
  );
  const none = h("p", { class: "t-none", hidden: true });
  const about = div({ class: "t-soft s-about", id: ctx.id() });
  const error = errorLine(ctx);
  const nameEl = place.depth && !place.bare ? words("div", "s-name") : null;
  const help = place.depth ? helpOf(ctx, node) : [];
  const style = h("style");
  style.textContent = STYLE;
  el.classList.add("nba-sheet");
  fill(
    el,
    style,
    nameEl,
    help.length > 0 && words("div", "t-soft", ...help),
    div("t-line", find, changedOnly, add, remove, undo, next, status),
    grid,
    none,
    about,
    error.el,
    h("textarea", { hidden: true }), // in a form with one, Enter alone does not send
  );

  const findTimer = makeTimer(signal);
  const pasteTimer = makeTimer(signal);
  /** The drawn rows; `state` is what they were drawn for. @type {Map<number, {row: HTMLElement, number: HTMLElement, cells: HTMLElement[], state: string}>} */
  const drawn = new Map();
  /** The active cell, by its place in the view, and the other corner of the selection. */
  let [index, column] = [0, 0];
  /** @type {[index: number, column: number]} */
  let corner = [0, 0];
  /** @type {{row: number, column: number, input: Input}|null} */
  let editor = null;
  let isScheduled = false;
  /** The paste that goes on. @type {ReturnType<GridModel["paste"]>|null} */
  let pasting = null;
  /** What a paste did, until the next change. */
  let news = "";
  let name = "";

  const activeRow = () => model.view[index] ?? -1;
  /** The marked cells that are as they came. */
  const toCheck = () =>
    marks.filter(([row, c]) => !model.isChanged(row, c) && !model.isDeleted(row));
  /** The corners of the selection: the first and last index, the first and last column. */
  const selection = () => {
    const [i, c] = corner;
    return {
      top: Math.min(index, i),
      bottom: Math.max(index, i),
      from: Math.min(column, c),
      to: Math.max(column, c),
    };
  };
  const selectedRows = () => {
    const { top, bottom } = selection();
    return model.view.slice(top, bottom + 1);
  };

  // --- drawing

  const heads = columns.map((one, at) => {
    const mark = span({ "aria-hidden": "true" });
    const button = makeButton("t-sort", span({}, reveal(one.label || one.key)), mark);
    const cell = div(
      { role: "columnheader", "aria-colindex": at + 2, "data-kind": kindOf(one) },
      button,
    );
    onClick(signal, button, () => {
      stopEditing(true);
      if (model.by !== at) [model.by, model.descending] = [at, false];
      else if (model.descending) model.by = -1;
      else model.descending = true;
      refresh(false);
    });
    return { cell, mark };
  });
  fill(
    head,
    div({ class: "s-number", role: "columnheader", "aria-colindex": 1 }, t("grid_number")),
    ...heads.map(({ cell }) => cell),
  );
  const widths = columns.map((one, at) => {
    const step = Math.ceil(model.view.length / SAMPLE); // from its start to its end
    const sample = model.view
      .filter((_, index) => (model.view.length - 1 - index) % step === 0)
      .map((row) => model.text(row, at).length);
    return Math.min(MOST, Math.max(LEAST, reveal(one.label).length + 2, ...sample));
  });
  grid.style.setProperty(
    "--wide",
    ["56px", ...widths.map((n) => `minmax(calc(${n}ch + 18px), ${n}fr)`)].join(" "),
  );
  grid.style.setProperty(
    "--least",
    `calc(${widths.reduce((sum, n) => sum + n, 0)}ch + ${56 + 18 * columns.length}px)`,
  );

  const makeRow = (/** @type {number} */ row) => {
    const number = div({ class: "s-number", role: "rowheader", "aria-colindex": 1 });
    const cells = columns.map((one, at) =>
      words("div", {
        class: "t-cell",
        role: "gridcell",
        "aria-colindex": at + 2,
        "data-at": at,
        "data-kind": kindOf(one),
        "aria-readonly": model.isFixed(at) && "true",
      }),
    );
    const parts = {
      row: div({ class: "t-row", role: "row", "data-row": row }, number, ...cells),
      number,
      cells,
      state: "",
    };
    drawn.set(row, parts);
    return parts;
  };
  const drawRow = (/** @type {number} */ at) => {
    const row = model.view[at] ?? -1;
    const { top, bottom, from, to } = selection();
    const parts = drawn.get(row) ?? makeRow(row);
    const { row: rowEl, number, cells } = parts;
    const isSelected = at >= top && at <= bottom;
    const state = [
      at,
      model.version,
      isSelected && [top < bottom, from, to],
      at === index && [column, about.textContent],
    ].join();
    if (state === parts.state) return rowEl;
    parts.state = state;
    rowEl.style.transform = `translateY(${at * HEIGHT}px)`;
    attr(rowEl, "aria-rowindex", at + 2);
    attr(rowEl, "data-added", model.isAdded(row));
    attr(rowEl, "data-deleted", model.isDeleted(row));
    setText(number, row < model.total ? groupDigits(row + 1) : t("grid_new"));
    cells.forEach((cell, c) => {
      if (editor?.row === row && editor.column === c) return;
      const value = model.value(row, c);
      const soft = softText(value, columns[c], ctx);
      const text = soft || model.text(row, c);
      const shown = reveal(text.slice(0, DRAWN)).replaceAll(/\r?\n/g, " ⏎ ");
      setText(cell, shown);
      const message = model.error(row, c);
      const remark = model.isChanged(row, c) ? "" : remarks.get(`${row} ${c}`);
      attr(
        cell,
        "title",
        message ||
          (remark && t("grid_check", { what: remark })) ||
          (shown.length > LEAST ? shown : null),
      );
      attr(cell, "data-soft", soft !== "");
      attr(cell, "data-changed", model.isChanged(row, c));
      attr(cell, "data-marked", Boolean(remark) || shown.includes("⟨U+"));
      attr(cell, "aria-invalid", message !== "" && "true");
      const isActive = at === index && c === column;
      attr(cell, "tabindex", isActive ? 0 : -1);
      attr(cell, "aria-describedby", isActive && about.firstChild ? about.id : null);
      const isWide = isSelected && (top < bottom || from < to);
      attr(cell, "aria-selected", isWide && c >= from && c <= to && "true");
    });
    return rowEl;
  };
  /** Draws the rows in sight, and the active one, which may have the focus. */
  const draw = () => {
    const { length } = model.view;
    index = Math.max(0, Math.min(index, length - 1));
    describe();
    space.style.height = `${length * HEIGHT}px`;
    const first = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - BEYOND);
    const end = Math.min(length, first + Math.ceil(SEEN / HEIGHT) + 2 * BEYOND);
    const places = Array.from({ length: Math.max(0, end - first) }, (_, n) => first + n);
    if (length > 0 && index < first) places.unshift(index);
    if (index >= end) places.push(index);
    const wanted = new Set(places.map((at) => model.view[at]));
    for (const row of drawn.keys()) if (!wanted.has(row)) drawn.delete(row);
    setChildren(space, places.map(drawRow));
  };
  /** Draws in the next frame, unless the grid is hidden, as its place is unknown then. */
  const drawSoon = () => {
    if (isScheduled) return;
    isScheduled = true;
    nextFrame(signal, () => {
      isScheduled = false;
      if (grid.clientHeight) draw();
    });
  };
  /** Shows what there is to know about the active cell. */
  const describe = () => {
    const row = activeRow();
    const message = model.error(row, column);
    const remark = model.isChanged(row, column) ? "" : (remarks.get(`${row} ${column}`) ?? "");
    const before = model.start(row, column);
    const was = softText(before, columns[column], ctx) || model.words(column, before);
    const parts = [
      model.isDeleted(row) && t("grid_gone"),
      message,
      remark && t("grid_check", { what: remark }),
      model.isChanged(row, column) &&
        t("grid_was", { value: reveal(was.slice(0, DRAWN)) || t("nothing") }),
    ];
    setText(about, parts.filter(Boolean).join(" · ") || t("grid_keys"));
    attr(about, "data-bad", message !== "");
  };
  const countRows = () => {
    const { added, deleted } = model.counts();
    return model.total + added - deleted;
  };
  /** Draws everything after a change of the rows. */
  const drawAll = () => {
    const { changed, added, deleted } = model.counts();
    const { length } = model.view;
    const all = countRows();
    const wrong = model.wrong().length;
    const some = t("grid_some", { n: groupDigits(length), all: groupDigits(all) });
    const counts = Object.entries({ changed, added, deleted }).map(
      ([key, n]) => n > 0 && t(`grid_${key}`, { n: groupDigits(n) }),
    );
    const isWhole = length === all && !model.changedOnly && !model.query;
    setText(
      status,
      [news, isWhole ? tn("grid_rows", all) : some, ...counts].filter(Boolean).join(" · "),
    );
    const check = wrong ? 0 : toCheck().length;
    next.hidden = wrong + check === 0;
    attr(next, "data-bad", wrong > 0);
    setText(next, t(wrong ? "grid_next" : "grid_next_check", { n: groupDigits(wrong || check) }));
    undo.disabled = !model.canUndo;
    remove.disabled = length === 0;
    attr(changedOnly, "aria-pressed", String(model.changedOnly));
    attr(grid, "aria-rowcount", length + 1);
    heads.forEach(({ cell, mark }, at) => {
      const order = model.by === at ? (model.descending ? "descending" : "ascending") : null;
      attr(cell, "aria-sort", order);
      setText(mark, order ? (model.descending ? "▼" : "▲") : "");
    });
    attr(none, "tabindex", length ? null : 0); // to paste there
    showText(none, length ? "" : t(all ? "grid_none" : "grid_empty"));
    drawMoved();
  };
  /** Draws the active cell and the selection after a move. */
  const drawMoved = () => {
    draw();
    const rows = selectedRows();
    const label = rows.length > 1 ? t("grid_delete_rows", { n: rows.length }) : t("grid_delete");
    setText(remove, model.isDeleted(activeRow()) ? t("grid_restore") : label);
  };
  /** Finds and sorts again. @param {boolean} [stays] whether the active row stays active if it is still shown */
  const refresh = (stays = true) => {
    const row = activeRow();
    model.refresh();
    index = stays ? Math.max(0, model.view.indexOf(row)) : 0;
    corner = [index, column];
    space.style.height = `${model.view.length * HEIGHT}px`;
    show(index);
    drawAll();
  };
  /** Scrolls until a row and the active column can be seen. @param {number} at */
  const show = (at) => {
    const top = at * HEIGHT;
    const seen = Math.max(HEIGHT, grid.clientHeight - HEAD);
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + HEIGHT > grid.scrollTop + seen) grid.scrollTop = top + HEIGHT - seen;
  };
  const activeCell = () => drawn.get(activeRow())?.cells[column] ?? null;
  /**
   * Makes a cell the active one, and gives it the focus.
   * @param {number} toIndex @param {number} toColumn @param {boolean} [extends_] whether the selection grows
   */
  const go = (toIndex, toColumn, extends_ = false) => {
    index = Math.max(0, Math.min(toIndex, model.view.length - 1));
    column = Math.max(0, Math.min(toColumn, last));
    if (!extends_) corner = [index, column];
    show(index);
    drawMoved();
    const cell = activeCell();
    focusInPlace(cell);
    cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  /** After a person has changed something. */
  const changed = (said = "") => {
    news = said;
    drawAll();
    ctx.touched();
  };

  // --- editing a cell

  /** Opens an editor in the active cell, with what was typed to open it. @param {string} [typed] */
  const edit = (typed) => {
    const row = activeRow();
    const cell = activeCell();
    const own = columns[column];
    if (!cell || !own || model.isFixed(column) || model.isDeleted(row)) return;
    const value = model.value(row, column);
    if (own.kind === "bool") {
      if (typed === undefined || typed === " ") toggle(row, value);
      else if (model.edit([[row, column, model.read(column, typed)]])) changed();
      return;
    }
    const input = makeEditor(own, value, typed);
    attr(
      input,
      "aria-label",
      t("grid_cell", { name: reveal(own.label), row: String(model.number(row) ?? t("grid_new")) }),
    );
    editor = { row, column, input };
    fill(cell, input);
    cell.classList.add("s-edited");
    input.focus({ preventScroll: true });
    if (!(input instanceof HTMLSelectElement) && input.type !== "date") {
      const end = input.value.length;
      input.setSelectionRange(end, end);
    }
    on(signal, input, "keydown", onEditorKey);
    on(signal, input, "blur", () => editor?.input === input && stopEditing(true));
  };
  const toggle = (/** @type {number} */ row, /** @type {Cell} */ value) => {
    const mayBeEmpty = columns[column]?.nullable || !columns[column]?.required;
    const after = value === true ? false : value === false && mayBeEmpty ? null : true;
    if (model.edit([[row, column, after]])) changed();
  };
  const makeEditor = (
    /** @type {SpecNode} */ own,
    /** @type {Cell} */ value,
    /** @type {string|undefined} */ typed,
  ) => {
    if (own.kind === "choice" && !own.other) {
      const options = (own.options ?? []).map(({ label }, n) =>
        h("option", { value: n }, reveal(label)),
      );
      const mayBeEmpty = own.nullable || !own.required || typeof value !== "number";
      const select = h("select", {}, mayBeEmpty && h("option", { value: "" }, ""), ...options);
      const starts = (own.options ?? []).findIndex(
        ({ label }) => typed && label.toLowerCase().startsWith(typed.toLowerCase()),
      );
      select.value = String(starts >= 0 ? starts : typeof value === "number" ? value : "");
      return select;
    }
    const text =
      typed ?? (typeof value === "number" ? model.words(column, value) : String(value ?? ""));
    if (own.format === "date" && !typed && (text === "" || DATE.test(text))) {
      const date = h("input", { type: "date" });
      date.value = text;
      return date;
    }
    const isLong = ["text", "code", "json"].includes(own.kind) && own.format === undefined;
    const input = isLong
      ? h("textarea", { rows: 1, spellcheck: "false" })
      : h("input", {
          type: "text",
          inputmode: NUMBERS.has(own.kind) ? "decimal" : null,
          autocomplete: "off",
        });
    input.dir = "auto";
    input.value = text;
    const grow = () =>
      attr(
        input,
        "data-tall",
        input instanceof HTMLTextAreaElement &&
          (input.value.includes("\n") ||
            input.scrollWidth > input.clientWidth + 1 ||
            input.value.length > 60),
      );
    if (isLong) onInput(signal, input, grow);
    if (isLong && (text.includes("\n") || text.length > 60)) attr(input, "data-tall", true);
    return input;
  };
  /** Ends the editor. @param {boolean} keep whether what was typed counts */
  const stopEditing = (keep) => {
    if (!editor) return;
    const { row, column: own, input } = editor;
    editor = null;
    const parts = drawn.get(row);
    const cell = parts?.cells[own];
    if (parts) parts.state = "";
    cell?.classList.remove("s-edited");
    if (cell) fill(cell);
    const isBroken = input instanceof HTMLInputElement && input.validity.badInput;
    const typed =
      input instanceof HTMLSelectElement
        ? input.value === ""
          ? null
          : Number(input.value)
        : model.read(own, input.value);
    const before = model.value(row, own);
    const isSame =
      typed === before ||
      (typed === null && before === "") ||
      (typeof before === "number" && typed === model.words(own, before));
    if (keep && !isBroken && !isSame && model.edit([[row, own, typed]])) changed();
    else draw();
  };
  const onEditorKey = (/** @type {KeyboardEvent} */ event) => {
    const { key, ctrlKey, metaKey, altKey, shiftKey, target } = event;
    if (isComposing(event)) return;
    const isArea = target instanceof HTMLTextAreaElement;
    if (key === "Enter" && (ctrlKey || metaKey)) {
      stopEditing(true); // the form is sent
      return;
    }
    event.stopPropagation();
    if (key === "Enter" && altKey && isArea) {
      target.setRangeText("\n", target.selectionStart, target.selectionEnd, "end");
      attr(target, "data-tall", true);
    } else if (key === "Enter" || key === "Tab") {
      stopEditing(true);
      if (key === "Enter") go(index + (shiftKey ? -1 : 1), column);
      else if (shiftKey) go(column > 0 ? index : index - 1, column > 0 ? column - 1 : last);
      else go(column < last ? index : index + 1, column < last ? column + 1 : 0);
    } else if (key === "Escape") {
      stopEditing(false);
      focusInPlace(activeCell());
    } else return;
    prevent(event);
  };

  // --- keys, pointer and clipboard

  /** Pastes on until this time, then in slices of tasks of their own. @param {number} [until] */
  const pasteOn = (until = Number.POSITIVE_INFINITY) => {
    while (pasting && performance.now() < until) {
      const { done, value } = pasting.next();
      if (!done) continue;
      pasting = null;
      const { top, from } = selection();
      changed(t("grid_pasted", { n: groupDigits(value) }));
      go(top, from);
    }
    if (pasting) pasteTimer.start(0, () => pasteOn(performance.now() + SLICE));
  };
  // what else a person does comes after the paste
  for (const type of /** @type {const} */ (["keydown", "pointerdown", "copy", "cut", "paste"]))
    on(signal, el, type, () => pasteOn(), true);

  const fillSelection = (/** @type {string} */ text) => {
    const { from, to } = selection();
    if (model.fill(selectedRows(), from, to, text)) changed();
  };
  const back = (/** @type {Step|null} */ step) => {
    if (!step) return;
    const [row, at] = step.cells[0] ?? [step.flipped[0] ?? step.added[0] ?? -1, column];
    const place = model.view.indexOf(row);
    changed();
    go(place < 0 ? index : place, at);
  };
  const move = (
    /** @type {KeyboardEvent} */ { key, shiftKey },
    /** @type {boolean} */ isControlled,
  ) => {
    const rows =
      key === "Home" || key === "End" ? (isControlled ? KEYS.get(key) : 0) : KEYS.get(key);
    const aside = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[key];
    if (rows === undefined && aside === undefined) return false;
    const far = isControlled && key.startsWith("Arrow") ? Infinity : 1;
    const toColumn = aside === undefined || (isControlled && rows) ? column : column + aside * far;
    go(rows ? index + rows * far : index, toColumn, shiftKey);
    return true;
  };
  const act = (/** @type {KeyboardEvent} */ event) => {
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    const isControlled = ctrlKey || metaKey;
    if (move(event, isControlled)) return true;
    if (isControlled && !altKey) {
      const letter = key.toLowerCase();
      if (letter === "z") back(shiftKey ? model.redo() : model.undo());
      else if (letter === "y") back(model.redo());
      else if (letter === "a") {
        corner = [0, 0];
        go(model.view.length - 1, last, true);
      } else return false;
      return true;
    }
    const isWide = corner[0] !== index || corner[1] !== column;
    if (key === "Enter" || key === "F2") edit();
    else if (key === "Delete" || key === "Backspace") fillSelection("");
    else if (key === "Escape" && isWide) go(index, column);
    else if (key.length === 1 && !altKey) edit(key);
    else return false;
    return true;
  };
  /** The place of the cell that an event is about. @param {Event} event @returns {[number, number]|null} */
  const placeOf = ({ target }) => {
    const row =
      target instanceof Element ? target.closest(".t-row")?.getAttribute("data-row") : null;
    if (!row || !(target instanceof Element)) return null;
    const at = target.closest(".t-cell")?.getAttribute("data-at");
    return [model.view.indexOf(Number(row)), at ? Number(at) : -1];
  };
  on(signal, grid, "keydown", (event) => {
    const isMeant =
      placeOf(event) &&
      !isComposing(event) &&
      !(event.key === "Enter" && (event.ctrlKey || event.metaKey));
    if (!isMeant || editor || !act(event)) return;
    prevent(event);
    event.stopPropagation();
  });
  on(signal, grid, "mousedown", (event) => {
    const at = placeOf(event);
    if (!at || (editor && event.target === editor.input) || event.button !== 0) return;
    prevent(event);
    stopEditing(true);
    if (at[1] >= 0) go(...at, event.shiftKey);
    else {
      if (!event.shiftKey) corner = [at[0], 0];
      go(at[0], last, true);
    }
  });
  on(signal, grid, "focusin", (event) => {
    const at = placeOf(event); // a screen reader can give the focus to any cell
    if (!at || editor || at[1] < 0 || (at[0] === index && at[1] === column)) return;
    [index, column] = at;
    corner = at;
    drawMoved();
  });
  on(signal, grid, "dblclick", (event) => {
    if (!editor && (placeOf(event)?.[1] ?? -1) >= 0) edit();
  });
  for (const type of /** @type {const} */ (["copy", "cut", "paste"]))
    on(signal, el, type, (event) => {
      const data = /** @type {ClipboardEvent} */ (event).clipboardData;
      if (!data || event.target instanceof HTMLInputElement || editor) return;
      const { top, from, to } = selection();
      const isWide = selectedRows().length > 1 || from < to;
      const text = type === "paste" ? data.getData("text/plain") : "";
      if (type !== "paste" && !placeOf(event)) return; // a text that is selected elsewhere
      prevent(event);
      event.stopPropagation();
      if (type !== "paste") data.setData("text/plain", model.copy(selectedRows(), from, to));
      if (type === "cut" || (text && isWide && !/[\t\n]./.test(text)))
        fillSelection(text.trimEnd());
      else if (text) {
        pasting = model.paste(text, model.view.length ? top : 0, from);
        pasteOn(performance.now() + SLICE);
      }
    });
  on(signal, grid, "scroll", drawSoon);
  onResize(signal, grid, drawSoon);

  // --- above the grid

  onInput(signal, find, (event) => {
    event.stopPropagation(); // not an edit of the form
    findTimer.start(FIND_AFTER, () => {
      model.query = find.value;
      refresh();
    });
  });
  on(signal, find, "change", (event) => event.stopPropagation());
  on(signal, find, "keydown", (event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || isComposing(event)) return;
    prevent(event);
    event.stopPropagation();
    findTimer.now();
    go(0, column);
  });
  onClick(signal, changedOnly, () => {
    model.changedOnly = !model.changedOnly;
    refresh();
  });
  onClick(signal, add, () => {
    const [row] = model.add(1);
    changed();
    go(model.view.indexOf(row ?? -1), 0);
  });
  onClick(signal, remove, () => {
    const isRestored = model.isDeleted(activeRow());
    const rows = selectedRows().filter((row) => model.isDeleted(row) === isRestored);
    const at = selection().top;
    model.flip(rows);
    changed();
    if (model.view.length) go(at, column);
    else add.focus();
  });
  onClick(signal, undo, () => {
    back(model.undo());
    if (!undo.disabled) undo.focus();
  });
  /** Goes to the next cell with an error, else the next one to check, after the active one or from the start. */
  const goToNext = (after = activeRow()) => {
    const wrong = model.wrong();
    const places = wrong.length ? wrong : toCheck();
    const found =
      places.find(([row, c]) => row > after || (row === after && c > column)) ?? places[0];
    if (!found) return;
    if (!model.view.includes(found[0])) {
      find.value = "";
      [model.query, model.changedOnly] = ["", false];
      refresh();
    }
    go(model.view.indexOf(found[0]), found[1]);
  };
  onClick(signal, next, () => goToNext());

  const rename = (/** @type {string} */ given) => {
    name = reveal(given);
    if (nameEl) setText(nameEl, name);
    attr(grid, "aria-label", place.depth ? name : null);
    attr(grid, "aria-labelledby", place.depth ? null : ctx.titleId);
  };
  let sent = { version: -1, draft: /** @type {Draft} */ (null) };
  rename(place.name ?? node.label);
  drawAll();
  ctx.touched(); // the form shows the keys that send it
  return {
    node,
    el,
    draft: () => {
      pasteOn();
      if (sent.version !== model.version) {
        const changes = model.changes();
        sent = { version: model.version, draft: changes && { grid: changes } };
      }
      return sent.draft;
    },
    reset: () => {
      pasteOn();
      stopEditing(false);
      model.reset();
      drawAll();
    },
    fail: (messages, placed) => {
      if (placed) model.fail(placed.flatMap(({ cells }) => cells ?? []));
      const isOfCells = placed?.some(({ cells }) => cells?.length) === true;
      error.show(isOfCells ? [] : messages);
      drawAll();
    },
    target: () => {
      if (model.wrong().length) goToNext(-1);
      return model.view.length ? activeCell() : add;
    },
    name: () => name,
    rename,
    problem: () => {
      pasteOn();
      stopEditing(true);
      const { length } = model.unfinished();
      if (length) drawAll();
      return length ? tn("grid_wrong", length) : "";
    },
    children: () => [],
    rows: countRows,
  };
}

/** How a column's cells look. @param {SpecNode} column */
function kindOf({ kind }) {
  return NUMBERS.has(kind) ? "number" : kind;
}

/**
 * The text of a cell without a value: the default of what is left out, and empty text where null is possible too.
 * @param {Cell} value @param {SpecNode|undefined} column @param {Context} ctx
 */
function softText(value, column, ctx) {
  if (value === undefined) return column?.shown ?? column?.default_text ?? "";
  return value === "" && column?.nullable ? ctx.t("empty_text") : "";
}
