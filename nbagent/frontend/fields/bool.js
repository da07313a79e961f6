// @ts-check
// Yes or no: a checkbox where there is a value to start from, else radios with none chosen.

import { div, makeInput } from "../dom.js";
import { radioControl, selectControl } from "./choice.js";
import { controlField } from "./control-field.js";

/**
 * @typedef {import("./spec.js").SpecNode} SpecNode
 * @typedef {import("./spec.js").Draft} Draft
 * @typedef {import("./field.js").Context} Context
 */

/**
 * A field for yes or no.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {import("./field.js").Place} place
 */
export function boolField(ctx, node, saved, place) {
  const initial = node.initial ?? null;
  const box = initial?.bool !== undefined && !node.nullable && place.depth > 0;
  const labels = [ctx.t("yes"), ctx.t("no"), ...(node.nullable ? [ctx.t("no_value")] : [])];
  const options = labels.map((label) => ({ label }));
  const picked = place.cell
    ? selectControl(ctx, options)
    : radioControl(ctx, { ...node, options }, place.depth === 0);
  const control = box ? checkbox() : pickOne(picked, node);
  // A list of options has its own "no value".
  return controlField(ctx, { ...node, nullable: false }, place, control, { initial, saved });
}

/**
 * A control that picks yes, no, or no value, by their place in the list.
 * @param {import("./field.js").Control} control
 * @param {SpecNode} node
 * @returns {import("./field.js").Control}
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

/**
 * A checkbox as a control.
 * @returns {import("./field.js").Control}
 */
function checkbox() {
  const input = makeInput("checkbox");
  return {
    el: div("nba-check", input),
    inputs: [input],
    read: () => ({ bool: input.checked }),
    show: (draft) => {
      input.checked = draft?.bool === true;
    },
  };
}
