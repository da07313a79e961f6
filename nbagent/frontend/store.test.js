import { afterEach, expect, test, vi } from "vitest";
import { Store } from "./store.js";
import { FakeModel, fakeKernel, snapshot, TEXTS, WIRE } from "./test-support/fake-host.js";

afterEach(() => vi.useRealTimers());

function start(model = new FakeModel()) {
  const controller = new AbortController();
  const store = new Store(model, controller.signal);
  const events = [];
  store.listen((event) => events.push(event), controller.signal);
  return { model, store, events, controller };
}

const text = (raw) => ({ type: "text", key: "t", blocks: [], tail: "", raw });
const raw = (seq, more) => ({ type: "patch", seq, ops: [{ op: "raw", key: "t", text: more }] });

test("it says hello when it starts", () => {
  expect(start().model.messages).toEqual([WIRE.from_front_end.hello]);
});

test("it draws from the synced trait until a snapshot came, and never after", () => {
  const model = new FakeModel(snapshot([text("old")]));
  const { store } = start(model);
  expect(store.view.items[0].raw).toBe("old");
  model.receive(snapshot([text("live")]));
  for (const changed of model.listeners.get("change:snapshot")) changed();
  expect(store.view.items[0].raw).toBe("live");
});

test("whatever patch is lost, the next one asks for a snapshot and the text is right", () => {
  for (const lost of [2, 3, 4]) {
    const { model, store } = start();
    model.receive(snapshot([text("")]));
    let allText = "";
    for (const seq of [2, 3, 4, 5]) {
      allText += seq;
      if (seq !== lost) model.receive(raw(seq, String(seq)));
    }
    expect(model.sent("hello")).toHaveLength(2);
    model.receive(snapshot([text(allText)], { seq: 5 }));
    model.receive(raw(6, "6"));
    expect(store.view.items[0].raw).toBe(`${allText}6`);
  }
});

test("a message that is too large for the channel is not sent, and its sender gets a refused receipt", async () => {
  const { model, store, events } = start();
  model.receive(snapshot([]));
  events.length = 0;
  const answer = (text) => ({ ...WIRE.from_front_end.answer, drafts: { text } });
  const fits = answer("é".repeat(5 * 2 ** 20 - 2 ** 16));
  expect(store.send(fits)).toBe(true);
  expect(model.sent("answer")).toEqual([fits]);
  const large = answer("é".repeat(5 * 2 ** 20));
  expect(store.send(large)).toBe(true);
  expect(model.sent("answer")).toHaveLength(1);
  expect(events).toEqual([]); // the form is still about to wait for it
  await Promise.resolve();
  expect(events).toHaveLength(1);
  expect(events[0]).toEqual({
    type: "receipt",
    submission: large.submission,
    interrupt: "",
    ok: false,
    errors: [{ field: null, message: TEXTS.message_too_large }],
  });
  expect(store.gone).toBe(false);
});

test("a patch that a snapshot includes is not applied twice", () => {
  const { model, store } = start();
  model.receive(snapshot([text("ab")], { seq: 3 }));
  model.receive(raw(3, "b"));
  expect(store.view.items[0].raw).toBe("ab");
  expect(model.sent("hello"), "nothing is missing").toHaveLength(1);
});

test("a gap whose snapshot is lost too asks again", () => {
  vi.useFakeTimers();
  const { model } = start();
  model.receive(snapshot([text("")]));
  model.receive(raw(3, "x"));
  model.receive(raw(4, "x"));
  expect(model.sent("hello")).toHaveLength(2);
  vi.advanceTimersByTime(1500);
  model.receive(raw(5, "x"));
  expect(model.sent("hello")).toHaveLength(3);
});

test("every view is notified of a dead kernel, and a new snapshot brings it back", () => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  const { model, store, events } = start();
  model.dead = true;
  expect(store.send({ type: "stop" })).toBe(false);
  expect(events).toEqual([{ type: "gone" }]);
  model.receive(snapshot([]));
  expect(store.gone).toBe(false);
});

