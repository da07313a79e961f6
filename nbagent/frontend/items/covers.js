// @ts-check
// What one answer to many questions covers: for each input the values with their numbers, or the range, the sum and
// a histogram, or a list to open.

import { div, fill, h, isEqual, present, setText, span, words } from "../dom.js";

/** @import { Covers, Spread } from "../wire.js" */
/** @typedef {(key: string, values?: Record<string, string|number>) => string} Texts */

/** The height of the highest bar in pixels. */
const HIGH = 22;

/**
 * A summary of the questions that an answer covers; hidden while there is none.
 * @param {Texts} t
 */
export function drawCovers(t) {
  const title = words("div", "nba-help");
  const list = h("dl", "nba-kv");
  const el = div({ class: "nba-covers", hidden: true }, title, list);
  /** @type {Covers|null} */
  let drawn = null;
  return {
    el,
    /** @param {Covers|null|undefined} covers */
    update(covers) {
      el.hidden = !covers?.inputs.length;
      if (!covers || isEqual(covers, drawn)) return;
      drawn = covers;
      const n = covers.n.toLocaleString("en");
      setText(title, t(covers.n === 1 ? "covers_title_one" : "covers_title", { n }));
      fill(list, ...covers.inputs.flatMap((spread) => drawSpread(spread, t)));
    },
  };
}

/**
 * One input: its name and its values.
 * @param {Spread} spread
 * @param {Texts} t
 */
function drawSpread({ name, text, values, bars, listed, more }, t) {
  const listing = listed.length > 0 && [
    h("summary", "nba-link", t("covers_list")),
    drawValues(listed, t),
    more > 0 && div("nba-help", t("covers_more", { n: more.toLocaleString("en") })),
  ];
  return [
    words("dt", "", name),
    h(
      "dd",
      "",
      bars.length > 0 && drawBars(bars, t),
      text && span("nba-spread", text),
      values.length > 0 && drawValues(values, t),
      listing && h("details", "nba-listed", ...present(listing)),
    ),
  ];
}

/**
 * Values, each with the number of questions that have it, if these are several.
 * @param {[string, number][]} values
 * @param {Texts} t
 */
function drawValues(values, t) {
  const lines = values.map(([value, n]) => {
    const times = n > 1 && span("nba-soft", ` ${t("covers_times", { n: n.toLocaleString("en") })}`);
    return h("li", {}, words("span", "nba-mono", value), times);
  });
  return h("ul", "nba-counts", ...lines);
}

/**
 * A histogram, as a picture with a name.
 * @param {number[]} bars
 * @param {Texts} t
 */
function drawBars(bars, t) {
  const most = Math.max(...bars);
  const about = { role: "img", "aria-label": t("covers_bars", { bars: bars.join(", ") }) };
  const drawn = bars.map((n) => {
    const bar = h("i");
    bar.style.height = `${n && Math.max(2, (HIGH * n) / most)}px`;
    return bar;
  });
  return span({ class: "nba-bars", ...about }, ...drawn);
}
