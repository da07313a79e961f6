import { afterEach, expect, test, vi } from "vitest";
import { fixture, form, GATE, open, press, type } from "../test-support/fake-host.js";
import { difference } from "./diff.js";

const EXAMPLES = Object.fromEntries(fixture("forms.json").map((one) => [one.name, one]));
const PLAIN = { kind: "text", label: "", required: true };
const row = (id, value) => ({ ...PLAIN, id, key: id, initial: { text: value }, prefilled: true });
const TAGS = {
  kind: "list",
  label: "Tags",
  item: { ...PLAIN, id: "/*", key: "" },
  rows: [row("/0", "a"), row("/1", "b"), row("/2", "c")],
};
const field = (key, more = {}) => ({ ...PLAIN, id: `/${key}`, key, label: key, ...more });
const LINE = {
  id: "/*",
  key: "",
  kind: "object",
  label: "",
  required: true,
  fields: [
    { ...field("product"), id: "/*/product" },
    { ...field("count", { kind: "int" }), id: "/*/count" },
  ],
};
const filled = (at, product) => ({
  ...LINE,
  id: `/${at}`,
  fields: [
    { ...field("product"), id: `/${at}/product`, initial: { text: product }, prefilled: true },
    { ...field("count", { kind: "int" }), id: `/${at}/count`, initial: { text: "1" } },
  ],
});
const ORDER = {
  kind: "table",
  label: "Order",
  item: LINE,
  rows: [filled(0, "ink"), filled(1, "pen")],
};
const MAP = {
  kind: "map",
  label: "Weights",
  item: { ...PLAIN, id: "/*", key: "", kind: "num" },
  entries: [{ key: "x", node: { ...row("/0", "1"), kind: "num" } }],
};
const PAY = {
  kind: "union",
  label: "Payment",
  branch: null,
  branches: [
    {
      label: "Card",
      node: {
        id: "|0",
        key: "",
        kind: "object",
        label: "",
        required: true,
        fields: [
          {
            id: "|0/kind",
            key: "kind",
            kind: "const",
            label: "Kind",
            shown: "card",
            hint: { tag: true },
          },
          { ...field("number"), id: "|0/number" },
        ],
      },
    },
    { label: "Code", node: { ...PLAIN, id: "|1", key: "" } },
  ],
};
const TREE = {
  kind: "object",
  label: "Tree",
  fields: [
    field("name", { initial: { text: "root" }, prefilled: true }),
    {
      id: "/children",
      key: "children",
      kind: "list",
      label: "Children",
      item: { id: "/children/*", key: "", kind: "lazy", label: "Child", of: "", required: true },
      rows: [],
    },
    { id: "/next", key: "next", kind: "lazy", label: "Next", of: "", nullable: true },
  ],
};

afterEach(() => vi.useRealTimers());

/** A page with one form, and what a person can do in it. */
function page(root, more = {}) {
  const view = open([form(root, more)]);
  const named = (label) => {
    const found = [...view.el.querySelectorAll("[aria-label]")].filter(
      (el) => el.getAttribute("aria-label") === label && !el.closest("[hidden]"),
    );
    if (found.length !== 1) throw new Error(`${found.length} of ${label}`);
    return found[0];
  };
  return {
    ...view,
    named,
    press: (label) => named(label).click(),
    fill: (label, value) => type(named(label), value),
    pick: (label) => {
      const found = [...view.el.querySelectorAll("label")].find((el) => el.textContent === label);
      found.querySelector("input").click();
    },
    drafts: () => {
      view.$(".nba-go").click();
      return view.model.sent("answer").at(-1)?.drafts;
    },
  };
}

