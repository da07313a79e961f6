// @ts-check
// A batch of many rows: its progress, its buttons, the questions that are answered together, and a table with
// only the visible rows. The kernel searches, sorts and filters, as only the kernel has all rows.

import {
  attr,
  div,
  expand,
  h,
  makeButton,
  randomId,
  setText,
  showText,
  span,
  words,
} from "./dom.js";
import { factList } from "./fields/facts.js";
import { keepKeysInside } from "./focus.js";
import { drawCovers } from "./items/covers.js";
import {
  every,
  makeTimer,
  nextFrame,
  on,
  onAbort,
  onChange,
  onClick,
  onInput,
} from "./lifetime.js";
import { watchKernel } from "./lost.js";

/** @typedef {[key: string, number: number, status: string, statusText: string, text: string, cost: string, name: string]} Row */
/**
 * The value of the kernel's `BatchView.window`.
 * @typedef {{from: number, total: number, rows: Row[], opened: string, by: string, order: "ascending"|"descending"}} Window
 */
/** A rule, and an id of the choice that made it; empty if the kernel made it. @typedef {[tool: string, field: string, operator: string, value: string, version: string]} Rule */
/**
 * @typedef {{
 *   tools: [string, string, number][], fields: [string, string][], rule: Rule,
 *   fit: number, preview: number, said: string, approvable: boolean, choices: [string, string][], writable: boolean, told: string, waits: string,
 * }} Asks
 */
/** A value that is opened first: the fact, once the kernel has sent it. @typedef {[id: string, text: string, brief: string, n: number, fact: import("./wire.js").Fact|null]} Odd */
/**
 * The value of the kernel's `BatchView.covers`.
 * @typedef {import("./wire.js").Covers & {preview: number, look: Odd[], more: number}} Covered
 */
/**
 * The value of the kernel's `BatchView.state`.
 * @typedef {{
 *   counts: [string, string, number][], total: number, said: string, used: string, status: string, retry: number,
 *   chosen: string, found: string, asks: Asks|null, labels: Record<string, string>,
 * }} State
 */

/** The height of a row, and of the visible part of the table, in pixels. */
const HEIGHT = 32;
const SEEN = 320;
/** Rows beyond the visible ones, on each side. */
const BEYOND = 15;
/** Milliseconds after the last step of a scroll, after the last key, and between reports that the page shows rows. */
const STILL = 60;
const LOOK_AFTER = 150;
const SHOWN = 15_000;
/** Milliseconds within which a second press stops all rows. */
const SURE = 4000;
/** Frames to wait for the card of a row. */
const FRAMES = 240;
const COLUMNS = ["number", "key", "status", "result", "cost"];
const KEYS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
  ["PageDown", 9],
  ["PageUp", -9],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);

