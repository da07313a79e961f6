// @ts-check
// Rows that can be added, removed and moved, for lists, tables and maps.

import { disable, div, isComposing, makeButton, prevent, setLabel, span } from "../dom.js";
import { on, onClick } from "../lifetime.js";
import { addedContext } from "./field.js";
import { nameWithin } from "./marks.js";

/** @import { Context, Field } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */
/**
 * A row: `from` is its index when the form came, null for a new row.
 * @typedef {object} Row
 * @property {number|null} from
 * @property {Field} field
 * @property {HTMLElement} el
 * @property {HTMLElement} tools where its buttons go
 * @property {() => string} [named] the name in a map's row
 * @property {(n: number) => void} number sets its number
 */
/**
 * The look and the parts of rows.
 * @typedef {object} Look
 * @property {HTMLElement} el around all
 * @property {HTMLElement} list the element of the rows
 * @property {(row: RowToMake) => Row} make
 * @property {boolean} ordered whether rows can be moved
 */

/** @typedef {{from: number|null, draft: Draft, key?: string}} Kept */
/**
 * The source of a row: its node, and the context, which differs between earlier and added rows.
 * @typedef {Kept & {node: SpecNode, ctx: Context}} RowToMake
 */

/** A row that contains one control and nothing else. */
const SILENT = ".nba-line-row";
/** Rows that are one line. */
const LINE = ".nba-line-row, .nba-entry, tr";

/**
 * Rows with their buttons, and a button that adds one.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {Look} look
 */
export function editableRows(ctx, node, saved, look) {
  const { t, signal } = ctx;
  const first = node.rows ?? node.entries?.map((entry) => entry.node) ?? [];
  const start = first.length;
  const addButton = makeButton("nba-button nba-small", t("add"));
  const emptyButton = makeButton("nba-link", t("use_empty_list"));
  const emptyNote = span("nba-soft", t("empty_list"));
  const bar = div("nba-addbar", addButton, emptyButton, emptyNote);
  nameWithin(ctx, addButton, ctx.within?.slice(1)); // it names the list itself
  /** @type {Row[]} */
  let rows = [];
  /** Whether the person has chosen an empty list. */
  let isEmptied = false;

  /** The rows that count: an added row that is empty does not. */
  const counted = () =>
    rows.filter(({ from, field, el }) => {
      if (from !== null || !el.matches(SILENT) || field.node.initial) return true;
      return field.draft(true) !== null || field.problem() !== "";
    });
  const moved = () => {
    const now = counted();
    return isEmptied || now.length !== start || now.some((row, index) => row.from !== index);
  };
  const draw = () => {
    rows.forEach((row, index) => {
      row.number(index + 1);
      const buttons = row.tools.querySelectorAll("button");
      const words = look.ordered ? ["move_up", "move_down", "remove_row"] : ["remove_row"];
      words.forEach((word, at) => {
        setLabel(buttons[at] ?? row.tools, t(word, { n: index + 1 }));
      });
      if (!look.ordered) return;
      disable(buttons[0] ?? row.tools, index === 0);
      disable(buttons[1] ?? row.tools, index === rows.length - 1);
    });
    look.el.hidden = rows.length === 0;
    emptyButton.hidden = rows.length > 0 || isEmptied || start > 0 || !node.required;
    emptyNote.hidden = rows.length > 0 || !(isEmptied || start > 0);
  };
  /** @param {Kept} kept */
  const addRow = (kept) => {
    const { from } = kept;
    const row = look.make({
      ...kept,
      node: first[from ?? -1] ?? node.item ?? node,
      ctx: from === null ? addedContext(ctx) : ctx,
    });
    const button = (/** @type {string} */ sign, /** @type {() => void} */ act) => {
      const tool = makeButton("nba-tool", sign);
      nameWithin(ctx, tool);
      onClick(signal, tool, act);
      row.tools.append(tool);
    };
    if (look.ordered) {
      button("↑", () => move(row, -1));
      button("↓", () => move(row, 1));
    }
    button("✕", () => remove(row));
    rows.push(row);
    look.list.append(row.el);
    return row;
  };
  const move = (/** @type {Row} */ row, /** @type {1|-1} */ by) => {
    const at = rows.indexOf(row);
    const other = rows[at + by];
    if (!other) return;
    rows[at] = other;
    rows[at + by] = row;
    const [first, second] = by < 0 ? [row, other] : [other, row];
    second.el.before(first.el);
    draw();
    row.tools.querySelectorAll("button")[by < 0 ? 0 : 1]?.focus();
    ctx.touched();
  };
  const remove = (/** @type {Row} */ row) => {
    const at = rows.indexOf(row);
    rows.splice(at, 1);
    row.el.remove();
    isEmptied = rows.length === 0;
    draw();
    const next = rows[at] ?? rows.at(-1);
    const focus = next?.tools.lastElementChild ?? addButton;
    if (focus instanceof HTMLElement) focus.focus();
    ctx.touched();
  };
  const fill = (/** @type {Kept[]} */ wanted) => {
    for (const row of rows) row.el.remove();
    rows = [];
    wanted.forEach(addRow);
    draw();
  };
  const reset = () => {
    isEmptied = false;
    fill(Array.from({ length: start }, (_, from) => ({ from, draft: null })));
  };
  const add = () => {
    isEmptied = false;
    const row = addRow({ from: null, draft: null });
    draw();
    row.field.target()?.focus();
    ctx.touched();
  };
  /** Enter in a row of one line moves to the next row; it doesn't send the form. */
  const enter = (/** @type {KeyboardEvent} */ event) => {
    const { key, target, ctrlKey, metaKey } = event;
    if (key !== "Enter" || ctrlKey || metaKey || isComposing(event)) return;
    if (!(target instanceof HTMLInputElement)) return;
    const at = rows.findIndex(({ el }) => el.contains(target) && el.matches(LINE));
    if (at < 0) return;
    prevent(event);
    event.stopPropagation();
    const next = rows[at + 1];
    if (next) next.field.target()?.focus();
    else if (!event.repeat && target.value !== "") add();
  };
  on(signal, look.el, "keydown", enter);
  onClick(signal, addButton, add);
  onClick(signal, emptyButton, () => {
    isEmptied = true;
    draw();
    addButton.focus();
    ctx.touched();
  });
  const known = savedRows(node, saved);
  isEmptied = known?.length === 0;
  if (known) fill(known);
  else reset();
  return {
    els: [look.el, bar],
    inputs: [addButton],
    rows: () => rows,
    read: (/** @type {boolean} */ sent, /** @type {boolean} */ always) => {
      const drafts = counted().map(({ from, field }) => ({ from, draft: field.draft(sent) }));
      const touched = always || moved() || drafts.some((row) => row.draft !== null);
      return touched ? { rows: drafts } : null;
    },
    reset,
    moved,
    target: () => addButton,
    children: () =>
      counted().map((row, index) => /** @type {[string, Field]} */ ([`/${index}`, row.field])),
    rename: (/** @type {string} */ name) => {
      setLabel(addButton, name ? `${t("add")}: ${name}` : null);
      draw();
    },
  };
}

/**
 * The rows that were there before a reload; null if the form's own rows are to be shown.
 * @param {SpecNode} node
 * @param {Draft} saved
 * @returns {Kept[]|null}
 */
function savedRows(node, saved) {
  if (saved?.rows) return saved.rows;
  return (
    saved?.entries?.map(({ from, key, draft }) => {
      const at = (node.entries ?? []).findIndex((entry) => entry.key === from);
      return { from: at < 0 ? null : at, draft, key };
    }) ?? null
  );
}
