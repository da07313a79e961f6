// @ts-check
// One answer for all open questions of a table: a form that belongs to none of them. It does not touch an
// answer that a person has started in a row.

import { drawCovers } from "./covers.js";
import { FormView } from "./form.js";

/** @import { Action, FormItem } from "../wire.js" */
/** @import { Row } from "./group-row.js" */
/** @import { CardContext } from "./item.js" */

/** The buttons with a label of their own for all rows. */
const USUAL = ["approve", "reject", "send", "decline"];

/**
 * The form that answers all: each call with the values of its row, questions with the values of this form.
 * @param {FormItem} item one of them
 * @param {CardContext} card
 * @param {() => Row[]} waiting
 */
export function drawAnswerAll(item, card, waiting) {
  const t = card.store.t;
  const { approval } = item;
  // To answer instead of running, or to run instead of answering, is possible only in each row.
  const shared = item.actions.filter(({ menu, name }) => !menu && name !== "answer");
  const actions = shared.map((action) => ({ ...action, changed_label: null }));
  const labels = shared.map(({ label }) => label);
  const own = approval ? { spec: null, actions } : { actions };
  const none = {
    interrupt: "",
    tool: "",
    path: "",
    note: null,
    facts: [],
    remember: [],
    instead: null,
  };
  const title = t("same_for_all");
  /** Why these rows are left out. @param {Row[]} rows */
  const reasonsLeftOut = (rows) =>
    [
      ["row_wrong", rows.filter((row) => row.form.unfinished === "wrong").length],
      ["row_rejecting", rows.filter((row) => row.form.unfinished === "rejecting").length],
      ["needs_look", rows.filter((row) => !row.form.unfinished && row.needsLook).length],
    ]
      .flatMap(([key, n]) => (n ? card.store.tn(String(key), Number(n)) : []))
      .join(", ");
  const shown = { ...item, ...none, ...own, preview: [], drafts: null, title };
  const form = new FormView(shown, card);
  const covers = drawCovers(t);
  form.el.prepend(covers.el);
  /**
   * The rows that a press of this button answers. A row in which a refusal is being written is answered only by
   * a refusal, and a row that needs a look is not approved.
   * @param {Action["name"]} name
   */
  const rowsFor = (name) =>
    waiting().filter(({ needsLook, form: { answering, unfinished } }) => {
      if (answering) return false;
      if (name === "reject") return true;
      return unfinished !== "rejecting" && !needsLook && (name !== "approve" || !unfinished);
    });
  form.owner = {
    unseen: () => rowsFor("approve").length === 0 && waiting().some((row) => row.form.unseen),
    idle: ({ name }) => rowsFor(name).length === 0,
    take({ action, drafts, reason }) {
      const rowDrafts = action === "submit" ? drafts : undefined;
      for (const row of rowsFor(action))
        row.press(action, row.form.bar.reason || reason, rowDrafts);
      form.bar.escape();
      return true;
    },
  };
  return {
    form,
    /** @param {Row[]} all */
    draw(all) {
      const open = all.filter((row) => !row.form.answering);
      for (const [at, action] of actions.entries()) {
        const rows = rowsFor(action.name);
        const label = labels[at] ?? "";
        const usual = USUAL.find((key) => t(key) === label);
        const [n, of] = [rows.length, open.length];
        const m = rows.filter((row) => row.form.changes().length > 0).length;
        const some = n < of ? "_some" : "_all";
        const changed = m > 0 && action.name === "approve" ? "_changed" : "";
        const text = usual
          ? t(`${usual}${some}${changed}`, { n, m, of })
          : t(`act${some}`, { what: label, n, of });
        action.label =
          n < of ? `${text}: ${reasonsLeftOut(open.filter((row) => !rows.includes(row)))}` : text;
      }
      const summary = open.find((row) => row.covers)?.covers;
      covers.update(
        summary && {
          ...summary,
          inputs: summary.inputs.filter(({ text, values }) => text || values.length > 1),
        },
      );
      const ends = open.flatMap((row) => row.expires ?? []);
      shown.expires_at = ends.length > 0 ? Math.min(...ends) : null;
      const alike = approval || new Set(open.map((row) => row.prefill)).size === 1;
      form.el.hidden = open.length < 2 || !alike;
      form.update(shown);
    },
  };
}