const nothing = () => {};
const KEEP = { draft: null };
const CASES = [
  ["a list untouched", TAGS, nothing, null],
  [
    "a row typed into",
    TAGS,
    ({ fill }) => fill("Tags, item 2", "B"),
    {
      rows: [
        { from: 0, ...KEEP },
        { from: 1, draft: { text: "B" } },
        { from: 2, ...KEEP },
      ],
    },
  ],
  [
    "a row added",
    { ...TAGS, rows: [] },
    ({ press, fill }) => {
      press("Add: Tags");
      fill("Tags, item 1", "new");
    },
    { rows: [{ from: null, draft: { text: "new" } }] },
  ],
  [
    "a row removed",
    TAGS,
    ({ press }) => press("Remove item 1"),
    {
      rows: [
        { from: 1, ...KEEP },
        { from: 2, ...KEEP },
      ],
    },
  ],
  [
    "a row moved with what was typed into it",
    TAGS,
    ({ fill, press }) => {
      fill("Tags, item 3", "C");
      press("Move item 3 up");
      press("Move item 2 up");
      press("Move item 1 up");
    },
    {
      rows: [
        { from: 2, draft: { text: "C" } },
        { from: 0, ...KEEP },
        { from: 1, ...KEEP },
      ],
    },
  ],
  [
    "moved there and back",
    TAGS,
    ({ press }) => {
      press("Move item 1 down");
      press("Move item 2 up");
    },
    null,
  ],
  [
    "all rows removed",
    { ...TAGS, rows: TAGS.rows.slice(0, 1) },
    ({ press }) => press("Remove item 1"),
    { rows: [] },
  ],
  [
    "none, by its button",
    { ...TAGS, rows: [] },
    ({ button }) => button("use an empty list").click(),
    { rows: [] },
  ],
  ["no rows, untouched", { ...TAGS, rows: [] }, nothing, null],
  [
    "undone",
    TAGS,
    ({ fill, press }) => {
      fill("Tags, item 1", "A");
      press("Remove item 3");
      press("undo: Tags");
    },
    null,
  ],
  [
    "a list that is null",
    { ...TAGS, nullable: true, rows: [] },
    ({ pick }) => pick("no value"),
    { null: true },
  ],
  [
    "a null list that shall be one",
    { ...TAGS, nullable: true, rows: [], initial: { null: true } },
    ({ pick }) => pick("no value"),
    { rows: [] },
  ],
  [
    "a cell",
    ORDER,
    ({ fill }) => fill("count, item 2", "9"),
    {
      rows: [
        { from: 0, ...KEEP },
        { from: 1, draft: { fields: { count: { text: "9" } } } },
      ],
    },
  ],
  [
    "a row of a table",
    ORDER,
    ({ press, fill }) => {
      press("Remove item 1");
      press("Add: Order");
      fill("product, item 2", "cap");
    },
    {
      rows: [
        { from: 1, ...KEEP },
        { from: null, draft: { fields: { product: { text: "cap" } } } },
      ],
    },
  ],
  ["a map untouched", MAP, nothing, null],
  [
    "a name changed",
    MAP,
    ({ fill }) => fill("Name 1", "z"),
    { entries: [{ from: "x", key: "z", ...KEEP }] },
  ],
  [
    "an entry added",
    MAP,
    ({ press, fill }) => {
      press("Add: Weights");
      fill("Name 2", "y");
      fill("y", "2");
    },
    {
      entries: [
        { from: "x", key: "x", ...KEEP },
        { from: null, key: "y", draft: { text: "2" } },
      ],
    },
  ],
  [
    "a tuple",
    {
      kind: "tuple",
      label: "Point",
      parts: [field("0", { label: "0" }), field("1", { label: "1" })],
    },
    ({ el }) => type(el.querySelectorAll(".nba-fields input")[1], "2"),
    { parts: [null, { text: "2" }] },
  ],
  ["a union untouched", PAY, nothing, null],
  [
    "a shape picked",
    PAY,
    ({ pick, $ }) => {
      pick("Card");
      type($(".nba-branch input"), "4111");
    },
    { branch: 0, draft: { fields: { number: { text: "4111" } } } },
  ],
  ["a shape picked and nothing typed", PAY, ({ pick }) => pick("Code"), { branch: 1, draft: null }],
  [
    "what was typed into another shape is kept and not sent",
    PAY,
    ({ pick, fill, el }) => {
      pick("Card");
      type(el.querySelector(".nba-branch input"), "4111");
      pick("Code");
      fill("Payment: Code", "abc");
      pick("Card");
      expect(el.querySelector(".nba-branch input").value).toBe("4111");
      pick("Code");
    },
    { branch: 1, draft: { text: "abc" } },
  ],
  [
    "the shape of the prefill, picked again",
    { ...PAY, branch: 1, branches: [PAY.branches[0], { label: "Code", node: row("|1", "old") }] },
    ({ pick }) => {
      pick("Card");
      pick("Code");
    },
    null,
  ],
  [
    "a shape that repeats opens one level at a time",
    TREE,
    ({ button, el }) => {
      expect(el.querySelectorAll("input[type=text]")).toHaveLength(1);
      button("Add Next").click();
      const inputs = el.querySelectorAll("input[type=text]");
      expect(inputs).toHaveLength(2);
      expect(inputs[1].value).toBe("");
      type(inputs[1], "second");
    },
    { fields: { next: { open: true, draft: { fields: { name: { text: "second" } } } } } },
  ],
  [
    "a level taken away again",
    TREE,
    ({ button }) => {
      button("Add Next").click();
      button("Remove Next").click();
    },
    null,
  ],
  [
    "names beyond the fields",
    {
      kind: "object",
      fields: [field("a")],
      more: { ...MAP, id: "/+", key: "+", entries: [], required: false },
    },
    ({ press, fill }) => {
      press("Add: Further fields");
      fill("Name 1", "b");
      fill("b", "2");
    },
    { fields: {}, more: { entries: [{ from: null, key: "b", draft: { text: "2" } }] } },
  ],
];

