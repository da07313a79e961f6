// @ts-check
// The interfaces of a form's field and of its control, and the context of both.

/** @import { Draft, SpecNode } from "./spec.js" */

/**
 * The place of a field.
 * @typedef {object} Place
 * @property {number} depth the number of containers around it; 0 is the form itself
 * @property {string} [name] its name, if that is not its label
 * @property {boolean} [bare] whether its name is only for screen readers
 * @property {boolean} [cell] whether there is little room
 */

/**
 * The content of a field: native controls, and functions to read and write them.
 * @typedef {object} Control
 * @property {HTMLElement} el
 * @property {HTMLElement[]} inputs those that take focus, described by help and error
 * @property {boolean} [group] several inputs: a fieldset with a legend
 * @property {boolean} [wide] takes the full width of the form
 * @property {boolean} [clearable] whether an optional answer can only be taken back by a button
 * @property {() => Draft} read what is shown, null for nothing
 * @property {(draft: Draft) => void} show null shows nothing
 * @property {(name: string) => void} [rename] names the inputs beyond the first
 * @property {() => string} [problem] the reason why the input cannot be sent, or ""
 * @property {() => string} [doubt] the error to show once the person leaves the control, or ""
 */

/**
 * A field of an open form.
 * @typedef {object} Field
 * @property {SpecNode} node
 * @property {HTMLElement} el
 * @property {(sent: boolean) => Draft} draft the person's change, null for none; with secrets and files only if
 * it is `sent`
 * @property {() => void} reset restores the untouched value
 * @property {(messages: string[], placed?: {cells?: [number, string, string][]|undefined}[]) => void} fail shows what is
 * wrong, or removes that; a grid needs the cells too
 * @property {() => HTMLElement|null} target the element that takes the focus if it is wrong
 * @property {() => string} name
 * @property {(name: string) => void} rename
 * @property {() => string} problem the reason why the input cannot be sent, or ""
 * @property {() => [string, Field][]} children each with the step that leads to it in ids
 * @property {() => void} [open] unfolds it
 * @property {() => number} [rows] the number of rows of a grid
 */

/**
 * The context that a field gets from its form.
 * @typedef {object} Context
 * @property {(key: string, values?: Record<string, string|number>) => string} t
 * @property {(key: string, n: number) => string} tn
 * @property {() => string} id a new unique id
 * @property {AbortSignal} signal
 * @property {string} titleId the heading that names a form with one field
 * @property {string[]} [within] ids of what has the names of the containers around the field, the innermost first
 * @property {boolean} approval
 * @property {SpecNode} root of the form's spec
 * @property {() => void} touched a control was used
 * @property {(box: HTMLElement) => () => void} hold marks the box as not shown completely; the returned function
 * marks the box as shown
 * @property {MakeField} make a field of any kind
 */

/**
 * Makes the field of a node; `saved` is what was typed into it before a reload.
 * @typedef {(ctx: Context, node: SpecNode, saved: Draft, place: Place) => Field} MakeField
 */

/**
 * The context of a part that a person adds: it has no proposed value, so it is never marked as changed.
 * @param {Context} ctx
 * @returns {Context}
 */
export function addedContext(ctx) {
  return { ...ctx, approval: false };
}

/**
 * The drafts of fields by their keys, without untouched fields.
 * @param {Field[]} fields
 * @param {boolean} sent
 */
export function draftsByKey(fields, sent) {
  const all = fields.map((field) => [field.node.key, field.draft(sent)]);
  return Object.fromEntries(all.filter(([, draft]) => draft !== null));
}
