// @ts-check
// A list of options to pick from: radios or checkboxes, as a row, a column, or a column with a filter.

import { div, h, makeInput, setClass, setText, showText, span, words } from "../dom.js";
import { onChange, onInput } from "../lifetime.js";
import { reveal } from "./hidden.js";
import { lineInput } from "./inputs.js";

/** The maximum number of drawn options; the filter reaches the others. */
const DRAWN = 200;
/** Options above which there is a filter. */
const FILTER = 12;

/**
 * The list with its inputs, and what is picked in it.
 * @param {import("./field.js").Context} ctx
 * @param {import("./spec.js").Option[]} options
 * @param {{type: "radio"|"checkbox", row: boolean, digits: boolean}} style
 */
export function optionList(ctx, options, { type, row, digits }) {
  const group = ctx.id();
  const chosen = new Set(/** @type {number[]} */ ([]));
  const helps = options.some((option) => option.help);
  const list = div(`nba-options ${row && !helps ? "nba-row" : "nba-column"}`);
  const inputs = options.slice(0, DRAWN).map((_, index) => {
    const input = makeInput(type, { name: group, value: index });
    input.dataset["option"] = String(index);
    return input;
  });
  /** @type {number[]} The option of each input. */
  let drawn = [];
  const rows = inputs.map((input, index) => {
    const label = span("nba-option-label");
    const help = span("nba-help");
    const key = digits && index < 9 && h("kbd", { "aria-hidden": "true" }, String(index + 1));
    return {
      el: words("label", "nba-option", input, span({}, label, help), key),
      label,
      help,
    };
  });
  const draw = (/** @type {number[]} */ indices) => {
    drawn = indices.slice(0, DRAWN);
    rows.forEach((part, at) => {
      const index = drawn[at];
      const option = index === undefined ? undefined : options[index];
      const input = inputs[at];
      part.el.hidden = option === undefined;
      if (!input || index === undefined || !option) return;
      input.checked = chosen.has(index);
      setText(part.label, reveal(option.label));
      showText(part.help, reveal(option.help ?? ""));
    });
  };
  for (const part of rows) list.append(part.el);
  onChange(ctx.signal, list, (event) => {
    const at = inputs.indexOf(/** @type {HTMLInputElement} */ (event.target));
    const index = drawn[at];
    if (type === "radio") chosen.clear();
    if (index === undefined) return;
    if (inputs[at]?.checked) chosen.add(index);
    else chosen.delete(index);
    filter?.showChosen(picked());
  });
  const all = options.map((_, index) => index);
  draw(all);
  const picked = () => [...chosen].sort((a, b) => a - b);
  const filter =
    options.length > FILTER ? filteredList(ctx, options, list, draw, type === "checkbox") : null;
  return {
    el: filter?.el ?? list,
    /** The element to which a write-in is added. */
    list,
    inputs,
    picked,
    pick: (/** @type {number[]} */ indices) => {
      chosen.clear();
      for (const index of indices) chosen.add(index);
      // In a long list the chosen options come first.
      if (filter) filter.start(picked());
      else draw(drawn);
    },
  };
}

/**
 * The same list beneath a filter.
 * @param {import("./field.js").Context} ctx
 * @param {import("./spec.js").Option[]} options
 * @param {HTMLElement} list
 * @param {(indices: number[]) => void} draw
 * @param {boolean} several whether to list the chosen options in a line, as the list shows only some of them
 */
function filteredList(ctx, options, list, draw, several) {
  const line = words("div", "nba-help");
  const count = span({ class: "nba-soft", "aria-live": "polite" });
  const input = lineInput(ctx.t("filter"));
  input.className = "nba-filter";
  let order = options.map((_, index) => index);
  const narrow = () => {
    const wanted = input.value.toLowerCase();
    const hits = order.filter((index) =>
      `${options[index]?.label} ${options[index]?.help ?? ""}`.toLowerCase().includes(wanted),
    );
    draw(hits);
    setText(count, ctx.t("filter_count", { n: hits.length, m: options.length }));
  };
  onInput(ctx.signal, input, (event) => {
    event.stopPropagation(); // typing in the filter is not an answer
    narrow();
  });
  onChange(ctx.signal, input, (event) => event.stopPropagation());
  narrow();
  setClass(list, "nba-scroll");
  const showChosen = (/** @type {number[]} */ chosen) => {
    const what = chosen.map((index) => reveal(options[index]?.label ?? "")).join(", ");
    setText(line, what && ctx.t("chosen", { what }));
  };
  return {
    el: div("nba-filtered", div("nba-filterbar", input, count), list, several && line),
    showChosen,
    /** @param {number[]} first the first options */
    start(first) {
      showChosen(first);
      order = [...first, ...options.keys()].filter((index, at, all) => all.indexOf(index) === at);
      narrow();
    },
  };
}
