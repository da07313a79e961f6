// @ts-check
// What the table of runs and the grid of a form share: rows of one height, of which only some are drawn, their keys
// and their look.

/** The height of a row, and of the visible part of the table, in pixels. */
export const HEIGHT = 32;
export const SEEN = 320;
/** Rows beyond the visible ones, on each side. */
export const BEYOND = 15;
/** Keys that move by rows. */
export const KEYS = new Map([
  ["ArrowDown", 1],
  ["ArrowUp", -1],
  ["PageDown", 9],
  ["PageUp", -9],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);

/** The look of rows and of the controls above them; goes into the rules of the element around them. */
export const ROWS = `
  & [hidden][hidden][hidden] { display: none; }
  & .t-sort span:empty { display: none; }
  & .t-line { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 8px; margin: 0; }
  & .t-soft { color: var(--nba-soft); font: 12px/20px var(--nba-font); font-variant-numeric: tabular-nums; }
  & .t-find { flex: 1 1 180px; max-width: 300px; min-width: 0; margin-inline-end: auto; }
  & :is(input, select) { box-sizing: border-box; min-height: 28px; margin: 0; padding: 3px 8px; border: 1px solid var(--nba-edge); border-radius: 6px; background: var(--nba-input); color: inherit; font: 13px/20px var(--nba-font); }
  & input::placeholder { color: var(--nba-soft); opacity: 1; }
  & .t-soft:empty { display: none; }
  & .t-button { min-height: 28px; margin: 0; padding: 3px 11px; border: 1px solid var(--nba-edge); border-radius: 6px; background: var(--nba-page); color: inherit; font: 500 13px/20px var(--nba-font); font-variant-numeric: tabular-nums; cursor: pointer; white-space: nowrap; }
  & .t-button:hover:not(:disabled) { background: var(--nba-fill); }
  & .t-button:disabled { border-style: dashed; border-color: var(--nba-edge); background: none; color: var(--nba-soft); cursor: default; }
  & :is(button, input, select, .t-scroll):focus-visible { outline: 2px solid var(--nba-link); outline-offset: 1px; }
  & .t-table { border: 1px solid var(--nba-line); border-radius: 6px; overflow: hidden; }
  & .t-row { display: grid; grid-template-columns: var(--wide); align-items: center; height: ${HEIGHT}px; box-sizing: border-box; }
  & .t-head { height: 30px; padding-inline-end: var(--bar, 0); background: color-mix(in srgb, var(--nba-ink) 5%, var(--nba-page)); border-bottom: 1px solid var(--nba-line); color: var(--nba-soft); }
  & .t-sort { display: flex; gap: 4px; width: 100%; min-height: 0; height: 29px; align-items: center; margin: 0; padding: 0 8px; border: 0; background: none; color: inherit; font: 12px/20px var(--nba-font); text-align: start; cursor: pointer; overflow: hidden; white-space: nowrap; }
  & .t-sort:hover { text-decoration: underline; }
  & [aria-sort] .t-sort { color: var(--nba-ink); font-weight: 600; }
  & .t-scroll { position: relative; height: ${SEEN}px; overflow: auto; overscroll-behavior: contain; }
  & .t-space { position: relative; }
  & .t-space .t-row { position: absolute; inset-inline: 0; border-bottom: 1px solid var(--nba-line); cursor: pointer; }
  & .t-cell { padding: 0 8px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  & .t-none { margin: 0; padding: 26px 18px; color: var(--nba-soft); text-align: center; }
`;

/**
 * Makes these the children of an element, in this order, and moves only those that are elsewhere.
 * @param {Element} parent @param {Element[]} els
 */
export function setChildren(parent, els) {
  const active = document.activeElement;
  const kept = new Set(els);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  /** @type {Element|null} */
  let before = null;
  for (const el of els) {
    /** @type {Element|null} */
    const place = before === null ? parent.firstElementChild : before.nextElementSibling;
    if (place !== el) parent.insertBefore(el, place);
    before = el;
  }
  // an element that moved has lost the focus
  const isLost = active instanceof HTMLElement && active !== document.activeElement;
  if (isLost && parent.contains(active)) active.focus({ preventScroll: true });
}
