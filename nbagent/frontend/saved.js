// @ts-check
// What a saved notebook keeps of a card. A widget is drawn by its kernel alone, so while JupyterLab or Notebook 7 saves,
// static HTML of the kernel stands where the widget does; a page that is opened while the kernel still has the card
// puts the widget back, and one that hears of the end leaves the HTML for good.

import { onAbort } from "./lifetime.js";

/**
 * @typedef {import("./wire.js").Keep} Keep
 * @typedef {import("./wire.js").FromKernel} FromKernel
 * @typedef {import("./wire.js").CodeCell} CodeCell
 * @typedef {import("./wire.js").Output} Output
 */

const WIDGET = "application/vnd.jupyter.widget-view+json";

/**
 * Keeps the card in its notebook until the signal is aborted; does nothing where the page cannot reach the notebook.
 * @param {import("./wire.js").Model} model
 * @param {AbortSignal} signal
 */
export function keepSaved(model, signal) {
  const context = model.widget_manager?.context;
  const notebook = context?.model;
  // VS Code lends one without cells. A shared document is saved by its server, whatever a page does meanwhile.
  if (!context?.saveState || !notebook?.cells.length || notebook.collaborative) return;
  /** @type {Keep|null} */
  let kept = null;

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
  /** @param {Keep} keep */
  const still = ({ view, bundle, ended }) => ({
    output_type: "display_data",
    data: bundle,
    metadata: ended ? {} : { nbagent: { view } },
  });
  const saving = (/** @type {unknown} */ _, /** @type {string} */ state) => {
    if (state === "started") write(() => still(/** @type {Keep} */ (kept)));
    else {
      const { dirty } = notebook;
      write((output) => output.toJSON());
      notebook.dirty = dirty; // the widget is back as it was: what is on disk is up to date
    }
  };
  const heard = (/** @type {FromKernel} */ content) => {
    if (content.type !== "keep") return;
    if (!Object.keys(content.bundle).length) {
      let ended = kept !== null;
      each(() => (ended = false));
      model.send({ type: "keeps", ended });
      return;
    }
    const before = kept;
    kept = content;
    each((cell, index, _, live) => {
      const output = still(content);
      if (content.ended) cell.outputs.set(index, output);
      else if (!live) cell.outputs.set(index, widget(content));
    });
    if (content.ended) model.send({ type: "keeps", ended: true });
    else if (before) notebook.dirty = true;
  };

  model.on("msg:custom", heard);
  context.saveState.connect(saving);
  onAbort(signal, () => {
    model.off("msg:custom", heard);
    context.saveState?.disconnect(saving);
    if (!kept) return; // the kernel is gone: what is saved, and shown where nothing goes on, is what was kept last
    if (kept.over)
      each((cell, index) => cell.outputs.set(index, still(/** @type {Keep} */ (kept))));
    else saving(null, "started");
  });
  model.send({ type: "keeps", ended: false });
}

/**
 * The output of a live card.
 * @param {Keep} keep
 */
function widget({ view, bundle }) {
  const shown = { version_major: 2, version_minor: 0, model_id: view };
  return { output_type: "display_data", data: { ...bundle, [WIDGET]: shown }, metadata: {} };
}
