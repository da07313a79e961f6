// @ts-check
// The frame of the card: header with prompt, status and time strip; footer with counts and Stop.

import { attr, disable, div, fill, h, makeButton, setText, span, words } from "./dom.js";
import { groupDigits, money } from "./format.js";
import { onClick } from "./lifetime.js";
import { drawStrip } from "./time-strip.js";

/**
 * @typedef {import("./wire.js").Head} Head
 * @typedef {import("./items/item.js").CardContext} CardContext
 */

/** Characters above which a prompt is folded. */
const LONG_PROMPT = 280;
/** @type {ReadonlySet<string>} */
export const ENDED = new Set(["completed", "failed", "cancelled"]);

/**
 * The header: who runs on what prompt, how it stands, and the time strip.
 * @param {CardContext} card
 */
export function drawHeader(card) {
  const who = words("span", "nba-who");
  const prompt = words("span", "nba-prompt");
  const pill = span("nba-pill");
  const strip = div({ class: "nba-strip", "aria-hidden": "true" });
  const el = h("header", "nba-header", who, prompt, pill, strip);
  const whole = span();
  const folded = h("details", {}, h("summary", {}, whole));
  /** @type {Head|null} */
  let head = null;
  const draw = () => {
    if (!head) return;
    drawStrip(strip, head.spans, card.store.now() - head.started_at, ENDED.has(head.status));
  };
  const update = (/** @type {Head} */ next) => {
    if (head?.prompt !== next.prompt) {
      setText(whole, next.prompt);
      fill(prompt, next.prompt.length > LONG_PROMPT ? folded : whole.cloneNode(true));
    }
    head = next;
    setText(who, next.agent);
    const lost = card.store.gone && !ENDED.has(next.status);
    setText(pill, lost ? card.store.t("status_gone") : next.status_text);
    const outside = next.status === "interrupted" && !next.questions;
    attr(pill, "data-status", lost ? "gone" : outside ? "outside" : next.status);
    draw();
  };
  const tick = () => {
    if (head && !ENDED.has(head.status) && !card.store.gone) draw();
  };
  return { el, update, tick };
}

/**
 * The footer: counts, the way to the next question, and Stop.
 * @param {CardContext} card
 * @param {() => void} jump goes to the next question
 */
export function drawFooter(card, jump) {
  const { store, signal } = card;
  const turns = span();
  const tokens = span();
  const cost = span();
  const decisions = span();
  const questions = makeButton("nba-link nba-jump");
  const stop = makeButton("nba-button nba-stop");
  const retry = makeButton("nba-button nba-stop", store.t("retry"));
  const el = h("footer", "nba-footer", turns, tokens, cost, decisions, questions, stop, retry);
  let stopping = false;
  let pressed = false;
  onClick(signal, retry, () => disable(retry, store.gone || store.send({ type: "retry" })));
  onClick(signal, questions, jump);
  onClick(signal, stop, () => {
    if (stopping || pressed || store.gone) return;
    pressed = store.send({ type: "stop" });
    draw();
  });
  const draw = () => {
    const on = stopping || pressed;
    setText(stop, store.t(on ? "stopping" : "stop"));
    disable(stop, on || store.gone);
  };
  const update = (/** @type {Head} */ head) => {
    const ended = ENDED.has(head.status);
    stopping = head.stopping;
    pressed &&= !ended;
    setText(
      turns,
      !head.max_turns || (ended && !head.turns && head.chat)
        ? ""
        : ended
          ? store.tn("turns", head.turns)
          : store.t("turn", { n: head.turns, m: head.max_turns }),
    );
    setText(tokens, head.tokens > 0 ? store.tn("tokens", head.tokens) : "");
    tokens.title = [head.cached && store.t("cached", { n: groupDigits(head.cached) })]
      .concat(head.reasoning && store.t("reasoned", { n: groupDigits(head.reasoning) }))
      .filter(Boolean)
      .join(", ");
    const said = head.cost === null ? "cost_known" : "cost";
    setText(cost, head.known_cost > 0 ? store.t(said, { n: money(head.known_cost) }) : "");
    setText(decisions, head.decisions > 0 ? store.tn("decisions", head.decisions) : "");
    setText(questions, head.questions > 0 ? store.tn("questions", head.questions) : "");
    stop.hidden = ended;
    retry.hidden = head.status !== "failed";
    disable(retry, store.gone);
    for (const part of [turns, tokens, cost, decisions, questions]) part.hidden = !part.textContent;
    draw();
  };
  return { el, update };
}
