// @ts-check
// Points to open questions: a button at the edge of the notebook goes to those that are out of sight, the
// title of a page in the background counts them, and the browser shows notifications of new ones if the person
// has turned that on. This module is loaded when a question waits for the first time.

import { boxOf, byPlace, div, makeButton, setLabel, setText, span } from "./dom.js";
import {
  every,
  lifeWithin,
  makeTimer,
  nextFrame,
  on,
  onClick,
  onResize,
  onSeen,
} from "./lifetime.js";
import { CONTROLS, panelOf } from "./place.js";

/**
 * The open questions of a card: its element, their ids, their titles, and the function that moves the focus there.
 * @typedef {{el: HTMLElement, ids: string[], title: string, enter: () => void}} OpenQuestions
 */
/** @import { Store } from "./store.js" */
/** @typedef {{store: Store, agent: string, waits: OpenQuestions[]}} CardQuestions */
/** @typedef {{el: HTMLElement, draw: (all: OpenQuestions[], out: OpenQuestions[], store: Store) => void}} Corner */

/** The page's property for the function that all copies of this module share. */
const PAGE = Symbol.for("nbagent.waiting");
/** The key in the browser's storage that is set if the person has turned notifications on. */
const NOTIFY = "nbagent.notify";
/** Pixels from the edges of the panel: JupyterLab folds a cell at its left edge. */
const INSIDE = 26;
/** What the button does not cover. */
const KEPT_FREE = `${CONTROLS}, .nba-header, .nba-footer, .jp-Collapser`;
/** The places of the button, as parts of the panel's height. */
const PARTS = [1, 0.8, 0.6, 0.4, 0.2];
/** Milliseconds without scrolling after which the button looks for a place. */
const REST = 150;
/** Pixels between the points that are checked for controls: none is smaller. */
const STEP = 16;
/** Milliseconds. */
const SECOND = 1000;

/**
 * Reports the open questions of a card; a card that is removed has none.
 * @param {HTMLElement} root of the card
 * @param {CardQuestions} asking
 */
export default function wait(root, asking) {
  const page = /** @type {any} */ (globalThis);
  page[PAGE] ??= watchPage();
  page[PAGE](root, asking);
}

