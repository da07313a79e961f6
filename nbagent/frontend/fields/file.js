// @ts-check
// A file: it is read in the page, and sent only with the answer.

import { announce, div, makeInput, setClass, showText } from "../dom.js";
import { on, onChange } from "../lifetime.js";
import { controlField } from "./control-field.js";
import { cutLongText } from "./long-text.js";

/** @import { Context, Control, MakeField } from "./field.js" */
/** @import { Draft } from "./spec.js" */

/** Bytes: a server closes the channel on messages of 10 MiB, and base64 takes a third more. */
export const MAX_FILE = 6 * 2 ** 20;

/** A field for a file, which is not kept over a reload. @type {MakeField} */
export function fileField(ctx, node, _saved, place) {
  const { t } = ctx;
  const initial = node.initial ?? null;
  const input = makeInput("file");
  const status = div({ class: "nba-status", role: "status" });
  const initialText = initial?.text ?? "";
  const before = initialText === "" ? null : div("nba-mono", initialText);
  const more = before && cutLongText(ctx, before, initialText);
  /** @type {Draft} */
  let draft = initial;
  let problem = "";
  let picks = 0;
  const showStatus = (/** @type {string} */ message, isError = false) => {
    problem = isError ? message : "";
    showText(status, message);
    setClass(status, "nba-bad", isError);
  };
  const pick = async () => {
    const [file] = input.files ?? [];
    const pick = ++picks;
    if (!file) return;
    draft = initial;
    if (file.size > MAX_FILE)
      return showStatus(t("file_too_big", { n: megabytes(MAX_FILE) }), true);
    showStatus(t("file_reading"), true);
    try {
      const read = await base64(file, ctx.signal);
      if (pick !== picks) return; // another file was picked meanwhile
      draft = { file: read, name: file.name };
      showStatus(t("file_chosen", { name: file.name, size: fileSize(ctx, file.size) }));
    } catch {
      if (pick === picks) showStatus(t("file_unreadable"), true);
    }
    announce(el);
  };
  onChange(ctx.signal, input, () => void pick());
  const el = div("nba-control", before, more, input, status);
  /** @type {Control} */
  const control = {
    el,
    inputs: [input],
    wide: true,
    clearable: true,
    read: () => draft,
    show: (shown) => {
      draft = shown;
      picks++;
      if (!shown?.file) input.value = "";
      showStatus("");
    },
    problem: () => problem,
  };
  return controlField(ctx, node, place, control, { initial, saved: null });
}

/**
 * The bytes of a file in base64; after the signal is aborted the promise never settles.
 * @param {File} file
 * @param {AbortSignal} signal
 * @returns {Promise<string>}
 */
export function base64(file, signal) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    on(signal, reader, "error", () => reject(reader.error));
    on(signal, reader, "load", () => resolve(String(reader.result).replace(/^[^,]*,?/, "")));
    reader.readAsDataURL(file);
  });
}

/**
 * A limit in bytes as full megabytes.
 * @param {number} bytes
 */
export function megabytes(bytes) {
  return Math.floor(bytes / 2 ** 20);
}

/**
 * The size of a file in words.
 * @param {Pick<Context, "t">} ctx
 * @param {number} bytes
 */
export function fileSize(ctx, bytes) {
  if (bytes < 1000) return ctx.t("bytes", { n: bytes });
  if (bytes < 999_500)
    return ctx.t("kilobytes", { n: (bytes / 1000).toFixed(bytes < 9950 ? 1 : 0) });
  return ctx.t("megabytes", { n: (bytes / 1e6).toFixed(1) });
}