/** The unused id and the repeated class let these rules win over the card's rules for tables and buttons. */
const ROOT = ".nba-batch.nba-batch:not(#nba)";
const STYLE = `
${ROOT} {
  --done: color-mix(in srgb, var(--nba-good) 78%, var(--nba-page));
  --asks: color-mix(in srgb, var(--nba-warn) 84%, var(--nba-page));
  --runs: color-mix(in srgb, var(--nba-link) 74%, var(--nba-page));
  --bad: color-mix(in srgb, var(--nba-bad) 80%, var(--nba-page));
  --off: color-mix(in srgb, var(--nba-ink) 40%, var(--nba-page));
  display: flex; flex-direction: column; gap: 12px; margin-top: 0; padding: 0 16px 14px; border-top: 0; border-radius: 0 0 10px 10px; font: 13px/20px var(--nba-font);
  & [hidden][hidden][hidden] { display: none; }
  & .b-sort span:empty { display: none; }
  & .b-bar { display: flex; gap: 1px; height: 8px; border-radius: 4px; overflow: hidden; background: var(--nba-line); }
  & .b-bar i { flex: 0 0 auto; min-width: 0; transition: width .3s; }
  & .b-bar i[data-of]:not([style*="width: 0"]) { min-width: 2px; }
  & :is(i, b)[data-of="completed"] { background: var(--done); }
  & :is(i, b):is([data-of="interrupted"], [data-of="stuck"]) { background: var(--asks); }
  & :is(i, b)[data-of="running"] { background: var(--runs); }
  & :is(i, b)[data-of="failed"] { background: var(--bad); }
  & :is(i, b)[data-of="cancelled"] { background: var(--off); }
  & b[data-of="left"] { background: var(--nba-line); }
  & .b-line { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 8px; margin: 0; }
  & .b-chips { display: flex; flex-wrap: wrap; gap: 6px; margin-inline-end: auto; }
  & .b-chip { display: inline-flex; align-items: center; gap: 6px; min-height: 0; margin: 0; padding: 1px 9px 1px 8px; border: 1px solid var(--nba-line); border-radius: 12px; background: none; color: inherit; font: 12px/20px var(--nba-font); font-variant-numeric: tabular-nums; cursor: pointer; }
  & .b-chip b { width: 8px; height: 8px; border-radius: 50%; }
  & .b-chip:hover { background: var(--nba-fill); }
  & .b-chip[aria-pressed="true"] { border-color: var(--nba-accent); background: color-mix(in srgb, var(--nba-accent) 14%, var(--nba-page)); font-weight: 600; }
  & .b-soft { color: var(--nba-soft); font: 12px/20px var(--nba-font); font-variant-numeric: tabular-nums; }
  & .b-find { flex: 1 1 180px; max-width: 300px; min-width: 0; margin-inline-end: auto; }
  & :is(input, select) { box-sizing: border-box; min-height: 28px; margin: 0; padding: 3px 8px; border: 1px solid var(--nba-edge); border-radius: 6px; background: var(--nba-input); color: inherit; font: 13px/20px var(--nba-font); }
  & input::placeholder { color: var(--nba-soft); opacity: 1; }
  & select { width: auto; max-width: 15em; }
  & .b-soft:empty { display: none; }
  & .b-button { min-height: 28px; margin: 0; padding: 3px 11px; border: 1px solid var(--nba-edge); border-radius: 6px; background: var(--nba-page); color: inherit; font: 500 13px/20px var(--nba-font); font-variant-numeric: tabular-nums; cursor: pointer; white-space: nowrap; }
  & .b-button:hover:not(:disabled) { background: var(--nba-fill); }
  & .b-button[data-look="main"] { border-color: var(--nba-accent); background: var(--nba-accent); color: var(--nba-on-accent); }
  & .b-button[data-look="main"]:hover:not(:disabled) { background: color-mix(in srgb, var(--nba-accent) 86%, #000); }
  & .b-button[data-look="sure"] { border-color: var(--nba-bad); color: var(--nba-bad); }
  & .b-button:disabled { border-style: dashed; border-color: var(--nba-edge); background: none; color: var(--nba-soft); cursor: default; }
  & :is(button, input, select, .b-scroll):focus-visible { outline: 2px solid var(--nba-link); outline-offset: 1px; }
  & .b-asks { display: flex; flex-direction: column; gap: 8px; margin: 0; padding: 10px 12px 12px; border: 1px solid color-mix(in srgb, var(--nba-warn) 45%, var(--nba-line)); border-radius: 8px; background: color-mix(in srgb, var(--nba-warn) 6%, var(--nba-page)); }
  & .b-title { margin: 0; padding: 0; color: var(--nba-warn-ink); font: 600 13px/20px var(--nba-font); }
  & .b-asks label { display: inline-flex; align-items: center; gap: 6px; margin: 0; white-space: nowrap; color: inherit; font: inherit; }
  & .b-asks label > span { flex: none; }
  & .b-value { flex: 0 1 8em; min-width: 5em; width: 8em; }
  & .b-reason { flex: 1 1 14em; min-width: 0; }
  & .b-look { display: grid; gap: 6px; margin: 0; padding-top: 8px; border-top: 1px solid var(--nba-line); }
  & .b-table { border: 1px solid var(--nba-line); border-radius: 6px; overflow: hidden; }
  & .b-row { display: grid; grid-template-columns: 7ch minmax(9ch, 15%) 10ch minmax(0, 1fr) 10ch 64px; align-items: center; height: ${HEIGHT}px; box-sizing: border-box; }
  & .b-table:not([data-cost]) .b-row { grid-template-columns: 7ch minmax(9ch, 15%) 10ch minmax(0, 1fr) 64px; }
  & .b-table:not([data-cost]) [data-col="cost"] { display: none; }
  & .b-head { height: 30px; padding-inline-end: var(--bar, 0); background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); color: var(--nba-soft); }
  & .b-sort { display: flex; gap: 4px; width: 100%; min-height: 0; height: 29px; align-items: center; margin: 0; padding: 0 10px; border: 0; background: none; color: inherit; font: 12px/20px var(--nba-font); text-align: start; cursor: pointer; overflow: hidden; white-space: nowrap; }
  & .b-sort:hover { text-decoration: underline; }
  & [aria-sort] .b-sort { color: var(--nba-ink); font-weight: 600; }
  & .b-scroll { position: relative; height: ${SEEN}px; overflow: auto; overscroll-behavior: contain; }
  & .b-space { position: relative; }
  & .b-space .b-row { position: absolute; inset-inline: 0; border-bottom: 1px solid var(--nba-line); cursor: pointer; }
  & .b-space .b-row:hover { background: var(--nba-fill); }
  & .b-space .b-row[data-open] { background: color-mix(in srgb, var(--nba-accent) 12%, var(--nba-page)); }
  & .b-cell { padding: 0 10px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  & [data-col="number"] { color: var(--nba-soft); text-align: end; font-variant-numeric: tabular-nums; }
  & .b-head [data-col="number"] .b-sort { justify-content: flex-end; }
  & [data-col="cost"] { text-align: end; font-variant-numeric: tabular-nums; }
  & .b-head [data-col="cost"] .b-sort { justify-content: flex-end; }
  & .b-space [data-col="key"] { font: 12px/20px var(--nba-mono); }
  & [data-col="open"] { padding: 0 10px 0 0; text-align: end; }
  & [data-col="open"] .b-button { min-height: 0; padding: 1px 9px; font: 12px/20px var(--nba-font); }
  & :is([data-status="interrupted"], [data-status="stuck"]) [data-col="status"] { color: var(--nba-warn-ink); font-weight: 600; }
  & [data-status="failed"] :is([data-col="status"], [data-col="result"]) { color: var(--nba-bad); }
  & [data-status="completed"] [data-col="status"] { color: var(--nba-good-ink); }
  & [data-status="running"] [data-col="status"] { color: var(--nba-link); }
  & .b-none { margin: 0; padding: 26px 18px; color: var(--nba-soft); text-align: center; }
  & .b-lost { color: var(--nba-bad); }
}
@container nbagent (max-width: 620px) {
  ${ROOT} {
    & .b-row, & .b-table:not([data-cost]) .b-row { grid-template-columns: 24px minmax(8ch, 24%) minmax(0, 1fr) 60px; }
    & [data-col="status"] { order: -1; }
    & .b-head [data-col="status"] .b-sort { padding: 0 0 0 10px; font-size: 0; }
    & .b-space [data-col="status"] { display: flex; align-items: center; height: 100%; padding: 0 0 0 10px; font-size: 0; }
    & :is(.b-space [data-col="status"], .b-head [data-col="status"] .b-sort)::before { content: ""; flex: none; width: 8px; height: 8px; border-radius: 50%; background: currentColor; }
    & :is([data-col="number"], [data-col="cost"]) { display: none; }
    & .b-cell, & .b-sort { padding-inline: 8px; }
    & .b-find { flex-basis: 100%; max-width: none; }
    & .b-asks :is(label, select, .b-value) { flex: 1 1 auto; max-width: none; }
    & .b-reason { flex-basis: 100%; max-width: none; }
  }
}
@media (prefers-reduced-motion: reduce) { ${ROOT} .b-bar i { transition: none; } }
@media (forced-colors: active) { ${ROOT} :is(.b-bar i, .b-chip b) { forced-color-adjust: none; } }
`;

