// @ts-check
// The one-line items: a decision that was made, and a word from nbagent itself.

import { attr, h, text } from "../dom.js";
import { factList } from "../fields/fact.js";
import { duration } from "./env.js";

/**
 * @typedef {import("../wire.js").RecordItem} RecordItem
 * @typedef {import("../wire.js").NoticeItem} NoticeItem
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
      h("b", { dir: "auto" }, item.title),
      h("span", { class: "nba-decision", dir: "auto" }, item.decision),
      h("span", { class: "nba-time" }, after),
    ];
    attr(el, "data-tone", item.tone);
    el.replaceChildren(
      item.details.length > 0
        ? h("details", {}, h("summary", {}, ...line), factList(item.details))
        : h("div", { class: "nba-line" }, ...line),
    );
  };
  update(first);
  return { el, update };
}

/**
 * @param {NoticeItem} first
 * @returns {import("./env.js").Drawn<NoticeItem>}
 */
export function drawNotice(first) {
  const el = h("div", { class: "nba-notice", dir: "auto" });
  const update = (/** @type {NoticeItem} */ item) => {
    attr(el, "data-tone", item.tone);
    text(el, item.text);
  };
  update(first);
  return { el, update };
}
