// @ts-check
// Building elements, and what the page knows of them. Every string becomes text; markup comes in through `sanitized` alone.

/** @typedef {string|Node|null|undefined|false} Child */

/** @typedef {Record<string, string|number|boolean|null|undefined>} Attributes */

/**
 * An element with its class or its attributes (null, undefined and false are left out) and children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string|Attributes} [about]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, about = {}, ...children) {
  const el = document.createElement(tag);
  const attributes = typeof about === "string" ? { class: about || null } : about;
  for (const [name, value] of Object.entries(attributes)) attr(el, name, value);
  fill(el, ...children);
  return el;
}

/**
 * A cell of a table whose look is not a table's everywhere.
 * @param {Attributes} [about]
 * @param {...Child} children
 */
export function tableCell(about = {}, ...children) {
  return h("td", { role: "cell", ...about }, ...children);
}

/** @typedef {string|Attributes} About */

/** @type {(about?: About, ...children: Child[]) => HTMLDivElement} */
export const div = (about, ...children) => h("div", about, ...children);

/** @type {(about?: About, ...children: Child[]) => HTMLSpanElement} */
export const span = (about, ...children) => h("span", about, ...children);

/**
 * Replaces all children of an element.
 * @param {Element} el
 * @param {...Child} children
 */
export function fill(el, ...children) {
  el.replaceChildren(...present(children));
}

/**
 * An element for words of any language: they run in the direction they have.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string|Attributes} [about]
 * @param {...Child} children
 */
export function words(tag, about, ...children) {
  const el = h(tag, about, ...children);
  el.dir = "auto";
  return el;
}

/**
 * A button that submits nothing.
 * @param {string} look its class
 * @param {...Child} children
 */
export function makeButton(look, ...children) {
  return h("button", { type: "button", class: look }, ...children);
}

/**
 * An input of a type, with further attributes.
 * @param {string|undefined} type
 * @param {Attributes} [about]
 */
export function makeInput(type, about) {
  return h("input", { type, ...about });
}

/**
 * The items of a list that exist.
 * @template T
 * @param {(T|null|undefined|false|"")[]} list
 */
export function present(list) {
  return /** @type {T[]} */ (list.filter(Boolean));
}

/**
 * Sets an attribute, or removes it for null, undefined and false.
 * @param {Element} el
 * @param {string} name
 * @param {string|number|boolean|null|undefined} value
 */
export function attr(el, name, value) {
  if (value === null || value === undefined || value === false) el.removeAttribute(name);
  else if (value === true) el.setAttribute(name, "");
  else if (el.getAttribute(name) !== String(value)) el.setAttribute(name, String(value));
}

/**
 * Gives an element a class, or takes it away.
 * @param {Element} el
 * @param {string} name
 * @param {boolean} [given]
 */
export function setClass(el, name, given = true) {
  el.classList.toggle(name, given);
}

/**
 * Names an element for screen readers, where what it shows is not enough.
 * @param {Element} el
 * @param {string|null} name
 */
export function setLabel(el, name) {
  attr(el, "aria-label", name);
}

/**
 * Marks a control as one whose press does nothing now; the focus stays.
 * @param {Element} el
 * @param {boolean} off
 */
export function disable(el, off) {
  attr(el, "aria-disabled", off ? "true" : null);
}

/**
 * Tells whether what a button opens is open.
 * @param {Element} el
 * @param {boolean} open
 */
export function expand(el, open) {
  attr(el, "aria-expanded", String(open));
}

/**
 * Writes text only where it differs, so that a selection in it stays.
 * @param {Element} el
 * @param {string} value
 */
export function setText(el, value) {
  if (el.textContent !== value) el.textContent = value;
}

/**
 * Writes a line that is there while it has something to say.
 * @param {HTMLElement} el
 * @param {string} value
 */
export function showText(el, value) {
  setText(el, value);
  el.hidden = value === "";
}

/**
 * Writes text that mostly grows: what was added is appended, anything else is written again.
 * @param {Element} el
 * @param {string} value
 */
export function growText(el, value) {
  const node = el.firstChild;
  if (node instanceof Text && el.childNodes.length === 1 && value.startsWith(node.data)) {
    if (value.length > node.data.length) node.appendData(value.slice(node.data.length));
  } else setText(el, value);
}

/**
 * Nodes from HTML that the kernel sanitized: TextItem.blocks and tail, html of Rich and Fact, tint of code, nothing else.
 * @param {string} html
 */
export function sanitized(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

/**
 * Whether two values are the same data.
 * @param {unknown} a
 * @param {unknown} b
 */
export function isEqual(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/**
 * The place of an element in the visible part of the page.
 * @param {Element} el
 */
export const boxOf = (el) => el.getBoundingClientRect();

/** Keeps the page from doing what it does by itself. @param {Event} event */
export const prevent = (event) => event.preventDefault();

/** The element that has the focus on the page. */
export const focused = () => /** @type {HTMLElement|null} */ (document.activeElement);

/**
 * Gives the focus to an element without moving the page.
 * @param {HTMLElement|null|undefined} el
 */
export function focusInPlace(el) {
  el?.focus({ preventScroll: true });
}

/**
 * Orders nodes as in the page: below zero if the first comes first.
 * @param {Node} one
 * @param {Node} other
 */
export function byPlace(one, other) {
  return one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
}

/**
 * Tells those around an element of what the page itself did there, as if the person had.
 * @param {Element} el
 * @param {"change"|"input"} [type]
 */
export function announce(el, type = "change") {
  el.dispatchEvent(new Event(type, { bubbles: true }));
}

/**
 * The step that an arrow key asks for: down 1, up -1, any other key 0.
 * @param {KeyboardEvent} event
 */
export function stepOf({ key }) {
  return key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
}

/** Random digits; works without a secure context, unlike crypto.randomUUID. */
export function randomId() {
  return crypto.getRandomValues(new Uint32Array(4)).join("");
}
