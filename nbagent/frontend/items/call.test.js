// @ts-check
// A call's row, without a browser: long results are folded as in what is saved, and stay open where they were.

import { expect, test } from "vitest";
import { fixture, open, WIRE } from "../test-support/fake-host.js";

/** @type {any} */
const CALL = WIRE.from_kernel.snapshot.view.items.find(({ type }) => type === "call");
/** @param {object} more */
const call = (more) => ({ ...CALL, outputs: [], result: null, printed: "", ...more });
/** @param {HTMLElement} el */
const labels = (el) => [...el.querySelectorAll(".nba-all span")].map((one) => one.textContent);

test.each(fixture("long_results.json"))("a long result says how much there is: $says", (result) => {
  const data = result.begin + result.piece.repeat(result.times) + result.end;
  const output = { kind: result.kind, data, alt: "a chart" };
  const wanted = result.says ? [result.says] : [];
  const { el } = open([call({ outputs: [output] })]);
  expect(labels(el)).toEqual(wanted);
  expect(el.querySelectorAll(".nba-long").length).toBe(wanted.length);
  if (result.kind === "text") {
    const page = open([call({ result: data })]);
    expect(labels(page.el)).toEqual(wanted);
    expect(page.$(".nba-result").textContent).toBe(data);
  }
});

test("what a person has opened stays open while more comes", () => {
  const output = { kind: "text", data: "x\n".repeat(40), alt: "" };
  const { el, patch, $ } = open([call({ outputs: [output] })]);
  const all = /** @type {HTMLDetailsElement} */ ($(".nba-all"));
  all.open = true;
  const item = call({ outputs: [output, output] });
  patch({ op: "put", item, index: 0 });
  const opened = [...el.querySelectorAll(".nba-all")].map((one) => one.hasAttribute("open"));
  expect(opened).toEqual([true, false]);
});

test("the row of a running call shows its last printed line, until it has ended", () => {
  const running = call({ state: "running", brief: "pages", progress: null });
  const { $, patch } = open([running]);
  expect($(".nba-brief").textContent).toBe("pages");
  patch({ op: "print", key: running.key, text: "page 1\npage 2\n" });
  expect($(".nba-brief").textContent).toBe("page 2");
  patch({ op: "put", index: 0, item: { ...running, printed: "page 1\npage 2\n", state: "done" } });
  expect($(".nba-brief").textContent).toBe("pages");
});
