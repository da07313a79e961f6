import { expect, test } from "vitest";
import { layOut } from "./time-strip.js";

const span = (lane, start, end = null) => ({ lane, start, end });

test("spans stand in proportion, and what is open goes on until now", () => {
  expect(layOut([span("model", 0, 5), span("tool", 5)], 10)).toEqual([
    { lane: "model", left: 0, width: 50 },
    { lane: "tool", left: 50, width: 50 },
  ]);
});

test("an hour of waiting leaves room for the work", () => {
  const [model, wait, more] = layOut(
    [span("model", 0, 10), span("wait", 10, 3610), span("tool", 3610, 3620)],
    3620,
  );
  expect(wait.width).toBeCloseTo(35);
  expect([model.width, more.width]).toEqual([expect.closeTo(32.5), expect.closeTo(32.5)]);
});

test("nothing, and nonsense, draw nothing outside the strip", () => {
  expect(layOut([], 0)).toEqual([]);
  for (const { left, width } of layOut([span("tool", 3, 1), span("model", 0, 0)], 0)) {
    expect(left).toBeGreaterThanOrEqual(0);
    expect(left + width).toBeLessThanOrEqual(100);
  }
});
