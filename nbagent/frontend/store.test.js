import { afterEach, expect, test, vi } from "vitest";
import { Store } from "./store.js";
import { FakeModel, fakeKernel, snapshot, TEXTS, WIRE } from "./test-support/fake-host.js";

afterEach(() => vi.useRealTimers());

function start(model = new FakeModel()) {
  const controller = new AbortController();
  const store = new Store(model, controller.signal);
  const heard = [];
  store.listen((event) => heard.push(event), controller.signal);
  return { model, store, heard, controller };
}

const text = (raw) => ({ type: "text", key: "t", blocks: [], tail: "", raw });
const raw = (seq, more) => ({ type: "patch", seq, ops: [{ op: "raw", key: "t", text: more }] });

test("it says hello when it starts", () => {
  expect(start().model.sent).toEqual([WIRE.from_front_end.hello]);
});

test("it draws from the synced trait until a snapshot came, and never after", () => {
  const model = new FakeModel(snapshot([text("old")]));
  const { store } = start(model);
  expect(store.view.items[0].raw).toBe("old");
  model.tell(snapshot([text("live")]));
  for (const changed of model.listeners.get("change:snapshot")) changed();
  expect(store.view.items[0].raw).toBe("live");
});

test("whatever patch is lost, the next one asks for a snapshot and the text is right", () => {
  for (const lost of [2, 3, 4]) {
    const { model, store } = start();
    model.tell(snapshot([text("")]));
    let whole = "";
    for (const seq of [2, 3, 4, 5]) {
      whole += seq;
      if (seq !== lost) model.tell(raw(seq, String(seq)));
    }
    expect(model.said("hello")).toHaveLength(2);
    model.tell(snapshot([text(whole)], { seq: 5 }));
    model.tell(raw(6, "6"));
    expect(store.view.items[0].raw).toBe(`${whole}6`);
  }
});

test("what is too large for the channel is not sent, and whoever waits for its receipt is told", async () => {
  const { model, store, heard } = start();
  model.tell(snapshot([]));
  heard.length = 0;
  const answer = (text) => ({ ...WIRE.from_front_end.answer, drafts: { text } });
  const fits = answer("é".repeat(5 * 2 ** 20 - 2 ** 16));
  expect(store.send(fits)).toBe(true);
  expect(model.said("answer")).toEqual([fits]);
  const large = answer("é".repeat(5 * 2 ** 20));
  expect(store.send(large)).toBe(true);
  expect(model.said("answer")).toHaveLength(1);
  expect(heard).toEqual([]); // the form is still about to wait for it
  await Promise.resolve();
  expect(heard).toHaveLength(1);
  expect(heard[0].receipt).toEqual({
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
  model.tell(snapshot([text("ab")], { seq: 3 }));
  model.tell(raw(3, "b"));
  expect(store.view.items[0].raw).toBe("ab");
});

test("a gap whose snapshot is lost too asks again", () => {
  vi.useFakeTimers();
  const { model } = start();
  model.tell(snapshot([text("")]));
  model.tell(raw(3, "x"));
  model.tell(raw(4, "x"));
  expect(model.said("hello")).toHaveLength(2);
  vi.advanceTimersByTime(1500);
  model.tell(raw(5, "x"));
  expect(model.said("hello")).toHaveLength(3);
});

test("a dead kernel is told to every view and a new snapshot brings it back", () => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  const { model, store, heard } = start();
  model.dead = true;
  expect(store.send({ type: "stop" })).toBe(false);
  expect(heard).toEqual([{ type: "gone" }]);
  model.tell(snapshot([]));
  expect(store.gone).toBe(false);
});

test("a kernel that restarts is noticed without a press, a closed comm is not taken for it", () => {
  const { model, store, heard } = start();
  model.fire("comm:close");
  expect(heard).toEqual([]);
  model.fire("comm_live_update");
  model.fire("comm_live_update");
  expect([store.gone, heard]).toEqual([true, [{ type: "gone" }]]);
});

test.each(["dead", "autorestarting", "disposed"])(
  "a kernel that is %s is noticed; a busy one is none",
  (how) => {
    const kernel = fakeKernel();
    const { store, controller } = start(
      Object.assign(new FakeModel(), { widget_manager: { kernel } }),
    );
    kernel.tell("busy");
    kernel.tell("unknown");
    expect(store.gone).toBe(false);
    kernel.tell(how);
    expect(store.gone).toBe(true);
    controller.abort();
    expect(kernel.listening).toBe(0);
  },
);

test("the kernel's clock counts, not the page's", () => {
  const { model, store } = start();
  model.tell({ ...snapshot([]), now: 5000 });
  expect(Math.abs(store.now() - 5000)).toBeLessThan(1);
});

test("aborting leaves zero listeners", () => {
  const { model, controller, heard } = start();
  expect(model.listening).toBe(3);
  controller.abort();
  expect(model.listening).toBe(0);
  model.tell(snapshot([]));
  expect(heard).toEqual([]);
});

test("sentences are filled in, one and many", () => {
  const { model, store } = start();
  model.tell(snapshot([]));
  expect(store.t("turn", { n: 2, m: 20 })).toBe("turn 2 of 20");
  expect([store.tn("tokens", 1), store.tn("tokens", 4182)]).toEqual(["1 token", "4,182 tokens"]);
  expect(TEXTS.gone.split("\n")).toHaveLength(2);
});
