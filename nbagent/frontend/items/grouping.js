// @ts-check
// Questions that are alike are drawn as one table, from the second on until all are settled.

/**
 * @typedef {import("../wire.js").Item} Item
 * @typedef {import("../wire.js").FormItem} FormItem
 * @typedef {import("../wire.js").RecordItem} RecordItem
 */
/**
 * Questions that are alike, with the records of those that are settled.
 * @typedef {{type: "group", key: string, items: (FormItem|RecordItem)[]}} GroupItem
 */

/**
 * The part of a key that a question and its record have in common.
 * @param {Item} item
 */
export function questionId(item) {
  return item.key.slice(2);
}

/**
 * The items as they are drawn. A table stands where its first question does.
 * @param {Item[]} items
 * @param {Map<string, Set<string>>} tables the ids in each table that is drawn; kept up to date
 * @returns {(Item|GroupItem)[]}
 */
export function groupAlike(items, tables) {
  /** @type {Map<string, string[]>} */
  const open = new Map();
  for (const item of items)
    if (item.type === "form" && item.group)
      open.set(item.group, [...(open.get(item.group) ?? []), questionId(item)]);
  for (const group of tables.keys()) if (!open.has(group)) tables.delete(group);
  for (const [group, ids] of open)
    if (ids.length > 1 || tables.has(group))
      tables.set(group, new Set([...(tables.get(group) ?? []), ...ids]));
  /** @type {Map<string, GroupItem>} */
  const drawn = new Map();
  return items.flatMap((item) => {
    /** @type {(Item|GroupItem)[]} */
    const alone = [item];
    if (item.type !== "form" && item.type !== "record") return alone;
    const group = [...tables].find(([, ids]) => ids.has(questionId(item)))?.[0];
    const table = drawn.get(group ?? "");
    if (group === undefined) return alone;
    if (table) {
      table.items.push(item);
      return [];
    }
    /** @type {GroupItem} */
    const first = { type: "group", key: `g:${group}`, items: [item] };
    drawn.set(group, first);
    return [first];
  });
}