/** The table of a batch, as anywidget defines it. */
export default {
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} context */
  render({ model, el, signal }) {
    const root = div("nbagent nba-batch");
    const style = h("style");
    style.textContent = STYLE;
    el.append(style, root);
    const lostEl = span({ class: "b-lost", role: "alert", hidden: true });
    let gone = false;
    const disableAll = () => {
      gone = true;
      showText(lostEl, state().labels["batch_gone"] ?? "");
      for (const each of root.querySelectorAll("button, input, select"))
        attr(each, "disabled", true);
    };
    const kernel = watchKernel(model, signal, disableAll);
    /** @param {object} message */
    const send = (message) => {
      if (gone) return;
      try {
        model.send(message);
        if (!("type" in message && message.type === "shown")) kernel.pressed();
      } catch {
        disableAll();
      }
    };
    const state = () => /** @type {State} */ (model.get("state"));
    const label = (/** @type {string} */ name, values = {}) => t(`batch_${name}`, values);
    const t = (/** @type {string} */ name, values = {}) => worded(state().labels[name], values);
    const context = { model, send, signal, state, label, t };
    const progress = drawProgress(context);
    const tools = drawTools(context);
    const asks = drawAsks(context);
    const table = drawTable(context);
    root.append(progress.el, asks.el, tools.el, table.el, lostEl);
    const update = () => {
      progress.update();
      tools.update();
      asks.update();
      if (gone) disableAll();
    };
    const reportShown = () =>
      document.visibilityState === "visible" && root.isConnected && send({ type: "shown" });
    model.on("change:state", update);
    model.on("change:covers", update);
    model.on("change:window", table.update);
    onAbort(signal, () => {
      model.off("change:state", update);
      model.off("change:covers", update);
      model.off("change:window", table.update);
    });
    every(signal, SHOWN, reportShown);
    on(signal, document, "visibilitychange", reportShown);
    keepKeysInside(root, signal);
    update();
    table.update();
    reportShown();
  },
};

