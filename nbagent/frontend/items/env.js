// @ts-check
// What the drawn items of one view share.

/**
 * @typedef {object} Env
 * @property {import("../store.js").Store} store
 * @property {AbortSignal} signal
 * @property {() => string} id an id nobody else has
 * @property {() => number} clock milliseconds that never go back
 * @property {(item: import("../wire.js").FormItem) => void} answered an answer of this view was accepted
 * @property {(item: import("../wire.js").FormItem) => import("./form.js").FormView} form for a table: the form that stood alone, or a new one
 * @property {(message: string) => void} say tells who cannot see the page
 */
/**
 * A drawn item: one element that follows its data.
 * @template {import("../wire.js").Item|import("../arrange.js").GroupItem} T
 * @typedef {object} Drawn
 * @property {HTMLElement} el
 * @property {(item: T) => void} update
 * @property {() => void} [remove] called once, when it leaves the page
 * @property {() => void} [tick] called every second
 * @property {() => void} [enter] puts the focus on a question that waits
 */

/**
 * A stretch of time in words.
 * @param {import("../store.js").Store} store
 * @param {number} seconds
 * @param {boolean} [whole] no tenths, for what is counting
 */
export function duration(store, seconds, whole = false) {
  if (seconds < 60) {
    const tenths = seconds < 9.95 && !whole;
    return store.t("seconds", { n: tenths ? seconds.toFixed(1) : Math.floor(seconds) });
  }
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return store.t("minutes", { m: minutes, s: Math.floor(seconds % 60) });
  return store.t("hours", { h: Math.floor(minutes / 60), m: minutes % 60 });
}

/**
 * Minutes and seconds that are left.
 * @param {number} seconds
 */
export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}
