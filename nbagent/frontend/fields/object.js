// @ts-check
// An object: its fields in order, with read-only ones as facts, and further names.

import { div } from "../dom.js";
import { containerField } from "./container-field.js";
import { factList, nodeFact } from "./facts.js";
import { draftsByKey } from "./field.js";
import { stepTo } from "./spec.js";

/** @import { Context, Field, MakeField, Place } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */
/** @import { Fact } from "../wire.js" */

/** A field for an object. @type {MakeField} */
export function objectField(ctx, node, saved, place) {
  return containerField(ctx, node, saved, place, (own) => {
    const grid = div("nba-grid");
    const inner = { depth: place.depth + 1 };
    const fields = children(own, node, saved, inner, grid);
    const further = { ...inner, name: own.t("further"), bare: true };
    const more =
      node.more && !node.read_only ? own.make(own, node.more, saved?.more ?? null, further) : null;
    if (more) grid.append(more.el);
    const all = [...fields, ...(more ? [more] : [])];
    return {
      els: [grid],
      read: (sent, always) => {
        const parts = draftsByKey(fields, sent);
        const extra = more?.draft(sent) ?? null;
        if (!always && extra === null && Object.keys(parts).length === 0) return null;
        return extra === null ? { fields: parts } : { fields: parts, more: extra };
      },
      reset: () => {
        for (const field of all) field.reset();
      },
      target: () => all[0]?.target() ?? null,
      children: () => all.map((field) => [stepTo(field.node), field]),
    };
  });
}

/**
 * Draws the fields of an object into the grid; facts that follow each other share a list.
 * @param {Context} ctx
 * @param {SpecNode} node
 * @param {Draft} saved
 * @param {Place} place
 * @param {HTMLElement} grid
 */
function children(ctx, node, saved, place, grid) {
  /** @type {Field[]} */
  const fields = [];
  /** @type {Fact[]} */
  let facts = [];
  const flush = () => {
    const list = factList(facts, ctx);
    if (list) grid.append(list);
    facts = [];
  };
  for (const own of node.fields ?? []) {
    if (own.kind === "const" && own.hint?.tag === true) continue; // the picked shape already shows it
    const child = node.read_only ? { ...own, read_only: true } : own;
    const fixed = child.read_only || child.kind === "const";
    if (fixed && (child.kind !== "object" || child.initial?.null)) {
      facts.push(nodeFact(child, ctx));
      continue;
    }
    flush();
    const field = ctx.make(ctx, child, saved?.fields?.[child.key] ?? null, place);
    grid.append(field.el);
    fields.push(field);
  }
  flush();
  return fields;
}
