// @ts-check
// Listeners, observers and timers that end with the view they belong to. No other file creates any.

/**
 * Adds a listener until the signal is aborted.
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
 * Adds a listener for presses, by pointer or by key.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: MouseEvent) => void} listener
 */
export function onClick(signal, target, listener) {
  on(signal, target, "click", listener);
}

/**
 * Adds a listener for typed input, called at each key.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: Event) => void} listener
 */
export function onInput(signal, target, listener) {
  on(signal, target, "input", listener);
}

/**
 * Adds a listener for a control's new value, called once it is final.
 * @param {AbortSignal} signal
 * @param {EventTarget} target
 * @param {(event: Event) => void} listener
 */
export function onChange(signal, target, listener) {
  on(signal, target, "change", listener);
}

/**
 * Calls a listener once, when the signal is aborted.
 * @param {AbortSignal} signal
 * @param {() => unknown} listener
 */
export function onAbort(signal, listener) {
  signal.addEventListener("abort", listener, { once: true });
}

/**
 * A controller within another one: it can be aborted alone, and is aborted with the outer one.
 * @param {AbortSignal} signal of the outer one
 */
export function lifeWithin(signal) {
  const life = new AbortController();
  on(life.signal, signal, "abort", () => life.abort());
  return life;
}

/**
 * Calls a function at this interval until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {number} ms
 * @param {() => void} act
 */
export function every(signal, ms, act) {
  const id = setInterval(act, ms);
  onAbort(signal, () => clearInterval(id));
}

/**
 * Calls a function in the page's next frame, unless the signal is aborted before.
 * @param {AbortSignal} signal
 * @param {() => void} act
 */
export function nextFrame(signal, act) {
  requestAnimationFrame(() => {
    if (!signal.aborted) act();
  });
}

/**
 * Calls a function whenever the size of an element changes, until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {Element} el
 * @param {() => void} act
 */
export function onResize(signal, el, act) {
  const observer = new ResizeObserver(act);
  observer.observe(el);
  onAbort(signal, () => observer.disconnect());
}

/** An element is in view if this part of it is visible, or this many pixels; checked in steps of a twentieth. */
const MOST = 0.6;
const ENOUGH = 120;
const STEPS = Array.from({ length: 13 }, (_, n) => n / 20);

/**
 * Reports whether an element is in view, at first and at each change, until the signal is aborted.
 * @param {AbortSignal} signal
 * @param {Element} el
 * @param {(seen: boolean) => void} act
 */
export function onSeen(signal, el, act) {
  /** @type {boolean|null} */
  let before = null;
  const check = (/** @type {IntersectionObserverEntry[]} */ entries) => {
    const last = entries.at(-1);
    const height = last?.intersectionRect.height ?? 0;
    const seen = height > 0 && height >= Math.min(ENOUGH, MOST * el.clientHeight);
    if (seen !== before) act(seen);
    before = seen;
  };
  const observer = new IntersectionObserver(check, { threshold: STEPS });
  observer.observe(el);
  onAbort(signal, () => observer.disconnect());
}

/**
 * Reports once which part of an element a person sees, also where a frame around the page cuts it off.
 * @param {AbortSignal} signal
 * @param {Element} el
 * @param {(part: DOMRectReadOnly) => void} act
 */
export function lookOnce(signal, el, act) {
  const observer = new IntersectionObserver((entries) => {
    observer.disconnect();
    const part = entries.at(-1)?.intersectionRect;
    if (part?.height && !signal.aborted) act(part);
  });
  observer.observe(el);
}

/** @typedef {ReturnType<typeof makeTimer>} Timer */

/**
 * One timer that can be started again: each start cancels the one before, and an abort cancels it for good.
 * @param {AbortSignal} signal
 */
export function makeTimer(signal) {
  let id = 0;
  /** @type {(() => void)|null} */
  let pending = null;
  const stop = () => {
    pending = null;
    clearTimeout(id);
  };
  const now = () => {
    const act = pending;
    stop();
    act?.();
  };
  onAbort(signal, stop);
  return {
    stop,
    /** Calls the pending function at once, if there is one. */
    now,
    /**
     * @param {number} ms
     * @param {() => void} act
     */
    start(ms, act) {
      stop();
      if (signal.aborted) return;
      pending = act;
      id = setTimeout(now, ms);
    },
  };
}
