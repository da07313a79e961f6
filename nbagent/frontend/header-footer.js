// @ts-check
// The frame of the card: header with prompt, status and time strip; footer with counts and Stop.

import {
  attr,
  disable,
  div,
  fill,
  focused,
  h,
  isEqual,
  makeButton,
  setClass,
  setLabel,
  setText,
  showText,
  span,
  words,
} from "./dom.js";
import { duration } from "./format.js";
import { onClick } from "./lifetime.js";
import { busy, drawLegend, drawStrip } from "./time-strip.js";

/** @import { CardContext } from "./items/item.js" */
/** @import { Head } from "./wire.js" */

/** Characters above which a prompt is folded. */
const LONG_PROMPT = 280;
/** @type {ReadonlySet<string>} */
export const ENDED = new Set(["completed", "failed", "cancelled"]);

/**
 * The header: the agent and its prompt, the status, and the time strip.
 * @param {CardContext} card
 */
export function drawHeader(card) {
  const who = words("span", { class: "nba-who", role: "heading", "aria-level": 3 });
  const prompt = words("span", "nba-prompt");
  const pill = span("nba-pill");
  const strip = div({ class: "nba-strip", role: "img", tabindex: 0, hidden: true });
  const legend = div({ class: "nba-legend", "aria-hidden": "true" });
  const plan = h("details", { class: "nba-plan", hidden: true });
  const el = h("header", "nba-header", who, prompt, plan, pill, strip, legend);
  const promptText = span();
  const foldedPrompt = h("details", {}, h("summary", {}, promptText));
  onClick(card.signal, strip, ({ target }) => {
    const key = /** @type {HTMLElement} */ (target).dataset["call"];
    if (key) card.show(key);
  });
  /** @type {Head|null} */
  let head = null;
  const draw = () => {
    if (!head) return;
    const now = card.store.now() - head.started_at;
    const items = card.store.view?.items ?? [];
    const name = (/** @type {string|undefined} */ key, /** @type {number} */ seconds) => {
      const call = key && items.find((item) => item.key === key);
      const time = duration(card.store, seconds);
      return call && call.type === "call" ? `${call.name} ${time}` : time;
    };
    drawStrip(strip, head.spans, now, ENDED.has(head.status), name);
    drawLegend(legend, head.spans, now, card.store);
    strip.hidden = head.spans.length === 0;
    setLabel(strip, [...legend.children].map(({ textContent }) => textContent).join(", "));
  };
  const update = (/** @type {Head} */ next) => {
    if (head?.prompt !== next.prompt) {
      setText(promptText, next.prompt);
      fill(prompt, next.prompt.length > LONG_PROMPT ? foldedPrompt : promptText.cloneNode(true));
    }
    if (!isEqual(head?.plan ?? [], next.plan ?? [])) drawPlan(plan, next.plan ?? [], card.store);
    head = next;
    setText(who, next.agent);
    const isGone = card.store.gone && !ENDED.has(next.status);
    showText(pill, isGone ? card.store.t("status_gone") : next.status_text);
    const isOutside = next.status === "interrupted" && !next.questions;
    const state = next.signing_in ? "interrupted" : isOutside ? "outside" : next.status;
    attr(pill, "data-status", isGone ? "gone" : state);
    draw();
  };
  const tick = () => {
    if (head && !ENDED.has(head.status) && !card.store.gone) draw();
  };
  return { el, update, tick, who };
}

/**
 * Draws a plan in one row, with its current step; opened, all steps.
 * @param {HTMLElement} el
 * @param {NonNullable<Head["plan"]>} steps
 * @param {import("./store.js").Store} store
 */
function drawPlan(el, steps, store) {
  const done = steps.filter(({ state }) => state === "done").length;
  const count = store.t("plan_of", { n: done, m: steps.length });
  const now = steps.find(({ state }) => state === "now")?.text;
  const marks = steps.map(({ state }) => h("i", { "data-state": state }));
  const lines = steps.map(({ state, text }) => {
    const line = words("li", "", text, span("nba-sr", ` (${store.t(`plan_${state}`)})`));
    attr(line, "data-state", state);
    return line;
  });
  const list = el.querySelector("ol") ?? h("ol");
  const summary = el.querySelector("summary") ?? h("summary"); // it may have the focus
  fill(list, ...lines);
  fill(
    summary,
    h("span", { class: "nba-marks", "aria-hidden": "true" }, ...marks),
    now && span("nba-sr", `${count} `),
    words("span", "nba-now", now ?? count),
  );
  if (!list.parentNode) fill(el, summary, list);
  el.hidden = steps.length === 0;
}

/**
 * The footer: counts, the link to the next question, and the buttons for the run.
 * @param {CardContext} card
 * @param {{jump: () => void, ask: () => void, find: () => void, left: (next: HTMLElement|undefined) => void}} actions
 * go to the next question, open the message box, open the search, move the focus from a Stop that has gone
 */
export function drawFooter(card, actions) {
  const { store, signal } = card;
  const counts = span("nba-counts");
  const link = (
    /** @type {string} */ look,
    /** @type {string} */ label,
    /** @type {() => void} */ act,
  ) => {
    const button = makeButton(`nba-link nba-${look}`, label);
    onClick(signal, button, act);
    return button;
  };
  const questions = link("jump", "", actions.jump);
  const find = link("find", store.t("find"), actions.find);
  const ask = link("ask", store.t("follow_up"), actions.ask);
  const stop = makeButton("nba-button nba-stop");
  const retry = makeButton("nba-button nba-stop nba-retry", store.t("retry"));
  const el = h("footer", "nba-footer", counts, questions, retry, find, ask, stop);
  let stopping = false;
  let pressed = false;
  onClick(signal, retry, () => disable(retry, store.gone || store.send({ type: "retry" })));
  onClick(signal, stop, () => {
    if (stopping || pressed || store.gone) return;
    pressed = store.send({ type: "stop" });
    draw();
  });
  const draw = () => {
    const isStopping = stopping || pressed;
    setText(stop, store.t(isStopping ? "stopping" : "stop"));
    disable(stop, isStopping || store.gone);
  };
  /** @type {Head|null} */
  let latest = null;
  const drawCounts = () => {
    if (!latest) return;
    const ended = ENDED.has(latest.status);
    const seconds = busy(latest.spans, ended ? 0 : store.now() - latest.started_at);
    const time = latest.spans.length ? duration(store, seconds, !ended) : "";
    const shown = latest.counts.filter(({ text }) => time || text !== "{t}");
    while (counts.children.length > shown.length) counts.lastElementChild?.remove();
    for (const [at, { text, about }] of shown.entries()) {
      const el = counts.children[at] ?? counts.appendChild(span());
      setClass(el, "nba-busy", text === "{t}");
      attr(el, "title", about || null);
      setText(el, text === "{t}" ? time : text);
    }
  };
  const tick = () => {
    if (latest && !ENDED.has(latest.status) && !store.gone) drawCounts();
  };
  const update = (/** @type {Head} */ head) => {
    const ended = ENDED.has(head.status);
    const isLeft = ended && focused() === stop;
    stopping = head.stopping;
    pressed &&= !ended;
    latest = head;
    drawCounts();
    showText(questions, head.questions > 0 ? store.tn("questions", head.questions) : "");
    ask.hidden = !head.asks || store.gone;
    stop.hidden = ended;
    retry.hidden = head.status !== "failed";
    disable(retry, store.gone);
    draw();
    // The keyboard's focus was on Stop.
    if (isLeft) actions.left([retry, ask, find].find((button) => !button.hidden));
  };
  return { el, update, tick, find, ask, stop };
}
