// @ts-check
// The model's reasoning, folded.

import { growText, h, words } from "../dom.js";

/**
 * Draws reasoning.
 * @param {import("../wire.js").ReasoningItem} first
 * @param {import("./item.js").CardContext} card
 * @returns {import("./item.js").DrawnItem<import("../wire.js").ReasoningItem>}
 */
export function drawReasoning(first, card) {
  const body = words("div", "nba-thought");
  const el = h("details", "nba-think", h("summary", {}, card.store.t("reasoning")), body);
  const update = (/** @type {import("../wire.js").ReasoningItem} */ item) =>
    growText(body, item.text);
  update(first);
  return { el, update };
}