test("a kernel that restarts is noticed without a press, a closed comm is not taken for it", () => {
  const { model, store, events } = start();
  model.fire("comm:close");
  expect(events).toEqual([]);
  model.fire("comm_live_update");
  model.fire("comm_live_update");
  expect([store.gone, events]).toEqual([true, [{ type: "gone" }]]);
});

test.each(["dead", "autorestarting", "disposed"])(
  "a kernel that is %s is noticed; a busy one is none",
  (how) => {
    const kernel = fakeKernel();
    const { store, controller } = start(
      Object.assign(new FakeModel(), { widget_manager: { kernel } }),
    );
    kernel.emit("busy");
    kernel.emit("unknown");
    expect(store.gone).toBe(false);
    kernel.emit(how);
    expect(store.gone).toBe(true);
    controller.abort();
    expect(kernel.listening).toBe(0);
  },
);

/** A store whose kernel has these comms, or does not reply. */
function asking(comms) {
  vi.useFakeTimers();
  const replies = { comms };
  const model = new FakeModel();
  model.get = (name) => ({ layout: { model_id: "layout-1" }, snapshot: {} })[name];
  const kernel = fakeKernel(() =>
    replies.comms ? Promise.resolve({ content: replies }) : new Promise(() => {}),
  );
  return { ...start(Object.assign(model, { widget_manager: { kernel } })), replies, kernel };
}

test("a press that a kernel does not respond to says so, until the kernel responds", async () => {
  const { model, store, events } = asking(null);
  model.receive(snapshot([]));
  store.send({ type: "focus", busy: true, opened: [] });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(store.silent).toBe(false);
  store.send({ type: "stop" });
  await vi.advanceTimersByTimeAsync(6900);
  expect(store.silent).toBe(false);
  await vi.advanceTimersByTimeAsync(200);
  expect([store.silent, store.gone]).toEqual([true, false]);
  model.receive(snapshot([]));
  expect(store.silent).toBe(false);
  expect(events.filter(({ type }) => type === "silent")).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(store.silent).toBe(false);
});

test("another kernel in its place is noticed by a press, when it starts, and when the page is seen", async () => {
  const { store, replies } = asking(null);
  store.send({ type: "stop" });
  await vi.advanceTimersByTimeAsync(7100);
  replies.comms = {};
  await vi.advanceTimersByTimeAsync(20_000);
  expect(store.gone).toBe(true);
  const starting = asking({});
  starting.kernel.emit("starting");
  await vi.advanceTimersByTimeAsync(0);
  expect(starting.store.gone).toBe(true);
  const seen = asking({});
  document.dispatchEvent(new Event("visibilitychange"));
  await vi.advanceTimersByTimeAsync(0);
  expect(seen.store.gone).toBe(true);
});

test("a kernel that has the card is not another, however late it responds", async () => {
  const { store } = asking({ "layout-1": {} });
  store.send({ type: "stop" });
  document.dispatchEvent(new Event("visibilitychange"));
  await vi.advanceTimersByTimeAsync(600_000);
  expect([store.gone, store.silent]).toEqual([false, false]);
});

test("the kernel's clock counts, not the page's", () => {
  const { model, store } = start();
  model.receive({ ...snapshot([]), now: 5000 });
  expect(Math.abs(store.now() - 5000)).toBeLessThan(1);
});

test("aborting leaves zero listeners", () => {
  const { model, controller, events } = start();
  expect(model.listening).toBe(3);
  controller.abort();
  expect(model.listening).toBe(0);
  model.receive(snapshot([]));
  expect(events).toEqual([]);
});

test("sentences are filled in, one and many", () => {
  const { model, store } = start();
  model.receive(snapshot([]));
  expect(store.t("turns_of", { n: 2, m: 20 })).toBe("2 of 20 turns");
  expect([store.tn("tokens", 1), store.tn("tokens", 4182)]).toEqual(["1 token", "4,182 tokens"]);
  expect(TEXTS.gone.split("\n")).toHaveLength(2);
});
