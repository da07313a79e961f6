// @ts-check
// One view of a run: it follows the store item by item, and never draws unchanged items again.

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
  makeButton,
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
import { every, lifeWithin, nextFrame, on, onAbort, onClick } from "./lifetime.js";
import { holdPlace, scrollToElement, showWhole } from "./place.js";
import { HEAD } from "./reduce.js";

/** @import { Placed } from "./items/grouping.js" */
/** @import { CardContext, DrawItem, DrawnItem } from "./items/item.js" */
/** @import { FormItem, Head, MessageItem } from "./wire.js" */
/** @typedef {{type: Placed["type"], drawn: DrawnItem<any>}} Shown */

/** @type {Record<Placed["type"], DrawItem<any>>} */
const DRAW = {
  text: drawText,
  reasoning: drawReasoning,
  call: drawCall,
  form: (item, card) => new FormView(item, card),
  group: drawGroup,
  stretch: drawStretch,
  record: drawRecord,
  notice: drawNotice,
  message: drawMessage,
};
/** Milliseconds in which the items below a table, or below rows that become one, move up. */
const GLIDE = 180;
/** The number of items from which on the card can be searched. */
const LONG = 8;
/** Milliseconds for which the room of rows that become one stays free for new items. */
const ROOM = 1000;
/** Milliseconds after an answer in which the next question of its tool takes the focus. */
const NEXT = 5000;
/** Characters from which on a message may be shown cut. */
const CUT = 20_000;
/** Characters of an answer or an error that are announced. */
const SPOKEN = 500;

export class RunView {
  /** @type {import("./store.js").Store} */ #store;
  /** @type {CardContext} */ #card;
  /** @type {Map<string, Shown>} */ #shown = new Map();
  /** @type {Map<string, Set<string>>} */ #tables = new Map();
  /** @type {Map<string, FormItem>} The questions that this view answered: their record takes the focus. */
  #answered = new Map();
  /** @type {{el: HTMLElement, item: FormItem, at: number}|null} The last such record, and its question. */
  #last = null;
  /** @type {{header: ReturnType<typeof drawHeader>, footer: ReturnType<typeof drawFooter>}|null} */ #frame =
    null;
  /** @type {ReturnType<typeof drawComposer>|null} */ #composer = null;
  /** Whether the message box is open below a run that has ended. */ #isBoxOpen = false;
  /** @type {ReturnType<typeof stayAtEnd>|null} */ #scroll = null;
  /** @type {HTMLElement|null} */ #lastJumped = null;
  /** @type {ReturnType<typeof offerCopies>} */ #copies;
  /** @type {Set<string>} Keys that the next frame draws. */ #pendingKeys = new Set();
  /** Whether a question has waited here. */ #hasAsked = false;
  /** @type {string|null|undefined} The run that was drawn as ended; null if it had not ended. */ #ended;
  /** @type {Placed[]} The drawn items, in their order. */ #placed = [];
  #items = div("nba-items");
  #liveRegion = div({ class: "nba-sr", "aria-live": "polite" });
  #unsentNotes = div("nba-unsents");
  #goneNote = h("p", { class: "nba-gone", role: "alert", hidden: true });

