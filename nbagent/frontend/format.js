// @ts-check
// Numbers and times as text, and texts with values in them.

/** A text with its values in place of the names in braces. @param {string|undefined} text @param {object} values */
export function worded(text, values) {
  return (text ?? "").replace(/\{(\w+)\}/g, (_, key) => /** @type {any} */ (values)[key] ?? "");
}

/**
 * Digits in groups of three, the same in every locale, as the static view writes them.
 * @param {number} n
 */
export function groupDigits(n) {
  return n.toLocaleString("en");
}

/**
 * A duration in words.
 * @param {import("./store.js").Store} store
 * @param {number} seconds
 * @param {boolean} [wholeSeconds] without tenths, for a time that is counting
 */
export function duration(store, seconds, wholeSeconds = false) {
  if (seconds < 0.9995 && !wholeSeconds)
    return store.t("milliseconds", { n: Math.max(1, Math.round(seconds * 1000)) });
  if (seconds < 60) {
    const tenths = seconds < 9.95 && !wholeSeconds;
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
