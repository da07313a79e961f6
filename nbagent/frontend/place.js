// @ts-check
// The place of the person: what comes where an answered form was stands where its button was.

/** Pixels that nobody calls a jump. */
const SLACK = 24;

/**
 * Remembers where the focus stands in these items, before they are drawn anew. What is returned is called
 * after: where a form with the focus gave way, what has the focus now stands there, and the focus goes on
 * to the next question that waits, to its heading and never to a button.
 * @param {HTMLElement} items
 */
export function holdPlace(items) {
  const active = document.activeElement;
  const form =
    active && items.contains(active) ? active.closest(".nba-group, form.nba-form") : null;
  const top = active?.getBoundingClientRect().top ?? 0;
  return () => {
    const now = document.activeElement;
    if (!form || form.isConnected || !now || !items.contains(now)) return;
    const by = now.getBoundingClientRect().top - top;
    if (Math.abs(by) > SLACK) scrollerOf(now).scrollBy({ top: by, behavior: "instant" });
    const next = nextHeading(items, now);
    next?.focus({ preventScroll: true });
    (next ?? now).scrollIntoView({ block: "nearest", behavior: "instant" });
  };
}

/**
 * The heading of the next question below that waits for a person.
 * @param {HTMLElement} items
 * @param {Element} from
 */
function nextHeading(items, from) {
  const titles = items.querySelectorAll(
    ":scope > .nba-form:not([data-outside]) > .nba-asking > h4",
  );
  const next = [...titles].find(
    (title) => from.compareDocumentPosition(title) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  return next instanceof HTMLElement ? next : null;
}

/**
 * What scrolls an element up and down.
 * @param {Element} el
 * @returns {Element}
 */
function scrollerOf(el) {
  for (let up = el.parentElement; up; up = up.parentElement)
    if (up.scrollHeight > up.clientHeight && /auto|scroll/.test(getComputedStyle(up).overflowY))
      return up;
  return document.scrollingElement ?? document.documentElement;
}
