// @ts-check
// One drawing of a run: follows the store item by item and never draws again what did not change.

import { drawComposer } from "./chat/composer.js";
import { stayAtEnd } from "./chat/scroll.js";
import { offerCopies } from "./copy.js";
import {
  attr,
  byPlace,
  div,
  focused,
  focusInPlace,
  h,
  prevent,
  setClass,
  setLabel,
  showText,
} from "./dom.js";
import { keepKeysInside, PLACED, reportFocus } from "./focus.js";
import { drawFooter, drawHeader, ENDED } from "./header-footer.js";
import { drawCall } from "./items/call.js";
import { FormView } from "./items/form.js";
import { drawGroup } from "./items/group.js";
import { groupAlike, questionId, recordsOf } from "./items/grouping.js";
import { drawMessage } from "./items/message.js";
import { drawNotice } from "./items/notice.js";
import { drawReasoning } from "./items/reasoning.js";
import { drawRecord } from "./items/record.js";
import { AT_ONCE, drawStretch, foldStretches } from "./items/stretch.js";
import { drawText } from "./items/text.js";
import { drawUnsent } from "./items/unsent.js";
import { every, lifeWithin, nextFrame, on, onAbort } from "./lifetime.js";
import { holdPlace } from "./place.js";
import { HEAD } from "./reduce.js";

/**
 * @typedef {import("./wire.js").Item} Item
 * @typedef {import("./items/item.js").CardContext} CardContext
 * @typedef {import("./items/item.js").DrawnItem<any>} DrawnItem
 */
/** @typedef {import("./items/grouping.js").Placed} Placed */
/** @typedef {{type: Placed["type"], drawn: DrawnItem}} Shown */

/** Milliseconds in which what lies below a table, or rows that become one, comes up. */
const GLIDE = 180;
/** From how many items on something may be looked for. */
const LONG = 8;
/** Milliseconds for which rows that become one leave their room to what comes next. */
const ROOM = 1000;

export class RunView {
  /** @type {import("./store.js").Store} */ #store;
  /** @type {CardContext} */ #card;
  /** @type {Map<string, Shown>} */ #shown = new Map();
  /** @type {Map<string, Set<string>>} */ #tables = new Map();
  /** @type {Set<string>} Interrupts this view answered: their record takes the focus. */ #answered =
    new Set();
  /** @type {{header: ReturnType<typeof drawHeader>, footer: ReturnType<typeof drawFooter>}|null} */ #frame =
    null;
  /** @type {ReturnType<typeof drawComposer>|null} */ #composer = null;
  /** Whether the box is below a run that has ended. */ #asking = false;
  /** @type {ReturnType<typeof stayAtEnd>|null} */ #scroll = null;
  /** @type {HTMLElement|null} */ #jumped = null;
  /** @type {ReturnType<typeof offerCopies>} */ #copies;
  /** @type {Set<string>} Keys that the next frame draws. */ #due = new Set();
  /** Whether a question has waited here. */ #asked = false;
  /** @type {Placed[]} What is drawn, in its order. */ #placed = [];
  #items = div("nba-items");
  #live = div({ class: "nba-sr", "aria-live": "polite" });
  #unsent = div("nba-unsents");
  #gone = h("p", { class: "nba-gone", role: "alert", hidden: true });

