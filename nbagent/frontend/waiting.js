// @ts-check
// Ways to open questions: a button in the corner of the notebook leads to those that are out of
// sight, the title of a page in the background counts them, and the browser notifies about new ones if that is turned
// on. A module of its own, loaded when a question waits for the first time.

import { boxOf, byPlace, div, makeButton, setText } from "./dom.js";
import { every, lifeWithin, nextFrame, on, onClick, onResize, onSeen } from "./lifetime.js";
import { panelOf } from "./place.js";

/**
 * The open questions of a card: its element, their ids, their titles, and the function that moves the focus there.
 * @typedef {{el: HTMLElement, ids: string[], title: string, enter: () => void}} Waits
 */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {{store: Store, agent: string, waits: Waits[]}} Asking */
/** @typedef {{el: HTMLElement, draw: (all: Waits[], out: Waits[], store: Store) => void}} Corner */

/** All that waits on the page, whichever code its cards were drawn by. */
const PAGE = Symbol.for("nbagent.waiting");
/** In the browser's storage, where a person has turned notifications on. */
const NOTIFY = "nbagent.notify";
/** Pixels from the edges of the panel. */
const INSIDE = 16;
/** Milliseconds. */
const SECOND = 1000;

/**
 * Reports the open questions of a card; a card that is removed has none.
 * @param {HTMLElement} root of the card
 * @param {Asking} asking
 */
export default function wait(root, asking) {
  const page = /** @type {any} */ (globalThis);
  page[PAGE] ??= watchPage();
  page[PAGE](root, asking);
}

/**
 * Turns notifications on or off; the browser asks the person when they are first turned on.
 * @param {string} action of the button that was pressed
 * @returns {Promise<"notify"|"quiet"|"blocked">} what became of it
 */
export async function notify(action) {
  localStorage.removeItem(NOTIFY);
  if (action === "quiet") return "quiet";
  if (!("Notification" in globalThis)) return "blocked";
  if ((await Notification.requestPermission()) !== "granted") return "blocked";
  localStorage.setItem(NOTIFY, "on");
  return "notify";
}

