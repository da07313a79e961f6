import { expect, test } from "vitest";
import { keepSaved, notebookOf, textOf } from "./saved.js";
import { Store } from "./store.js";
import { FakeModel, WIRE } from "./test-support/fake-host.js";

const WIDGET = "application/vnd.jupyter.widget-view+json";

/** A notebook with one output, of which `saved` is on disk and `shown` on the page. */
function open(data, metadata = {}, more = {}) {
  const page = { saved: null, shown: null, saving: new Set() };
  const output = (of) => ({ ...of, toJSON: () => of });
  page.shown = output({ output_type: "display_data", data, metadata });
  const outputs = {
    length: 1,
    get: () => page.shown,
    set: (_, of) => {
      page.shown = output(of);
    },
  };
  const updateOutputs = (_start, _end, [of], origin) => {
    expect(origin).toBe("silent-change");
    page.saved = of;
    page.notebook.model.dirty = true;
  };
  const model = new FakeModel();
  const saveState = {
    connect: (slot) => page.saving.add(slot),
    disconnect: (slot) => page.saving.delete(slot),
  };
  const cells = [{}, { outputs, sharedModel: { updateOutputs } }];
  page.notebook = { saveState, model: { cells, dirty: false, ...more } };
  model.widget_manager = { context: page.notebook };
  const life = new AbortController();
  const notebook = notebookOf(model);
  const store = new Store(model, life.signal, {}, undefined, notebook !== null);
  if (notebook) keepSaved(store, model, notebook, life.signal, "the sheet");
  const save = (state) => {
    for (const slot of page.saving) slot(null, state);
  };
  return { model, store, page, save, life };
}

const live = { [WIDGET]: { model_id: "m1" }, "text/plain": "…" };
const keep = (text, more = {}) => ({
  type: "keep",
  view: "m1",
  number: 1,
  bundle: text ? { "text/html": [text] } : {},
  seq: null,
  ended: false,
  over: false,
  ...more,
});
const END = { ended: true };
const OVER = { over: true };
const HELLO = { type: "hello", keeps: true, stays: false, again: false };

test("while it is saved HTML stands where the widget does, and what is shown is left alone", () => {
  const { model, page, save } = open(live);
  const { shown } = page;
  expect(model.messages).toEqual([HELLO]);
  save("started");
  expect(page.saved).toBe(null);
  model.receive(keep("works"));
  model.receive(keep("waits"));
  expect(page.notebook.model.dirty).toBe(true);
  save("started");
  expect(page.saved.data).toEqual({ "text/html": "waits" });
  expect(page.saved.metadata).toEqual({ nbagent: { view: "m1" } });
  page.notebook.model.dirty = false; // as Jupyter does before it reports the save
  save("completed");
  expect(page.saved.data).toEqual(live);
  expect(page.notebook.model.dirty).toBe(false);
  expect(page.shown).toBe(shown);
});

test("a page that is opened later puts the widget back, and the end takes its place for good", () => {
  const { model, page, save } = open({ "text/html": "old" }, { nbagent: { view: "m1" } });
  model.receive(keep("waits"));
  expect(page.shown.data[WIDGET].model_id).toBe("m1");
  model.receive(keep("done", END));
  expect(page.shown.data).toEqual({ "text/html": "done" });
  expect(page.shown.metadata).toEqual({});
  expect(model.messages.at(-1)).toEqual({ type: "keeps", ended: true });
  save("started");
  expect(page.saved).toBe(null);
});

test("HTML that the page has is referred to by its number, and is requested again if it was missed", () => {
  const { model, page, save } = open(live);
  model.receive(keep("", { ...END, number: 2 }));
  expect(model.messages.at(-1)).toEqual({ type: "keeps", ended: false });
  model.receive(keep("works"));
  page.notebook.model.dirty = false;
  model.receive(keep("", OVER));
  expect(page.notebook.model.dirty).toBe(false); // what is on disk is up to date
  save("started");
  expect(page.saved.data).toEqual({ "text/html": "works" });
  model.receive(keep("", { ...END, number: 2 }));
  expect(model.messages.at(-1)).toEqual({ type: "keeps", ended: false });
  expect(page.shown.data).toEqual(live);
  model.receive(keep("done", { number: 2 }));
  model.receive(keep("", { ...END, number: 2 }));
  expect(page.shown.data).toEqual({ "text/html": "done" });
  expect(model.messages.at(-1)).toEqual({ type: "keeps", ended: true });
});

