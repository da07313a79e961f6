// @ts-check
// Listeners, observers and timers that end with the view they belong to. No other file makes any.

/**
 * A listener that the signal takes away.
 * @template {keyof (HTMLElementEventMap & DocumentEventMap)} K
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {K} type
 * @param {(event: (HTMLElementEventMap & DocumentEventMap)[K]) => void} listener
 * @param {boolean} [capture]
 */
export function on(signal, target, type, listener, capture = false) {
  target.addEventListener(type, /** @type {EventListener} */ (listener), { signal, capture });
}

/**
 * A listener for presses, by pointer or by key, that the signal takes away.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: MouseEvent) => void} listener
 */
export function onClick(signal, target, listener) {
  on(signal, target, "click", listener);
}

/**
 * A listener for what is typed, key by key.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: Event) => void} listener
 */
export function onInput(signal, target, listener) {
  on(signal, target, "input", listener);
}

/**
 * A listener for a control's new value, once it is final.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: Event) => void} listener
 */
export function onChange(signal, target, listener) {
  on(signal, target, "change", listener);
}

/**
 * Does something once, when the signal is aborted.
 * @param {AbortSignal} signal
 * @param {() => unknown} listener
 */
export function onAbort(signal, listener) {
  signal.addEventListener("abort", listener, { once: true });
}

/**
 * A life within another: it can end by itself, and ends with the one around it.
 * @param {AbortSignal} signal of the one around it
 */
export function lifeWithin(signal) {
  const life = new AbortController();
  on(life.signal, signal, "abort", () => life.abort());
  return life;
}

/**
 * Does something again and again until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {number} ms
 * @param {() => void} act
 */
export function every(signal, ms, act) {
  const id = setInterval(act, ms);
  onAbort(signal, () => clearInterval(id));
}

/**
 * Does something in the page's next frame, unless the signal is aborted before.
 * @param {AbortSignal} signal
 * @param {() => void} act
 */
export function nextFrame(signal, act) {
  requestAnimationFrame(() => {
    if (!signal.aborted) act();
  });
}

/**
 * Does something whenever an element has another size, until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {Element} el
 * @param {() => void} act
 */
export function onResize(signal, el, act) {
  const sizes = new ResizeObserver(act);
  sizes.observe(el);
  onAbort(signal, () => sizes.disconnect());
}

/** Of an element that is in view most of it is, or as many pixels; looked at in steps of a twentieth. */
const MOST = 0.6;
const ENOUGH = 120;
const STEPS = Array.from({ length: 13 }, (_, n) => n / 20);

/**
 * Tells whether an element is in view, at first and whenever that changes, until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {Element} el
 * @param {(seen: boolean) => void} act
 */
export function onSeen(signal, el, act) {
  /** @type {boolean|null} */
  let before = null;
  const look = (/** @type {IntersectionObserverEntry[]} */ all) => {
    const last = all.at(-1);
    const height = last?.intersectionRect.height ?? 0;
    const seen = height > 0 && height >= Math.min(ENOUGH, MOST * el.clientHeight);
    if (seen !== before) act(seen);
    before = seen;
  };
  const places = new IntersectionObserver(look, { threshold: STEPS });
  places.observe(el);
  onAbort(signal, () => places.disconnect());
}

/** @typedef {ReturnType<typeof makeTimer>} Timer */

/**
 * One timer, started as often as needed: each start forgets the one before, and an abort all of them.
 * @param {AbortSignal} signal
 */
export function makeTimer(signal) {
  let id = 0;
  /** @type {(() => void)|null} */
  let due = null;
  const stop = () => {
    due = null;
    clearTimeout(id);
  };
  const now = () => {
    const act = due;
    stop();
    act?.();
  };
  onAbort(signal, stop);
  return {
    stop,
    /** Acts at once, if it was about to. */
    now,
    /**
     * @param {number} ms
     * @param {() => void} act
     */
    start(ms, act) {
      stop();
      if (signal.aborted) return;
      due = act;
      id = setTimeout(now, ms);
    },
  };
}
