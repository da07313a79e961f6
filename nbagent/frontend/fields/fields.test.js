import { expect, test, vi } from "vitest";
import { form, GATE, open, press, type } from "../test-support/fake-host.js";
import { jsonErrorAt } from "./json-error.js";

const PLANS = [{ label: "Fast" }, { label: "Exact", help: "reads all" }, { label: "Skip" }];
const many = (n) => Array.from({ length: n }, (_, index) => ({ label: `City ${index}` }));

/** The drafts that a person sends after doing this in a form with one node. */
function sent(root, act, more = {}) {
  const page = open([form(root, more)]);
  act(page);
  page.$(".nba-go").click();
  return page.model.sent("answer").at(-1)?.drafts;
}
const click =
  (selector, at = 0) =>
  (page) =>
    page.el.querySelectorAll(selector)[at].click();
const nothing = () => {};

const CASES = [
  ["text typed", { kind: "text" }, ({ $ }) => type($("input"), "Ada"), { text: "Ada" }],
  [
    "text emptied",
    { kind: "text", initial: { text: "x" } },
    ({ $ }) => type($("input"), ""),
    { cleared: true },
  ],
  [
    "empty text asked for",
    { kind: "text", initial: { text: "x" } },
    (page) => {
      type(page.$("input"), "");
      page.button("use empty text").click();
    },
    { empty: true },
  ],
  ["prefilled empty text", { kind: "text", initial: { empty: true } }, nothing, null],
  ["line ends kept", { kind: "text", initial: { text: "a\r\nb" } }, nothing, null],
  [
    "line ends of the prefill taken over",
    { kind: "text", initial: { text: "a\r\nb" } },
    ({ $ }) => type($("textarea"), "a\nb\nc"),
    { text: "a\r\nb\r\nc" },
  ],
  [
    "a number as typed",
    { kind: "int" },
    ({ $ }) => type($("input"), "9007199254740993"),
    { text: "9007199254740993" },
  ],
  ["choice", { kind: "choice", options: PLANS }, click("input[type=radio]", 1), { option: 1 }],
  [
    "choice by digit",
    { kind: "choice", options: PLANS },
    ({ $ }) => press($("input"), "3"),
    { option: 2 },
  ],
  [
    "write-in",
    { kind: "choice", options: PLANS, other: true },
    (page) => {
      click("input[type=radio]", 3)(page);
      type(page.$(".nba-other"), "Slow");
    },
    { other: "Slow" },
  ],
  [
    "option after a write-in",
    { kind: "choice", options: PLANS, other: true },
    (page) => {
      click("input[type=radio]", 3)(page);
      type(page.$(".nba-other"), "Slow");
      click("input[type=radio]", 0)(page);
    },
    { option: 0 },
  ],
  [
    "choice among many, filtered",
    { kind: "choice", options: many(60) },
    (page) => {
      type(page.$(".nba-filter"), "city 42");
      click("input[type=radio]", 0)(page);
      type(page.$(".nba-filter"), "");
    },
    { option: 42 },
  ],
  [
    "multi",
    { kind: "multi", options: PLANS },
    (page) => [0, 2].map((at) => click("[type=checkbox]", at)(page)),
    { options: [0, 2] },
  ],
  [
    "all",
    { kind: "multi", options: PLANS },
    (page) => page.button("All").click(),
    { options: [0, 1, 2] },
  ],
  [
    "none, by its button",
    { kind: "multi", options: PLANS },
    (page) => page.button("None").click(),
    { options: [] },
  ],
  [
    "multi with lines of one's own",
    { kind: "multi", options: PLANS, other: true },
    (page) => {
      type(page.el.querySelectorAll(".nba-others input")[0], "a");
      type(page.el.querySelectorAll(".nba-others input")[1], "b");
    },
    { options: [], others: ["a", "b"] },
  ],
  [
    "multi in another order",
    { kind: "multi", options: PLANS, initial: { options: [2, 0], others: [] } },
    nothing,
    null,
  ],
  ["yes", { kind: "bool" }, click("[type=radio]", 0), { bool: true }],
  ["no", { kind: "bool" }, click("[type=radio]", 1), { bool: false }],
  [
    "no value of a bool",
    { kind: "bool", nullable: true },
    click("[type=radio]", 2),
    { null: true },
  ],
  [
    "a bool that is null already",
    { kind: "bool", nullable: true, initial: { null: true } },
    nothing,
    null,
  ],
  [
    "null by the box",
    { kind: "int", nullable: true, initial: { text: "1" } },
    click("[type=checkbox]"),
    { null: true },
  ],
  [
    "typing takes the null back",
    { kind: "int", nullable: true, initial: { null: true } },
    ({ $ }) => type($(".nba-number"), "7"),
    { text: "7" },
  ],
  [
    "unticking the null brings back what was there",
    { kind: "int", nullable: true, initial: { text: "1" } },
    (page) => [0, 0].map(() => click("[type=checkbox]")(page)),
    null,
  ],
  [
    "JSON of a kind with no control",
    { kind: "widget", initial_json: { text: "{}" } },
    ({ $ }) => type($("textarea"), '{"a": 1}'),
    { json: { text: '{"a": 1}' } },
  ],
  ["that kind untouched", { kind: "widget", initial_json: { text: "{}" } }, nothing, null],
  [
    "JSON itself",
    { kind: "json", initial: { text: "1" } },
    ({ $ }) => type($("textarea"), "2"),
    { text: "2" },
  ],
  [
    "a kind nobody knows",
    { kind: "hologram" },
    ({ $ }) => type($("textarea"), "3"),
    { json: { text: "3" } },
  ],
];