test("rules come as their places in the sheet that the page has", () => {
  const { model, page, save } = open(live);
  model.receive(keep("", { bundle: { "text/html": ["<", [4, 9], ">"], "text/plain": ["plain"] } }));
  save("started");
  expect(page.saved.data).toEqual({ "text/html": "<sheet>", "text/plain": "plain" });
});

test("texts come as the items that the page draws, and as words where that is another patch's", () => {
  const { model, page, save } = open(live);
  const text = { type: "text", key: "0.t", blocks: ["<p>One</p>"], tail: "", raw: "" };
  const view = { ...WIRE.from_kernel.snapshot.view, items: [text] };
  model.receive({ ...WIRE.from_kernel.snapshot, seq: 1, view });
  const block = {
    op: "block",
    key: "0.t",
    start: 0,
    end: 0,
    html: "<p>two &amp; three</p>",
    ends: [],
  };
  const patch = { type: "patch", seq: 2, ops: [{ ...block, raw: "" }] };
  const bundle = { "text/html": ["<", { key: "0.t" }, ">"], "text/plain": [{ key: "0.t" }, "."] };
  model.receive(keep("", { bundle, seq: 2 })); // the patch before it was lost
  expect(model.messages.at(-1)).toEqual({ type: "keeps", ended: false });
  model.receive(keep("complete"));
  model.receive(patch);
  model.receive(keep("", { bundle, seq: 2, number: 2 }));
  save("started");
  expect(page.saved.data).toEqual({
    "text/html": "<<p>One</p><p>two &amp; three</p>>",
    "text/plain": "One\n\ntwo & three.",
  });
  expect(model.sent("keeps").length).toBe(1);
});

test("what HTML says is read as the kernel reads it", () => {
  for (const { html, text } of WIRE.texts_of_html) expect(textOf(html)).toBe(text);
});

test("once the kernel is gone what is over stands there as HTML, and what waits or is written in stays", () => {
  for (const [more, written, stays] of [
    [OVER, "", false],
    [OVER, "half a question", true],
    [{}, "", true],
  ]) {
    const { model, page, store, save } = open(live);
    store.written = written;
    model.receive(keep("as it stood", more));
    model.fire("comm_live_update");
    expect(WIDGET in page.shown.data).toBe(stays);
    save("started");
    expect((page.saved ?? page.shown).data).toEqual({ "text/html": "as it stood" });
  }
});

test("of a kernel that is gone the last that was kept is saved, and nothing listens any more", () => {
  const { model, page, life } = open(live);
  model.receive(keep("waits"));
  life.abort();
  expect(page.saved.data).toEqual({ "text/html": "waits" });
  expect(page.saving.size + model.listening).toBe(0);
});

test("another card's output, and a notebook that its server saves, are left alone", () => {
  const { model, page, save } = open({ [WIDGET]: { model_id: "m2" } });
  model.receive(keep("waits"));
  save("started");
  expect(page.saved).toBe(null);
  const [hello] = open(live, {}, { collaborative: true }).model.messages;
  expect(hello).toEqual({ ...HELLO, keeps: false });
});

test("a card in an Output widget gives way in its own place, and its widget stays open for other views", () => {
  const { model, store } = open({ [WIDGET]: { model_id: "m2" } });
  const el = document.createElement("section");
  const around = document.createElement("div");
  around.append(el);
  store.views.add(el);
  model.receive(keep("<p>the end</p>", END));
  expect(around.innerHTML).toBe("<div><p>the end</p></div>");
  expect(model.messages.filter(({ type }) => type === "keeps")).toEqual([]);
});
