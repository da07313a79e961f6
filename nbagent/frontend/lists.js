// @ts-check
// The filters of a store's lists, an inbox or its runs, and the table of the runs. It also informs the kernel
// that a page shows the list, so that the kernel does not read hidden lists.

import { h, setText } from "./dom.js";
import { keepKeysInside } from "./focus.js";
import {
  every,
  lifeWithin,
  makeTimer,
  nextFrame,
  on,
  onAbort,
  onChange,
  onInput,
} from "./lifetime.js";
import { watchKernel } from "./lost.js";
import withChannel from "./page.js";

/** @typedef {import("./wire.js").Model} Model */

/** Milliseconds between two reports that a visible page shows the list. */
const SHOWN = 15_000;
/** Milliseconds after the last key until the filter changes. */
const LOOK_AFTER = 150;
/** Frames to wait for the card beside a bar. */
const FRAMES = 240;
const STYLE = `
.nba-chooser[hidden] { display: none; }
.nbagent > .nba-chooser { padding: 0 16px 12px; }
.nba-chooser { display: flex; flex-wrap: wrap; gap: 6px 16px; padding: 2px 0 8px; font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, CanvasText); }
.nba-chooser label { display: flex; align-items: center; gap: 6px; white-space: nowrap; color: var(--jp-ui-font-color1, CanvasText); }
.nba-heard { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.nba-chooser label[hidden] { display: none; }
.nba-chooser :is(select, input) { box-sizing: border-box; font: inherit; min-height: 28px; max-width: 16em; padding: 2px 6px; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 4px; background: var(--jp-layout-color1, Canvas); color: inherit; }
.nba-chooser :is(select, input):focus-visible { outline: 2px solid var(--jp-brand-color1, Highlight); outline-offset: 1px; }
`;

/**
 * Puts the bar below the head of the card beside it, once that is drawn.
 * @param {HTMLElement} bar @param {HTMLElement} el where it was drawn @param {AbortSignal} signal
 */
function moveBelowHeader(bar, el, signal, frames = FRAMES) {
  const header = el.closest(".widget-vbox")?.querySelector("section.nbagent > .nba-header");
  if (header) header.after(bar);
  else if (frames > 0) nextFrame(signal, () => moveBelowHeader(bar, el, signal, frames - 1));
}

/** The filters of a list, and the runs, as anywidget defines them. */
export default {
  /** @param {{model: any, el: HTMLElement, signal: AbortSignal}} context */
  render({ model: hostModel, el, signal }) {
    /** @type {any} */
    const model = withChannel({ model: hostModel, signal });
    const style = document.createElement("style");
    style.textContent = STYLE;
    const bar = document.createElement("div");
    bar.className = "nba-chooser";
    bar.setAttribute("role", "group");
    const statusEl = h("div", { class: "nba-heard", role: "status" });
    const showStatus = () => setText(statusEl, model.get("said") ?? "");
    el.append(style, bar, statusEl);
    /** @type {Map<string, HTMLInputElement|HTMLSelectElement>} */
    const controls = new Map();
    const draw = () => {
      const { labels, ...choices } = model.get("choices");
      bar.hidden = !labels; // there is nothing to choose from
      if (labels?.text && !controls.has("text")) addText(labels.text);
      for (const [name, options] of Object.entries(choices)) {
        const select = controls.get(name) ?? addSelect(name, labels[name]);
        const shown = JSON.stringify(options);
        if (select instanceof HTMLSelectElement && select.dataset["shown"] !== shown) {
          select.dataset["shown"] = shown;
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
    /**
     * @template {HTMLInputElement|HTMLSelectElement} T
     * @param {string} name @param {string} text @param {T} control
     */
    const add = (name, text, control) => {
      bar.append(h("label", "", text, control));
      controls.set(name, control);
      return control;
    };
    const choose = (/** @type {string} */ name, /** @type {string} */ value) => {
      model.set("chosen", { ...model.get("chosen"), [name]: value });
      model.save_changes();
    };
    /** @param {string} name @param {string} text */
    const addSelect = (name, text) => {
      const select = add(name, text, h("select"));
      onChange(signal, select, () => choose(name, select.value));
      return select;
    };
    const addText = (/** @type {string} */ text) => {
      const input = add("text", text, h("input", { type: "search" }));
      const timer = makeTimer(signal);
      input.value = model.get("chosen")["text"] ?? "";
      onInput(signal, input, () => timer.start(LOOK_AFTER, () => choose("text", input.value)));
    };
    const reportLife = lifeWithin(signal);
    const send = (/** @type {object} */ message) => {
      try {
        model.send(message);
        return true;
      } catch {
        reportLife.abort(); // the kernel is gone
        return false;
      }
    };
    const reportShown = () => {
      if (document.visibilityState !== "visible" || !bar.isConnected) return;
      send({ type: "shown" });
    };
    const onLost = () => {
      reportLife.abort();
      for (const control of controls.values()) control.disabled = true;
    };
    watchKernel(model, signal, onLost);
    model.on("change:choices", draw);
    model.on("change:said", showStatus);
    every(reportLife.signal, SHOWN, reportShown);
    on(reportLife.signal, document, "visibilitychange", reportShown);
    onAbort(signal, () => {
      model.off("change:choices", draw);
      model.off("change:said", showStatus);
      bar.remove();
    });
    draw();
    keepKeysInside(bar, signal);
    moveBelowHeader(bar, el, signal);
    reportShown();
  },
};
