// @ts-check
// One question in a table of those alike: its values in cells, its buttons, and its own form beneath.

import {
  attr,
  div,
  expand,
  fill,
  focused,
  focusInPlace,
  h,
  isEqual,
  makeButton,
  setLabel,
  setText,
  showText,
  tableCell,
  words,
} from "../dom.js";
import { difference } from "../fields/diff.js";
import { factList, factValue, makeFact, nodeText } from "../fields/facts.js";
import { cutLongText, unseenTexts } from "../fields/long-text.js";
import { on, onClick } from "../lifetime.js";
import { drawRecord } from "./record.js";

/** @import { Action, Fact, FieldError, FormItem, RecordItem } from "../wire.js" */
/** @import { CardContext } from "./item.js" */
/**
 * @typedef {ReturnType<typeof drawRow>} Row
 * @typedef {{name: string, label: string, kind: string|null}} Column
 */
/**
 * The context that a row gets from its table.
 * @typedef {object} RowOwner
 * @property {() => void} drawn the row changed
 * @property {() => boolean} unseen whether the values that all rows share were not shown completely yet
 * @property {(errors: FieldError[]) => unknown} refused an answer for all was refused in this row
 */

/** The size of a cell's text: lines, and characters in each. */
const ROOM = { lines: 6, width: 40 };
/** Characters of each value that name the row in a button's label. */
const NAME_LENGTH = 40;
/** The name of the question itself among the values. */
export const TITLE = "\u0000";

/**
 * Draws a question as two rows: its values with its buttons, and its form.
 * @param {FormItem} first
 * @param {CardContext} card
 * @param {RowOwner} table
 */