test.each(CASES)("draft: %s", (_, root, act, expected) => {
  const view = page(root);
  act(view);
  expect(view.drafts()).toEqual(expected);
});

test.each(CASES)("what was typed is there again after a reload: %s", (_, root, act, expected) => {
  const before = page(root);
  act(before);
  const drafts = before.drafts();
  const after = page(root, { drafts });
  expect(after.drafts()).toEqual(expected);
});

test("the page sends the very drafts that Python's examples answer", () => {
  const { spec, submissions } = EXAMPLES["a tool's input, all editable"];
  const sent = (act) => {
    const view = page(spec.root, { actions: GATE, approval: true });
    act(view);
    return view.drafts();
  };
  const known = submissions.filter((one) => one.ok).map((one) => one.drafts);
  const input = (view, label) => {
    const found = [...view.el.querySelectorAll("label")].find((el) => el.textContent === label);
    return view.el.querySelector(`[id="${found.getAttribute("for")}"]`);
  };
  const allDrafts = [
    sent(nothing),
    sent((one) => type(input(one, "To"), "XYZ")),
    sent((one) => type(input(one, "Note"), "one line")),
    sent((one) => type(input(one, "Amount"), "199.5")),
    sent((one) => input(one, "Urgent").click()),
    sent((one) => one.pick("USD")),
    sent((one) => type(input(one, "Ref"), "R-7")),
    sent((one) => type(input(one, "Note"), "")),
    sent((one) => {
      one.el.querySelectorAll(".nba-tool")[2].click();
      one.press("Add: Tags");
      one.fill("Tags, item 2", "new");
    }),
    sent((one) => one.fill("Name 1", "z")),
  ];
  for (const drafts of allDrafts) expect(known).toContainEqual(drafts);
});

test("Enter in a row goes on to the next one and adds one at the end; it doesn't send the form", () => {
  const page = open([form({ ...TAGS, rows: TAGS.rows.slice(0, 1) })]);
  const inputs = () => [...page.el.querySelectorAll(".nba-rows input")];
  const enter = (at) => press(inputs()[at], "Enter");
  inputs()[0].focus();
  enter(0);
  expect(inputs()).toHaveLength(2);
  expect(document.activeElement).toBe(inputs()[1]);
  enter(1);
  expect(inputs()).toHaveLength(2);
  enter(0);
  expect(document.activeElement).toBe(inputs()[1]);
  expect(page.model.sent("answer")).toEqual([]);
});

