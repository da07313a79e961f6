// @ts-check
// A table: one row per object, one column per field.

import { div, h, tableCell, words } from "../dom.js";
import { containerField } from "./container-field.js";
import { editableRows } from "./editable-rows.js";
import { nodeText } from "./facts.js";
import { draftsByKey } from "./field.js";
import { errorLine, withCode } from "./help.js";
import { reveal } from "./hidden.js";
import { listField } from "./list.js";
import { stepTo } from "./spec.js";

/** @import { Context, Field, MakeField } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */

/** A field for a table; a list where its rows are not flat. @type {MakeField} */
export function tableField(ctx, node, saved, place) {
  const templates = [...(node.item ? [node.item] : []), ...(node.rows ?? [])];
  const flat = templates.every((one) => one.fields && !one.nullable && !one.more);
  if (!flat) return listField(ctx, node, saved, place);
  /** @type {Map<string, SpecNode>} */
  const columns = new Map();
  for (const field of templates.flatMap((one) => one.fields ?? []))
    if (!columns.has(field.key)) columns.set(field.key, field);
  return containerField(ctx, node, saved, place, (own) => {
    const body = h("tbody", { role: "rowgroup" });
    const heads = [...columns.values()].map((column) =>
      words(
        "th",
        { scope: "col", role: "columnheader", "data-kind": column.kind },
        reveal(column.label),
        column.help && div("nba-help", ...withCode(column.help)),
      ),
    );
    const tools = tableCell({ class: "nba-tools" });
    const head = h("tr", { role: "row" }, ...heads, tools);
    const el = h(
      "table",
      { class: "nba-table", role: "table" },
      h("thead", { role: "rowgroup" }, head),
      body,
    );
    return editableRows(own, node, saved, {
      el,
      list: body,
      ordered: true,
      make: ({ from, draft, node: template, ctx: around }) =>
        tableRow(around, template, columns, draft, { depth: place.depth + 1, from }),
    });
  });
}

/**
 * A row of a table, which is a field itself.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Map<string, SpecNode>} columns
 * @param {Draft} saved
 * @param {{depth: number, from: number|null}} where
 * @returns {import("./editable-rows.js").Row}
 */
function tableRow(ctx, node, columns, saved, { depth, from }) {
  const error = errorLine(ctx);
  const tools = tableCell({ class: "nba-tools" });
  const own = new Map((node.fields ?? []).map((field) => [field.key, field]));
  /** @type {Field[]} */
  const fields = [];
  const cells = [...columns].map(([key, column]) => {
    const field = own.get(key);
    const cell = words("td", { role: "cell", "data-label": reveal(column.label) });
    if (field && (field.read_only || node.read_only || field.kind === "const"))
      cell.append(nodeText(field, ctx));
    else if (field) {
      const place = { depth: depth + 1, bare: true, cell: true, name: column.label };
      const cellField = ctx.make(ctx, field, saved?.fields?.[key] ?? null, place);
      fields.push({ ...cellField, name: () => column.label });
      cell.append(cellField.el);
    }
    return cell;
  });
  cells[0]?.append(error.el);
  const el = h("tr", { role: "row" }, ...cells, tools);
  let name = "";
  /** @type {Field} */
  const field = {
    node,
    el,
    draft: (sent) => {
      const parts = draftsByKey(fields, sent);
      return Object.keys(parts).length > 0 ? { fields: parts } : null;
    },
    reset: () => {
      for (const one of fields) one.reset();
    },
    fail: (messages) => error.show(messages),
    target: () => fields[0]?.target() ?? null,
    name: () => name,
    rename: (given) => {
      name = given;
    },
    problem: () => "",
    children: () => fields.map((one) => [stepTo(one.node), one]),
  };
  const number = (/** @type {number} */ n) => {
    field.rename(ctx.t("row", { n }));
    for (const one of fields)
      one.rename(ctx.t("row_of", { name: columns.get(one.node.key)?.label ?? "", n }));
  };
  return { from, field, el, tools, number };
}
