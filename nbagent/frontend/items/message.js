// @ts-check
// A message that a person sent to the run.

import { h, setText, showText, words } from "../dom.js";

/** @typedef {import("../wire.js").MessageItem} MessageItem */

/**
 * Draws a message.
 * @param {MessageItem} first
 * @returns {import("./item.js").DrawnItem<MessageItem>}
 */
export function drawMessage(first) {
  const said = words("div", "nba-text");
  const note = words("div", "nba-help");
  const el = h("div", "nba-message", said, note);
  const update = (/** @type {MessageItem} */ item) => {
    setText(said, item.text);
    showText(note, item.note);
  };
  update(first);
  return { el, update };
}
