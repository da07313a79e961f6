// @ts-check
// All typed values: text, numbers, decimals, durations, code. The typed text is the state.

import {
  announce,
  attr,
  div,
  fill,
  h,
  makeButton,
  makeInput,
  sanitized,
  setClass,
  setLabel,
  setText,
  span,
} from "../dom.js";
import { on, onClick, onInput } from "../lifetime.js";
import { controlField } from "./control-field.js";
import { difference } from "./diff.js";
import { reveal } from "./hidden.js";
import { cutLongText, lineCount } from "./long-text.js";
import { NUMBERS, numberError } from "./numbers.js";
import { hintedWidget } from "./spec.js";

/** @import { Context, Control, MakeField } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */
/** @typedef {HTMLInputElement|HTMLTextAreaElement} Input */

/** @type {Record<string, string>} */
const INPUT_MODES = {
  int: "numeric",
  num: "decimal",
  decimal: "decimal",
  email: "email",
  uri: "url",
};

/** Characters that fit in an input beside others, in a full line on a narrow page, and in a line that may scroll. */
const [SHORT, NARROW, ROOMY] = [24, 34, 60];
/** Characters that a cell of a table shows for sure. */
const CELL = 12;

/** A field for all that is typed. @type {MakeField} */
export function textField(ctx, node, saved, place) {
  const initial = node.secret ? null : (node.initial ?? null);
  const room = !ctx.approval ? ROOMY : place.cell ? CELL : NARROW;
  const long = isLong(node, initial?.text ?? "", room);
  const input = long ? areaFor(node) : lineFor(node);
  const control = textControl(ctx, node, input, initial);
  return controlField(ctx, node, place, control, { initial, saved });
}

/**
 * The control around a text input or a textarea.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Input} input
 * @param {Draft} initial
 * @returns {Control}
 */
function textControl(ctx, node, input, initial) {
  const start = initial?.text ?? "";
  const crlf = /\r\n/.test(start) && !/[^\r]\n/.test(start);
  const block = input instanceof HTMLTextAreaElement;
  const changes = ctx.approval && block && node.kind !== "json" ? changeView(ctx, start) : null;
  const slide = node.range ? slider(ctx, input, node.range) : null;
  const empty = emptyText(ctx, node, input);
  const caret = block && node.kind === "code" ? caretLine(ctx, input, language(node)) : null;
  /** Colored code that lies over the text until the person edits it. */
  const tint = node.tint
    ? div({ class: "nba-tint", "aria-hidden": "true", dir: "ltr" }, sanitized(node.tint))
    : null;
  const box = tint ? div("nba-tinted", input, tint) : input;
  /** The last shown value, and the control's value for it: a control may normalize. */
  let last = { draft: /** @type {Draft} */ (null), value: "" };
  const draw = () => {
    if (block) resize(input);
    slide?.draw();
    changes?.draw(input.value);
    if (tint) tint.hidden = input.value !== start.replace(/\r\n/g, "\n");
  };
  onInput(ctx.signal, input, draw);
  return {
    el: div(
      "nba-control",
      slide ? div("nba-slider", slide.el, input) : box,
      block && cutLongText(ctx, box, start),
      caret,
      changes?.el,
      empty.el,
    ),
    inputs: [input],
    wide: block || start.length > SHORT || slide !== null,
    read: () => {
      if (empty.asked()) return { empty: true };
      if (input.value === last.value) return last.draft;
      if (input.value === "") return null;
      return { text: crlf ? input.value.replace(/\n/g, "\r\n") : input.value };
    },
    doubt: () => {
      const typed = input.value === last.value ? "" : input.value.trim();
      return typed && ctx.t(numberError(node.kind, typed));
    },
    show: (draft) => {
      empty.set(draft?.empty === true && !initial?.empty);
      input.value = draft?.text ?? "";
      last = { draft, value: input.value };
      draw();
    },
    rename: (name) => slide && setLabel(slide.el, name),
  };
}

/**
 * The offer to answer with empty text, shown once the person has removed all text.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Input} input
 */
function emptyText(ctx, node, input) {
  const plain = node.kind === "text" && !node.format && !node.secret;
  const button = makeButton("nba-link", ctx.t("use_empty"));
  const el = div({ class: "nba-emptied", hidden: true }, button);
  const usual = placeholder(ctx, node);
  let asked = false;
  const set = (/** @type {boolean} */ on) => {
    asked = on;
    el.hidden = true;
    input.placeholder = on ? ctx.t("empty_text") : usual;
  };
  onInput(ctx.signal, input, () => {
    set(false);
    el.hidden = !plain || input.value !== "";
  });
  onClick(ctx.signal, button, () => {
    set(true);
    input.focus();
    announce(input);
  });
  return { el, set, asked: () => asked };
}

