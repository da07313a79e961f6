// @ts-check
// The box of a chat, without a browser: what it sends, keeps and gives back.

import { expect, test, vi } from "vitest";
import { HEAD, open, press, snapshot, TEXTS, type } from "../test-support/fake-host.js";

const chat = { ...HEAD, chat: true, status: "completed", prompt: "" };
const message = (/** @type {string} */ key, /** @type {string} */ text) => ({
  type: "message",
  key,
  text,
  note: "",
  files: [],
  editable: true,
});

/** A chat with two messages, and its box. */
function opened() {
  const page = open([message("t1:m1", "first"), message("t2:m1", "second")], chat);
  return { ...page, box: /** @type {HTMLTextAreaElement} */ (page.$(".nba-write")) };
}

test("a message is sent once, and is back in the box where the kernel refuses it", () => {
  const { model, box, $ } = opened();
  type(box, "What is odd?");
  press(box, "Enter");
  press(box, "Enter");
  const [say, ...more] = model.sent("say");
  expect([say.text, say.instead, more]).toEqual(["What is odd?", null, []]);
  expect(box.value).toBe("");
  const receipt = { type: "receipt", submission: say.submission, interrupt: "" };
  model.receive({ ...receipt, ok: false, errors: [{ field: null, message: "Too long" }] });
  expect([box.value, $(".nba-composer .nba-err").textContent]).toEqual([
    "What is odd?",
    "Too long",
  ]);
  press(box, "Enter");
  model.receive({ ...receipt, submission: model.sent("say")[1].submission, ok: true, errors: [] });
  expect(box.value).toBe("");
  press(box, "Enter");
  expect(model.sent("say").length).toBe(2);
});

test("up and down go through earlier messages, and do not touch unsent text", () => {
  const { box } = opened();
  const seen = ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"].map((key) => {
    press(box, key);
    return box.value;
  });
  expect(seen).toEqual(["second", "first", "first", "second", ""]);
  type(box, "new");
  press(box, "ArrowUp");
  expect(box.value).toBe("new");
});

test("an edited message takes the place of the earlier one", () => {
  const { model, box, el, patch } = opened();
  const edit = el.querySelectorAll(".nba-edit")[0];
  /** @type {HTMLElement} */ (edit).click();
  expect(box.value).toBe("first");
  press(box, "Escape");
  expect(box.value).toBe("");
  /** @type {HTMLElement} */ (edit).click();
  type(box, "better");
  press(box, "Enter");
  expect(model.sent("say")[0]).toMatchObject({ text: "better", instead: "t1:m1" });
  patch({ op: "put", index: 0, item: { ...message("t1:m1", "first"), editable: false } });
  expect(el.querySelectorAll(".nba-edit:not([hidden])").length).toBe(1);
});

test("the error of a conversation that is too long takes its message back into the box", () => {
  const actions = [
    { name: "edit", label: "Edit message" },
    { name: "shorten", label: "Shorten" },
  ];
  const end = {
    type: "notice",
    key: "t2:end",
    tone: "bad",
    text: "Too long",
    actions,
    until: null,
  };
  const items = [message("t1:m1", "first"), message("t2:m1", "second"), end];
  const { model, $, el } = open(items, chat);
  const [edit, shorten] = /** @type {any} */ (el.querySelectorAll(".nba-notice button"));
  edit.click();
  expect(/** @type {HTMLTextAreaElement} */ ($(".nba-write")).value).toBe("second");
  expect(model.sent("press")).toEqual([]);
  shorten.click();
  expect(model.sent("press")[0]).toMatchObject({ notice: "t2:end", action: "shorten" });
});

