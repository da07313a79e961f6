// @ts-check
// One button that copies the element beside it: an answer, code, a table, arguments or a result. It takes no
// room: it lies over the corner of the element under the pointer, and the arrow keys move it.

import {
  attr,
  boxOf,
  div,
  fill,
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
import { floatingMenu, opens } from "./menu.js";

/** Elements that can be copied; the innermost one under the pointer is copied. The content of a form cannot be copied. */
const BLOCKS = ":is(table, pre, .nba-input, .nba-say):not(.nba-form *)";
/** Those that are not in a closed row: this needs no layout. */
const OPEN_BLOCKS = `${BLOCKS}:not(details:not([open]) *)`;
/** Names of inputs whose text is Python; see ../notebook/render/arguments.py. */
export const PYTHON = /(^|[^a-z])(code|python|source|script|cell)$/i;
/** Milliseconds for which the button shows the outcome. */
const DONE = 1600;
/** Milliseconds after which an answer is copied without its Markdown, as the kernel is busy. */
const WAIT = 1000;
/** Pixels by which the button is above the element's upper edge, and inside the right edge. */
const ABOVE = 6;
const INSIDE = 6;
/** Pixels between the places that are tried for the button. */
const STEP = 3;

/**
 * Adds the button to a card.
 * @param {HTMLElement} root
 * @param {import("./items/item.js").CardContext} card
 */
export function offerCopies(root, card) {
  const { signal, store } = card;
  const button = makeButton("nba-copy");
  const menu = floatingMenu(signal, card.id());
  /** What the open menu copies, and the button that shows the outcome. @type {{block: HTMLElement|null, by: HTMLButtonElement}} */
  let offered = { block: null, by: button };
  /**
   * The button of the menu of an answer.
   * @param {HTMLButtonElement} by the button beside it
   * @param {string} look
   * @param {() => HTMLElement|null} blockOf
   */
  const makeMore = (by, look, blockOf) => {
    const more = makeButton(look, "▾");
    setLabel(more, store.t("copy_more"));
    opens(signal, more, menu.panel, (at) => {
      offered = { block: blockOf(), by };
      menu.open(at);
    });
    return more;
  };
  const addWay = (/** @type {string} */ label, plain = false) =>
    menu.entry(store.t(label), "", () => {
      menu.close();
      if (offered.block) copyBlock(offered.block, offered.by, plain);
    });
  const more = makeMore(button, "nba-copy-more", () => target);
  const el = div("nba-copies", button, more);
  const labelTimer = makeTimer(signal);
  const sourceTimer = makeTimer(signal);
  /** @type {HTMLElement|null} */
  let target = null;
  const name = () => {
    setText(button, store.t("copy"));
    setLabel(button, target && store.t(`copy_${kindOf(target)}`));
    const isAnswer = target !== null && kindOf(target) === "answer";
    attr(button, "title", isAnswer && store.t("copy_how"));
    more.hidden = !isAnswer;
    if (!menu.panel.firstChild) {
      fill(menu.panel, addWay("copy_markdown"), addWay("copy_plain", true));
      for (const part of [more, menu.panel]) setLabel(part, store.t("copy_more"));
    }
    placeButton();
  };
  const isInUse = () => el.contains(focused()) || !menu.panel.hidden;
  const show = (/** @type {HTMLElement} */ block) => {
    if (block === target && el.hasAttribute("data-on")) return;
    target = block;
    labelTimer.stop();
    el.setAttribute("data-on", "");
    name();
  };
  /** Places the button at the upper edge of the block, or of the scrolling element around it. */
  const placeButton = () => {
    if (!target || !el.hasAttribute("data-on")) return;
    const [box, around] = [boxOf(target), boxOf(root)];
    const seen = boxOf(target.closest(".nba-items") ?? root);
    const isOutside =
      box.bottom < seen.top + INSIDE || box.top > seen.bottom || !target.isConnected;
    const { width } = boxOf(el);
    const height = boxOf(el).height + 1; // the card's border moves it
    const edge = Math.min(box.right, around.right);
    const from = Math.max(box.top - height, seen.top + 2);
    const to = Math.min(box.bottom + height, seen.bottom + ABOVE);
    const usual = Math.max(box.top - ABOVE, from);
    const tops = [usual];
    for (let y = from; y < to; y += STEP) tops.push(y);
    let [top, right, hides] = [usual, edge - INSIDE, !isInUse()];
    // Beside the element if there is room, else inside its right edge; where it covers no text, or nowhere.
    for (const x of [edge + width, right]) {
      if (x > around.right - INSIDE) continue;
      const lines = linesIn(root, x - width, from, to);
      const isFree = (/** @type {number} */ y) =>
        y + height <= to && !lines.some((line) => line.top < y + height && line.bottom > y);
      const free = tops.find(isFree);
      if (free === undefined) continue;
      [top, right, hides] = [free, x, false];
      break;
    }
    el.toggleAttribute("data-gone", isOutside || hides);
    el.style.top = `${Math.max(0, top - around.top)}px`;
    el.style.right = `${around.right - right}px`;
  };
  /** The answer whose text the kernel is asked for. @type {HTMLElement|null} */
  let asked = null;
  /** The button that was pressed. */
  let pressed = button;
  const copy = async (/** @type {string} */ text, word = "copied") => {
    asked = null;
    sourceTimer.stop();
    const said = store.t((await write(text, root)) ? word : "not_copied");
    const shows = pressed;
    setText(shows, said);
    placeButton();
    card.say(said);
    if (shows === button) labelTimer.start(DONE, name);
    else makeTimer(signal).start(DONE, () => setText(shows, store.t("copy")));
  };
  const copyBlock = (/** @type {HTMLElement} */ block, by = button, plain = false) => {
    pressed = by;
    const { key } = block.dataset;
    if (plain) return copy(textOf(block), "copied_plain");
    if (!key || kindOf(block) !== "answer") return copy(textOf(block));
    asked = block; // the kernel has its Markdown
    const isSent = !store.gone && store.send({ type: "copy", key });
    sourceTimer.start(isSent ? WAIT : 0, () => copy(textOf(block), "copied_plain"));
  };
  store.listen((event) => {
    if (event.type === "copied" && event.key === asked?.dataset["key"])
      copy(event.text || textOf(asked));
  }, signal);
  const hide = () => {
    if (!isInUse()) el.removeAttribute("data-on");
  };
  on(signal, root, "pointerover", (event) => {
    const hovered = /** @type {Element} */ (event.target);
    const block = /** @type {HTMLElement|null} */ (hovered.closest(BLOCKS));
    if (!menu.panel.hidden) return; // its entries copy what it was opened for
    if (block && isCopyable(block)) show(block);
    else if (!el.contains(hovered)) hide();
  });
  on(signal, root, "pointerleave", hide);
  on(signal, root, "scroll", placeButton, true);
  on(signal, root, "toggle", () => look(), true);
  on(signal, button, "focus", () => {
    const all = blocksOf(root);
    const block = target?.isConnected
      ? target
      : (all.findLast((el) => el.matches(".nba-say")) ?? all.at(-1));
    if (block) show(block);
  });
  on(signal, el, "focusout", ({ relatedTarget }) => {
    if (!el.contains(/** @type {Node|null} */ (relatedTarget)) && menu.panel.hidden)
      el.removeAttribute("data-on");
  });
  on(signal, button, "keydown", (event) => {
    const step = stepOf(event);
    if (step === 0) return;
    prevent(event);
    const all = blocksOf(root);
    const next =
      all[(all.indexOf(/** @type {HTMLElement} */ (target)) + step + all.length) % all.length];
    if (next) show(next);
  });
  onClick(signal, button, ({ shiftKey }) => target && copyBlock(target, button, shiftKey));
  /** Hides the button, also from Tab, if nothing can be copied. */
  const look = () => {
    el.hidden = !root.querySelector(OPEN_BLOCKS);
    placeButton();
  };
  return { els: [el, menu.panel], name, look, copyBlock, makeMore };
}

/**
 * All visible elements that can be copied.
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

/**
 * The lines of text in the card's items that reach the button's left edge.
 * @param {HTMLElement} root
 * @param {number} left
 * @param {number} from
 * @param {number} to
 */
function linesIn(root, left, from, to) {
  const range = document.createRange();
  return [...root.querySelectorAll(".nba-items > *")].flatMap((item) => {
    const box = boxOf(item);
    const found = [];
    const texts = document.createTreeWalker(item, NodeFilter.SHOW_TEXT);
    while (box.top < to && box.bottom > from && texts.nextNode()) {
      range.selectNodeContents(texts.currentNode);
      found.push(...range.getClientRects());
    }
    return found.filter((line) => line.right > left);
  });
}

/** The name of the copied element. @param {Element} el */
export function kindOf(el) {
  if (el.matches("table")) return "table";
  if (pythonOf(el)) return "cell";
  if (el.matches(".nba-input")) return "input";
  if (el.matches("pre")) return el.closest(".nba-say") ? "code" : "text";
  return el.matches(".nba-rich") ? "text" : "answer";
}

/** The value of the argument that is copied, or of the only argument, if the value is Python. @param {Element} el */
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
  if (!el.matches(".nba-input")) {
    const after = /** @type {HTMLElement|null} */ (el.querySelector(":scope > .nba-after"));
    if (after) after.hidden = true;
    // biome-ignore lint/performance/useDomNodeTextContent: the line breaks between paragraphs are wanted
    const text = el.innerText.replace(/\n$/, "");
    if (after) after.hidden = false; // within one task, its button keeps the focus
    return text;
  }
  const code = pythonOf(el);
  if (code) return newOf(code);
  const names = [...el.querySelectorAll(":scope > dl > dt")];
  return names.map((dt) => `${lineOf(dt)}: ${newOf(dt.nextElementSibling)}`).join("\n");
}

/** One line of text. @param {Element} el */
function lineOf(el) {
  return (el.textContent ?? "").replace(/\s+/g, " ").trim();
}

/** The current value of an element that may also show an earlier one. @param {Element|null} el */
function newOf(el) {
  if (el === null) return "";
  const wholeValue = el.getAttribute("data-whole");
  if (wholeValue !== null) return wholeValue;
  const copy = /** @type {HTMLElement} */ (el.cloneNode(true));
  for (const old of copy.querySelectorAll("del, small")) old.remove();
  return (copy.textContent ?? "").trim();
}

/**
 * Writes to the clipboard; a page that is served without TLS has only the old function for that.
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
