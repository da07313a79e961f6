import { expect, test } from "vitest";
import { foldStretches } from "./stretch.js";

const row = (number, more = {}) => ({
  type: "call",
  key: `${more.turn ?? 0}.c${number}`,
  name: "look",
  path: "",
  state: "done",
  outputs: [],
  brief: "",
  ...more,
});
const many = (/** @type {number} */ n) => Array.from({ length: n }, (_, at) => at);
const running = (/** @type {number} */ n) => row(n, { state: "running" });
const rows = (...numbers) => numbers.map((number) => row(number));

test.each([
  ["two stand alone", rows(0, 1), "0.c0 0.c1"],
  ["three are one", rows(0, 1, 2), "f:0.c0(3)"],
  ["a failure stands alone", [...rows(0, 1), row(2, { state: "failed" })], "0.c0 0.c1 0.c2"],
  ["a decision does", [...rows(0, 1, 2), row(3, { decisions: [{}] })], "f:0.c0(3) 0.c3"],
  ["none while one runs", [...rows(0, 1, 2), row(3, { state: "running" })], "0.c0 0.c1 0.c2 0.c3"],
  ["a crowd is one while it runs", [...rows(0), ...many(40).map(running)], "f:0.c0(41)"],
  [
    "forty are no crowd",
    many(40).map(running),
    many(40)
      .map((n) => `0.c${n}`)
      .join(" "),
  ],
  [
    "but in the next turn",
    [...rows(0, 1, 2), row(0, { turn: 1, state: "running" })],
    "f:0.c0(3) 1.c0",
  ],
  ["two kinds are two", [...rows(0, 1, 2), row(3, { name: "x" })], "f:0.c0(3) 0.c3"],
  [
    "two stretches of one tool",
    [...rows(0, 1, 2), { type: "text", key: "t" }, ...rows(3, 4, 5)],
    "f:0.c0(3) t f:0.c3(3)",
  ],
])("%s", (_, items, expected) => {
  const keys = foldStretches(items).map(
    ({ key, items: calls }) => key + (calls ? `(${calls.length})` : ""),
  );
  expect(keys.join(" ")).toBe(expected);
});
