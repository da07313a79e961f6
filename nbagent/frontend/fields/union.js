// @ts-check
// One of several shapes. Only the person chooses the shape, and the input of each is kept.

import { div, h, makeInput, setLabel, words } from "../dom.js";
import { onChange } from "../lifetime.js";
import { containerField } from "./container-field.js";
import { addedContext } from "./field.js";
import { reveal } from "./hidden.js";
import { dropdown } from "./inputs.js";

/** @import { Context, Field, MakeField } from "./field.js" */
/** @import { Draft } from "./spec.js" */

/** Shapes up to which they are radios. */
const FEW = 4;

/** A field for one of several shapes. @type {MakeField} */
export function unionField(ctx, node, saved, place) {
  const branches = node.branches ?? [];
  const start = node.branch ?? null;
  return containerField(ctx, node, saved, place, (own) => {
    const slot = div("nba-branch");
    /** @type {Map<number, Field>} The fields of the shapes that were opened, each with its input. */
    const drawnFields = new Map();
    let name = "";
    /** @type {number|null} */
    let selected = null;
    const branchName = (/** @type {number} */ index) => {
      const label = branches[index]?.label ?? "";
      return name && label ? `${name}: ${label}` : name || label;
    };
    const field = (/** @type {number} */ index, /** @type {Draft} */ draft) => {
      const known = drawnFields.get(index);
      if (known) return known;
      const branch = branches[index];
      if (!branch) return null;
      const inner = { depth: place.depth + 1, bare: true, name: branchName(index) };
      const around = index === start ? own : addedContext(own);
      const fresh = own.make(around, branch.node, draft, inner);
      drawnFields.set(index, fresh);
      slot.append(fresh.el);
      return fresh;
    };
    const select = (/** @type {number|null} */ index, /** @type {Draft} */ draft = null) => {
      selected = index;
      if (index !== null) field(index, draft);
      for (const [other, one] of drawnFields) one.el.hidden = other !== index;
      slot.hidden = index === null;
      picker.show(index);
    };
    const pick = (/** @type {number|null} */ index) => {
      select(index);
      own.touched();
    };
    const labels = branches.map((branch) => reveal(branch.label));
    const few = labels.length <= FEW && labels.join("").length <= 60;
    const picker = (few ? shapeRadios : shapeSelect)(own, labels, pick);
    if (saved?.branch !== undefined) select(saved.branch, saved.draft ?? null);
    else select(start, saved?.draft ?? null);
    const current = () => (selected === null ? null : (drawnFields.get(selected) ?? null));
    return {
      els: [picker.el, slot],
      inputs: picker.inputs,
      read: (sent) => {
        if (selected === null) return null;
        const draft = current()?.draft(sent) ?? null;
        return selected === start && draft === null ? null : { branch: selected, draft };
      },
      reset: () => {
        if (start !== null) drawnFields.get(start)?.reset();
        select(start);
      },
      moved: () => selected !== start,
      target: () => current()?.target() ?? picker.inputs[0] ?? null,
      children: () => {
        const one = current();
        return one ? [[`|${selected}`, one]] : [];
      },
      rename: (given) => {
        name = given;
        picker.rename(own.t("shape_of", { name }));
        for (const [index, one] of drawnFields) one.rename(branchName(index));
      },
    };
  });
}

/**
 * @typedef {object} Picker
 * @property {HTMLElement} el
 * @property {HTMLElement[]} inputs
 * @property {(index: number|null) => void} show
 * @property {(name: string) => void} rename
 */

/**
 * The list of shapes to choose from.
 * @param {Context} ctx
 * @param {string[]} labels
 * @param {(index: number|null) => void} pick
 * @returns {Picker}
 */
function shapeSelect(ctx, labels, pick) {
  const el = dropdown(
    ctx,
    labels.map((label, index) => [index, label]),
  );
  const picked = () => pick(el.value === "" ? null : Number(el.value));
  onChange(ctx.signal, el, picked);
  return {
    el,
    inputs: [el],
    show: (index) => {
      el.value = index === null ? "" : String(index);
    },
    rename: (name) => setLabel(el, name),
  };
}

/**
 * The shapes to choose from, side by side.
 * @param {Context} ctx
 * @param {string[]} labels
 * @param {(index: number|null) => void} pick
 * @returns {Picker}
 */
function shapeRadios(ctx, labels, pick) {
  const group = ctx.id();
  const inputs = labels.map((_, index) => {
    const input = makeInput("radio", { name: group, value: index });
    onChange(ctx.signal, input, () => pick(index));
    return input;
  });
  const options = labels.map((label, index) =>
    h("label", {}, inputs[index], words("span", "", label)),
  );
  const el = div({ class: "nba-shapes", role: "radiogroup" }, ...options);
  return {
    el,
    inputs,
    show: (index) => {
      for (const [at, input] of inputs.entries()) input.checked = at === index;
    },
    rename: (name) => setLabel(el, name),
  };
}
