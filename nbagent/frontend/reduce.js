// @ts-check
// The effect of the kernel's messages on the view: pure functions that return new objects and leave old ones untouched.

import { long, openEnd } from "./shorthand.js";

/** @import { Block, Item, Op, TextItem, View } from "./wire.js" */

/** The key for a change of the head. */
export const HEAD = "\u0000head";

/**
 * The view after one operation. An operation on a key that is not there
 * changes nothing.
 * @param {View} view
 * @param {Op} op
 * @returns {View}
 */
export function apply(view, op) {
  switch (op.op) {
    case "head":
      return { ...view, head: op.head };
    case "put":
      return { ...view, items: putItem(view.items, op.item, op.index) };
    case "remove":
      return { ...view, items: view.items.filter((item) => item.key !== op.key) };
    case "raw":
      return editItem(view, op.key, (item) => {
        if (item.type === "text") return { ...item, raw: item.raw + op.text };
        if (item.type === "reasoning") return { ...item, text: item.text + op.text };
        return item;
      });
    case "block":
      return editItem(view, op.key, (item) => (item.type === "text" ? extendText(item, op) : item));
    case "print":
      return editItem(view, op.key, (item) =>
        item.type === "call" ? { ...item, printed: item.printed + op.text } : item,
      );
  }
}

/**
 * The text item after a change of its open part; parts that are finished now are added to `blocks`.
 * @param {TextItem} item
 * @param {Block} op
 */
function extendText(item, op) {
  const openPart = openEnd(item.tail, item.raw);
  const html =
    openPart.slice(0, op.start) + long(op.html) + openPart.slice(openPart.length - op.end);
  const finished = op.ends.map((end, index) => html.slice(op.ends[index - 1] ?? 0, end));
  const tail = html.slice(op.ends.at(-1) ?? 0);
  return { ...item, blocks: [...item.blocks, ...finished], tail, raw: op.raw };
}

/**
 * The keys whose items differ between two views, and `HEAD` if the heads differ.
 * @param {View|null} before
 * @param {View} after
 * @returns {Set<string>}
 */
export function changes(before, after) {
  const old = new Map((before?.items ?? []).map((item) => [item.key, item]));
  /** @type {Set<string>} */
  const keys = new Set(before?.head === after.head ? [] : [HEAD]);
  for (const item of after.items) {
    if (old.get(item.key) !== item) keys.add(item.key);
    old.delete(item.key);
  }
  for (const key of old.keys()) keys.add(key);
  return keys;
}

/**
 * The items with this one: it replaces the item of its key, or is inserted at the index.
 * @param {Item[]} items
 * @param {Item} item
 * @param {number} index
 * @returns {Item[]}
 */
function putItem(items, item, index) {
  const at = items.findIndex((other) => other.key === item.key);
  if (at >= 0) return items.with(at, item);
  return items.toSpliced(Math.max(0, Math.min(index, items.length)), 0, item);
}

/**
 * The view with the item of this key changed.
 * @param {View} view
 * @param {string} key
 * @param {(item: Item) => Item} change
 * @returns {View}
 */
function editItem(view, key, change) {
  return { ...view, items: view.items.map((item) => (item.key === key ? change(item) : item)) };
}
