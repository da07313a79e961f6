// @ts-check
// One drawing of a run: follows the store item by item and never draws again what did not change.

import { attr, h, setLabel, showText } from "./dom.js";
import { keepKeysInside, reportFocus } from "./focus.js";
import { drawFooter, drawHeader, ENDED } from "./header-footer.js";
import { drawCall } from "./items/call.js";
import { FormView } from "./items/form.js";
import { drawGroup } from "./items/group.js";
import { groupAlike } from "./items/grouping.js";
import { drawMessage } from "./items/message.js";
import { drawNotice } from "./items/notice.js";
import { drawReasoning } from "./items/reasoning.js";
import { drawRecord } from "./items/record.js";
import { drawText } from "./items/text.js";
import { every, nextFrame } from "./lifetime.js";
import { HEAD } from "./reduce.js";

/**
 * @typedef {import("./wire.js").Item} Item
 * @typedef {import("./items/item.js").CardContext} CardContext
 * @typedef {import("./items/item.js").DrawnItem<any>} DrawnItem
 */
/** @typedef {Item|import("./items/grouping.js").GroupItem} Placed */
/** @typedef {{type: Placed["type"], drawn: DrawnItem}} Shown */

/** Milliseconds in which what lies below a table comes up. */
const GLIDE = 180;
/** Items that are drawn for the first time in one frame: a page that draws hundreds at once stands still. */
const AT_ONCE = 40;

export class RunView {
  /** @type {import("./store.js").Store} */ #store;
  /** @type {CardContext} */ #card;
  /** @type {Map<string, Shown>} */ #shown = new Map();
  /** @type {Map<string, Set<string>>} */ #tables = new Map();
  /** @type {Set<string>} Interrupts this view answered: their record takes the focus. */ #answered =
    new Set();
  /** @type {{header: ReturnType<typeof drawHeader>, footer: ReturnType<typeof drawFooter>}|null} */ #frame =
    null;
  /** @type {HTMLElement|null} */ #jumped = null;
  /** @type {Set<string>} Keys that the next frame draws. */ #due = new Set();
  #items = h("div", "nba-items");
  #live = h("div", { class: "nba-sr", "aria-live": "polite" });
  #gone = h("p", { class: "nba-gone", role: "alert", hidden: true });

