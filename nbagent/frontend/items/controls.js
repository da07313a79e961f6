// @ts-check
// The controls of a form, whatever fields they belong to.

import { attr } from "../dom.js";

/**
 * Whether keys pressed there write a text.
 * @param {HTMLElement} target
 */
export function typing(target) {
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["radio", "checkbox"].includes(target.type);
}

/**
 * Controls that can be read and copied from, but not changed.
 * @param {HTMLElement} el
 * @param {boolean} frozen
 */
export function freeze(el, frozen) {
  for (const input of el.querySelectorAll("input, textarea, select, button")) {
    const readable =
      input instanceof HTMLTextAreaElement || (input instanceof HTMLInputElement && typing(input));
    attr(input, readable ? "readonly" : "disabled", frozen);
  }
}
