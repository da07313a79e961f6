// @ts-check
// The time strip: when the model wrote, when tools ran, and when the run waited, in true proportions.

import { h } from "./dom.js";

/**
 * @typedef {import("./wire.js").Span} Span
 * @typedef {{lane: Span["lane"], left: number, right: number}} Stretch percent of the strip, from either end
 */

/** The last is drawn on top; see static.py. @type {Span["lane"][]} */
const LANES = ["wait", "model", "tool"];

/**
 * Where each span is drawn, those below first.
 * @param {Span[]} spans
 * @param {number} now seconds from the start of the run
 * @param {boolean} ended whether nothing goes on any more
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
 * Draws the spans into the strip, reusing what is there: each lies over all of it and shows a part, so that
 * nothing moves and no layout is made.
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
