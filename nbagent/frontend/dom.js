// @ts-check
// Functions that create and change elements. Every string becomes text; markup comes only through `sanitized`.

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
 * A cell of a table that CSS may display as something else.
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
 * An element for text of any language, with the text's own direction.
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
  return words("button", { type: "button", class: look }, ...children);
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
 * Adds a class to an element, or removes it.
 * @param {Element} el
 * @param {string} name
 * @param {boolean} [isSet]
 */
export function setClass(el, name, isSet = true) {
  el.classList.toggle(name, isSet);
}

/**
 * Sets the name of an element for screen readers, if its text is not enough.
 * @param {Element} el
 * @param {string|null} name
 */
export function setLabel(el, name) {
  attr(el, "aria-label", name);
}

/**
 * Marks a control as disabled; unlike `disabled`, it keeps the focus.
 * @param {Element} el
 * @param {boolean} off
 */
export function disable(el, off) {
  attr(el, "aria-disabled", off ? "true" : null);
}

/**
 * Marks a button as expanded or collapsed.
 * @param {Element} el
 * @param {boolean} open
 */
export function expand(el, open) {
  attr(el, "aria-expanded", String(open));
}

/**
 * Sets the text only if it differs, so that a selection in it is kept.
 * @param {Element} el
 * @param {string} value
 */
export function setText(el, value) {
  if (el.textContent !== value) el.textContent = value;
}

/**
 * Sets the text of a line, and hides an empty line.
 * @param {HTMLElement} el
 * @param {string} value
 */
export function showText(el, value) {
  setText(el, value);
  el.hidden = value === "";
}

/**
 * Sets text that mostly grows: an addition is appended, any other change replaces the text.
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
 * The position of an element in the visible part of the page.
 * @param {Element} el
 */
export const boxOf = (el) => el.getBoundingClientRect();

/** Prevents the default action of an event. @param {Event} event */
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
 * Dispatches an event for a change that the page made itself, as if the person had made it.
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

/** Whether a key is part of an input method's text: in Safari the last one comes after it. @param {KeyboardEvent} event */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Whether VS Code shows the page: a frame in a window that scrolls by itself. */
export const inVSCode = () => /\bvscode-/.test(document.body.className);

/** Random digits; works without a secure context, unlike crypto.randomUUID. */
export function randomId() {
  return crypto.getRandomValues(new Uint32Array(4)).join("");
}
