// @ts-check
// A long thread scrolls within its card, and stays at its end unless the person scrolled up.

import { attr } from "../dom.js";
import { on, onResize } from "../lifetime.js";

/** Pixels from the end that still count as being there. */
const NEAR = 40;

/**
 * Keeps an element at the end of what it scrolls through, as long as the person leaves it there.
 * @param {HTMLElement} el
 * @param {AbortSignal} signal
 */
export function stayAtEnd(el, signal) {
  let there = true;
  const follow = () => {
    if (there) el.scrollTop = el.scrollHeight;
  };
  const toEnd = () => {
    there = true;
    follow();
  };
  attr(el, "tabindex", 0);
  let top = 0;
  on(signal, el, "scroll", () => {
    // What grows below leaves the place as it is: only who goes up leaves the end.
    const near = el.scrollHeight - el.scrollTop - el.clientHeight < NEAR;
    there = near || (there && el.scrollTop >= top);
    top = el.scrollTop;
  });
  on(signal, el, "load", follow, true); // pictures
  onResize(signal, el, follow);
  return { follow, toEnd };
}