/**
 * The common context of the parts.
 * @typedef {{
 *   model: any, send: (message: object) => void, signal: AbortSignal, state: () => State,
 *   label: (name: string, values?: Record<string, string|number>) => string, t: import("./items/covers.js").Texts,
 * }} BatchContext
 */

/** A text with its values in place of the names in braces. @param {string|undefined} text @param {object} values */
function worded(text, values) {
  return (text ?? "").replace(/\{(\w+)\}/g, (_, key) => /** @type {any} */ (values)[key] ?? "");
}

/** The progress: a bar, and the number of rows in each state; a press on one shows only those rows. @param {BatchContext} about */
function drawProgress({ send, signal, state, label }) {
  const bar = div({ class: "b-bar", role: "progressbar", "aria-valuemin": 0 });
  const chips = div({ class: "b-chips", role: "group" });
  const statusEl = span("b-soft");
  const el = div("", bar, div("b-line", chips, statusEl));
  el.style.display = "grid";
  el.style.gap = "8px";
  /** @type {Map<string, {part: HTMLElement, chip: HTMLButtonElement, text: HTMLElement}>} */
  const entries = new Map();
  const makePart = (/** @type {string} */ name) => {
    const part = h("i", { "data-of": name });
    const text = span();
    const chip = makeButton("b-chip", h("b", { "data-of": name }), text);
    onClick(signal, chip, () =>
      send({ type: "want", text: searchText(chip), status: state().chosen === name ? "" : name }),
    );
    const entry = { part, chip, text };
    entries.set(name, entry);
    return entry;
  };
  const update = () => {
    const { counts, total, chosen } = state();
    attr(chips, "aria-label", label("status"));
    attr(bar, "aria-label", label("rows"));
    attr(bar, "aria-valuemax", total);
    attr(bar, "aria-valuenow", counts.find(([name]) => name === "completed")?.[2] ?? 0);
    const names = new Set(counts.map(([name]) => name));
    for (const [name, entry] of entries) {
      if (names.has(name)) continue;
      entry.part.style.width = "0";
      entry.chip.hidden = true;
    }
    for (const [name, text, n] of counts) {
      const entry = entries.get(name) ?? makePart(name);
      entry.part.style.width = `${total ? (100 * n) / total : 0}%`;
      setText(entry.text, text);
      entry.chip.hidden = false;
      attr(entry.chip, "aria-pressed", String(chosen === name));
      attr(entry.chip, "disabled", name === "left");
      if (name !== "left" && !entry.part.isConnected) bar.append(entry.part);
      if (!entry.chip.isConnected) chips.append(entry.chip);
    }
    const inOrder = counts.map(([name]) => entries.get(name)?.chip);
    inOrder.forEach((chip, index) => {
      const at = [...chips.children].filter((each) => !(/** @type {HTMLElement} */ (each).hidden))[
        index
      ];
      if (chip && at !== chip) chips.insertBefore(chip, at ?? null);
    });
    showText(statusEl, [state().said, state().used].filter(Boolean).join(" · "));
  };
  return { el, update };
}

/** The text in the search box. @param {Element} el */
function searchText(el) {
  const input = el.closest(".nba-batch")?.querySelector(".b-find");
  return input instanceof HTMLInputElement ? input.value : "";
}

