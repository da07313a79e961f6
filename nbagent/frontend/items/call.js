// @ts-check
// A tool call: one row, opened to see input, printed text, rich output and result.

import {
  attr,
  div,
  fill,
  growText,
  h,
  isEqual,
  sanitized,
  setClass,
  setLabel,
  setText,
  showText,
  span,
  words,
} from "../dom.js";
import { factList } from "../fields/facts.js";
import { duration, groupDigits } from "../format.js";
import { on, onClick } from "../lifetime.js";
import { afterTime, drawRecord } from "./record.js";

/**
 * @typedef {import("../wire.js").CallItem} CallItem
 * @typedef {import("../wire.js").Rich} Rich
 * @typedef {import("./item.js").CardContext} CardContext
 */

/** Lines of printed text before the fold, and from how many on there is one; see static.py. */
const FIRST_LINES = 10;
const FOLDED_FROM = 13;
/** Rows of a table, and lines, of a result from which on it is folded, and blocks of other HTML; see static.py. */
const LONG_TABLE = 12;
const LONG_TEXT = 23;
const LONG_HTML = 40;
/** Characters of about one line. */
const LINE = 110;
/** States that the row names in words: color alone says nothing to some. */
const NAMED = new Set(["waiting", "failed", "rejected", "cancelled"]);

/**
 * Draws a tool call.
 * @param {CallItem} first
 * @param {CardContext} card
 * @returns {import("./item.js").DrawnItem<CallItem>}
 */
export function drawCall(first, card) {
  const { store } = card;
  const { dot, path, name, brief, time, tell } = rowParts(card);
  const decided = span("nba-decided");
  const state = span("nba-state");
  const bar = progressBar(store.t("progress"));
  const body = callBody(card, first.key);
  const summary = h("summary", {}, dot, path, name, brief, decided, state, time, bar.el);
  const el = h("details", "nba-call", summary, body.el);
  let item = first;
  // A table or a picture is what the person came for: its row opens, unless they closed it.
  let touched = false;
  const openRich = () => {
    if (!touched && isRich(item)) el.open = true;
  };
  onClick(card.signal, summary, () => (touched = true));
  const tick = () => {
    const counting = item.state === "running" && item.started_at !== null;
    const seconds = counting ? store.now() - (item.started_at ?? 0) : item.elapsed;
    const known = seconds !== null && (counting || item.state !== "waiting");
    setText(time, known ? duration(store, Math.max(0, seconds), counting) : "");
  };
  const update = (/** @type {CallItem} */ next) => {
    const old = item;
    item = next;
    attr(el, "data-state", item.state);
    tell(item);
    const going = item.state === "running" && item.progress?.text;
    setText(brief, going || item.brief);
    const last = item.decisions?.at(-1);
    if (last && (next === first || !isEqual(last, old.decisions?.at(-1))))
      fill(decided, words("span", "", last.decision), afterTime(card, last));
    decided.hidden = !last;
    attr(decided, "data-tone", last?.tone);
    // What the decision tells is not told twice.
    const named = NAMED.has(item.state) && (last?.tone ?? "good") === "good";
    setText(state, named ? store.t(`state_${item.state}`) : "");
    bar.update(item.state === "running" ? item.progress : null);
    body.update(item, next === first ? null : old);
    openRich();
    tick();
  };
  update(first);
  return { el, update, tick };
}

/**
 * The start and the end of each row of calls.
 * @param {CardContext} card
 */
export function rowParts({ store }) {
  const dot = span({ class: "nba-dot", role: "img" });
  const path = words("span", "nba-path");
  const name = words("span", "nba-name");
  const tell = (/** @type {CallItem} */ item) => {
    setLabel(dot, store.t(`state_${item.state}`));
    showText(path, item.path && `${item.path} ▸`);
    setText(name, item.name);
  };
  return { dot, path, name, tell, brief: words("span", "nba-brief"), time: span("nba-time") };
}

/**
 * Whether a call has a table or a picture, which its row is opened for.
 * @param {CallItem} item
 */
export function isRich(item) {
  return item.outputs.some(({ kind }) => /html|image/.test(kind));
}

/**
 * The bar at the foot of a row, for a call that reports its progress.
 * @param {string} label
 */
function progressBar(label) {
  const done = h("i");
  const el = span({ class: "nba-bar", role: "progressbar", "aria-label": label }, done);
  const update = (/** @type {import("../wire.js").Progress|null} */ progress) => {
    el.hidden = progress === null;
    const fraction = progress?.fraction ?? null;
    setClass(el, "nba-unknown", fraction === null);
    const percent = fraction === null ? null : Math.round(Math.min(1, Math.max(0, fraction)) * 100);
    attr(el, "aria-valuenow", percent);
    done.style.width = percent === null ? "" : `${percent}%`;
  };
  return { el, update };
}

/**
 * The opened part of a row; what did not change is not drawn again.
 * @param {CardContext} card
 * @param {string} key of the call
 */
