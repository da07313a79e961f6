import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { every, lifeWithin, makeTimer, on } from "./lifetime.js";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("a timer that is started again forgets the start before", () => {
  const calls = [];
  const timer = makeTimer(new AbortController().signal);
  timer.start(100, () => calls.push("first"));
  timer.start(200, () => calls.push("second"));
  vi.advanceTimersByTime(1000);
  expect(calls).toEqual(["second"]);
});

test("after its signal is aborted a timer neither fires nor starts", () => {
  const life = new AbortController();
  const act = vi.fn();
  const timer = makeTimer(life.signal);
  timer.start(100, act);
  every(life.signal, 100, act);
  life.abort();
  timer.start(100, act);
  expect(vi.getTimerCount()).toBe(0);
  vi.advanceTimersByTime(1000);
  expect(act).not.toHaveBeenCalled();
});

test("a life within another ends with it, and can end before it", () => {
  const outer = new AbortController();
  const [first, second] = [lifeWithin(outer.signal), lifeWithin(outer.signal)];
  const act = vi.fn();
  const target = new EventTarget();
  on(first.signal, target, "change", act);
  first.abort();
  target.dispatchEvent(new Event("change"));
  expect([outer.signal.aborted, second.signal.aborted]).toEqual([false, false]);
  outer.abort();
  expect(second.signal.aborted).toBe(true);
  expect(act).not.toHaveBeenCalled();
});