/** The search box, and the buttons for all rows. @param {BatchContext} about */
function drawTools({ send, signal, state, label }) {
  const input = h("input", { type: "search", class: "b-find" });
  const found = span({ class: "b-soft", role: "status" });
  const pause = makeButton("b-button");
  const stop = makeButton("b-button");
  const retry = makeButton("b-button");
  const el = div("b-line", input, found, retry, pause, stop);
  const timer = makeTimer(signal);
  const sure = makeTimer(signal);
  let isSure = false;
  const setSure = (/** @type {boolean} */ isOn) => {
    isSure = isOn;
    attr(stop, "data-look", isOn ? "sure" : null);
    setText(stop, label(isOn ? "stop_sure" : "stop"));
  };
  onInput(signal, input, () => {
    timer.start(LOOK_AFTER, () =>
      send({ type: "want", text: input.value, status: state().chosen }),
    );
  });
  onClick(signal, pause, () => send({ type: state().status === "paused" ? "resume" : "pause" }));
  onClick(signal, retry, () => send({ type: "retry" }));
  onClick(signal, stop, () => {
    if (isSure) send({ type: "stop" });
    setSure(!isSure);
    sure.start(SURE, () => setSure(false));
  });
  on(signal, stop, "blur", () => setSure(false));
  const update = () => {
    const { status, retry: again } = state();
    const isActive = ["starting", "running", "waiting", "paused"].includes(status);
    attr(input, "placeholder", label("find"));
    attr(input, "aria-label", label("find"));
    setText(found, state().found);
    setText(pause, label(status === "paused" ? "resume" : "pause"));
    pause.hidden = !isActive || status === "waiting";
    if (!isSure) setSure(false);
    stop.hidden = !isActive;
    setText(retry, label("retry", { n: again.toLocaleString("en") }));
    retry.hidden = again === 0;
  };
  return { el, update };
}

