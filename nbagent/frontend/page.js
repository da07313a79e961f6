// @ts-check
// The channel to a kernel that is in the page, as in JupyterLite. The front end holds a widget's messages back
// while a cell runs, so a card sends through a channel of its own, whose name is in the widget's state.

import { onAbort } from "./lifetime.js";

/** @import { Model } from "./wire.js" */

/**
 * The model, which sends through its channel if it has one.
 * @param {{model: Model, signal: AbortSignal}} context
 * @returns {Model}
 */
export default function withChannel({ model, signal }) {
  const name = model.get("channel");
  if (!name) return model;
  const channel = new BroadcastChannel(name);
  onAbort(signal, () => channel.close());
  const send = (/** @type {unknown} */ content) => channel.postMessage(JSON.stringify(content));
  return new Proxy(model, {
    get(target, key) {
      if (key === "send") return send;
      const value = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