  /**
   * @param {import("./store.js").Store} store
   * @param {AbortSignal} signal
   * @param {string} prefix the start of the ids of this view
   */
  constructor(store, signal, prefix) {
    this.#store = store;
    this.el = h(
      "section",
      "nbagent",
      this.#items,
      this.#unsentNotes,
      this.#goneNote,
      this.#liveRegion,
    );
    store.views.add(this.el);
    onAbort(signal, () => store.views.delete(this.el));
    let ids = 0;
    this.#card = {
      store,
      signal,
      id: () => `${prefix}-${++ids}`,
      clock: () => performance.now(),
      answered: (item) => this.#answered.set(item.interrupt, item),
      form: (item) => {
        // The form that was shown separately, with its unsent input.
        const drawn = this.#shown.get(item.key)?.drawn;
        this.#shown.delete(item.key);
        return drawn instanceof FormView ? drawn : new FormView(item, this.#card);
      },
      row: (item) => {
        const drawn = this.#shown.get(item.key)?.drawn;
        drawn?.update(item);
        return (drawn ?? this.#drawNew(item)).el;
      },
      edit: (item) => this.#composer?.edit(item),
      unsent: (title, typed) => {
        if (store.view?.head.status === "cancelled") return; // the person stopped the run
        this.#unsentNotes.append(drawUnsent(title, typed, this.#card));
      },
      show: (key) => this.#showRow(key),
      say: (message) => this.#announceText(message),
    };
    this.#copies = offerCopies(this.el, this.#card);
    this.el.append(...this.#copies.els);
    every(signal, 1000, () => this.#tick());
    keepKeysInside(this.el, signal);
    reportFocus(this.el, store, signal);
    store.listen((event) => {
      if (event.type === "view") this.#draw(event.keys);
      else if (event.type === "gone") this.#draw(new Set([HEAD]));
      else if (event.type === "silent" && store.view) this.#showGone(store.view.head);
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
    for (const key of this.#pendingKeys) keys.add(key);
    const isContinued = this.#pendingKeys.size > 0;
    this.#pendingKeys = new Set();
    if (keys.has(HEAD)) this.#drawHead(view.head);
    const restorePlace = holdPlace(this.#items);
    const tables = this.#tables.size;
    const items = foldStretches(groupAlike(view.items, this.#tables));
    this.#placed = items;
    // A form that moves into a table is kept until the table takes it over, and so is a row that moves into an
    // open stretch.
    const keptKeys = new Set(
      items.flatMap((item) =>
        [item, ...(item.type === "stretch" ? this.#rowsOf(item) : forms(item))].map(
          ({ key }) => key,
        ),
      ),
    );
    const hasFolded = [...this.#shown].some(
      ([key, { type }]) => type === "call" && !keptKeys.has(key),
    );
    const height = tables || hasFolded ? this.#items.offsetHeight : 0;
    const answered = this.#removeMissing(keptKeys);
    /** @type {Placed[]} */
    const fresh = [];
    /** @type {Placed[]} */
    const changed = [];
    for (const [index, item] of items.entries()) {
      const shown = this.#shown.get(item.key);
      if (!shown && fresh.length >= AT_ONCE) {
        // In order: the items before an item are drawn before it.
        const remaining = items.slice(index).flatMap((one) => ("items" in one ? one.items : [one]));
        this.#pendingKeys = new Set(remaining.map(({ key }) => key));
        break;
      }
      const parts = "items" in item ? item.items : [item];
      const isChanged = !shown || parts.some(({ key }) => keys.has(key));
      if (isChanged) changed.push(item);
      if (shown && isChanged && this.#canFollow(shown, item)) shown.drawn.update(item);
      else if (isChanged) {
        fresh.push(item);
        if (shown) answered.push(...this.#endItem(shown));
        this.#insert(item, index, shown);
      }
      this.#placeElement(this.#shown.get(item.key)?.drawn.el, index);
    }
    this.#showGone(view.head);
    if (this.#frame)
      this.#frame.footer.find.hidden = !this.#store.finder || view.items.length < LONG;
    this.#announceChanges(fresh, changed, answered);
    this.#announceEnd(view.head);
    if (view.head.chat) this.#drawAfter(!ENDED.has(view.head.status));
    restorePlace();
    this.#enterNext(fresh);
    this.#copies.look();
    this.#scroll?.follow(!ENDED.has(view.head.status));
    if (this.#hasAsked || view.head.questions) this.#reportWaiting();
    if (hasFolded || this.#tables.size < tables) glide(this.#items, height, hasFolded);
    if (this.#pendingKeys.size > 0 && !isContinued) this.#drawLater();
  }

  /** Draws the pending items, frame by frame. */
  #drawLater() {
    nextFrame(this.#card.signal, () => {
      if (this.#pendingKeys.size === 0) return;
      this.#draw(new Set());
      if (this.#pendingKeys.size > 0) this.#drawLater();
    });
  }

  /**
   * Puts an element at its place; an element that is there already is not touched, so that it keeps the focus.
   * @param {HTMLElement|undefined} el
   * @param {number} index
   */
  #placeElement(el, index) {
    const current = this.#items.children[index] ?? null;
    if (el && el !== current) this.#items.insertBefore(el, current);
  }

  /**
   * The calls that have rows in a stretch: all if it is open, else none. A stretch is also open if a person has
   * opened one of its rows while the row was separate, or works in that row.
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
   * Draws a new item, or replaces an element that cannot show the item.
   * @param {Placed} item
   * @param {number} index
   * @param {Shown|undefined} before
   */
  #insert(item, index, before) {
    const drawn = this.#drawNew(item);
    if (before) before.drawn.el.replaceWith(drawn.el);
    else this.#placeElement(drawn.el, index);
    // A table can take over a form that has the focus, and a stretch a row, only once it is on the page.
    if ("items" in item) drawn.update(item);
  }

  /** @param {Placed} item */
  #drawNew(item) {
    const drawn = DRAW[item.type](item, this.#card);
    attr(drawn.el, "data-key", item.key);
    this.#shown.set(item.key, { type: item.type, drawn });
    this.#nameSpeaker(item.key);
    return drawn;
  }

  /** Names the agent at its text, among the messages of a chat. @param {string} key */
  #nameSpeaker(key) {
    const { type, drawn } = /** @type {Shown} */ (this.#shown.get(key));
    if (type !== "text" || !this.#store.view?.head.chat) return;
    attr(drawn.el, "role", "group");
    setLabel(drawn.el, this.#store.view.head.agent);
  }

  /**
   * Whether a drawn item can show this item; a form never shows another question.
   * @param {Shown} shown
   * @param {Placed} item
   */
  #canFollow({ type, drawn }, item) {
    if (type !== item.type) return false;
    return (
      item.type !== "form" || !(drawn instanceof FormView) || drawn.interrupt === item.interrupt
    );
  }

  /**
   * Removes the elements of items that no longer exist. Returns the answered questions, or a table, among them.
   * @param {Set<string>} keys
   */
  #removeMissing(keys) {
    /** @type {string[]} */
    const answered = [];
    for (const [key, shown] of [...this.#shown]) {
      if (keys.has(key)) continue;
      answered.push(...this.#endItem(shown));
      shown.drawn.el.remove();
      this.#shown.delete(key);
    }
    return answered;
  }

  /**
   * Ends a drawn item. Returns its question, or a table, if a record takes the focus.
   * @param {Shown} shown
   */
  #endItem({ type, drawn }) {
    const active = focused();
    const inside = drawn.el.contains(active);
    drawn.remove?.();
    if (type === "group" && inside) return [type];
    const item = drawn instanceof FormView && this.#answered.get(drawn.interrupt);
    if (!item) return [];
    this.#answered.delete(drawn.interrupt);
    this.#last = { el: drawn.el, item, at: this.#card.clock() };
    // If the person has moved the focus to something else, it stays there.
    return active === null || active === document.body || inside ? [drawn.interrupt] : [];
  }

  /**
   * Announces new questions; after this view's own answer its row or record takes the focus.
   * @param {Placed[]} fresh
   * @param {Placed[]} changed
   * @param {string[]} answered
   */
  #announceChanges(fresh, changed, answered) {
    for (const item of fresh)
      if (item.type === "form" && item.actions.length)
        this.#announceText(this.#store.t("asked", { title: item.title }));
    if (!answered.length) return;
    const settled = changed.filter((item) => recordsOf(item).length > 0);
    const answeredItem = settled.find((item) =>
      recordsOf(item).some((record) => answered.includes(questionId(record))),
    );
    const key = (answeredItem ?? settled[0])?.key ?? "";
    const el = this.#shown.get(key)?.drawn.el;
    /** @type {HTMLElement|null|undefined} */
    const rowEl = el?.querySelector(":scope > summary") ?? el;
    if (!rowEl) return;
    setClass(rowEl, PLACED);
    on(this.#card.signal, rowEl, "focusout", () => setClass(rowEl, PLACED, false));
    focusInPlace(rowEl);
    if (this.#last) this.#last.el = rowEl;
  }

  /**
   * Announces the end of a run, and the answer of a chat, once for all views of the run.
   * @param {Head} head
   */
  #announceEnd({ run, status, status_text, agent, chat }) {
    const before = this.#ended;
    const ended = ENDED.has(status) ? run : null;
    this.#ended = ended;
    const isFirstView = this.#store.views.values().next().value === this.el;
    if (ended === null || before === undefined || before === ended || !isFirstView) return;
    const asked = this.#placed.findLastIndex(({ type }) => type === "message");
    const wanted = status !== "completed" ? "notice" : chat ? "text" : null;
    const texts = this.#placed.slice(asked + 1).flatMap(({ type, key }) => {
      const parts = type === wanted ? this.#shown.get(key)?.drawn.el.children : null;
      return parts ? [[...parts].map(({ textContent }) => textContent).join(" ")] : [];
    });
    const what = wanted === "notice" ? `${status_text}. ${texts.at(-1) ?? ""}` : texts.join(" ");
    this.#announceText(`${agent}: ${what.trim().slice(0, SPOKEN) || status_text}`);
  }

  /**
   * Below each answer of a chat are Copy and Retry, in room that is always there.
   * @param {boolean} isRunning whether the last answer may grow
   */
  #drawAfter(isRunning) {
    /** @type {MessageItem|null} */
    let asked = null;
    /** @type {HTMLElement|null} */
    let answer = null;
    const end = () => {
      if (answer && asked && !answer.querySelector(".nba-after")) this.#placeAfter(answer, asked);
    };
    for (const item of this.#placed) {
      if (item.type === "message" && item.editable && !item.note) {
        end();
        [asked, answer] = [item, null];
      } else if (item.type === "text") {
        answer?.querySelector(".nba-after")?.remove(); // of a run that was retried
        answer = this.#shown.get(item.key)?.drawn.el ?? null;
      }
    }
    if (isRunning) answer?.querySelector(".nba-after")?.remove();
    else end();
  }

  /**
   * @param {HTMLElement} answer
   * @param {MessageItem} asked the message that it answers
   */
  #placeAfter(answer, asked) {
    const { store, signal } = this.#card;
    const copy = makeButton("nba-link", store.t("copy"));
    const again = makeButton("nba-link", store.t("retry"));
    setLabel(copy, store.t("copy_answer"));
    setLabel(again, store.t("answer_again"));
    copy.title = store.t("copy_how");
    onClick(signal, copy, ({ shiftKey }) => this.#copies.copyBlock(answer, copy, shiftKey));
    onClick(signal, again, () => {
      if (store.gone) return;
      this.#composer?.edit(asked);
      // What would drop later messages is sent by the person, who then sees what is dropped.
      const last = this.#placed.findLast(({ type }) => type === "message");
      if (last?.key === asked.key && asked.text.length < CUT) this.#composer?.submit();
    });
    const more = this.#copies.makeMore(copy, "nba-link nba-copy-more", () => answer);
    answer.append(div("nba-after", copy, more, again));
  }

  /**
   * Moves the focus to the next question of the tool whose question was just answered, so that a person goes on typing.
   * @param {Placed[]} fresh
   */
  #enterNext(fresh) {
    const last = this.#last;
    const next = fresh.find(
      (item) =>
        item.type === "form" && isAsked(item) && toolOf(item) === (last && toolOf(last.item)),
    );
    const drawn = next && this.#shown.get(next.key)?.drawn;
    const at = focused();
    if (!last || !drawn || (at !== last.el && !drawn.el.contains(at))) return;
    this.#last = null;
    if (this.#card.clock() - last.at > NEXT) return;
    drawn.enter?.();
    showWhole(focused() ?? drawn.el);
  }

  /**
   * Announces a message to screen readers.
   * @param {string} message
   */
  #announceText(message) {
    this.#liveRegion.append(h("p", {}, message));
    while (this.#liveRegion.children.length > 3) this.#liveRegion.firstElementChild?.remove();
  }

  /**
   * Draws header and footer.
   * @param {Head} head
   */
  #drawHead(head) {
    if (this.#frame === null) {
      this.#frame = {
        header: drawHeader(this.#card),
        footer: drawFooter(this.#card, {
          jump: () => this.#jump(),
          ask: () => this.#openBox(true),
          find: () => this.#find(),
          left: (next) => this.#leaveStop(next),
        }),
      };
      this.#copies.name();
      this.#items.before(this.#frame.header.el);
      this.#goneNote.after(this.#frame.footer.el);
    }
    if (head.chat && !this.el.matches(".nba-chat")) {
      setClass(this.el, "nba-chat");
      for (const key of this.#shown.keys()) this.#nameSpeaker(key);
    }
    if (!head.chat && head.asks && this.#store.typed) this.#isBoxOpen = true; // typed before a reload
    setLabel(
      this.el,
      this.#store.t("card", { agent: head.agent, prompt: head.prompt.slice(0, 80) }),
    );
    attr(this.el, "data-status", head.status);
    this.#frame.header.update(head);
    this.#frame.footer.update(head);
    this.#drawBox(head);
  }

  /** Goes to the row of a call, or to the row that stands for it. @param {string} key */
  #showRow(key) {
    const item = this.#placed.find(
      (one) => one.key === key || ("items" in one && one.items.some((call) => call.key === key)),
    );
    const el = item && this.#shown.get(item.key)?.drawn.el;
    if (!el) return;
    focusInPlace(el.querySelector("summary"));
    scrollToElement(el, this.el, this.#card.signal);
  }

  /** Moves the focus from Stop, which is gone. @param {HTMLElement|undefined} next the button that is there now */
  #leaveStop(next) {
    const box = this.#store.view?.head.chat && this.#composer?.box;
    const who = this.#frame?.header.who;
    if (!box && !next && who) who.tabIndex = -1;
    focusInPlace(box || next || who);
  }

  /** Draws the message box of a chat, or of a run that takes a follow-up question. @param {Head} head */
  #drawBox(head) {
    const { gone, typed } = this.#store;
    const open = head.chat || (this.#isBoxOpen && (!gone || typed));
    if (open && !this.#composer) {
      const end = () => this.#scroll?.toEnd();
      this.#composer = drawComposer(this.#card, end, () => this.#openBox(false));
      this.#goneNote.after(this.#composer.el);
    }
    if (!this.#composer) return;
    this.#composer.el.hidden = !open;
    this.#composer.update(head);
    if (!head.chat || this.#scroll || !this.#frame) return;
    this.#composer.hold(this.#frame.footer.stop);
    const tail = [this.#composer.el, this.#frame.footer.el];
    this.#scroll = stayAtEnd(this.#card, this.el, this.#items, tail);
  }

  /** Opens the message box below a run that has ended, or closes it. @param {boolean} open */
  #openBox(open) {
    const head = this.#store.view?.head;
    if (!head?.asks) return;
    this.#isBoxOpen = open;
    this.#drawBox(head);
    (open ? this.#composer?.box : this.#frame?.footer.ask)?.focus();
  }

  /** Opens the search in the run. Its code is loaded at the first use; the keys that are typed until then are kept. */
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
      life.abort(); // also if the code could not be loaded: keys work as before
    }
  }

  /**
   * Shows that the kernel has stopped or does not respond, unless a form shows it beside its buttons. In a table
   * the forms are folded.
   * @param {Head} head
   */
  #showGone(head) {
    const { gone, silent } = this.#store;
    const isShownInForm = [...this.#shown.values()].some(
      ({ type, drawn }) => type === "form" && (gone || /** @type {any} */ (drawn).busy),
    );
    const isLost = gone && (head.chat || !ENDED.has(head.status));
    const text = isLost ? "gone" : silent && !gone ? "silent" : "";
    showText(this.#goneNote, text && !isShownInForm ? this.#store.t(text, { run: head.run }) : "");
    attr(this.el, "data-gone", gone);
  }

  /** Reports this view's open questions to the page; the code for that is loaded with the first question. */
  async #reportWaiting() {
    const { signal } = this.#card;
    const waiter = await this.#store.waiter?.();
    const { view, gone } = this.#store;
    if (!waiter || !view) return;
    if (!this.#hasAsked) onAbort(signal, () => waiter.default(this.el, { ...asking, waits: [] }));
    this.#hasAsked = true;
    const { run, agent } = view.head;
    const waits = this.#placed.flatMap((item) => {
      const asked = (item.type === "form" ? [item] : forms(item)).filter(isAsked);
      const drawn = this.#shown.get(item.key)?.drawn;
      const ids = asked.map(({ interrupt }) => `${run}:${interrupt}`);
      const enter = () => drawn?.enter?.();
      return drawn && asked[0] ? [{ el: drawn.el, ids, title: asked[0].title, enter }] : [];
    });
    const isElsewhere = gone || signal.aborted || this.el.closest(".nba-inbox");
    const asking = { store: this.#store, agent, waits: isElsewhere ? [] : waits };
    waiter.default(this.el, asking);
  }

  /** Goes to the next question, and after the last one to the first. */
  #jump() {
    const forms = [...this.#shown.values()].flatMap(({ drawn }) =>
      drawn.enter && !drawn.el.matches("[data-outside]") ? [drawn] : [],
    );
    const inOrder = forms.sort((a, b) => byPlace(a.el, b.el));
    const next =
      inOrder[inOrder.findIndex((form) => form.el === this.#lastJumped) + 1] ?? inOrder[0];
    if (!next) return;
    this.#lastJumped = next.el;
    next.enter?.();
    scrollToElement(next.el, this.el, this.#card.signal);
  }

  #tick() {
    if (this.#store.gone) return;
    this.#frame?.header.tick();
    this.#frame?.footer.tick();
    for (const { drawn } of this.#shown.values()) drawn.tick?.();
  }
}

/**
 * Moves the items below up slowly when a table disappears, or when rows become one. After rows became one their
 * room stays free for a while for new items, so that the page does not move up and down with each turn.
 * @param {HTMLElement} el
 * @param {number} height it had before
 * @param {boolean} isDelayed
 */
function glide(el, height, isDelayed) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches || !el.animate) return;
  for (const before of el.getAnimations()) before.cancel();
  const minHeight = [height, el.offsetHeight].map((px) => `${px}px`);
  el.animate({ minHeight }, { duration: GLIDE, delay: isDelayed ? ROOM : 0, fill: "backwards" });
}

/**
 * The forms in a table.
 * @param {Placed} item
 */
function forms(item) {
  return item.type === "group" ? item.items.filter((one) => one.type === "form") : [];
}

/** The tool that asks. @param {FormItem} item */
const toolOf = ({ path, tool }) => `${path} ${tool}`;

/** Whether a person is asked. @param {FormItem} item */
const isAsked = ({ actions }) => actions.length > 0;
