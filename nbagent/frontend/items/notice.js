// @ts-check
// A notice: a word from nbagent itself, with buttons where something can be done.

import { attr, disable, fill, h, makeButton, setText, words } from "../dom.js";
import { onClick } from "../lifetime.js";

/**
 * @typedef {import("../wire.js").NoticeItem} NoticeItem
 * @typedef {import("./item.js").CardContext} CardContext
 */

/**
 * Draws a notice.
 * @param {NoticeItem} first
 * @param {CardContext} card
 * @returns {import("./item.js").DrawnItem<NoticeItem>}
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
    setText(said, item.text);
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
