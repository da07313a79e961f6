// @ts-check
// Tells the kernel whether a person is in the card, and keeps the host's shortcuts out of it.

import { makeTimer, on } from "./lifetime.js";

/** Milliseconds of quiet before the kernel is told. */
const QUIET = 200;

/**
 * Tells the kernel after a moment of quiet when a person comes or goes, and which rows are open.
 * @param {HTMLElement} root
 * @param {import("./store.js").Store} store
 * @param {AbortSignal} signal
 */
export function reportFocus(root, store, signal) {
  const quiet = makeTimer(signal);
  let told = ""; // nothing yet: the kernel may have heard of a page that was reloaded since
  const report = () => {
    if (store.gone) return;
    const now = { busy: isBusy(root), opened: openKeys(root) };
    if (JSON.stringify(now) === told) return;
    told = JSON.stringify(now);
    store.send({ type: "focus", ...now });
  };
  const soon = () => quiet.start(QUIET, report);
  on(signal, root, "focusin", soon);
  on(signal, root, "focusout", soon);
  on(signal, root, "toggle", soon, true);
  on(signal, document, "selectionchange", soon);
  soon();
}

/**
 * Keeps keys that are pressed in the card from the host: in JupyterLab, X on a focused radio would cut the cell.
 * @param {HTMLElement} root
 * @param {AbortSignal} signal
 */
export function keepKeysInside(root, signal) {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  on(signal, root, "keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    event.stopPropagation();
    // Shift+Enter would run the next cell; in a textarea it is a new line.
    if (event.key === "Enter" && event.shiftKey && !(target instanceof HTMLTextAreaElement))
      event.preventDefault();
  });
}

/**
 * Whether a person works in the card: the focus or a selection is in it.
 * @param {HTMLElement} root
 */
function isBusy(root) {
  const focused = document.activeElement;
  // After an answer its record has the focus, which the page put there: nobody works in the card.
  if (focused && root.contains(focused) && !focused.matches(".nba-record")) return true;
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed) return false;
  return [selection.anchorNode, selection.focusNode].some(
    (node) => node !== null && root.contains(node),
  );
}

/**
 * The keys of the items that are unfolded.
 * @param {HTMLElement} root
 */
function openKeys(root) {
  const keys = [...root.querySelectorAll("[data-key]")].filter(
    (el) => el.matches("details[open]") || el.querySelector(":scope > details[open]"),
  );
  return keys.map((el) => el.getAttribute("data-key") ?? "");
}
