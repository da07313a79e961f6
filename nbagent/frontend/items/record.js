// @ts-check
// A past decision, in one line.

import { attr, div, fill, h, span, words } from "../dom.js";
import { factList } from "../fields/facts.js";
import { duration } from "../format.js";

/** @import { RecordItem } from "../wire.js" */
/** @import { CardContext, DrawItem } from "./item.js" */

/**
 * The time that the person took.
 * @param {CardContext} card
 * @param {RecordItem} item
 */
export function afterTime({ store }, { after }) {
  const text =
    (after ?? 0) >= 1 && after !== null && store.t("after", { t: duration(store, after, true) });
  return span("nba-time", text);
}

/** Draws a record. @type {DrawItem<RecordItem>} */
export function drawRecord(first, card) {
  const el = div({ class: "nba-record", tabindex: "-1" });
  const update = (/** @type {RecordItem} */ item) => {
    const line = [
      words("b", "", item.title),
      words("span", "nba-decision", item.decision),
      afterTime(card, item),
    ];
    attr(el, "data-tone", item.tone);
    const details = factList(item.details);
    fill(
      el,
      details ? h("details", {}, h("summary", {}, ...line), details) : div("nba-line", ...line),
    );
  };
  update(first);
  return { el, update };
}
