// @ts-check
// The unsent text of a question that was settled elsewhere: shown to be copied, until it is dismissed.

import { div, makeButton, setText, words } from "../dom.js";
import { factList } from "../fields/facts.js";
import { onClick } from "../lifetime.js";

/**
 * A note with what was not sent.
 * @param {string} title of the question
 * @param {import("../wire.js").Fact[]} typed
 * @param {import("./item.js").CardContext} card
 */
export function drawUnsent(title, typed, { store, signal }) {
  const away = makeButton("nba-button", store.t("dismiss"));
  const told = words("div", { class: "nba-text", role: "status" });
  const el = div(
    { class: "nba-notice nba-unsent", "data-tone": "warn" },
    told,
    factList(typed),
    div("nba-buttons", away),
  );
  setText(told, store.t("not_sent", { title }));
  onClick(signal, away, () => {
    // The kernel learns that nobody works here any longer.
    away.blur();
    el.remove();
  });
  return el;
}
