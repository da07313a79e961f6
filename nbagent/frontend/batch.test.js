import { expect, test } from "vitest";
import widget from "./batch.js";

const ASKS = {
  tools: [["refund", "refund", 50]],
  fields: [["amount", "amount"]],
  rule: ["refund", "", "is", ""],
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
    send: (message) => message.type === "rule" && sent.push(message),
  };
  const el = document.createElement("div");
  document.body.append(el);
  widget.render({ model, el, signal: new AbortController().signal });
  const [, field, operator] = el.querySelectorAll(".b-asks select");
  const choose = (select, name) => {
    select.value = name;
    select.dispatchEvent(new Event("change"));
  };
  const show = (...rule) => {
    values.state = { ...STATE, asks: { ...ASKS, rule } };
    listeners["change:state"]();
  };
  return { field, operator, choose, show, sent };
}

test("an answer to an earlier choice does not undo a later one", () => {
  const { field, operator, choose, show, sent } = open();
  choose(field, "amount");
  choose(operator, "below");
  show("refund", "amount", "is", "");
  expect([field.value, operator.value]).toEqual(["amount", "below"]);
  expect(sent.map((one) => one.operator)).toEqual(["is", "below"]);
  show("refund", "amount", "below", "");
  expect(operator.value).toBe("below");
});

test("a rule that the kernel changes by itself is shown", () => {
  const { field, operator, choose, show } = open();
  choose(field, "amount");
  show("pay", "", "is", "");
  expect(field.value).toBe("");
  show("refund", "amount", "above", "");
  expect([field.value, operator.value]).toEqual(["amount", "above"]);
});
