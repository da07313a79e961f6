// @ts-check
// The state of one run on one page. It lives as long as the model, and every view draws from it.

import { inVSCode } from "./dom.js";
import { groupDigits, worded } from "./format.js";
import { onAbort } from "./lifetime.js";
import { watchKernel } from "./lost.js";
import { apply, changes } from "./reduce.js";

/** @import { Copied, FromFrontEnd, FromKernel, Model, Names, Patch, Receipt, Snapshot, View } from "./wire.js" */
/**
 * The events of a store. `view`: these keys changed. `receipt`: the outcome of an answer. `gone`: the kernel has stopped.
 * `silent`: the kernel does not respond, or responds again. `names`: names to complete. `copied`: a text to copy. `written`: the text in a chat's box before a reload.
 * @typedef {{type: "view", keys: Set<string>} | Receipt | Names | Copied | {type: "gone"} | {type: "silent"} | {type: "written"}} Event
 */

/** Loads the module that searches a card. @typedef {() => Promise<typeof import("./find.js")>} LoadFinder */
/** Loads the module for open questions. @typedef {() => Promise<typeof import("./waiting.js")>} LoadWaiter */

/** Maximum bytes of one message: a server closes the channel above 10 MiB, including the data that Jupyter adds. */
const MAX_MESSAGE = 10 * 2 ** 20 - 2 ** 16;
/** Milliseconds after which a snapshot that did not arrive is requested again. */
const ASK_AGAIN = 1000;

/** The messages that the kernel need not respond to. @type {ReadonlySet<FromFrontEnd["type"]>} */
const UNANSWERED = new Set(["hello", "focus", "drafts", "keeps", "copy"]);

export class Store {
  /** @type {Model} */ #model;
  /** @type {Set<(event: Event) => void>} */ #listeners = new Set();
  /**
   * The number of the last applied message, and when a snapshot was requested after it, so that a lost
   * snapshot is requested again; null until the first live snapshot.
   * @type {{seq: number, asked: number}|null}
   */
  #live = null;

  /** @type {View|null} */ view = null;
  /** @type {Record<string, string>} */ texts = {};
  /** Seconds to add to the page's clock to get the kernel's. */ skew = 0;
  /** Whether the kernel no longer receives this page's messages. */ gone = false;
  /** Whether the kernel has not responded to a press for some seconds. */ silent = false;
  /** @type {ReturnType<typeof watchKernel>} */ #kernel;
  /** The elements of its views. @type {Set<HTMLElement>} */ views = new Set();
  /** @type {LoadWaiter|undefined} Missing if the host has none. */ waiter;
  /** The text in a chat's box, for a view that is drawn again. */ written = "";
  /** The files in that box. @type {import("./chat/composer.js").Chip[]} */ chips = [];

