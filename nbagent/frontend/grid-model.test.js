import { expect, test } from "vitest";
import { fromSpreadsheet, GridModel } from "./grid-model.js";
import { TEXTS } from "./test-support/fake-host.js";

/** @type {any[]} */
const COLUMNS = [
  { key: "name", label: "Name", kind: "text", required: true },
  { key: "amount", label: "Amount", kind: "num", required: true },
  { key: "paid", label: "Paid", kind: "bool", required: true },
  {
    key: "status",
    label: "Status",
    kind: "choice",
    required: true,
    options: [{ label: "open" }, { label: "sent" }],
  },
  { key: "due", label: "Due", kind: "text", format: "date", nullable: true },
  { key: "id", label: "Id", kind: "text", read_only: true },
];
const CELLS = [
  ["Ada", "bob", "Cyd", "Örn"],
  ["10", "9", "1e2", "-1"],
  [true, false, true, false],
  [0, 1, 1, 0],
  ["2026-01-02", null, [], "2025-01-01"],
  ["a", "b", "c", "d"],
];
const t = (/** @type {string} */ key) => TEXTS[key] ?? "";

/** @param {any} [saved] */
const model = (saved) => new GridModel(COLUMNS, JSON.stringify(CELLS), t, saved);

/** @param {GridModel} rows @param {number} by */
const sorted = (rows, by, descending = false) => {
  Object.assign(rows, { by, descending });
  rows.refresh();
  return rows.view;
};

/** @param {GridModel} rows @param {Parameters<GridModel["paste"]>} given */
const pasted = (rows, ...given) => [...rows.paste(...given)];

test("a cell is a text, an option, a truth value, empty or left out", () => {
  const rows = model();
  expect(COLUMNS.map((_, at) => rows.value(0, at))).toEqual([
    "Ada",
    "10",
    true,
    0,
    "2026-01-02",
    "a",
  ]);
  expect([rows.value(1, 4), rows.value(2, 4)]).toEqual([null, undefined]);
  expect([rows.text(0, 2), rows.text(1, 3), rows.text(2, 4)]).toEqual(["Yes", "sent", ""]);
});

test("rows are sorted by numbers, letters of any language, and empty cells last", () => {
  const rows = model();
  expect(sorted(rows, 1)).toEqual([3, 1, 0, 2]);
  expect(sorted(rows, 1, true)).toEqual([2, 0, 1, 3]);
  expect(sorted(rows, 0)).toEqual([0, 1, 2, 3]);
  expect(sorted(rows, 4)).toEqual([3, 0, 1, 2]);
  expect(sorted(rows, 4, true)).toEqual([0, 3, 1, 2]);
  expect(sorted(rows, -1)).toEqual([0, 1, 2, 3]);
});

test("rows are found by any cell, and the changed ones with those added and deleted", () => {
  const rows = model();
  rows.query = "SENT";
  rows.refresh();
  expect(rows.view).toEqual([1, 2]);
  rows.edit([[2, 3, 0]]);
  expect(rows.view).toEqual([1, 2]); // a row does not vanish while it is edited
  rows.refresh();
  expect(rows.view).toEqual([1]);
  Object.assign(rows, { query: "", changedOnly: true });
  rows.flip([0]);
  const [added] = rows.add(2);
  rows.flip([added ?? 0]);
  rows.refresh();
  expect(rows.view).toEqual([0, 2, 5]);
  expect(rows.counts()).toEqual({ changed: 1, added: 1, deleted: 1 });
});

test("each step is undone and done again, and a new one ends what was undone", () => {
  const rows = model();
  rows.edit([
    [0, 0, "Eve"],
    [1, 0, "Eve"],
  ]);
  rows.flip([3]);
  rows.add(1);
  const all = rows.changes();
  expect(all).toEqual({
    added: 1,
    deleted: [3],
    cells: {
      name: [
        [0, 1],
        ["Eve", "Eve"],
      ],
    },
  });
  rows.undo();
  rows.undo();
  expect(rows.view).toEqual([0, 1, 2, 3]);
  rows.undo();
  expect(rows.changes()).toBe(null);
  for (const _ of [1, 2, 3]) rows.redo();
  expect(rows.changes()).toEqual(all);
  rows.undo();
  rows.edit([[0, 0, "Fay"]]);
  expect(rows.redo()).toBe(null);
  expect(rows.value(0, 0)).toBe("Fay");
  rows.reset();
  expect([rows.changes(), rows.canUndo]).toEqual([null, false]);
});

test("a cell that is typed back is not changed, and fixed and deleted cells stay", () => {
  const rows = model();
  rows.edit([[0, 0, "Eve"]]);
  rows.edit([[0, 0, "Ada"]]);
  expect(rows.changes()).toBe(null);
  rows.flip([1]);
  expect(rows.edit([[0, 5, "x"]])).toBe(null);
  expect(rows.edit([[1, 0, "x"]])).toBe(null);
  expect(rows.edit([[2, 4, null]])).toBe(null); // it is empty already
});

