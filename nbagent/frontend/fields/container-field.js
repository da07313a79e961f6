// @ts-check
// The parts around fields that belong together: a fieldset that folds, "no value", undo, errors.

import { attr, div, expand, h, makeButton, setClass, setLabel, setText, words } from "../dom.js";
import { onChange, onClick } from "../lifetime.js";
import { errorLine, helpOf } from "./help.js";
import { changeMark, noneBox, remarks } from "./marks.js";
import { hasContent, isProposed } from "./spec.js";

/**
 * @typedef {import("./spec.js").SpecNode} SpecNode
 * @typedef {import("./spec.js").Draft} Draft
 * @typedef {import("./field.js").Context} Context
 * @typedef {import("./field.js").Field} Field
 * @typedef {import("./field.js").Place} Place
 */
/**
 * The content.
 * @typedef {object} Inside
 * @property {HTMLElement[]} els
 * @property {(sent: boolean, whole: boolean) => Draft} read null where nothing was touched, unless the `whole` is wanted
 * @property {() => void} reset
 * @property {() => boolean} [moved] whether there is a change that no field inside reports
 * @property {() => HTMLElement|null} target
 * @property {() => [string, Field][]} children
 * @property {HTMLElement[]} [inputs] controls of its own, which its errors describe
 * @property {(name: string) => void} [rename]
 */

/** Containers around one from which on it can be folded. */
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
  const started = node.initial?.null === true;
  const error = errorLine(ctx);
  const mark = changeMark(ctx);
  const fixed = node.read_only === true;
  const none = node.nullable && !fixed ? noneBox(ctx) : null;
  const leave = !root && !fixed && !node.required && !node.nullable && isProposed(node);
  const drop = makeButton("nba-link nba-drop", ctx.t("leave_out"));
  // For a call that is approved it is the text that the model received.
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
  if (leave) el.append(drop, div("nba-help nba-left-out", ctx.t("left_out")));
  if (about) el.append(about);
  el.append(body, error.el);

  /** Whether an optional answer that was there is taken out. */
  let out = saved?.cleared === true;
  let open =
    !folds || node.required === true || saved !== null || (ctx.approval && isProposed(node));
  const draw = () => {
    const now = out || (none?.input.checked ? !started : inside.moved?.() === true);
    mark.show(now ? (hasContent(node) || started || ctx.approval ? "changed" : "clear") : "");
    setClass(el, "nba-changed", now);
    setClass(el, "nba-out", out);
    body.hidden = out || none?.input.checked === true || !open;
    if (fold) expand(fold, open);
    if (fold) attr(fold, "aria-controls", body.id);
  };
  const own = {
    ...ctx,
    touched: () => {
      draw();
      ctx.touched();
    },
  };
  const inside = makeInside(own);
  body.append(...inside.els);

  let name = "";
  const rename = (/** @type {string} */ given) => {
    name = given;
    if (legend) setText(fold ?? legend, name);
    else if (root) attr(el, "aria-labelledby", ctx.titleId);
    else setLabel(el, name);
    mark.rename(name);
    none?.rename(name);
    setLabel(drop, `${ctx.t("leave_out")}: ${name}`);
    inside.rename?.(name);
  };
  const reset = () => {
    out = false;
    if (none) none.input.checked = started;
    inside.reset();
    draw();
  };
  const draft = (/** @type {boolean} */ sent) => {
    if (out) return /** @type {Draft} */ ({ cleared: true });
    if (none?.input.checked) return started ? null : /** @type {Draft} */ ({ null: true });
    return inside.read(sent, started);
  };
  if (none) none.input.checked = saved === null ? started : saved.null === true;
  if (none) onChange(ctx.signal, none.input, own.touched);
  onClick(ctx.signal, drop, () => {
    out = true;
    own.touched();
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
    own.touched();
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
      const said = messages.length > 0 ? error.el.id : null;
      for (const one of [el, ...(inside.inputs ?? [])]) attr(one, "aria-describedby", said);
    },
    target: () => (none?.input.checked ? none.input : inside.target()),
    name: () => name,
    rename,
    problem: () => "",
    children: () => (out || none?.input.checked ? [] : inside.children()),
    open: () => {
      open = true;
      draw();
    },
  };
}
