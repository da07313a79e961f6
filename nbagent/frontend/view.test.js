import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import card from "./card.js";
import {
  FakeModel,
  fixture,
  form,
  HEAD,
  open,
  press,
  snapshot,
  type,
  WIRE,
} from "./test-support/fake-host.js";

const ITEMS = WIRE.from_kernel.snapshot.view.items;
const [text, reasoning, call, , record, notice, message] = ITEMS;

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test("hostile strings are shown and never become markup", () => {
  const evil = '<img src=x onerror="alert(1)"><script>alert(1)</script>';
  const { el } = open([
    { ...text, blocks: [], raw: evil },
    { ...reasoning, text: evil },
    {
      ...call,
      name: evil,
      path: evil,
      brief: evil,
      printed: evil,
      result: evil,
      progress: { fraction: null, text: evil },
      input: [{ label: evil, value: evil, code: true, changed_from: evil }],
      outputs: [{ kind: "text", data: evil, alt: "" }],
    },
    { ...record, title: evil, decision: evil },
    { ...notice, text: evil, actions: [{ name: "stop", label: evil }] },
    {
      ...message,
      text: evil,
      note: evil,
      files: [
        { kind: "image", data: evil, alt: evil },
        { kind: "text", data: evil, alt: "" },
      ],
    },
    form(
      {
        kind: "object",
        label: evil,
        fields: [
          { id: "/a", key: "a", kind: "text", label: evil, help: evil, initial: { text: evil } },
          {
            id: "/b",
            key: "b",
            kind: "choice",
            label: evil,
            options: [{ label: evil, help: evil }],
          },
          { id: "/c", key: "c", kind: "list", label: evil, initial_json: { text: evil } },
          { id: "/d", key: "d", kind: "const", label: evil, shown: evil },
        ],
      },
      { title: evil, note: evil, path: evil, tool: evil },
    ),
  ]);
  expect(el.querySelectorAll("img, script")).toHaveLength(0);
  expect(el.textContent.split(evil).length).toBeGreaterThan(15);
});

test("a picture is shown only where its bytes came along", () => {
  const outputs = [
    { kind: "image", data: "data:image/png;base64,AA==", alt: "plot" },
    { kind: "image", data: "https://evil.example/x.png", alt: "remote" },
    { kind: "image", data: "data:text/html,<script>", alt: "page" },
  ];
  const { el } = open([{ ...call, outputs }]);
  expect([...el.querySelectorAll("img")].map((img) => img.alt)).toEqual(["plot"]);
  expect(el.textContent).toContain("remote");
});

test("streamed text keeps the nodes that are finished", () => {
  const { $, el, patch } = open([{ ...text, blocks: ["<p>One</p>"], raw: "Tw" }]);
  const first = $(".nba-say p");
  const raw = $(".nba-raw").firstChild;
  patch({ op: "raw", key: "t1", text: "o" });
  expect($(".nba-raw").firstChild).toBe(raw);
  expect(raw.data).toBe("Two");
  patch({ op: "block", key: "t1", start: 10, end: 0, html: "<p>Th</p>", ends: [10], raw: "r" });
  expect($(".nba-say p")).toBe(first);
  expect($(".nba-say").innerHTML).toBe(
    '<p>One</p><p>Two</p><p>Th<span class="nba-raw">r</span></p>',
  );
  const last = el.querySelectorAll(".nba-say p")[2];
  patch({ op: "block", key: "t1", start: 5, end: 4, html: "", ends: [9], raw: "" });
  expect($(".nba-say").innerHTML).toBe("<p>One</p><p>Two</p><p>Th</p>");
  expect(el.querySelectorAll(".nba-say p")[2]).toBe(last);
});