export function drawRow(first, card, table) {
  const { signal } = card;
  const t = card.store.t;
  const form = card.form(first);
  const { acts } = form.bar;
  const head = h("th", { scope: "row", role: "rowheader" });
  const toggle = makeButton("nba-button nba-small");
  const buttons = div("nba-decide", toggle);
  const look = words("div", { class: "nba-look", hidden: true });
  const deciding = tableCell({ class: "nba-deciding" }, buttons, look);
  const el = h("tr", { role: "row" }, head, deciding);
  const changed = div("nba-facts");
  const formCell = tableCell({}, changed);
  const under = h("tr", { role: "row", class: "nba-under" }, formCell);
  /** @type {FormItem|RecordItem} */
  let item = first;
  const redraw = () => item.type === "form" && form.draw();
  let values = valuesOf(first, t);
  /** @type {Map<string, HTMLElement>} */
  let cells = new Map();
  /** @type {"apart"|"unread"|"open"|"read"} The state of its form: not in the row yet, folded, unfolded, folded again. */
  let fold = "apart";
  /** Whether a person has opened the row. */
  let wasOpened = false;
  let rowName = "";
  let markedChanges = "[]";
  const unseen = unseenTexts(el, () => {
    wasOpened ||= !unseen.any();
    redraw();
  });

  const cell = (/** @type {string} */ name) => {
    const fact = values.get(name);
    if (!fact) return ["–"];
    const box = factValue(fact);
    return [box, cutLongText({ t, signal, hold: unseen.hold }, box, fact.value, ROOM) ?? ""];
  };
  const unfold = (/** @type {boolean} */ wanted) => {
    if (fold !== "apart" && wanted === (fold === "open")) return;
    wasOpened ||= wanted;
    fold = wanted ? "open" : fold === "open" ? "read" : "unread";
    attr(form.el, "data-folded", !wanted);
    expand(toggle, wanted);
    // Its buttons are in the row, or, if it is unfolded, below its fields.
    if (wanted) form.bar.els[0]?.after(acts);
    else buttons.prepend(acts);
    redraw();
  };
  const reasons = () => (item.type === "form" ? (item.look ?? []) : []);
  const odd = () => reasons().length > 0 && !wasOpened;
  const draw = () => {
    setText(toggle, t(fold === "open" ? "close_row" : first.approval ? "open_row" : "answer_row"));
    const all = [...acts.querySelectorAll(".nba-buttons > button"), toggle];
    for (const button of all) setLabel(button, `${button.textContent}: ${rowName}`);
    showText(look, odd() ? t("row_look", { what: reasons().join(", ") }) : "");
    mark(fold === "open" ? [] : form.changes().map((change) => changeOf(...change, values, t)));
    table.drawn();
  };
  /** Shows each change in the cell of its name, or below the row if there is none. @param {Fact[]} changes */
  const mark = (changes) => {
    const now = JSON.stringify(changes);
    if (now === markedChanges) return;
    markedChanges = now;
    const left = new Set(changes);
    for (const [name, box] of cells) {
      const fact = changes.find(({ label }) => label === name);
      if (fact) left.delete(fact);
      const parts = fact && difference(fact.changed_from ?? "–", fact.value, 1);
      fill(box, ...(parts ? [div("nba-mono", ...parts)] : cell(name)));
    }
    fill(changed, factList([...left]));
  };

  form.owner = {
    drawn: draw,
    opened: () => unfold(true),
    unseen: (cut) => {
      const here = table.unseen() || unseen.any();
      // Once the form was unfolded, the long values could be opened there.
      return first.approval && here && (cut || fold === "apart" || fold === "unread");
    },
    refused(errors, forAll) {
      // Errors of an answer for all do not unfold the row.
      if (forAll) table.refused(errors);
      else unfold(true);
    },
  };
  onClick(signal, toggle, () => unfold(fold !== "open"));
  on(signal, form.summary.el, "click", () => unfold(true), true); // the field that it leads to must be visible
  return {
    el,
    under,
    form,
    get values() {
      return values;
    },
    get expires() {
      return item.type === "form" ? item.expires_at : null;
    },
    /** Whether an answer to all questions leaves it out, because it has an odd or a cut value that nobody has opened. */
    get needsLook() {
      return odd() || (first.approval && form.unseen);
    },
    get covers() {
      return item.type === "form" ? item.covers : null;
    },
    get open() {
      return item.type === "form";
    },
    /** The values of the untouched form. */
    prefill: JSON.stringify(first.spec),
    redraw,
    /** @param {FormItem|RecordItem} next */
    update(next) {
      if (next === item || (next.type === "record" && isEqual(next, item))) return;
      item = next;
      if (next.type === "form") {
        values = valuesOf(next, t);
        form.update(next);
        return;
      }
      mark(next.details.filter((fact) => fact.changed_from !== null));
      const recordEl = drawRecord(next, card).el;
      const hadFocus = [el, under].some((part) => part.contains(focused()));
      form.remove();
      under.hidden = true;
      fill(deciding, recordEl);
      if (hadFocus) focusInPlace(recordEl);
    },
    /**
     * @param {number} number
     * @param {Column[]} columns
     */
    lay(number, columns) {
      setText(head, String(number));
      cells = new Map(
        columns.map(({ name, label, kind }) => {
          const about = { role: "cell", "data-label": label, "data-kind": kind };
          return [name, h("td", about, ...cell(name))];
        }),
      );
      markedChanges = "[]";
      fill(el, head, ...cells.values(), deciding);
      attr(formCell, "colspan", columns.length + 2);
      const nameParts = columns.map(
        ({ name, label }) => `${label} ${values.get(name)?.value.slice(0, NAME_LENGTH) ?? "–"}`,
      );
      rowName = nameParts.join(", ") || String(number);
    },
    remove() {
      form.remove();
      for (const part of [el, under]) part.remove();
    },
    /** Moves the form into the row once that is on the page, without interrupting a person who types in it. */
    adopt() {
      if (fold !== "apart") return;
      const active = focused();
      const typing = active instanceof HTMLElement && form.el.contains(active) ? active : null;
      formCell.append(form.el);
      unfold(typing !== null);
      focusInPlace(typing);
    },
    /**
     * Answers as part of an answer for all.
     * @param {Action["name"]} name
     * @param {string|null} reason
     * @param {import("../fields/spec.js").Draft} [drafts]
     */
    press(name, reason, drafts) {
      if (!form.busy && !form.answering) form.press(name, reason, drafts);
    },
  };
}

/**
 * The values of a question, by name. A name that occurs twice has both values.
 * @param {FormItem} item
 * @param {(key: string) => string} t
 * @returns {Map<string, Fact>}
 */
function valuesOf(item, t) {
  const title = makeFact(t("question"), item.title);
  /** @type {Map<string, Fact>} */
  const values = new Map([[TITLE, title]]);
  for (const fact of [...item.input, ...item.facts]) {
    let name = fact.label;
    while (values.has(name) && values.get(name)?.value !== fact.value) name += " ";
    values.set(name, fact);
  }
  return values;
}

/**
 * A change as a fact; a value without a short text is only marked as changed.
 * @param {import("../fields/spec.js").SpecNode} node
 * @param {import("../fields/spec.js").DraftParts} draft
 * @param {Map<string, Fact>} values
 * @param {import("../fields/field.js").Context["t"]} t
 * @returns {Fact}
 */
function changeOf(node, draft, values, t) {
  const now = /** @type {typeof node} */ ({ ...node, initial: draft, initial_json: draft.json });
  const text = node.secret ? "" : nodeText(now, /** @type {any} */ ({ t }));
  const before = values.get(node.key)?.value ?? "–";
  return makeFact(node.key || node.label, text || t("changed"), true, before);
}
