// @ts-check
// One of several: a row of buttons where it is the whole question, radios, a list; with a write-in.

import { attr, div, makeInput, span, words } from "../dom.js";
import { on, onChange, onClick } from "../lifetime.js";
import { controlField } from "./control-field.js";
import { dropdown, lineInput } from "./inputs.js";
import { optionList } from "./options.js";
import { hintedWidget } from "./spec.js";

/** @import { Context, Control, MakeField } from "./field.js" */
/** @import { Option, SpecNode } from "./spec.js" */

/** Number of options up to which they are side by side, and up to which a field shows radios. */
const FEW = 5;
/** Options up to which a field shows a list that opens; beyond, one with a filter. */
const MANY = 12;
/** Characters that a closed list shows for sure in a cell of a table. */
const CELL = 12;
const OTHER = "other";

/** A field for one of several options. @type {MakeField} */
export function choiceField(ctx, node, saved, place) {
  const options = node.options ?? [];
  const short = options.every((option) => option.label.length <= 40 && !option.help);
  const hint = hintedWidget(node);
  const several = place.depth > 0 && options.length > FEW && options.length <= MANY && short;
  // In a narrow cell a closed list would cut the value that is approved.
  const cut = ctx.approval && options.some((option) => option.label.length > CELL);
  const listed = (place.cell && !cut) || hint === "select" || (several && hint !== "radio");
  const control = listed
    ? selectControl(ctx, options, node.other)
    : radioControl(ctx, node, place.depth === 0);
  return controlField(ctx, node, place, control, { initial: node.initial ?? null, saved });
}

/**
 * A list that opens, as a control, with a line for a write-in.
 * @param {Context} ctx
 * @param {Option[]} options
 * @param {boolean} [other] whether there is a write-in
 * @returns {Control}
 */
export function selectControl(ctx, options, other = false) {
  const el = dropdown(ctx, [
    ...options.map((option, index) => /** @type {[number, string]} */ ([index, option.label])),
    ...(other ? [/** @type {[string, string]} */ ([OTHER, ctx.t("other")])] : []),
  ]);
  const input = other ? writtenInput(ctx) : null;
  if (input)
    onChange(ctx.signal, el, () => {
      input.hidden = el.value !== OTHER;
      if (!input.hidden) input.focus();
    });
  return {
    el: div("nba-control", el, input),
    inputs: [el],
    read: () => {
      if (el.value === OTHER) return input?.value ? { other: input.value } : null;
      return el.value === "" ? null : { option: Number(el.value) };
    },
    show: (draft) => {
      el.value = draft?.other === undefined ? String(draft?.option ?? "") : OTHER;
      if (!input) return;
      input.value = draft?.other ?? "";
      input.hidden = el.value !== OTHER;
    },
  };
}

/**
 * Radios as a control, with a write-in.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {boolean} isQuestion whether the form has no other field
 * @returns {Control}
 */
export function radioControl(ctx, node, isQuestion) {
  const options = node.options ?? [];
  const list = optionList(ctx, options, {
    type: "radio",
    row: options.length <= FEW,
    digits: isQuestion && !ctx.approval,
  });
  const other = node.other ? writeIn(ctx, list.inputs[0]?.getAttribute("name") ?? ctx.id()) : null;
  if (other) {
    list.list.append(other.el);
    let pointed = false;
    on(ctx.signal, list.list, "keydown", () => (pointed = false));
    on(ctx.signal, other.el, "pointerdown", () => (pointed = true));
    onChange(ctx.signal, other.radio, () => other.open(true));
    // A person who clicks "Other…" wants to write; with the arrow keys they may only pass it.
    onClick(ctx.signal, other.radio, () => {
      if (!pointed) return;
      other.open(true); // the event of the change comes after this one
      other.input.focus();
    });
    onChange(ctx.signal, list.list, (event) => {
      if (event.target !== other.radio && event.target !== other.input) other.open(false);
    });
  }
  return {
    el: div("nba-control", list.el, other?.input),
    inputs: [...list.inputs, ...(other ? [other.radio] : [])],
    group: true,
    clearable: true,
    read: () => {
      if (other?.radio.checked)
        return other.input.value === "" ? null : { other: other.input.value };
      const [option] = list.picked();
      return option === undefined ? null : { option };
    },
    show: (draft) => {
      list.pick(draft?.option === undefined ? [] : [draft.option]);
      if (!other) return;
      other.radio.checked = draft?.other !== undefined;
      other.input.value = draft?.other ?? "";
      other.open(other.radio.checked);
    },
  };
}

/**
 * "Other…" and the text that belongs to it.
 * @param {Context} ctx
 * @param {string} group
 */
function writeIn(ctx, group) {
  const radio = makeInput("radio", { name: group });
  const el = words("label", "nba-option", radio, span({}, ctx.t("other")));
  const input = writtenInput(ctx);
  const open = (/** @type {boolean} */ shown) => attr(input, "hidden", !shown);
  return { el, radio, input, open };
}

/**
 * The line for a write-in, hidden until it is needed.
 * @param {Context} ctx
 */
function writtenInput(ctx) {
  const el = lineInput(ctx.t("other_answer"));
  el.className = "nba-other";
  el.hidden = true;
  return el;
}
