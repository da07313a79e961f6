// @ts-check
// Which file draws which kind of node. A kind that is not here is a JSON box.

import { h } from "../dom.js";
import { boolField } from "./bool.js";
import { choiceField } from "./choice.js";
import { factList, nodeFact } from "./fact.js";
import { fileField } from "./file.js";
import { errorLine } from "./help.js";
import { jsonField } from "./json.js";
import { lazyField } from "./lazy.js";
import { mapField } from "./map.js";
import { isMoment, momentField } from "./moment.js";
import { multiField } from "./multi.js";
import { objectField } from "./object.js";
import { listField } from "./rows.js";
import { tableField } from "./table.js";
import { textField } from "./text.js";
import { tupleField } from "./tuple.js";
import { unionField } from "./union.js";

/**
 * @typedef {import("./node.js").Context} Context
 * @typedef {import("./node.js").Node} Node
 * @typedef {import("./node.js").Draft} Draft
 * @typedef {import("./node.js").Place} Place
 * @typedef {import("./node.js").Field} Field
 */
/** @typedef {(ctx: Context, node: Node, saved: Draft, place: Place) => Field} MakeField */

/** @type {Record<string, MakeField>} */
const KINDS = {
  bool: boolField,
  choice: choiceField,
  code: textField,
  decimal: textField,
  duration: textField,
  file: fileField,
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

/** What a node of a kind must bring along to be drawn as that kind. @type {Record<string, keyof Node>} */
const NEEDS = {
  list: "item",
  map: "item",
  object: "fields",
  table: "item",
  tuple: "parts",
  union: "branches",
};

/** @type {MakeField} */
export function makeField(ctx, node, saved, place) {
  const fixed = node.read_only || node.kind === "const";
  if (fixed && (node.kind !== "object" || node.initial?.null)) return fixedField(ctx, node, place);
  return maker(node, saved)(ctx, node, saved, place);
}

/**
 * @param {Node} node
 * @param {Draft} saved
 * @returns {MakeField}
 */
function maker(node, saved) {
  const needs = NEEDS[node.kind];
  if (needs && !node[needs]) return jsonField;
  const shown = node.initial?.text ?? "";
  if (!node.secret && isMoment(node, shown) && isMoment(node, saved?.text ?? ""))
    return momentField;
  return KINDS[node.kind] ?? jsonField;
}

/**
 * A node that is only shown, where it stands alone.
 * @param {Context} ctx
 * @param {Node} node
 * @param {Place} place
 * @returns {Field}
 */
function fixedField(ctx, node, place) {
  const error = errorLine(ctx);
  const fact = nodeFact(place.bare ? { ...node, label: "" } : node, ctx);
  const el = h("div", "nba-field nba-wide", factList([fact], ctx), error.el);
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