test("the unsent message is back after an edit, with its files and over a reload", () => {
  const files = [{ id: "f0", name: "a.txt", size: 2 }];
  const items = [message("t1:m1", "first"), message("t2:m1", "second")];
  const { model, $, el } = open(items, chat, "A long draft", files);
  const box = /** @type {HTMLTextAreaElement} */ ($(".nba-write"));
  const chips = () => el.querySelectorAll(".nba-chip").length;
  const [first, second] = /** @type {any} */ (el.querySelectorAll(".nba-edit"));
  expect([box.value, chips()]).toEqual(["A long draft", 1]);
  first.click();
  expect([box.value, chips()]).toEqual(["first", 0]);
  second.click();
  type(box, "other");
  vi.useFakeTimers();
  press(box, "Escape");
  expect([box.value, chips()]).toEqual(["A long draft", 1]);
  second.click();
  type(box, "better");
  vi.advanceTimersByTime(1000);
  expect(model.sent("drafts").at(-1).drafts).toBe("A long draft");
  const receipt = () => {
    const { submission } = model.sent("say").at(-1);
    return { type: "receipt", submission, interrupt: "", ok: true, errors: [] };
  };
  press(box, "Enter");
  model.receive({ ...receipt(), ok: false, errors: [{ field: null, message: "No" }] });
  expect([box.value, chips()]).toEqual(["better", 0]);
  press(box, "Enter");
  model.receive(receipt());
  expect([box.value, chips()]).toEqual(["A long draft", 1]);
  press(box, "Enter");
  expect(model.sent("say").map(({ text, files, instead }) => [text, files, instead])).toEqual([
    ["better", [], "t2:m1"],
    ["better", [], "t2:m1"],
    ["A long draft", ["f0"], null],
  ]);
  vi.useRealTimers();
});

test("an edited message shows its files, and no variables", () => {
  const file = (/** @type {string} */ data) => ({ kind: "text", data, alt: "" });
  const files = ["@df, table of 2 rows", "b.txt, 2 bytes", "picture @plot"].map(file);
  const { el } = open([{ ...message("t1:m1", "see @df"), files }], chat);
  /** @type {any} */ (el.querySelector(".nba-edit")).click();
  const chips = [...el.querySelectorAll(".nba-chip")].map((chip) => chip.textContent);
  expect(chips).toEqual(["b.txt, 2 bytes×"]);
});

test("names are asked for while they are typed, and one is put in", () => {
  const { model, box, el } = opened();
  type(box, "look at @d");
  expect(model.sent("complete").at(-1).text).toBe("@d");
  const names = ["df", "draft"].map((name) => ({ name, about: "str" }));
  model.receive({ type: "names", text: "@", names });
  expect(el.querySelectorAll("[role=option]").length).toBe(0);
  model.receive({ type: "names", text: "@d", names });
  press(box, "ArrowDown");
  press(box, "Tab");
  expect(box.value).toBe("look at @draft ");
});

test("a kernel that goes gives back what it did not take, and the box says so", () => {
  const { model, box } = opened();
  type(box, "lost?");
  press(box, "Enter");
  model.fire("comm_live_update");
  expect([box.value, box.readOnly, box.placeholder]).toEqual([
    "lost?",
    true,
    TEXTS.message_no_kernel,
  ]);
});

test("what is not sent yet goes up, and is back after a reload", async () => {
  vi.useFakeTimers();
  const { model, box } = opened();
  type(box, "half a");
  type(box, "half a thought");
  vi.advanceTimersByTime(1000);
  expect(model.sent("drafts")).toEqual([
    { type: "drafts", interrupt: "", drafts: "half a thought" },
  ]);
  vi.useRealTimers();
  const again = opened(); // the trait, which has no typed text
  again.model.receive({ ...snapshot([], { head: chat, seq: 9 }), written: "too late" });
  expect(again.box.value).toBe("");
  const files = ["a.txt", "b.txt"].map((name, at) => ({ id: `f${at}`, name, size: 2 }));
  const reloaded = open([message("t1:m1", "first")], chat, "half a thought", files);
  const kept = /** @type {HTMLTextAreaElement} */ (reloaded.$(".nba-write"));
  expect(kept.value).toBe("half a thought");
  const chips = () => [...reloaded.el.querySelectorAll(".nba-chip")].map((el) => el.textContent);
  expect(chips()).toEqual(["a.txt2 bytes×", "b.txt2 bytes×"]);
  reloaded.$(".nba-chip button").click();
  expect(reloaded.model.sent("attach")).toEqual([{ type: "attach", id: "f0", file: null }]);
  press(kept, "Enter");
  expect(reloaded.model.sent("say")[0]).toMatchObject({ text: "half a thought", files: ["f1"] });
  expect(chips()).toEqual([]);
});
