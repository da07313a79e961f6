// @ts-check
// A notice: a message from nbagent itself, with buttons for what can be done.

import {
  attr,
  disable,
  div,
  fill,
  focused,
  inVSCode,
  isEqual,
  makeButton,
  setText,
  span,
  words,
} from "../dom.js";
import { duration } from "../format.js";
import { onClick } from "../lifetime.js";

/** @import { Item, NoticeItem } from "../wire.js" */
/** @import { DrawItem } from "./item.js" */

/** Draws a notice. @type {DrawItem<NoticeItem>} */
export function drawNotice(first, { store, signal, edit }) {
  const textEl = span();
  // Hidden from screen readers, which would read it every second.
  const left = span({ class: "nba-left", "aria-hidden": "true" });
  const line = words("div", { class: "nba-text", tabindex: "-1" }, textEl, left);
  const buttons = div("nba-buttons");
  const el = div("nba-notice", line, buttons);
  let item = first;
  const press = (/** @type {Event} */ { target }) => {
    const button = target instanceof Element ? target.closest("button") : null;
    const action = item.actions.find(({ label }) => label === button?.textContent)?.name;
    if (!button || !action || button.hasAttribute("aria-disabled")) return;
    const send = (/** @type {typeof action} */ done) => {
      if (store.send({ type: "press", notice: item.key, action: done })) disable(button, true);
    };
    if (action === "edit") {
      const [thread] = item.key.split(":");
      const isPrompt = (/** @type {Item} */ one) =>
        one.type === "message" && one.editable && one.key.startsWith(`${thread}:`);
      const prompt = store.view?.items.find(isPrompt);
      if (prompt?.type === "message") edit(prompt);
      return;
    }
    // Actions of the page are reported to the kernel once they are done.
    if (action !== "notify" && action !== "quiet") send(action);
    else store.waiter?.().then(async (waiter) => send(await waiter.notify(action)));
  };
  onClick(signal, buttons, press);
  const tick = () => {
    const seconds = item.until === null ? 0 : Math.ceil(item.until - store.now());
    setText(left, seconds > 0 ? ` · ${duration(store, seconds, true)}` : "");
  };
  const update = (/** @type {NoticeItem} */ next) => {
    const hasSameActions = next !== first && isEqual(next.actions, item.actions);
    item = next;
    const actions = item.actions.filter(({ name }) => name !== "notify" || !inVSCode());
    attr(el, "data-tone", item.tone);
    // It changes while it is shown; what ends a run is announced by the card.
    if (actions.length || item.until) attr(line, "role", "status");
    setText(textEl, actions.length < item.actions.length ? store.t("notify_nowhere") : item.text);
    tick();
    if (hasSameActions) return;
    const inside = buttons.contains(focused());
    const actionButtons = actions.map(({ label }) => makeButton("nba-button", label));
    fill(buttons, ...actionButtons);
    buttons.hidden = actionButtons.length === 0;
    // The pressed button is removed: the keyboard focus stays here.
    if (inside) (actionButtons[0] ?? line).focus();
  };
  update(first);
  return { el, update, tick };
}
