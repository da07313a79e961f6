// @ts-check
// Yes or no: a checkbox where there is a value to start from, else radios with none chosen.

import { h } from "../dom.js";
import { selectControl } from "./choice.js";
import { frame } from "./frame.js";
import { optionList } from "./options.js";

/**
 * @typedef {import("./node.js").Node} Node
 * @typedef {import("./node.js").Draft} Draft
 * @typedef {import("./node.js").Context} Context
 */

/**
 * @param {Context} ctx
 * @param {Node} node
 * @param {Draft} saved
 * @param {import("./node.js").Place} place
 */
export function boolField(ctx, node, saved, place) {
  const initial = node.initial ?? null;
  const box = initial?.bool !== undefined && !node.nullable && place.depth > 0;
  const labels = [ctx.t("yes"), ctx.t("no"), ...(node.nullable ? [ctx.t("no_value")] : [])];
  const options = labels.map((label) => ({ label }));
  const digits = place.depth === 0 && !ctx.approval;
  const control = box
    ? checkbox()
    : pickOne(place.cell ? selectControl(ctx, options) : radios(ctx, options, digits), node);
  // What is picked from has its own "no value".
  return frame(ctx, { ...node, nullable: false }, place, control, { initial, saved });
}

/**
 * A control that picks yes, no, or no value, by their place in the list.
 * @param {import("./node.js").Control} control
 * @param {Node} node
 * @returns {import("./node.js").Control}
 */
function pickOne(control, node) {
  return {
    ...control,
    read: () => {
      const option = control.read()?.option;
      if (option === undefined) return null;
      return option === 2 ? { null: true } : { bool: option === 0 };
    },
    show: (draft) => {
      const none = node.nullable && draft?.null ? 2 : undefined;
      const option = draft?.bool === undefined ? none : draft.bool ? 0 : 1;
      control.show(option === undefined ? null : { option });
    },
  };
}

/** @returns {import("./node.js").Control} */
function checkbox() {
  const input = h("input", { type: "checkbox" });
  return {
    el: h("div", "nba-check", input),
    inputs: [input],
    read: () => ({ bool: input.checked }),
    show: (draft) => {
      input.checked = draft?.bool === true;
    },
  };
}

/**
 * @param {Context} ctx
 * @param {import("./node.js").Option[]} options
 * @param {boolean} digits
 * @returns {import("./node.js").Control}
 */
function radios(ctx, options, digits) {
  const list = optionList(ctx, options, { type: "radio", row: true, digits });
  return {
    el: h("div", "nba-control", list.el),
    inputs: list.inputs,
    group: true,
    clearable: true,
    read: () => {
      const [option] = list.picked();
      return option === undefined ? null : { option };
    },
    show: (draft) => list.pick(draft?.option === undefined ? [] : [draft.option]),
  };
}
