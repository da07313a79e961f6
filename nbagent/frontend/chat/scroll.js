// @ts-check
// Keeps a chat at its end, in its card and in the notebook, unless the person scrolled up.

import { div, focused, makeButton } from "../dom.js";
import { makeTimer, on, onClick, onResize, onSeen } from "../lifetime.js";
import { keepInView, panelOf } from "../place.js";

/** Pixels from the end that still count as the end. */
const NEAR = 40;
/** Milliseconds after a turn of the wheel in which the browser scrolls, smoothly, as far as the person asked. */
const SCROLLS = 300;
/** The maximum part of the notebook's panel that a card takes; the card's minimum and maximum height in pixels. */
const PART = 0.9;
const LOWEST = 260;
const HIGHEST = 900;

/**
 * Keeps the end of a chat in view until the person scrolls up; then a button leads back to the end.
 * @param {import("../items/item.js").CardContext} card
 * @param {HTMLElement} root of the card
 * @param {HTMLElement} items the element that scrolls in it
 * @param {HTMLElement[]} tail the elements below, first the box
 */
export function stayAtEnd({ signal, store }, root, items, tail) {
  const newest = makeButton("nba-button nba-newest", store.t("newest"));
  const place = div("nba-newest-place", newest);
  let isAtEnd = true;
  /** Whether the box is in view; null until that is known, so that opening a chat does not scroll the page. @type {boolean|null} */
  let isSeen = null;
  /** Whether a new item came while the box was out of view. */
  let hasNews = false;
  /** Whether the person scrolls up now: a move to the end would cancel that. */
  let isScrolling = false;
  const scrolled = makeTimer(signal);
  let top = 0;
  /** @type {Element|null} */
  let panel = null;
  const updateLift = keepInView(root, place, signal);
  const draw = () => {
    const hidden = isAtEnd && !(isSeen === false && hasNews);
    if (newest.hidden === hidden) return;
    if (hidden && focused() === newest) items.focus({ preventScroll: true });
    newest.hidden = hidden;
    updateLift();
  };
  const follow = () => {
    if (isScrolling) return;
    if (isAtEnd) items.scrollTop = items.scrollHeight;
    // Do not move a person who writes in a cell.
    const at = focused();
    if (isSeen && isAtEnd && (!at?.isContentEditable || root.contains(at)))
      for (const el of tail) el.scrollIntoView({ block: "nearest", behavior: "instant" });
  };
  const toEnd = () => {
    isAtEnd = isSeen = true;
    hasNews = isScrolling = false;
    follow();
    draw();
  };
  items.tabIndex = 0;
  newest.hidden = true;
  items.after(div("nba-edge", place));
  on(signal, items, "scroll", () => {
    // Content that is added below does not change the position: only scrolling up leaves the end.
    const isNear = items.scrollHeight - items.scrollTop - items.clientHeight < NEAR;
    isAtEnd = isNear || (isAtEnd && items.scrollTop >= top);
    top = items.scrollTop;
    draw();
  });
  on(signal, document, "wheel", (event) => {
    if (/** @type {WheelEvent} */ (event).deltaY >= 0) return;
    isScrolling = true;
    scrolled.start(SCROLLS, () => {
      isScrolling = false;
      follow();
    });
  });
  on(signal, items, "load", follow, true); // pictures
  onClick(signal, newest, () => {
    toEnd();
    tail[0]?.querySelector("textarea")?.focus({ preventScroll: true });
  });
  for (const el of [items, ...tail.slice(0, 1)]) onResize(signal, el, follow);
  const setHeight = () => {
    if (!panel) return;
    const height = Math.min(HIGHEST, Math.max(LOWEST, panel.clientHeight * PART));
    root.style.setProperty("--nba-room", `${Math.floor(height)}px`);
    follow();
  };
  onSeen(signal, tail[0] ?? root, (now) => {
    isSeen = now;
    hasNews &&= !isSeen;
    const before = panel;
    panel = panelOf(root);
    if (panel && panel !== before) onResize(signal, panel, setHeight);
    draw();
  });
  return {
    toEnd,
    /** Called after something was drawn. @param {boolean} isRunning whether the run is running, so that the content is new */
    follow(isRunning) {
      hasNews ||= isRunning && isSeen === false;
      follow();
      draw();
    },
  };
}