/** The questions that a rule chooses, which are answered together. @param {BatchContext} about */
function drawAsks({ model, send, signal, state, label, t }) {
  const title = h("p", "b-title");
  const tool = h("select");
  const toolLabel = h("label", "", span(), tool);
  const field = h("select");
  const fieldLabel = h("label", "", span(), field);
  const operator = h("select");
  const value = h("input", { class: "b-value" });
  const ruleStatus = span({ class: "b-soft", role: "status" });
  const covers = drawCovers(t);
  const odds = drawOdds({ send, signal, t, covered: () => covered() });
  const approve = makeButton("b-button");
  approve.dataset["look"] = "main";
  const choice = h("select");
  const text = h("input", { class: "b-reason" });
  const answer = makeButton("b-button");
  answer.dataset["look"] = "main";
  const reason = h("input", { class: "b-reason" });
  const reject = makeButton("b-button");
  const oneByOne = span("b-soft");
  const decisionStatus = span({ class: "b-soft", role: "status" });
  const replies = div("b-line", choice, text, answer);
  const actions = div("b-line", approve, reject, reason, oneByOne, decisionStatus);
  const el = div(
    { class: "b-asks", role: "group" },
    title,
    div("b-line", toolLabel, fieldLabel, operator, value, ruleStatus),
    covers.el,
    odds.el,
    replies,
    actions,
  );
  const covered = () => /** @type {Covered|undefined} */ (model.get("covers"));
  const timer = makeTimer(signal);
  /** The rule in the controls; the rules that the kernel does not show yet; and the rule that it showed last. */
  let rule = /** @type {Rule} */ (["", "", "", "", ""]);
  let unseen = /** @type {string[]} */ ([]);
  let seen = "";
  const chooseRule = () => {
    const text = field.value ? value.value : "";
    rule = [tool.value, field.value, operator.value, text, randomId()];
    unseen.push(JSON.stringify(rule));
    timer.start(LOOK_AFTER, () => send({ type: "rule", rule }));
    update();
  };
  /** Whether the kernel has not answered the latest choice yet. @param {string} rule the rule that the kernel shows */
  const isBehind = (rule) => {
    if (rule !== seen) unseen = unseen.includes(rule) ? unseen.slice(unseen.indexOf(rule) + 1) : [];
    seen = rule;
    return unseen.length > 0;
  };
  for (const select of [tool, field, operator]) {
    onChange(signal, select, () => {
      chooseRule();
      timer.now();
    });
  }
  onInput(signal, value, chooseRule);
  const decide = (/** @type {string} */ action) => {
    const { asks } = state();
    if (!asks) return;
    const box = action === "reject" ? reason : asks.choices.length ? choice : text;
    const reasonText = action === "approve" ? "" : box.value;
    const opened = odds.opened();
    send({ type: "decide", rule, preview: asks.preview, opened, action, reason: reasonText });
    if (reasonText && box !== choice) box.value = "";
  };
  onClick(signal, approve, () => decide("approve"));
  onClick(signal, reject, () => decide("reject"));
  onClick(signal, answer, () => decide("answer"));
  const setOptions = (
    /** @type {HTMLSelectElement} */ select,
    /** @type {[string, string][]} */ all,
    /** @type {string} */ chosen,
  ) => {
    const shown = JSON.stringify(all);
    if (select.dataset["shown"] !== shown) {
      select.dataset["shown"] = shown;
      select.replaceChildren(...all.map(([name, text]) => h("option", { value: name }, text)));
    }
    if (select.value !== chosen) select.value = chosen;
  };
  const update = () => {
    const { asks } = state();
    el.hidden = asks === null;
    if (!asks) return;
    const current = covered();
    const isOld = isBehind(JSON.stringify(asks.rule)) || current?.preview !== asks.preview;
    if (!isOld) rule = asks.rule;
    const [ofTool, ofField, op, ofValue] = rule;
    const isKnown = current?.preview === asks.preview;
    const answers = isKnown ? current.n : 0;
    const n = answers.toLocaleString("en");
    const left = asks.fit - answers;
    const look =
      isKnown &&
      left > 0 &&
      t(left === 1 ? "needs_look_one" : "needs_look", { n: left.toLocaleString("en") });
    attr(el, "aria-label", label("answer"));
    setText(title, asks.waits);
    setText(/** @type {HTMLElement} */ (toolLabel.firstChild), label("tool"));
    setText(/** @type {HTMLElement} */ (fieldLabel.firstChild), label("where"));
    setOptions(
      tool,
      asks.tools.map(([name, text, count]) => [name, `${text} (${count.toLocaleString("en")})`]),
      ofTool,
    );
    setOptions(field, [["", label("any")], ...asks.fields], ofField);
    setOptions(
      operator,
      ["is", "contains", "below", "above"].map((name) => [name, label(name)]),
      op,
    );
    attr(operator, "aria-label", label("where"));
    attr(value, "aria-label", label("value"));
    attr(value, "placeholder", label("value"));
    attr(reason, "aria-label", label("reason"));
    attr(reason, "placeholder", label("reason"));
    operator.hidden = value.hidden = ofField === "";
    if (value.value !== ofValue) value.value = ofValue;
    setText(ruleStatus, isOld ? "…" : asks.said);
    covers.update(isKnown ? current : null);
    odds.update();
    setText(approve, [label("approve", { n }), look].filter(Boolean).join(", "));
    setText(reject, label("reject", { n }));
    approve.hidden = !asks.approvable;
    for (const button of [approve, reject, answer])
      attr(button, "disabled", isOld || answers === 0);
    const hasChoices = asks.choices.length > 0;
    const isAnswered = hasChoices || asks.writable;
    replies.hidden = !isAnswered;
    choice.hidden = !hasChoices;
    text.hidden = hasChoices;
    setOptions(choice, asks.choices, choice.value || (asks.choices[0]?.[0] ?? ""));
    for (const each of [choice, text]) attr(each, "aria-label", label("reply_with"));
    attr(text, "placeholder", label("reply_with"));
    setText(answer, label("reply", { n }));
    showText(oneByOne, asks.approvable || isAnswered ? "" : label("one_by_one"));
    setText(decisionStatus, asks.told);
  };
  return { el, update };
}

/**
 * The values that need a look. An opened value stays open, and its questions are answered with the others.
 * @param {{send: (message: object) => void, signal: AbortSignal, t: BatchContext["t"], covered: () => Covered|undefined}} about
 */