test.each([
  ["a paragraph", "<p>Here is a</p>", " draft", "<p>Here is a| draft</p>"],
  ["after bold", "<p>a <strong>b</strong></p>", " c", "<p>a <strong>b</strong>| c</p>"],
  ["a soft line break", "<p>a</p>", "\nb\n", "<p>a| b</p>"],
  [
    "a list in a list",
    "<ul><li>a<ul><li>b</li></ul></li></ul>",
    "c",
    "<ul><li>a<ul><li>b|c</li></ul></li></ul>",
  ],
  [
    "text after a list in an item",
    "<ul><li><p>b</p></li>\n</ul>",
    "c",
    "<ul><li><p>b|c</p></li>\n</ul>",
  ],
  ["a next item", "<ul><li>a</li></ul>", "\n- b", "<ul><li>a|\n- b</li></ul>"],
  [
    "a cell",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>",
    "2",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1|2</td></tr></tbody></table>",
  ],
  [
    "code",
    '<pre class="code"><code><span class="k">def</span></code></pre>',
    " f():\n  x\n",
    '<pre class="code"><code><span class="k">def</span>| f():\n  x\n</code></pre>',
  ],
  ["after a heading", "<h4>T</h4>", "\nText", "<h4>T</h4><p>|Text</p>"],
  ["after a blank line", "<p>a</p>", "\n\nb", "<p>a</p><p>|b</p>"],
  [
    "after a formula",
    '<div class="math"><math></math></div>',
    "b",
    '<div class="math"><math></math></div><p>|b</p>',
  ],
  ["nothing drawn yet", "", "b", "<p>|b</p>"],
  ["only space so far", "<p>a</p>", " \n", "<p>a</p>"],
])("streamed text goes on where it will stand: %s", (_, tail, raw, expected) => {
  const { $ } = open([{ ...text, blocks: [], tail, raw }]);
  const html = $(".nba-say").innerHTML;
  const flat = html.replace(/<span class="nba-raw">([^<]*)<\/span>/, "|$1");
  expect(flat).toBe(expected);
});

test("a row that is open stays open while it changes", () => {
  const { $, patch } = open([call]);
  $(".nba-call").open = true;
  const row = $(".nba-call");
  patch(
    { op: "print", key: "c1", text: "row 2\n" },
    { op: "put", index: 0, item: { ...call, state: "done", elapsed: 2.34, result: "ok" } },
  );
  expect($(".nba-call")).toBe(row);
  expect(row.open).toBe(true);
  expect($("summary > .nba-time").textContent).toBe("2.3 s");
});

test("a running call counts up by the kernel's clock", () => {
  const { $ } = open([{ ...call, started_at: Date.now() / 1000 - 3 }]);
  expect($("summary > .nba-time").textContent).toBe("3 s");
  vi.advanceTimersByTime(2000);
  expect($("summary > .nba-time").textContent).toBe("5 s");
});

test("items keep their order through insertions and removals", () => {
  const { el, patch } = open([text, call, record]);
  patch(
    { op: "put", index: 1, item: notice },
    { op: "remove", key: "t1" },
    { op: "put", index: 99, item: reasoning },
  );
  const keys = [...el.querySelectorAll(".nba-items > *")].map((one) => one.dataset.key);
  expect(keys).toEqual(["n1", "c1", "d1", "r1"]);
});

test("focus and open rows are reported to the kernel after a moment, and each change once", () => {
  const { model, $ } = open([call]);
  $(".nba-call").open = true;
  $(".nba-call").dispatchEvent(new Event("toggle"));
  $("summary").focus();
  vi.advanceTimersByTime(1000);
  expect(model.sent("focus")).toEqual([{ type: "focus", busy: true, opened: ["c1"] }]);
  document.activeElement.blur();
  vi.advanceTimersByTime(1000);
  expect(model.sent("focus").at(-1)).toEqual({ type: "focus", busy: false, opened: ["c1"] });
});

test("keys pressed in the card never reach the notebook", () => {
  const { el, $ } = open([call, form({ kind: "bool" })]);
  const reached = [];
  el.addEventListener("keydown", (event) => reached.push(event.key));
  for (const key of ["x", "d", "a", "Enter", "Escape"]) {
    press($("summary"), key);
    press($(".nba-form input"), key);
  }
  expect(press($("summary"), "Enter", { shiftKey: true }).defaultPrevented).toBe(true);
  expect(reached).toEqual([]);
  expect($(".nbagent").getAttribute("data-lm-suppress-shortcuts")).toBe("true");
});

