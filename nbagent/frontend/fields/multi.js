// @ts-check
// Any number of options: checkboxes with All and None, and inputs for the person's own answers.

import { announce, div, makeButton } from "../dom.js";
import { onChange, onClick, onInput } from "../lifetime.js";
import { controlField } from "./control-field.js";
import { lineInput } from "./inputs.js";
import { optionList } from "./options.js";

/** @import { Context, MakeField } from "./field.js" */
/** @import { Draft } from "./spec.js" */

/** A field for any number of options. @type {MakeField} */
export function multiField(ctx, node, saved, place) {
  const options = node.options ?? [];
  const list = optionList(ctx, options, {
    type: "checkbox",
    row: options.length <= 5,
    digits: place.depth === 0 && !ctx.approval,
  });
  const others = node.other ? writeIns(ctx) : null;
  let used = false;
  const bar = div("nba-allnone");
  const el = div("nba-control", list.el, others?.el, bar);
  const pickLink = (/** @type {string} */ label, /** @type {number[]} */ indices) => {
    const link = makeButton("nba-link", label);
    onClick(ctx.signal, link, () => {
      used = true;
      list.pick(indices);
      if (indices.length === 0) others?.write([]);
      announce(el);
    });
    return link;
  };
  bar.append(pickLink(ctx.t("all"), [...options.keys()]), pickLink(ctx.t("none"), []));
  const markUsed = () => {
    used = true;
  };
  onInput(ctx.signal, el, markUsed);
  onChange(ctx.signal, el, markUsed);
  const control = {
    el,
    inputs: [...list.inputs, ...(others?.inputs ?? [])],
    group: true,
    clearable: true,
    read: () => {
      const written = others?.read() ?? [];
      if (!used) return null;
      return written.length > 0
        ? { options: list.picked(), others: written }
        : { options: list.picked() };
    },
    show: (/** @type {Draft} */ draft) => {
      used = draft !== null;
      list.pick(draft?.options ?? []);
      others?.write(draft?.others ?? []);
    },
  };
  return controlField(ctx, node, place, control, { initial: inOrder(node.initial), saved });
}

/**
 * A draft with its options in order, so that it can be compared.
 * @param {Draft|undefined} draft
 * @returns {Draft}
 */
function inOrder(draft) {
  if (!draft?.options && !draft?.others) return draft ?? null;
  const options = [...(draft.options ?? [])].sort((a, b) => a - b);
  return draft.others?.length ? { options, others: draft.others } : { options };
}

/**
 * Text inputs for the person's own answers: there is always one empty input more.
 * @param {Context} ctx
 */
function writeIns(ctx) {
  const el = div("nba-others");
  /** @type {HTMLInputElement[]} */
  const inputs = [];
  const add = () => {
    const input = lineInput(ctx.t("other_answer"));
    inputs.push(input);
    el.append(input);
    return input;
  };
  const grow = () => {
    if (inputs.at(-1)?.value !== "") add();
  };
  add();
  onInput(ctx.signal, el, grow);
  return {
    el,
    inputs,
    read: () => inputs.map((input) => input.value).filter(Boolean),
    write: (/** @type {string[]} */ values) => {
      while (inputs.length <= values.length) add();
      inputs.forEach((input, index) => {
        input.value = values[index] ?? "";
      });
    },
  };
}