test("nothing inside is drawn again by a message: rows, shapes, levels", () => {
  const root = {
    kind: "object",
    fields: [
      { ...TAGS, id: "/tags", key: "tags" },
      { ...PAY, id: "/pay", key: "pay" },
    ],
  };
  const view = page(root);
  view.press("Add: Tags");
  view.fill("Tags, item 4", "half a wo");
  view.pick("Code");
  const inputs = [...view.el.querySelectorAll(".nba-fields input")];
  view.named("Tags, item 4").focus();
  view.patch({ op: "put", index: 0, item: form(root, { drafts: null }) });
  expect([...view.el.querySelectorAll(".nba-fields input")]).toEqual(inputs);
  expect(document.activeElement).toBe(view.named("Tags, item 4"));
});

test("errors are placed at rows, names, cells and shapes where they are now, and are in the summary", () => {
  const root = {
    kind: "object",
    fields: [
      { ...TAGS, id: "/tags", key: "tags" },
      { ...ORDER, id: "/order", key: "order" },
      { ...PAY, id: "/pay", key: "pay" },
      { ...MAP, id: "/map", key: "map" },
    ],
  };
  const view = page(root);
  view.el.querySelectorAll(".nba-tool")[1].click();
  view.pick("Card");
  view.drafts();
  const errors = [
    ["/tags/0", "one"],
    ["/order/1/count", "two"],
    ["/pay|0/number", "three"],
    ["/map/0", "four"],
    ["/tags", "five"],
    ["/order/7", "six"],
  ];
  view.judge({ ok: false, errors: errors.map(([at, message]) => ({ field: at, message })) });
  const messages = [...view.el.querySelectorAll("[role=alert] li")].map((li) => li.textContent);
  expect(messages).toEqual([
    "Tags, item 1: one",
    "Tags: five",
    "Order › Item 2 › count: two",
    "Order: 7: six",
    "Payment: Card › number: three",
    "Weights › x: four",
  ]);
  const first = view.named("Tags, item 1");
  expect(first.value).toBe("b");
  expect(document.activeElement).toBe(first);
  for (const input of view.el.querySelectorAll("[aria-invalid]")) {
    const [id] = input.getAttribute("aria-describedby").split(" ");
    expect(document.getElementById(id).textContent).toMatch(/one|two|three|four/);
  }
});

test("an error inside what is folded unfolds it", () => {
  const home = (id, more) => ({ id, key: "home", kind: "object", label: "Home", ...more });
  const inner = home("/home/home", { fields: [{ ...field("zip"), id: "/home/home/zip" }] });
  const view = page({ kind: "object", fields: [home("/home", { fields: [inner] })] });
  const fold = view.$(".nba-fold");
  expect(fold.getAttribute("aria-expanded")).toBe("false");
  expect(view.$(`[id="${fold.getAttribute("aria-controls")}"]`).hidden).toBe(true);
  view.drafts();
  view.judge({ ok: false, errors: [{ field: "/home/home/zip", message: "no" }] });
  expect(fold.getAttribute("aria-expanded")).toBe("true");
  expect(document.activeElement.closest("[hidden]")).toBe(null);
  expect(document.activeElement.tagName).toBe("INPUT");
});

test("what an approval runs is never folded away, and what is taken out need not be seen", () => {
  const long = Array.from({ length: 30 }, (_, line) => `line ${line}`).join("\n");
  const inner = {
    id: "/a/b",
    key: "b",
    kind: "object",
    label: "B",
    fields: [{ ...row("/a/b/c", "seen"), label: "C" }],
  };
  const outer = { id: "/a", key: "a", kind: "object", label: "A", fields: [inner] };
  const tags = { ...TAGS, id: "/tags", key: "tags", rows: [row("/tags/0", long)] };
  const view = page({ kind: "object", fields: [outer, tags] }, { actions: GATE, approval: true });
  expect(view.$(".nba-fold").getAttribute("aria-expanded")).toBe("true");
  expect(view.button("Approve").getAttribute("aria-disabled")).toBe("true");
  view.press("Remove item 1");
  expect(view.button("Approve with changes").getAttribute("aria-disabled")).toBe(null);
});

