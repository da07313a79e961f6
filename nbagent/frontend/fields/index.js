// @ts-check
// The file that draws each kind of node. A kind that is not here is a JSON box.

import { div } from "../dom.js";
import { boolField } from "./bool.js";
import { choiceField } from "./choice.js";
import { dateTimeField, fitsDateTime } from "./date-time.js";
import { factList, nodeFact } from "./facts.js";
import { fileField } from "./file.js";
import { errorLine } from "./help.js";
import { jsonField } from "./json.js";
import { lazyField } from "./lazy.js";
import { listField } from "./list.js";
import { mapField } from "./map.js";
import { multiField } from "./multi.js";
import { objectField } from "./object.js";
import { tableField } from "./table.js";
import { textField } from "./text.js";
import { tupleField } from "./tuple.js";
import { unionField } from "./union.js";

/** @import { Context, Field, MakeField, Place } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/** @type {Record<string, MakeField>} */
const KINDS = {
  bool: boolField,
  choice: choiceField,
  code: textField,
  decimal: textField,
  duration: textField,
  file: fileField,
  grid: gridField,
  int: textField,
  lazy: lazyField,
  list: listField,
  map: mapField,
  multi: multiField,
  num: textField,
  object: objectField,
  table: tableField,
  text: textField,
  tuple: tupleField,
  union: unionField,
};

/** A field for a node of any kind. @type {MakeField} */
export function makeField(ctx, node, saved, place) {
  const fixed = node.read_only || node.kind === "const";
  if (fixed && (node.kind !== "object" || node.initial?.null)) return fixedField(ctx, node, place);
  const isMoment = [node.initial, saved].every((draft) => fitsDateTime(node, draft?.text));
  const make = isMoment ? dateTimeField : (KINDS[node.kind] ?? jsonField);
  return make(ctx, node, saved, place);
}

/** A grid, which draws itself once the code that came with it is loaded. @type {MakeField} */
function gridField(ctx, node, saved, place) {
  const { length } = JSON.parse(node.cells ?? "[]");
  const field = { ...fixedField(ctx, node, place), draft: () => saved, rows: () => length };
  const { code } = /** @type {NonNullable<SpecNode["module"]>} */ (node.module);
  import(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))).then((module) =>
    Object.assign(field, module.default(ctx, node, saved, place, field.el)),
  );
  return field;
}

/**
 * A node that is only shown, by itself.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Place} place
 * @returns {Field}
 */
function fixedField(ctx, node, place) {
  const error = errorLine(ctx);
  const fact = nodeFact(place.bare ? { ...node, label: "" } : node, ctx);
  const el = div("nba-field nba-wide", factList([fact], ctx), error.el);
  return {
    node,
    el,
    draft: () => null,
    reset: () => {},
    fail: error.show,
    target: () => null,
    name: () => node.label,
    rename: () => {},
    problem: () => "",
    children: () => [],
  };
}
