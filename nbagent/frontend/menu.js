// @ts-check
// A menu that floats above the page, so that nothing moves and no output area cuts it.

import {
  attr,
  boxOf,
  div,
  expand,
  focused,
  focusInPlace,
  makeButton,
  prevent,
  words,
} from "./dom.js";
import { lifeWithin, on, onClick } from "./lifetime.js";

/** Keys that move through a menu, as steps from the entry that has the focus. */
const STEPS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);
/** Pixels between the menu and its button. */
const GAP = 4;
/** Pixels between the menu and the edge of the window. */
const EDGE = 8;

/**
 * A menu without entries, which opens at a button: see `opens`.
 * @param {AbortSignal} signal
 * @param {string} id
 */
export function floatingMenu(signal, id) {
  const panel = div({ class: "nba-menu", role: "menu", popover: "manual", hidden: true, id });
  /** The time while the menu is open. @type {AbortController|null} */
  let life = null;
  /** The button at which it is open. @type {HTMLElement|null} */
  let button = null;
  const shown = () => /** @type {HTMLElement[]} */ ([...panel.children]).filter((el) => !el.hidden);
  const place = () => {
    if (!button) return;
    const { top, bottom, right } = boxOf(button);
    const { height, width } = boxOf(panel);
    const card = button.closest(".nbagent") ?? button;
    const first = Math.max(EDGE, Math.min(boxOf(card).left, innerWidth - width - EDGE));
    let left = Math.max(first, right - width);
    const below = bottom + height + GAP;
    // Stop stays free: the menu is beside it, or above its own button.
    const stop = card.querySelector(".nba-stop:not([hidden])");
    const { left: edge = 0, top: stopTop = Infinity } = stop ? boxOf(stop) : {};
    const beside = edge - width - EDGE;
    const hidesStop = stopTop < below && left > beside;
    if (hidesStop && beside >= first) left = beside;
    const isAbove = top > height + GAP && ((hidesStop && left !== beside) || below >= innerHeight);
    panel.style.top = `${isAbove ? top - height - GAP : bottom + GAP}px`;
    panel.style.left = `${left}px`;
  };
  /** Opens the menu at a button, or closes it. @param {HTMLElement|null} at */
  const open = (at) => {
    life?.abort();
    if (button) expand(button, false);
    button = at;
    panel.hidden = !at;
    if (panel.isConnected) panel.togglePopover?.(!!at);
    if (!at) return;
    expand(at, true);
    life = lifeWithin(signal);
    on(life.signal, document, "scroll", place, true);
    on(life.signal, document, "pointerdown", leave, true);
    place();
    focusInPlace(shown()[0]);
  };
  /** Closes the menu, and moves the focus to its button; returns whether the menu was open. */
  const close = () => {
    const at = button;
    focusInPlace(at);
    open(null);
    return at !== null;
  };
  const leave = (/** @type {Event} */ event) => {
    const path = event.composedPath();
    if (button && !path.includes(panel) && !path.includes(button)) open(null);
  };
  on(signal, panel, "keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
    const step = STEPS.get(event.key);
    const all = shown();
    if (step === undefined || all.length === 0) return;
    prevent(event);
    const at = all.indexOf(/** @type {HTMLElement} */ (focused())) + step;
    all.at(Number.isFinite(at) ? at % all.length : step < 0 ? 0 : -1)?.focus();
  });
  on(signal, panel, "focusout", ({ relatedTarget }) => {
    const to = /** @type {Node|null} */ (relatedTarget);
    // The new target is missing if the person leaves the browser's tab or presses an entry.
    if (to && to !== button && !panel.contains(to)) open(null);
  });
  return {
    panel,
    open,
    close,
    /**
     * An entry, for the caller to put into the panel.
     * @param {string} label
     * @param {string|undefined} help
     * @param {(event: MouseEvent) => void} chosen
     */
    entry(label, help, chosen) {
      const el = makeButton("nba-way", words("span", "", label), help && words("small", "", help));
      attr(el, "role", "menuitem");
      attr(el, "tabindex", -1);
      onClick(signal, el, chosen);
      return el;
    },
  };
}

/**
 * Makes a button open a menu, by a press or by the arrow down.
 * @param {AbortSignal} signal
 * @param {HTMLElement} button
 * @param {HTMLElement} panel
 * @param {(at: HTMLElement|null) => void} open
 */
export function opens(signal, button, panel, open) {
  attr(button, "aria-controls", panel.id);
  attr(button, "aria-haspopup", "menu");
  expand(button, false);
  onClick(signal, button, () => open(panel.hidden ? button : null));
  on(signal, button, "keydown", (event) => {
    if (event.key !== "ArrowDown" || !panel.hidden) return;
    prevent(event);
    open(button);
  });
}
