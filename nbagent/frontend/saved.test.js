import { expect, test } from "vitest";
import { keepSaved } from "./saved.js";
import { FakeModel } from "./test-support/fake-host.js";

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
  keepSaved(model, life.signal);
  const save = (state) => {
    for (const slot of page.saving) slot(null, state);
  };
  return { model, page, save, life };
}

const live = { [WIDGET]: { model_id: "m1" }, "text/plain": "…" };
const keep = (text, ended = false) => ({
  type: "keep",
  view: "m1",
  bundle: { "text/html": text },
  ended,
});

test("while it is saved HTML stands where the widget does, and what is shown is left alone", () => {
  const { model, page, save } = open(live);
  const { shown } = page;
  expect(model.sent).toEqual([{ type: "keeps", ended: false }]);
  save("started");
  expect(page.saved).toBe(null);
  model.tell(keep("works"));
  model.tell(keep("waits"));
  expect(page.notebook.model.dirty).toBe(true);
  save("started");
  expect(page.saved.data).toEqual({ "text/html": "waits" });
  expect(page.saved.metadata).toEqual({ nbagent: { view: "m1" } });
  page.notebook.model.dirty = false; // as Jupyter does before it tells
  save("completed");
  expect(page.saved.data).toEqual(live);
  expect(page.notebook.model.dirty).toBe(false);
  expect(page.shown).toBe(shown);
});

test("a page that is opened later puts the widget back, and the end takes its place for good", () => {
  const { model, page, save } = open({ "text/html": "old" }, { nbagent: { view: "m1" } });
  model.tell(keep("waits"));
  expect(page.shown.data[WIDGET].model_id).toBe("m1");
  model.tell(keep("done", true));
  expect(page.shown.data).toEqual({ "text/html": "done" });
  expect(page.shown.metadata).toEqual({});
  expect(model.sent.at(-1)).toEqual({ type: "keeps", ended: true });
  save("started");
  expect(page.saved).toBe(null);
});

test("an end that its display was told is asked for where it does not stand", () => {
  const told = { type: "keep", view: "m1", bundle: {}, ended: true };
  const { model, page } = open(live);
  model.tell(told); // this page does not know yet what is its own
  expect(model.sent.at(-1)).toEqual({ type: "keeps", ended: false });
  model.tell(keep("works"));
  model.tell(told); // its display was not updated
  expect(model.sent.at(-1)).toEqual({ type: "keeps", ended: false });
  expect(page.shown.data).toEqual(live);
  page.shown = { data: { "text/html": "done" }, metadata: {} };
  model.tell(told);
  expect(model.sent.at(-1)).toEqual({ type: "keeps", ended: true });
});

test("of a kernel that is gone the last that was kept is saved, and nothing listens any more", () => {
  const { model, page, life } = open(live);
  model.tell(keep("waits"));
  life.abort();
  expect(page.saved.data).toEqual({ "text/html": "waits" });
  expect(page.saving.size + model.listening).toBe(0);
});

test("another card's output, and a notebook that its server saves, are left alone", () => {
  const { model, page, save } = open({ [WIDGET]: { model_id: "m2" } });
  model.tell(keep("waits"));
  save("started");
  expect(page.saved).toBe(null);
  expect(open(live, {}, { collaborative: true }).model.sent).toEqual([]);
});
