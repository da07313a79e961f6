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

/** @import { CallItem, Progress, Rich } from "../wire.js" */
/** @import { CardContext, DrawItem } from "./item.js" */

/** Lines of printed text before the fold, and the number of lines from which on there is a fold; see static.py. */
const FIRST_LINES = 10;
const FOLDED_FROM = 13;
/** The maximum rows of a table, lines of text and blocks of other HTML of a result that is not folded; see static.py. */
const LONG_TABLE = 12;
const LONG_TEXT = 23;
const LONG_HTML = 40;
/** Maximum characters of the last printed line, which the row of a running call shows. */
const LATEST = 300;
/** Characters of about one line. */
const LINE = 110;
/** States that the row shows in words, as some people cannot tell the colors apart. */
const NAMED = /failed|rejected|cancelled/;

/** Draws a tool call. @type {DrawItem<CallItem>} */
export function drawCall(first, card) {
  const { store } = card;
  const { dot, path, name, brief, time, draw } = rowParts(card);
  const decided = span("nba-decided");
  const state = span("nba-state");
  const bar = progressBar(store.t("progress"));
  const body = callBody(card, first.key);
  const summary = h("summary", {}, dot, path, name, brief, decided, state, time, bar.el);
  const el = h("details", "nba-call", summary, body.el);
  let item = first;
  // The row of a table or a picture opens by itself, unless the person has used it.
  let isToggled = false;
  const openRich = () => {
    if (!isToggled && isRich(item)) el.open = true;
  };
  onClick(card.signal, summary, () => (isToggled = true));
  const tick = () => {
    const counting = item.state === "running" && item.started_at !== null;
    const seconds = counting ? store.now() - (item.started_at ?? 0) : item.elapsed;
    const known = seconds !== null && (counting || item.state !== "waiting");
    setText(time, known ? duration(store, Math.max(0, seconds), counting) : "");
  };
  const update = (/** @type {CallItem} */ next) => {
    const previous = item;
    item = next;
    attr(el, "data-state", item.state);
    draw(item);
    const lastLine = item.printed.slice(-LATEST).trimEnd().split("\n").at(-1);
    const now = item.state === "running" && (item.progress?.text || lastLine);
    setText(brief, now || item.brief);
    const last = item.decisions?.at(-1);
    if (last && (next === first || !isEqual(last, previous.decisions?.at(-1))))
      fill(decided, words("span", "", last.decision), afterTime(card, last));
    decided.hidden = !last;
    attr(decided, "data-tone", last?.tone);
    // The state is not shown if the decision says the same.
    const isStateShown = NAMED.test(item.state) && (last?.tone ?? "good") === "good";
    setText(state, isStateShown ? store.t(`state_${item.state}`) : "");
    bar.update(item.state === "running" ? item.progress : null);
    body.update(item, next === first ? null : previous);
    openRich();
    tick();
  };
  update(first);
  return { el, update, tick };
}

/**
 * The common elements of each row of calls.
 * @param {CardContext} card
 */
export function rowParts({ store }) {
  const dot = span({ class: "nba-dot", role: "img" });
  const path = words("span", "nba-path");
  const name = words("span", "nba-name");
  const draw = (/** @type {CallItem} */ item) => {
    setLabel(dot, store.t(`state_${item.state}`));
    showText(path, item.path && `${item.path} ▸`);
    setText(name, item.name);
  };
  return { dot, path, name, draw, brief: words("span", "nba-brief"), time: span("nba-time") };
}

/**
 * Whether a call has a table or a picture, so that its row opens by itself.
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
  const update = (/** @type {Progress|null} */ progress) => {
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
 * The opened part of a row; unchanged parts are not drawn again.
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
  const keepPlace = (/** @type {Event} */ { target }) => {
    const all = /** @type {HTMLDetailsElement} */ (target);
    // After folding a long result at its end, the page stays at that end.
    if (all.matches(".nba-all:focus-within:not([open])")) all.scrollIntoView({ block: "nearest" });
  };
  on(card.signal, el, "toggle", keepPlace, true);
  /**
   * An output, and for a long one the element that shows all of it; that stays open if it was.
   * @param {HTMLElement} drawn @param {string} name @param {{kind: string, data: string}} output
   */
  const folded = (drawn, name, output) => {
    const label = longOf(store, output);
    setClass(drawn, "nba-long", !!label);
    if (!label) return [drawn];
    const labelEl = h("span", {}, label);
    const summary = h("summary", { "data-less": store.t("all_less") }, labelEl);
    const allDetails = fold(name, summary);
    const existing = el.querySelector(`[data-key="${CSS.escape(`${key}:${name}`)}"]`);
    setClass(allDetails, "nba-all");
    allDetails.hidden = false;
    allDetails.open = !!existing?.matches("[open]");
    return [drawn, allDetails];
  };
  const print = (/** @type {string} */ text) => {
    const lines = text.replace(/\n$/, "").split("\n");
    rest.hidden = lines.length < FOLDED_FROM;
    growText(printed, rest.hidden ? text : lines.slice(0, FIRST_LINES).join("\n"));
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
    const shownDecisions = decisions.filter(
      (one) => one !== decisions.at(-1) || one.details.length > 0,
    );
    fill(records, ...shownDecisions.map((one) => drawRecord(one, card).el));
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
 * Draws one rich output. A picture is shown only if its bytes are included.
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
