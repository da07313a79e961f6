// @ts-check
// Reports that the kernel behind a widget has stopped.

import { onAbort } from "./lifetime.js";

/** JupyterLab's states of a kernel that has lost its data. */
const LOST = new Set(["restarting", "autorestarting", "terminating", "dead"]);

/**
 * Calls `lost` once the kernel no longer receives the page's messages, maybe more than once.
 * @param {import("./wire.js").Model} model
 * @param {AbortSignal} signal
 * @param {() => void} lost
 */
export function whenLost(model, signal, lost) {
  // Jupyter cuts all comms when it restarts a kernel; that a kernel died it only tells of the kernel.
  const cut = () => lost();
  const status = (/** @type {unknown} */ _, /** @type {string} */ now) => {
    if (LOST.has(now)) lost();
  };
  const kernel = model.widget_manager?.kernel;
  model.on("comm_live_update", cut);
  kernel?.statusChanged?.connect(status);
  kernel?.disposed?.connect(cut);
  onAbort(signal, () => {
    model.off("comm_live_update", cut);
    kernel?.statusChanged?.disconnect(status);
    kernel?.disposed?.disconnect(cut);
  });
}
