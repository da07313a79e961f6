import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  action,
  form,
  GATE,
  open,
  press,
  snapshot,
  type,
  WIRE,
} from "../test-support/fake-host.js";
import { groupAlike } from "./grouping.js";

const [, , call, , example, notice] = WIRE.from_kernel.snapshot.view.items;
const fact = (label, value) => ({ label, value, code: true, changed_from: null });
const field = (key, kind, text) => ({
  ...{ id: `/${key}`, key, label: `The ${key}`, kind, required: true },
  ...{ initial: { text }, prefilled: true },
});
const pay = (id, to, amount, more = {}) =>
  form(
    { kind: "object", fields: [field("to", "text", to), field("amount", "num", amount)] },
    {
      ...{ key: `q:${id}`, interrupt: id, call: id, tool: "pay", title: "Send it?", group: "g" },
      ...{ input: [fact("to", to), fact("amount", amount), fact("unit", "EUR")] },
      ...{ actions: GATE, approval: true, ...more },
    },
  );
const three = () => [pay("a", "Ada", "10"), pay("b", "Bob", "20"), pay("c", "Cid", "30")];
const ask = (id, who) =>
  form(
    { kind: "choice", options: [{ label: "Fish" }, { label: "Meat" }] },
    {
      ...{ key: `q:${id}`, interrupt: id, tool: "menu", title: "Which?", group: "g" },
      ...{ input: [fact("who", who)], facts: [] },
      actions: [
        action("submit", "Send", { primary: true }),
        action("reject", "No", { reason: true }),
      ],
    },
  );
const record = (id, decision, more = {}) => ({ ...example, key: `a:${id}`, decision, ...more });
const settle = (id, index, decision = "approved", more = {}) => [
  { op: "remove", key: `q:${id}` },
  { op: "put", index, item: record(id, decision, more) },
];
const table = (page) => page.$("table.nba-calls");
const rows = (page) => [...table(page).querySelectorAll("tbody > tr:not(.nba-under)")];
const under = (page) => [...table(page).querySelectorAll("tr.nba-under")];
const cells = (row) => [...row.querySelectorAll("td[data-label]")].map((one) => one.textContent);
const inRow = (page, at, label) => {
  const found = [rows(page)[at], under(page)[at]].flatMap((part) => [
    ...part.querySelectorAll("button"),
  ]);
  const shown = found.filter((one) => !one.closest("[hidden]"));
  return shown.find((one) => one.textContent === label);
};
const sent = (page) =>
  page.model.sent("answer").map((one) => [one.interrupt, one.action, one.drafts, one.reason]);
const refuse = (page, at, errors) => {
  const { submission, interrupt } = page.model.sent("answer").at(at);
  page.model.receive({ type: "receipt", submission, interrupt, ok: false, errors });
};

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date", "performance"],
  });
});
afterEach(() => vi.useRealTimers());

test.each([
  ["one alone is a form", [pay("a", "", "")], [], "q:a"],
  ["two that are alike are a table", [pay("a", "", ""), pay("b", "", "")], [], "g:g"],
  ["where the last stands", [call, pay("a", "", ""), notice, pay("b", "", "")], [], "c1 n1 g:g"],
  [
    "others stand alone",
    [pay("a", "", "", { group: "" }), pay("b", "", "", { group: "" })],
    [],
    "q:a q:b",
  ],
  ["two kinds are two", [pay("a", "", ""), pay("b", "", "", { group: "h" })], [], "q:a q:b"],
  ["a settled one stays in it", [record("a", ""), pay("b", "", "")], ["a", "b"], "g:g"],
  ["a record of before does not join", [record("a", ""), pay("b", "", "")], [], "a:a q:b"],
  ["all settled: it is over", [record("a", ""), record("b", "")], ["a", "b"], "a:a a:b"],
])("the table: %s", (_, items, known, expected) => {
  const tables = new Map(known.length > 0 ? [["g", new Set(known)]] : []);
  expect(
    groupAlike(items, tables)
      .map((item) => item.key)
      .join(" "),
  ).toBe(expected);
});

