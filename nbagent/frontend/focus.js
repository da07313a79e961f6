// @ts-check
// Informs the kernel whether a person is in the card, and keeps the host's shortcuts out of it.

import { focused, prevent } from "./dom.js";
import { makeTimer, on } from "./lifetime.js";

/** Milliseconds of quiet before the kernel is informed. */
const QUIET = 200;
/** The class of what has the focus because the page put it there. */
export const PLACED = "nba-placed";

/**
 * Tells the kernel after a moment of quiet when a person comes or goes, and which rows are open.
 * @param {HTMLElement} root
 * @param {import("./store.js").Store} store
 * @param {AbortSignal} signal
 */
export function reportFocus(root, store, signal) {
  const quiet = makeTimer(signal);
  let told = JSON.stringify({ busy: false, opened: [] }); // as the page's hello says
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

/** The selectors that Jupyter looks for around the place of a key press. */
const SUPPRESS = "data-lm-suppress-shortcuts";

/**
 * Keeps keys that are pressed in the card from the host: in JupyterLab, X on a focused radio would cut the cell.
 * Keys of the window, such as Ctrl+S, pass. Notebook 7 listens before the card does, so the
 * page is informed first.
 * @param {HTMLElement} root
 * @param {AbortSignal} signal
 */
export function keepKeysInside(root, signal) {
  root.setAttribute(SUPPRESS, "true");
  const tell = (/** @type {KeyboardEvent} */ event) => {
    const target = event.composedPath()[0];
    if (!(target instanceof Element) || !root.contains(target)) return;
    const own = !isOfTheWindow(event);
    // The host begins to look at the target itself.
    for (const el of [root, target]) el.toggleAttribute(SUPPRESS, own);
  };
  on(signal, window, "keydown", tell, true);
  on(signal, root, "keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (isOfTheWindow(event)) return;
    event.stopPropagation();
    // Shift+Enter would run the next cell; in a textarea it is a new line.
    if (event.key === "Enter" && event.shiftKey && !(target instanceof HTMLTextAreaElement))
      prevent(event);
  });
}

/** Letters that edit text together with the accelerator. */
const EDITING = "acvxyz";

/**
 * Whether a key is the window's: an accelerator with a letter that neither edits text nor is the form's own.
 * @param {KeyboardEvent} event
 */
function isOfTheWindow({ key, ctrlKey, metaKey, altKey }) {
  return (
    (ctrlKey || metaKey) && !altKey && /^[a-z]$/i.test(key) && !EDITING.includes(key.toLowerCase())
  );
}

/**
 * Whether a person works in the card: the focus or a selection is in it.
 * @param {HTMLElement} root
 */
function isBusy(root) {
  // What was not sent is in this page alone.
  if (root.querySelector(".nba-unsent")) return true;
  const at = focused();
  // After an answer its row or record has the focus, which the page put there: nobody works in the card.
  if (at && root.contains(at) && !at.matches(`.nba-record, .${PLACED}`)) return true;
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