test("new questions are announced, and focus stays where it is", () => {
  const { $, patch } = open([form({ kind: "text" })]);
  type($("input"), "half an ans");
  patch({
    op: "put",
    index: 0,
    item: form({ kind: "bool" }, { key: "f2", title: "Sure?", interrupt: "i2" }),
  });
  expect($("[aria-live]").textContent).toContain("Sure?");
  expect(document.activeElement.value).toBe("half an ans");
});

const ended = (status, status_text, more = {}) => ({ ...HEAD, status, status_text, ...more });
const says = (key, html) => ({ ...text, key, blocks: [html], tail: "", raw: "" });
const end = { ...notice, key: "end", actions: [], until: null, text: "Stopped by you." };

test.each([
  ["done", [says("t9", "<p>Sent.</p>")], ended("completed", "done"), "done"],
  ["failed", [{ ...end, text: "KeyError: x" }], ended("failed", "failed"), "failed. KeyError: x"],
  ["stopped", [end], ended("cancelled", "stopped"), "stopped. Stopped by you."],
  [
    "an answer in a chat",
    [message, says("t9", "<p>One.</p><p>Two.</p>")],
    ended("completed", "done", { chat: true }),
    "One. Two.",
  ],
  ["an end that the page finds", null, ended("completed", "done"), null],
])("a screen reader hears the end of a run once: %s", (_, items, head, expected) => {
  const model = new FakeModel();
  const life = new AbortController();
  onTestFinished(() => life.abort());
  const widget = card();
  widget.initialize({ model, signal: life.signal });
  const els = [document.createElement("div"), document.createElement("div")];
  for (const el of els) widget.render({ model, el, signal: life.signal });
  model.receive(snapshot([], { head: items ? { ...HEAD, chat: head.chat } : head }));
  const ops = (items ?? []).map((item, index) => ({ op: "put", item, index }));
  model.receive({ type: "patch", seq: 2, ops: [...ops, { op: "head", head }] });
  model.receive({ type: "patch", seq: 3, ops: [{ op: "head", head: { ...head } }] });
  const heard = els.map((el) => el.querySelector(".nba-sr[aria-live]").textContent);
  expect(heard).toEqual([expected ? `${HEAD.agent}: ${expected}` : "", ""]);
});

test("a card has one heading, and the messages of a chat name who wrote them", () => {
  const { el, $, patch } = open([message, says("t9", "<p>One.</p>")]);
  expect(el.querySelectorAll("[role=heading]")).toHaveLength(1);
  expect($(".nba-say").getAttribute("aria-label")).toBe(null);
  patch({ op: "head", head: { ...HEAD, chat: true } });
  expect($(".nba-message").textContent).toMatch(/^You/);
  expect($(".nba-say").getAttribute("aria-label")).toBe(HEAD.agent);
});

test("after Stop by keyboard the focus is on what the run offers next", () => {
  const { $, button, patch } = open([]);
  for (const [head, expected] of [
    [ended("cancelled", "stopped", { asks: true }), "Follow up…"],
    [ended("failed", "failed", { asks: true }), "Retry"],
  ]) {
    patch({ op: "head", head: { ...HEAD, status: "running" } });
    button("Stop").focus();
    patch({ op: "head", head });
    expect(document.activeElement.textContent).toBe(expected);
  }
  patch({ op: "head", head: { ...HEAD, status: "running" } });
  button("Stop").focus();
  patch({ op: "head", head: ended("cancelled", "stopped") });
  expect(document.activeElement).toBe($(".nba-who"));
});

