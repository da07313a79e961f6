// @ts-check
// The changes of an edit, line by line. ../notebook/render/static.py finds the same lines.

import { div, h, present } from "../dom.js";

/** The maximum pairs of lines that are compared; above that, the differing part is replaced as one. */
const MAX_PAIRS = 250_000;
/** Pairs of words that are compared in a line, and lines in which words are compared. */
const [MAX_WORD_PAIRS, MAX_WORD_LINES] = [2_500, 40];
/** The number of unchanged lines that are shown before and after a change. */
const AROUND = 3;
/** Words: the parts between blanks and punctuation. */
const WORDS = /([ \t]+|[!-/:-@[-^`{-~])/;

/**
 * Both texts in one. If there are several lines, each is a block, and unchanged lines far from a change are
 * left out. In a changed line the changed words are marked.
 * @param {string} before
 * @param {string} after
 * @param {number} [around] the number of unchanged lines that are shown before and after a change
 * @returns {(string|HTMLElement)[]}
 */
export function difference(before, after, around = AROUND) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  if (old.length === 1 && now.length === 1) {
    const [was, is] = wordChanges(before, after);
    return [h("del", {}, ...was), " ", h("ins", {}, ...is)];
  }
  const lines = lineChanges(old, now);
  const words = changedWords(lines);
  const near = lines.map((_, at) =>
    lines.slice(Math.max(0, at - around), at + around + 1).some(([mark]) => mark !== " "),
  );
  return lines.flatMap(([mark, line], at) => {
    if (!near[at]) return near[at - 1] || at === 0 ? [div("nba-gap", "⋯")] : [];
    const parts = words.get(at) ?? [line];
    if (mark === " ") return [div({}, line)];
    return [div({}, h(mark === "-" ? "del" : "ins", {}, ...parts))];
  });
}

/**
 * Each line with a mark.
 * @param {string[]} old
 * @param {string[]} now
 */
function lineChanges(old, now) {
  const least = Math.min(old.length, now.length);
  let head = 0;
  while (head < least && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < least - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  return [
    ...now.slice(0, head).map(unchanged),
    ...fewestChanges(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...now.slice(now.length - tail).map(unchanged),
  ];
}

/**
 * The words of each removed line and of the added line that replaces it, by line number.
 * @param {Line[]} lines
 */
function changedWords(lines) {
  /** @type {Map<number, (string|HTMLElement)[]>} */
  const found = new Map();
  let left = MAX_WORD_LINES;
  for (let at = 0; at < lines.length; ) {
    const run = (/** @type {string} */ mark, /** @type {number} */ from) => {
      let end = from;
      while (lines[end]?.[0] === mark) end++;
      return end;
    };
    const middle = run("-", at);
    const end = run("+", middle);
    for (let i = 0; at + i < middle && middle + i < end && left > 0; i++, left--) {
      const pair = wordChanges(lines[at + i]?.[1] ?? "", lines[middle + i]?.[1] ?? "");
      found.set(at + i, pair[0]);
      found.set(middle + i, pair[1]);
    }
    at = Math.max(end, at + 1);
  }
  return found;
}

/**
 * An old and a new line, with the words that differ as `b`; without any `b` if less than a third is equal.
 * @param {string} before
 * @param {string} after
 * @returns {[(string|HTMLElement)[], (string|HTMLElement)[]]}
 */
function wordChanges(before, after) {
  const [old, now] = [present(before.split(WORDS)), present(after.split(WORDS))];
  if (old.length * now.length > MAX_WORD_PAIRS) return [[before], [after]];
  const words = lineChanges(old, now);
  const alike = words.reduce(
    (sum, [mark, word]) => sum + (mark === " " ? word.replace(/[ \t]/g, "").length : 0),
    0,
  );
  const most = Math.max(before.length, after.length);
  if (alike * 3 < most) return [[before], [after]];
  return [marked(words, "-"), marked(words, "+")];
}

/**
 * One side of a line: neighbours that differ are one mark.
 * @param {Line[]} words
 * @param {"-"|"+"} side
 */
function marked(words, side) {
  /** @type {Line[]} */
  const parts = [];
  for (const [mark, word] of words.filter(([mark]) => mark === " " || mark === side)) {
    const last = parts.at(-1);
    if (last?.[0] === mark) last[1] += word;
    else parts.push([mark, word]);
  }
  return parts.map(([mark, text]) => (mark === " " ? text : h("b", {}, text)));
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
 * The difference with the fewest removed and added lines; for too many lines, all old and all new lines.
 * @param {string[]} old
 * @param {string[]} now
 * @returns {Line[]}
 */
function fewestChanges(old, now) {
  /** @type {(i: number, j: number) => number} The maximum number of common lines from these places on. */
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
