// @ts-check
// The line under code: its language, and where the caret is while it is in there.

import { h, text } from "../dom.js";
import { on } from "../lifetime.js";

/**
 * @param {import("./node.js").Context} ctx
 * @param {HTMLTextAreaElement} input
 * @param {string} language
 */
export function caretLine(ctx, input, language) {
  const where = h("span");
  const el = h("div", "nba-status", language && h("span", {}, language), where);
  const draw = () => {
    const before = input.value.slice(0, input.selectionEnd ?? 0).split("\n");
    const column = (before.at(-1) ?? "").length + 1;
    text(where, ctx.t("caret", { line: before.length, column }));
  };
  const clear = () => text(where, "");
  for (const type of /** @type {const} */ (["focus", "keyup", "click", "input"]))
    on(ctx.signal, input, type, draw);
  on(ctx.signal, input, "blur", clear);
  return el;
}