/**
 * A slider that writes into the text.
 * @param {Context} ctx
 * @param {Input} input
 * @param {{min: number, max: number, step?: number}} range
 */
function slider(ctx, input, { min, max, step = (max - min) / 100 }) {
  const el = makeInput("range", { min, max, step });
  onInput(ctx.signal, el, () => {
    input.value = el.value;
    draw();
  });
  const draw = () => {
    const value = input.value.trim() === "" ? Number.NaN : Number(input.value);
    setClass(el, "nba-unset", Number.isNaN(value));
    if (!Number.isNaN(value)) el.value = String(value);
  };
  return { el, draw };
}

/**
 * The changes of an edit of long text, line by line.
 * @param {Context} ctx
 * @param {string} start
 */
function changeView(ctx, start) {
  const box = div("nba-mono");
  const el = div({ class: "nba-diff", hidden: true }, box);
  attr(el, "role", "group");
  setLabel(el, ctx.t("changed"));
  const draw = (/** @type {string} */ value) => {
    const [old = "", now = ""] = [start, value].map((text) => reveal(text.replace(/\r\n/g, "\n")));
    el.hidden = old === now || old === "" || (lineCount(old) < 2 && lineCount(now) < 2);
    fill(box, ...(el.hidden ? [] : difference(old, now, 1)));
  };
  return { el, draw };
}

/**
 * Whether a value needs more than one line.
 * @param {SpecNode} node
 * @param {string} value
 * @param {number} room characters that one line may have
 */
function isLong(node, value, room) {
  if (node.secret || node.format) return value.includes("\n");
  if (node.kind === "code" || node.multiline || hintedWidget(node) === "textarea") return true;
  return value.includes("\n") || value.length > room;
}

/**
 * The input of one line for a node.
 * @param {SpecNode} node
 */
function lineFor(node) {
  return makeInput(node.secret ? "password" : "text", {
    inputmode: INPUT_MODES[node.format ?? node.kind],
    autocomplete: node.secret ? "new-password" : "off",
    autocapitalize: "off",
    spellcheck: node.kind === "text" && !node.format ? null : "false",
    class: NUMBERS.has(node.kind) ? "nba-number" : null,
    dir: "auto",
  });
}

/**
 * The input of several lines for a node.
 * @param {SpecNode} node
 */
function areaFor(node) {
  const code = node.kind === "code";
  return h("textarea", {
    class: code ? "nba-code" : null,
    rows: 1,
    spellcheck: code ? "false" : null,
    dir: code ? "ltr" : "auto",
  });
}

/**
 * An example, never a label and never the default.
 * @param {Context} ctx
 * @param {SpecNode} node
 */
function placeholder(ctx, node) {
  if (node.secret) return node.provided ? ctx.t("secret") : "";
  const hint = node.hint?.placeholder;
  if (typeof hint === "string") return hint;
  const example = node.examples?.[0] ?? (node.kind === "duration" ? "P1DT2H30M" : "");
  return example && ctx.t("example", { value: String(example) });
}

/**
 * The name of the code's language.
 * @param {SpecNode} node
 */
function language(node) {
  const hint = node.hint?.code;
  const name = typeof hint === "string" ? hint : (hintedWidget(node).split(":")[1] ?? "");
  return name.length <= 4 ? name.toUpperCase() : name[0]?.toUpperCase() + name.slice(1);
}

/**
 * The line under code: its language, and the caret's position while the input has the focus.
 * @param {Context} ctx
 * @param {HTMLTextAreaElement} input
 * @param {string} language
 */
function caretLine(ctx, input, language) {
  const where = span();
  const el = div("nba-status", language && span({}, language), where);
  const draw = () => {
    const before = input.value.slice(0, input.selectionEnd ?? 0).split("\n");
    const column = (before.at(-1) ?? "").length + 1;
    setText(where, ctx.t("caret", { line: before.length, column }));
  };
  const clear = () => setText(where, "");
  for (const type of /** @type {const} */ (["focus", "keyup", "click", "input"]))
    on(ctx.signal, input, type, draw);
  on(ctx.signal, input, "blur", clear);
  return el;
}

/**
 * Sets the rows for what is typed, where the browser cannot size a textarea by its content.
 * @param {Input} input
 */
export function resize(input) {
  if (input instanceof HTMLTextAreaElement)
    input.rows = Math.min(Math.max(lineCount(input.value), 1), 40);
}
