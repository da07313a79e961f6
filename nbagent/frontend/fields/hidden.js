// @ts-check
// Characters that a page does not show, or that change the order of the text around them. The kernel has the same
// patterns: ../../core/base/hidden.py.

import { showText, words } from "../dom.js";

/** @import { Context } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */

const { raw } = String;
const HIDDEN = [
  raw`[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160`,
  raw`\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff`,
  raw`\uffa0\ufff0-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1345f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]`,
].join("");
const EMOJI = [
  raw`[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935`,
  raw`\u2b05-\u2b55\u3030\u303d\u3297\u3299\u{1f000}-\u{1faff}]`,
].join("");
const MARK = raw`[\u0300-\u034e\u0350-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]`;

const ANY = new RegExp(HIDDEN, "u");
/** An emoji with the selector and joiner that shape it, or a hidden character. */
const JOINED = new RegExp(`(${EMOJI}\\ufe0f?)(?:\\u200d(?=${EMOJI}))?|(${HIDDEN})`, "gu");
/** Combining marks on one letter, beyond the third. */
const STACKED = new RegExp(`(?<=${MARK}{3})${MARK}+`, "gu");
/** Different characters that a note names. */
const MAX_NAMED = 5;

const sign = (/** @type {string} */ char) =>
  `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/**
 * The text with each hidden character as `⟨U+202E⟩`, and marks that are stacked on a letter counted.
 * @param {string} text
 */
export function reveal(text) {
  const shown = text.replace(STACKED, (marks) => `⟨${sign(marks)} ×${[...marks].length}⟩`);
  if (!ANY.test(shown)) return shown;
  return shown.replace(JOINED, (all, _emoji, char) => (char ? `⟨${sign(char)}⟩` : all));
}

/**
 * The hidden characters of a text, each with its first line; empty if there are none.
 * @param {string} text
 * @returns {Map<string, number>}
 */
function hiddenIn(text) {
  /** @type {Map<string, number>} */
  const found = new Map();
  if (reveal(text) === text) return found;
  const add = (/** @type {string} */ char, /** @type {number} */ at) => {
    if (!found.has(sign(char))) found.set(sign(char), text.slice(0, at).split("\n").length);
  };
  for (const one of text.matchAll(JOINED)) if (one[2]) add(one[2], one.index);
  for (const one of text.matchAll(STACKED)) add(one[0], one.index);
  return found;
}

/**
 * A note under a control that names the hidden characters of its value.
 * @param {Context} ctx
 */
export function hiddenNote(ctx) {
  const el = words("div", { class: "nba-hidden", id: ctx.id(), hidden: true });
  const known = new Map(
    ctx
      .t("hidden_names")
      .split(", ")
      .map((each) => [each.split(" ", 1)[0], each]),
  );
  let name = "";
  let what = "";
  const draw = () => showText(el, what && ctx.t("remark_in", { name, what }));
  return {
    el,
    /** @param {string} given the field's name */
    rename(given) {
      name = given;
      draw();
    },
    /** @param {string[]} texts the field's value */
    show(texts) {
      const all = texts.flatMap((text) => {
        const several = text.includes("\n");
        return [...hiddenIn(text)].map(([char, line]) => {
          const named = known.get(char) ?? char;
          return several ? ctx.t("hidden_at", { name: named, line }) : named;
        });
      });
      const different = [...new Set(all)];
      const more = different.length > MAX_NAMED ? [ctx.t("remark_more")] : [];
      what = [...different.slice(0, MAX_NAMED), ...more].join(", ");
      draw();
    },
  };
}

/**
 * The texts of a draft of one control, as they are sent.
 * @param {SpecNode} node
 * @param {Draft} draft
 */
export function textsOf(node, draft) {
  const picked = [draft?.option ?? [], draft?.options ?? []].flat();
  const texts = [draft?.text, draft?.json?.text, draft?.other, ...(draft?.others ?? [])];
  const labels = picked.map((index) => node.options?.[index]?.label);
  return [...texts, ...labels].filter((text) => text !== undefined);
}
