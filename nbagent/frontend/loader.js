// @ts-check
// The own code of every card: it takes the common code of all cards from the widget that
// `front_end` names, which a kernel opens once (../notebook/cards/front_end.py).

/** @typedef {import("./wire.js").Model} Model */
/** @typedef {{get: (name: string) => any}} FrontEnd */
/** @typedef {{code: string, find: string, waiting: string, saved: string, css: string, texts: Record<string, string>, page?: string}} Parts */
/** @typedef {{initialize: (context: any) => void, render: (context: any) => void}} Card */

/** On the page, whichever card came first: the code of each front end, once it is loaded. */
const LOADED = Symbol.for("nbagent.loaded");
const STYLE = "nbagent-style";
/** The selector of live cards, for which the style sheet has "&"; ../notebook/render/styles.py has the same. */
const LIVE = ".nbagent:not(.nba-static,#nba)";

/**
 * A card as anywidget defines it. The code may come later than what anywidget waits for.
 */
export default function loader() {
  /** @type {Promise<Card>|null} */
  let card = null;
  /** @param {{model: Model}} context */
  const made = (context) => {
    card ??= frontEndOf(context.model).then(async (frontEnd) => {
      const [{ default: start }, saved, parts] = await load(frontEnd);
      const { texts, css, find, waiting, page } = parts;
      showStyle(css.replaceAll("&", LIVE));
      const one = start();
      /** @type {Promise<any>|null} */
      let found = null;
      const finder = () => (found ??= run(find));
      /** @type {Promise<any>|null} */
      let waited = null;
      const waiter = () => (waited ??= run(waiting));
      // a kernel that is in the page gets it another way
      const model = page ? (await run(page)).default(context) : context.model;
      one.initialize({ ...context, model, texts, css, finder, waiter, saved });
      return one;
    });
    return card;
  };
  return {
    /** @param {{model: Model}} context */
    initialize(context) {
      made(context).catch(() => {}); // `render` tells it
    },
    /** @param {{model: Model, signal: AbortSignal}} context */
    async render(context) {
      const one = await made(context);
      if (!context.signal.aborted) one.render(context);
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
 * The code of cards, that of what a saved notebook keeps of them, and all the parts, loaded once.
 * @param {FrontEnd} frontEnd
 * @returns {Promise<[{default: () => Card}, object, Parts]>}
 */
function load(frontEnd) {
  const page = /** @type {any} */ (globalThis);
  /** @type {WeakMap<FrontEnd, Promise<any>>} */
  const loaded = page[LOADED] ?? new WeakMap();
  page[LOADED] = loaded;
  const parts =
    loaded.get(frontEnd) ??
    unpacked(frontEnd).then(async (all) => [await run(all.code), await run(all.saved), all]);
  loaded.set(frontEnd, parts);
  return parts;
}

/**
 * @param {FrontEnd} frontEnd
 * @returns {Promise<Parts>}
 */
function unpacked(frontEnd) {
  const stream = new Blob([frontEnd.get("packed")]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** @param {string} code of a module */
async function run(code) {
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
