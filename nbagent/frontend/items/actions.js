// @ts-check
// The buttons of a form, the reason a refusal may carry, the menu of further ways, and the line at the right.

import {
  attr,
  disable,
  div,
  expand,
  fill,
  focused,
  h,
  makeButton,
  prevent,
  setLabel,
  setText,
  span,
  words,
} from "../dom.js";
import { countdown } from "../format.js";
import { on, onClick, onInput } from "../lifetime.js";
import { pressGuard } from "./press-guard.js";

/**
 * @typedef {import("../wire.js").Action} Action
 * @typedef {import("./item.js").CardContext} CardContext
 */
/**
 * The state of the form that its buttons need.
 * @typedef {object} Standing
 * @property {boolean} busy an answer is on its way
 * @property {boolean} gone whether the kernel would not receive it
 * @property {boolean} changed
 * @property {boolean} unseen something to approve was not shown whole yet
 * @property {boolean} empty the one question has no answer yet
 * @property {(action: Action) => boolean} idle whether a press of this button would answer nothing
 * @property {boolean|null} enter Enter alone submits, or no key does
 * @property {number|null} expires
 */

/** @typedef {{reason: string|null, remember: string|null}} Said */

/**
 * The bar of a form's buttons, with all that belongs to them.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 * @param {{press: (action: Action, said: Said) => void, reset: () => void, asked: () => void}} does `asked`: a reason is asked for, or no longer
 */
export function actionBar(card, signal, { press, reset, asked }) {
  const say = card.store.t;
  const buttons = div("nba-buttons");
  const keys = span("nba-keys");
  const end = span({});
  const right = span("nba-right", keys, end);
  const undo = makeButton("nba-link", say("undo_all"));
  const menu = moreMenu(card, signal);
  const acts = div("nba-acts", buttons, undo, right, menu.button);
  const hint = div({ class: "nba-hint", role: "status" });
  const panel = reasonPanel(card, signal);
  /** @type {{action: Action, el: HTMLButtonElement}[]} */
  let made = [];
  /** @type {Standing|null} */
  let standing = null;
  /** @type {Action|null} The refusal that waits for its reason. */
  let asking = null;
  const guard = pressGuard(
    () => [...made.map((one) => one.el), panel.confirm, ...menu.choices()],
    card.clock,
    signal,
  );

  const isApproved = () => made.some(({ action }) => action.primary && action.name === "approve");
  const blocked = (/** @type {Action} */ action) => {
    if (!standing || standing.busy || standing.gone || standing.idle(action)) return true;
    if (action.name === "approve") return standing.unseen;
    return standing.empty && (action.primary || action.name === "submit");
  };
  const ask = (/** @type {Action|null} */ action) => {
    asking = action;
    panel.el.hidden = action === null;
    acts.hidden = action !== null;
    menu.close();
    if (action) panel.open(action);
    else (made.find((one) => one.action.reason)?.el ?? acts).focus();
    asked();
  };
  const go = (/** @type {Action} */ action, /** @type {string|null} */ remember = null) => {
    if (blocked(action)) return;
    setText(hint, "");
    if (action.reason && asking !== action) ask(action);
    else press(action, { reason: action.reason ? panel.value() : null, remember });
  };
  /** A press by pointer counts only if the button did not move; a press by key always counts. */
  const clicked = (
    /** @type {MouseEvent} */ event,
    /** @type {HTMLElement} */ el,
    /** @type {Action} */ action,
    act = () => go(action),
  ) => {
    if (event.detail > 0 && !guard.stood(el)) setText(hint, say("moved"));
    else act();
  };
  onClick(signal, panel.confirm, (event) => asking && clicked(event, panel.confirm, asking));
  onClick(signal, panel.back, () => ask(null));
  onClick(signal, undo, () => !standing?.busy && !standing?.gone && reset());

  /**
   * @param {Action[]} actions
   * @param {Rule[]} [rules]
   */
  const build = (actions, rules = []) => {
    const order = actions
      .filter((action) => !action.menu)
      .sort((a, b) => Number(b.primary) - Number(a.primary));
    made = order.map((action) => {
      const look = action.primary
        ? "nba-go"
        : action.danger || action.name === "reject"
          ? "nba-no"
          : null;
      const el = makeButton(`nba-button ${look ?? ""}`);
      onClick(signal, el, (event) => clicked(event, el, action));
      return { action, el };
    });
    fill(buttons, ...made.map((one) => one.el));
    const approve = made.find((one) => one.action.name === "approve")?.action;
    const more = actions.filter((action) => action.menu).map((action) => ({ action, rule: null }));
    const always = rules.flatMap((rule) => (approve ? { action: approve, rule } : []));
    menu.build([...more, ...always], isApproved(), (event, el, { action, rule }) => {
      if (blocked(action) || (rule && standing?.changed)) return;
      clicked(event, el, action, () => {
        menu.close();
        go(action, rule?.id);
      });
    });
    asking = null;
    panel.el.hidden = true;
    acts.hidden = false;
    guard.look();
  };
  const update = (/** @type {Standing} */ next) => {
    standing = next;
    for (const { action, el } of made) {
      setText(el, (next.changed && action.changed_label) || action.label);
      disable(el, blocked(action));
    }
    menu.update(next.busy || next.gone, next.changed, blocked);
    undo.hidden = !next.changed || !made.some((one) => one.action.changed_label);
    disable(panel.confirm, next.busy || next.gone);
    if (next.unseen && isApproved()) setText(hint, say("show_all_first"));
    else if (hint.textContent === say("show_all_first")) setText(hint, "");
    tick();
  };
  const tick = () => {
    if (!standing) return;
    const left = standing.expires === null ? null : standing.expires - card.store.now();
    const key = standing.enter ? "key_enter" : isApple() ? "key_cmd_enter" : "key_ctrl_enter";
    const main = made.find((one) => one.action.primary)?.action.label;
    const known = standing.enter !== null && main;
    setText(keys, known ? say("key_does", { keys: say(key), action: main }) : "");
    setText(end, left === null ? "" : left > 0 ? expires(left) : say("expired"));
  };
  const expires = (/** @type {number} */ left) => say("expires_in", { t: countdown(left) });
  return {
    els: [panel.el, acts, menu.panel, hint],
    acts,
    build,
    update,
    tick,
    /** Whether the reason of a refusal is being written. */
    get asking() {
      return asking !== null;
    },
    /** The reason as far as it is written. */
    get reason() {
      return asking && panel.value();
    },
    /** Presses the main button, or confirms the refusal that is being written. */
    main() {
      const action = asking ?? made.find((one) => one.action.primary)?.action;
      if (action) go(action);
    },
    /** Closes the reason or the menu again; false where neither was open. */
    escape() {
      if (menu.close()) return true;
      const open = asking !== null;
      if (open) ask(null);
      return open;
    },
    /** Puts the focus where an answer instead is chosen. */
    enter() {
      (made.find(({ action }) => action.name === "answer")?.el ?? menu.button).focus();
    },
    /** @param {string} message */
    hint: (message) => setText(hint, message),
  };
}

