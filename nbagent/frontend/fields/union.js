// @ts-check
// One of several shapes: which one is the person's choice alone, and what was typed into each is kept.

import { div, h, makeInput, setLabel, words } from "../dom.js";
import { onChange } from "../lifetime.js";
import { containerField } from "./container-field.js";
import { addedContext } from "./field.js";
import { dropdown } from "./inputs.js";

/**
 * @typedef {import("./spec.js").SpecNode} SpecNode
 * @typedef {import("./spec.js").Draft} Draft
 * @typedef {import("./field.js").Context} Context
 * @typedef {import("./field.js").Field} Field
 * @typedef {import("./field.js").Place} Place
 */

/** Shapes up to which they are radios. */
const FEW = 4;

/**
 * A field for one of several shapes.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {Place} place
 */
export function unionField(ctx, node, saved, place) {
  const branches = node.branches ?? [];
  const start = node.branch ?? null;
  return containerField(ctx, node, saved, place, (own) => {
    const slot = div("nba-branch");
    /** @type {Map<number, Field>} The shapes that were looked at, each with what was typed. */
    const made = new Map();
    let name = "";
    /** @type {number|null} */
    let taken = null;
    const called = (/** @type {number} */ index) => {
      const label = branches[index]?.label ?? "";
      return name && label ? `${name}: ${label}` : name || label;
    };
    const field = (/** @type {number} */ index, /** @type {Draft} */ draft) => {
      const known = made.get(index);
      if (known) return known;
      const branch = branches[index];
      if (!branch) return null;
      const inner = { depth: place.depth + 1, bare: true, name: called(index) };
      const around = index === start ? own : addedContext(own);
      const fresh = own.make(around, branch.node, draft, inner);
      made.set(index, fresh);
      slot.append(fresh.el);
      return fresh;
    };
    const take = (/** @type {number|null} */ index, /** @type {Draft} */ draft = null) => {
      taken = index;
      if (index !== null) field(index, draft);
      for (const [other, one] of made) one.el.hidden = other !== index;
      slot.hidden = index === null;
      picker.show(index);
    };
    const pick = (/** @type {number|null} */ index) => {
      take(index);
      own.touched();
    };
    const labels = branches.map((branch) => branch.label);
    const few = labels.length <= FEW && labels.join("").length <= 60;
    const picker = (few ? shapeRadios : shapeSelect)(own, labels, pick);
    if (saved?.branch !== undefined) take(saved.branch, saved.draft ?? null);
    else take(start, saved?.draft ?? null);
    const current = () => (taken === null ? null : (made.get(taken) ?? null));
    return {
      els: [picker.el, slot],
      inputs: picker.inputs,
      read: (sent) => {
        if (taken === null) return null;
        const draft = current()?.draft(sent) ?? null;
        return taken === start && draft === null ? null : { branch: taken, draft };
      },
      reset: () => {
        if (start !== null) made.get(start)?.reset();
        take(start);
      },
      moved: () => taken !== start,
      target: () => current()?.target() ?? picker.inputs[0] ?? null,
      children: () => {
        const one = current();
        return one ? [[`|${taken}`, one]] : [];
      },
      rename: (given) => {
        name = given;
        picker.rename(own.t("shape_of", { name }));
        for (const [index, one] of made) one.rename(called(index));
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
      inputs.forEach((input, at) => {
        input.checked = at === index;
      });
    },
    rename: (name) => setLabel(el, name),
  };
}
