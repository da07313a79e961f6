// @ts-check
// The state of one run on one page. Lives as long as the model; every view draws from it.

import { groupDigits } from "./format.js";
import { onAbort } from "./lifetime.js";
import { whenLost } from "./lost.js";
import { apply, changes } from "./reduce.js";

/**
 * @typedef {import("./wire.js").Model} Model
 * @typedef {import("./wire.js").View} View
 * @typedef {import("./wire.js").Receipt} Receipt
 * @typedef {import("./wire.js").Snapshot} Snapshot
 * @typedef {import("./wire.js").FromKernel} FromKernel
 * @typedef {import("./wire.js").FromFrontEnd} FromFrontEnd
 */
/**
 * The events of a store. `view`: these keys changed. `receipt`: the outcome of an answer. `gone`: the kernel has stopped.
 * `names`: names to complete. `written`: the text in a chat's box before a reload.
 * @typedef {{type: "view", keys: Set<string>} | {type: "receipt", receipt: Receipt} | {type: "names", names: import("./wire.js").Names} | {type: "gone"} | {type: "written"}} Event
 */

/** Loads what finds in a card. @typedef {() => Promise<typeof import("./find.js")>} LoadFinder */
/** Loads the module for open questions. @typedef {() => Promise<typeof import("./waiting.js")>} LoadWaiter */

/** Bytes of one message: a server closes the channel on 10 MiB, in which Jupyter's own part is too. */
const MAX_MESSAGE = 10 * 2 ** 20 - 2 ** 16;
/** Milliseconds after which a gap asks for a snapshot once more. */
const ASK_AGAIN = 1000;

export class Store {
  /** @type {Model} */ #model;
  /** @type {Set<(event: Event) => void>} */ #listeners = new Set();
  /**
   * The number of the last message applied, and when a snapshot was asked for since, so that a lost
   * one is asked for again; null until a live snapshot came.
   * @type {{seq: number, asked: number}|null}
   */
  #live = null;

  /** @type {View|null} */ view = null;
  /** @type {Record<string, string>} */ texts = {};
  /** Seconds to add to the page's clock to get the kernel's. */ skew = 0;
  /** Whether the kernel no longer receives this page's messages. */ gone = false;
  /** The elements of its views. @type {Set<HTMLElement>} */ views = new Set();
  /** @type {LoadWaiter|undefined} Where there is one. */ waiter;
  /** The text in a chat's box, for a view that is drawn again. */ written = "";
  /** The files there. @type {import("./chat/composer.js").Chip[]} */ chips = [];

  /**
   * @param {Model} model
   * @param {AbortSignal} signal aborting it takes every listener away
   * @param {Record<string, string>} [texts] the sentences that all cards have in common
   * @param {LoadFinder} [finder] where there is one
   * @param {boolean} [keeps] whether the page writes what is kept of the card into its notebook
   */
  constructor(model, signal, texts = {}, finder, keeps = false) {
    this.#model = model;
    this.finder = finder;
    this.texts = texts;
    const synced = () => {
      if (this.#live === null) this.#fromTrait(model.get("snapshot"));
    };
    const message = (/** @type {FromKernel} */ content) => this.#receive(content);
    model.on("change:snapshot", synced);
    model.on("msg:custom", message);
    whenLost(model, signal, () => this.#lost());
    onAbort(signal, () => {
      model.off("change:snapshot", synced);
      model.off("msg:custom", message);
      this.#listeners.clear();
    });
    synced();
    this.send({ type: "hello", keeps, again: false });
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
  t = (key, values = {}) =>
    (this.texts[key] ?? "").replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));

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
   * Sends to the kernel. False, and `gone` for every view, where the channel is dead. What is too large for
   * the channel is refused here, as the kernel would.
   * @param {FromFrontEnd} content
   */
  send(content) {
    if (new Blob([JSON.stringify(content)]).size > MAX_MESSAGE) {
      const errors = [{ field: null, message: this.t("message_too_large") }];
      const submission = "submission" in content ? content.submission : "";
      const receipt = {
        type: /** @type {const} */ ("receipt"),
        submission,
        interrupt: "",
        ok: false,
      };
      queueMicrotask(() => this.#tell({ type: "receipt", receipt: { ...receipt, errors } }));
      return true;
    }
    try {
      this.#model.send(content);
      return true;
    } catch (error) {
      console.warn("nbagent: the kernel cannot be reached", error);
      this.#lost();
      return false;
    }
  }

  /** The number of the last message applied. */
  get seq() {
    return this.#live?.seq;
  }

  /** Whether the box has text. */
  get typed() {
    return this.written !== "" || this.chips.length > 0;
  }

  /** Asks for all of the card once more. */
  greet() {
    this.send({ type: "hello", keeps: false, again: true });
  }

  #lost() {
    if (this.gone) return;
    this.gone = true;
    this.#tell({ type: "gone" });
  }

  /**
   * Draws the content of the notebook's trait, before the first message of the kernel.
   * @param {Partial<Snapshot>|null|undefined} snapshot
   */
  #fromTrait(snapshot) {
    if (snapshot?.view) this.#adopt(/** @type {Snapshot} */ (snapshot));
  }

  /**
   * Takes a message from the kernel.
   * @param {FromKernel} content
   */
  #receive(content) {
    if (content.type === "snapshot") {
      const first = this.#live === null;
      this.#live = { seq: content.seq, asked: 0 };
      this.skew = content.now - Date.now() / 1000;
      this.#adopt(content);
      if (first && (content.written || content.attached?.length) && !this.typed) {
        this.written = content.written;
        this.chips = content.attached ?? [];
        this.#tell({ type: "written" });
      }
    } else if (content.type === "patch") {
      this.#patch(content);
    } else if (content.type === "receipt") {
      this.#tell({ type: "receipt", receipt: content });
    } else if (content.type === "names") {
      this.#tell({ type: "names", names: content });
    }
  }

  /**
   * Applies a patch, or asks for a snapshot where one before it was missed.
   * @param {import("./wire.js").Patch} patch
   */
  #patch(patch) {
    const live = this.#live;
    if (live === null || this.view === null) return; // the snapshot asked for includes it
    if (patch.seq <= live.seq) return;
    if (patch.seq === live.seq + 1) {
      live.seq = patch.seq;
      this.#show(patch.ops.reduce(apply, this.view));
    } else if (Date.now() - live.asked >= ASK_AGAIN) {
      live.asked = Date.now();
      this.greet();
    }
  }

  /**
   * Takes all from a snapshot.
   * @param {Snapshot} snapshot
   */
  #adopt(snapshot) {
    this.texts = { ...this.texts, ...snapshot.texts };
    this.gone = false;
    this.#show(snapshot.view);
  }

  /**
   * Tells every view what differs from before.
   * @param {View} view
   */
  #show(view) {
    const keys = changes(this.view, view);
    this.view = view;
    this.#tell({ type: "view", keys });
  }

  /**
   * Tells every listener.
   * @param {Event} event
   */
  #tell(event) {
    for (const listener of [...this.#listeners]) listener(event);
  }
}
