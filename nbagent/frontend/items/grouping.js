// @ts-check
// Questions that are alike are drawn as one table, once there are two and until all are settled.

/** @import { CallItem, FormItem, Item, RecordItem } from "../wire.js" */
/** @import { StretchItem } from "./stretch.js" */
/**
 * Questions that are alike, with the rows or records of those that are settled.
 * @typedef {{type: "group", key: string, items: (FormItem|CallItem|RecordItem)[]}} GroupItem
 */
/** @typedef {Item|GroupItem|StretchItem} Placed */

/**
 * The part of a key that a question and its record have in common.
 * @param {Item} item
 */
export function questionId(item) {
  return item.key.slice(2);
}

/**
 * The decisions on an item's questions: those of a call, or a record itself.
 * @param {Placed} item
 * @returns {RecordItem[]}
 */
export function recordsOf(item) {
  return item.type === "record" ? [item] : item.type === "call" ? (item.decisions ?? []) : [];
}

/**
 * The id of the table's question that an item asks, or whose decision the item records.
 * @param {FormItem|CallItem|RecordItem} item
 * @param {{has: (id: string) => boolean}} ids of the table
 */
export function idIn(item, ids) {
  const asked = item.type === "form" ? [item] : recordsOf(item);
  return asked.map(questionId).find((id) => ids.has(id));
}

/** The turn that a call belongs to. @param {string} key */
const turnOf = (key) => key.slice(0, key.lastIndexOf("."));

/**
 * The items as they are drawn. A table is below the other calls of its turn.
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
  /** @type {Map<string, {table: GroupItem, at: number, turn: string}>} */
  const drawn = new Map();
  /** @type {(Item|null)[]} */
  const left = items.map((item, at) => {
    if (item.type !== "form" && item.type !== "record" && item.type !== "call") return item;
    const group = [...tables].find(([, ids]) => idIn(item, ids) !== undefined)?.[0];
    const known = [...drawn.values()].find(
      ({ turn, at: before }) =>
        item.type === "call" && turn === turnOf(item.key) && before === at - 1,
    );
    if (known) known.at = at;
    if (group === undefined) return item;
    const place = drawn.get(group) ?? {
      table: { type: "group", key: `g:${group}`, items: [] },
      at,
      turn: "",
    };
    place.table.items.push(item);
    place.at = at;
    if (item.type === "form") place.turn = turnOf(item.call);
    drawn.set(group, place);
    return null;
  });
  return left.flatMap((item, at) => [
    ...(item ? [item] : []),
    ...[...drawn.values()].flatMap((place) => (place.at === at ? [place.table] : [])),
  ]);
}
