// @ts-check
// The one-line items: a decision that was made, and a word from nbagent itself.

import { attr, disable, fill, h, makeButton, tell, text, words } from "../dom.js";
import { factList } from "../fields/fact.js";
import { onClick } from "../lifetime.js";
import { duration } from "./env.js";

/**
 * @typedef {import("../wire.js").RecordItem} RecordItem
 * @typedef {import("../wire.js").NoticeItem} NoticeItem
 * @typedef {import("../wire.js").MessageItem} MessageItem
 * @typedef {import("./env.js").Env} Env
 */

/**
 * @param {RecordItem} first
 * @param {Env} env
 * @returns {import("./env.js").Drawn<RecordItem>}
 */
export function drawRecord(first, env) {
  const el = h("div", { class: "nba-record", tabindex: "-1" });
  const update = (/** @type {RecordItem} */ item) => {
    const after =
      item.after === null ? "" : env.store.t("after", { t: duration(env.store, item.after, true) });
    const line = [
      words("b", "", item.title),
      words("span", "nba-decision", item.decision),
      h("span", "nba-time", after),
    ];
    attr(el, "data-tone", item.tone);
    const details = factList(item.details);
    fill(
      el,
      details
        ? h("details", {}, h("summary", {}, ...line), details)
        : h("div", "nba-line", ...line),
    );
  };
  update(first);
  return { el, update };
}

/**
 * @param {NoticeItem} first
 * @param {Env} env
 * @returns {import("./env.js").Drawn<NoticeItem>}
 */
export function drawNotice(first, { store, signal }) {
  const said = words("div", { class: "nba-text", role: "status", tabindex: "-1" });
  const buttons = h("div", "nba-buttons");
  const el = h("div", "nba-notice", said, buttons);
  let item = first;
  const press = (/** @type {Event} */ { target }) => {
    const button = target instanceof Element ? target.closest("button") : null;
    const action = item.actions.find(({ label }) => label === button?.textContent)?.name;
    if (!button || !action || button.hasAttribute("aria-disabled")) return;
    if (store.send({ type: "press", notice: item.key, action })) disable(button, true);
  };
  onClick(signal, buttons, press);
  const update = (/** @type {NoticeItem} */ next) => {
    const same = next !== first && next.actions.length === item.actions.length;
    item = next;
    attr(el, "data-tone", item.tone);
    text(said, item.text);
    if (same) return;
    const inside = buttons.contains(document.activeElement);
    const made = item.actions.map(({ label }) => makeButton("nba-button", label));
    fill(buttons, ...made);
    buttons.hidden = made.length === 0;
    // The button that was pressed is gone: who works by keyboard stays here.
    if (inside) (made[0] ?? said).focus();
  };
  update(first);
  return { el, update };
}

/**
 * @param {MessageItem} first
 * @returns {import("./env.js").Drawn<MessageItem>}
 */
export function drawMessage(first) {
  const said = words("div", "nba-text");
  const note = words("div", "nba-help");
  const el = h("div", "nba-message", said, note);
  const update = (/** @type {MessageItem} */ item) => {
    text(said, item.text);
    tell(note, item.note);
  };
  update(first);
  return { el, update };
}
