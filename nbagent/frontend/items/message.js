// @ts-check
// A message that a person sent to the run, and the files of its prompt.

import { div, fill, h, makeButton, setLabel, showText, words } from "../dom.js";
import { onClick } from "../lifetime.js";
import { drawRich } from "./call.js";

/** @import { MessageItem, Rich } from "../wire.js" */
/** @import { DrawItem } from "./item.js" */

/** Draws a message. @type {DrawItem<MessageItem>} */
export function drawMessage(first, card) {
  const textEl = words("div", "nba-text");
  const files = div("nba-files");
  const note = words("div", "nba-help");
  const who = h("strong", "nba-sr", card.store.t("you"));
  const edit = makeButton("nba-link nba-edit", "✎");
  const el = div("nba-message", who, textEl, files, note, edit);
  let current = first;
  edit.title = card.store.t("message_edit");
  setLabel(edit, edit.title);
  onClick(card.signal, edit, () => card.edit(current));
  const update = (/** @type {MessageItem} */ item) => {
    showText(textEl, item.text);
    fill(files, ...item.files.map(drawFile));
    files.hidden = item.files.length === 0;
    showText(note, item.note);
    edit.hidden = !item.editable;
    current = item;
  };
  update(first);
  return { el, update };
}

/**
 * A picture with its name below it; of another file the name.
 * @param {Rich} file
 */
function drawFile(file) {
  const isPicture = file.kind === "image";
  const el = h("figure", "nba-file", ...(isPicture ? [drawRich(file)] : []));
  el.append(words("figcaption", "nba-help", isPicture ? file.alt : file.data));
  return el;
}
