// @ts-check
// The rows of a grid and a person's changes: find, sort, undo, paste, and what is wrong with a cell. No page is needed.

import { NUMBERS, numberError } from "./fields/numbers.js";

/** @import { SpecNode } from "./fields/spec.js" */
/**
 * What a cell has: a text, the index of an option, a truth value; null is empty, undefined is left out.
 * @typedef {string|number|boolean|null|undefined} Cell
 */
/**
 * One step that can be undone: cells with their values before and after, rows that were added, and rows that were
 * deleted or restored.
 * @typedef {{cells: [row: number, column: number, before: Cell, after: Cell][], added: number[], flipped: number[]}} Step
 */
/** @typedef {[row: number, column: number, value: Cell]} Change */
/** @typedef {{added?: number, deleted?: number[], cells?: Record<string, [number[], Cell[]]>}} Changes */
/** @typedef {(key: string, values?: Record<string, string|number>) => string} Texts */

/** A date as the kernel reads it: ../forms/answer/controls.py. */
export const DATE = /^\d{4}-\d\d-\d\d$/;

export class GridModel {
  /** The cells of the prefilled rows, by column. @type {Cell[][]} */ #start;
  /** @type {Map<number, Map<number, Cell>>} */ #typed = new Map();
  /** The added rows, which follow the prefilled ones. @type {number[]} */ #added = [];
  /** @type {Set<number>} */ #deleted = new Set();
  /** @type {Step[]} */ #past = [];
  /** @type {Step[]} */ #future = [];
  /** The rows that have, or had, a cell that the page finds wrong. @type {Set<number>} */ #doubtfulRows =
    new Set();
  #next;
  /** The kernel's messages, by row and key. @type {Map<string, string>} */ #errors = new Map();
  /** Whether added rows must be complete. */ #isAsked = false;
  /** Whether a person chose an empty list. */ #isEmptied = false;
  /** Grows with each change. */ version = 0;
  /** The rows that are shown, in order. @type {number[]} */ view = [];
  query = "";
  changedOnly = false;
  /** The sorted column; -1 for the rows' own order. */ by = -1;
  descending = false;

  /**
   * @param {SpecNode[]} columns
   * @param {string} cells as the spec has them
   * @param {Texts} t
   * @param {Changes|null} [saved]
   */
  constructor(columns, cells, t, saved) {
    this.columns = columns;
    this.t = t;
    /** @type {(Cell|[])[][]} */
    const given = JSON.parse(cells);
    this.#start = given.map((column) => column.map((x) => (Array.isArray(x) ? undefined : x)));
    this.total = this.#start[0]?.length ?? 0;
    this.#next = this.total;
    if (saved) this.#load(saved);
    this.refresh();
  }

  /** @param {Changes} saved */
  #load({ added = 0, deleted = [], cells = {} }) {
    this.#added = Array.from({ length: added }, (_, n) => this.total + n);
    this.#next = this.total + added;
    this.#deleted = new Set(deleted);
    this.#isEmptied = this.total + added === 0;
    for (const [key, [rows, values]] of Object.entries(cells)) {
      const column = this.columns.findIndex((one) => one.key === key);
      rows.forEach((row, n) => void this.#put(row, column, values[n]));
    }
  }

  /** @param {number} row @param {number} column @returns {Cell} */
  value(row, column) {
    const typed = this.#typed.get(row);
    return typed?.has(column) ? typed.get(column) : this.start(row, column);
  }

  /** The value before any change. @param {number} row @param {number} column @returns {Cell} */
  start(row, column) {
    return this.#start[column]?.[row];
  }

  /** @param {number} row */
  isAdded(row) {
    return row >= this.total;
  }

  /** @param {number} row */
  isDeleted(row) {
    return this.#deleted.has(row);
  }

  /** Whether a cell of a prefilled row differs. @param {number} row @param {number} column */
  isChanged(row, column) {
    return !this.isAdded(row) && this.#typed.get(row)?.has(column) === true;
  }