  /**
   * @param {Model} model
   * @param {AbortSignal} signal aborting it removes every listener
   * @param {Record<string, string>} [texts] the sentences that all cards share
   * @param {LoadFinder} [finder] if the card has one
   * @param {boolean} [keeps] whether the page writes static HTML of the card into its notebook
   */
  constructor(model, signal, texts = {}, finder, keeps = false) {
    this.#model = model;
    this.finder = finder;
    this.texts = texts;
    const onSnapshotChange = () => {
      // The synced trait has the state before the kernel's first message.
      const snapshot = model.get("snapshot");
      if (this.#live === null && snapshot?.view) this.#applySnapshot(snapshot);
    };
    const onMessage = (/** @type {FromKernel} */ content) => this.#receive(content);
    model.on("change:snapshot", onSnapshotChange);
    model.on("msg:custom", onMessage);
    const onSilent = (/** @type {boolean} */ silent) => {
      this.silent = silent;
      this.#notify({ type: "silent" });
    };
    this.#kernel = watchKernel(model, signal, () => this.#markGone(), onSilent);
    onAbort(signal, () => {
      model.off("change:snapshot", onSnapshotChange);
      model.off("msg:custom", onMessage);
      this.#listeners.clear();
    });
    onSnapshotChange();
    this.send({ type: "hello", keeps, stays: inVSCode(), again: false });
  }

  /** The kernel's time, in Unix seconds. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /**
   * The sentence of that name, with `{name}` filled in.
   * @param {string} key
   * @param {Record<string, string|number>} [values]
   */
  t = (key, values = {}) => worded(this.texts[key], values);

  /**
   * The sentence for one, or for many.
   * @param {string} key
   * @param {number} n
   */
  tn = (key, n) => this.t(n === 1 ? `${key}_one` : key, { n: groupDigits(n) });

  /**
   * Listens until the signal is aborted.
   * @param {(event: Event) => void} listener
   * @param {AbortSignal} signal
   */
  listen(listener, signal) {
    if (signal.aborted) return;
    this.#listeners.add(listener);
    onAbort(signal, () => this.#listeners.delete(listener));
  }

  /**
   * Sends a message to the kernel. Returns false, and notifies every view with `gone`, if the channel is dead.
   * A message that is too large for the channel is refused here, with a receipt like the kernel's.
   * @param {FromFrontEnd} content
   */
  send(content) {
    if (new Blob([JSON.stringify(content)]).size > MAX_MESSAGE) {
      const errors = [{ field: null, message: this.t("message_too_large") }];
      const submission = "submission" in content ? content.submission : "";
      /** @type {Receipt} */
      const receipt = { type: "receipt", submission, interrupt: "", ok: false, errors };
      queueMicrotask(() => this.#notify(receipt));
      return true;
    }
    try {
      this.#model.send(content);
      if (!UNANSWERED.has(content.type)) this.#kernel.pressed();
      return true;
    } catch (error) {
      console.warn("nbagent: the kernel cannot be reached", error);
      this.#markGone();
      return false;
    }
  }

  /** The number of the last applied message. */
  get seq() {
    return this.#live?.seq;
  }

  /** Whether the box has text or files. */
  get typed() {
    return this.written !== "" || this.chips.length > 0;
  }

  /** Requests a new snapshot. */
  greet() {
    this.send({ type: "hello", keeps: false, stays: false, again: true });
  }

  #markGone() {
    if (this.gone) return;
    this.gone = true;
    this.#notify({ type: "gone" });
  }

  /**
   * Handles a message from the kernel.
   * @param {FromKernel} content
   */
  #receive(content) {
    this.#kernel.heard();
    if (content.type === "snapshot") {
      const first = this.#live === null;
      this.#live = { seq: content.seq, asked: 0 };
      this.skew = content.now - Date.now() / 1000;
      this.#applySnapshot(content);
      if (first && (content.written || content.attached?.length) && !this.typed) {
        this.written = content.written;
        this.chips = content.attached ?? [];
        this.#notify({ type: "written" });
      }
    } else if (content.type === "patch") this.#applyPatch(content);
    else if (content.type !== "keep") this.#notify(content);
  }

  /**
   * Applies a patch, or requests a snapshot if an earlier patch was missed.
   * @param {Patch} patch
   */
  #applyPatch(patch) {
    const live = this.#live;
    if (live === null || this.view === null) return; // the requested snapshot includes it
    if (patch.seq <= live.seq) return;
    if (patch.seq === live.seq + 1) {
      live.seq = patch.seq;
      this.#setView(patch.ops.reduce(apply, this.view));
    } else if (Date.now() - live.asked >= ASK_AGAIN) {
      live.asked = Date.now();
      this.greet();
    }
  }

  /**
   * Replaces the texts and the view by those of a snapshot.
   * @param {Snapshot} snapshot
   */
  #applySnapshot(snapshot) {
    this.texts = { ...this.texts, ...snapshot.texts };
    this.gone = false;
    this.#setView(snapshot.view);
  }

  /**
   * Replaces the view, and notifies the listeners of the keys that changed.
   * @param {View} view
   */
  #setView(view) {
    const keys = changes(this.view, view);
    this.view = view;
    this.#notify({ type: "view", keys });
  }

  /**
   * Calls every listener with the event.
   * @param {Event} event
   */
  #notify(event) {
    for (const listener of [...this.#listeners]) listener(event);
  }
}