function callBody(card, key) {
  const { store } = card;
  const input = div("nba-input");
  const note = words("div", "nba-help");
  const printed = words("pre", "nba-printed");
  const more = h("summary");
  const others = words("pre", "nba-printed");
  const fold = (/** @type {string} */ name, /** @type {HTMLElement[]} */ ...inside) =>
    h("details", { class: "nba-rest", "data-key": `${key}:${name}`, hidden: true }, ...inside);
  const rest = fold("printed", more, others);
  const trace = words("pre", "nba-printed");
  const traced = fold("traceback", h("summary", {}, store.t("traceback")), trace);
  const records = div("nba-decisions");
  const outputs = div("nba-outputs");
  const result = words("pre", "nba-result");
  const results = div("nba-outputs", result);
  const el = div("nba-body", input, records, note, printed, rest, outputs, results, traced);
  const stay = (/** @type {Event} */ { target }) => {
    const all = /** @type {HTMLDetailsElement} */ (target);
    // After folding a long result at its end, the page stays at that end.
    if (all.matches(".nba-all:focus-within:not([open])")) all.scrollIntoView({ block: "nearest" });
  };
  on(card.signal, el, "toggle", stay, true);
  /**
   * An output with what shows all of it, which stays open where it was.
   * @param {HTMLElement} drawn @param {string} name @param {{kind: string, data: string}} output
   */
  const folded = (drawn, name, output) => {
    const label = longOf(store, output);
    setClass(drawn, "nba-long", !!label);
    if (!label) return [drawn];
    const whole = h("span", {}, label);
    const summary = h("summary", { "data-less": store.t("all_less") }, whole);
    const all = fold(name, summary);
    const there = el.querySelector(`[data-key="${CSS.escape(`${key}:${name}`)}"]`);
    setClass(all, "nba-all");
    all.hidden = false;
    all.open = !!there?.matches("[open]");
    return [drawn, all];
  };
  const print = (/** @type {string} */ text_) => {
    const lines = text_.replace(/\n$/, "").split("\n");
    rest.hidden = lines.length < FOLDED_FROM;
    growText(printed, rest.hidden ? text_ : lines.slice(0, FIRST_LINES).join("\n"));
    growText(others, rest.hidden ? "" : lines.slice(FIRST_LINES).join("\n"));
    setText(more, store.t("more_lines", { n: lines.length - FIRST_LINES }));
  };
  const update = (/** @type {CallItem} */ item, /** @type {CallItem|null} */ old) => {
    if (!old || !isEqual(old.input, item.input)) fill(input, factList(item.input));
    setText(note, (item.state === "running" && item.progress?.text) || "");
    if (item.printed !== old?.printed) print(item.printed);
    if (!old || !isEqual(old.outputs, item.outputs))
      fill(outputs, ...item.outputs.flatMap((one, n) => folded(drawRich(one), `all${n}`, one)));
    if (!old || old.result !== item.result) {
      setText(result, item.result ?? "");
      fill(results, ...folded(result, "all", { kind: "text", data: item.result ?? "" }));
    }
    setText(trace, item.traceback ?? "");
    traced.hidden = !item.traceback;
    const decisions = item.decisions ?? [];
    const told = decisions.filter((one) => one !== decisions.at(-1) || one.details.length > 0);
    fill(records, ...told.map((one) => drawRecord(one, card).el));
    for (const part of [input, records, note, printed, outputs, result])
      part.hidden = part.childNodes.length === 0;
    results.hidden = result.hidden;
  };
  return { el, update };
}

/**
 * The label of the button that shows all of a result; empty if that is short.
 * @param {import("../store.js").Store} store
 * @param {{kind: string, data: string}} output
 */
function longOf(store, { kind, data }) {
  if (kind === "image") return "";
  if (kind !== "text") {
    const bodies = data.split("<tbody").slice(1);
    const n = Math.max(0, ...bodies.map((body) => body.split("<tr").length - 1));
    if (n > LONG_TABLE) return store.t("all_rows", { n: groupDigits(n) });
    return data.split(/<(?:p|li|tr|br|h[1-6]|dt)\b/).length - 1 > LONG_HTML
      ? store.t("all_of")
      : "";
  }
  const n = data.replace(/\n$/, "").split("\n").length;
  if (n > LONG_TEXT) return store.t("all_lines", { n: groupDigits(n) });
  return data.length > LONG_TEXT * LINE ? store.t("all_of") : "";
}

/**
 * Draws one rich output. A picture is shown only where its bytes came along.
 * @param {Rich} output
 */
export function drawRich(output) {
  if (/html|links/.test(output.kind)) {
    const el = div("nba-rich nba-say");
    el.append(sanitized(output.data));
    return el;
  }
  if (output.kind === "image" && output.data.startsWith("data:image/"))
    return h("img", { class: "nba-rich", src: output.data, alt: output.alt });
  const shown = output.kind === "image" ? output.alt : output.data;
  return words("pre", "nba-rich", shown);
}
