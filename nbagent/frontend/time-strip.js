// @ts-check
// The time strip: when the model wrote, when tools ran, and when the run waited, in true proportions.

import { attr, fill, h, setText } from "./dom.js";
import { duration } from "./format.js";

/**
 * @typedef {import("./wire.js").Span} Span
 * @typedef {{lane: Span["lane"], left: number, right: number}} Stretch percent of the strip, from either end
 */

/** The last is drawn on top; see static.py. @type {Span["lane"][]} */
const LANES = ["wait", "model", "tool"];

/** The order of the legend. @type {Span["lane"][]} */
const LEGEND_ORDER = ["model", "tool", "wait"];

/**
 * The place of each span, those below first.
 * @param {Span[]} spans
 * @param {number} now seconds from the start of the run
 * @param {boolean} ended whether everything has ended
 * @returns {Stretch[]}
 */
export function layOut(spans, now, ended) {
  const known = spans.flatMap(({ lane, start, end }) => {
    const until = Math.max(start, end ?? now);
    return Number.isFinite(start) && Number.isFinite(until) ? { lane, start, until } : [];
  });
  const total = Math.max(0.001, ended ? 0 : now, ...known.map(({ until }) => until));
  return known
    .sort((a, b) => LANES.indexOf(a.lane) - LANES.indexOf(b.lane))
    .map(({ lane, start, until }) => ({
      lane,
      left: (start / total) * 100,
      right: 100 - (until / total) * 100,
    }));
}

/**
 * Draws the spans into the strip and reuses its elements: each covers the whole strip and shows a part of it,
 * so that the browser need not lay out anything.
 * @param {HTMLElement} strip
 * @param {Span[]} spans
 * @param {number} now
 * @param {boolean} ended
 */
export function drawStrip(strip, spans, now, ended) {
  const stretches = layOut(spans, now, ended);
  while (strip.children.length > stretches.length) strip.lastElementChild?.remove();
  stretches.forEach(({ lane, left, right }, index) => {
    const bar = /** @type {HTMLElement} */ (strip.children[index] ?? strip.appendChild(h("i")));
    bar.dataset["lane"] = lane;
    bar.style.cssText = `--l:${left.toFixed(2)}%;--r:${right.toFixed(2)}%`;
  });
}

/**
 * The seconds for which these lanes were busy: spans at the same time count once.
 * @param {Span[]} spans
 * @param {number} now
 * @param {Span["lane"][]} [lanes] by default the work, without waits
 */
export function busy(spans, now, lanes = ["model", "tool"]) {
  const own = spans.filter(({ lane }) => lanes.includes(lane)).sort((a, b) => a.start - b.start);
  let [seconds, done] = [0, 0];
  for (const { start, end } of own) {
    const until = Math.max(start, end ?? now);
    seconds += Math.max(0, until - Math.max(start, done));
    done = Math.max(done, until);
  }
  return seconds;
}

/**
 * The seconds of each lane that there is.
 * @param {Span[]} spans
 * @param {number} now
 */
export function lengths(spans, now) {
  const lanes = LEGEND_ORDER.filter((lane) => spans.some((span) => span.lane === lane));
  return lanes.map((lane) => ({ lane, seconds: busy(spans, now, [lane]) }));
}

/**
 * Draws the meaning of the strip's colors, with the duration of each.
 * @param {HTMLElement} legend
 * @param {Span[]} spans
 * @param {number} now
 * @param {import("./store.js").Store} store
 */
export function drawLegend(legend, spans, now, store) {
  const all = lengths(spans, now);
  if (legend.children.length !== all.length)
    fill(legend, ...all.map(({ lane }) => h("span", { "data-lane": lane })));
  for (const [at, { lane, seconds }] of all.entries()) {
    const line = legend.children[at];
    if (!line) continue;
    attr(line, "data-lane", lane);
    setText(line, store.t(`lane_${lane}`, { t: duration(store, seconds) }));
  }
}