test.each(CASES)("draft: %s", (_, root, act, expected) => {
  expect(sent(root, act)).toEqual(expected);
});

test("a time with an offset takes the browser's unless one is chosen, and a naive one stays naive", () => {
  vi.stubEnv("TZ", "Europe/Berlin");
  const when = { kind: "text", format: "date-time" };
  const at = "2026-07-01T09:30";
  const zone = (value) => (page) => {
    type(page.$("input"), at);
    page.$(".nba-zone").value = value;
    page.$(".nba-zone").dispatchEvent(new Event("change", { bubbles: true }));
  };
  expect(sent(when, ({ $ }) => type($("input"), at))).toEqual({ text: `${at}:00+02:00` });
  expect(sent(when, ({ $ }) => type($("input"), "2026-12-01T09:30"))).toEqual({
    text: "2026-12-01T09:30:00+01:00",
  });
  expect(sent(when, zone(""))).toEqual({ text: `${at}:00` });
  expect(sent(when, zone("Z"))).toEqual({ text: `${at}:00Z` });
  const shift = (text) => ({ ...when, initial: { text } });
  const later = ({ $ }) => type($("input"), "2026-12-24T18:00");
  for (const [text, expected] of [
    ["2026-07-01T09:30:00", "2026-12-24T18:00:00"],
    ["2026-07-01T09:30:00+05:30", "2026-12-24T18:00:00+05:30"],
    ["2026-07-01T09:30:00Z", "2026-12-24T18:00:00Z"],
  ]) {
    expect(sent(shift(text), nothing)).toBe(null);
    expect(sent(shift(text), later)).toEqual({ text: expected });
  }
  expect(sent({ kind: "text", format: "time" }, ({ $ }) => type($("input"), "06:45"))).toEqual({
    text: "06:45:00",
  });
  vi.unstubAllEnvs();
});

test("a moment that no native control can show is typed as text", () => {
  for (const [format, text] of [
    ["date", "tomorrow"],
    ["date-time", "2026-07-01 09:30"],
    ["time", "06:45:00.123456"],
  ]) {
    const { $ } = open([form({ kind: "text", format, initial: { text } })]);
    expect([$(".nba-fields input").type, $(".nba-fields input").value]).toEqual(["text", text]);
  }
});

