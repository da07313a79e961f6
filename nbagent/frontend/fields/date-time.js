// @ts-check
// Dates and times, with an offset that is always shown. No time is converted, and a naive time stays naive.

import { div, h, makeInput, setLabel } from "../dom.js";
import { onInput } from "../lifetime.js";
import { controlField } from "./control-field.js";

/** @import { Context, MakeField } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */

/** The part for the native control of each format, then the offset. */
const SHAPES = {
  date: /^(\d{4}-\d\d-\d\d)()$/,
  time: /^(\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?$/,
  "date-time": /^(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?$/,
};
/** @type {Record<string, string>} */
const TYPES = { date: "date", time: "time", "date-time": "datetime-local" };
/** The offset of the browser at the chosen time. */
const HERE = "here";

/**
 * Whether a native control can show this text of a field; a secret has none.
 * @param {SpecNode} node
 * @param {string} [text]
 */
export function fitsDateTime({ format, secret }, text) {
  const shape = SHAPES[/** @type {keyof typeof SHAPES} */ (format)];
  return shape && !secret && (!text || shape.test(text));
}

/** A field for a date, a time or both. @type {MakeField} */
export function dateTimeField(ctx, node, saved, place) {
  const initial = node.initial ?? null;
  const format = /** @type {keyof typeof SHAPES} */ (node.format);
  const start = initial?.text ?? "";
  const step = /\.\d/.test(start) ? "0.001" : /:\d\d:\d\d/.test(start) ? "1" : null;
  const input = makeInput(TYPES[format], { step });
  const startOffset = SHAPES[format].exec(start)?.[2];
  const zone = format === "date" ? null : zoneSelect(ctx, startOffset);
  // A time of day has an offset only where it came with one.
  const defaultOffset = start === "" ? (format === "date-time" ? HERE : "") : (startOffset ?? "");
  /** @type {{draft: Draft, value: string, offset: string}} The last shown draft, and the values of the controls for it. */
  let last = { draft: null, value: "", offset: defaultOffset };
  const draw = () => zone?.draw(format === "date-time" ? input.value : "");
  onInput(ctx.signal, input, draw);
  const control = {
    el: div("nba-control nba-moment", input, zone?.el),
    inputs: [input, ...(zone ? [zone.el] : [])],
    wide: zone !== null,
    read: () => {
      const offset = zone?.el.value ?? "";
      if (input.value === last.value && offset === last.offset) return last.draft;
      if (input.value === "") return null;
      const seconds = format === "date" || /:\d\d:/.test(input.value) ? "" : ":00";
      return { text: input.value + seconds + (zone?.offset(input.value) ?? "") };
    },
    show: (/** @type {Draft} */ draft) => {
      const found = SHAPES[format].exec(draft?.text ?? "");
      input.value = found?.[1] ?? "";
      zone?.pick(found ? (found[2] ?? "") : defaultOffset);
      draw();
      last = { draft, value: input.value, offset: zone?.el.value ?? "" };
    },
    rename: (/** @type {string} */ name) => zone && setLabel(zone.el, `${name}: ${ctx.t("zone")}`),
    problem: () => (input.validity?.badInput ? ctx.t("unfinished") : ""),
  };
  return controlField(ctx, node, place, control, { initial, saved });
}

/**
 * A list of offsets, including the browser's offset and no offset.
 * @param {Context} ctx
 * @param {string|undefined} known an offset that must be in the list
 */
function zoneSelect(ctx, known) {
  const here = h("option", { value: HERE });
  const all = Array.from({ length: 53 }, (_, index) => index * 30 - 720);
  const odd = [345, 525, 765];
  const offsets = [...all, ...odd]
    .sort((a, b) => a - b)
    .map((minutes) => (minutes ? offsetOf(minutes) : "Z"));
  const listed = [...new Set([...(known ? [known] : []), ...offsets])];
  const el = h(
    "select",
    "nba-zone",
    here,
    h("option", { value: "" }, ctx.t("no_zone")),
    ...listed.map((zone) => h("option", { value: zone }, zoneName(zone))),
  );
  const offset = (/** @type {string} */ at) => {
    if (el.value !== HERE) return el.value;
    const when = at.includes("T") ? new Date(at) : new Date();
    return offsetOf(-when.getTimezoneOffset());
  };
  return {
    el,
    offset,
    /** Shows the browser's own offset at that time, which differs between summer and winter. @param {string} at */
    draw(at) {
      const when = at === "" ? new Date() : new Date(at);
      here.textContent = ctx.t("zone_here", {
        zone: zoneName(offsetOf(-when.getTimezoneOffset())),
      });
    },
    /** @param {string} zone */
    pick(zone) {
      el.value = zone;
    },
  };
}

/**
 * The name of an offset.
 * @param {string} zone
 */
function zoneName(zone) {
  return zone === "Z" ? "UTC" : `UTC${zone.replace("-", "−")}`;
}

/**
 * An offset in minutes as ISO 8601 writes it.
 * @param {number} minutes
 */
function offsetOf(minutes) {
  const two = (/** @type {number} */ n) => String(Math.floor(n)).padStart(2, "0");
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(size / 60)}:${two(size % 60)}`;
}