  /**
   * @param {import("./store.js").Store} store
   * @param {AbortSignal} signal
   * @param {string} prefix what the ids of this view begin with
   */
  constructor(store, signal, prefix) {
    this.#store = store;
    this.el = h("section", "nbagent", this.#items, this.#gone, this.#live);
    let ids = 0;
    this.#card = {
      store,
      signal,
      id: () => `${prefix}-${++ids}`,
      clock: () => performance.now(),
      answered: (item) => this.#answered.add(item.interrupt),
      form: (item) => this.#take(item),
      say: (message) => this.#say(message),
    };
    every(signal, 1000, () => this.#tick());
    keepKeysInside(this.el, signal);
    reportFocus(this.el, store, signal);
    store.listen((event) => {
      if (event.type === "view") this.#draw(event.keys);
      else if (event.type === "gone") this.#draw(new Set([HEAD]));
    }, signal);
    this.#draw(new Set([HEAD]));
  }

  /**
   * Draws the items of these keys, and the frame where the head is among them.
   * @param {Set<string>} keys
   */
  #draw(keys) {
    const { view } = this.#store;
    if (view === null) return;
    for (const key of this.#due) keys.add(key);
    const goesOn = this.#due.size > 0;
    this.#due = new Set();
    if (keys.has(HEAD)) this.#drawHead(view.head);
    const tables = this.#tables.size;
    const height = tables && this.#items.offsetHeight;
    const items = groupAlike(view.items, this.#tables);
    // A form that moves into a table is still there until the table takes it over.
    const kept = [...view.items, ...items].map((item) => item.key);
    const answered = this.#drop(new Set(kept));
    /** @type {Placed[]} */
    const fresh = [];
    for (const [index, item] of items.entries()) {
      const before = this.#shown.get(item.key);
      const parts = item.type === "group" ? item.items : [item];
      if (before && !parts.some(({ key }) => keys.has(key))) continue;
      if (before && this.#fits(before, item)) {
        before.drawn.update(item);
        continue;
      }
      if (fresh.length === AT_ONCE) {
        // In order: what stands before an item is drawn before it.
        const rest = items
          .slice(index)
          .flatMap((one) => (one.type === "group" ? one.items : [one]));
        this.#due = new Set(rest.map(({ key }) => key));
        break;
      }
      fresh.push(item);
      if (before) answered.push(...this.#leave(before));
      this.#insert(item, index, before);
    }
    this.#tellGone(view.head);
    this.#notice(fresh, answered.length > 0);
    if (this.#tables.size < tables) glide(this.#items, height);
    if (this.#due.size > 0 && !goesOn) this.#later();
  }

  /** Draws what is due, frame by frame. */
  #later() {
    nextFrame(this.#card.signal, () => {
      if (this.#due.size === 0) return;
      this.#draw(new Set());
      if (this.#due.size > 0) this.#later();
    });
  }

  /**
   * The form of a question for its table: the one that stood alone, with all that is typed in it.
   * @param {import("./wire.js").FormItem} item
   */
  #take(item) {
    const drawn = this.#shown.get(item.key)?.drawn;
    this.#shown.delete(item.key);
    return drawn instanceof FormView ? drawn : new FormView(item, this.#card);
  }

  /**
   * Draws an item for the first time, or in the place of one that it cannot follow.
   * @param {Placed} item
   * @param {number} index
   * @param {Shown|undefined} before
   */
  #insert(item, index, before) {
    const drawn = drawItem(item, this.#card);
    attr(drawn.el, "data-key", item.key);
    this.#shown.set(item.key, { type: item.type, drawn });
    if (before) before.drawn.el.replaceWith(drawn.el);
    else this.#items.insertBefore(drawn.el, this.#items.children[index] ?? null);
    // Only on the page can a table take over a form with the focus in it.
    if (item.type === "group") drawn.update(item);
  }

  /**
   * Whether what is drawn can follow this item; another question never takes over a form.
   * @param {Shown} shown
   * @param {Placed} item
   */
  #fits({ type, drawn }, item) {
    if (type !== item.type) return false;
    return (
      item.type !== "form" || !(drawn instanceof FormView) || drawn.interrupt === item.interrupt
    );
  }

  /**
   * Takes away what is no longer there, and tells which answered questions were among it, or a table.
   * @param {Set<string>} keys
   */
  #drop(keys) {
    /** @type {string[]} */
    const answered = [];
    for (const [key, shown] of [...this.#shown]) {
      if (keys.has(key)) continue;
      answered.push(...this.#leave(shown));
      shown.drawn.el.remove();
      this.#shown.delete(key);
    }
    return answered;
  }

  /**
   * Ends what was drawn, and tells whether its focus goes to a record.
   * @param {Shown} shown
   */
  #leave({ type, drawn }) {
    const active = document.activeElement;
    const inside = drawn.el.contains(active);
    drawn.remove?.();
    if (type === "group" && inside) return [type];
    if (!(drawn instanceof FormView) || !this.#answered.delete(drawn.interrupt)) return [];
    // Who has moved on to something else is left there.
    return active === null || active === document.body || inside ? [drawn.interrupt] : [];
  }

  /**
   * Announces new questions; after this view's own answer its record takes the focus.
   * @param {Placed[]} fresh
   * @param {boolean} answered
   */
  #notice(fresh, answered) {
    for (const item of fresh)
      if (item.type === "form" && item.actions.length)
        this.#say(this.#store.t("asked", { title: item.title }));
    const record = fresh.find((item) => item.type === "record");
    if (answered && record) this.#shown.get(record.key)?.drawn.el.focus({ preventScroll: true });
  }

  /**
   * Tells who cannot see the page.
   * @param {string} message
   */
  #say(message) {
    this.#live.append(h("p", {}, message));
    while (this.#live.children.length > 3) this.#live.firstElementChild?.remove();
  }

  /**
   * Draws header and footer.
   * @param {import("./wire.js").Head} head
   */
  #drawHead(head) {
    if (this.#frame === null) {
      this.#frame = {
        header: drawHeader(this.#card),
        footer: drawFooter(this.#card, () => this.#jump()),
      };
      this.#items.before(this.#frame.header.el);
      this.#gone.after(this.#frame.footer.el);
    }
    setLabel(this.el, this.#store.t("card", { agent: head.agent }));
    attr(this.el, "data-status", head.status);
    this.#frame.header.update(head);
    this.#frame.footer.update(head);
  }

  /**
   * Tells that the kernel is gone, where no form says it beside its buttons; in a table they are folded.
   * @param {import("./wire.js").Head} head
   */
  #tellGone(head) {
    const told = [...this.#shown.values()].some(({ type }) => type === "form");
    const lost = this.#store.gone && !told && !ENDED.has(head.status);
    showText(this.#gone, lost ? this.#store.t("gone", { run: head.run }) : "");
    attr(this.el, "data-gone", this.#store.gone);
  }

  /** Goes to the next question, round and round. */
  #jump() {
    const forms = [...this.#shown.values()].flatMap(({ drawn }) =>
      drawn.enter && !drawn.el.matches("[data-outside]") ? [drawn] : [],
    );
    const inOrder = forms.sort((a, b) =>
      a.el.compareDocumentPosition(b.el) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1,
    );
    const next = inOrder[inOrder.findIndex((form) => form.el === this.#jumped) + 1] ?? inOrder[0];
    if (!next) return;
    this.#jumped = next.el;
    next.el.scrollIntoView({ block: "nearest" });
    next.enter?.();
  }

  #tick() {
    if (this.#store.gone) return;
    this.#frame?.header.tick();
    for (const { drawn } of this.#shown.values()) drawn.tick?.();
  }
}

/**
 * Lets what lies below come up softly where a table gives way.
 * @param {HTMLElement} el
 * @param {number} height it had before
 */
function glide(el, height) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const from = `${height}px`;
  el.animate?.([{ minHeight: from }, { minHeight: `${el.offsetHeight}px` }], GLIDE);
}

/**
 * Draws an item by its type.
 * @param {Placed} item
 * @param {CardContext} card
 * @returns {DrawnItem}
 */
function drawItem(item, card) {
  switch (item.type) {
    case "text":
      return drawText(item);
    case "reasoning":
      return drawReasoning(item, card);
    case "call":
      return drawCall(item, card);
    case "form":
      return new FormView(item, card);
    case "group":
      return drawGroup(item, card);
    case "record":
      return drawRecord(item, card);
    case "notice":
      return drawNotice(item, card);
    case "message":
      return drawMessage(item);
  }
}
