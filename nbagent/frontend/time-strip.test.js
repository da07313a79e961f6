import { expect, test } from "vitest";
import { layOut, lengths } from "./time-strip.js";

const span = (lane, start, end = null) => ({ lane, start, end });

/** Lane, left and right in whole percent. */
const places = (spans, now, ended) =>
  layOut(spans, now, ended).map(({ lane, left, right }) => [
    lane,
    Math.round(left),
    Math.round(right),
  ]);

test("spans stand in proportion, and what is open goes on until now", () => {
  expect(places([span("model", 0, 5), span("tool", 5)], 10, false)).toEqual([
    ["model", 0, 50],
    ["tool", 50, 0],
  ]);
});

test("a wait is no wider than a notch, and lies below what ran meanwhile", () => {
  const work = [span("model", 0, 50), span("wait", 50, 50_000), span("tool", 50_000, 50_050)];
  expect(places(work, 99_999, true)).toEqual([
    ["wait", 48, 48],
    ["model", 0, 52],
    ["tool", 52, 0],
  ]);
  const meanwhile = [span("tool", 3600, 7200), span("wait", 3600, 7200), span("model", 0, 3600)];
  expect(places(meanwhile, 9999, true)).toEqual([
    ["wait", 50, 0],
    ["model", 0, 50],
    ["tool", 50, 0],
  ]);
  const short = [span("model", 0, 50), span("wait", 50, 51), span("inner", 51, 101)];
  expect(places(short, 101, true)).toEqual([
    ["wait", 50, 50],
    ["model", 0, 50],
    ["inner", 50, 0],
  ]);
  expect(places([span("wait", 0)], 7, false)).toEqual([["wait", 0, 0]]);
});

test("nothing, and nonsense, draw nothing outside the strip", () => {
  expect(layOut([], 0, false)).toEqual([]);
  for (const { left, right } of layOut([span("tool", 3, 1), span("model", 0, 0)], 0, false)) {
    expect(left).toBeGreaterThanOrEqual(0);
    expect(right).toBeGreaterThanOrEqual(0);
    expect(left + right).toBeLessThanOrEqual(100);
  }
});

test("the legend shows how long each lane was busy, and counts parallel spans once", () => {
  const spans = [span("tool", 5, 9), span("tool", 6, 8), span("tool", 12), span("model", 0, 5)];
  expect(lengths(spans, 15)).toEqual([
    { lane: "model", seconds: 5 },
    { lane: "tool", seconds: 7 },
  ]);
  expect(lengths([], 15)).toEqual([]);
});