/** Follows the questions of all cards, while there are any. */
function watchPage() {
  /** @type {Map<HTMLElement, Asking>} */
  const cards = new Map();
  /** @type {AbortController|null} */
  let life = null;
  /** @type {Map<HTMLElement, {seen: boolean|null, life: AbortController}>} */
  const places = new Map();
  /** @type {Map<Element, Corner>} */
  const corners = new Map();
  /** The shown notifications, by the id of their question. @type {Map<string, Notification|null>} */
  const told = new Map();

  const update = (/** @type {HTMLElement} */ root, /** @type {Asking} */ asking) => {
    if (asking.waits.length) cards.set(root, asking);
    else cards.delete(root);
    if (cards.size && !life) {
      life = new AbortController();
      on(life.signal, document, "visibilitychange", draw);
      every(life.signal, SECOND, () => document.hidden && countAll()); // Jupyter writes titles of its own
    }
    const all = [...cards.values()].flatMap(({ waits }) => waits);
    const els = new Set(all.map(({ el }) => el));
    for (const [el, place] of places) {
      if (els.has(el)) continue;
      place.life.abort();
      places.delete(el);
    }
    for (const el of els) if (!places.has(el)) watch(el);
    for (const each of cards.values()) tell(each);
    const ids = new Set(all.flatMap((one) => one.ids));
    for (const [id, shown] of told) {
      if (ids.has(id)) continue;
      shown?.close();
      told.delete(id);
    }
    draw();
    if (!cards.size) {
      life?.abort();
      life = null;
    }
  };
  const watch = (/** @type {HTMLElement} */ el) => {
    if (!life) return;
    /** @type {{seen: boolean|null, life: AbortController}} */
    const place = { seen: null, life: lifeWithin(life.signal) };
    places.set(el, place);
    onSeen(place.life.signal, el, (seen) => {
      place.seen = seen;
      draw();
    });
  };
  /** Shows the browser's notification of what is new, where nobody sees the page. @param {Asking} asking */
  const tell = ({ store, agent, waits }) => {
    for (const { ids, title, el, enter } of waits) {
      const fresh = ids.filter((id) => !told.has(id));
      for (const id of fresh) told.set(id, null);
      const [id] = fresh;
      if (id === undefined || !document.hidden || localStorage.getItem(NOTIFY) !== "on") continue;
      if (!("Notification" in globalThis) || Notification.permission !== "granted") continue;
      const about = { body: title, tag: `nbagent-${id}` };
      const shown = new Notification(store.t("notify_asks", { agent }), about);
      told.set(id, shown);
      if (!life) return;
      on(life.signal, shown, "click", () => {
        window.focus();
        lead({ el, enter });
      });
    }
  };
  const lead = (/** @type {{el: HTMLElement, enter: () => void}} */ { el, enter }) => {
    const show = () => {
      const high = boxOf(el).height > innerHeight / 2;
      el.scrollIntoView({ block: high ? "start" : "center", behavior: "instant" });
    };
    show();
    enter();
    if (life) nextFrame(life.signal, show); // what Jupyter had not laid out has its height now
  };
  const countAll = () => {
    const all = [...cards.values()].flatMap(({ waits }) => waits);
    count(new Set(all.flatMap(({ ids }) => ids)).size);
  };
  const draw = () => {
    countAll();
    const all = [...cards.values()].flatMap(({ waits }) => waits);
    const [first] = cards.values();
    /** @type {Map<Element, Waits[]>} */
    const panels = new Map();
    for (const one of all) {
      const panel = one.el.isConnected && one.el.checkVisibility() && panelOf(one.el);
      if (panel) panels.set(panel, [...(panels.get(panel) ?? []), one]);
    }
    for (const [panel, corner] of corners) {
      if (panels.has(panel)) continue;
      corner.el.remove();
      corners.delete(panel);
    }
    for (const [panel, waits] of panels) {
      if (!first || !life) return;
      const corner = corners.get(panel) ?? drawCorner(panel, life.signal, lead, draw);
      corners.set(panel, corner);
      const inOrder = waits.sort((a, b) => byPlace(a.el, b.el));
      const out = inOrder.filter(({ el }) => places.get(el)?.seen === false);
      corner.draw(inOrder, out, first.store);
    }
  };
  return update;
}

/**
 * The button in the corner of a notebook's panel.
 * @param {Element} panel
 * @param {AbortSignal} signal
 * @param {(to: Waits) => void} lead
 * @param {() => void} again draws all of it again
 * @returns {Corner}
 */
function drawCorner(panel, signal, lead, again) {
  const button = makeButton("nba-button");
  const el = div("nbagent nba-corner", button);
  /** @type {Waits|undefined} */
  let next;
  /** @type {HTMLElement|null} Where the button has led last. */
  let last = null;
  onClick(signal, button, () => {
    if (!next) return;
    last = next.el;
    lead(next);
  });
  onResize(signal, panel, again);
  document.body.append(el);
  return {
    el,
    draw(all, out, store) {
      const box = boxOf(panel);
      const n = new Set(out.flatMap(({ ids }) => ids)).size;
      el.hidden = n === 0 || box.width === 0;
      if (el.hidden) return;
      const after = all.slice(all.findIndex((one) => one.el === last) + 1);
      const below = (/** @type {Waits} */ one) => boxOf(one.el).top >= box.top;
      next = (last && after.find((one) => out.includes(one))) ?? out.find(below) ?? out[0];
      setText(button, `${store.tn("away", n)} ${next && below(next) ? "↓" : "↑"}`);
      el.style.left = `${box.left + INSIDE}px`; // on the right a card has its buttons
      el.style.bottom = `${innerHeight - box.bottom + INSIDE}px`;
    },
  };
}

/** The start of the title. */
let counted = "";

/** Counts in the page's title while it is in the background. @param {number} n */
function count(n) {
  const title = document.title;
  const plain = counted && title.startsWith(counted) ? title.slice(counted.length) : title;
  counted = n && document.hidden ? `(${n}) ` : "";
  if (title !== counted + plain) document.title = counted + plain;
}
