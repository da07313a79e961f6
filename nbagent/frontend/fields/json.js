// @ts-check
// A JSON box: for JSON itself, and at every node whose kind has no controls of its own.

import { div, h, setClass, setText } from "../dom.js";
import { onInput } from "../lifetime.js";
import { controlField } from "./control-field.js";
import { jsonErrorAt } from "./json-error.js";
import { cutLongText } from "./long-text.js";
import { resize } from "./text.js";

/** @import { MakeField } from "./field.js" */
/** @import { Draft } from "./spec.js" */

/** A field in which JSON is typed. @type {MakeField} */
export function jsonField(ctx, node, saved, place) {
  const own = node.kind === "json";
  /** @type {(value: string) => Draft} */
  const wrap = (value) => (own ? { text: value } : { json: { text: value } });
  const unwrap = (/** @type {Draft} */ draft) => draft?.json?.text ?? draft?.text ?? "";
  const start = node.initial_json?.text ?? node.initial?.text;
  const initial = node.initial?.null ? node.initial : start === undefined ? null : wrap(start);
  const input = h("textarea", { class: "nba-code", spellcheck: "false", dir: "ltr" });
  const status = div("nba-status");
  const more = cutLongText(ctx, input, unwrap(initial));
  const check = () => {
    resize(input);
    const where = input.value === "" ? null : jsonErrorAt(input.value);
    setText(status, where === null ? ctx.t("json") : ctx.t("json_broken", where));
    setClass(status, "nba-bad", where !== null);
  };
  onInput(ctx.signal, input, check);
  return controlField(
    ctx,
    node,
    place,
    {
      el: div("nba-control", input, more, status),
      inputs: [input],
      wide: true,
      read: () => (input.value === "" ? null : wrap(input.value)),
      show: (draft) => {
        input.value = unwrap(draft);
        check();
      },
    },
    { initial, saved },
  );
}
