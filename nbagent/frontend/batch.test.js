import { expect, test, vi } from "vitest";
import widget from "./batch.js";

const ASKS = {
  tools: [["refund", "refund", 50]],
  fields: [["amount", "amount"]],
  rule: ["refund", "", "is", "", ""],
  fit: 50,
  preview: 1,
  said: "50 of 50 questions match",
  example: "",
  approvable: true,
  choices: [],
  writable: false,
  told: "",
  waits: "50 questions are waiting for you",
};
const STATE = {
  counts: [],
  total: 50,
  said: "",
  used: "",
  status: "running",
  retry: 0,
  chosen: "",
  found: "",
  labels: {},
};

/** A card of a batch in the page; the test acts as the kernel. */
function open() {
  const values = {
    state: { ...STATE, asks: ASKS },
    window: { from: 0, total: 0, rows: [], opened: "", by: "", order: "ascending" },
  };
  const listeners = {};
  const sent = [];
  const model = {
    get: (name) => values[name],
    on: (name, act) => (listeners[name] = act),
    off: () => {},
    send: (message) => ["rule", "decide"].includes(message.type) && sent.push(message),
  };
  const el = document.createElement("div");
  document.body.append(el);
  widget.render({ model, el, signal: new AbortController().signal });
  const [, field, operator] = el.querySelectorAll(".b-asks select");
  const value = el.querySelector(".b-value");
  const choose = (select, name) => {
    select.value = name;
    select.dispatchEvent(new Event("change"));
  };
  const show = (rule) => {
    values.state = { ...STATE, asks: { ...ASKS, rule } };
    listeners["change:state"]();
  };
  const type = (text) => {
    value.value = text;
    value.dispatchEvent(new Event("input"));
  };
  const buttons = [...el.querySelectorAll(".b-asks .b-button")];
  return { field, operator, value, choose, type, show, sent, buttons };
}

test("an answer to an earlier choice does not undo a later one", () => {
  const { field, operator, choose, show, sent } = open();
  choose(field, "amount");
  choose(operator, "below");
  show(sent[0].rule);
  expect([field.value, operator.value]).toEqual(["amount", "below"]);
  expect(sent.map((one) => one.rule[2])).toEqual(["is", "below"]);
  show(sent[1].rule);
  expect(operator.value).toBe("below");
});

test("a rule that the kernel changes by itself is shown", () => {
  const { field, operator, value, choose, show } = open();
  choose(field, "amount");
  operator.focus();
  show(["pay", "", "is", "", ""]);
  expect(field.value).toBe("");
  show(["refund", "amount", "above", "7", ""]);
  expect([field.value, operator.value, value.value]).toEqual(["amount", "above", "7"]);
});

test("no button answers until the kernel shows the rule that is in the controls", () => {
  vi.useFakeTimers();
  const { field, operator, value, choose, type, show, sent, buttons } = open();
  const areOff = () => buttons.map((button) => button.disabled);
  const press = () => {
    for (const button of buttons) button.click();
  };
  expect(areOff()).toEqual([false, false, false]);
  choose(field, "amount");
  choose(operator, "below");
  show(sent[1].rule);
  expect(areOff()).toEqual([false, false, false]);
  type("50"); // the timer has not sent it yet
  press();
  vi.advanceTimersByTime(1000); // sent, and the kernel is busy
  show(sent[1].rule);
  press();
  expect(areOff()).toEqual([true, true, true]);
  type("5");
  type("50");
  vi.advanceTimersByTime(1000);
  show(sent[2].rule);
  expect([value.value, ...areOff()]).toEqual(["50", true, true, true]);
  show(sent[3].rule);
  buttons[1].click();
  expect(sent.slice(2).map(({ type, rule }) => [type, ...rule.slice(0, 4)])).toEqual([
    ["rule", "refund", "amount", "below", "50"],
    ["rule", "refund", "amount", "below", "50"],
    ["decide", "refund", "amount", "below", "50"],
  ]);
  vi.useRealTimers();
});
