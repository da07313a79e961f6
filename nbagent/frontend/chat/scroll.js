// @ts-check
// A chat stays at its end: what scrolls in its card, and its box in the notebook, unless the person scrolled up.

import { div, focused, makeButton } from "../dom.js";
import { on, onClick, onResize, onSeen } from "../lifetime.js";
import { keepInView, panelOf } from "../place.js";

/** Pixels from the end that still count as being there. */
const NEAR = 40;
/** The part of the notebook's panel that a card takes at most, and its height in pixels at least and at most. */
const PART = 0.9;
const LOWEST = 260;
const HIGHEST = 900;

/**
 * Keeps the end of a chat in view, as long as the person leaves it there; after scrolling up there is a button.
 * @param {import("../items/item.js").CardContext} card
 * @param {HTMLElement} root of the card
 * @param {HTMLElement} items what scrolls in it
 * @param {HTMLElement[]} tail the elements below, first the box
 */
export function stayAtEnd({ signal, store }, root, items, tail) {
  const newest = makeButton("nba-button nba-newest", store.t("newest"));
  const place = div("nba-newest-place", newest);
  let there = true;
  /** Whether the box is in view; nothing is known of that at first, and a chat that is opened moves no page. @type {boolean|null} */
  let seen = null;
  /** Whether a new item came while it was not. */
  let news = false;
  let top = 0;
  /** @type {Element|null} */
  let panel = null;
  const lift = keepInView(root, place, signal);
  const draw = () => {
    const hidden = there && !(seen === false && news);
    if (newest.hidden === hidden) return;
    if (hidden && focused() === newest) items.focus({ preventScroll: true });
    newest.hidden = hidden;
    lift();
  };
  const follow = () => {
    if (there) items.scrollTop = items.scrollHeight;
    // Do not move a person who writes in a cell.
    const at = focused();
    if (seen && there && (!at?.isContentEditable || root.contains(at)))
      for (const el of tail) el.scrollIntoView({ block: "nearest", behavior: "instant" });
  };
  const toEnd = () => {
    there = seen = true;
    news = false;
    follow();
    draw();
  };
  items.tabIndex = 0;
  newest.hidden = true;
  items.after(div("nba-edge", place));
  on(signal, items, "scroll", () => {
    // What grows below leaves the place as it is: only who goes up leaves the end.
    const near = items.scrollHeight - items.scrollTop - items.clientHeight < NEAR;
    there = near || (there && items.scrollTop >= top);
    top = items.scrollTop;
    draw();
  });
  on(signal, items, "load", follow, true); // pictures
  onClick(signal, newest, () => {
    toEnd();
    tail[0]?.querySelector("textarea")?.focus({ preventScroll: true });
  });
  for (const el of [items, ...tail.slice(0, 1)]) onResize(signal, el, follow);
  const fit = () => {
    if (!panel) return;
    const height = Math.min(HIGHEST, Math.max(LOWEST, panel.clientHeight * PART));
    root.style.setProperty("--nba-room", `${Math.floor(height)}px`);
    follow();
  };
  onSeen(signal, tail[0] ?? root, (now) => {
    seen = now;
    news &&= !seen;
    const before = panel;
    panel = panelOf(root);
    if (panel && panel !== before) onResize(signal, panel, fit);
    draw();
  });
  return {
    toEnd,
    /** Something was drawn. @param {boolean} works whether the chat is at work, so that it is new */
    follow(works) {
      news ||= works && seen === false;
      follow();
      draw();
    },
  };
}
