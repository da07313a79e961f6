// @ts-check
// The lines under a control: what it is for, its limits, what is wrong.

import { div, h, present, showText } from "../dom.js";
import { reveal } from "./hidden.js";

/** @import { Context } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/** Characters up to which a description is shown at once. */
const SHORT = 240;

/**
 * Text with the parts in backticks as code; nothing else of it is markup.
 * @param {string} value
 * @returns {(string|HTMLElement)[]}
 */
export function withCode(value) {
  const parts = reveal(value).split(/`([^`\n]+)`/);
  return present(parts.map((part, index) => (index % 2 ? h("code", {}, part) : part)));
}

/**
 * A description with its limits. A long one is cut after its first paragraph or sentence, and the rest can be
 * opened.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @returns {(string|HTMLElement)[]}
 */
export function helpOf(ctx, node) {
  const limits =
    node.kind === "tuple" // its number of parts is fixed
      ? []
      : [node.limits ?? []].flat().filter((part) => typeof part === "string" && part);
  const help = node.help ?? "";
  const cut = help.length > SHORT ? help.search(/\n\s*\n|(?<=[.!?])\s/) : -1;
  const start = cut > 0 ? help.slice(0, cut) : help;
  const line = withCode(present([start, ...limits]).join(" · "));
  if (cut <= 0) return line;
  const rest = div({}, ...withCode(help.slice(cut).trim()));
  return [...line, h("details", {}, h("summary", {}, ctx.t("help_more")), rest)];
}

/**
 * The place of a field's errors.
 * @param {Context} ctx
 */
export function errorLine(ctx) {
  const el = div({ class: "nba-err", id: ctx.id(), hidden: true });
  return {
    el,
    /** @param {string[]} messages */
    show(messages) {
      showText(el, messages.join("\n"));
    },
  };
}