test("after an answer the focus goes to the next question of that tool, and of no other", () => {
  for (const [tool, wait, follows] of [
    ["pay", 1000, true],
    ["pay", 9000, false],
    ["mail", 1000, false],
  ]) {
    const ask = (id, tool) =>
      form({ kind: "text" }, { key: `f:${id}`, interrupt: id, tool, path: "" });
    const { el, $, patch, model } = open([ask("a", "pay")]);
    type($("input"), "x");
    $("form .nba-go").click();
    const [{ submission }] = model.sent("answer");
    model.receive({ type: "receipt", submission, interrupt: "a", ok: true, errors: [] });
    patch(
      { op: "remove", key: "f:a" },
      { op: "put", index: 0, item: { ...record, key: "a:a", details: [] } },
    );
    expect(document.activeElement).toBe($(".nba-record"));
    vi.advanceTimersByTime(wait);
    patch({ op: "put", index: 1, item: ask("b", tool) });
    expect(document.activeElement === el.querySelector("form input")).toBe(follows);
  }
});

test("the footer leads from question to question", () => {
  const one = form({ kind: "text" });
  const two = form({ kind: "text" }, { key: "f2", interrupt: "i2" });
  const { $, el, patch } = open([one, two]);
  patch({ op: "head", head: { ...HEAD, questions: 2 } });
  const inputs = el.querySelectorAll(".nba-form input");
  for (const expected of [inputs[0], inputs[1], inputs[0]]) {
    $(".nba-jump").click();
    expect(document.activeElement).toBe(expected);
  }
});

test("the footer counts the time of work, without waits, and keeps it at the end", () => {
  const counts = [
    { text: "gpt-5", about: "" },
    { text: "{t}", about: "" },
    { text: "26.5k tokens", about: "26,512 tokens" },
  ];
  const begun = Date.now() / 1000 - 100;
  const spans = [
    { lane: "model", start: 0, end: 4 },
    { lane: "tool", start: 3, end: 6 },
    { lane: "wait", start: 6, end: 90 },
    { lane: "model", start: 90, end: null },
  ];
  const head = { ...HEAD, status: "running", started_at: begun, counts, spans };
  const { $, patch } = open([]);
  patch({ op: "head", head });
  const texts = () => [...$(".nba-counts").children].map((el) => el.textContent);
  expect(texts()).toEqual(["gpt-5", "16 s", "26.5k tokens"]);
  const time = $(".nba-counts").children[1];
  vi.advanceTimersByTime(2000);
  expect(texts()[1]).toBe("18 s");
  spans[3] = { ...spans[3], end: 99.5 };
  patch({ op: "head", head: { ...head, status: "completed", spans } });
  vi.advanceTimersByTime(9000);
  expect([texts()[1], $(".nba-counts").children[1] === time]).toEqual(["15 s", true]);
  patch({ op: "head", head: { ...head, spans: [] } });
  expect(texts()).toEqual(["gpt-5", "26.5k tokens"]);
});

test("a segment of the time strip names its call and leads to its row, also inside a stretch", () => {
  const { $, el, patch } = open(looks(3));
  const spans = [
    { lane: "model", start: 0, end: 1, key: "" },
    { lane: "tool", start: 1, end: 3.5, key: "0.c1" },
  ];
  patch({ op: "head", head: { ...HEAD, status: "completed", spans } });
  const segment = $(".nba-strip [data-call]");
  expect(segment.title).toBe("look 2.5 s");
  expect($(".nba-strip").getAttribute("aria-label")).toBe("model 1.0 s, tools 2.5 s");
  segment.click();
  expect(document.activeElement).toBe(el.querySelector(".nba-stretch > summary"));
});

test("a plan is a row with its current step, and opens to all steps; while it changes, it stays open", () => {
  const { $, patch } = open([]);
  const step = (text, state) => ({ text, state });
  const show = (...plan) => patch({ op: "head", head: { ...HEAD, plan } });
  show();
  expect($(".nba-plan").hidden).toBe(true);
  show(step("Read", "done"), step("<b>Check", "now"), step("Write", "open"));
  expect($(".nba-plan summary").textContent).toBe("1 of 3 steps done <b>Check");
  const summary = $(".nba-plan summary");
  summary.focus();
  $(".nba-plan").open = true;
  show(step("Read", "done"), step("Check", "done"), step("Write", "done"));
  expect($(".nba-plan summary").textContent).toBe("3 of 3 steps done");
  expect([document.activeElement, $(".nba-plan").open]).toEqual([summary, true]);
  const lines = [...$(".nba-plan ol").children].map((one) => one.textContent);
  expect(lines).toEqual(["Read (done)", "Check (done)", "Write (done)"]);
});

