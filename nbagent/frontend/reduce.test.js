import { expect, test } from "vitest";
import { apply, changes, HEAD } from "./reduce.js";
import { TAGS } from "./shorthand.js";
import { WIRE } from "./test-support/fake-host.js";

const { snapshot, patch } = WIRE.from_kernel;

test("the example patch leads to the state that the kernel's test expects", () => {
  const before = structuredClone(snapshot.view);
  expect(patch.ops.reduce(apply, snapshot.view)).toEqual(WIRE.after_patch);
  expect(snapshot.view).toEqual(before);
});

test("of what is open only the middle travels, and of tags a sign each", () => {
  expect(WIRE.shorthand.tags).toEqual(TAGS);
  for (const { tail, raw, op, blocks, then } of WIRE.shorthand.cases) {
    const item = { type: "text", key: "t", blocks: [], tail, raw };
    const [after] = apply({ head: snapshot.view.head, items: [item] }, op).items;
    expect(after).toEqual({ ...item, blocks, tail: then, raw: op.raw });
  }
});

test("only changed keys are reported", () => {
  const view = snapshot.view;
  const after = apply(view, { op: "print", key: "c1", text: "x" });
  expect([...changes(view, after)]).toEqual(["c1"]);
  expect([...changes(after, apply(after, { op: "remove", key: "t1" }))]).toEqual(["t1"]);
  const head = { ...view.head, turns: 2 };
  expect([...changes(view, apply(view, { op: "head", head }))]).toEqual([HEAD]);
});

test("an operation on an item that is not there changes nothing", () => {
  const after = apply(snapshot.view, { op: "raw", key: "nobody", text: "x" });
  expect([...changes(snapshot.view, after)]).toEqual([]);
});
