// @ts-check
// A button that appeared or moved under the pointer a moment ago ignores the press.

import { boxOf } from "../dom.js";
import { every, on } from "../lifetime.js";

/** Milliseconds for which a button must not have moved. */
const STILL = 500;
/** Milliseconds between two checks of the buttons' positions. */
const LOOK = 125;
/** Pixels by which a button may move and still count as still. */
const SLACK = 4;

/**
 * Watches elements until the signal is aborted, and returns a test of whether each is still.
 * @param {() => Iterable<HTMLElement>} elements the watched elements, listed again at each check
 * @param {() => number} clock a clock in milliseconds that never goes back
 * @param {AbortSignal} signal
 */
export function pressGuard(elements, clock, signal) {
  /** @type {WeakMap<HTMLElement, Place & {since: number}>} */
  const places = new WeakMap();
  /** @type {WeakMap<HTMLElement, boolean>} Whether a button was still when a press on it started: the button may move until the press ends, as a field loses the focus. */
  const pressed = new WeakMap();
  const isStill = (/** @type {HTMLElement} */ el) => {
    look();
    const place = places.get(el);
    return place !== undefined && clock() - place.since >= STILL;
  };
  const look = () => {
    for (const el of elements()) {
      const now = placeOf(el);
      const old = places.get(el);
      if (!old) on(signal, el, "pointerdown", () => pressed.set(el, isStill(el)));
      // Scrolling moves a button in the window only, scroll anchoring in the page only; a real shift moves the
      // button in both.
      const moved = !old || (isApart(old.window, now.window) && isApart(old.page, now.page));
      const hidden = el.closest("[hidden]") !== null;
      places.set(el, { ...now, since: moved || hidden ? clock() : old.since });
    }
  };
  every(signal, LOOK, look);
  look();
  return {
    look,
    /**
     * Whether a press of this element by pointer counts.
     * @param {HTMLElement} el
     */
    accepts(el) {
      const wasStill = pressed.get(el) ?? isStill(el);
      pressed.delete(el);
      return wasStill;
    },
  };
}

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{window: Point, page: Point}} Place */

/**
 * The place of an element in the window, and in the page with everything that scrolls around it.
 * @param {HTMLElement} el
 * @returns {Place}
 */
function placeOf(el) {
  const { x, y } = boxOf(el);
  const page = { x, y };
  for (let up = el.parentElement; up; up = up.parentElement) {
    page.x += up.scrollLeft;
    page.y += up.scrollTop;
  }
  return { window: { x, y }, page };
}

/**
 * Whether two points are so far apart that an element moved.
 * @param {Point} a
 * @param {Point} b
 */
function isApart(a, b) {
  return Math.abs(a.x - b.x) > SLACK || Math.abs(a.y - b.y) > SLACK;
}
