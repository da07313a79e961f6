// @ts-check
// Consecutive calls of one tool: one row that can be opened to see each call.

import { attr, div, focused, focusInPlace, h, setLabel, setText, span } from "../dom.js";
import { duration } from "../format.js";
import { nextFrame, on } from "../lifetime.js";
import { isRich, rowParts } from "./call.js";

/** @import { CallItem } from "../wire.js" */
/** @import { Placed } from "./grouping.js" */
/** @import { DrawItem } from "./item.js" */
/**
 * Consecutive calls of one tool; `open` if its rows are shown.
 * @typedef {{type: "stretch", key: string, items: CallItem[], open?: boolean}} StretchItem
 */

/** The number of calls from which on they are one row; see static.py. */
const STRETCH = 3;
/** More calls of one tool in a turn are one row while they run, too: the page does not grow by all their rows. */
const CROWD = 40;
/** The number of decisions that the row names. */
const MAX_BRIEFS = 9;
/** Items that are drawn for the first time in one frame: a page that draws hundreds at once is blocked. */
export const AT_ONCE = 40;

/** @param {CallItem} item */
const isUnsettled = ({ state }) => state === "preparing" || state === "running";

/** The turn that a call belongs to, by its key, and its tool. @param {CallItem} item */
const toolOf = ({ key, name }) => `${key.slice(0, key.lastIndexOf("."))} ${name}`;

/**
 * The items with quiet calls folded. A call is not folded if it failed, has a decision, or shows a table or a
 * picture, or while a call of that tool and turn still runs, unless these are a crowd. `stretches` in static.py finds
 * the same.
 * @param {Placed[]} items
 * @returns {Placed[]}
 */
export function foldStretches(items) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  const unsettled = new Set();
  for (const item of items) {
    if (item.type !== "call") continue;
    counts.set(toolOf(item), (counts.get(toolOf(item)) ?? 0) + 1);
    if (isUnsettled(item)) unsettled.add(toolOf(item));
  }
  const kindOf = (/** @type {Placed} */ item) =>
    item.type === "call" &&
    (item.state === "done" || isUnsettled(item)) &&
    !item.decisions?.length &&
    !isRich(item) &&
    (!unsettled.has(toolOf(item)) || (counts.get(toolOf(item)) ?? 0) > CROWD) &&
    `${item.path}\n${item.name}`;
  /** @type {Placed[][]} */
  const alike = [];
  /** @type {string|false} */
  let kind = false;
  for (const item of items) {
    /** @type {string|false} */
    const before = kind;
    kind = kindOf(item);
    if (kind && kind === before) alike.at(-1)?.push(item);
    else alike.push([item]);
  }
  return alike.flatMap((part) => {
    const calls = /** @type {CallItem[]} */ (part);
    const key = `f:${part[0]?.key}`;
    return calls.length < STRETCH ? part : { type: "stretch", key, items: calls };
  });
}

/** Draws a stretch of calls. Its rows are drawn only once it is open. @type {DrawItem<StretchItem>} */
export function drawStretch({ items: [one] }, card) {
  const { store } = card;
  const { dot, path, name, brief, time, draw } = rowParts(card);
  const times = span("nba-times");
  const body = div("nba-body");
  const el = h(
    "details",
    { class: "nba-call nba-stretch" },
    h("summary", {}, dot, path, name, times, brief, time),
    body,
  );
  if (one) draw(one);
  /** @type {CallItem[]} */
  let items = [];
  /** @type {Map<Element|null, CallItem>} The rows, each with the item that it shows. */
  const rows = new Map();
  const drawRows = () => {
    const active = focused();
    let fresh = 0;
    for (const [index, item] of el.open ? items.entries() : []) {
      const current = body.children[index] ?? null;
      if (rows.get(current) === item) continue;
      if (fresh++ >= AT_ONCE) {
        nextFrame(card.signal, drawRows);
        break;
      }
      const row = card.row(item);
      rows.set(row, item);
      if (row !== current) body.insertBefore(row, current);
    }
    if (body.contains(active) && focused() !== active) focusInPlace(active);
  };
  on(card.signal, el, "toggle", drawRows);
  const update = (/** @type {StretchItem} */ next) => {
    items = next.items;
    const done = items.filter((item) => !isUnsettled(item)).length;
    const m = items.length;
    setText(times, store.t(done < m ? "times_of" : "times", { n: done, m }));
    el.dataset.state = done < m ? "running" : "done";
    setLabel(dot, store.t(`state_${el.dataset.state}`));
    el.dataset.n = String(items.length);
    const briefs = items.slice(0, MAX_BRIEFS).map((item) => item.brief);
    setText(brief, briefs.join(" · "));
    const known = items.flatMap(({ elapsed }) => elapsed ?? []);
    const sum = known.reduce((total, each) => total + each, 0);
    setText(time, known.length ? duration(store, sum) : "");
    attr(el, "open", next.open);
    drawRows();
  };
  return { el, update };
}
