// @ts-check
// A list: rows of one kind, in an order that can be changed.

import { h, span } from "../dom.js";
import { containerField } from "./container-field.js";
import { editableRows } from "./editable-rows.js";

/** @import { Row, RowToMake } from "./editable-rows.js" */
/** @import { MakeField } from "./field.js" */

/** Kinds that draw their own name above them. */
const NAMED = new Set(["object", "list", "table", "map", "tuple", "union", "lazy"]);

/** A field for a list. @type {MakeField} */
export function listField(ctx, node, saved, place) {
  return containerField(ctx, node, saved, place, (own) => {
    const list = h("ol", "nba-rows");
    const inner = { depth: place.depth + 1 };
    let listName = "";
    /** @type {(row: RowToMake) => Row} */
    const make = ({ from, draft, node: template, ctx: around }) => {
      const bare = !NAMED.has(template.kind);
      const field = own.make(around, template, draft, { ...inner, bare, name: " " });
      const tools = span("nba-tools");
      const el = h("li", { class: bare ? "nba-line-row" : "nba-block-row" }, field.el, tools);
      const number = (/** @type {number} */ n) =>
        field.rename(
          bare && listName ? own.t("row_of", { name: listName, n }) : own.t("row", { n }),
        );
      return { from, field, el, tools, number };
    };
    const rows = editableRows(own, node, saved, { el: list, list, make, ordered: true });
    return {
      ...rows,
      rename: (name) => {
        listName = name;
        rows.rename(name);
      },
    };
  });
}
