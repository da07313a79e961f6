// @ts-check
// A tuple: a fixed number of parts, each of its own kind.

import { div } from "../dom.js";
import { containerField } from "./container-field.js";

/** @import { MakeField } from "./field.js" */

/** A field for a tuple. @type {MakeField} */
export function tupleField(ctx, node, saved, place) {
  return containerField(ctx, node, saved, place, (own) => {
    const fields = (node.parts ?? []).map((part, index) => {
      const name = /^\d*$/.test(part.label) ? own.t("part", { n: index + 1 }) : part.label;
      return own.make(own, part, saved?.parts?.[index] ?? null, { depth: place.depth + 1, name });
    });
    return {
      els: [div("nba-grid", ...fields.map((field) => field.el))],
      read: (sent, always) => {
        const parts = fields.map((field) => field.draft(sent));
        return always || parts.some((part) => part !== null) ? { parts } : null;
      },
      reset: () => {
        for (const field of fields) field.reset();
      },
      target: () => fields[0]?.target() ?? null,
      children: () => fields.map((field, index) => [`/${index}`, field]),
    };
  });
}
