// @ts-check
// Long text is cut, and a button shows all of it. An approval waits until the person has pressed the button.

import { expand, makeButton, setClass, setText } from "../dom.js";
import { onClick } from "../lifetime.js";

/** Lines that are shown without a cut. */
const MAX_LINES = 12;

/**
 * The number of lines that a text takes at a common width.
 * @param {string} value
 * @param {number} [width] in characters
 */
export function lineCount(value, width = 88) {
  return value
    .split("\n")
    .reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / width)), 0);
}

/**
 * The long texts of an element that were not shown completely yet. Removed texts do not count.
 * @param {HTMLElement} root
 * @param {() => void} seen called when one of them was shown completely
 */
export function unseenTexts(root, seen) {
  /** @type {Set<HTMLElement>} */
  const held = new Set();
  return {
    /** @param {HTMLElement} box */
    hold(box) {
      held.add(box);
      return () => {
        if (held.delete(box)) seen();
      };
    },
    any: () => [...held].some((box) => root.contains(box)),
  };
}

/**
 * Cuts a long box and returns the button that opens it, or null where it is short.
 * @param {Pick<import("./field.js").Context, "t"|"hold"|"signal">} ctx
 * @param {HTMLElement} box
 * @param {string} value
 * @param {{lines: number, width?: number}} [room]
 */
export function cutLongText(ctx, box, value, room = { lines: MAX_LINES }) {
  const n = lineCount(value, room.width);
  if (n <= room.lines) return null;
  const release = ctx.hold(box);
  const button = makeButton("nba-link");
  const draw = (/** @type {boolean} */ open) => {
    setClass(box, "nba-cut", !open);
    setClass(box, "nba-whole", open);
    expand(button, open);
    setText(button, open ? ctx.t("all_less") : ctx.t("all_lines", { n }));
  };
  draw(false);
  onClick(ctx.signal, button, () => {
    draw(box.classList.contains("nba-cut"));
    release();
  });
  return button;
}