  /** @param {number} column */
  isFixed(column) {
    const { kind, read_only: fixed } = this.columns[column] ?? { kind: "const" };
    return fixed === true || kind === "const";
  }

  /** The value as text, as it is found, sorted and copied. @param {number} row @param {number} column */
  text(row, column) {
    return this.words(column, this.value(row, column));
  }

  /** @param {number} column @param {Cell} value */
  words(column, value) {
    if (typeof value === "number") return this.columns[column]?.options?.[value]?.label ?? "";
    if (typeof value === "boolean") return this.t(value ? "yes" : "no");
    return value ?? "";
  }

  /** The number of a row in the answer's order, counted from 1; added rows have none. @param {number} row */
  number(row) {
    return this.isAdded(row) ? null : row + 1;
  }

  // --- changes

  /** @param {number} row @param {number} column @param {Cell} value */
  #put(row, column, value) {
    const typed = this.#typed.get(row) ?? new Map();
    this.#typed.set(row, typed.set(column, value));
    if (value === this.start(row, column)) typed.delete(column);
    else if (this.doubt(column, value)) this.#doubtfulRows.add(row);
    if (typed.size === 0) this.#typed.delete(row);
  }

  /**
   * Changes cells in one step. Cells that cannot be changed stay as they are.
   * @param {Change[]} wanted
   */
  edit(wanted) {
    const cells = wanted.flatMap(([row, column, value]) => this.#changed(row, column, value));
    return this.#do({ cells, added: [], flipped: [] });
  }

  /** The change of a cell, if it changes. @param {number} row @param {number} column @param {Cell} value @returns {Step["cells"]} */
  #changed(row, column, value) {
    const before = this.value(row, column);
    const stays = before === value || this.isFixed(column) || this.isDeleted(row);
    const { nullable, default_text: known } = this.columns[column] ?? {};
    const wasEmpty = before === "" ? !nullable : before === undefined && !known;
    return stays || (value === null && wasEmpty) ? [] : [[row, column, before, value]];
  }

  /** Adds rows at the end. @param {number} count @returns {number[]} */
  add(count) {
    const rows = this.newRows(count);
    this.#do({ cells: [], added: rows, flipped: [] });
    return rows;
  }

  /** Numbers for rows to add. @param {number} count */
  newRows(count) {
    const first = this.#next;
    this.#next += count;
    return Array.from({ length: count }, (_, n) => first + n);
  }

  /** Deletes rows, or restores those that are deleted. @param {number[]} rows */
  flip(rows) {
    return this.#do({ cells: [], added: [], flipped: rows });
  }

  /** @param {Step} step */
  #do(step) {
    if (step.cells.length + step.added.length + step.flipped.length === 0) return null;
    this.#future = [];
    this.#past.push(step);
    this.#apply(step, true);
    return step;
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  undo() {
    const step = this.#past.pop();
    if (step) this.#future.push(step);
    if (step) this.#apply(step, false);
    return step ?? null;
  }

  redo() {
    const step = this.#future.pop();
    if (step) this.#past.push(step);
    if (step) this.#apply(step, true);
    return step ?? null;
  }

  /** @param {Step} step @param {boolean} forwards */
  #apply({ cells, added, flipped }, forwards) {
    for (const [row, column, before, after] of cells)
      this.#change(row, column, forwards ? after : before);
    this.#show({ added, flipped }, forwards);
  }

  /** @param {number} row @param {number} column @param {Cell} value */
  #change(row, column, value) {
    this.#put(row, column, value);
    if (this.#errors.size === 0) return;
    this.#errors.delete(`${row} ${this.columns[column]?.key}`);
    this.#errors.delete(`${row} `);
  }

  /** @param {Pick<Step, "added"|"flipped">} step @param {boolean} forwards */
  #show({ added, flipped }, forwards) {
    this.version += 1;
    const fresh = new Set(added);
    if (forwards) this.#added = [...this.#added, ...added];
    else if (added.length) this.#added = this.#added.filter((row) => !fresh.has(row));
    for (const row of flipped) if (!this.#deleted.delete(row)) this.#deleted.add(row);
    if (flipped.length || (added.length && !forwards)) this.refresh();
    else this.view = [...this.view, ...added]; // new rows and changed cells stay where a person sees them
  }

  reset() {
    this.#typed.clear();
    this.#deleted.clear();
    this.#errors.clear();
    this.#doubtfulRows.clear();
    this.#added = [];
    this.#past = [];
    this.#future = [];
    this.#isAsked = false;
    this.#isEmptied = false;
    this.version += 1;
    this.refresh();
  }

  // --- the answer

  /** The rows of the answer, in order. */
  rows() {
    const all = [...Array(this.total).keys(), ...this.#added];
    return this.#deleted.size ? all.filter((row) => !this.#deleted.has(row)) : all;
  }

  /** The numbers of changed cells, of added and of deleted rows. */
  counts() {
    const kept = this.#added.filter((row) => !this.#deleted.has(row));
    let changed = 0;
    for (const [row, typed] of this.#typed)
      if (!this.isAdded(row) && !this.#deleted.has(row)) changed += typed.size;
    const deleted = [...this.#deleted].filter((row) => !this.isAdded(row));
    return { changed, added: kept.length, deleted: deleted.length };
  }

  /** The person's changes as the kernel reads them; null for none. @returns {Changes|null} */
  changes() {
    const added = this.#added.filter((row) => !this.#deleted.has(row));
    const deleted = [...this.#deleted].filter((row) => !this.isAdded(row)).sort((a, b) => a - b);
    const places = new Map(added.map((row, n) => [row, this.total + n]));
    /** @type {Record<string, [number[], Cell[]]>} */
    const cells = {};
    for (const [row, typed] of this.#typed) {
      const place = this.isAdded(row) ? places.get(row) : row;
      if (place === undefined || this.#deleted.has(row)) continue;
      for (const [column, value] of typed) {
        const key = this.columns[column]?.key ?? "";
        const pair = cells[key] ?? [[], []];
        cells[key] = pair;
        pair[0].push(place);
        pair[1].push(value);
      }
    }
    const isEmptied = this.#isEmptied || (this.total === 0 && this.canUndo);
    const none = !added.length && !deleted.length && !Object.keys(cells).length;
    return none && !isEmptied ? null : { added: added.length, deleted, cells };
  }

  // --- what is wrong

  /** Shows the kernel's messages: a row of the answer, a key, a text. @param {[number, string, string][]} cells */
  fail(cells) {
    const rows = this.rows();
    this.version += 1;
    this.#errors = new Map(cells.map(([at, key, text]) => [`${rows[at]} ${key}`, text]));
  }

  /** The message about a cell; empty if there is none. @param {number} row @param {number} column */
  error(row, column) {
    const key = this.columns[column]?.key;
    const own = this.#errors.get(`${row} ${key}`) ?? (column ? "" : this.#errors.get(`${row} `));
    return own || this.#doubtful(row, column);
  }

  /** What the page itself finds wrong with a cell. @param {number} row @param {number} column */
  #doubtful(row, column) {
    if (this.#typed.get(row)?.has(column)) return this.doubt(column, this.value(row, column));
    return this.#isAsked && this.#isMissing(row, column) ? this.t("grid_answer") : "";
  }

  /** What the page itself finds wrong with a value, as the kernel would. @param {number} column @param {Cell} value */
  doubt(column, value) {
    const { kind, nullable, required, other, format } = this.columns[column] ?? { kind: "" };
    if (value === null) {
      const mayBeEmpty = nullable || !required || kind === "text" || kind === "code";
      return mayBeEmpty ? "" : this.t("grid_answer");
    }
    if (typeof value !== "string") return "";
    const text = value.trim();
    if (kind === "bool") return this.t("grid_not_bool");
    if (kind === "choice") return other ? "" : this.t("grid_not_option");
    if (kind === "json") return isJson(value) ? "" : this.t("grid_not_json");
    if (format === "date" && !DATE.test(text)) return this.t("grid_not_date");
    return this.t(numberError(kind, text));
  }

  /** The cells with a message, in the order of the rows. @returns {[row: number, column: number][]} */
  wrong() {
    const rows = [...this.#errors.keys()].map((key) => Number.parseInt(key, 10));
    return this.#cellsOf(
      [...rows, ...this.#doubtfulRows, ...(this.#isAsked ? this.#added : [])],
      (row, column) => this.error(row, column),
    );
  }

  /** The cells that cannot be sent; from now on, an added row must be complete. */
  unfinished() {
    if (!this.#isAsked) this.version += 1;
    this.#isAsked = true;
    return this.#cellsOf([...this.#doubtfulRows, ...this.#added], (row, column) =>
      this.#doubtful(row, column),
    );
  }

  /** @param {number[]} rows @param {(row: number, column: number) => string} message @returns {[row: number, column: number][]} */
  #cellsOf(rows, message) {
    const kept = [...new Set(rows)].filter((row) => !this.#deleted.has(row)).sort((a, b) => a - b);
    return kept.flatMap((row) =>
      this.columns.flatMap((_, column) =>
        message(row, column) ? [/** @type {[number, number]} */ ([row, column])] : [],
      ),
    );
  }

  /** @param {number} row @param {number} column */
  #isMissing(row, column) {
    const { required, nullable, has_default: known } = this.columns[column] ?? {};
    const isAsked = required && !nullable && !known && !this.isFixed(column);
    return isAsked && this.isAdded(row) && this.value(row, column) === undefined;
  }

  // --- what is shown

  /** Finds and sorts again. */
  refresh() {
    const query = this.query.trim().toLowerCase();
    const all = this.changedOnly ? [...Array(this.total).keys(), ...this.#added] : this.rows();
    const isShown = (/** @type {number} */ row) =>
      (!this.changedOnly || this.#differs(row)) &&
      (!query ||
        this.columns.some((_, column) => this.text(row, column).toLowerCase().includes(query)));
    this.view = query || this.changedOnly ? all.filter(isShown) : all;
    if (this.by >= 0) this.#sort();
  }

  /** @param {number} row */
  #differs(row) {
    if (this.isAdded(row)) return !this.#deleted.has(row);
    return this.#typed.has(row) || this.#deleted.has(row);
  }

  #sort() {
    const { by, descending } = this;
    const isNumber = NUMBERS.has(this.columns[by]?.kind ?? "");
    const keys = new Map(
      this.view.map((row) => {
        const text = this.text(row, by);
        return [row, isNumber && text.trim() ? Number(text) : text.toLowerCase()];
      }),
    );
    const texts = [...keys.values()].filter((key) => typeof key === "string");
    // comparing by the rules of a language is slow, and only other letters need it
    const byLanguage = texts.every((text) => /^[ -~]*$/.test(text)) ? null : new Intl.Collator();
    const sign = descending ? -1 : 1;
    this.view.sort((one, other) => {
      const a = keys.get(one) ?? "";
      const b = keys.get(other) ?? "";
      if (a === b) return one - other;
      if (a === "" || b === "") return a === "" ? 1 : -1; // empty cells are last
      if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
      if (byLanguage && typeof a === "string")
        return sign * (byLanguage.compare(a, String(b)) || one - other);
      return a < b ? -sign : sign;
    });
  }

  // --- text of a person or a spreadsheet

  /** The value of what was typed or pasted into a cell. @param {number} column @param {string} text @returns {Cell} */
  read(column, text) {
    const node = this.columns[column];
    const plain = text.trim();
    if (text === "" || (plain === "" && node?.kind !== "text" && node?.kind !== "code"))
      return null;
    if (node?.kind === "bool") {
      const word = plain.toLowerCase();
      if (["true", "yes", "y", "1", this.t("yes").toLowerCase()].includes(word)) return true;
      if (["false", "no", "n", "0", this.t("no").toLowerCase()].includes(word)) return false;
    }
    if (node?.kind === "choice") {
      const labels = (node.options ?? []).map((option) => option.label);
      const exact = labels.indexOf(plain);
      const index =
        exact >= 0
          ? exact
          : labels.findIndex((label) => label.toLowerCase() === plain.toLowerCase());
      if (index >= 0) return index;
    }
    return node?.kind === "text" || node?.kind === "code" ? text : plain;
  }

  /**
   * Pastes cells from a spreadsheet, from this place of the view to the right and down; rows beyond the last one are
   * added. It stops often, so that a page can do other work. Returns the number of cells that changed.
   * @param {string} text @param {number} at the index in the view @param {number} column
   * @returns {Generator<void, number>}
   */
  *paste(text, at, column) {
    const names = this.columns.slice(column).map(({ key, label }) => [key, label]);
    const isHead = (/** @type {string[]} */ line) =>
      line.every((cell, n) => names[n]?.includes(cell.trim()));
    /** @type {Step} */
    const step = { cells: [], added: [], flipped: [] };
    /** @type {string[]|null} */
    let head = null;
    const { view } = this; // as it was shown, if another one is found meanwhile
    let n = at;
    for (const line of fromSpreadsheet(text)) {
      if (n === at && !head && isHead(line)) {
        head = line;
        continue;
      }
      this.#pasteLine(step, line, view[n], column);
      n += 1;
      yield;
    }
    if (head && n === at) this.#pasteLine(step, head, view[n], column);
    if (step.cells.length + step.added.length === 0) return 0;
    for (const [row, c, , value] of step.cells) {
      this.#change(row, c, value);
      yield;
    }
    this.#future = [];
    this.#past.push(step);
    this.#show(step, true);
    return step.cells.length;
  }

  /** @param {Step} step @param {string[]} line @param {number|undefined} shown the row; a new one if undefined @param {number} column */
  #pasteLine({ cells, added }, line, shown, column) {
    const row = shown ?? this.newRows(1)[0] ?? -1;
    if (shown === undefined) added.push(row);
    line.slice(0, this.columns.length - column).forEach((text, n) => {
      cells.push(...this.#changed(row, column + n, this.read(column + n, text)));
    });
  }

  /**
   * Gives all these cells the same value: what was typed or pasted once, or nothing.
   * @param {number[]} rows @param {number} from @param {number} to @param {string} text
   */
  fill(rows, from, to, text) {
    const values = this.columns.slice(from, to + 1).map((_, n) => this.read(from + n, text));
    return this.edit(rows.flatMap((row) => values.map((value, n) => [row, from + n, value])));
  }

  /** Cells as a spreadsheet reads them. @param {number[]} rows @param {number} from @param {number} to */
  copy(rows, from, to) {
    const quoted = (/** @type {string} */ text) =>
      /["\t\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const line = (/** @type {number} */ row) =>
      this.columns.slice(from, to + 1).map((_, n) => quoted(this.text(row, from + n)));
    return rows.map((row) => line(row).join("\t")).join("\n");
  }
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * The cells of a text from a spreadsheet: tabs and line breaks separate them, and a cell in quotes may have both.
 * @param {string} text
 * @returns {Generator<string[], void>}
 */
export function* fromSpreadsheet(text) {
  /** @type {string[]} */
  let line = [];
  const cell = /(?:"((?:[^"]|"")*)"(?=[\t\r\n]|$)|([^\t\r\n]*))(\t|\r\n|\n|\r|$)/y;
  for (;;) {
    const [all = "", quoted, plain, end] = cell.exec(text) ?? [];
    line.push(quoted?.replaceAll('""', '"') ?? plain ?? "");
    if (!end || (!all && cell.lastIndex >= text.length)) break;
    if (end !== "\t") {
      if (cell.lastIndex >= text.length) break; // a last line break ends the last line
      yield line;
      line = [];
    }
  }
  yield line;
}