test("a time that is half typed is not sent as left out", () => {
  const { $, model, button } = open([form({ kind: "text", format: "date-time" })]);
  Object.defineProperty($("input"), "validity", { value: { badInput: true } });
  button("Send").click();
  expect(model.sent("answer")).toEqual([]);
  expect($(".nba-err").textContent).toBe("This is incomplete.");
  expect(document.activeElement).toBe($("input"));
});

/** Chooses a file as a person does. */
async function choose(page, file) {
  Object.defineProperty(page.$("input[type=file]"), "files", { value: [file], configurable: true });
  page.$("input[type=file]").dispatchEvent(new Event("change", { bubbles: true }));
  await vi.waitFor(() => expect(page.$(".nba-status").textContent).not.toBe("Reading…"));
}

test("a file goes with the answer, never before, and not where it is too large", async () => {
  const root = {
    kind: "object",
    fields: [
      { id: "/f", key: "f", kind: "file", label: "Data", required: true },
      { id: "/t", key: "t", kind: "text", label: "Text" },
    ],
  };
  const page = open([form(root)]);
  await choose(page, new File([new Uint8Array(7 * 2 ** 20)], "big.bin"));
  page.button("Send").click();
  expect(page.model.sent("answer")).toEqual([]);
  expect(page.$(".nba-err").textContent).toContain("too large");
  await choose(page, new File(["hello"], "h.txt"));
  expect(page.$(".nba-status").textContent).toBe("h.txt, 5 bytes");
  type(page.el.querySelector("input[type=text]"), "x");
  await vi.waitFor(() => expect(page.model.sent("drafts").at(-1)?.drafts?.fields?.t).toBeTruthy());
  for (const { drafts } of page.model.sent("drafts")) expect(drafts?.fields?.f).toBe(undefined);
  page.button("Send").click();
  expect(page.model.sent("answer")[0].drafts).toEqual({
    fields: { f: { file: "aGVsbG8=", name: "h.txt" }, t: { text: "x" } },
  });
});

test("a slider and its number are one answer", () => {
  const share = { kind: "num", range: { min: 0, max: 1 } };
  const slide = ({ $ }) => type($("[type=range]"), "0.5");
  expect(sent(share, slide)).toEqual({ text: "0.5" });
  expect(sent(share, nothing)).toBe(null);
  const { $ } = open([form(share)]);
  type($("input[type=text]"), "0.25");
  expect($("[type=range]").value).toBe("0.25");
});

test("code shows its language and the caret's position, and Tab is left alone", () => {
  const { $ } = open([form({ kind: "code", hint: { widget: "code:sql", code: "sql" } })]);
  type($("textarea"), "SELECT 1\nFROM x");
  expect($(".nba-status").textContent).toBe("SQLline 2, column 7");
  expect(press($("textarea"), "Tab").defaultPrevented).toBe(false);
});

test("code is in its colors until it is edited, and is read as text all the while", () => {
  const tint = '<pre class="code"><code><span class="k">pass</span></code></pre>';
  const { $ } = open([form({ kind: "code", tint, initial: { text: "pass" } })]);
  const [over, input] = [$(".nba-tint"), /** @type {HTMLTextAreaElement} */ ($("textarea"))];
  expect([over.textContent, over.getAttribute("aria-hidden"), over.hidden]).toEqual([
    "pass",
    "true",
    false,
  ]);
  for (const [value, hidden] of /** @type {[string, boolean][]} */ ([
    ["pass # x", true],
    ["pass", false],
  ])) {
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    expect(over.hidden).toBe(hidden);
  }
});

test("help shows code in backticks and no markup; the rest of a long one can be opened", () => {
  const long = `Use \`snake_case\` and <b>no</b> tags. ${"More words. ".repeat(40)}`;
  const fields = [{ id: "/a", key: "a", kind: "text", label: "A", help: long }];
  const { $, el } = open([form({ kind: "object", fields })]);
  expect($(".nba-help code").textContent).toBe("snake_case");
  expect(el.querySelector("b")).toBe(null);
  expect($(".nba-help details").open).toBe(false);
  expect($(".nba-help").textContent.replace("more", "")).toContain("More words. More words.");
});