test("Stop is sent once", () => {
  const { model, button, patch, el } = open([]);
  const stop = button("Stop");
  stop.click();
  stop.click();
  expect(model.sent("stop")).toHaveLength(1);
  patch({ op: "head", head: { ...HEAD, status: "cancelled", status_text: "stopped" } });
  expect(el.querySelector(".nba-stop").hidden).toBe(true);
});

test("what another page stopped is being stopped here too, and once ended it can be no more", () => {
  const { patch, button, model } = open([]);
  patch({ op: "head", head: { ...HEAD, stopping: true } });
  const stop = button("Stopping…");
  expect(stop.ariaDisabled ?? stop.getAttribute("aria-disabled")).toBe("true");
  stop.click();
  expect(model.sent("stop")).toEqual([]);
  patch({ op: "head", head: { ...HEAD, status: "cancelled" } });
  expect(stop.hidden).toBe(true);
});

test("a run that waits for a sign-in is marked like one that asks, whatever its words are", () => {
  const { $, patch } = open([]);
  const head = { ...HEAD, status: "running", status_text: "wartet", signing_in: true };
  patch({ op: "head", head });
  expect($(".nba-pill").dataset.status).toBe("interrupted");
  patch({ op: "head", head: { ...head, signing_in: false } });
  expect($(".nba-pill").dataset.status).toBe("running");
});

test("a stopped kernel is shown at once, by the card if no form shows it", () => {
  const asked = form({ kind: "text" });
  const { model, $, el, patch } = open([asked]);
  const visibleNotes = () => [...el.querySelectorAll(".nba-gone")].filter((one) => !one.hidden);
  patch({ op: "head", head: { ...HEAD, status: "running" } });
  model.fire("comm_live_update");
  expect(visibleNotes().map((one) => one.closest("form") !== null)).toEqual([true]);
  expect($(".nba-pill").textContent).toBe("kernel stopped");
  patch({ op: "remove", key: asked.key }, { op: "head", head: { ...HEAD, status: "running" } });
  expect(visibleNotes().map((one) => one.closest("form") !== null)).toEqual([false]);
  expect(visibleNotes()[0].textContent).toContain("Run the cell again");
  patch({ op: "head", head: { ...HEAD, status: "completed", status_text: "done" } });
  expect([visibleNotes(), $(".nba-pill").textContent]).toEqual([[], "done"]);
});

test("a stopped kernel is shown by the card if its forms are folded into a table", () => {
  const asked = ["a", "b", "c"].map((id) =>
    form({ kind: "text" }, { key: id, interrupt: id, group: "g", input: [] }),
  );
  const { model, $, el, patch } = open(asked);
  patch({ op: "head", head: { ...HEAD, status: "running" } });
  model.fire("comm_live_update");
  expect(el.querySelectorAll("table").length).toBeGreaterThan(0);
  expect($(".nbagent > .nba-gone").hidden).toBe(false);
});

test("a press of a notice's button is sent once, and the focus stays in the notice", () => {
  const actions = [
    { name: "stop", label: "Stop previous run" },
    { name: "show", label: "Show previous run" },
  ];
  const { model, button, patch, $ } = open([{ ...notice, actions }]);
  button("Stop previous run").focus();
  button("Stop previous run").click();
  button("Stop previous run").click();
  expect(model.sent("press")).toEqual([WIRE.from_front_end.press]);
  patch({ op: "put", index: 0, item: { ...notice, actions: [actions[1]], text: "is stopping" } });
  expect(document.activeElement).toBe(button("Show previous run"));
  patch({ op: "put", index: 0, item: { ...notice, actions: [] } });
  expect($(".nba-notice").contains(document.activeElement)).toBe(true);
});

