// @ts-check
// The form of a card in a saved notebook. Only its kernel can draw a widget, so while JupyterLab or Notebook 7 saves,
// the kernel's static HTML is in the widget's place; a page that is opened while the kernel still has the card
// puts the widget back, and a page that learns of the end leaves the HTML for good.

import { div, sanitized } from "./dom.js";
import { onAbort } from "./lifetime.js";

/**
 * @typedef {import("./wire.js").Keep} Keep
 * @typedef {import("./wire.js").Notebook} Notebook
 * @typedef {import("./wire.js").FromKernel} FromKernel
 * @typedef {import("./wire.js").CodeCell} CodeCell
 * @typedef {import("./wire.js").Output} Output
 */

const WIDGET = "application/vnd.jupyter.widget-view+json";
const TAG = /<(\/?)([a-z][a-z0-9]*)(?:[^>"]|"[^"]*"?)*>?/g;
const BLOCKS = new Set(
  `blockquote caption dd details div dl dt figure h1 h2 h3 h4 h5 h6 hr li ol p pre summary table
  tr ul br`.split(/\s+/),
);

/**
 * The notebook that the page shows the card in, if it can write into that.
 * @param {import("./wire.js").Model} model
 * @returns {Notebook|null}
 */
export function notebookOf(model) {
  const context = model.widget_manager?.context;
  const notebook = context?.model;
  // VS Code lends one without cells. A shared document is saved by its server, whatever a page does meanwhile.
  const writes = context?.saveState && notebook?.cells.length && !notebook.collaborative;
  return writes ? context : null;
}

/**
 * Keeps the card in its notebook until the signal is aborted.
 * @param {import("./store.js").Store} store
 * @param {import("./wire.js").Model} model
 * @param {Notebook} context
 * @param {AbortSignal} signal
 * @param {string} [css] the style sheet that all cards have in common
 */
export function keepSaved(store, model, context, signal, css = "") {
  const notebook = context.model;
  /** @type {Keep|null} */
  let kept = null;
  /** @type {Record<string, string>} What was kept last, by mime type. */
  let bundle = {};

  /**
   * Each output that shows the card, or what was kept of it.
   * @param {(cell: CodeCell, index: number, output: Output, live: boolean) => void} act
   */
  const each = (act) => {
    if (kept === null) return;
    for (const cell of notebook.cells) {
      for (let index = 0; index < (cell.outputs?.length ?? 0); index++) {
        const output = cell.outputs.get(index);
        const live = output.data[WIDGET]?.model_id === kept.view;
        if (live || output.metadata.nbagent?.view === kept.view) act(cell, index, output, live);
      }
    }
  };
  /**
   * Writes what is saved, and leaves what is shown.
   * @param {(output: Output) => object} saved
   */
  const write = (saved) =>
    each((cell, index, output, live) => {
      if (live) cell.sharedModel.updateOutputs(index, index + 1, [saved(output)], "silent-change");
    });
  /** The form that needs no kernel, as an output. */
  const still = () => ({
    output_type: "display_data",
    data: bundle,
    metadata: kept?.ended ? {} : { nbagent: { view: kept?.view } },
  });
  /** The output of the live card. */
  const widget = () => {
    const shown = { version_major: 2, version_minor: 0, model_id: kept?.view };
    return { output_type: "display_data", data: { ...bundle, [WIDGET]: shown }, metadata: {} };
  };
  /** Shows what was kept, in the widget's place. */
  const show = () => each((cell, index) => cell.outputs.set(index, still()));
  /** No cell's output has it: it is in a person's widget, such as an `Output`, and is replaced in its own place. */
  const showElsewhere = () => {
    for (const el of store.views) {
      el.replaceWith(div("", sanitized(bundle["text/html"] ?? ""))); // as a saved output has it
    }
  };
  const saving = (/** @type {unknown} */ _, /** @type {string} */ state) => {
    if (state === "started") write(still);
    else {
      const { dirty } = notebook;
      write((output) => output.toJSON());
      notebook.dirty = dirty; // the widget is back as it was: what is on disk is up to date
    }
  };
  /** Whether the widget is no longer needed once its kernel has stopped. */
  const over = () => kept?.over && !store.typed;
  const heard = (/** @type {FromKernel} */ content) => {
    if (content.type !== "keep") return;
    const before = kept;
    const pieces = Object.entries(content.bundle);
    const missed = pieces.length
      ? content.seq !== null && content.seq !== store.seq
      : content.number !== before?.number;
    if (missed) {
      model.send({ type: "keeps", ended: false });
      return;
    }
    if (pieces.length) bundle = Object.fromEntries(pieces.map(joined));
    kept = content;
    if (content.ended) {
      let stands = false;
      each(() => {
        stands = true;
      });
      show();
      if (!stands && store.views.size) showElsewhere();
      else model.send({ type: "keeps", ended: true });
      return;
    }
    each((cell, index, _, live) => live || cell.outputs.set(index, widget()));
    if (before && pieces.length) notebook.dirty = true;
  };
  /**
   * @param {[string, import("./wire.js").Piece[]]} told
   * @returns {[string, string]}
   */
  const joined = ([mime, pieces]) => [
    mime,
    pieces
      .map((one) => {
        if (typeof one === "string") return one;
        if (Array.isArray(one)) return css.slice(...one);
        const item = store.view?.items.find(({ key }) => key === one.key);
        if (item?.type !== "text") throw new Error(`nbagent: there is no text ${one.key} to store`);
        const blocks = [...item.blocks, item.tail];
        return mime === "text/html"
          ? blocks.join("")
          : blocks.map(textOf).filter(Boolean).join("\n\n");
      })
      .join(""),
  ];

  model.on("msg:custom", heard);
  context.saveState?.connect(saving);
  store.listen(({ type }) => type === "gone" && over() && show(), signal);
  onAbort(signal, () => {
    model.off("msg:custom", heard);
    context.saveState?.disconnect(saving);
    // the kernel is gone: what is saved, and shown where nothing goes on, is what was kept last
    if (over()) show();
    else saving(null, "started");
  });
}

/**
 * HTML that the kernel sanitized as text; ../notebook/render/plain.py has the same.
 * @param {string} html
 */
export function textOf(html) {
  const read = (/** @type {string} */ part) =>
    part.includes("&") ? (sanitized(part).textContent ?? "") : part;
  let [at, pre, cells, out] = [0, 0, 0, ""];
  const add = (/** @type {string} */ part) => {
    const data = read(part);
    if (pre > 0 || !data.includes("\n")) out += data;
    else if (data.trim()) out += data.replaceAll("\n", " ");
  };
  for (const { 0: tag, 1: closes, 2: name = "", index } of html.matchAll(TAG)) {
    add(html.slice(at, index));
    at = index + tag.length;
    if (BLOCKS.has(name)) out += "\n";
    if (name === "pre") pre += closes ? -1 : 1;
    if (name === "tr") cells = 0;
    else if (/^t[dh]$/.test(name) && !closes) out += cells++ ? " | " : "";
    else if (name === "img") out += read(/\balt="([^"]*)"/.exec(tag)?.[1] ?? "");
    else if (!closes) out += { li: "- ", hr: "---\n" }[name] ?? "";
  }
  add(html.slice(at));
  const lines = out.split("\n").map((line) => line.trimEnd());
  return lines.filter(Boolean).join("\n");
}
