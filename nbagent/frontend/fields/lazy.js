// @ts-check
// A shape that repeats one around it: a button opens one more level of it.

import { div, fill, makeButton } from "../dom.js";
import { onClick } from "../lifetime.js";
import { containerField } from "./container-field.js";
import { addedContext } from "./field.js";

/** @import { Field, MakeField } from "./field.js" */
/** @import { Draft, SpecNode } from "./spec.js" */

/** A field for a shape that repeats one around it. @type {MakeField} */
export function lazyField(ctx, node, saved, place) {
  const like = findNode(ctx.root, node.of ?? "");
  return containerField(ctx, node, saved, place, (own) => {
    const slot = div("nba-branch");
    const addButton = makeButton("nba-button nba-small");
    const dropButton = makeButton("nba-button nba-small");
    /** @type {Field|null} */
    let field = null;
    let name = "";
    const draw = () => {
      addButton.hidden = field !== null;
      dropButton.hidden = field === null;
    };
    const open = (/** @type {Draft} */ draft) => {
      const shape = { ...emptied(like ?? { ...node, kind: "json" }), label: node.label };
      field = own.make(addedContext(own), shape, draft, {
        depth: place.depth + 1,
        bare: true,
        name,
      });
      fill(slot, field.el);
      draw();
    };
    const close = () => {
      field = null;
      fill(slot);
      draw();
    };
    onClick(own.signal, addButton, () => {
      open(null);
      field?.target()?.focus();
      own.touched();
    });
    onClick(own.signal, dropButton, () => {
      close();
      addButton.focus();
      own.touched();
    });
    if (saved?.open) open(saved.draft ?? null);
    else draw();
    return {
      els: [slot, div("nba-addbar", addButton, dropButton)],
      inputs: [addButton],
      read: (sent) => (field ? { open: true, draft: field.draft(sent) } : null),
      reset: close,
      target: () => field?.target() ?? addButton,
      children: () => field?.children() ?? [],
      rename: (given) => {
        name = given;
        addButton.textContent = own.t("add_one", { name });
        dropButton.textContent = own.t("drop_one", { name });
        field?.rename(name);
      },
    };
  });
}

/**
 * The node of this id, templates and branches included.
 * @param {SpecNode} node
 * @param {string} id
 * @returns {SpecNode|null}
 */
function findNode(node, id) {
  if (node.id === id) return node;
  for (const child of nodesInside(node)) {
    const found = findNode(child, id);
    if (found) return found;
  }
  return null;
}

/**
 * The nodes right inside a node, templates and branches included.
 * @param {SpecNode} node
 */
function nodesInside(node) {
  return [
    ...(node.fields ?? []),
    ...(node.more ? [node.more] : []),
    ...(node.item ? [node.item] : []),
    ...(node.rows ?? []),
    ...(node.entries ?? []).map((entry) => entry.node),
    ...(node.parts ?? []),
    ...(node.branches ?? []).map((branch) => branch.node),
  ];
}

/**
 * The same node without what a document put into it.
 * @param {SpecNode} node
 * @returns {SpecNode}
 */
function emptied(node) {
  const { initial, initial_json: _json, prefilled, provided: _provided, ...rest } = node;
  /** @type {SpecNode} */
  const bare = { ...rest };
  if (initial && !prefilled && !initial.null) bare.initial = initial;
  if (node.fields) bare.fields = node.fields.map(emptied);
  if (node.parts) bare.parts = node.parts.map(emptied);
  if (node.rows) bare.rows = [];
  if (node.entries) bare.entries = [];
  if (node.branches) {
    bare.branches = node.branches.map(({ label, node: own }) => ({ label, node: emptied(own) }));
    bare.branch = null;
  }
  return bare;
}
