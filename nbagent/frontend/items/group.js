// @ts-check
// Questions that are alike, as one table: a row for each, and one answer for all that are open.

import { div, fill, focused, focusInPlace, h, present, setText, tableCell, words } from "../dom.js";
import { factList } from "../fields/facts.js";
import { unseenTexts } from "../fields/long-text.js";
import { drawAnswerAll } from "./group-answer-all.js";
import { drawRow, TITLE } from "./group-row.js";
import { idIn, questionId, recordsOf } from "./grouping.js";

/** @import { Fact, FormItem } from "../wire.js" */
/** @import { Row } from "./group-row.js" */
/** @import { GroupItem } from "./grouping.js" */
/** @import { DrawItem } from "./item.js" */

/** Characters of one word that a column never breaks. */
const SHORT = 20;
const NUMBER = /^[-+]?[\d.,]+(e[-+]?\d+)?$/i;

/** Draws questions that are alike; the rows come with the first update, on the page. @type {DrawItem<GroupItem>} */
export function drawGroup(group, card) {
  const { store } = card;
  const one = /** @type {FormItem} */ (group.items.find((item) => item.type === "form"));
  const { tool, approval } = one;
  const t = store.t;
  const path = one.path && words("div", "nba-path", one.path);
  const title = words("h4", { class: "nba-title", id: card.id(), tabindex: "-1" });
  const note = words("p", "nba-note");
  const facts = div("nba-facts");
  const caption = h("caption", "nba-sr");
  const heads = h("tr", { role: "row" });
  const body = h("tbody", { role: "rowgroup" });
  const thead = h("thead", { role: "rowgroup" }, heads);
  const table = h("table", { class: "nba-calls", role: "table" }, caption, thead, body);
  /** @type {Map<string, Row>} */
  const rows = new Map();
  const waiting = () => [...rows.values()].filter((row) => row.open);
  const foot = drawAnswerAll(one, card, waiting);
  const asking = div("nba-asking", title, path, note);
  const about = { class: "nba-form nba-group", "aria-labelledby": title.id };
  const el = h("section", about, asking, facts, table, foot.form.el);
  const unseen = unseenTexts(facts, () => {
    for (const row of waiting()) row.redraw();
  });
  let laidOut = "";

  const update = (/** @type {GroupItem} */ { items }) => {
    const order = items.flatMap((item) => {
      const id = idIn(item, rows);
      const row = id === undefined ? item.type === "form" && add(item) : rows.get(id);
      const settled = recordsOf(item).find((record) => questionId(record) === id);
      // A running call marks the changed values in its input.
      if (row && item.type === "call" && settled) {
        const changes = item.input.filter((fact) => fact.changed_from !== null);
        row.update({ ...settled, details: changes });
      } else if (row && item.type !== "call") row.update(item);
      return row || [];
    });
    for (const [id, row] of rows) {
      if (order.includes(row)) continue;
      row.remove();
      rows.delete(id);
    }
    for (const [index, row] of order.entries()) {
      const current = body.children[index * 2] ?? null;
      if (current !== row.el)
        for (const part of [row.el, row.under]) body.insertBefore(part, current);
    }
    lay(order);
    for (const row of order) row.adopt();
    draw();
  };
  const add = (/** @type {FormItem} */ item) => {
    const row = drawRow(item, card, {
      drawn: () => draw(),
      unseen: unseen.any,
      refused: (errors) => approval || foot.form.fail(errors),
    });
    rows.set(questionId(item), row);
    return row;
  };
  const lay = (/** @type {Row[]} */ order) => {
    const now = JSON.stringify(order.map((row) => [...row.values]));
    const [first] = order;
    if (now === laidOut || !first) return;
    laidOut = now;
    const names = [...new Set(order.flatMap((row) => [...row.values.keys()]))];
    const factsOf = (/** @type {string} */ name) => order.map((row) => row.values.get(name));
    const alike = (/** @type {string} */ name) =>
      new Set(factsOf(name).map((fact) => JSON.stringify(fact))).size === 1;
    const columns = names
      .filter((name) => !alike(name))
      .map((name) => {
        const shown = factsOf(name).flatMap((fact) => fact ?? []);
        const every = (/** @type {(value: string) => boolean} */ test) =>
          shown.every((fact) => test(fact.value));
        const isShort = every((value) => value.length <= SHORT && !/\s/.test(value));
        const kind = every((value) => NUMBER.test(value)) ? "num" : isShort ? "short" : null;
        return { name, label: shown[0]?.label ?? name, kind };
      });
    const about = { scope: "col", role: "columnheader" };
    fill(
      heads,
      tableCell(),
      ...columns.map(({ label, kind }) =>
        h("th", { ...about, "data-kind": kind }, words("span", "", label)),
      ),
      tableCell(),
    );
    for (const [index, row] of order.entries()) row.lay(index + 1, columns);
    const same = names.filter(alike);
    drawShared(same.flatMap((name) => (name === TITLE ? [] : (first.values.get(name) ?? []))));
    setText(note, present([same.includes(TITLE) && one.title, one.note]).join("\n"));
  };
  /** Draws the values that all rows share above the table. @param {Fact[]} shared */
  const drawShared = (shared) => {
    const label = div("nba-help", t("same_in_all"));
    const list = factList(shared, { t, hold: unseen.hold, signal: card.signal });
    fill(facts, list && label, list);
    facts.hidden = !list;
  };
  const draw = () => {
    const open = waiting();
    const key = `${approval ? "calls" : "asks"}_wait${open.length === 1 ? "_one" : ""}`;
    const heading = t(key, { n: open.length, tool });
    if (title.textContent !== heading) card.say(heading);
    for (const part of [title, caption]) setText(part, heading);
    foot.draw(open);
    const last = foot.form.el;
    if (last.hidden && last.contains(focused())) focusInPlace(title);
  };
  return {
    el,
    update,
    remove: () => foot.form.remove(),
    tick() {
      foot.form.tick();
      for (const row of waiting()) row.form.tick();
    },
    enter: () => title.focus(),
  };
}
