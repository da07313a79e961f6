// @ts-check
// Native controls of any field: created, checked and frozen.

import { attr, h, words } from "../dom.js";
import { reveal } from "./hidden.js";

/**
 * Whether this element takes the keys that are pressed in it as its input.
 * @param {HTMLElement} target
 */
export function isTyping(target) {
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["radio", "checkbox"].includes(target.type);
}

/**
 * Makes controls read-only, so that their text can still be copied, or undoes that.
 * @param {HTMLElement} el
 * @param {boolean} frozen
 */
export function freeze(el, frozen) {
  for (const input of el.querySelectorAll("input, textarea, select, button")) {
    const readable =
      input instanceof HTMLTextAreaElement ||
      (input instanceof HTMLInputElement && isTyping(input));
    attr(input, readable ? "readonly" : "disabled", frozen);
  }
}

/**
 * A text input that is not a field of its own.
 * @param {string} name
 */
export function lineInput(name) {
  const about = { type: "text", placeholder: name, "aria-label": name, autocomplete: "off" };
  return words("input", about);
}

/**
 * A list that opens, with a first line for no choice yet.
 * @param {Pick<import("./field.js").Context, "t">} ctx
 * @param {[string|number, string][]} options each a value and its label
 */
export function dropdown(ctx, options) {
  const lines = options.map(([value, label]) => h("option", { value }, reveal(label)));
  return h("select", {}, h("option", { value: "" }, ctx.t("choose")), ...lines);
}
