// @ts-check
// The time strip: when the model spoke, when tools ran side by side, when the run waited.

import { h } from "./dom.js";

/**
 * @typedef {import("./wire.js").Span} Span
 * @typedef {{lane: Span["lane"], left: number, width: number}} Stretch percent of the strip
 */

/** Waiting may take at most this share of the strip; a lunch break would leave nothing else to see. */
const WAITING = 0.35;

/**
 * Where each span is drawn. Stretches in which the run only waited are drawn shorter where they
 * would take more than their share.
 * @param {Span[]} spans
 * @param {number} now seconds from the start of the run
 * @returns {Stretch[]}
 */
export function layOut(spans, now) {
  const known = spans
    .map(({ lane, start, end }) => ({ lane, start, end: Math.max(start, end ?? now) }))
    .filter(({ start, end }) => Number.isFinite(start) && Number.isFinite(end));
  const edges = [...new Set([0, ...known.flatMap(({ start, end }) => [start, end])])].sort(
    (a, b) => a - b,
  );
  const pieces = edges.slice(1).map((end, index) => {
    const start = edges[index] ?? 0;
    const here = known.filter((span) => span.start < end && span.end > start);
    return {
      start,
      size: end - start,
      waiting: here.length > 0 && here.every((span) => span.lane === "wait"),
    };
  });
  const sum = (/** @type {boolean} */ waiting) =>
    pieces.reduce((total, piece) => total + (piece.waiting === waiting ? piece.size : 0), 0);
  const [idle, active] = [sum(true), sum(false)];
  const fits = active === 0 || idle <= (active * WAITING) / (1 - WAITING);
  const shrink = fits ? 1 : (active * WAITING) / (1 - WAITING) / idle;
  const total = active + idle * shrink || 1;
  let at = 0;
  const place = new Map([[0, 0]]);
  pieces.forEach(({ size, waiting }, index) => {
    at += waiting ? size * shrink : size;
    place.set(edges[index + 1] ?? 0, at);
  });
  return known.map(({ lane, start, end }) => {
    const left = ((place.get(start) ?? 0) / total) * 100;
    return { lane, left, width: ((place.get(end) ?? 0) / total) * 100 - left };
  });
}

/**
 * Draws the spans into the strip, reusing what is there.
 * @param {HTMLElement} strip
 * @param {Span[]} spans
 * @param {number} now
 */
export function drawStrip(strip, spans, now) {
  const stretches = layOut(spans, now);
  while (strip.children.length > stretches.length) strip.lastElementChild?.remove();
  stretches.forEach(({ lane, left, width }, index) => {
    const bar = /** @type {HTMLElement} */ (strip.children[index] ?? strip.appendChild(h("i")));
    bar.dataset["lane"] = lane;
    bar.style.left = `${left.toFixed(2)}%`;
    bar.style.width = `${width.toFixed(2)}%`;
  });
}