test("an edit of several lines is shown line by line in an approval", () => {
  const root = {
    kind: "object",
    fields: [{ id: "/a", key: "a", kind: "code", label: "A", initial: { text: "1\n2\n3\n4" } }],
  };
  const { $, el } = open([form(root, { approval: true, actions: GATE })]);
  expect($(".nba-diff").hidden).toBe(true);
  type($("textarea"), "1\n2\nthree\n4");
  expect($(".nba-diff").textContent).toBe("⋯23three4");
  expect([$("del").textContent, $("ins").textContent]).toEqual(["3", "three"]);
  el.querySelector(".nba-mark button").click();
  expect($(".nba-diff").hidden).toBe(true);
});

test("an optional part that was there can be left out, and comes back", () => {
  const tags = {
    id: "/t",
    key: "t",
    kind: "list",
    label: "Tags",
    item: { id: "/t/*", key: "", kind: "text", label: "" },
    rows: [
      { id: "/t/0", key: "0", kind: "text", label: "", initial: { text: "a" }, prefilled: true },
    ],
  };
  const out = (page) => page.button("omit").click();
  const root = { kind: "object", fields: [tags] };
  expect(sent(root, out)).toEqual({ fields: { t: { cleared: true } } });
  const back = (page) => {
    out(page);
    page.button("undo").click();
  };
  expect(sent(root, back)).toBe(null);
});

test("a question with nothing chosen cannot be sent, and nothing is preselected", () => {
  for (const root of [
    { kind: "choice", options: PLANS },
    { kind: "multi", options: PLANS },
    { kind: "bool" },
  ]) {
    const { el, model, $ } = open([form(root)]);
    expect(el.querySelectorAll(":checked")).toHaveLength(0);
    $(".nba-go").click();
    expect(model.sent("answer")).toEqual([]);
  }
});

test("digits pick nothing in an approval, while typing, or with a modifier", () => {
  const root = { kind: "choice", options: PLANS, other: true };
  const asked = open([form(root)]);
  press(asked.$(".nba-other"), "1");
  press(asked.$("input"), "1", { ctrlKey: true });
  expect(asked.el.querySelectorAll(":checked")).toHaveLength(0);
  const gate = open([form(root, { approval: true, actions: GATE })]);
  press(gate.$("input"), "1");
  expect(gate.el.querySelectorAll(":checked")).toHaveLength(0);
});

test("a nested object sends only what was touched", () => {
  const address = {
    id: "/home",
    key: "home",
    kind: "object",
    label: "Home",
    fields: [
      { id: "/home/street", key: "street", kind: "text", label: "Street" },
      { id: "/home/zip", key: "zip", kind: "text", label: "Zip", initial: { text: "12345" } },
      { id: "/home/kind", key: "kind", kind: "const", label: "Kind", shown: "billing" },
    ],
  };
  const act = (page) => type(page.el.querySelectorAll("input")[0], "Elm St");
  expect(sent({ kind: "object", fields: [address] }, act)).toEqual({
    fields: { home: { fields: { street: { text: "Elm St" } } } },
  });
  const nullable = { ...address, nullable: true, initial: { null: true } };
  const untick = click("[type=checkbox]");
  expect(sent({ kind: "object", fields: [nullable] }, untick)).toEqual({
    fields: { home: { fields: {} } },
  });
  expect(sent({ kind: "object", fields: [nullable] }, nothing)).toBe(null);
});

