// @ts-check
// One button that copies the element at it: an answer, code, a table, arguments, a result. It takes no
// room: it is over the corner of the element under the pointer, and the arrow keys move it.

import {
  boxOf,
  focused,
  focusInPlace,
  h,
  makeButton,
  prevent,
  setLabel,
  setText,
  stepOf,
} from "./dom.js";
import { makeTimer, on, onClick } from "./lifetime.js";

/** Elements that can be copied; the innermost one under the pointer is copied. The content of a form is for its answer. */
const BLOCKS = ":is(table, pre, .nba-input, .nba-say):not(.nba-form *)";
/** Names of inputs whose text is Python; see ../notebook/render/arguments.py. */
const PYTHON = /(^|[^a-z])(code|python|source|script|cell)$/i;
/** Milliseconds for which it shows that it was done. */
const DONE = 1600;
/** Its distance above the edge, in pixels, and inside of it. */
const ABOVE = 6;
const INSIDE = 6;

/**
 * Adds the button to a card.
 * @param {HTMLElement} root
 * @param {import("./items/item.js").CardContext} card
 */
export function offerCopies(root, card) {
  const { signal, store } = card;
  const button = makeButton("nba-copy");
  const told = makeTimer(signal);
  /** @type {HTMLElement|null} */
  let at = null;
  const name = () => {
    setText(button, store.t("copy"));
    setLabel(button, at && store.t(`copy_${kindOf(at)}`));
  };
  const show = (/** @type {HTMLElement} */ block) => {
    if (block === at && button.hasAttribute("data-on")) return;
    at = block;
    told.stop();
    name();
    button.setAttribute("data-on", "");
    place();
  };
  /** Stays where the block is: at its upper edge, or at that of what scrolls around it. */
  const place = () => {
    if (!at || !button.hasAttribute("data-on")) return;
    const [box, around] = [boxOf(at), boxOf(root)];
    const seen = boxOf(at.closest(".nba-items") ?? root);
    const gone = box.bottom < seen.top + INSIDE || box.top > seen.bottom || !at.isConnected;
    button.toggleAttribute("data-gone", gone);
    const top = Math.max(box.top - ABOVE, seen.top + 2);
    button.style.top = `${Math.max(0, top - around.top)}px`;
    button.style.right = `${Math.max(0, around.right - Math.min(box.right, around.right)) + INSIDE}px`;
  };
  const hide = () => {
    if (focused() !== button) button.removeAttribute("data-on");
  };
  on(signal, root, "pointerover", (event) => {
    const over = /** @type {Element} */ (event.target);
    const block = /** @type {HTMLElement|null} */ (over.closest(BLOCKS));
    if (block && isCopyable(block)) show(block);
    else if (!button.contains(over)) hide();
  });
  on(signal, root, "pointerleave", hide);
  for (const moves of /** @type {const} */ (["scroll", "toggle"]))
    on(signal, root, moves, place, true);
  on(signal, button, "focus", () => {
    const all = blocksOf(root);
    const block = at?.isConnected
      ? at
      : (all.findLast((el) => el.matches(".nba-say")) ?? all.at(-1));
    if (block) show(block);
  });
  on(signal, button, "blur", hide);
  on(signal, button, "keydown", (event) => {
    const step = stepOf(event);
    if (step === 0) return;
    prevent(event);
    const all = blocksOf(root);
    const next =
      all[(all.indexOf(/** @type {HTMLElement} */ (at)) + step + all.length) % all.length];
    if (next) show(next);
  });
  onClick(signal, button, async () => {
    if (at === null) return;
    const done = (await write(textOf(at), root)) ? "copied" : "not_copied";
    setText(button, store.t(done));
    card.say(store.t(done));
    told.start(DONE, name);
  });
  /** Is not there, for Tab either, where nothing can be copied. */
  const look = () => {
    button.hidden = !root.querySelector(BLOCKS);
    place();
  };
  return { el: button, name, look };
}

/**
 * All that can be copied, as far as it is on the page.
 * @param {HTMLElement} root
 */
function blocksOf(root) {
  const found = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(BLOCKS)]);
  return found.filter((el) => isCopyable(el) && el.checkVisibility());
}

/** @param {Element} el */
function isCopyable(el) {
  return !!el.textContent?.trim();
}

/** The name of the copied element. @param {Element} el */
export function kindOf(el) {
  if (el.matches("table")) return "table";
  if (pythonOf(el)) return "cell";
  if (el.matches(".nba-input")) return "input";
  if (el.matches("pre")) return el.closest(".nba-say") ? "code" : "text";
  return el.matches(".nba-rich") ? "text" : "answer";
}

/** The value that an element shows, or all arguments are, where that is Python. @param {Element} el */
function pythonOf(el) {
  const dd = el.closest("dd") ?? el.querySelector(":scope > dl > dd:nth-child(2):last-child");
  return PYTHON.test(dd?.previousElementSibling?.textContent ?? "") ? dd : null;
}

/**
 * The copied text: of a table its cells with tabs between them, of arguments a line each, else the text.
 * @param {HTMLElement} el
 */
export function textOf(el) {
  if (el instanceof HTMLTableElement)
    return [...el.rows].map((row) => [...row.cells].map(lineOf).join("\t")).join("\n");
  // biome-ignore lint/performance/useDomNodeTextContent: the line breaks between paragraphs are wanted
  if (!el.matches(".nba-input")) return el.innerText.replace(/\n$/, "");
  const code = pythonOf(el);
  if (code) return newOf(code);
  const names = [...el.querySelectorAll(":scope > dl > dt")];
  return names.map((dt) => `${lineOf(dt)}: ${newOf(dt.nextElementSibling)}`).join("\n");
}

/** One line of text. @param {Element} el */
function lineOf(el) {
  return (el.textContent ?? "").replace(/\s+/g, " ").trim();
}

/** A value as it is now, where it shows what it was too. @param {Element|null} el */
function newOf(el) {
  if (el === null) return "";
  const whole = el.getAttribute("data-whole");
  if (whole !== null) return whole;
  const copy = /** @type {HTMLElement} */ (el.cloneNode(true));
  for (const old of copy.querySelectorAll("del, small")) old.remove();
  return (copy.textContent ?? "").trim();
}

/**
 * Writes to the clipboard; also where the page is served without TLS, which has the old way only.
 * @param {string} text
 * @param {HTMLElement} root
 */
async function write(text, root) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "nba-sr", "aria-hidden": "true" });
    const before = focused();
    area.value = text;
    root.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focusInPlace(before);
    return done;
  }
}
