// @ts-check
// The text of the model: sanitized blocks, with an end that is still open.

import { fill, growText, h, sanitized, span, words } from "../dom.js";

/** Elements whose text can go on, at their end or in their last child. */
const GOES_ON = new Set("P LI UL OL BLOCKQUOTE H4 H5 H6 PRE TABLE THEAD TBODY TR TD TH".split(" "));

/**
 * Draws text that may still be coming.
 * @param {import("../wire.js").TextItem} first
 * @returns {import("./item.js").DrawnItem<import("../wire.js").TextItem>}
 */
export function drawText(first) {
  const el = words("div", "nba-say");
  const raw = span("nba-raw");
  const rest = span("nba-raw");
  const loose = h("p", {}, rest);
  /** @type {string[]} */
  let blocks = [];
  /** @type {{html: string, nodes: ChildNode[]}} */
  let tail = { html: "", nodes: [] };
  const draw = (/** @type {string} */ html) => {
    const made = sanitized(html);
    const nodes = [...made.childNodes];
    el.append(made);
    return nodes;
  };
  const update = (/** @type {import("../wire.js").TextItem} */ item) => {
    if (!blocks.every((block, index) => item.blocks[index] === block)) {
      fill(el);
      blocks = [];
      tail = { html: "", nodes: [] };
    }
    const fresh = item.blocks.slice(blocks.length).join("");
    blocks = item.blocks;
    if (fresh !== "" || item.tail !== tail.html) {
      raw.remove();
      loose.remove();
      // What was open is often just what is now finished: it stays unchanged.
      if (fresh === "" || fresh !== tail.html) {
        for (const node of tail.nodes) node.remove();
        draw(fresh);
      }
      tail = { html: item.tail, nodes: draw(item.tail) };
    }
    goOn(item.raw);
  };
  /** Raw text is in the place where it will be drawn. @param {string} value */
  const goOn = (value) => {
    const host = openEnd(tail.nodes.at(-1));
    const code = host !== null && host.closest("pre") !== null;
    const end = code ? null : host?.matches("h4, h5, h6") ? /\n/ : /\n\s*\n/;
    const cut = host === null ? 0 : end === null ? -1 : value.search(end);
    const [inside, after] = cut < 0 ? [value, ""] : [value.slice(0, cut), value.slice(cut)];
    growText(raw, code ? inside : joinLines(inside));
    growText(rest, joinLines(after.trimStart()));
    if (inside.trim() === "") raw.remove();
    else if (host && raw.parentNode !== host) host.append(raw);
    if (rest.textContent === "") loose.remove();
    else if (loose.parentNode !== el) el.append(loose);
  };
  update(first);
  return { el, update };
}

/**
 * The deepest last block of what is open, or null where text cannot go on in it.
 * @param {ChildNode|undefined} node
 * @returns {Element|null}
 */
function openEnd(node) {
  if (!(node instanceof Element) || !GOES_ON.has(node.tagName)) return null;
  if (node.tagName === "PRE") return node.querySelector("code") ?? node;
  const last = [...node.childNodes].findLast((child) => child.textContent?.trim());
  return openEnd(last) ?? node;
}

/**
 * Prose with its newlines as spaces, unless the next line looks like a block of its own.
 * @param {string} value
 */
function joinLines(value) {
  return value.trimEnd().replace(/\n(?![\s>|#*+\d~`-])/g, " ");
}