function drawOdds({ send, signal, t, covered }) {
  const title = div("b-soft");
  const list = h("ul", "nba-odds");
  const more = div("b-soft");
  const el = div({ class: "b-look", role: "group" }, title, list, more);
  /** @type {Map<string, {el: HTMLElement, button: HTMLButtonElement, value: HTMLElement|null}>} */
  const lines = new Map();
  const make = (/** @type {Odd} */ [id, text, brief, n]) => {
    const button = makeButton("b-button", t("odd_open"));
    const what = n > 1 ? `${text}, ${t("odd_in", { n: n.toLocaleString("en") })}` : text;
    attr(button, "aria-label", `${t("odd_open")}: ${what}`);
    onClick(signal, button, () =>
      send({ type: "look", preview: covered()?.preview ?? 0, value: id }),
    );
    const line = {
      el: h("li", {}, button, words("span", "", what), words("span", "nba-mono", brief)),
      button,
      value: null,
    };
    lines.set(id, line);
    return line;
  };
  return {
    el,
    opened: () => [...lines].flatMap(([id, line]) => (line.value?.isConnected ? [id] : [])),
    update() {
      const { look = [], more: rest = 0 } = covered() ?? {};
      const ids = new Set(look.map(([id]) => id));
      for (const [id, line] of lines) {
        if (ids.has(id)) continue;
        line.el.remove();
        lines.delete(id);
      }
      for (const [at, one] of look.entries()) {
        const line = lines.get(one[0]) ?? make(one);
        const fact = one[4];
        if (fact && !line.value) {
          const about = { class: "nba-value", tabindex: 0, role: "group", "aria-label": one[1] };
          line.value = div(about, factList([fact]));
          const hadFocus = line.button === document.activeElement;
          line.button.remove();
          line.el.append(line.value);
          if (hadFocus) line.value.focus();
        }
        if (list.children[at] !== line.el) list.insertBefore(line.el, list.children[at] ?? null);
      }
      el.hidden = look.length === 0;
      setText(title, t("odd_title"));
      attr(el, "aria-label", title.textContent);
      showText(more, rest > 0 ? t("odd_more", { n: rest.toLocaleString("en") }) : "");
    },
  };
}

