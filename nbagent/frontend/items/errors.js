// @ts-check
// Errors of a refused answer: each at its field, and all of them in a summary that leads there.

import { byPlace, div, fill, h, makeButton, setClass, setText, words } from "../dom.js";
import { onClick } from "../lifetime.js";

/** @import { Field } from "../fields/field.js" */
/** @import { FieldError } from "../wire.js" */
/** @import { CardContext } from "./item.js" */

/**
 * An error message with the fields around its place, outermost first.
 * @typedef {{chain: Field[], message: string, cells?: FieldError["cells"]|undefined}} Placed
 */

/**
 * The summary of what is wrong with a form, and the errors at its fields.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 */
export function errorSummary(card, signal) {
  const status = div({ class: "nba-sr", role: "status" });
  /** @type {Placed[]} */
  let shown = [];
  const title = h("p");
  const list = h("ul");
  const el = div({ class: "nba-errors", role: "alert", tabindex: "-1", hidden: true }, title, list);
  /**
   * Shows the errors in the order of the page, and the first wrong control takes the focus. No errors clears all.
   * @param {Placed[]} found
   * @param {Field|null} root
   */
  const show = (found, root) => {
    const placed = [...found].sort((a, b) => byPage(target(a), target(b)));
    for (const field of root ? fieldsWithin(root) : []) {
      const own = placed.filter((one) => one.chain.at(-1) === field);
      field.fail(
        own.map((one) => one.message),
        own,
      );
    }
    fill(list, ...placed.map((one) => summaryLine(one, signal)));
    shown = placed;
    setText(status, "");
    count();
    const first = placed.map(target).find((one) => one !== null);
    // A single error is visible at its field, so that the summary is for screen readers only.
    setClass(el, "nba-sr", placed.length === 1 && first !== undefined);
    if (placed.length === 0) return;
    for (const { chain } of placed) for (const field of chain) field.open?.();
    (first ?? el).focus();
  };
  const count = () => {
    setText(title, shown.length > 0 ? card.store.tn("errors", shown.length) : "");
    el.hidden = shown.length === 0;
  };
  /**
   * Removes the errors of a field that the person edits: it may be correct now.
   * @param {Node} place
   */
  const edited = (place) => {
    const [gone, left] = [true, false].map((wanted) =>
      shown.filter(({ chain }) => (chain.at(-1)?.el.contains(place) ?? true) === wanted),
    );
    if (!gone?.length || !left) return;
    for (const one of gone) {
      list.children[shown.indexOf(one)]?.remove();
      shown = shown.filter((other) => other !== one);
      one.chain.at(-1)?.fail([]);
    }
    count();
    setText(status, shown.length > 0 ? title.textContent : card.store.t("errors_none"));
  };
  return {
    el,
    status,
    show,
    edited,
    /** Whether something is left to correct. */
    get any() {
      return shown.length > 0;
    },
  };
}

/**
 * The control that an error leads to.
 * @param {Placed} placed
 */
function target({ chain }) {
  return chain.at(-1)?.target() ?? null;
}

/**
 * Orders nodes as in the page; null comes last.
 * @param {Node|null} one
 * @param {Node|null} other
 */
function byPage(one, other) {
  if (!one || !other || one === other) return Number(one === null) - Number(other === null);
  return byPlace(one, other);
}

/**
 * A line of the summary, with a link to the field.
 * @param {Placed} placed
 * @param {AbortSignal} signal
 */
function summaryLine({ chain, message }, signal) {
  const names = chain.slice(1).map((field) => field.name().trim());
  // The name "Tags, item 1" includes "Tags".
  const label = names.filter((name, at) => name && !names[at + 1]?.startsWith(name)).join(" › ");
  if (!label) return words("li", "", message);
  const link = makeButton("nba-link", label);
  const go = () => {
    for (const field of chain) field.open?.();
    const last = chain.at(-1);
    (last?.target() ?? last?.el)?.focus();
  };
  onClick(signal, link, go);
  return words("li", "", link, `: ${message}`);
}

/**
 * A field and all inside it.
 * @param {Field} field
 * @returns {Generator<Field>}
 */
export function* fieldsWithin(field) {
  yield field;
  for (const [, child] of field.children()) yield* fieldsWithin(child);
}

/**
 * The place of an error: its field or the nearest one around it, with the rest of the path before the message.
 * @param {FieldError} error
 * @param {Field|null} root
 * @returns {Placed}
 */
export function placeError({ field: id, message, cells }, root) {
  if (id === null || root === null) return { chain: [], message };
  const chain = [root];
  let rest = id;
  for (;;) {
    const step = /^[/|][^/|]*/.exec(rest)?.[0];
    const next =
      step &&
      chain
        .at(-1)
        ?.children()
        .find(([name]) => name === step)?.[1];
    if (!next) break;
    chain.push(next);
    rest = rest.slice(step.length);
  }
  const isRootObject = chain.length === 1 && root.node.kind === "object";
  const path = rest.replace(/^\//, "");
  return {
    chain: isRootObject ? [] : chain,
    message: path ? `${path}: ${message}` : message,
    cells,
  };
}

/**
 * The fields that are unfinished, as far as the page knows without the kernel.
 * @param {Field} field
 * @param {Field[]} [around]
 * @returns {Placed[]}
 */
export function unfinishedFields(field, around = []) {
  const chain = [...around, field];
  const message = field.problem();
  const inside = field.children().flatMap(([, child]) => unfinishedFields(child, chain));
  return message ? [{ chain, message }, ...inside] : inside;
}
