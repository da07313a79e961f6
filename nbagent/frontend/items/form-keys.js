// @ts-check
// Keys in a form: Enter and Ctrl+Enter answer, Enter sends a reason, Escape goes back, digits pick.

import { isComposing, prevent } from "../dom.js";
import { isTyping } from "../fields/inputs.js";

/**
 * A form, as far as its keys need it.
 * @typedef {object} KeyedForm
 * @property {boolean} approval
 * @property {import("../fields/spec.js").SpecNode|undefined} root
 * @property {HTMLElement} slot where its fields are
 * @property {() => void} main presses the main button
 * @property {() => boolean} escape goes back, where that is possible
 */

/** Kinds that are one question: Send waits for an answer, digits pick one. */
const PICKED = new Set(["choice", "multi", "bool"]);

/**
 * Whether the whole form is one question with answers to pick from.
 * @param {import("../fields/spec.js").SpecNode|undefined} root
 */
export function isPick(root) {
  return root !== undefined && PICKED.has(root.kind);
}

/**
 * Does what a key asks for. Enter alone never approves.
 * @param {KeyboardEvent} event
 * @param {KeyedForm} form
 */
export function pressKey(event, form) {
  const { key, ctrlKey, metaKey, altKey } = event;
  if (isComposing(event)) return;
  if (key === "Escape" && form.escape()) prevent(event);
  if (key === "Enter") pressEnter(event, form);
  if (/^[1-9]$/.test(key) && !ctrlKey && !metaKey && !altKey) pressDigit(event, form);
}

/**
 * Answers: Ctrl+Enter from anywhere, Enter alone from a line of a question and from a reason.
 * @param {KeyboardEvent} event
 * @param {KeyedForm} form
 */
function pressEnter(event, { approval, main }) {
  const { target, ctrlKey, metaKey, shiftKey, repeat } = event;
  const isReason = target instanceof Element && target.closest(".nba-reason") !== null;
  const isMeant =
    ctrlKey || metaKey || (isReason && target instanceof HTMLTextAreaElement && !shiftKey);
  if (!isMeant && !(target instanceof HTMLInputElement)) return;
  prevent(event);
  const isFilter = target instanceof Element && target.classList.contains("nba-filter");
  if (!repeat && (isMeant || (!approval && !shiftKey && !isFilter))) main();
}

/**
 * Picks the option that carries this digit.
 * @param {KeyboardEvent} event
 * @param {KeyedForm} form
 */
function pressDigit(event, { approval, root, slot }) {
  if (approval || !isPick(root)) return;
  if (isTyping(/** @type {HTMLElement} */ (event.target))) return;
  const input = slot.querySelector(`[data-option="${Number(event.key) - 1}"]`);
  if (!(input instanceof HTMLInputElement) || input.closest("[hidden]") || input.disabled) return;
  prevent(event);
  input.focus();
  input.click();
}
