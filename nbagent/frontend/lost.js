// @ts-check
// Reports that the kernel behind a widget has stopped.

import { onAbort } from "./lifetime.js";

/** JupyterLab's states of a kernel that has lost its data. */
const LOST = new Set(["restarting", "autorestarting", "terminating", "dead"]);

/**
 * Calls `onLost` when the kernel no longer receives the page's messages, maybe more than once.
 * @param {import("./wire.js").Model} model
 * @param {AbortSignal} signal
 * @param {() => void} onLost
 */
export function whenLost(model, signal, onLost) {
  // Jupyter closes all comms when it restarts a kernel. Only the kernel connection reports that a kernel died.
  const onDisconnect = () => onLost();
  const onStatus = (/** @type {unknown} */ _, /** @type {string} */ status) => {
    if (LOST.has(status)) onLost();
  };
  const kernel = model.widget_manager?.kernel;
  model.on("comm_live_update", onDisconnect);
  kernel?.statusChanged?.connect(onStatus);
  kernel?.disposed?.connect(onDisconnect);
  onAbort(signal, () => {
    model.off("comm_live_update", onDisconnect);
    kernel?.statusChanged?.disconnect(onStatus);
    kernel?.disposed?.disconnect(onDisconnect);
  });
}