test("a column for each value that differs, what is the same once above, no form twice", () => {
  const page = open(three());
  expect(page.$("h4").textContent).toBe("3 calls of pay are waiting");
  expect(page.$(".nba-note").textContent).toBe("Send it?");
  const heads = [...table(page).querySelectorAll("thead th")].map((one) => one.textContent);
  expect(heads).toEqual(["to", "amount"]);
  expect(rows(page).map(cells)).toEqual([
    ["Ada", "10"],
    ["Bob", "20"],
    ["Cid", "30"],
  ]);
  expect(page.$(".nba-facts").textContent).toContain("unitEUR");
  expect(page.el.querySelectorAll("td > form[data-folded]")).toHaveLength(3);
  expect(page.el.querySelectorAll("form")).toHaveLength(4);
  expect(table(page).caption?.textContent).toBeTruthy();
  expect(page.$("[aria-live]").textContent).toContain("3 calls of pay are waiting");
  expect(inRow(page, 1, "Approve").getAttribute("aria-label")).toBe("Approve: to Bob, amount 20");
});

test("each row is answered by itself, all that are left at once, and nothing twice", () => {
  const page = open(three());
  inRow(page, 1, "Approve").click();
  inRow(page, 1, "Approve").click();
  expect(sent(page)).toEqual([["b", "approve", null, null]]);
  page.button("Approve all 3").click();
  page.button("Approve all 3").click();
  expect(sent(page).map(([id]) => id)).toEqual(["b", "a", "c"]);
  const submissions = page.model.sent("answer").map((one) => one.submission);
  expect(new Set(submissions).size).toBe(3);
});

test("an edited row shows old and new, and its change goes with the answer for all", () => {
  const page = open(three());
  inRow(page, 1, "Open").click();
  type(under(page)[1].querySelector(".nba-number"), "25");
  inRow(page, 1, "Close").click();
  expect(cells(rows(page)[1])).toEqual(["Bob", "20 25"]);
  expect(inRow(page, 1, "Approve with changes")).toBeTruthy();
  page.button("Approve all 3, 1 with changes").click();
  expect(sent(page).map(([, , drafts]) => drafts)).toEqual([
    null,
    { fields: { amount: { text: "25" } } },
    null,
  ]);
});

test("a row is refused with its reason, and all with one for each", () => {
  const page = open(three());
  inRow(page, 2, "Reject…").click();
  expect(sent(page)).toEqual([]);
  type(under(page)[2].querySelector(".nba-reason textarea"), "too much");
  press(document.activeElement, "Enter", { ctrlKey: true });
  expect(sent(page)).toEqual([["c", "reject", null, "too much"]]);
  page.patch(...settle("c", 2, "rejected", { tone: "bad" }));
  page.button("Reject all 2…").click();
  type(page.$(".nba-group > form textarea"), "not today");
  press(document.activeElement, "Enter", { ctrlKey: true });
  expect(sent(page).slice(1)).toEqual([
    ["a", "reject", null, "not today"],
    ["b", "reject", null, "not today"],
  ]);
});

test("a row whose result is being given is left out of every answer for all", () => {
  const root = { id: "", key: "", label: "", required: true, kind: "text" };
  const actions = [...GATE, action("answer", "Answer instead…", { menu: true })];
  const more = () => ({ actions, instead: { spec: { root }, drafts: null } });
  const page = open(three().map((item) => ({ ...item, ...more() })));
  inRow(page, 1, "Open").click();
  under(page)[1].querySelector(".nba-more").click();
  inRow(page, 1, "Answer instead…").click();
  expect(page.button("Reject all 2…")).toBeTruthy();
  page.button("Approve all 2").click();
  expect(sent(page).map(([id]) => id)).toEqual(["a", "c"]);
});

test("Enter never approves; Ctrl+Enter in a row's form approves that row alone", () => {
  const page = open(three());
  inRow(page, 1, "Open").click();
  const input = under(page)[1].querySelector(".nba-number");
  press(input, "Enter");
  expect(sent(page)).toEqual([]);
  press(input, "Enter", { ctrlKey: true });
  expect(sent(page)).toEqual([["b", "approve", null, null]]);
});

test("what is typed in a row outlives the other rows, patches, snapshots and its own way into the table", () => {
  const [first, ...others] = three();
  const page = open([first]);
  const input = page.$(".nba-number");
  type(input, "12");
  page.patch({ op: "put", index: 1, item: others[0] });
  expect(document.activeElement).toBe(input);
  expect(under(page)[0].contains(input)).toBe(true);
  page.patch({ op: "put", index: 2, item: others[1] });
  page.patch({ op: "put", index: 0, item: { ...first, note: "Look twice" } });
  page.patch(...settle("b", 1));
  page.model.receive(snapshot([first, record("b", "approved"), others[1]], { seq: 9 }));
  expect(document.activeElement).toBe(input);
  expect([page.$(".nba-number"), input.value]).toEqual([input, "12"]);
  vi.advanceTimersByTime(1000);
  expect(page.model.sent("drafts").map((one) => one.interrupt)).toEqual(["a"]);
});

