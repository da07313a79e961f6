import { expect, test, vi } from "vitest";
import widget from "./table.js";
import { TEXTS } from "./test-support/fake-host.js";

const ASKS = {
  tools: [["refund", "refund", 50]],
  fields: [["amount", "amount"]],
  rule: ["refund", "", "is", "", ""],
  fit: 50,
  preview: 1,
  said: "50 of 50 questions match",
  approvable: true,
  choices: [],
  writable: false,
  told: "",
  waits: "50 questions are waiting for you",
};
const STATE = {
  wanted: { text: "", status: "" },
  filters: [["text", "Find rows", null]],
  found: "",
  buttons: [],
  asks: null,
  progress: { label: "Status", counts: [], total: 50, text: "" },
};

const COVERS = {
  preview: 1,
  n: 47,
  inputs: [
    { name: "amount", text: "5 to 50, sum 900", values: [], bars: [40, 7], listed: [], more: 0 },
    { name: "why", text: "", values: [["refund", 47]], bars: [], listed: [], more: 0 },
    { name: "to", text: "47 values", values: [], bars: [], listed: [["ACC-1", 1]], more: 46 },
  ],
  look: [
    ["a", "amount: far from the others", "987654321", 1, null],
    ["b", "why: 400 characters", "Dear…", 2, null],
  ],
  more: 0,
};