  /**
   * @param {import("./store.js").Store} store
   * @param {AbortSignal} signal
   * @param {string} prefix what the ids of this view begin with
   */
  constructor(store, signal, prefix) {
    this.#store = store;
    this.el = h("section", "nbagent", this.#items, this.#unsent, this.#gone, this.#live);
    store.views.add(this.el);
    onAbort(signal, () => store.views.delete(this.el));
    let ids = 0;
    this.#card = {
      store,
      signal,
      id: () => `${prefix}-${++ids}`,
      clock: () => performance.now(),
      answered: (item) => this.#answered.add(item.interrupt),
      form: (item) => this.#take(item),
      edit: (item) => this.#composer?.edit(item),
      unsent: (title, typed) => this.#keepUnsent(title, typed),
      say: (message) => this.#say(message),
    };
    this.#copies = offerCopies(this.el, this.#card);
    this.el.append(this.#copies.el);
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
    const placed = holdPlace(this.#items);
    const tables = this.#tables.size;
    const items = foldStretches(groupAlike(view.items, this.#tables));
    this.#placed = items;
    // A form that moves into a table is still there until the table takes it over, a row in an open stretch too.
    const kept = new Set(
      items.flatMap((item) =>
        [item, ...(item.type === "stretch" ? this.#rowsOf(item) : forms(item))].map(
          ({ key }) => key,
        ),
      ),
    );
    const folds = [...this.#shown].some(([key, { type }]) => type === "call" && !kept.has(key));
    const height = tables || folds ? this.#items.offsetHeight : 0;
    const answered = this.#drop(kept);
    /** @type {Placed[]} */
    const fresh = [];
    /** @type {Placed[]} */
    const changed = [];
    for (const [index, item] of items.entries()) {
      const before = this.#shown.get(item.key);
      if (!before && fresh.length >= AT_ONCE) {
        // In order: the items before an item are drawn before it.
        const rest = items.slice(index).flatMap((one) => ("items" in one ? one.items : [one]));
        this.#due = new Set(rest.map(({ key }) => key));
        break;
      }
      const parts = "items" in item ? item.items : [item];
      const is = !before || parts.some(({ key }) => keys.has(key));
      if (is) changed.push(item);
      if (before && is && this.#fits(before, item)) before.drawn.update(item);
      else if (is) {
        fresh.push(item);
        if (before) answered.push(...this.#leave(before));
        this.#insert(item, index, before);
      }
      this.#put(this.#shown.get(item.key)?.drawn.el, index);
    }
    this.#tellGone(view.head);
    if (this.#frame)
      this.#frame.footer.find.hidden = !this.#store.finder || view.items.length < LONG;
    this.#notice(fresh, changed, answered);
    placed();
    this.#copies.look();
    this.#scroll?.follow(!ENDED.has(view.head.status));
    if (this.#asked || view.head.questions) this.#tellWaiting();
    if (folds || this.#tables.size < tables) glide(this.#items, height, folds);
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
   * Puts an element where it belongs; one that is there already stays untouched, with the person's focus.
   * @param {HTMLElement|undefined} el
   * @param {number} index
   */
  #put(el, index) {
    const there = this.#items.children[index] ?? null;
    if (el && el !== there) this.#items.insertBefore(el, there);
  }

  /**
   * The row of a call in a stretch: the earlier row of its own, or a new one.
   * @param {import("./wire.js").CallItem} item
   */
  #row(item) {
    const known = this.#shown.get(item.key)?.drawn;
    known?.update(item);
    return (known ?? this.#make(item)).el;
  }

  /**
   * The calls that have rows in a stretch: all once it is open, as it is where a person has opened one that
   * stood alone, or works in it; else none.
   * @param {import("./items/stretch.js").StretchItem} item
   */
  #rowsOf(item) {
    const el = /** @type {HTMLDetailsElement|undefined} */ (this.#shown.get(item.key)?.drawn.el);
    item.open =
      el?.open ||
      item.items.some(({ key }) => {
        const row = this.#shown.get(key)?.drawn.el;
        return row && !el?.contains(row) && (row.matches("[open]") || row.contains(focused()));
      });
    return item.open ? item.items : [];
  }

  /**
   * The form of a question for its table: the form that was shown by itself, with its unsent input.
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
    const drawn = this.#make(item);
    if (before) before.drawn.el.replaceWith(drawn.el);
    else this.#put(drawn.el, index);
    // Only on the page can a table take over a form with the focus in it, or a stretch a row.
    if ("items" in item) drawn.update(item);
  }

  /** @param {Placed} item */
  #make(item) {
    const drawn = drawItem(item, this.#card, (call) => this.#row(call));
    attr(drawn.el, "data-key", item.key);
    this.#shown.set(item.key, { type: item.type, drawn });
    return drawn;
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
   * Removes items that no longer exist, and returns the answered questions, or a table, among them.
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
   * Ends a drawn item, and returns whether its focus moves to a record.
   * @param {Shown} shown
   */
  #leave({ type, drawn }) {
    const active = focused();
    const inside = drawn.el.contains(active);
    drawn.remove?.();
    if (type === "group" && inside) return [type];
    if (!(drawn instanceof FormView) || !this.#answered.delete(drawn.interrupt)) return [];
    // A person who has moved on to something else stays there.
    return active === null || active === document.body || inside ? [drawn.interrupt] : [];
  }

  /**
   * Announces new questions; after this view's own answer its row or record takes the focus.
   * @param {Placed[]} fresh
   * @param {Placed[]} changed
   * @param {string[]} answered
   */
  #notice(fresh, changed, answered) {
    for (const item of fresh)
      if (item.type === "form" && item.actions.length)
        this.#say(this.#store.t("asked", { title: item.title }));
    if (!answered.length) return;
    const settled = changed.filter((item) => recordsOf(item).length > 0);
    const mine = settled.find((item) =>
      recordsOf(item).some((record) => answered.includes(questionId(record))),
    );
    const key = (mine ?? settled[0])?.key ?? "";
    const el = this.#shown.get(key)?.drawn.el;
    /** @type {HTMLElement|null|undefined} */
    const line = el?.querySelector(":scope > summary") ?? el;
    if (!line) return;
    setClass(line, PLACED);
    on(this.#card.signal, line, "focusout", () => setClass(line, PLACED, false));
    focusInPlace(line);
  }

  /**
   * Shows what was typed into a question that was settled elsewhere; who stops the run means it.
   * @param {string} title
   * @param {import("./wire.js").Fact[]} typed
   */
  #keepUnsent(title, typed) {
    if (this.#store.view?.head.status === "cancelled") return;
    this.#unsent.append(drawUnsent(title, typed, this.#card));
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
        footer: drawFooter(this.#card, {
          jump: () => this.#jump(),
          ask: () => this.#ask(true),
          find: () => this.#find(),
        }),
      };
      this.#copies.name();
      this.#items.before(this.#frame.header.el);
      this.#gone.after(this.#frame.footer.el);
    }
    if (head.chat) setClass(this.el, "nba-chat");
    else if (head.asks && this.#store.typed) this.#asking = true; // before a reload
    setLabel(
      this.el,
      this.#store.t("card", { agent: head.agent, prompt: head.prompt.slice(0, 80) }),
    );
    attr(this.el, "data-status", head.status);
    this.#frame.header.update(head);
    this.#frame.footer.update(head);
    this.#drawBox(head);
  }

  /** The box of a chat, and of a run that is asked on. @param {import("./wire.js").Head} head */
  #drawBox(head) {
    const { gone, typed } = this.#store;
    const open = head.chat || (this.#asking && (!gone || typed));
    if (open && !this.#composer) {
      const end = () => this.#scroll?.toEnd();
      this.#composer = drawComposer(this.#card, end, () => this.#ask(false));
      this.#gone.after(this.#composer.el);
    }
    if (!this.#composer) return;
    this.#composer.el.hidden = !open;
    this.#composer.update(head);
    if (!head.chat || this.#scroll || !this.#frame) return;
    const tail = [this.#composer.el, this.#frame.footer.el];
    this.#scroll = stayAtEnd(this.#card, this.el, this.#items, tail);
  }

  /** Opens the box below a run that has ended, or closes it. @param {boolean} open */
  #ask(open) {
    const head = this.#store.view?.head;
    if (!head?.asks) return;
    this.#asking = open;
    this.#drawBox(head);
    (open ? this.#composer?.box : this.#frame?.footer.ask)?.focus();
  }

  /** Opens what finds in the run; its code comes when it is first used, and what is typed until then is kept. */
  async #find() {
    const life = lifeWithin(this.#card.signal);
    let typed = "";
    on(
      life.signal,
      this.el,
      "keydown",
      (event) => {
        if (event.key?.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
        typed += event.key;
        prevent(event);
      },
      true,
    );
    try {
      const finder = await this.#store.finder?.();
      finder?.default(this.#card, this.#items, typed);
    } finally {
      life.abort(); // also where it did not come: keys go where they went
    }
  }

  /**
   * Shows that the kernel has stopped, if no form shows it beside its buttons; in a table they are folded.
   * @param {import("./wire.js").Head} head
   */
  #tellGone(head) {
    const told = [...this.#shown.values()].some(({ type }) => type === "form");
    const lost = this.#store.gone && !told && (head.chat || !ENDED.has(head.status));
    showText(this.#gone, lost ? this.#store.t("gone", { run: head.run }) : "");
    attr(this.el, "data-gone", this.#store.gone);
  }

  /** Tells the page what waits here; the code for that comes with the first question. */
  async #tellWaiting() {
    const { signal } = this.#card;
    const waiter = await this.#store.waiter?.();
    const { view, gone } = this.#store;
    if (!waiter || !view) return;
    if (!this.#asked) onAbort(signal, () => waiter.default(this.el, { ...asking, waits: [] }));
    this.#asked = true;
    const { run, agent } = view.head;
    const waits = this.#placed.flatMap((item) => {
      const asked = (item.type === "form" ? [item] : forms(item)).filter(isAsked);
      const drawn = this.#shown.get(item.key)?.drawn;
      const ids = asked.map(({ interrupt }) => `${run}:${interrupt}`);
      const enter = () => drawn?.enter?.();
      return drawn && asked[0] ? [{ el: drawn.el, ids, title: asked[0].title, enter }] : [];
    });
    const away = gone || signal.aborted || this.el.closest(".nba-inbox");
    const asking = { store: this.#store, agent, waits: away ? [] : waits };
    waiter.default(this.el, asking);
  }

  /** Goes to the next question, round and round. */
  #jump() {
    const forms = [...this.#shown.values()].flatMap(({ drawn }) =>
      drawn.enter && !drawn.el.matches("[data-outside]") ? [drawn] : [],
    );
    const inOrder = forms.sort((a, b) => byPlace(a.el, b.el));
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
 * Lets what lies below come up softly where a table gives way, or rows become one. Rows leave their room for a
 * while to what comes next, so that nothing goes up and down with each turn.
 * @param {HTMLElement} el
 * @param {number} height it had before
 * @param {boolean} waits
 */
function glide(el, height, waits) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches || !el.animate) return;
  for (const before of el.getAnimations()) before.cancel();
  const minHeight = [height, el.offsetHeight].map((px) => `${px}px`);
  el.animate({ minHeight }, { duration: GLIDE, delay: waits ? ROOM : 0, fill: "backwards" });
}

/**
 * The forms in a table.
 * @param {Placed} item
 */
function forms(item) {
  return item.type === "group" ? item.items.filter((one) => one.type === "form") : [];
}

/** Whether a person is asked. @param {import("./wire.js").FormItem} item */
const isAsked = ({ actions }) => actions.length > 0;

/**
 * Draws an item by its type.
 * @param {Placed} item
 * @param {CardContext} card
 * @param {(item: import("./wire.js").CallItem) => HTMLElement} row the row of a call in a stretch
 * @returns {DrawnItem}
 */
function drawItem(item, card, row) {
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
    case "stretch":
      return drawStretch(item, card, row);
    case "record":
      return drawRecord(item, card);
    case "notice":
      return drawNotice(item, card);
    case "message":
      return drawMessage(item, card);
  }
}