test("input from before a reload is shown in its row", () => {
  const drafts = { fields: { amount: { text: "12" } } };
  const page = open([pay("a", "Ada", "10", { drafts }), pay("b", "Bob", "20")]);
  expect(cells(rows(page)[0])).toEqual(["Ada", "10 12"]);
  inRow(page, 0, "Approve with changes").click();
  expect(sent(page)[0][2]).toEqual(drafts);
});

test("a settled row is its record; the last one makes them stand where records stand", () => {
  const page = open([call, ...three()]);
  inRow(page, 0, "Approve").focus();
  page.patch(...settle("a", 1));
  expect(rows(page)[0].textContent).toContain("approved");
  expect(cells(rows(page)[0])).toEqual(["Ada", "10"]);
  expect(inRow(page, 0, "Approve")).toBe(undefined);
  expect(document.activeElement).toBe(rows(page)[0].querySelector(".nba-record"));
  expect(page.$("h4").textContent).toBe("2 calls of pay are waiting");
  const details = [{ ...fact("amount", "25"), changed_from: "20" }];
  page.patch(...settle("b", 2, "approved with changes", { details }));
  expect(cells(rows(page)[1])).toEqual(["Bob", "20 25"]);
  expect(page.$(".nba-group > form").hidden).toBe(true);
  page.patch(...settle("c", 3));
  expect(page.el.querySelector(".nba-calls")).toBe(null);
  const keys = [...page.$(".nba-items").children].map((one) => one.getAttribute("data-key"));
  expect(keys).toEqual(["c1", "a:a", "a:b", "a:c"]);
  expect(document.activeElement?.classList).toContain("nba-record");
});

test("a row whose answer was not taken stays, with what is wrong, and the others do not wait for it", () => {
  const page = open(three());
  page.button("Approve all 3").click();
  refuse(page, 1, [{ field: "/amount", message: "too much" }]);
  expect(under(page)[1].querySelector("[role=alert]").textContent).toContain("too much");
  expect(inRow(page, 1, "Approve").getAttribute("aria-disabled")).toBe(null);
  expect(inRow(page, 0, "Approve").getAttribute("aria-disabled")).toBe("true");
  under(page)[1].querySelector("[role=alert] button").click();
  expect(document.activeElement).toBe(under(page)[1].querySelector(".nba-number"));
  inRow(page, 1, "Close").click();
  inRow(page, 1, "Approve").click();
  refuse(page, -1, [{ field: "/amount", message: "still too much" }]);
  expect(inRow(page, 1, "Close")).toBeTruthy();
});

test("long values must be shown whole, in a row or above all of them, before they are approved", () => {
  const long = "x".repeat(300);
  const input = (to, unit) => ({ input: [fact("to", to), fact("unit", unit)] });
  const page = open([
    pay("a", long, "10", input(long, long.repeat(4))),
    pay("b", "Bob", "20", input("Bob", long.repeat(4))),
  ]);
  const off = (at) => inRow(page, at, "Approve").getAttribute("aria-disabled");
  expect([off(0), off(1)]).toEqual(["true", "true"]);
  page.$(".nba-group > .nba-facts .nba-link").click();
  expect([off(0), off(1)]).toEqual(["true", null]);
  inRow(page, 0, "Approve").click();
  expect(sent(page)).toEqual([]);
  expect(page.button("Approve 1 of 2: 1 needs a look")).toBeTruthy();
  rows(page)[0].querySelector(".nba-link").click();
  page.button("Approve all 2").click();
  expect(sent(page)).toHaveLength(2);
});

