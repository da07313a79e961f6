// @ts-check
// Reports that the kernel behind a widget has stopped, was restarted, or does not respond.

import { makeTimer, on, onAbort } from "./lifetime.js";

/** @import { Model } from "./wire.js" */

/** JupyterLab's states of a kernel that has lost its data. */
const LOST = new Set(["restarting", "autorestarting", "terminating", "dead"]);
/** Milliseconds after a press until a kernel that sent nothing is asked, and until it counts as silent. */
const [ASK_AFTER, SILENT_AFTER] = [2000, 7000];
/** The longest time between two questions to a silent kernel, in milliseconds. */
const ASK_AGAIN = 60_000;
/** Milliseconds in which all cards of a page share one question to their kernel. */
const SHARED = 500;
/** The last question to each kernel. @type {WeakMap<object, {at: number, comms: Promise<object|null>}>} */
const asked = new WeakMap();

/**
 * Watches the kernel of a widget. Not every host reports that a kernel died, or that another page restarted it.
 * So the kernel is asked for its comms when the page becomes visible, and when it does not respond to a press.
 * @param {Model} model
 * @param {AbortSignal} signal
 * @param {() => void} onLost called when the kernel no longer receives the page's messages, maybe more than once
 * @param {(silent: boolean) => void} [onSilent] called when the kernel stops or starts to respond
 * @returns {{pressed: () => void, heard: () => void}} call `pressed` after a message that the kernel responds to,
 * and `heard` at each message from the kernel
 */
export function watchKernel(model, signal, onLost, onSilent = () => {}) {
  const kernel = model.widget_manager?.kernel;
  const timer = makeTimer(signal);
  let isWaiting = false;
  let isSilent = false;
  const heard = () => {
    timer.stop();
    isWaiting = false;
    if (isSilent) onSilent(false);
    isSilent = false;
  };
  const check = async () => {
    const known = await isKnown(model);
    if (signal.aborted || known === null) return;
    heard();
    if (!known) onLost();
  };
  const ask = (/** @type {number} */ wait) => {
    check();
    timer.start(wait, () => {
      if (!isSilent) onSilent(true);
      isSilent = true;
      ask(Math.min(2 * wait, ASK_AGAIN));
    });
  };
  // Jupyter closes all comms when it restarts a kernel. Only the kernel connection reports that a kernel died.
  const onDisconnect = () => onLost();
  const onStatus = (/** @type {unknown} */ _, /** @type {string} */ status) => {
    if (LOST.has(status)) onLost();
    else if (status === "starting") check();
  };
  model.on("comm_live_update", onDisconnect);
  kernel?.statusChanged?.connect(onStatus);
  kernel?.disposed?.connect(onDisconnect);
  on(signal, document, "visibilitychange", () => document.hidden || check());
  onAbort(signal, () => {
    model.off("comm_live_update", onDisconnect);
    kernel?.statusChanged?.disconnect(onStatus);
    kernel?.disposed?.disconnect(onDisconnect);
  });
  return {
    heard,
    pressed() {
      if (isWaiting) return;
      isWaiting = true;
      timer.start(ASK_AFTER, () => ask(SILENT_AFTER - ASK_AFTER));
    },
  };
}

/**
 * Whether the kernel still has the widget's layout: another kernel has not. Null if nobody can say.
 * @param {Model} model
 */
async function isKnown(model) {
  const kernel = model.widget_manager?.kernel;
  const layout = model.get("layout")?.model_id;
  const isInPage = model.get("channel"); // nobody else restarts such a kernel
  if (!kernel?.requestCommInfo || isInPage || typeof layout !== "string") return null;
  let last = asked.get(kernel);
  if (!last || performance.now() - last.at > SHARED) {
    const comms = kernel.requestCommInfo({ target_name: "jupyter.widget" }).then(
      ({ content }) => content.comms ?? null,
      () => null, // a closed connection is reported by itself
    );
    last = { at: performance.now(), comms };
    asked.set(kernel, last);
  }
  const comms = await last.comms;
  return comms && layout in comms;
}