/**
 * Turns notifications on or off; the browser asks the person when they are first turned on.
 * @param {string} action of the button that was pressed
 * @returns {Promise<"notify"|"quiet"|"blocked">} the new state
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
  /** @type {Map<HTMLElement, CardQuestions>} */
  const cards = new Map();
  /** @type {AbortController|null} */
  let life = null;
  /** @type {Map<HTMLElement, {seen: boolean|null, life: AbortController}>} */
  const places = new Map();
  /** @type {Map<Element, Corner>} */
  const corners = new Map();
  /** The shown notifications, by the id of their question. @type {Map<string, Notification|null>} */
  const notifications = new Map();

  const update = (/** @type {HTMLElement} */ root, /** @type {CardQuestions} */ asking) => {
    if (asking.waits.length) cards.set(root, asking);
    else cards.delete(root);
    if (cards.size && !life) {
      life = new AbortController();
      on(life.signal, document, "visibilitychange", draw);
      every(life.signal, SECOND, () => document.hidden && countAll()); // Jupyter writes titles of its own
    }
    const all = allWaits();
    const els = new Set(all.map(({ el }) => el));
    for (const [el, place] of places) {
      if (els.has(el)) continue;
      place.life.abort();
      places.delete(el);
    }
    for (const el of els) if (!places.has(el)) watch(el);
    for (const card of cards.values()) notifyNew(card);
    const ids = new Set(all.flatMap((one) => one.ids));
    for (const [id, notification] of notifications) {
      if (ids.has(id)) continue;
      notification?.close();
      notifications.delete(id);
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
  /** Shows a browser notification for new questions while the page is hidden. @param {CardQuestions} asking */
  const notifyNew = ({ store, agent, waits }) => {
    for (const { ids, title, el, enter } of waits) {
      const newIds = ids.filter((id) => !notifications.has(id));
      for (const id of newIds) notifications.set(id, null);
      const [id] = newIds;
      if (id === undefined || !document.hidden || localStorage.getItem(NOTIFY) !== "on") continue;
      if (!("Notification" in globalThis) || Notification.permission !== "granted") continue;
      const options = { body: title, tag: `nbagent-${id}` };
      const notification = new Notification(store.t("notify_asks", { agent }), options);
      notifications.set(id, notification);
      if (!life) return;
      on(life.signal, notification, "click", () => {
        window.focus();
        goToQuestion({ el, enter });
      });
    }
  };
  const goToQuestion = (/** @type {{el: HTMLElement, enter: () => void}} */ { el, enter }) => {
    const show = () => {
      const high = boxOf(el).height > innerHeight / 2;
      el.scrollIntoView({ block: high ? "start" : "center", behavior: "instant" });
    };
    show();
    enter();
    if (life) nextFrame(life.signal, show); // Jupyter may have laid out more cells, which changes heights
  };
  const allWaits = () => [...cards.values()].flatMap(({ waits }) => waits);
  const countAll = () => showCount(new Set(allWaits().flatMap(({ ids }) => ids)).size);
  const draw = () => {
    countAll();
    const [first] = cards.values();
    /** @type {Map<Element, OpenQuestions[]>} */
    const panels = new Map();
    for (const one of allWaits()) {
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
      const corner = corners.get(panel) ?? drawCorner(panel, life.signal, goToQuestion, draw);
      corners.set(panel, corner);
      const inOrder = waits.sort((a, b) => byPlace(a.el, b.el));
      const out = inOrder.filter(({ el }) => places.get(el)?.seen === false);
      corner.draw(inOrder, out, first.store);
    }
  };
  return update;
}

/**
 * The button at the left edge of a notebook's panel, beside the cells. It covers no control: where one comes to its
 * place, it moves to another place at that edge, or is hidden.
 * @param {Element} panel
 * @param {AbortSignal} signal
 * @param {(to: OpenQuestions) => void} goToQuestion
 * @param {() => void} redraw draws all corners again
 * @returns {Corner}
 */
function drawCorner(panel, signal, goToQuestion, redraw) {
  const count = span();
  const noun = span("nba-noun");
  const arrow = span();
  const button = makeButton("nba-button", count, noun, arrow);
  const el = div("nbagent nba-corner", button);
  const rest = makeTimer(signal);
  /** @type {OpenQuestions|undefined} */
  let next;
  /** @type {HTMLElement|null} The element that the button went to last. */
  let lastLed = null;
  let part = 1;
  const place = (/** @type {number} */ at) => {
    const box = boxOf(panel);
    part = at;
    el.style.left = `${box.left + INSIDE}px`;
    el.style.bottom = `${innerHeight - box.top - box.height * at + INSIDE}px`;
  };
  const isFree = () => !isOnControl(boxOf(button), el);
  const choose = () => {
    for (const at of [part, ...PARTS]) {
      place(at);
      if (isFree()) break;
    }
    el.style.visibility = isFree() ? "" : "hidden";
  };
  const giveWay = () => {
    if (el.hidden) return;
    if (!isFree()) el.style.visibility = "hidden";
    rest.start(REST, choose);
  };
  onClick(signal, button, () => {
    if (!next) return;
    lastLed = next.el;
    goToQuestion(next);
  });
  onResize(signal, panel, redraw);
  on(signal, panel, "scroll", giveWay, true);
  for (const type of /** @type {const} */ (["click", "input"])) on(signal, panel, type, giveWay);
  document.body.append(el);
  return {
    el,
    draw(all, out, store) {
      const box = boxOf(panel);
      const n = new Set(out.flatMap(({ ids }) => ids)).size;
      el.hidden = n === 0 || box.width === 0;
      if (el.hidden) return;
      const after = all.slice(all.findIndex((one) => one.el === lastLed) + 1);
      const below = (/** @type {OpenQuestions} */ one) => boxOf(one.el).top >= box.top;
      next = (lastLed && after.find((one) => out.includes(one))) ?? out.find(below) ?? out[0];
      const [number = "", ...words] = store.tn("away", n).split(" ");
      setLabel(button, store.tn("away", n));
      setText(count, number);
      setText(noun, ` ${words.join(" ")}`);
      setText(arrow, ` ${next && below(next) ? "↓" : "↑"}`);
      choose();
    },
  };
}

/**
 * Whether a control of the page, or the frame of a card, lies under this box.
 * @param {DOMRect} box
 * @param {Element} own the element of the box, which does not count
 */
function isOnControl({ left, top, right, bottom }, own) {
  for (let y = top; y <= bottom + 1; y += STEP)
    for (let x = left; x <= right + STEP / 2; x += STEP)
      for (const el of document.elementsFromPoint(x, y))
        if (!own.contains(el) && el.closest(KEPT_FREE)) return true;
  return false;
}

/** The count at the start of the title, or empty. */
let countPrefix = "";

/** Shows the count in the page's title while the page is in the background. @param {number} n */
function showCount(n) {
  const title = document.title;
  const plain =
    countPrefix && title.startsWith(countPrefix) ? title.slice(countPrefix.length) : title;
  countPrefix = n && document.hidden ? `(${n}) ` : "";
  if (title !== countPrefix + plain) document.title = countPrefix + plain;
}
