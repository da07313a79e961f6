// @ts-check
// The data of a form from the kernel: the nodes of its spec, and the drafts that are sent back.

import { isEqual } from "../dom.js";

/**
 * A node of a form's spec.
 * @typedef {object} SpecNode
 * @property {string} id a path: root "", property "/amount"
 * @property {string} key
 * @property {string} kind
 * @property {string} label
 * @property {string} [help]
 * @property {boolean} [required]
 * @property {boolean} [nullable]
 * @property {boolean} [has_default]
 * @property {string} [default_text]
 * @property {boolean} [read_only]
 * @property {boolean} [secret]
 * @property {boolean} [deprecated]
 * @property {unknown} [limits]
 * @property {{widget?: unknown, placeholder?: unknown, code?: unknown, tag?: unknown}|null} [hint]
 * @property {string[]} [examples]
 * @property {Draft} [initial] the draft that shows the prefill or default
 * @property {{text: string}} [initial_json] the same as JSON text, for kinds drawn as a JSON box
 * @property {boolean} [prefilled] whether `initial` comes from a document
 * @property {string} [shown] the text of a node that is only shown
 * @property {string} [format]
 * @property {boolean} [multiline]
 * @property {string} [tint] of code: its prefill in colors, as HTML that the kernel sanitized
 * @property {SpecNode[]} [fields] of an object
 * @property {SpecNode} [more] of an object: names beyond its fields
 * @property {boolean} [provided] whether there is a secret that is not shown
 * @property {Option[]} [options] of a choice or multi
 * @property {boolean} [other] whether there is a write-in
 * @property {{min: number, max: number, step?: number}} [range] of a slider
 * @property {SpecNode} [item] of a list, table or map: the node of a new row
 * @property {SpecNode[]} [rows] of a list or table
 * @property {string} [cells] of a grid: its rows, as JSON
 * @property {[row: number, column: number, what: string][]} [marks] of a grid: cells that a person must check
 * @property {{code: string, texts: Record<string, string>}} [module] of a grid: what draws it
 * @property {{key: string, node: SpecNode}[]} [entries] of a map
 * @property {string[]} [key_options] of a map: the names there can be
 * @property {SpecNode[]} [parts] of a tuple
 * @property {{label: string, node: SpecNode}[]} [branches] of a union
 * @property {number|null} [branch] of a union: the one the prefill takes
 * @property {string} [of] of a lazy node: the id of the node whose shape it has
 */
/** @typedef {{label: string, help?: string}} Option */
/**
 * A tree shaped like the nodes; null is a field that nobody touched.
 * @typedef {DraftParts|null} Draft
 */
/**
 * @typedef {object} DraftParts
 * @property {string} [text]
 * @property {true} [cleared] emptied by the person
 * @property {true} [empty] empty text, asked for
 * @property {true} [null]
 * @property {boolean} [bool]
 * @property {number} [option]
 * @property {string} [other]
 * @property {number[]} [options]
 * @property {string[]} [others]
 * @property {Record<string, Draft>} [fields]
 * @property {Draft} [more]
 * @property {{from: number|null, draft: Draft}[]} [rows]
 * @property {{from: string|null, key: string, draft: Draft}[]} [entries]
 * @property {Draft[]} [parts]
 * @property {number} [branch]
 * @property {true} [open]
 * @property {Draft} [draft]
 * @property {string} [file] base64
 * @property {string} [name]
 * @property {{text: string}} [json]
 * @property {import("../grid-model.js").Changes} [grid]
 */

/**
 * Whether two drafts are equal.
 * @param {Draft|undefined} a
 * @param {Draft|undefined} b
 */
export function sameDraft(a, b) {
  if (!a || !b) return !a && !b;
  return isEqual(a, b);
}

/**
 * The control that a hint asks for, or "".
 * @param {SpecNode} node
 */
export function hintedWidget(node) {
  const widget = node.hint?.widget;
  return typeof widget === "string" ? widget : "";
}

/**
 * The step that leads to a node from the one around it.
 * @param {SpecNode} node
 */
export function stepTo(node) {
  return node.id.slice(Math.max(node.id.lastIndexOf("/"), node.id.lastIndexOf("|")));
}

/**
 * Whether there is anything to see in a node before it is touched.
 * @param {SpecNode} node
 * @returns {boolean}
 */
export function hasContent(node) {
  const inner = [...(node.fields ?? []), ...(node.parts ?? [])];
  const some = (node.rows?.length ?? 0) + (node.entries?.length ?? 0) > 0;
  if (some || node.initial || node.initial_json || inner.some(hasContent)) return true;
  const branch = node.branches?.[node.branch ?? -1];
  return branch !== undefined && hasContent(branch.node);
}

/**
 * Whether a document put something into a node, or into what is inside it.
 * @param {SpecNode} node
 * @returns {boolean}
 */
export function isProposed(node) {
  const branch = node.branches?.[node.branch ?? -1];
  const inner = [
    ...(node.fields ?? []),
    ...(node.parts ?? []),
    ...(node.rows ?? []),
    ...(node.entries ?? []).map((entry) => entry.node),
    ...(branch ? [branch.node] : []),
  ];
  return node.prefilled === true || inner.some(isProposed);
}