test("a row with an odd value is left out until it was opened, and the bar shows what the others contain", () => {
  const spread = (name, more) => ({
    name,
    text: "",
    values: [],
    bars: [],
    listed: [],
    more: 0,
    ...more,
  });
  const inputs = [
    spread("to", {
      text: "2 different values",
      listed: [
        ["Ada", 1],
        ["Bob", 1],
      ],
    }),
    spread("amount", {
      values: [
        ["10", 1],
        ["20", 1],
      ],
    }),
    spread("unit", { values: [["EUR", 2]] }),
  ];
  const [a, b, c] = three();
  const look = ["amount: far from the others"];
  const page = open([{ ...a, covers: { n: 2, inputs } }, b, { ...c, look }]);
  expect(page.$(".nba-covers").textContent).toBe(
    "What 2 of them containto2 different valuesList themAdaBobamount1020",
  );
  const note = rows(page)[2].querySelector(".nba-look");
  expect(note.textContent).toBe("Needs a look · amount: far from the others");
  page.button("Approve 2 of 3: 1 needs a look").click();
  expect(sent(page).map(([id]) => id)).toEqual(["a", "b"]);
  inRow(page, 2, "Open").click();
  expect(note.hidden).toBe(true);
  inRow(page, 2, "Close").click();
  expect(note.hidden).toBe(true);
  page.patch(...settle("a", 0));
  page.button("Approve all 2").click();
  expect(sent(page).map(([id]) => id)).toEqual(["a", "b", "c"]);
});

test("a press by pointer on a button that has just appeared or moved is ignored, in rows and below", () => {
  const page = open(three());
  const pointer = (el) => el.dispatchEvent(new MouseEvent("click", { detail: 1, bubbles: true }));
  pointer(inRow(page, 0, "Approve"));
  pointer(page.button("Approve all 3"));
  expect(sent(page)).toEqual([]);
  vi.advanceTimersByTime(700);
  pointer(page.button("Approve all 3"));
  expect(sent(page)).toHaveLength(3);
});

test("one answer goes to every question that is still open, and its error stands in that form", () => {
  const page = open([ask("a", "Ada"), ask("b", "Bob"), ask("c", "Cid")]);
  expect(page.$("h4").textContent).toBe("3 questions from menu are waiting");
  page.patch(...settle("a", 0, "you chose Fish"));
  const same = page.$(".nba-group > form");
  same.querySelectorAll("input")[1].click();
  vi.advanceTimersByTime(1000);
  expect(page.model.sent("drafts")).toEqual([]); // they would be the text of a message
  [...same.querySelectorAll("button")].find((one) => one.textContent === "Send to all 2").click();
  expect(sent(page)).toEqual([
    ["b", "submit", { option: 1 }, null],
    ["c", "submit", { option: 1 }, null],
  ]);
  refuse(page, 1, [{ field: "", message: "sold out" }]);
  expect(same.textContent).toContain("sold out");
  page.patch(...settle("b", 1, "you chose Meat"));
  expect(same.hidden).toBe(true);
  inRow(page, 2, "Answer…").click();
  expect(under(page)[2].querySelectorAll("input")[1].checked).toBe(true);
});

test("the buttons for all say to how many they send, and the first deadline of the rows is shown", () => {
  const soon = (item, seconds) => ({ ...item, expires_at: Date.now() / 1000 + seconds });
  const named = (item) => {
    const [send, no] = item.actions;
    return { ...item, actions: [send, { ...no, label: "Decline…" }] };
  };
  const page = open(
    [ask("a", "Ada"), soon(ask("b", "Bob"), 600), soon(ask("c", "Cid"), 90)].map(named),
  );
  const foot = page.$(".nba-group > form");
  const labels = () =>
    [...foot.querySelectorAll(".nba-acts .nba-buttons > button")].map((one) => one.textContent);
  expect(labels()).toEqual(["Send to all 3", "Decline all 3…"]);
  expect(foot.querySelector(".nba-right").textContent).toContain("expires in 1:30");
  page.patch(...settle("c", 2, "you chose Fish"));
  expect(labels()).toEqual(["Send to all 2", "Decline all 2…"]);
  expect(foot.querySelector(".nba-right").textContent).toContain("expires in 10:00");
});

test("a kernel that is gone disables every row, says so, and keeps what is typed", () => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  const page = open(three());
  inRow(page, 1, "Open").click();
  type(under(page)[1].querySelector(".nba-number"), "25");
  page.model.dead = true;
  inRow(page, 0, "Approve").click();
  expect(page.$(".nba-gone:not([hidden])").textContent).toContain("kernel has stopped");
  expect(inRow(page, 2, "Approve").getAttribute("aria-disabled")).toBe("true");
  expect(page.button("Approve all 3, 1 with changes").getAttribute("aria-disabled")).toBe("true");
  expect(under(page)[1].querySelector(".nba-number").value).toBe("25");
});

test("the footer of the card leads to the table, and closing the page ends all that listens", () => {
  const page = open(three());
  page.$(".nba-jump").click();
  expect(document.activeElement).toBe(page.$("h4"));
  page.controller.abort();
  expect(vi.getTimerCount()).toBe(0);
});
