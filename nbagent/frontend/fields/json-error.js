// @ts-check
// The place of an error in JSON text. All browsers report the error, but not all its place.

const TOKEN =
  /\s*(?:("(?:[^"\\\n\r]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|([{}[\],:]))/y;

/** The tokens that may come next: `first` also lets an empty object or list end. */
/** @typedef {"value"|"first value"|"key"|"first key"|"colon"|"comma"|"end"} Wanted */

/**
 * Line and column, from 1, of the first error in JSON text, or null if the text is valid.
 * @param {string} value
 */
export function jsonErrorAt(value) {
  try {
    JSON.parse(value);
    return null;
  } catch {
    const before = value.slice(0, validLength(value)).split("\n");
    return { line: before.length, column: (before.at(-1) ?? "").length + 1 };
  }
}

/**
 * The number of characters of the text that are JSON.
 * @param {string} value
 */
function validLength(value) {
  /** @type {string[]} */
  const open = [];
  /** @type {Wanted|null} */
  let wanted = "value";
  let at = 0;
  while (wanted !== null) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(value);
    const start = found
      ? at + found[0].search(/\S/)
      : at + (/^\s*/.exec(value.slice(at))?.[0].length ?? 0);
    if (!found) return start;
    wanted = nextWanted(wanted, found[1] ? "text" : found[2] ? "scalar" : (found[3] ?? ""), open);
    if (wanted === null) return start;
    at = TOKEN.lastIndex;
  }
  return at;
}

/**
 * The tokens that may come after a token, or null if it is not allowed here.
 * @param {Wanted} wanted
 * @param {string} token
 * @param {string[]} open the brackets that are open, changed
 * @returns {Wanted|null}
 */
function nextWanted(wanted, token, open) {
  const after = () => (open.length > 0 ? "comma" : "end");
  if (token === "}" || token === "]") {
    const may = wanted === "comma" || wanted === (token === "}" ? "first key" : "first value");
    return may && open.pop() === (token === "}" ? "{" : "[") ? after() : null;
  }
  if (wanted === "colon") return token === ":" ? "value" : null;
  if (wanted === "comma") return token !== "," ? null : open.at(-1) === "{" ? "key" : "value";
  if (wanted.endsWith("key")) return token === "text" ? "colon" : null;
  if (wanted === "end") return null;
  if (token === "{" || token === "[") {
    open.push(token);
    return token === "{" ? "first key" : "first value";
  }
  return token === "text" || token === "scalar" ? after() : null;
}
