// @ts-check
// The model's reasoning, folded.

import { growText, h, words } from "../dom.js";

/** @import { ReasoningItem } from "../wire.js" */
/** @import { DrawItem } from "./item.js" */

/** Draws reasoning. @type {DrawItem<ReasoningItem>} */
export function drawReasoning(first, card) {
  const body = words("div", "nba-thought");
  const el = h("details", "nba-think", h("summary", {}, card.store.t("reasoning")), body);
  const update = (/** @type {ReasoningItem} */ item) => growText(body, item.text);
  update(first);
  return { el, update };
}
