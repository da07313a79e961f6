// @ts-check
// The marks beside the label of a field: "optional", "changed · undo", "no value".

import { attr, h, makeButton, makeInput, setLabel, setText, span } from "../dom.js";

/** @import { Context } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/**
 * Names a button after itself and the containers around it, as rows of one kind have the same buttons.
 * @param {Context} ctx
 * @param {HTMLElement|null} button
 * @param {string[]} [around] ids of what has the names of the containers, the innermost first
 */
export function nameWithin(ctx, button, around = ctx.within ?? []) {
  if (!button || !around[0]) return;
  button.id ||= ctx.id();
  attr(button, "aria-labelledby", [button.id, ...around].join(" "));
}

/**
 * The marks of a field right beside its label.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {boolean} nothing whether there is nothing to start from
 */
export function remarks(ctx, node, nothing) {
  const keys = [];
  if (!node.required && !node.has_default && nothing) keys.push(ctx.t("optional"));
  if (node.deprecated) keys.push(ctx.t("deprecated"));
  return keys.map((word) => span("nba-soft", word));
}

/**
 * The mark "changed · undo", or a way to take an answer back.
 * @param {Context} ctx
 */
export function changeMark(ctx) {
  const word = span();
  const button = makeButton("nba-link");
  const el = span({ class: "nba-mark", hidden: true }, word, button);
  nameWithin(ctx, button);
  let name = "";
  let shown = "";
  const draw = () => {
    setText(word, shown === "changed" ? `${ctx.t("changed")} · ` : "");
    setText(button, shown && ctx.t(shown === "clear" ? "clear" : "undo"));
    setLabel(button, shown && name ? `${button.textContent}: ${name}` : null);
    el.hidden = shown === "";
  };
  return {
    el,
    button,
    /** @param {string} given */
    rename(given) {
      name = given;
      draw();
    },
    /** @param {"changed"|"clear"|""} what */
    show(what) {
      shown = what;
      draw();
    },
  };
}

/**
 * The box for "no value".
 * @param {Context} ctx
 */
export function noneBox(ctx) {
  const input = makeInput("checkbox");
  const el = h("label", "nba-none", input, ctx.t("no_value"));
  return {
    el,
    input,
    /** @param {string} name */
    rename: (name) => setLabel(input, `${name}: ${ctx.t("no_value")}`),
  };
}