test("text from a spreadsheet has tabs, line ends and quotes", () => {
  expect([...fromSpreadsheet("a\tb\r\nc\td\r\n")]).toEqual([
    ["a", "b"],
    ["c", "d"],
  ]);
  expect([...fromSpreadsheet('"a\t""b""\nc"\td')]).toEqual([['a\t"b"\nc', "d"]]);
  expect([...fromSpreadsheet('5" pipe\t"open')]).toEqual([['5" pipe', '"open']]);
  expect([...fromSpreadsheet("a\t\t\n\tb")]).toEqual([
    ["a", "", ""],
    ["", "b"],
  ]);
  expect([...fromSpreadsheet("a")]).toEqual([["a"]]);
});

test("a paste fills cells by their types, adds rows, and leaves out a line of names", () => {
  const rows = model();
  sorted(rows, 0, true);
  const text = [
    "Name\tAmount\tPaid\tStatus\tDue\tId",
    "Zoe\t1\tno\tSENT\t2026-05-05\tz",
    "Yan\tx\tTRUE\tlost",
  ].join("\n");
  pasted(rows, text, 3, 0);
  expect(rows.view).toEqual([3, 2, 1, 0, 4]);
  expect(COLUMNS.map((_, at) => rows.value(0, at))).toEqual([
    "Zoe",
    "1",
    false,
    1,
    "2026-05-05",
    "a",
  ]);
  expect(COLUMNS.map((_, at) => rows.value(4, at))).toEqual([
    "Yan",
    "x",
    true,
    "lost",
    undefined,
    undefined,
  ]);
  expect(rows.copy([0, 4], 0, 2)).toBe("Zoe\t1\tNo\nYan\tx\tYes");
  rows.undo();
  expect(rows.changes()).toBe(null);
  rows.fill([0, 1, 2], 3, 3, "sent");
  expect(rows.changes()?.cells).toEqual({ status: [[0], [1]] });
});

test("a long paste stops often, is read before anything changes, and is one step", () => {
  const rows = model();
  const text = Array.from({ length: 500 }, (_, n) => `name ${n}\t${n}`).join("\n");
  const paste = rows.paste(text, 0, 0);
  for (let n = 0; n < 500; n++) expect(paste.next().done).toBe(false);
  expect(rows.counts()).toEqual({ changed: 0, added: 0, deleted: 0 });
  expect([...paste].length).toBeGreaterThan(900);
  expect(rows.counts()).toEqual({ changed: 8, added: 496, deleted: 0 });
  rows.undo();
  expect(rows.counts()).toEqual({ changed: 0, added: 0, deleted: 0 });
});

test("what is copied is pasted as it was", () => {
  const rows = model();
  rows.edit([[0, 0, 'a\t"b"\nc']]);
  const copied = rows.copy([0, 1, 2, 3], 0, 4);
  const other = model();
  pasted(other, copied, 0, 0);
  expect(other.changes()).toEqual(rows.changes());
});

test("errors are at their cells until these are edited", () => {
  const rows = model();
  rows.flip([0]);
  rows.edit([
    [1, 1, "1,5"],
    [2, 4, "1.2.26"],
    [3, 1, null],
  ]);
  expect([rows.error(1, 1), rows.error(2, 4), rows.error(3, 1)]).toEqual([
    TEXTS["not_num_comma"],
    TEXTS["grid_not_date"],
    TEXTS["grid_answer"],
  ]);
  expect(rows.unfinished()).toEqual([
    [1, 1],
    [2, 4],
    [3, 1],
  ]);
  rows.undo();
  // rows of the answer: the first one is deleted
  rows.fail([
    [0, "amount", "too small"],
    [2, "", "the whole row"],
  ]);
  expect([rows.error(1, 1), rows.error(3, 0)]).toEqual(["too small", "the whole row"]);
  expect(rows.wrong()).toEqual([
    [1, 1],
    [3, 0],
  ]);
  expect(rows.unfinished()).toEqual([]); // the kernel checks again
  rows.edit([[3, 1, "7"]]);
  rows.edit([[1, 1, "7"]]);
  expect(rows.wrong()).toEqual([]);
});

test("an added row must be complete once the answer is sent", () => {
  const rows = model();
  const [row = -1] = rows.add(1);
  expect(rows.wrong()).toEqual([]);
  expect(rows.unfinished()).toEqual([0, 1, 2, 3].map((at) => [row, at]));
  expect(rows.wrong()).toHaveLength(4);
  pasted(rows, "Eve\t1\tyes\topen", 4, 0);
  expect(rows.wrong()).toEqual([]);
});

test("changes that were not sent are there again after a reload", () => {
  const rows = model();
  rows.edit([[0, 0, "Eve"]]);
  rows.flip([1]);
  pasted(rows, "Fay\t2", 3, 0);
  const [gone = -1] = rows.add(1);
  rows.flip([gone]);
  const saved = rows.changes();
  expect(model(saved).changes()).toEqual(saved);
  const none = new GridModel(COLUMNS, JSON.stringify(COLUMNS.map(() => [])), t);
  expect(none.changes()).toBe(null);
  const [row = -1] = none.add(1);
  none.flip([row]);
  const empty = none.changes(); // a list without rows is an answer, if a person chose it
  expect(empty).toEqual({ added: 0, deleted: [], cells: {} });
  const again = new GridModel(COLUMNS, JSON.stringify(COLUMNS.map(() => [])), t, empty);
  expect(again.changes()).toEqual(empty);
});