test("long printed text is folded after its first lines, and grows behind the fold", () => {
  const lines = (n) => Array.from({ length: n }, (_, at) => `line ${at}\n`).join("");
  const { $, patch, el } = open([{ ...call, printed: lines(12) }]);
  const fold = $(".nba-rest");
  expect(fold.hidden).toBe(true);
  patch({ op: "print", key: call.key, text: "more\nand more" });
  expect(fold.hidden).toBe(false);
  const [first, others] = el.querySelectorAll(".nba-printed");
  expect(first.textContent.split("\n")).toHaveLength(10);
  expect(others.textContent).toBe("line 10\nline 11\nmore\nand more");
  expect(fold.querySelector("summary").textContent).toBe("4 more lines");
});

test("a message that waits says so until the model has it", () => {
  const { $, patch } = open([message]);
  expect($(".nba-message").textContent).toMatch(/^YouAnd hurry.*sent later✎$/);
  patch({ op: "put", index: 0, item: { ...message, note: "" } });
  expect($(".nba-message > .nba-help").hidden).toBe(true);
});

test("what came with a message is drawn below it, a picture as such and both by name", () => {
  const { el, $ } = open([message]);
  const named = [...el.querySelectorAll(".nba-file")].map((file) => file.textContent);
  expect(named).toEqual(["image scan.png, 120 kB", "file report.pdf, 1.2 MB"]);
  expect(el.querySelectorAll(".nba-file img")).toHaveLength(1);
  expect($(".nba-file img").alt).toBe("image scan.png, 120 kB");
});

test("hundreds of items are drawn some in a frame, in their order, with all that changes meanwhile", async () => {
  const say = (n, what = n) => ({ ...text, key: `t${n}`, blocks: [`<p>${what}</p>`], raw: "" });
  const { el, patch } = open(Array.from({ length: 200 }, (_, n) => say(n)));
  const texts = () => [...el.querySelectorAll(".nba-say")].map((each) => each.textContent);
  const expected = Array.from({ length: 200 }, (_, n) => String(n));
  expect(texts()).toEqual(expected.slice(0, 40));
  patch({ op: "put", item: say(3, "changed"), index: 3 }, { op: "remove", key: "t150" });
  expected[3] = "changed";
  expected.splice(150, 1);
  expect(texts()).toEqual(expected.slice(0, 80));
  await vi.waitFor(() => expect(texts()).toEqual(expected));
});

const looks = (count, state = "done") =>
  Array.from({ length: count }, (_, n) => ({
    ...call,
    ...{
      key: `0.c${n}`,
      name: "look",
      path: "",
      brief: `n ${n}`,
      state,
      outputs: [],
      decisions: [],
    },
  }));

test("a stretch has rows once it is open, some in a frame, and those of now", async () => {
  const { el, patch } = open(looks(100));
  const stretch = el.querySelector(".nba-stretch");
  const rows = () =>
    [...stretch.querySelectorAll(".nba-body .nba-brief")].map((one) => one.textContent);
  const expected = looks(100).map(({ brief }) => brief);
  expect(rows()).toEqual([]);
  expect(stretch.textContent).toContain("100");
  stretch.open = true;
  expect(rows()).toEqual(expected.slice(0, 40));
  patch({ op: "put", index: 7, item: { ...looks(100)[7], brief: "changed" } });
  expected[7] = "changed";
  await vi.waitFor(() => expect(rows()).toEqual(expected));
  stretch.open = false;
  patch({ op: "put", index: 100, item: { ...looks(101)[100] } });
  expect(rows()).toEqual([]);
  expect(stretch.textContent).toContain("101");
});

test("rows that become one are gone, and open where a person has opened one or works in it", () => {
  for (const act of [
    () => {},
    (row) => (row.open = true),
    (row) => row.querySelector("summary").focus(),
  ]) {
    const { el, patch } = open([...looks(3), ...looks(4, "running").slice(3)]);
    const row = el.querySelectorAll(".nba-call")[1];
    act(row);
    const isWanted = row.open || row.contains(document.activeElement);
    patch({ op: "put", index: 3, item: looks(4)[3] });
    const stretch = el.querySelector(".nba-stretch");
    expect([stretch.open, stretch.contains(row)]).toEqual([isWanted, isWanted]);
    expect(el.querySelectorAll(".nba-items .nba-call")).toHaveLength(isWanted ? 5 : 1);
    if (isWanted) expect(row.open || row.contains(document.activeElement)).toBe(true);
  }
});

