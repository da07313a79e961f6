// @ts-check
// Receiving the messages of a widget, also in a slow page.

/** @import { Model } from "./wire.js" */

/**
 * Receive the model's messages without anywidget, which drops them all where a slow page took over two seconds to
 * load a widget's code, those before it too: what they said must be in the widget's first state, or be asked for.
 * Backbone names the model itself in its events.
 * @param {Model} model
 */
export function receiveAlways(model) {
  model.on("change:received", (/** @type {any} */ itself) => {
    const receive = Object.getPrototypeOf(itself.constructor.prototype)._handle_comm_msg;
    itself.comm?.on_msg((/** @type {object} */ message) => receive.call(itself, message));
  });
  model.set("received", true);
}
