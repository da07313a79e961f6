// @ts-check
// What the kernel says about a form: the nodes of its spec, and the drafts that go back.

import { equal, h, words } from "../dom.js";

/**
 * @typedef {object} Node
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
 * @property {unknown} [hint]
 * @property {string[]} [examples]
 * @property {Draft} [initial] the draft that shows the prefill or default
 * @property {{text: string}} [initial_json] the same as JSON text, for kinds drawn as a JSON box
 * @property {boolean} [prefilled] whether `initial` comes from a document
 * @property {string} [shown] the text of a node that is only shown
 * @property {string} [format]
 * @property {boolean} [multiline]
 * @property {Node[]} [fields] of an object
 * @property {Node} [more] of an object: names beyond its fields
 * @property {boolean} [provided] whether there is a secret that is not told
 * @property {Option[]} [options] of a choice or multi
 * @property {boolean} [other] whether there is a write-in
 * @property {{min: number, max: number, step?: number}} [range] of a slider
 * @property {Node} [item] of a list, table or map: what a new row is made of
 * @property {Node[]} [rows] of a list or table
 * @property {{key: string, node: Node}[]} [entries] of a map
 * @property {string[]} [key_options] of a map: the names there can be
 * @property {Node[]} [parts] of a tuple
 * @property {{label: string, node: Node}[]} [branches] of a union
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
 */

/**
 * Where a field stands.
 * @typedef {object} Place
 * @property {number} depth containers around it; 0 is the whole form
 * @property {string} [name] what it is called, where that is not its label
 * @property {boolean} [bare] whether its name is only said, not shown
 * @property {boolean} [cell] whether there is little room
 */

/**
 * What stands inside a field: native controls, and how to read and write them.
 * @typedef {object} Control
 * @property {HTMLElement} el
 * @property {HTMLElement[]} inputs those that take focus, described by help and error
 * @property {boolean} [group] several inputs: a fieldset with a legend
 * @property {boolean} [wide] takes the whole width of the form
 * @property {boolean} [clearable] whether an optional answer can only be taken back by a button
 * @property {() => Draft} read what is shown, null for nothing
 * @property {(draft: Draft) => void} show null shows nothing
 * @property {(name: string) => void} [rename] names the inputs beyond the first
 * @property {() => string} [problem] why what is there cannot be sent, or ""
 */

/**
 * A field of an open form.
 * @typedef {object} Field
 * @property {Node} node
 * @property {HTMLElement} el
 * @property {(sent: boolean) => Draft} draft what the person changed, null for nothing; secrets and files only where it is `sent`
 * @property {() => void} reset shows again what was there untouched
 * @property {(messages: string[]) => void} fail shows what is wrong, or takes it away
 * @property {() => HTMLElement|null} target what takes focus when it is wrong
 * @property {() => string} name
 * @property {(name: string) => void} rename
 * @property {() => string} problem why what is there cannot be sent, or ""
 * @property {() => [string, Field][]} children by the step that leads to each in ids
 * @property {() => void} [open] unfolds it
 */

/**
 * What a field needs of its form.
 * @typedef {object} Context
 * @property {(key: string, values?: Record<string, string|number>) => string} t
 * @property {(key: string, n: number) => string} tn
 * @property {() => string} id an id nobody else has
 * @property {AbortSignal} signal
 * @property {string} titleId the heading that names a form with one field
 * @property {boolean} approval
 * @property {Node} root of the form's spec
 * @property {() => void} touched a control was used
 * @property {(box: HTMLElement) => () => void} hold this is not shown whole; what is returned says it was
 * @property {(ctx: Context, node: Node, saved: Draft, place: Place) => Field} make a field of any kind
 */

/**
 * The context of what a person adds: nothing was proposed there, so nothing of it is a change.
 * @param {Context} ctx
 * @returns {Context}
 */
export function added(ctx) {
  return { ...ctx, approval: false };
}

/**
 * Whether two drafts say the same.
 * @param {Draft|undefined} a
 * @param {Draft|undefined} b
 */
export function same(a, b) {
  if (!a || !b) return !a && !b;
  return equal(a, b);
}

/**
 * The drafts of fields by their keys, without those that were left alone.
 * @param {Field[]} fields
 * @param {boolean} sent
 */
export function drafts(fields, sent) {
  const all = fields.map((field) => [field.node.key, field.draft(sent)]);
  return Object.fromEntries(all.filter(([, draft]) => draft !== null));
}

/**
 * A line to type in that is no field of its own.
 * @param {string} name
 */
export function lineInput(name) {
  const about = { type: "text", placeholder: name, "aria-label": name, autocomplete: "off" };
  return words("input", about);
}

/**
 * A list that opens, with a first line for no choice yet.
 * @param {Pick<Context, "t">} ctx
 * @param {[string|number, string][]} options each a value and what it is called
 */
export function dropdown(ctx, options) {
  const lines = options.map(([value, label]) => h("option", { value }, label));
  return h("select", {}, h("option", { value: "" }, ctx.t("choose")), ...lines);
}

/**
 * The control a hint asks for, or "".
 * @param {Node} node
 */
export function hinted(node) {
  if (typeof node.hint === "string") return node.hint;
  const widget = /** @type {{widget?: unknown}|null|undefined} */ (node.hint)?.widget;
  return typeof widget === "string" ? widget : "";
}

/**
 * The step that leads to a node from the one around it.
 * @param {Node} node
 */
export function step(node) {
  return node.id.slice(Math.max(node.id.lastIndexOf("/"), node.id.lastIndexOf("|")));
}

/**
 * Whether there is anything to see in a node before it is touched.
 * @param {Node} node
 * @returns {boolean}
 */
export function holds(node) {
  const inner = [...(node.fields ?? []), ...(node.parts ?? [])];
  const some = (node.rows?.length ?? 0) + (node.entries?.length ?? 0) > 0;
  if (some || node.initial || node.initial_json || inner.some(holds)) return true;
  const branch = node.branches?.[node.branch ?? -1];
  return branch !== undefined && holds(branch.node);
}

/**
 * Whether a document put something into a node, or into what is inside it.
 * @param {Node} node
 * @returns {boolean}
 */
export function proposed(node) {
  const branch = node.branches?.[node.branch ?? -1];
  const inner = [
    ...(node.fields ?? []),
    ...(node.parts ?? []),
    ...(node.rows ?? []),
    ...(node.entries ?? []).map((entry) => entry.node),
    ...(branch ? [branch.node] : []),
  ];
  return node.prefilled === true || inner.some(proposed);
}
