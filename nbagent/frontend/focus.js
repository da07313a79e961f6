// @ts-check
// Informs the kernel whether a person is in the card, and keeps the host's shortcuts out of it.

import { attr, focused, prevent } from "./dom.js";
import { makeTimer, on } from "./lifetime.js";

/** Milliseconds of quiet before the kernel is informed. */
const QUIET = 200;
/** The class of an element that got its focus from the page. */
export const PLACED = "nba-placed";

/**
 * Reports to the kernel, after a short pause, whether a person works in the card and which rows are open.
 * @param {HTMLElement} root
 * @param {import("./store.js").Store} store
 * @param {AbortSignal} signal
 */
export function reportFocus(root, store, signal) {
  const timer = makeTimer(signal);
  let reported = JSON.stringify({ busy: false, opened: [] }); // what the kernel assumes after the page's hello
  const report = () => {
    if (store.gone) return;
    const now = { busy: isBusy(root), opened: openKeys(root) };
    if (JSON.stringify(now) === reported) return;
    reported = JSON.stringify(now);
    store.send({ type: "focus", ...now });
  };
  const reportSoon = () => timer.start(QUIET, report);
  on(signal, root, "focusin", reportSoon);
  on(signal, root, "focusout", reportSoon);
  on(signal, root, "toggle", reportSoon, true);
  on(signal, document, "selectionchange", reportSoon);
  reportSoon();
}

/** The attribute that Jupyter looks for around the target of a key press. */
const SUPPRESS = "data-lm-suppress-shortcuts";

/**
 * Keeps keys that are pressed in the card from the host: in JupyterLab, X on a focused radio would cut the cell.
 * Keys of the window, such as Ctrl+S, pass. Notebook 7 listens before the card does, so the attribute is set
 * first.
 * @param {HTMLElement} root
 * @param {AbortSignal} signal
 */
export function keepKeysInside(root, signal) {
  root.setAttribute(SUPPRESS, "true");
  const markTarget = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Tab") stopAtScrollers(root);
    const target = event.composedPath()[0];
    if (!(target instanceof Element) || !root.contains(target)) return;
    const isForCard = !isOfTheWindow(event);
    // The host looks for the attribute from the target upwards.
    for (const el of [root, target]) el.toggleAttribute(SUPPRESS, isForCard);
  };
  on(signal, window, "keydown", markTarget, true);
  on(signal, root, "keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (isOfTheWindow(event)) return;
    event.stopPropagation();
    // Shift+Enter would run the next cell; in a textarea it is a new line.
    if (event.key === "Enter" && event.shiftKey && !(target instanceof HTMLTextAreaElement))
      prevent(event);
  });
}

/** Elements that scroll where their content is wider or longer than they are. */
const SCROLLERS = ":is(pre, table, .math, .nba-rich, .nba-thought, .nba-wide):not([aria-hidden] *)";

/**
 * Lets the Tab key, which was just pressed, stop at elements that scroll, so that the arrow keys scroll them.
 * @param {HTMLElement} root
 */
function stopAtScrollers(root) {
  for (const el of root.querySelectorAll(SCROLLERS)) {
    const isOver = el.scrollWidth > el.clientWidth + 1 || el.scrollHeight > el.clientHeight + 1;
    const scrolls = isOver && /auto|scroll/.test(getComputedStyle(el).overflow);
    attr(el, "tabindex", scrolls ? 0 : null);
  }
}

/** Letters that edit text together with the accelerator. */
const EDITING = "acvxyz";

/**
 * Whether a key is for the window: an accelerator with a letter that does not edit text.
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
  // Unsent text exists only in this page.
  if (root.querySelector(".nba-unsent")) return true;
  const at = focused();
  // After an answer the page moves the focus to its row or record: nobody works in the card then.
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
