import { expect, test } from "vitest";
import { layOut, lengths } from "./time-strip.js";

const span = (lane, start, end = null) => ({ lane, start, end });

test("spans stand in proportion, and what is open goes on until now", () => {
  expect(layOut([span("model", 0, 5), span("tool", 5)], 10, false)).toEqual([
    { lane: "model", left: 0, right: 50 },
    { lane: "tool", left: 50, right: 0 },
  ]);
});

test("an hour of waiting is as long as it was, and lies below what ran meanwhile", () => {
  const spans = [span("tool", 3600, 7200), span("wait", 3600, 7200), span("model", 0, 3600)];
  expect(layOut(spans, 9999, true)).toEqual([
    { lane: "wait", left: 50, right: 0 },
    { lane: "model", left: 0, right: 50 },
    { lane: "tool", left: 50, right: 0 },
  ]);
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