test("undo of one row, of a list and of all bring back what was proposed", () => {
  const root = {
    kind: "object",
    fields: [{ ...TAGS, id: "/tags", key: "tags" }, field("to", { initial: { text: "x" } })],
  };
  const view = page(root, { actions: GATE, approval: true });
  view.fill("Tags, item 1", "A");
  view.press("undo: Tags, item 1");
  expect(view.named("Tags, item 1").value).toBe("a");
  view.press("Remove item 2");
  expect(view.button("Approve with changes")).toBeTruthy();
  view.press("undo: Tags");
  expect(view.named("Tags, item 2").value).toBe("b");
  type(view.el.querySelector(".nba-grid > .nba-field > .nba-control > input"), "y");
  view.press("Remove item 3");
  view.button("Undo all changes").click();
  expect(view.button("Approve")).toBeTruthy();
  expect(view.drafts()).toBe(null);
});

test("a rule to remember is behind a menu, goes with an approval, and not with changes", () => {
  const remember = [{ id: "run", label: "Always allow it in this run" }];
  const root = { kind: "object", fields: [field("to", { initial: { text: "x" } })] };
  const view = page(root, { actions: GATE, approval: true, remember });
  expect(() => view.button(remember[0].label)).toThrow();
  view.press("More ways to approve");
  type(view.$(".nba-fields input"), "y");
  expect(() => view.button(remember[0].label)).toThrow();
  expect(() => view.named("More ways to approve")).toThrow();
  type(view.$(".nba-fields input"), "x");
  view.press("More ways to approve");
  view.button(remember[0].label).click();
  const [answer] = view.model.sent("answer");
  expect([answer.action, answer.remember, answer.drafts]).toEqual(["approve", "run", null]);
  expect(
    page(root, { actions: GATE, approval: true, remember: [] }).el.querySelector(".nba-more")
      .hidden,
  ).toBe(true);
});

test("a name with line breaks, or longer than a line of an approval, is shown and kept completely", () => {
  const key = "a name\r\nof two lines";
  const entries = [{ key, node: { ...row("/0", "1"), kind: "num" } }];
  const view = page({ ...MAP, entries }, { actions: GATE, approval: true });
  expect(view.named("Name 1").tagName).toBe("TEXTAREA");
  expect(view.drafts()).toBe(null);
});

test("of many options, the chosen ones come first and are listed in a line", () => {
  const options = Array.from({ length: 60 }, (_, index) => ({ label: `City ${index}` }));
  const initial = { options: [41, 50], others: [] };
  const view = page({ kind: "multi", options, initial, prefilled: true });
  expect(view.$(".nba-option-label").textContent).toBe("City 41");
  expect(view.$(".nba-filtered > .nba-help").textContent).toBe("chosen: City 41, City 50");
  view.el.querySelectorAll("[type=checkbox]")[2].click();
  expect(view.$(".nba-filtered > .nba-help").textContent).toBe("chosen: City 0, City 41, City 50");
});

test("rows are buttons with names, and the ones that lead nowhere say so", () => {
  const view = page(TAGS);
  const names = [...view.el.querySelectorAll(".nba-tool")].map((one) =>
    one.getAttribute("aria-label"),
  );
  expect(names.slice(0, 3)).toEqual(["Move item 1 up", "Move item 1 down", "Remove item 1"]);
  expect(view.named("Move item 1 up").getAttribute("aria-disabled")).toBe("true");
  expect(view.named("Move item 3 down").getAttribute("aria-disabled")).toBe("true");
  view.press("Move item 1 down");
  expect(document.activeElement).toBe(view.named("Move item 2 down"));
  view.press("Remove item 3");
  expect(document.activeElement).toBe(view.named("Remove item 2"));
});

test.each(fixture("diff.json"))(
  "$before to $after is drawn as Python draws it",
  ({ before, after, html }) => {
    const box = document.createElement("div");
    box.append(...difference(before, after));
    expect(box.innerHTML).toBe(html);
  },
);