/** The visible rows, and some beyond them. @param {BatchContext} about */
function drawTable({ model, send, signal, state, label }) {
  const head = div({ class: "b-row b-head", role: "row" });
  const space = div({ class: "b-space", role: "rowgroup" });
  const scroll = div({ class: "b-scroll" }, space);
  const emptyEl = h("p", { class: "b-none", role: "status", hidden: true });
  const table = div({ class: "b-table", role: "table" }, div({ role: "rowgroup" }, head), scroll);
  const el = div("", table, emptyEl);
  const scrollTimer = makeTimer(signal);
  /** @type {Map<string, {row: HTMLElement, cells: HTMLElement[], button: HTMLButtonElement}>} */
  const rows = new Map();
  /** @type {Map<string, {cell: HTMLElement, text: HTMLElement, mark: HTMLElement}>} */
  const heads = new Map();
  /** The index of the row that Tab goes to, and whether that row gets the focus once it is drawn. */
  let current = 0;
  let isFocusWanted = false;
  let requested = "";

  for (const name of COLUMNS) {
    const text = span();
    const mark = span({ "aria-hidden": "true" });
    const button = makeButton("b-sort", text, mark);
    const cell = div({ role: "columnheader", "data-col": name }, button);
    onClick(signal, button, () => send({ type: "sort", column: name }));
    heads.set(name, { cell, text, mark });
    head.append(cell);
  }
  head.append(div({ role: "cell", "data-col": "open" }));

  const currentWindow = () => /** @type {Window} */ (model.get("window"));
  /** Requests the rows that are visible now. */
  const requestRows = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / HEIGHT) - BEYOND);
    const count = Math.ceil(SEEN / HEIGHT) + 2 * BEYOND;
    const key = `${first} ${count}`;
    if (key === requested) return;
    requested = key;
    send({ type: "window", from: first, count });
  };
  on(signal, scroll, "scroll", () => scrollTimer.start(STILL, requestRows));
  const open = (/** @type {string} */ key) => {
    send({ type: "open", key });
    if (currentWindow().opened !== key) scrollToCard(key);
  };
  /** Brings the card of the row into view once it is drawn. */
  const scrollToCard = (/** @type {string} */ key, frames = FRAMES) => {
    const outer = el.closest(".widget-vbox, .jp-OutputArea-output") ?? el;
    const card = [...outer.querySelectorAll("section.nbagent")].at(-1);
    const below = card && card.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_PRECEDING;
    if (currentWindow().opened === key && below && card.childElementCount)
      card.scrollIntoView({ block: "nearest" });
    else if (frames > 0) nextFrame(signal, () => scrollToCard(key, frames - 1));
  };
  onClick(signal, space, (event) => {
    const row = event.target instanceof Element ? event.target.closest(".b-row") : null;
    const selected = document.getSelection()?.toString() && event.detail > 0;
    const key = row instanceof HTMLElement ? row.dataset["key"] : undefined;
    if (key === undefined || selected) return;
    current = Number(/** @type {HTMLElement} */ (row).ariaRowIndex) - 2;
    open(key);
  });
  on(signal, space, "keydown", (event) => {
    const step = KEYS.get(event.key);
    if (step === undefined) return;
    event.preventDefault();
    const { total } = currentWindow();
    current = Math.min(Math.max(current + step, 0), total - 1);
    const top = current * HEIGHT;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + HEIGHT > scroll.scrollTop + SEEN) scroll.scrollTop = top + HEIGHT - SEEN;
    isFocusWanted = true;
    requestRows();
    updateTabRow();
  });
  /** Makes the current row the one that Tab goes to, and gives it the focus if that is wanted. */
  const updateTabRow = () => {
    for (const { row, button } of rows.values()) {
      const isAt = Number(row.ariaRowIndex) - 2 === current;
      button.tabIndex = isAt ? 0 : -1;
      if (isAt && isFocusWanted) {
        isFocusWanted = false;
        button.focus({ preventScroll: true });
      }
    }
  };
  const makeRow = (/** @type {string} */ key) => {
    const cells = COLUMNS.map((name) =>
      words("div", { class: "b-cell", role: "cell", "data-col": name }),
    );
    const button = makeButton("b-button");
    button.tabIndex = -1;
    const row = div(
      { class: "b-row", role: "row", "data-key": key },
      ...cells,
      div({ role: "cell", "data-col": "open" }, button),
    );
    const parts = { row, cells, button };
    rows.set(key, parts);
    return parts;
  };
  const update = () => {
    const { from, total, rows: next, opened, by, order } = currentWindow();
    for (const [name, { cell, text, mark }] of heads) {
      setText(text, label(name));
      const sorted = name === by ? order : null;
      attr(cell, "aria-sort", sorted === "ascending" && by === "number" ? null : sorted);
      setText(
        mark,
        !sorted || (by === "number" && order === "ascending")
          ? ""
          : order === "ascending"
            ? "▲"
            : "▼",
      );
    }
    attr(table, "aria-rowcount", total + 1);
    attr(table, "aria-label", label("rows"));
    attr(head, "aria-rowindex", 1);
    attr(table, "data-cost", /\$/.test(state().used));
    table.hidden = total === 0;
    showText(emptyEl, total ? "" : label(state().found ? "none" : "empty"));
    const height = Math.min(total * HEIGHT, SEEN);
    scroll.style.height = `${height}px`;
    space.style.height = `${total * HEIGHT}px`;
    head.style.setProperty("--bar", `${scroll.offsetWidth - scroll.clientWidth}px`);
    const active = document.activeElement;
    const focusedRow =
      active instanceof HTMLElement && space.contains(active) ? active.closest(".b-row") : null;
    const keys = new Set(next.map(([key]) => key));
    for (const [key, { row }] of rows) {
      if (keys.has(key)) continue;
      if (row === focusedRow) isFocusWanted = true;
      row.remove();
      rows.delete(key);
    }
    next.forEach(([key, number, status, statusText, text, cost, name], index) => {
      const { row, cells, button } = rows.get(key) ?? makeRow(key);
      const place = from + index;
      row.style.transform = `translateY(${place * HEIGHT}px)`;
      attr(row, "aria-rowindex", place + 2);
      attr(row, "data-status", status);
      attr(row, "data-open", key === opened);
      [number.toLocaleString("en"), name, statusText, text, cost].forEach((each, n) => {
        const cell = cells[n];
        if (!cell) return;
        setText(cell, each);
        attr(cell, "title", each.length > 12 ? each : null);
      });
      expand(button, key === opened);
      setText(button, label(key === opened ? "close" : "open"));
      attr(button, "aria-label", `${button.textContent} ${name}`);
      if (!row.isConnected) space.append(row);
    });
    if (current >= total) current = Math.max(0, total - 1);
    if (current < from || current >= from + next.length) {
      if (!isFocusWanted)
        current = Math.min(Math.floor(scroll.scrollTop / HEIGHT), Math.max(0, total - 1));
    }
    updateTabRow();
    requestRows();
  };
  return { el, update };
}
