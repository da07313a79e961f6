// @ts-check
// Keeps the person's place: the buttons of a long form stay in view, and the element that replaces an answered
// form appears where its button was.

import { boxOf, byPlace, focused, focusInPlace } from "./dom.js";
import { makeTimer, on } from "./lifetime.js";

/** Pixels by which an element may move without a correction. */
const SLACK = 24;
/** Milliseconds until the buttons follow. */
const FRAME = 16;
/** Pixels of a form that stay visible above its buttons. */
const ABOVE = 90;

/**
 * Lifts the buttons of a form that ends below the visible area to the bottom of that area. A sticky position
 * does not work: Jupyter has boxes around an output that never scroll but would contain it.
 * @param {HTMLElement} form
 * @param {HTMLElement} buttons
 * @param {AbortSignal} signal
 * @returns {() => void} call it when the form's height may have changed
 */
export function keepInView(form, buttons, signal) {
  const timer = makeTimer(signal);
  let lift = 0;
  const updateLift = () => {
    const { top, bottom } = boxOf(buttons);
    const overflow = bottom + lift - visibleBottom(form);
    const room = top + lift - boxOf(form).top - ABOVE;
    const newLift = form.contains(buttons) ? Math.max(0, Math.min(overflow, room)) : 0;
    if (Math.abs(newLift - lift) < 1) return;
    lift = newLift;
    buttons.style.translate = lift ? `0 ${-lift}px` : "";
    buttons.toggleAttribute("data-lifted", lift > 0);
  };
  const updateSoon = () => timer.start(FRAME, updateLift);
  on(signal, window, "scroll", updateLift, true);
  on(signal, window, "resize", updateSoon);
  return updateSoon;
}

/**
 * The bottom of the visible part of the page.
 * @param {Element} el
 */
function visibleBottom(el) {
  return Math.min(boxOf(scrollerOf(el)).bottom, innerHeight);
}

/**
 * Remembers the position of the focus in these items before they are drawn again. The returned function is
 * called afterwards: if a form with the focus was replaced, it scrolls the element that has the focus now to
 * that position, and moves the focus to the heading of the next open question, never to a button.
 * @param {HTMLElement} items
 */
export function holdPlace(items) {
  const active = focused();
  const form =
    active && items.contains(active) ? active.closest(".nba-group, form.nba-form") : null;
  const top = active ? boxOf(active).top : 0;
  return () => {
    const now = focused();
    if (!form || form.isConnected || !now || !items.contains(now)) return;
    const shift = boxOf(now).top - top;
    if (Math.abs(shift) > SLACK) scrollerOf(now).scrollBy({ top: shift, behavior: "instant" });
    const next = nextHeading(items, now);
    focusInPlace(next);
    (next ?? now).scrollIntoView({ block: "nearest", behavior: "instant" });
  };
}

/**
 * The heading of the next question below that waits for a person.
 * @param {HTMLElement} items
 * @param {Element} from
 */
function nextHeading(items, from) {
  /** @type {NodeListOf<HTMLElement>} */
  const titles = items.querySelectorAll(
    ":scope > .nba-form:not([data-outside]) > .nba-asking > h4",
  );
  return [...titles].find((title) => byPlace(from, title) < 0);
}

/**
 * The element that scrolls an element up and down.
 * @param {Element} el
 * @returns {Element}
 */
function scrollerOf(el) {
  for (let up = el.parentElement; up; up = up.parentElement)
    if (up.scrollHeight > up.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(up).overflowY))
      return up;
  return document.scrollingElement ?? document.documentElement;
}

/**
 * The panel in which JupyterLab and Notebook 7 scroll a notebook; other hosts have none that is known.
 * @param {Element} el
 */
export const panelOf = (el) => el.closest(".jp-WindowedPanel-outer");
