// @ts-check
// What stands above an inbox: what is looked for. It also tells the kernel that a page shows it, so that
// nothing is read where nobody looks.

import { every, lifeWithin, on, onAbort, onChange } from "./lifetime.js";

/** @typedef {import("./wire.js").Model} Model */

/** Milliseconds between two words that the inbox is on a page that is looked at. */
const SHOWN = 15_000;
const STYLE = `
.nba-bar { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-bar label { display: flex; align-items: center; gap: 6px; color: var(--jp-ui-font-color1, CanvasText); }
.nba-bar label[hidden] { display: none; }
.nba-bar select { font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-bar select:focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`;

/** The filters of an inbox as anywidget defines them. */
export default {
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} context */
  render({ model, el, signal }) {
    const style = document.createElement("style");
    style.textContent = STYLE;
    const bar = document.createElement("div");
    bar.className = "nba-bar";
    bar.setAttribute("role", "group");
    el.append(style, bar);
    /** @type {Map<string, HTMLSelectElement>} */
    const selects = new Map();
    const draw = () => {
      const { labels, ...choices } = model.get("choices");
      for (const [name, options] of Object.entries(choices)) {
        const select = selects.get(name) ?? add(name, labels[name]);
        const shown = JSON.stringify(options);
        if (select.dataset.shown !== shown) {
          select.dataset.shown = shown;
          const chosen = model.get("chosen")[name] ?? "";
          select.replaceChildren(...options.map(toOption));
          select.value = options.some((/** @type {[string, string]} */ [value]) => value === chosen)
            ? chosen
            : "";
        }
        const label = /** @type {HTMLElement} */ (select.parentElement);
        label.hidden = options.length < 2;
      }
    };
    /** @param {[string, string]} option */
    const toOption = ([value, text]) => new Option(text, value);
    /** @param {string} name @param {string} text */
    const add = (name, text) => {
      const select = document.createElement("select");
      const label = document.createElement("label");
      label.append(text, select);
      bar.append(label);
      selects.set(name, select);
      onChange(signal, select, () => {
        model.set("chosen", { ...model.get("chosen"), [name]: select.value });
        model.save_changes();
      });
      return select;
    };
    const told = lifeWithin(signal);
    const tell = () => {
      if (document.visibilityState !== "visible" || !bar.isConnected) return;
      try {
        model.send({ type: "shown" });
      } catch {
        told.abort(); // the kernel is gone
      }
    };
    model.on("change:choices", draw);
    every(told.signal, SHOWN, tell);
    on(told.signal, document, "visibilitychange", tell);
    onAbort(signal, () => {
      model.off("change:choices", draw);
      bar.remove();
    });
    draw();
    tell();
  },
};
