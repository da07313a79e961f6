// @ts-check
// Values that are only shown: facts of the metadata, read-only and constant nodes.

import { div, h, sanitized, words } from "../dom.js";
import { difference } from "./diff.js";
import { reveal } from "./hidden.js";
import { cutLongText } from "./long-text.js";

/** @import { Fact } from "../wire.js" */
/** @import { Context } from "./field.js" */
/** @import { SpecNode } from "./spec.js" */

/**
 * A definition list of facts, or null for none; with a context, long ones are cut and can be opened.
 * @param {Fact[]} facts
 * @param {Pick<Context, "t"|"hold"|"signal">} [ctx]
 */
export function factList(facts, ctx) {
  if (facts.length === 0) return null;
  const list = h("dl", "nba-kv");
  for (const fact of facts) {
    const value = factValue(fact);
    const more = ctx && cutLongText(ctx, value, `${fact.changed_from ?? ""}${fact.value}`);
    // A value that shows only its changed lines is copied completely: see ../copy.js.
    const wholeValue = fact.changed_from === null ? null : fact.value;
    list.append(words("dt", "", fact.label), h("dd", { "data-whole": wholeValue }, value, more));
  }
  return list;
}

/**
 * The value of a fact, with the earlier value if that is known.
 * @param {Fact} fact
 */
export function factValue({
  code,
  value,
  changed_from: before,
  parts: pieces = [],
  remark = "",
  html,
}) {
  if (html) return div("nba-wide nba-say", sanitized(html));
  const now = pieces.map((each, n) => (n % 2 ? h("mark", { title: remark }, each) : each));
  const shown = now.length > 0 ? now : [value];
  const parts = before === null ? shown : difference(before, value);
  const odd = remark && words("small", "nba-odd", remark);
  return code ? div("nba-mono", ...parts, odd) : words("div", "", ...parts, odd);
}

/**
 * The text of a node that nobody can change.
 * @param {SpecNode} node
 * @param {Pick<Context, "t">} ctx
 */
export function nodeText(node, ctx) {
  return reveal(rawText(node, ctx));
}

/**
 * @param {SpecNode} node
 * @param {Pick<Context, "t">} ctx
 */
function rawText(node, ctx) {
  const { initial } = node;
  if (node.shown !== undefined) return node.shown;
  if (node.secret) return node.provided ? ctx.t("secret") : "";
  if (initial?.null) return ctx.t("no_value");
  if (initial?.bool !== undefined) return ctx.t(initial.bool ? "yes" : "no");
  const picked = [initial?.option ?? [], initial?.options ?? []].flat();
  const labels = picked.map((index) => node.options?.[index]?.label ?? "");
  const written = [
    ...labels,
    ...(initial?.others ?? []),
    ...(initial?.other ? [initial.other] : []),
  ];
  if (written.length > 0) return written.join(", ");
  return initial?.text ?? node.initial_json?.text ?? node.default_text ?? "";
}

/**
 * A fact that the page itself creates.
 * @param {string} label
 * @param {string} value
 * @param {boolean} [code]
 * @param {string|null} [before]
 * @returns {Fact}
 */
export function makeFact(label, value, code = false, before = null) {
  return { label, value, code, changed_from: before };
}

/**
 * A node that nobody can change, as a fact.
 * @param {SpecNode} node
 * @param {Context} ctx
 * @returns {Fact}
 */
export function nodeFact(node, ctx) {
  return makeFact(reveal(node.label), nodeText(node, ctx), true);
}
