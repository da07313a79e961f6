// @ts-check
// One answer for all questions of a table that are still open: a form that belongs to none of them.

import { FormView } from "./form.js";

/**
 * @typedef {import("../wire.js").FormItem} FormItem
 * @typedef {import("./item.js").CardContext} CardContext
 * @typedef {import("./group-row.js").Row} Row
 */

/** Buttons that have a label of their own for all. */
const USUAL = ["approve", "reject", "send", "decline"];

/**
 * The form that answers for all: calls each with what stands in its row, questions with what is filled in here.
 * @param {FormItem} item one of them
 * @param {CardContext} card
 * @param {() => Row[]} waiting
 */
export function drawAnswerAll(item, card, waiting) {
  const t = card.store.t;
  const { approval } = item;
  // What is answered instead, or run instead, is so one by one.
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
  const shown = { ...item, ...none, ...own, preview: [], drafts: null, title };
  const form = new FormView(shown, card);
  form.owner = {
    unseen: () => waiting().some((row) => row.form.unseen),
    take({ action, drafts, reason }) {
      const given = action === "submit" ? drafts : undefined;
      for (const row of waiting()) row.press(action, reason, given);
      form.bar.escape();
      return true;
    },
  };
  return {
    form,
    /** @param {Row[]} all */
    draw(all) {
      const open = all.filter((row) => !row.form.answering);
      const n = open.length;
      const m = open.filter((row) => row.form.changes().length > 0).length;
      for (const [at, action] of actions.entries()) {
        const label = labels[at] ?? "";
        const usual = USUAL.find((key) => t(key) === label);
        const changed = m > 0 && action.name === "approve" ? "_changed" : "";
        action.label = usual ? t(`${usual}_all${changed}`, { n, m }) : `${label} (${n})`;
      }
      const ends = open.flatMap((row) => row.expires ?? []);
      shown.expires_at = ends.length > 0 ? Math.min(...ends) : null;
      const alike = approval || new Set(open.map((row) => row.prefill)).size === 1;
      form.el.hidden = n < 2 || !alike;
      form.update(shown);
    },
  };
}
