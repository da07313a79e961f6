// @ts-check
// The time strip: when the model wrote, when tools ran, and when the run waited. Long waits are folded.

import { attr, fill, h, setText } from "./dom.js";
import { duration } from "./format.js";

/** @import { Span } from "./wire.js" */
/** @typedef {{lane: Span["lane"], left: number, right: number, seconds: number, key: string|undefined}} Stretch percent of the strip, from either end */

/** The last is drawn on top; see static.py. @type {Span["lane"][]} */
const LANES = ["wait", "model", "tool", "inner"];

/** The order of the legend. @type {Span["lane"][]} */
const LEGEND_ORDER = ["model", "tool", "inner", "wait"];
/** The lanes in which something works. @type {Span["lane"][]} */
const WORK = ["model", "tool", "inner"];
/** The width of a long wait, as a part of the work; see static.py. */
const NOTCH = 0.04;

/**
 * The place of each span, those below first. Between work, a wait is at most as wide as a notch.
 * @param {Span[]} spans
 * @param {number} now seconds from the start of the run
 * @param {boolean} ended whether everything has ended
 * @returns {Stretch[]}
 */
export function layOut(spans, now, ended) {
  const known = spans.flatMap(({ lane, start, end, key }) => {
    const until = Math.max(start, end ?? now);
    return Number.isFinite(start) && Number.isFinite(until) ? [{ lane, start, until, key }] : [];
  });
  const end = Math.max(0.001, ended ? 0 : now, ...known.map(({ until }) => until));
  const work = periods(spans, now, WORK);
  const notch = NOTCH * sum(work) || end;
  /** @type {[number, number, number][]} start, end and width */
  const pieces = [];
  let last = 0;
  for (const [from, to] of [...work, /** @type {const} */ ([end, end])]) {
    if (from > last) pieces.push([last, from, Math.min(from - last, notch)]);
    pieces.push([from, to, to - from]);
    last = to;
  }
  const total = pieces.reduce((all, [, , width]) => all + width, 0) || 1;
  const place = (/** @type {number} */ t) =>
    pieces.reduce(
      (all, [from, to, width]) =>
        all + width * Math.min(1, Math.max(0, t - from) / (to - from || 1)),
      0,
    ) *
    (100 / total);
  return known
    .sort((a, b) => LANES.indexOf(a.lane) - LANES.indexOf(b.lane))
    .map(({ lane, start, until, key }) => ({
      lane,
      left: place(start),
      right: 100 - place(until),
      seconds: until - start,
      key,
    }));
}

/**
 * Draws the spans into the strip and reuses its elements: each covers the whole strip and shows a part of it,
 * so that the browser need not lay out anything.
 * @param {HTMLElement} strip
 * @param {Span[]} spans
 * @param {number} now
 * @param {boolean} ended
 * @param {(key: string|undefined, seconds: number) => string} name of a segment
 */
export function drawStrip(strip, spans, now, ended, name) {
  const stretches = layOut(spans, now, ended);
  while (strip.children.length > stretches.length) strip.lastElementChild?.remove();
  stretches.forEach(({ lane, left, right, seconds, key }, index) => {
    const bar = /** @type {HTMLElement} */ (strip.children[index] ?? strip.appendChild(h("i")));
    bar.dataset["lane"] = lane;
    attr(bar, "data-call", key || null);
    attr(bar, "title", name(key, seconds));
    bar.style.cssText = `--l:${left.toFixed(2)}%;--r:${right.toFixed(2)}%`;
  });
}

/**
 * The times in which these lanes were busy: spans at the same time count once.
 * @param {Span[]} spans
 * @param {number} now
 * @param {Span["lane"][]} lanes
 */
function periods(spans, now, lanes) {
  /** @type {[number, number][]} */
  const found = [];
  const own = spans.filter(({ lane }) => lanes.includes(lane)).sort((a, b) => a.start - b.start);
  for (const { start, end } of own) {
    const until = Math.max(start, end ?? now);
    const last = found.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], until);
    else found.push([start, until]);
  }
  return found;
}

/** The length of all periods. @param {[number, number][]} all */
const sum = (all) => all.reduce((seconds, [from, to]) => seconds + to - from, 0);

/**
 * The seconds for which these lanes were busy.
 * @param {Span[]} spans
 * @param {number} now
 * @param {Span["lane"][]} [lanes] by default the work, without waits
 */
export const busy = (spans, now, lanes = WORK) => sum(periods(spans, now, lanes));

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
