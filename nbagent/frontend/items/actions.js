// @ts-check
// The buttons of a form, the reason of a refusal, the menu of further ways to answer, and the line at the
// right.

import {
  disable,
  div,
  fill,
  h,
  makeButton,
  setLabel,
  setText,
  showText,
  span,
  words,
} from "../dom.js";
import { countdown, groupDigits } from "../format.js";
import { onClick, onInput } from "../lifetime.js";
import { floatingMenu, opens } from "../menu.js";
import { pressGuard } from "./press-guard.js";

/** @import { Action } from "../wire.js" */
/** @import { CardContext } from "./item.js" */
/**
 * The state of the form that its buttons need.
 * @typedef {object} FormState
 * @property {boolean} busy an answer is on its way
 * @property {number|null} rows the number of rows, where the form has one grid
 * @property {boolean} gone whether the kernel would not receive it
 * @property {boolean} changed
 * @property {boolean} unseen something to approve was not shown completely yet
 * @property {boolean} empty the one question has no answer yet
 * @property {(action: Action) => boolean} idle whether a press of this button would answer nothing
 * @property {boolean|null} enter true if Enter alone submits, false if Ctrl+Enter does, null if no key does
 * @property {number|null} expires
 */

/** @typedef {{reason: string|null, remember: string|null}} AnswerExtras */

/**
 * The bar of a form's buttons, with the reason, the menu and the hint.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 * @param {{press: (action: Action, extras: AnswerExtras) => void, reset: () => void, asked: () => void}} `asked` is called when the question for a reason opens or closes
 */
