// @ts-check
// The unsent text of a question that was settled elsewhere: shown to be copied, until it is dismissed.

import { div, makeButton, setText, words } from "../dom.js";
import { factList } from "../fields/facts.js";
import { onClick } from "../lifetime.js";

/**
 * Draws a note with the unsent input.
 * @param {string} title of the question
 * @param {import("../wire.js").Fact[]} typed
 * @param {import("./item.js").CardContext} card
 */
export function drawUnsent(title, typed, { store, signal }) {
  const dismiss = makeButton("nba-button", store.t("dismiss"));
  const textEl = words("div", { class: "nba-text", role: "status" });
  const el = div(
    { class: "nba-notice nba-unsent", "data-tone": "warn" },
    textEl,
    factList(typed),
    div("nba-buttons", dismiss),
  );
  setText(textEl, store.t("not_sent", { title }));
  onClick(signal, dismiss, () => {
    // The kernel learns that nobody works here any longer.
    dismiss.blur();
    el.remove();
  });
  return el;
}
