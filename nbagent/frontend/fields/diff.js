// @ts-check
// What an edit changed, line by line. ../notebook/render/static.py finds the same lines.

import { h } from "../dom.js";

/** Pairs of lines that are compared; beyond, what differs is taken as a whole. */
const MAX_PAIRS = 250_000;

/**
 * Old and new in one: lines that are alike stand once, unmarked.
 * @param {string} before
 * @param {string} after
 * @param {number} [around] how many of the alike lines are shown before and after a change
 * @returns {(string|HTMLElement)[]}
 */
export function difference(before, after, around = Number.POSITIVE_INFINITY) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  if (old.length === 1 && now.length === 1) return [h("del", {}, before), " ", h("ins", {}, after)];
  const least = Math.min(old.length, now.length);
  let head = 0;
  while (head < least && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < least - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  const lines = [
    ...now.slice(0, head).map(unchanged),
    ...fewestChanges(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...now.slice(now.length - tail).map(unchanged),
  ];
  const parts = lines
    .filter((_, at) => isNearChange(lines, at, around))
    .map(([mark, line]) => (mark === " " ? line : h(mark === "-" ? "del" : "ins", {}, line)));
  return parts.flatMap((part, index) => (index > 0 ? ["\n", part] : [part]));
}

/** @typedef {[" "|"-"|"+", string]} Line */

/**
 * A line that both texts have.
 * @param {string} line
 * @returns {Line}
 */
function unchanged(line) {
  return [" ", line];
}

/**
 * Whether a line is one that changed, or stands near one.
 * @param {Line[]} lines
 * @param {number} at
 * @param {number} around
 */
function isNearChange(lines, at, around) {
  if (around === Number.POSITIVE_INFINITY) return true;
  return lines.slice(Math.max(0, at - around), at + around + 1).some(([mark]) => mark !== " ");
}

/**
 * The fewest lines to take out and put in.
 * @param {string[]} old
 * @param {string[]} now
 * @returns {Line[]}
 */
function fewestChanges(old, now) {
  /** @type {(i: number, j: number) => number} How many lines the rests have in common. */
  let common = () => 0;
  if (old.length * now.length <= MAX_PAIRS) {
    const wide = now.length + 1;
    const table = new Uint32Array((old.length + 1) * wide);
    common = (i, j) => table[i * wide + j] ?? 0;
    for (let i = old.length - 1; i >= 0; i--)
      for (let j = now.length - 1; j >= 0; j--)
        table[i * wide + j] =
          old[i] === now[j]
            ? common(i + 1, j + 1) + 1
            : Math.max(common(i + 1, j), common(i, j + 1));
  }
  /** @type {Line[]} */
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j] && common(i, j) > 0) {
      lines.push(unchanged(old[i] ?? ""));
      i++;
      j++;
    } else if (i < old.length && (j === now.length || common(i + 1, j) >= common(i, j + 1)))
      lines.push(["-", old[i++] ?? ""]);
    else lines.push(["+", now[j++] ?? ""]);
  }
  return lines;
}