test("two views of one run draw the same, and each has ids of its own", () => {
  const { el, model, widget, patch } = open([form({ kind: "text" }), call]);
  const second = document.createElement("div");
  document.body.append(second);
  const later = new AbortController();
  widget.render({ model, el: second, signal: later.signal });
  patch({ op: "put", index: 2, item: notice });
  const shape = (root) => root.innerHTML.replace(/nba-[0-9a-f]{8}-\d+/g, "id");
  expect(shape(second)).toBe(shape(el));
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  expect(new Set(ids).size).toBe(ids.length);
  later.abort();
  expect(second.innerHTML).toBe("");
});

const alike = ["a", "b"].map((id) => form({}, { key: `f:${id}`, interrupt: id, group: "g" }));
const kinds = ITEMS.map((item) => [item.type, [item]]);
const specs = fixture("forms.json").map(({ name, spec }) => [`form: ${name}`, [form(spec.root)]]);

test.each([...kinds, ["group", alike], ...specs])(
  "closing the view ends every listener and timer: %s",
  (_, items) => {
    const added = [];
    let base = HTMLElement.prototype;
    while (!Object.hasOwn(base, "addEventListener")) base = Object.getPrototypeOf(base);
    const real = base.addEventListener;
    const spy = vi.spyOn(base, "addEventListener").mockImplementation(function (...args) {
      if (!(this instanceof AbortSignal)) added.push(args);
      return real.apply(this, args);
    });
    onTestFinished(() => spy.mockRestore());
    const { model, controller, $ } = open(items);
    const root = $(".nbagent");
    const use = () => {
      for (const details of root.querySelectorAll("details")) details.open = true;
      for (const control of root.querySelectorAll("summary, button, input, textarea, select")) {
        control.focus();
        for (const type of ["keydown", "input", "change", "focusin", "focusout"])
          control.dispatchEvent(new Event(type, { bubbles: true }));
        if (control.type !== "file") control.click();
      }
      document.dispatchEvent(new Event("selectionchange"));
    };
    use();
    expect(added.length).toBeGreaterThan(6);
    expect(vi.getTimerCount()).toBeGreaterThan(1);
    controller.abort();
    use();
    const alive = added.filter(([, , options]) => !options?.signal?.aborted);
    expect(alive.map(([name]) => name)).toEqual([]);
    expect(model.listening).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  },
);

test("what is typed before the code that finds has come is kept for it, and then keys go where they went", async () => {
  const model = new FakeModel();
  const life = new AbortController();
  onTestFinished(() => life.abort());
  /** @type {(found: any) => void} */
  let come = () => {};
  const widget = card();
  const finder = () => new Promise((done) => (come = done));
  widget.initialize({ model, signal: life.signal, finder });
  const el = document.createElement("div");
  widget.render({ model, el, signal: life.signal });
  const calls = Array.from({ length: 9 }, (_, n) => ({ ...call, id: `call ${n}` }));
  model.receive(snapshot(calls));
  const buttons = [...el.querySelectorAll("button")];
  const button = buttons.find((one) => one.textContent === "Find…");
  if (!button) throw new Error(`no Find… among ${buttons.map((one) => one.textContent)}`);
  button.click();
  expect([..."pay"].map((key) => press(button, key).defaultPrevented)).toEqual([true, true, true]);
  expect(press(button, "Escape").defaultPrevented).toBe(false);
  const find = vi.fn();
  come({ default: find });
  await vi.advanceTimersByTimeAsync(1);
  expect(find.mock.calls.map(([, , first]) => first)).toEqual(["pay"]);
  expect(press(button, "s").defaultPrevented).toBe(false);
});
