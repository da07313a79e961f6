// @ts-check
// The text of the model: sanitized blocks, with an end that is still open.

import { fill, growText, h, sanitized, span, words } from "../dom.js";

/** @import { TextItem } from "../wire.js" */
/** @import { DrawItem } from "./item.js" */

/** Elements to which text can be added, at their end or in their last child. */
const EXTENDABLE = new Set(
  "P LI UL OL BLOCKQUOTE H4 H5 H6 PRE TABLE THEAD TBODY TR TD TH".split(" "),
);

/** Draws text that may still grow. @type {DrawItem<TextItem>} */
export function drawText(first) {
  const el = words("div", "nba-say");
  const raw = span("nba-raw");
  const rest = span("nba-raw");
  const restParagraph = h("p", {}, rest);
  /** @type {string[]} */
  let blocks = [];
  /** @type {{html: string, nodes: ChildNode[]}} */
  let tail = { html: "", nodes: [] };
  const appendHtml = (/** @type {string} */ html) => {
    const fragment = sanitized(html);
    const nodes = [...fragment.childNodes];
    el.append(fragment);
    return nodes;
  };
  const update = (/** @type {TextItem} */ item) => {
    if (!blocks.every((block, index) => item.blocks[index] === block)) {
      fill(el);
      blocks = [];
      tail = { html: "", nodes: [] };
    }
    const fresh = item.blocks.slice(blocks.length).join("");
    blocks = item.blocks;
    if (fresh !== "" || item.tail !== tail.html) {
      raw.remove();
      restParagraph.remove();
      // The new finished blocks are often the same as the open part before: then its nodes are kept.
      if (fresh === "" || fresh !== tail.html) {
        for (const node of tail.nodes) node.remove();
        appendHtml(fresh);
      }
      tail = { html: item.tail, nodes: appendHtml(item.tail) };
    }
    drawRaw(item.raw);
  };
  /** Shows raw text in the place where it will be drawn. @param {string} value */
  const drawRaw = (value) => {
    const host = openEnd(tail.nodes.at(-1));
    const code = host !== null && host.closest("pre") !== null;
    const end = code ? null : host?.matches("h4, h5, h6") ? /\n/ : /\n\s*\n/;
    const cut = host === null ? 0 : end === null ? -1 : value.search(end);
    const [inside, after] = cut < 0 ? [value, ""] : [value.slice(0, cut), value.slice(cut)];
    growText(raw, code ? inside : joinLines(inside));
    growText(rest, joinLines(after.trimStart()));
    if (inside.trim() === "") raw.remove();
    else if (host && raw.parentNode !== host) host.append(raw);
    if (rest.textContent === "") restParagraph.remove();
    else if (restParagraph.parentNode !== el) el.append(restParagraph);
  };
  update(first);
  return { el, update };
}

/**
 * The deepest last block of the open part, or null if no text can be added to it.
 * @param {ChildNode|undefined} node
 * @returns {Element|null}
 */
function openEnd(node) {
  if (!(node instanceof Element) || !EXTENDABLE.has(node.tagName)) return null;
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
