// @ts-check
// Yes or no: a checkbox where there is a value to start from, else radios with none chosen.

import { div, makeInput } from "../dom.js";
import { radioControl, selectControl } from "./choice.js";
import { controlField } from "./control-field.js";

/** @import { Control, MakeField } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/** A field for yes or no. @type {MakeField} */
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
 * @param {Control} control
 * @param {SpecNode} node
 * @returns {Control}
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
 * @returns {Control}
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
