// @ts-check
// A card in a saved notebook. Only a kernel can draw a widget, so while JupyterLab or Notebook 7 saves, the
// kernel's static HTML replaces the widget. A page that is opened while the kernel still has the card puts the
// widget back. Once the card has ended, the HTML stays.

import { div, sanitized } from "./dom.js";
import { onAbort } from "./lifetime.js";

/** @import { CodeCell, FromKernel, Keep, Model, Notebook, Output, Piece } from "./wire.js" */

const WIDGET = "application/vnd.jupyter.widget-view+json";
const TAG = /<(\/?)([a-z][a-z0-9]*)(?:[^>"]|"[^"]*"?)*>?/g;
const BLOCKS = new Set(
  `blockquote caption dd details div dl dt figure h1 h2 h3 h4 h5 h6 hr li ol p pre summary table
  tr ul br`.split(/\s+/),
);

/**
 * The notebook that shows the card, if the page can write into it.
 * @param {Model} model
 * @returns {Notebook|null}
 */
export function notebookOf(model) {
  const context = model.widget_manager?.context;
  const notebook = context?.model;
  // In VS Code the notebook has no cells. A shared document is saved by its server, which ignores what the page does.
  const writes = context?.saveState && notebook?.cells.length && !notebook.collaborative;
  return writes ? context : null;
}

/**
 * Saves the card's static HTML in its notebook until the signal is aborted.
 * @param {import("./store.js").Store} store
 * @param {Model} model
 * @param {Notebook} context
 * @param {AbortSignal} signal
 * @param {string} [css] the style sheet that all cards share
 */
export function keepSaved(store, model, context, signal, css = "") {
  const notebook = context.model;
  /** @type {Keep|null} */
  let lastKeep = null;
  /** @type {Record<string, string>} The last static output, by mime type. */
  let bundle = {};

  /**
   * Calls a function for each output that shows the card or its static HTML.
   * @param {(cell: CodeCell, index: number, output: Output, live: boolean) => void} act
   */
  const forEachOutput = (act) => {
    if (lastKeep === null) return;
    for (const cell of notebook.cells) {
      for (let index = 0; index < (cell.outputs?.length ?? 0); index++) {
        const output = cell.outputs.get(index);
        const live = output.data[WIDGET]?.model_id === lastKeep.view;
        if (live || output.metadata.nbagent?.view === lastKeep.view) act(cell, index, output, live);
      }
    }
  };
  /**
   * Changes the outputs that are saved, and not those that are shown.
   * @param {(output: Output) => object} makeSaved
   */
  const writeOutputs = (makeSaved) =>
    forEachOutput((cell, index, output, live) => {
      if (live)
        cell.sharedModel.updateOutputs(index, index + 1, [makeSaved(output)], "silent-change");
    });
  /** The static HTML as an output. */
  const staticOutput = () => ({
    output_type: "display_data",
    data: bundle,
    metadata: lastKeep?.ended ? {} : { nbagent: { view: lastKeep?.view } },
  });
  /** The output of the live card. */
  const widgetOutput = () => {
    const shown = { version_major: 2, version_minor: 0, model_id: lastKeep?.view };
    return { output_type: "display_data", data: { ...bundle, [WIDGET]: shown }, metadata: {} };
  };
  /** Replaces the widget by the static HTML. */
  const showStatic = () => forEachOutput((cell, index) => cell.outputs.set(index, staticOutput()));
  /** Replaces the card where no cell's output has it: inside another widget, such as an `Output`. */
  const showStaticElsewhere = () => {
    for (const el of store.views) {
      el.replaceWith(div("", sanitized(bundle["text/html"] ?? ""))); // as in a saved output
    }
  };
  const onSaveState = (/** @type {unknown} */ _, /** @type {string} */ state) => {
    if (state === "started") writeOutputs(staticOutput);
    else {
      const { dirty } = notebook;
      writeOutputs((output) => output.toJSON());
      notebook.dirty = dirty; // the widget is back as it was: what is on disk is up to date
    }
  };
  /** Whether the widget is no longer needed once its kernel has stopped. */
  const isOver = () => lastKeep?.over && !store.typed;
  const onMessage = (/** @type {FromKernel} */ content) => {
    if (content.type !== "keep") return;
    const previous = lastKeep;
    const pieces = Object.entries(content.bundle);
    const isMissed = pieces.length
      ? content.seq !== null && content.seq !== store.seq
      : content.number !== previous?.number;
    if (isMissed) {
      model.send({ type: "keeps", ended: false });
      return;
    }
    if (pieces.length) bundle = Object.fromEntries(pieces.map(joinPieces));
    lastKeep = content;
    if (content.ended) {
      let isInCell = false;
      forEachOutput(() => {
        isInCell = true;
      });
      showStatic();
      if (!isInCell && store.views.size) showStaticElsewhere();
      else model.send({ type: "keeps", ended: true });
      return;
    }
    forEachOutput((cell, index, _, live) => live || cell.outputs.set(index, widgetOutput()));
    if (previous && pieces.length) notebook.dirty = true;
  };
  /**
   * @param {[string, Piece[]]} entry
   * @returns {[string, string]}
   */
  const joinPieces = ([mime, pieces]) => [
    mime,
    pieces
      .map((piece) => {
        if (typeof piece === "string") return piece;
        if (Array.isArray(piece)) return css.slice(...piece);
        const item = store.view?.items.find(({ key }) => key === piece.key);
        if (item?.type !== "text")
          throw new Error(`nbagent: there is no text ${piece.key} to store`);
        const blocks = [...item.blocks, item.tail];
        return mime === "text/html"
          ? blocks.join("")
          : blocks.map(textOf).filter(Boolean).join("\n\n");
      })
      .join(""),
  ];

  model.on("msg:custom", onMessage);
  context.saveState?.connect(onSaveState);
  store.listen(({ type }) => type === "gone" && isOver() && showStatic(), signal);
  onAbort(signal, () => {
    model.off("msg:custom", onMessage);
    context.saveState?.disconnect(onSaveState);
    // the kernel is gone: save the last static HTML, and show it if the card is finished
    if (isOver()) showStatic();
    else onSaveState(null, "started");
  });
}

/**
 * The plain text of HTML that the kernel sanitized; ../notebook/render/plain.py returns the same.
 * @param {string} html
 */
export function textOf(html) {
  const decode = (/** @type {string} */ part) =>
    part.includes("&") ? (sanitized(part).textContent ?? "") : part;
  let [position, preDepth, cellCount, text] = [0, 0, 0, ""];
  const add = (/** @type {string} */ part) => {
    const data = decode(part);
    if (preDepth > 0 || !data.includes("\n")) text += data;
    else if (data.trim()) text += data.replaceAll("\n", " ");
  };
  for (const { 0: tag, 1: closes, 2: name = "", index } of html.matchAll(TAG)) {
    add(html.slice(position, index));
    position = index + tag.length;
    if (BLOCKS.has(name)) text += "\n";
    if (name === "pre") preDepth += closes ? -1 : 1;
    if (name === "tr") cellCount = 0;
    else if (/^t[dh]$/.test(name) && !closes) text += cellCount++ ? " | " : "";
    else if (name === "img") text += decode(/\balt="([^"]*)"/.exec(tag)?.[1] ?? "");
    else if (!closes) text += { li: "- ", hr: "---\n" }[name] ?? "";
  }
  add(html.slice(position));
  const lines = text.split("\n").map((line) => line.trimEnd());
  return lines.filter(Boolean).join("\n");
}
