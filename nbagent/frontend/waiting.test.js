// @ts-check
// The reports of open questions, without a browser: title, notifications, and that nothing is left behind.

import { afterEach, expect, test, vi } from "vitest";
import card from "./card.js";
import { FakeModel, form, HEAD, snapshot, TEXTS } from "./test-support/fake-host.js";
import wait, { notify } from "./waiting.js";

const store = /** @type {any} */ ({
  t: (/** @type {string} */ key, /** @type {any} */ { agent }) =>
    (TEXTS[key] ?? "").replace("{agent}", agent),
  tn: (/** @type {string} */ _, /** @type {number} */ n) => `${n} questions`,
});
const root = document.createElement("section");
const waits = (/** @type {string[]} */ ...ids) =>
  wait(root, {
    store,
    agent: "clerk",
    waits: ids.map((id) => ({ el: root, ids: [id], title: `Pay ${id}?`, enter: () => {} })),
  });
const hide = (/** @type {boolean} */ hidden) => {
  vi.spyOn(document, "hidden", "get").mockReturnValue(hidden);
  document.dispatchEvent(new Event("visibilitychange"));
};

/** The browser's notifications. */
class Fake extends EventTarget {
  static permission = "granted";
  /** @type {any[]} */ static shown = [];
  static requestPermission = async () => Fake.permission;
  open = true;
  constructor(/** @type {string} */ title, /** @type {any} */ { body }) {
    super();
    this.text = `${title}: ${body}`;
    Fake.shown.push(this);
  }
  close() {
    this.open = false;
  }
}

afterEach(() => {
  waits();
  hide(false);
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  localStorage.clear();
  Fake.shown = [];
});

test("the title counts while the page is in the background, whatever Jupyter writes there", () => {
  vi.useFakeTimers();
  document.title = "a - JupyterLab";
  waits("1", "2", "2");
  expect(document.title).toBe("a - JupyterLab");
  hide(true);
  expect(document.title).toBe("(2) a - JupyterLab");
  document.title = "b - JupyterLab";
  vi.advanceTimersByTime(1000);
  expect(document.title).toBe("(2) b - JupyterLab");
  waits("2");
  expect(document.title).toBe("(1) b - JupyterLab");
  hide(false);
  expect(document.title).toBe("b - JupyterLab");
  waits();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

test("a new question is notified once, if that is turned on and the page is hidden", async () => {
  vi.stubGlobal("Notification", Fake);
  hide(true);
  waits("1");
  expect(Fake.shown).toEqual([]);
  expect(await notify("notify")).toBe("notify");
  waits("1", "2");
  waits("2", "1");
  expect(Fake.shown.map(({ text }) => text)).toEqual(["clerk asks: Pay 2?"]);
  waits("1");
  expect(Fake.shown[0].open).toBe(false);
  hide(false);
  waits("1", "3");
  expect(await notify("quiet")).toBe("quiet");
  hide(true);
  waits("1", "3", "4");
  expect(Fake.shown.length).toBe(1);
});

test("a browser without notifications, or that blocks them, is reported as that", async () => {
  expect(await notify("notify")).toBe("blocked");
  vi.stubGlobal("Notification", Fake);
  Fake.permission = "denied";
  expect(await notify("notify")).toBe("blocked");
  Fake.permission = "granted";
});

test("the code for open questions is loaded with the first one, and ends with the card", async () => {
  const model = new FakeModel();
  const life = new AbortController();
  const report = vi.fn();
  const waiter = vi.fn(async () => ({ default: report }));
  const widget = card();
  widget.initialize({ model, signal: life.signal, waiter: /** @type {any} */ (waiter) });
  const el = document.createElement("div");
  widget.render({ model, el, signal: life.signal });
  const head = { ...HEAD, questions: 0 };
  model.receive(snapshot([], { head }));
  expect(waiter).not.toHaveBeenCalled();
  model.receive(snapshot([form(null)], { head: { ...HEAD, questions: 1 }, seq: 2 }));
  await Promise.resolve();
  await Promise.resolve();
  expect(report.mock.lastCall?.[1].waits).toMatchObject([{ ids: [`${HEAD.run}:i1`] }]);
  life.abort();
  expect(report.mock.lastCall?.[1].waits).toEqual([]);
});
