// A host for tests: a model with get, on, off and send, a page with a card, and what a person does on it.

import { readFileSync } from "node:fs";
import { afterEach } from "vitest";
import card from "../card.js";

/** @param {string} path */
const read = (path) => readFileSync(new URL(path, import.meta.url), "utf8");

/** @param {string} name of a file that both ends check */
export const fixture = (name) => JSON.parse(read(`../../../tests/fixtures/${name}`));

export const WIRE = fixture("wire.json");

/** The sentences of notebook/texts.py. */
export const TEXTS = Object.fromEntries(
  [...read("../../notebook/texts.py").matchAll(/^ {4}"(\w+)": (["'])(.*)\2,$/gm)].map((found) => [
    found[1] ?? "",
    (found[3] ?? "").replaceAll("\\n", "\n").replaceAll('\\"', '"'),
  ]),
);

export class FakeModel {
  /** @type {Map<string, Set<(content: any) => void>>} */ listeners = new Map();
  /** @type {any[]} What the card sent. */ messages = [];
  dead = false;

  /** @param {object} [snapshot] */
  constructor(snapshot = {}) {
    this.snapshot = snapshot;
  }

  get() {
    return this.snapshot;
  }

  /**
   * @param {string} event
   * @param {(content: any) => void} callback
   */
  on(event, callback) {
    this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(callback));
  }

  /**
   * @param {string} event
   * @param {(content: any) => void} callback
   */
  off(event, callback) {
    this.listeners.get(event)?.delete(callback);
  }

  /** @param {any} content */
  send(content) {
    if (this.dead) throw new Error("Cannot send");
    this.messages.push(structuredClone(content));
  }

  /** @param {any} content what the kernel sends */
  receive(content) {
    for (const callback of [...(this.listeners.get("msg:custom") ?? [])]) callback(content);
  }

  /** @param {string} event of Jupyter's own */
  fire(event) {
    for (const callback of [...(this.listeners.get(event) ?? [])]) callback();
  }

  /** @param {string} type */
  sent(type) {
    return this.messages.filter((content) => content.type === type);
  }

  get listening() {
    return [...this.listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }
}

/**
 * A kernel's connection that reports the kernel's status.
 * @param {(() => Promise<object>)} [requestCommInfo] what the kernel replies when it is asked for its comms
 */
export function fakeKernel(requestCommInfo) {
  /** @type {Set<import("../wire.js").KernelSlot>} */
  const slots = new Set();
  const gone = new Set();
  const signal = (/** @type {typeof slots} */ all) => ({
    connect: (/** @type {import("../wire.js").KernelSlot} */ slot) => void all.add(slot),
    disconnect: (/** @type {import("../wire.js").KernelSlot} */ slot) => void all.delete(slot),
  });
  return {
    ...(requestCommInfo && { requestCommInfo }),
    statusChanged: signal(slots),
    disposed: signal(gone),
    /** @param {string} status */
    emit(status) {
      for (const slot of status === "disposed" ? gone : slots) slot(this, status);
    },
    get listening() {
      return slots.size + gone.size;
    },
  };
}

export const HEAD = WIRE.from_kernel.snapshot.view.head;

/**
 * A snapshot of these items.
 * @param {object[]} items
 * @param {{seq?: number, head?: object}} [more]
 */
export function snapshot(items, { seq = 1, head = HEAD } = {}) {
  return { type: "snapshot", seq, view: { head, items }, now: Date.now() / 1000, texts: TEXTS };
}

/**
 * A form item around one node.
 * @param {object|null} root
 * @param {object} [more]
 */
export function form(root, more = {}) {
  const actions = [action("submit", "Send", { primary: true })];
  const { form: example } = { form: WIRE.from_kernel.snapshot.view.items[3] };
  const spec = root && { root: { id: "", key: "", label: "Answer", required: true, ...root } };
  const alone = { group: "", input: [], expires_at: null };
  const plain = { facts: [], drafts: null, approval: false, ...alone, spec, actions };
  return { ...example, ...plain, ...more };
}

/**
 * @param {string} name
 * @param {string} label
 * @param {object} [more]
 */
export function action(name, label, more = {}) {
  return {
    name,
    label,
    changed_label: null,
    primary: false,
    danger: false,
    reason: false,
    ...more,
  };
}

/** Approve and reject, as a gate offers them. */
export const GATE = [
  action("approve", "Approve", { primary: true, changed_label: "Approve with changes" }),
  action("reject", "Reject…", { reason: true }),
];

/** @type {AbortController[]} The lives of the cards that a test opened. */
const opened = [];

// A timer of a card that outlives its test would fire when the page of the test is gone.
afterEach(() => {
  for (const controller of opened.splice(0)) controller.abort();
});

/**
 * A card on a page, with these items drawn, until the test is over.
 * @param {object[]} items
 * @param {object} [head]
 * @param {string} [written] the text in the box of a chat that the kernel kept
 * @param {object[]} [attached] the files in that box
 */
export function open(items, head = HEAD, written = "", attached = []) {
  const model = new FakeModel();
  const controller = new AbortController();
  opened.push(controller);
  const { signal } = controller;
  const widget = card();
  widget.initialize({ model, signal });
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  widget.render({ model, el, signal });
  model.receive({ ...snapshot(items, { head }), written, attached });
  let seq = 1;
  return {
    model,
    el,
    widget,
    controller,
    /** @param {...object} ops */
    patch(...ops) {
      seq += 1;
      model.receive({ type: "patch", seq, ops });
    },
    /**
     * @template {HTMLElement} T
     * @param {string} selector
     * @returns {T}
     */
    $: (selector) => {
      const found = el.querySelector(selector);
      if (!found) throw new Error(`nothing at ${selector} in ${el.innerHTML}`);
      return /** @type {T} */ (found);
    },
    /** @param {string} label */
    button: (label) => {
      const all = [...el.querySelectorAll("button")].filter((one) => !one.closest("[hidden]"));
      const found = all.find((one) => one.textContent === label);
      if (!found) throw new Error(`no button ${label} among ${all.map((one) => one.textContent)}`);
      return found;
    },
    /** @param {{ok: boolean, errors?: object[]}} verdict */
    judge({ ok, errors = [] }) {
      const { submission, interrupt } = model.sent("answer").at(-1);
      model.receive({ type: "receipt", submission, interrupt, ok, errors });
    },
  };
}

/**
 * Types into a control as a person does.
 * @param {HTMLElement} control
 * @param {string} value
 */
export function type(control, value) {
  const input = /** @type {HTMLInputElement} */ (control);
  input.focus();
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

/**
 * @param {HTMLElement} target
 * @param {string} key
 * @param {object} [more]
 */
export function press(target, key, more = {}) {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
  target.dispatchEvent(event);
  return event;
}
