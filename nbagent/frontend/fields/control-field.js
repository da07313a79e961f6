// @ts-check
// The parts around every control: label, "changed · undo", "no value", help and error.

import { attr, fill, h, setClass, setLabel, setText, words } from "../dom.js";
import { onChange, onClick, onInput } from "../lifetime.js";
import { errorLine, helpOf } from "./help.js";
import { hiddenNote, reveal, textsOf } from "./hidden.js";
import { changeMark, noneBox, remarks } from "./marks.js";
import { sameDraft } from "./spec.js";

/** @import { Context, Control, Field, Place } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */

/** Characters of help that fit under a control that is beside others. */
const ROOM = 60;

/**
 * A field around a control. `initial` is its untouched value, `saved` the value typed before a reload.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Place} place
 * @param {Control} control
 * @param {{initial: Draft, saved: Draft}} drafts
 * @returns {Field}
 */
export function controlField(ctx, node, place, control, { initial, saved }) {
  const { t, signal } = ctx;
  const group = control.group === true;
  const bare = place.depth === 0 || place.bare === true;
  const mark = changeMark(ctx);
  const none = node.nullable ? noneBox(ctx) : null;
  const error = errorLine(ctx);
  const hidden = hiddenNote(ctx);
  const help = place.cell ? [] : helpOf(ctx, node);
  const about = words("div", { class: "nba-help", id: ctx.id() });
  const label = bare ? null : h(group ? "legend" : "label", { dir: "auto" });
  const el = h(group ? "fieldset" : "div", { class: "nba-field" }, label);
  if (control.wide || group) setClass(el, "nba-wide");
  else if ((node.help?.length ?? 0) > ROOM) setClass(el, "nba-roomy");
  if (!bare) el.append(...remarks(ctx, node, initial === null));
  // Without a label there is no line above the control for the mark.
  const below = bare && place.depth > 0;
  const parts = below ? [control.el, mark.el] : [mark.el, control.el];
  el.append(...parts, ...(none ? [none.el] : []), error.el, hidden.el, about);
  if (node.required && !group) attr(control.inputs[0] ?? el, "aria-required", "true");

  let name = "";
  const rename = (/** @type {string} */ given) => {
    const [input] = control.inputs;
    name = reveal(given);
    if (label) setText(label, name);
    if (label && !group && input) {
      input.id ||= ctx.id();
      attr(label, "for", input.id);
    } else if (!label) {
      const named = group || !input ? el : input;
      if (place.depth === 0) attr(named, "aria-labelledby", ctx.titleId);
      else setLabel(named, name);
    }
    none?.rename(name);
    mark.rename(name);
    hidden.rename(name);
    control.rename?.(name);
  };
  /** @type {Draft} The value before "no value" was ticked. */
  let kept = null;
  const draft = () => {
    const now = none?.input.checked ? /** @type {Draft} */ ({ null: true }) : control.read();
    if (sameDraft(now, initial)) return null;
    return now ?? (initial === null ? null : { cleared: true });
  };
  const show = (/** @type {Draft} */ value) => {
    if (none) none.input.checked = value?.null === true;
    control.show(value?.cleared || (none && value?.null) ? null : value);
    draw();
  };
  const draw = () => {
    const now = draft();
    const shown = none?.input.checked || node.secret ? null : control.read();
    hidden.show(textsOf(node, shown));
    const isMarked = now !== null && (initial !== null || ctx.approval);
    const isClearable = now !== null && !isMarked && control.clearable === true && !node.required;
    mark.show(isMarked ? "changed" : isClearable ? "clear" : "");
    setClass(el, "nba-changed", isMarked);
    setClass(el, "nba-null", none?.input.checked === true);
    const isCleared = now?.cleared && node.default_text;
    fill(about, ...(isCleared ? [t("default_is", { value: node.default_text ?? "" })] : help));
    about.hidden = !about.firstChild;
    describe();
  };
  /** Shows an error that the page finds once the person leaves the control, and removes it once it is corrected. */
  const showDoubt = () => {
    const message = control.doubt?.() ?? "";
    if (message === shownDoubt) return;
    shownDoubt = message;
    fail(message ? [message] : []);
  };
  let shownDoubt = "";
  const fail = (/** @type {string[]} */ messages) => {
    error.show(messages);
    setClass(el, "nba-bad", messages.length > 0);
    describe();
  };
  const describe = () => {
    const ids = [error.el, hidden.el, about].flatMap((one) => (one.hidden ? [] : [one.id]));
    for (const input of control.inputs) {
      attr(input, "aria-describedby", ids.join(" ") || null);
      attr(input, "aria-invalid", error.el.hidden ? null : "true");
    }
  };
  const onUse = (/** @type {Event} */ event) => {
    if (none && event.target === none.input) {
      if (event.type === "input") return; // change follows
      if (none.input.checked) {
        kept = control.read();
        control.show(null);
      } else control.show(kept);
    } else if (none?.input.checked && event.target !== mark.button) none.input.checked = false;
    if (event.type !== "input" || shownDoubt) showDoubt();
    draw();
    ctx.touched();
  };
  onInput(signal, el, onUse);
  onChange(signal, el, onUse);
  onClick(signal, mark.button, (event) => {
    show(initial);
    (control.inputs[0] ?? el).focus();
    onUse(event);
  });
  rename(place.name ?? node.label);
  show(saved ?? initial);
  return {
    node,
    el,
    draft: (sent) => ((node.secret || node.kind === "file") && !sent ? null : draft()),
    reset: () => show(initial),
    fail: (messages) => {
      shownDoubt = "";
      fail(messages);
    },
    target: () => control.inputs[0] ?? null,
    name: () => name,
    rename,
    problem: () => (none?.input.checked ? "" : control.problem?.() || control.doubt?.() || ""),
    children: () => [],
  };
}