/**
 * The panel that asks for the reason of a refusal.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 */
function reasonPanel(card, signal) {
  const input = words("textarea", { rows: 2, id: card.id() });
  const confirm = makeButton("nba-button nba-end");
  const back = makeButton("nba-button", card.store.t("back"));
  const el = div(
    { class: "nba-reason", hidden: true },
    h("label", { for: input.id }, card.store.t("reason")),
    input,
    div("nba-buttons", confirm, back),
  );
  onInput(signal, input, (event) => event.stopPropagation());
  return {
    el,
    confirm,
    back,
    value: () => input.value.trim() || null,
    /** @param {Action} action */
    open(action) {
      setText(confirm, action.label.replace(/…$/, ""));
      input.focus();
    },
  };
}

/**
 * @typedef {{id: string, label: string, help?: string}} Rule
 * @typedef {{action: Action, rule: Rule|null}} Choice
 */

/** Keys that walk through a menu, as steps from the entry that has the focus. */
const STEPS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);

/**
 * The menu of further ways to answer, never beside the main button: what an approval may do beyond this
 * once, and to answer instead of running, or to run instead of answering.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 */
function moreMenu(card, signal) {
  const panel = div({ class: "nba-menu", id: card.id(), role: "menu", hidden: true });
  const button = makeButton("nba-button nba-more", "⋯");
  attr(button, "aria-controls", panel.id);
  attr(button, "aria-haspopup", "menu");
  /** @type {{choice: Choice, el: HTMLButtonElement}[]} */
  let choices = [];
  const shown = () => choices.map(({ el }) => el).filter((el) => !el.hidden);
  const open = (/** @type {boolean} */ wanted) => {
    panel.hidden = !wanted;
    expand(button, wanted);
    if (wanted) shown()[0]?.focus();
  };
  onClick(signal, button, () => open(panel.hidden === true));
  on(signal, button, "keydown", (event) => {
    if (event.key !== "ArrowDown" || !panel.hidden) return;
    prevent(event);
    open(true);
  });
  on(signal, panel, "keydown", (event) => {
    const step = STEPS.get(event.key);
    const all = shown();
    if (step === undefined || all.length === 0) return;
    prevent(event);
    const at = all.indexOf(/** @type {any} */ (focused())) + step;
    all.at(Number.isFinite(at) ? at % all.length : step < 0 ? 0 : -1)?.focus();
  });
  on(signal, panel, "focusout", ({ relatedTarget }) => {
    const to = /** @type {Node|null} */ (relatedTarget);
    // The focus that goes nowhere is that of a tab that is left, or of an entry that is pressed.
    if (to && to !== button && !panel.contains(to)) open(false);
  });
  open(false);
  return {
    button,
    panel,
    choices: () => choices.map(({ el }) => el),
    /**
     * @param {Choice[]} offered
     * @param {boolean} approves whether the main button does
     * @param {(event: MouseEvent, el: HTMLElement, choice: Choice) => void} chosen
     */
    build(offered, approves, chosen) {
      const name = card.store.t(approves ? "more_ways" : "more_answers");
      for (const part of [button, panel]) setLabel(part, name);
      choices = offered.map((choice) => {
        const { label, help } = choice.rule ?? choice.action;
        const told = help && words("small", "", help);
        const el = makeButton("nba-way", words("span", "", label), told);
        attr(el, "role", "menuitem");
        attr(el, "tabindex", -1);
        onClick(signal, el, (event) => chosen(event, el, choice));
        return { choice, el };
      });
      fill(panel, ...choices.map(({ el }) => el));
      open(false);
    },
    /**
     * @param {boolean} off whether it is not offered now
     * @param {boolean} changed whether no rule is offered
     * @param {(action: Action) => boolean} blocked
     */
    update(off, changed, blocked) {
      for (const { choice, el } of choices) {
        el.hidden = changed && choice.rule !== null;
        disable(el, blocked(choice.action));
      }
      button.hidden = off || choices.every(({ el }) => el.hidden);
      if (button.hidden) open(false);
    },
    /** Whether it was open. */
    close() {
      const was = !panel.hidden;
      if (was) button.focus();
      open(false);
      return was;
    },
  };
}

/** Whether this keyboard has a Command key. */
function isApple() {
  return /Mac|iPhone|iPad/.test(navigator.platform);
}
