// @ts-check
// The code of a single card. It takes the code that all cards share from the widget that `front_end` names,
// which a kernel opens once (../notebook/cards/front_end.py).

import { receiveAlways } from "./receive.js";

/** @import { Model } from "./wire.js" */
/** @typedef {{get: (name: string) => any}} FrontEnd */
/** @typedef {{code: string, find: string, waiting: string, saved: string, css: string, texts: Record<string, string>, page?: string}} Parts */
/** @typedef {{initialize: (context: any) => void, render: (context: any) => void}} Card */

/** The page's property for the loaded code of each front end, which all cards share. */
const LOADED = Symbol.for("nbagent.loaded");
const STYLE = "nbagent-style";
/** The selector of live cards, which replaces "&" in the style sheet; ../notebook/render/styles.py has the same. */
const LIVE = ".nbagent:not(.nba-static,#nba)";

/**
 * A card as anywidget defines it. Its code may arrive after `initialize` has returned.
 */
export default function loader() {
  /** @type {Promise<Card>|null} */
  let loading = null;
  /** @param {{model: Model}} context */
  const loadCard = (context) => {
    loading ??= frontEndOf(context.model).then(async (frontEnd) => {
      const [{ default: start }, saved, parts] = await loadParts(frontEnd);
      const { texts, css, find, waiting, page } = parts;
      showStyle(css.replaceAll("&", LIVE));
      const card = start();
      /** @type {Promise<any>|null} */
      let finderModule = null;
      const finder = () => (finderModule ??= importCode(find));
      /** @type {Promise<any>|null} */
      let waiterModule = null;
      const waiter = () => (waiterModule ??= importCode(waiting));
      // messages to a kernel in the page need a channel
      const model = page ? (await importCode(page)).default(context) : context.model;
      card.initialize({ ...context, model, texts, css, finder, waiter, saved });
      return card;
    });
    return loading;
  };
  return {
    /** @param {{model: Model}} context */
    initialize(context) {
      receiveAlways(context.model);
      loadCard(context).catch(() => {}); // `render` reports the error
    },
    /** @param {{model: Model, signal: AbortSignal}} context */
    async render(context) {
      const card = await loadCard(context);
      if (!context.signal.aborted) card.render(context);
    },
  };
}

/**
 * @param {Model} model
 * @returns {Promise<FrontEnd>}
 */
async function frontEndOf(model) {
  const name = model.get("front_end").replace("IPY_MODEL_", "");
  const found = await model.widget_manager?.get_model?.(name);
  if (!found) throw new Error("nbagent: this page cannot find the code of the cards");
  return found;
}

/**
 * The module for cards, the module for saved notebooks, and all the parts, loaded once.
 * @param {FrontEnd} frontEnd
 * @returns {Promise<[{default: () => Card}, object, Parts]>}
 */
function loadParts(frontEnd) {
  const page = /** @type {any} */ (globalThis);
  /** @type {WeakMap<FrontEnd, Promise<any>>} */
  const loaded = page[LOADED] ?? new WeakMap();
  page[LOADED] = loaded;
  const parts =
    loaded.get(frontEnd) ??
    unpackParts(frontEnd).then(async (all) => [
      await importCode(all.code),
      await importCode(all.saved),
      all,
    ]);
  loaded.set(frontEnd, parts);
  return parts;
}

/**
 * @param {FrontEnd} frontEnd
 * @returns {Promise<Parts>}
 */
function unpackParts(frontEnd) {
  const stream = new Blob([frontEnd.get("packed")]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** @param {string} code of a module */
async function importCode(code) {
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    return await import(/* @vite-ignore */ /* webpackIgnore: true */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {string} css */
function showStyle(css) {
  const style = document.getElementById(STYLE) ?? document.createElement("style");
  style.id = STYLE;
  if (style.textContent !== css) style.textContent = css;
  if (!style.isConnected) document.head.append(style);
}
