// @ts-check
// Characters that a page does not show, or that change the order of the text around them. The kernel has the same
// patterns: ../../core/base/hidden.py.

import { showText, words } from "../dom.js";

/**
 * @typedef {import("./field.js").Context} Context
 * @typedef {import("./spec.js").SpecNode} SpecNode
 * @typedef {import("./spec.js").Draft} Draft
 */

const HIDDEN = [
  String.raw`[\u{0}-\u{8}\u{b}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{600}-\u{605}\u{61c}\u{6dd}\u{70f}`,
  String.raw`\u{890}\u{891}\u{8e2}\u{180e}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{2064}`,
  String.raw`\u{2066}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{110bd}\u{110cd}\u{13430}-\u{1343f}`,
  String.raw`\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}\u{d800}-\u{dfff}`,
  String.raw`\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}`,
  String.raw`\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0f}\u{ffa0}\u{fff0}-\u{fffb}`,
  String.raw`\u{13430}-\u{1345f}\u{e0000}-\u{e0fff}]`,
].join("");
const EMOJI = [
  String.raw`[\u{a9}\u{ae}\u{203c}\u{2049}\u{2122}\u{2139}\u{2194}-\u{21aa}\u{231a}-\u{23ff}`,
  String.raw`\u{24c2}\u{25aa}-\u{25fe}\u{2600}-\u{27bf}\u{2934}\u{2935}\u{2b05}-\u{2b55}\u{3030}`,
  String.raw`\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}]`,
].join("");
const MARK = [
  String.raw`[\u{300}-\u{34e}\u{350}-\u{36f}\u{483}-\u{489}\u{1ab0}-\u{1aff}\u{1dc0}-\u{1dff}`,
  String.raw`\u{20d0}-\u{20f0}\u{fe20}-\u{fe2f}]`,
].join("");

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
