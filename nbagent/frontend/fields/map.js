// @ts-check
// Names with values: rows of a name, a value and a button that removes them.

import { attr, div, h, makeInput, setLabel, span } from "../dom.js";
import { onChange, onInput } from "../lifetime.js";
import { containerField } from "./container-field.js";
import { editableRows } from "./editable-rows.js";
import { hiddenNote } from "./hidden.js";
import { dropdown } from "./inputs.js";

/** @import { Context, MakeField } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/** Characters of a name that a line shows for sure. */
const SHORT = 12;

/** A field for names with values. @type {MakeField} */
export function mapField(ctx, node, saved, place) {
  const entries = node.entries ?? [];
  return containerField(ctx, node, saved, place, (own) => {
    const list = div("nba-map");
    const rows = editableRows(own, node, saved, {
      el: list,
      list,
      ordered: false,
      make: ({ from, draft, key, node: template, ctx: around }) => {
        const before = key ?? entries[from ?? -1]?.key ?? "";
        const name = nameInput(around, node, before);
        const shown = name.value; // a control may normalize
        const inner = { depth: place.depth + 1, bare: true, name: " " };
        const field = own.make(around, template, draft, inner);
        const tools = span("nba-tools");
        const hidden = hiddenNote(around);
        const el = div("nba-entry", name, field.el, tools, hidden.el);
        let n = 0;
        const named = () => (name.value === shown ? before : name.value);
        const updateNames = () => {
          const label = own.t("name_of", { n });
          setLabel(name, label);
          hidden.rename(label);
          hidden.show([named()]);
          attr(name, "aria-describedby", hidden.el.hidden ? null : hidden.el.id);
          field.rename(name.value || own.t("value_of", { n }));
        };
        onInput(own.signal, name, updateNames);
        onChange(own.signal, name, own.touched);
        onInput(own.signal, name, own.touched);
        const number = (/** @type {number} */ next) => {
          n = next;
          updateNames();
        };
        const target = () => (name.value === "" ? name : field.target());
        return { from, field: { ...field, target }, el, tools, number, named };
      },
    });
    const nameOf = (/** @type {import("./editable-rows.js").Row} */ row) => row.named?.() ?? "";
    const moved = () =>
      rows.moved() ||
      rows.rows().some((row) => row.from !== null && entries[row.from]?.key !== nameOf(row));
    return {
      ...rows,
      moved,
      read: (sent, always) => {
        const drafts = rows.rows().map((row) => ({
          from: row.from === null ? null : (entries[row.from]?.key ?? null),
          key: nameOf(row),
          draft: row.field.draft(sent),
        }));
        const touched = always || moved() || drafts.some((row) => row.draft !== null);
        return touched ? { entries: drafts } : null;
      },
    };
  });
}

/**
 * The control for a name: a list where there are names to choose from.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {string} value
 */
function nameInput(ctx, node, value) {
  const options = node.key_options ?? [];
  if (options.length > 0 && (value === "" || options.includes(value))) {
    const select = dropdown(
      ctx,
      options.map((key) => [key, key]),
    );
    select.value = value;
    return select;
  }
  const common = { autocomplete: "off", spellcheck: "false", dir: "auto" };
  // A name to approve is shown completely: an input of one line would hide its end, and lose line breaks.
  const long = value.includes("\n") || (ctx.approval && value.length > SHORT);
  const input = long ? h("textarea", { ...common, rows: 1 }) : makeInput("text", common);
  input.placeholder = ctx.t("name");
  input.value = value;
  return input;
}
