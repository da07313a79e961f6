// @ts-check
// The parts around fields that belong together: a fieldset that folds, "no value", undo, errors.

import { attr, div, expand, h, makeButton, setClass, setLabel, setText, words } from "../dom.js";
import { onChange, onClick } from "../lifetime.js";
import { errorLine, helpOf } from "./help.js";
import { reveal } from "./hidden.js";
import { changeMark, nameWithin, noneBox, remarks } from "./marks.js";
import { hasContent, isProposed } from "./spec.js";

/** @import { Context, Field, Place } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */
/**
 * The content of a container.
 * @typedef {object} Inside
 * @property {HTMLElement[]} els
 * @property {(sent: boolean, always: boolean) => Draft} read null if nothing was touched, unless `always`
 * @property {() => void} reset
 * @property {() => boolean} [moved] whether there is a change that no field inside reports
 * @property {() => HTMLElement|null} target
 * @property {() => [string, Field][]} children
 * @property {HTMLElement[]} [inputs] controls of its own, which its errors describe
 * @property {(name: string) => void} [rename]
 */

/** The number of outer containers from which on a container can be folded. */
const FOLDS = 2;

/**
 * A field around fields: a fieldset with the parts beside its legend.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {Place} place
 * @param {(ctx: Context) => Inside} makeInside
 * @returns {Field}
 */
export function containerField(ctx, node, saved, place, makeInside) {
  const root = place.depth === 0;
  const startsNull = node.initial?.null === true;
  const error = errorLine(ctx);
  const mark = changeMark(ctx);
  const isFixed = node.read_only === true;
  const none = node.nullable && !isFixed ? noneBox(ctx) : null;
  const canLeaveOut = !root && !isFixed && !node.required && !node.nullable && isProposed(node);
  const leaveOutButton = makeButton("nba-link nba-drop", ctx.t("leave_out"));
  // For a call that is approved the help is the text that the model received.
  const help = root && ctx.approval ? [] : helpOf(ctx, node);
  const about = help.length > 0 && words("div", "nba-help", ...help);
  const body = div({ class: "nba-inside", id: ctx.id() });
  const shown = !root && !place.bare;
  const folds = shown && place.depth >= FOLDS;
  const fold = folds ? makeButton("nba-fold") : null;
  const legend = shown ? words("legend", "", fold) : null;
  const el = h("fieldset", root ? "nba-box" : "nba-box nba-field nba-wide", legend);
  if (shown && node.kind === "object") setClass(el, "nba-nested");
  if (shown) el.append(...remarks(ctx, node, !hasContent(node)));
  el.append(mark.el);
  if (none) el.append(none.el);
  if (canLeaveOut) el.append(leaveOutButton, div("nba-help nba-left-out", ctx.t("left_out")));
  if (about) el.append(about);
  el.append(body, error.el);

  /** Whether an optional answer is left out. */
  let isLeftOut = saved?.cleared === true;
  let open =
    !folds || node.required === true || saved !== null || (ctx.approval && isProposed(node));
  const draw = () => {
    const isChanged = isLeftOut || (none?.input.checked ? !startsNull : inside.moved?.() === true);
    mark.show(
      isChanged ? (hasContent(node) || startsNull || ctx.approval ? "changed" : "clear") : "",
    );
    setClass(el, "nba-changed", isChanged);
    setClass(el, "nba-out", isLeftOut);
    body.hidden = isLeftOut || none?.input.checked === true || !open;
    if (fold) expand(fold, open);
    if (fold) attr(fold, "aria-controls", body.id);
  };
  const named = legend ?? el;
  if (!root) named.id ||= ctx.id();
  nameWithin(ctx, fold);
  nameWithin(ctx, leaveOutButton);
  const innerContext = {
    ...ctx,
    within: root ? [] : [named.id, ...(ctx.within ?? [])],
    touched: () => {
      draw();
      ctx.touched();
    },
  };
  const inside = makeInside(innerContext);
  body.append(...inside.els);

  let name = "";
  const rename = (/** @type {string} */ given) => {
    name = reveal(given);
    if (legend) setText(fold ?? legend, name);
    else if (root) attr(el, "aria-labelledby", ctx.titleId);
    else setLabel(el, name);
    mark.rename(name);
    none?.rename(name);
    setLabel(leaveOutButton, `${ctx.t("leave_out")}: ${name}`);
    inside.rename?.(name);
  };
  const reset = () => {
    isLeftOut = false;
    if (none) none.input.checked = startsNull;
    inside.reset();
    draw();
  };
  const draft = (/** @type {boolean} */ sent) => {
    if (isLeftOut) return /** @type {Draft} */ ({ cleared: true });
    if (none?.input.checked) return startsNull ? null : /** @type {Draft} */ ({ null: true });
    return inside.read(sent, startsNull);
  };
  if (none) none.input.checked = saved === null ? startsNull : saved.null === true;
  if (none) onChange(ctx.signal, none.input, innerContext.touched);
  onClick(ctx.signal, leaveOutButton, () => {
    isLeftOut = true;
    innerContext.touched();
    mark.button.focus();
  });
  if (fold)
    onClick(ctx.signal, fold, () => {
      open = !open;
      draw();
    });
  onClick(ctx.signal, mark.button, () => {
    reset();
    (none?.input.checked ? none.input : inside.target())?.focus();
    innerContext.touched();
  });
  rename(place.name ?? node.label);
  draw();
  return {
    node,
    el,
    draft,
    reset,
    fail: (messages) => {
      error.show(messages);
      setClass(el, "nba-bad", messages.length > 0);
      const errorId = messages.length > 0 ? error.el.id : null;
      for (const one of [el, ...(inside.inputs ?? [])]) attr(one, "aria-describedby", errorId);
    },
    target: () => (none?.input.checked ? none.input : inside.target()),
    name: () => name,
    rename,
    problem: () => "",
    children: () => (isLeftOut || none?.input.checked ? [] : inside.children()),
    open: () => {
      open = true;
      draw();
    },
  };
}
