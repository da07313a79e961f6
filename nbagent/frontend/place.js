// @ts-check
// Keeps the person's place: the buttons of a long form stay in view, and the element that replaces an answered
// form appears where its button was.

import { boxOf, byPlace, focused, focusInPlace, inVSCode } from "./dom.js";
import { lookOnce, makeTimer, on } from "./lifetime.js";

/** Pixels by which an element may move without a correction. */
const SLACK = 24;
/** Milliseconds until the buttons follow. */
const FRAME = 16;
/** Turns of the wheel, for a person whose wheel is faster or slower, and milliseconds until one has had its effect. */
const [TURNS, TURNED] = [3, 200];
/** Pixels of a form that stay visible above its buttons. */
const ABOVE = 90;
/** Pixels by which the buttons rise further, to the space above a control that they would cover. */
const CLIMB = 80;
/** Pixels between the buttons and such a control. */
const GAP = 4;
/** What the buttons never cover: all that a person presses or types in, and the errors. */
export const CONTROLS =
  "input, textarea, select, button, label, summary, a[href], .nba-err, .nba-errors, .nba-gone, .nba-sheet";

/**
 * Lifts the buttons of a form that ends below the visible area to the bottom of that area, over text only: where
 * they would cover a control or an error, they stay at the end of the form. A sticky position does not work:
 * Jupyter has boxes around an output that never scroll but would contain it.
 * @param {HTMLElement} form
 * @param {HTMLElement} buttons
 * @param {AbortSignal} signal
 * @returns {() => void} call it when the form's height may have changed
 */
export function keepInView(form, buttons, signal) {
  const timer = makeTimer(signal);
  let lift = 0;
  const updateLift = () => {
    const box = boxOf(buttons);
    const [top, bottom] = [box.top + lift, box.bottom + lift];
    const room = top - boxOf(form).top - ABOVE;
    const isInForm = bottom > top && form.contains(buttons);
    // A frame may be higher than the person sees: then its bottom is the visible one.
    const scroller = scrollerOf(form);
    const visible = scroller ? Math.min(boxOf(scroller).bottom, innerHeight) : innerHeight;
    const overflow = isInForm ? bottom - visible : 0;
    const newLift = overflow > 0 ? freeLift(form, buttons, { top, bottom }, overflow, room) : 0;
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
 * The lift, at least as large as this one, at which the buttons cover nothing; 0 if there is none nearby.
 * @param {HTMLElement} form
 * @param {HTMLElement} buttons
 * @param {{top: number, bottom: number}} place of the buttons at the end of the form
 * @param {number} least
 * @param {number} most
 */
function freeLift(form, buttons, { top, bottom }, least, most) {
  const kept = [...form.querySelectorAll(CONTROLS)]
    .filter((el) => !buttons.contains(el))
    .map(boxOf)
    .filter((box) => box.height > 0);
  for (let lift = least; lift <= Math.min(most, least + CLIMB); ) {
    const covered = kept.filter((box) => box.bottom > top - lift && box.top < bottom - lift);
    if (!covered.length) return lift;
    lift = bottom + GAP - Math.min(...covered.map((box) => box.top));
  }
  return 0;
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
    const scroller = scrollerOf(now) ?? globalThis;
    if (Math.abs(shift) > SLACK) scroller.scrollBy({ top: shift, behavior: "instant" });
    const next = nextHeading(items, now);
    focusInPlace(next);
    showWhole(next ?? now);
  };
}

/**
 * Scrolls an element into view, with the whole form around it if there is room for that.
 * @param {HTMLElement} el
 */
export function showWhole(el) {
  const form = el.closest("form.nba-form") ?? el;
  const room = scrollerOf(el)?.clientHeight ?? innerHeight;
  const all = boxOf(form).height < room ? form : el;
  all.scrollIntoView({ block: "nearest", behavior: "instant" });
}

/**
 * Scrolls an element into view that is above the part of its card that the person sees.
 * @param {HTMLElement} el
 * @param {HTMLElement} card
 * @param {AbortSignal} signal
 */
export function scrollToElement(el, card, signal) {
  el.scrollIntoView({ block: "nearest", behavior: "instant" });
  if (!inVSCode()) return;
  // VS Code scrolls outside of the page, which can only turn the wheel: 50 of its pixels for 120 units.
  const timer = makeTimer(signal);
  const turn = (/** @type {number} */ tries) =>
    lookOnce(signal, card, ({ top }) => {
      const by = boxOf(el).top - top - SLACK;
      if (by >= -SLACK || tries === 0) return;
      const units = (-by * 120 * devicePixelRatio) / 50;
      const about = { deltaY: by, wheelDeltaY: units, bubbles: true, composed: true };
      card.dispatchEvent(new WheelEvent("wheel", { ...about, cancelable: true }));
      timer.start(TURNED, () => turn(tries - 1));
    });
  turn(TURNS);
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
 * The element that scrolls an element up and down; null if only the page does.
 * @param {Element} el
 */
function scrollerOf(el) {
  // The page's own scroller has no box that tells what is visible.
  for (let up = el.parentElement; up && up !== document.body; up = up.parentElement)
    if (up.scrollHeight > up.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(up).overflowY))
      return up;
  return null;
}

/**
 * The panel in which JupyterLab and Notebook 7 scroll a notebook; other hosts have none that is known.
 * @param {Element} el
 */
export const panelOf = (el) => el.closest(".jp-WindowedPanel-outer");