export function actionBar(card, signal, { press, reset, asked }) {
  const t = card.store.t;
  const buttons = div("nba-buttons");
  const keys = span("nba-keys");
  const end = span({});
  const right = span("nba-right", keys, end);
  const undo = makeButton("nba-link", t("undo_all"));
  const menu = moreMenu(card, signal);
  const final = words("span", "nba-final");
  const acts = div("nba-acts", buttons, final, undo, right, menu.button);
  const hint = div({ class: "nba-hint", role: "status" });
  const panel = reasonPanel(card, signal);
  /** @type {{action: Action, el: HTMLButtonElement}[]} */
  let entries = [];
  /** @type {FormState|null} */
  let state = null;
  /** @type {Action|null} The refusal that waits for its reason. */
  let asking = null;
  const guard = pressGuard(
    () => [...entries.map((one) => one.el), panel.confirm, ...menu.choices()],
    card.clock,
    signal,
  );

  const hasCommand = /Mac|iPhone|iPad/.test(navigator.platform);
  const isApproved = () =>
    entries.some(({ action }) => action.primary && action.name === "approve");
  const isBlocked = (/** @type {Action} */ action) => {
    if (!state || state.busy || state.gone || state.idle(action)) return true;
    if (action.name === "approve") return state.unseen;
    return state.empty && (action.primary || action.name === "submit");
  };
  const setAsking = (/** @type {Action|null} */ action) => {
    asking = action;
    panel.el.hidden = action === null;
    acts.hidden = action !== null;
    menu.close();
    if (action) panel.open(action);
    else (entries.find((one) => one.action.reason)?.el ?? acts).focus();
    asked();
  };
  const tryPress = (/** @type {Action} */ action, /** @type {string|null} */ remember = null) => {
    if (isBlocked(action)) return;
    setText(hint, "");
    if (action.reason && asking !== action) setAsking(action);
    else press(action, { reason: action.reason ? panel.value() : null, remember });
  };
  /** A press by pointer counts only if the button did not move; a press by key always counts. */
  const guardPress = (
    /** @type {MouseEvent} */ event,
    /** @type {HTMLElement} */ el,
    /** @type {Action} */ action,
    act = () => tryPress(action),
  ) => {
    if (event.detail > 0 && !guard.accepts(el)) setText(hint, t("moved"));
    else act();
  };
  onClick(signal, panel.confirm, (event) => asking && guardPress(event, panel.confirm, asking));
  onClick(signal, panel.back, () => setAsking(null));
  onClick(signal, undo, () => !state?.busy && !state?.gone && reset());

  /**
   * @param {Action[]} actions
   * @param {Rule[]} [rules]
   */
  const build = (actions, rules = []) => {
    const order = actions
      .filter((action) => !action.menu)
      .sort((a, b) => Number(b.primary) - Number(a.primary));
    entries = order.map((action) => {
      const look = action.primary ? "nba-go" : action.danger ? "nba-no" : "";
      const el = makeButton(`nba-button ${look}`);
      onClick(signal, el, (event) => guardPress(event, el, action));
      return { action, el };
    });
    fill(buttons, ...entries.map((one) => one.el));
    const approve = entries.find((one) => one.action.name === "approve")?.action;
    const more = actions.filter((action) => action.menu).map((action) => ({ action, rule: null }));
    const always = rules.flatMap((rule) => (approve ? { action: approve, rule } : []));
    menu.build([...more, ...always], isApproved(), (event, el, { action, rule }) => {
      if (isBlocked(action) || (rule && state?.changed)) return;
      guardPress(event, el, action, () => {
        menu.close();
        tryPress(action, rule?.id);
      });
    });
    asking = null;
    panel.el.hidden = true;
    acts.hidden = false;
    guard.look();
  };
  /** What a button does; a grid's count of rows is in the main one. @type {(action: Action, state: FormState) => string} */
  const labelOf = ({ name, label, changed_label }, { rows, changed }) => {
    const isChanged = changed && changed_label;
    if (name !== "approve" || rows === null) return isChanged || label;
    const key = `${label === t("approve") ? "approve" : "act"}_rows${rows === 1 ? "_one" : ""}`;
    const what = t(key, { what: label, n: groupDigits(rows) });
    return isChanged ? t("with_changes", { what }) : what;
  };
  const update = (/** @type {FormState} */ next) => {
    state = next;
    for (const { action, el } of entries) {
      setText(el, labelOf(action, next));
      disable(el, isBlocked(action));
    }
    const isFinal = entries.some(({ action }) => action.primary && action.danger);
    showText(final, isFinal ? t("final") : "");
    menu.update(next.busy || next.gone, next.changed, isBlocked);
    undo.hidden = !next.changed || !entries.some((one) => one.action.changed_label);
    disable(panel.confirm, next.busy || next.gone);
    if (next.unseen && isApproved()) setText(hint, t("show_all_first"));
    else if (hint.textContent === t("show_all_first")) setText(hint, "");
    tick();
  };
  const tick = () => {
    if (!state) return;
    const left = state.expires === null ? null : state.expires - card.store.now();
    const key = state.enter ? "key_enter" : hasCommand ? "key_cmd_enter" : "key_ctrl_enter";
    const main = entries.find((one) => one.action.primary)?.action.label;
    const known = state.enter !== null && main;
    setText(keys, known ? t("key_does", { keys: t(key), action: main }) : "");
    setText(end, left === null ? "" : left > 0 ? expires(left) : t("expired"));
  };
  const expires = (/** @type {number} */ left) => t("expires_in", { t: countdown(left) });
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
      const action = asking ?? entries.find((one) => one.action.primary)?.action;
      if (action) tryPress(action);
    },
    /** Closes the reason or the menu again; false where neither was open. */
    escape() {
      if (menu.close()) return true;
      const open = asking !== null;
      if (open) setAsking(null);
      return open;
    },
    /** Focuses the button, or the menu, with which a person answers instead of running the call. */
    enter() {
      (entries.find(({ action }) => action.name === "answer")?.el ?? menu.button).focus();
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

/**
 * The menu of further ways to answer, never beside the main button: to approve with a rule for later calls, to
 * answer instead of running, or to run instead of answering.
 * @param {CardContext} card
 * @param {AbortSignal} signal
 */
function moreMenu(card, signal) {
  const button = makeButton("nba-button nba-more", "⋯");
  const { panel, open, close, entry } = floatingMenu(signal, card.id());
  /** @type {{choice: Choice, el: HTMLButtonElement}[]} */
  let choices = [];
  opens(signal, button, panel, open);
  return {
    button,
    panel,
    choices: () => choices.map(({ el }) => el),
    /**
     * @param {Choice[]} offered
     * @param {boolean} approves whether the main button approves
     * @param {(event: MouseEvent, el: HTMLElement, choice: Choice) => void} chosen
     */
    build(offered, approves, chosen) {
      const name = card.store.t(approves ? "more_ways" : "more_answers");
      for (const part of [button, panel]) setLabel(part, name);
      choices = offered.map((choice) => {
        const { label, help } = choice.rule ?? choice.action;
        const el = entry(label, help, (event) => chosen(event, el, choice));
        return { choice, el };
      });
      fill(panel, ...choices.map(({ el }) => el));
      open(null);
    },
    /**
     * @param {boolean} off whether it is not offered now
     * @param {boolean} changed whether no rule is offered
     * @param {(action: Action) => boolean} isBlocked
     */
    update(off, changed, isBlocked) {
      for (const { choice, el } of choices) {
        el.hidden = changed && choice.rule !== null;
        disable(el, isBlocked(choice.action));
      }
      button.hidden = off || choices.every(({ el }) => el.hidden);
      if (button.hidden) open(null);
    },
    close,
  };
}