test("read-only fields are facts, with nothing to type", () => {
  const fields = [
    {
      id: "/a",
      key: "a",
      kind: "text",
      label: "Account",
      read_only: true,
      initial: { text: "DE02" },
    },
    {
      id: "/b",
      key: "b",
      kind: "choice",
      label: "Plan",
      read_only: true,
      options: PLANS,
      initial: { option: 1 },
    },
    {
      id: "/c",
      key: "c",
      kind: "list",
      label: "Tags",
      read_only: true,
      initial_json: { text: "[1]" },
    },
    {
      id: "/d",
      key: "d",
      kind: "object",
      label: "Home",
      read_only: true,
      fields: [{ id: "/d/e", key: "e", kind: "int", label: "No", initial: { text: "7" } }],
    },
    {
      id: "/f",
      key: "f",
      kind: "object",
      label: "Work",
      read_only: true,
      nullable: true,
      initial: { null: true },
      fields: [],
    },
  ];
  const { $, el } = open([form({ kind: "object", fields })]);
  expect(el.querySelectorAll(".nba-fields :is(input, textarea, select)")).toHaveLength(0);
  expect($(".nba-fields").textContent).toBe("AccountDE02PlanExactTags[1]HomeNo7Workno value");
});

test("every control has a name of its own, and every id it refers to exists", () => {
  const kinds = ["text", "int", "bool", "choice", "multi", "list", "code", "duration"];
  const fields = kinds.map((kind) => ({
    id: `/${kind}`,
    key: kind,
    kind,
    label: `The ${kind}`,
    help: "why",
    options: PLANS,
    other: true,
    nullable: true,
  }));
  const { el } = open([
    form({ kind: "object", fields }),
    form({ kind: "text" }, { key: "k", interrupt: "x" }),
  ]);
  const controls = [...el.querySelectorAll(".nba-fields :is(input, textarea, select)")];
  expect(controls.length).toBeGreaterThan(15);
  for (const control of controls) {
    const by = control.getAttribute("aria-labelledby");
    const label = by
      ? document.getElementById(by)
      : (control.closest("label") ?? el.querySelector(`label[for="${control.id}"]`));
    expect(control.getAttribute("aria-label") ?? label?.textContent).toBeTruthy();
    for (const id of control.getAttribute("aria-describedby")?.split(" ") ?? [])
      expect(document.getElementById(id)).not.toBe(null);
  }
});

test("broken JSON is shown with line and column while it is typed", () => {
  const { $ } = open([form({ kind: "json" })]);
  type($("textarea"), '{\n "a": x}');
  expect($(".nba-status").textContent).toMatch(/line 2, column 7/);
  type($("textarea"), '{"a": 1}');
  expect($(".nba-status").classList.contains("nba-bad")).toBe(false);
});

test.each([
  ["", 1, 1],
  ["[1, 2", 1, 6],
  ["[1,]", 1, 4],
  ["[1}", 1, 3],
  ['{"a" 1}', 1, 6],
  ['{"a": 1,}', 1, 9],
  ["{a: 1}", 1, 2],
  ['{"a": "x\n"}', 1, 7],
  ['[{"a": []}]\n x', 2, 2],
  ["nul", 1, 1],
])("%j breaks at line %i, column %i", (value, line, column) => {
  expect(jsonErrorAt(value)).toEqual({ line, column });
});

test("valid JSON has no error", () => {
  for (const value of ["null", "[]", '{"a": [{}, -1.5e+3, "\\"", true]}'])
    expect(jsonErrorAt(value)).toBe(null);
});

test("who points at Other writes at once; who passes it by key stays among the options", () => {
  const page = open([form({ kind: "choice", options: PLANS, other: true })]);
  const radio = page.el.querySelectorAll("input[type=radio]")[3];
  radio.focus();
  press(radio, "ArrowDown");
  radio.click();
  expect(document.activeElement).toBe(radio);
  radio.checked = false;
  const line = page.$(".nba-other");
  line.hidden = true;
  // A browser gives no focus to what is hidden.
  line.addEventListener("focus", () => expect(line.hidden).toBe(false));
  radio.closest("label").dispatchEvent(new Event("pointerdown", { bubbles: true }));
  radio.click();
  expect(document.activeElement).toBe(line);
  expect.assertions(3);
});