/** A card of a batch in the page; the test acts as the kernel. */
function open() {
  const values = {
    state: { ...STATE, asks: ASKS },
    covers: COVERS,
    labels: TEXTS,
    window: { columns: [], from: 0, total: 0, rows: [], opened: "", by: "", order: "ascending" },
  };
  const listeners = {};
  const sent = [];
  const model = {
    get: (name) => values[name],
    on: (name, act) => (listeners[name] = act),
    off: () => {},
    send: (message) => ["rule", "decide", "look"].includes(message.type) && sent.push(message),
  };
  const el = document.createElement("div");
  document.body.append(el);
  widget.render({ model, el, signal: new AbortController().signal });
  const [, field, operator] = el.querySelectorAll(".t-asks select");
  const value = el.querySelector(".t-value");
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
  const buttons = [...el.querySelectorAll(".t-asks > .t-line > .t-button")];
  const cover = (covers) => {
    values.covers = covers;
    listeners["change:covers"]();
  };
  return { el, field, operator, value, choose, type, show, sent, buttons, cover };
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

test("the bar shows what an answer covers, and counts odd values once they are opened", () => {
  const { el, sent, buttons, cover } = open();
  const [, approve, reject] = buttons;
  expect([approve, reject].map((one) => one.textContent)).toEqual([
    "Approve 47, 3 need a look",
    "Reject 47",
  ]);
  const texts = [...el.querySelectorAll(".nba-covers dd")].map((one) => one.textContent);
  expect(texts).toEqual(["5 to 50, sum 900", "refund (47)", "47 valuesList themACC-1and 46 more"]);
  expect(el.querySelector(".nba-bars").getAttribute("aria-label")).toBe("Histogram: 40, 7");
  const look = el.querySelector(".nba-odds button");
  expect(look.getAttribute("aria-label")).toBe("Open: amount: far from the others");
  look.focus();
  look.click();
  expect(sent.at(-1)).toEqual({ type: "look", preview: 1, value: "a" });
  const fact = { label: "amount", value: "987654321", code: true, changed_from: null };
  const [first, second] = COVERS.look;
  cover({ ...COVERS, n: 48, look: [[...first.slice(0, 4), fact], second] });
  expect(document.activeElement.textContent).toBe("amount987654321");
  expect(approve.textContent).toBe("Approve 48, 2 need a look");
  approve.click();
  expect(sent.at(-1)).toMatchObject({
    ...{ type: "decide", preview: 1, opened: ["a"], action: "approve" },
  });
  cover({ ...COVERS, preview: 2 });
  expect(approve.disabled).toBe(true);
});

const ROWS = Array.from({ length: 200 }, (_, n) => [
  `run-${n}`,
  `run-${n}`,
  "completed",
  [`run-${n}`, "done"],
]);

/** A table of 200 rows, or another window, in the page; the test acts as the kernel. */
function openTable(more = {}) {
  const values = {
    state: STATE,
    covers: {},
    labels: { open: "Open", close: "Close", rows: "Runs" },
  };
  const listeners = {};
  const sent = [];
  const show = (from, rows = ROWS) => {
    const columns = [
      ["id", "id"],
      ["status", "status"],
    ];
    const part = rows.slice(from, from + 41);
    const order = { opened: "", by: "id", order: "descending", none: "No runs match." };
    values.window = { columns, from, total: rows.length, rows: part, ...order };
    listeners["change:window"]?.();
  };
  show(0);
  Object.assign(values, more);
  const model = {
    get: (name) => values[name],
    on: (name, act) => (listeners[name] = act),
    off: () => {},
    send: (message) => !["hello", "shown"].includes(message.type) && sent.push(message),
  };
  const el = document.createElement("div");
  document.body.append(el);
  const life = new AbortController();
  widget.render({ model, el, signal: life.signal });
  const update = (state) => {
    values.state = { ...values.state, ...state };
    listeners["change:state"]();
  };
  return { el, sent, show, update, life };
}

test("a page has only the rows of its window, in order, and keys go to every row", () => {
  const { el, sent, show } = openTable();
  const table = el.querySelector("[role=table]");
  const names = () => [...el.querySelectorAll(".t-space .t-row")].map((row) => row.dataset.key);
  expect(table.getAttribute("aria-rowcount")).toBe("201");
  expect(names()).toEqual(ROWS.slice(0, 41).map(([key]) => key));
  expect(el.querySelector("[aria-sort]").textContent).toBe("id▼");
  const first = el.querySelector(".t-space button");
  expect(first.getAttribute("aria-label")).toBe("Open run-0");
  first.focus();
  const press = (key) =>
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("End");
  expect(sent.at(-1)).toEqual({ type: "window", from: 175, count: 40 });
  show(159);
  expect(document.activeElement.getAttribute("aria-label")).toBe("Open run-199");
  expect(names()).toEqual(ROWS.slice(159).map(([key]) => key));
  show(159, [...ROWS.slice(0, 159), ...ROWS.slice(159).reverse()]); // sorted otherwise: the row keeps the focus
  expect(names()[0]).toBe("run-199");
  expect(document.activeElement.getAttribute("aria-label")).toBe("Open run-199");
  document.activeElement.click();
  expect(sent.at(-1)).toEqual({ type: "open", key: "run-199" });
});

test("a table that is sorted or searched shows its first row", () => {
  vi.useFakeTimers();
  const { el } = openTable();
  const scroll = el.querySelector(".t-scroll");
  scroll.scrollTop = 4800;
  el.querySelector(".t-sort").click();
  expect(scroll.scrollTop).toBe(0);
  scroll.scrollTop = 4800;
  const find = el.querySelector("input[type=search]");
  find.value = "7";
  find.dispatchEvent(new Event("input"));
  vi.advanceTimersByTime(1000);
  expect(scroll.scrollTop).toBe(0);
  vi.useRealTimers();
});

test("an inbox has only the filters, and hides them while there is nothing to choose", () => {
  const tools = [
    ["", "all tools"],
    ["pay", "pay"],
  ];
  const state = {
    ...STATE,
    progress: null,
    filters: [["tool", "Tool", tools]],
    wanted: { tool: "", age: "" },
  };
  const { el, sent, update } = openTable({ window: {}, state });
  expect(el.querySelectorAll("[role=table], .t-progress, .t-asks").length).toBe(0);
  const select = el.querySelector("select");
  select.value = "pay";
  select.dispatchEvent(new Event("change"));
  expect(sent).toEqual([{ type: "want", filters: { tool: "pay", age: "" } }]);
  update({ filters: [] });
  expect(el.querySelector(".nba-table-card").hidden).toBe(true);
});

test("a button that asks whether the person is sure acts on the second press", () => {
  const buttons = [["stop", "stop", "Stop", "Stop all rows?"]];
  const { el, sent, update } = openTable({ state: { ...STATE, buttons } });
  const button = el.querySelector(".nba-table-card > .t-line > .t-button");
  sent.length = 0;
  button.click();
  update({});
  expect([button.textContent, sent.length]).toEqual(["Stop all rows?", 0]);
  button.click();
  expect([button.textContent, sent]).toEqual(["Stop", [{ type: "press", action: "stop" }]]);
});

test("in a page with its own kernel a table sends through its channel, also while a cell runs", () => {
  const posted = [];
  vi.stubGlobal(
    "BroadcastChannel",
    class {
      close() {}
      postMessage = (text) => posted.push(JSON.parse(text).type);
    },
  );
  const { el, sent } = openTable({ channel: "nbagent-1" });
  el.querySelector(".t-sort").click();
  expect([posted.at(-1), sent]).toEqual(["sort", []]);
  vi.unstubAllGlobals();
});
