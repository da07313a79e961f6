// @ts-check
// A JSON box: for JSON itself, and at every node whose kind has no controls of its own.

import { h, text } from "../dom.js";
import { on } from "../lifetime.js";
import { broken } from "./broken.js";
import { frame } from "./frame.js";
import { reveal } from "./reveal.js";
import { resize } from "./text.js";

/**
 * @typedef {import("./node.js").Node} Node
 * @typedef {import("./node.js").Draft} Draft
 * @typedef {import("./node.js").Context} Context
 */

/**
 * @param {Context} ctx
 * @param {Node} node
 * @param {Draft} saved
 * @param {import("./node.js").Place} place
 */
export function jsonField(ctx, node, saved, place) {
  const own = node.kind === "json";
  /** @type {(value: string) => Draft} */
  const wrap = (value) => (own ? { text: value } : { json: { text: value } });
  const unwrap = (/** @type {Draft} */ draft) => draft?.json?.text ?? draft?.text ?? "";
  const start = node.initial_json?.text ?? node.initial?.text;
  const initial = node.initial?.null ? node.initial : start === undefined ? null : wrap(start);
  const input = h("textarea", { class: "nba-code", spellcheck: "false", dir: "ltr" });
  const status = h("div", "nba-status");
  const more = reveal(ctx, input, unwrap(initial));
  const check = () => {
    resize(input);
    const where = input.value === "" ? null : broken(input.value);
    text(status, where === null ? ctx.t("json") : ctx.t("json_broken", where));
    status.classList.toggle("nba-bad", where !== null);
  };
  on(ctx.signal, input, "input", check);
  return frame(
    ctx,
    node,
    place,
    {
      el: h("div", "nba-control", input, more, status),
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
