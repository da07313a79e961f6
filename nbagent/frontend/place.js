// @ts-check
// The place of the person: the buttons of a long form stay in view, and the element that replaces an answered
// form is where its button was.

import { boxOf, byPlace, focused, focusInPlace } from "./dom.js";
import { makeTimer, on } from "./lifetime.js";

/** Pixels that nobody calls a jump. */
const SLACK = 24;
/** Milliseconds until the buttons follow. */
const FRAME = 16;
/** Pixels of a form that are to be seen above its buttons. */
const ABOVE = 90;

/**
 * Lifts the buttons of a form that reaches below what is seen to the edge of that. A sticky position would
 * do, but Jupyter has boxes around an output that never scroll and hold it all the same.
 * @param {HTMLElement} form
 * @param {HTMLElement} acts
 * @param {AbortSignal} signal
 * @returns {() => void} called where the form may have another height
 */
export function keepInView(form, acts, signal) {
  const timer = makeTimer(signal);
  let lift = 0;
  const place = () => {
    const { top, bottom } = boxOf(acts);
    const over = bottom + lift - seenTo(form);
    const room = top + lift - boxOf(form).top - ABOVE;
    const wanted = form.contains(acts) ? Math.max(0, Math.min(over, room)) : 0;
    if (Math.abs(wanted - lift) < 1) return;
    lift = wanted;
    acts.style.translate = lift ? `0 ${-lift}px` : "";
    acts.toggleAttribute("data-lifted", lift > 0);
  };
  const soon = () => timer.start(FRAME, place);
  on(signal, window, "scroll", place, true);
  on(signal, window, "resize", soon);
  return soon;
}

/**
 * The end of the visible part of the page.
 * @param {Element} el
 */
function seenTo(el) {
  return Math.min(boxOf(scrollerOf(el)).bottom, innerHeight);
}

/**
 * Remembers where the focus stands in these items, before they are drawn anew. What is returned is called
 * after: where a form with the focus gave way, what has the focus now stands there, and the focus goes on
 * to the next question that waits, to its heading and never to a button.
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
    const by = boxOf(now).top - top;
    if (Math.abs(by) > SLACK) scrollerOf(now).scrollBy({ top: by, behavior: "instant" });
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
