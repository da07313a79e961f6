// @ts-check
// The run card as an anywidget. markup.md describes the structure of the drawing: Python draws
// the same for the static view.

import { randomId } from "./dom.js";
import { onAbort } from "./lifetime.js";
import { Store } from "./store.js";
import { RunView } from "./view.js";

/**
 * One definition per widget: anywidget calls this once for each model on a page, so that what
 * `initialize` keeps and what `render` draws belong to one run.
 */
export default function card() {
  /** @type {Store|null} */
  let store = null;
  return {
    /** @param {{model: import("./wire.js").Model, signal: AbortSignal, texts?: Record<string, string>, css?: string, finder?: import("./store.js").LoadFinder, waiter?: import("./store.js").LoadWaiter, saved?: typeof import("./saved.js")}} context */
    initialize({ model, signal, texts, css, finder, waiter, saved }) {
      const notebook = saved?.notebookOf(model);
      store = new Store(model, signal, texts, finder, Boolean(notebook));
      store.waiter = waiter;
      if (notebook) saved?.keepSaved(store, model, notebook, signal, css);
    },
    /** @param {{model: import("./wire.js").Model, el: HTMLElement, signal: AbortSignal}} context */
    render({ model, el, signal }) {
      store ??= new Store(model, signal);
      const view = new RunView(store, signal, `nba-${randomId().slice(0, 8)}`);
      el.append(view.el);
      onAbort(signal, () => view.el.remove());
    },
  };
}
