import { expect, test } from "vitest";
import { form, GATE, open, type } from "../test-support/fake-host.js";
import { reveal } from "./hidden.js";

const edit = (node) =>
  open([
    form(
      {
        kind: "object",
        id: "",
        key: "",
        label: "",
        fields: [{ id: "/to", key: "to", label: "To", ...node }],
      },
      { actions: GATE, approval: true },
    ),
  ]);
const text = (initial) => ({
  kind: "text",
  required: true,
  prefilled: true,
  initial: { text: initial },
});
const notes = (page) =>
  [...page.el.querySelectorAll(".nba-hidden:not([hidden])")].map((one) => one.textContent);

test.each([
  ["Bob", "Bob"],
  ["a\tb\nc", "a\tb\nc"],
  ["\u202ebob", "⟨U+202E⟩bob"],
  ["👩\u200d🔬 ❤\ufe0f", "👩\u200d🔬 ❤\ufe0f"],
  ["a\u200db", "a⟨U+200D⟩b"],
  [`e${"\u0301".repeat(5)}`, `e${"\u0301".repeat(3)}⟨U+0301 ×2⟩`],
])("what is shown of %j", (value, shown) => {
  expect(reveal(value)).toBe(shown);
});

test.each([
  ["a line", text("Bob\u202e"), ["Check To: U+202E right-to-left override."]],
  ["line ends that a control does not show", text("a\rb"), ["Check To: U+000D carriage return."]],
  ["several lines", text("a\nb\u2028c"), ["Check To: U+2028 line separator in line 2."]],
  [
    "code",
    { ...text("if False:\n  x\n\fy"), kind: "code" },
    ["Check To: U+000C form feed in line 3."],
  ],
  ["JSON", { ...text('{"a\u200b": 1}'), kind: "json" }, ["Check To: U+200B zero-width space."]],
  [
    "a kind drawn as JSON",
    { kind: "widget", initial_json: { text: '["\u202e"]' } },
    ["Check To: U+202E right-to-left override."],
  ],
  [
    "an option",
    { kind: "choice", options: [{ label: "a\u200bb" }, { label: "c" }], initial: { option: 0 } },
    ["Check To: U+200B zero-width space."],
  ],
  [
    "a write-in",
    { kind: "choice", options: [{ label: "c" }], other: true, initial: { other: "\u200b" } },
    ["Check To: U+200B zero-width space."],
  ],
  [
    "a list",
    {
      kind: "list",
      item: { ...text(""), id: "/to/0", key: "0", label: "" },
      rows: [{ ...text("\u200b"), id: "/to/0", key: "0", label: "" }],
    },
    ["Check To, item 1: U+200B zero-width space."],
  ],
  [
    "a map: its names and its values",
    {
      kind: "map",
      item: { ...text(""), id: "/to/0", key: "", label: "" },
      entries: [{ key: "k\u200b", node: { ...text("v\u202e"), id: "/to/0", key: "k", label: "" } }],
    },
    ["Check k⟨U+200B⟩: U+202E right-to-left override.", "Check Name 1: U+200B zero-width space."],
  ],
])(
  "hidden characters are named at the field: %s; untouched, it is sent unchanged",
  (_, node, expected) => {
    const page = edit(node);
    expect(notes(page)).toEqual(expected);
    const described = page.el.querySelectorAll("[aria-describedby]");
    const ids = [...described].flatMap((one) => one.getAttribute("aria-describedby").split(" "));
    for (const note of page.el.querySelectorAll(".nba-hidden:not([hidden])"))
      expect(ids).toContain(note.id);
    page.$(".nba-go").click();
    expect(page.model.sent("answer").at(-1).drafts).toBe(null);
  },
);

test("the note follows what is typed", () => {
  const page = edit(text("Bob"));
  expect(notes(page)).toEqual([]);
  type(page.$(".nba-fields input"), "Bob\u200b");
  expect(notes(page)).toEqual(["Check To: U+200B zero-width space."]);
  const input = page.$(".nba-fields input");
  expect(input.getAttribute("aria-describedby")).toContain(page.$(".nba-hidden").id);
  type(input, "Bob");
  expect(notes(page)).toEqual([]);
  expect(input.getAttribute("aria-describedby") ?? "").not.toContain(page.$(".nba-hidden").id);
});

test("labels, options and fixed values show hidden characters", () => {
  const page = edit({
    kind: "choice",
    label: "T\u202eo",
    options: [{ label: "a\u200bb", help: "\u2028" }],
  });
  expect(page.$(".nba-fields").textContent).toContain("T⟨U+202E⟩o");
  expect(page.$(".nba-option").textContent).toBe("a⟨U+200B⟩b⟨U+2028⟩");
});
