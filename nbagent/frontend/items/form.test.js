import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { action, form, GATE, open, press, type, WIRE } from "../test-support/fake-host.js";

const record = WIRE.from_kernel.snapshot.view.items[4];
const object = (...fields) => ({ kind: "object", fields });
const field = (key, more) => ({ id: `/${key}`, key, label: key, kind: "text", ...more });
const edit = (more = {}) =>
  form(
    object(
      field("note", { initial: { text: "hi" }, prefilled: true }),
      field("amount", { kind: "num", initial: { text: "200" }, prefilled: true }),
    ),
    { actions: GATE, approval: true, ...more },
  );

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date", "performance"],
  });
});
afterEach(() => vi.useRealTimers());

test("an untouched prefill is approved with no drafts at all", () => {
  const { model, button } = open([edit()]);
  button("Approve").click();
  const [answer] = model.sent("answer");
  expect(answer).toEqual({
    type: "answer",
    interrupt: "i1",
    submission: answer.submission,
    action: "approve",
    drafts: null,
    reason: null,
    remember: null,
  });
  expect(answer.submission).toMatch(/^\d{20,}$/);
});

test("an edited field is marked, renames the button, and undo brings all back", () => {
  const { $, button } = open([edit()]);
  type($(".nba-number"), "150");
  expect(button("Approve with changes")).toBeTruthy();
  expect($(".nba-changed .nba-mark").textContent).toBe("changed · undo");
  $(".nba-changed .nba-mark button").click();
  expect($(".nba-number").value).toBe("200");
  expect(button("Approve")).toBeTruthy();
});

test("typed back to what it was is untouched", () => {
  const { $, model, button } = open([edit()]);
  type($(".nba-number"), "150");
  type($(".nba-number"), "200");
  button("Approve").click();
  expect(model.sent("answer")[0].drafts).toBe(null);
});

test("Enter never approves; Ctrl+Enter and Cmd+Enter do", () => {
  for (const keys of [{ ctrlKey: true }, { metaKey: true }]) {
    const { $, model } = open([edit()]);
    for (const more of [{}, { shiftKey: true }]) press($("input"), "Enter", more);
    $("form").dispatchEvent(new Event("submit", { cancelable: true, bubbles: true }));
    expect(model.sent("answer")).toEqual([]);
    press($("input"), "Enter", keys);
    expect(model.sent("answer")[0].action).toBe("approve");
  }
});

test("the hint for the key is short, whatever the button's label is", () => {
  const { $ } = open([edit()]);
  expect($(".nba-keys").textContent).toBe("Ctrl+Enter: Approve");
  type($("input"), "y");
  expect($(".nba-go").textContent).toBe("Approve with changes");
  expect($(".nba-keys").textContent).toBe("Ctrl+Enter: Approve");
});

test("Enter in a one-line input sends a question; in a textarea Ctrl+Enter does", () => {
  const short = open([form({ kind: "text" })]);
  type(short.$("input"), "Ada");
  for (const composing of [{ isComposing: true }, { keyCode: 229 }])
    press(short.$("input"), "Enter", composing);
  press(short.$("input"), "Enter", { shiftKey: true });
  expect(short.model.sent("answer")).toEqual([]);
  press(short.$("input"), "Enter");
  expect(short.model.sent("answer")[0].drafts).toEqual({ text: "Ada" });
  const long = open([form({ kind: "text", multiline: true })]);
  type(long.$("textarea"), "Ada");
  press(long.$("textarea"), "Enter");
  expect(long.model.sent("answer")).toEqual([]);
  press(long.$("textarea"), "Enter", { ctrlKey: true });
  expect(long.model.sent("answer")).toHaveLength(1);
});

test("one answer is on its way at a time, until the receipt of that very submission", () => {
  const { model, button, judge, $ } = open([form({ kind: "text" })]);
  type($("input"), "x");
  button("Send").click();
  button("Send").click();
  press($("input"), "Enter");
  expect(model.sent("answer")).toHaveLength(1);
  model.receive({ type: "receipt", submission: "another", interrupt: "i1", ok: false, errors: [] });
  button("Send").click();
  expect(model.sent("answer")).toHaveLength(1);
  judge({ ok: false, errors: [{ field: "", message: "too short" }] });
  button("Send").click();
  expect(model.sent("answer")).toHaveLength(2);
  expect(new Set(model.sent("answer").map((one) => one.submission)).size).toBe(2);
});

test("errors go to their fields, the first wrong control takes the focus, what was typed stays", () => {
  const { $, el, button, judge } = open([edit()]);
  type($(".nba-number"), "-5");
  button("Approve with changes").click();
  judge({
    ok: false,
    errors: [
      { field: "/amount", message: "must be positive" },
      { field: "/nowhere", message: "unknown" },
      { field: null, message: "the two do not fit" },
    ],
  });
  const amount = $(".nba-number");
  expect(document.activeElement).toBe(amount);
  expect(amount.value).toBe("-5");
  expect(amount.getAttribute("aria-invalid")).toBe("true");
  const [described] = amount.getAttribute("aria-describedby").split(" ");
  expect(document.getElementById(described).textContent).toBe("must be positive");
  const messages = [...el.querySelectorAll("[role=alert] li")].map((one) => one.textContent);
  expect(messages).toEqual(["amount: must be positive", "nowhere: unknown", "the two do not fit"]);
  document.activeElement.blur();
  $("[role=alert] li button").click();
  expect(document.activeElement).toBe(amount);
});

test("an error below a JSON box is shown at the box with the rest of its path", () => {
  const { $, button, judge } = open([
    form(object(field("tags", { kind: "list", initial_json: { text: '["a"]' } }))),
  ]);
  type($("textarea"), '["b"]');
  button("Send").click();
  judge({ ok: false, errors: [{ field: "/tags/0", message: "no" }] });
  expect($(".nba-field .nba-err").textContent).toBe("0: no");
});

test("editing a field clears what was wrong with it, and the summary counts the rest", () => {
  const { $, el, button, judge } = open([edit()]);
  const statusText = () => el.querySelector(".nba-form [role=status].nba-sr").textContent;
  button("Approve").click();
  const errors = [
    { field: "/note", message: "too short" },
    { field: "/amount", message: "too much" },
    { field: null, message: "not together" },
  ];
  judge({ ok: false, errors });
  expect($(".nba-errors p").textContent).toBe("3 fields to correct");
  type($(".nba-number"), "150");
  expect(el.textContent).not.toContain("too much");
  expect(el.textContent).not.toContain("not together");
  expect([...el.querySelectorAll(".nba-errors li")].map((one) => one.textContent)).toEqual([
    "note: too short",
  ]);
  expect(statusText()).toBe("1 field to correct");
  expect(document.activeElement).toBe($(".nba-number"));
  type($("input[type=text], textarea"), "hello");
  expect([$(".nba-errors").hidden, el.textContent.includes("too short")]).toEqual([true, false]);
  expect(statusText()).toBe("All marked fields are corrected.");
});

test("no message touches what is typed: patches, errors, other items, the same form again", () => {
  const { $, patch, model, button, judge } = open([form({ kind: "text" })]);
  const input = $("input");
  type(input, "half an ans");
  input.setSelectionRange(2, 5);
  const untouched = () => {
    expect($("input")).toBe(input);
    expect(document.activeElement).toBe(input);
    expect([input.value, input.selectionStart, input.selectionEnd]).toEqual(["half an ans", 2, 5]);
  };
  const values = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  const written = vi.spyOn(input, "value", "set");
  patch({ op: "put", index: 0, item: record });
  patch({ op: "put", index: 1, item: form({ kind: "text" }, { note: "Look twice" }) });
  patch({ op: "put", index: 1, item: form({ kind: "text" }, { drafts: { text: "other" } }) });
  model.receive({
    ...structuredClone({
      type: "snapshot",
      seq: 9,
      view: { head: WIRE.after_patch.head, items: [record, form({ kind: "text" })] },
      now: 1,
      texts: {},
    }),
  });
  untouched();
  button("Send").click();
  judge({ ok: false, errors: [{ field: "", message: "no" }] });
  expect(written).not.toHaveBeenCalled();
  expect(values).toBeTruthy();
  expect($("input")).toBe(input);
});

test("what was typed before a reload is there again", () => {
  const { $, button } = open([edit({ drafts: { fields: { amount: { text: "150" } } } })]);
  expect($(".nba-number").value).toBe("150");
  expect(button("Approve with changes")).toBeTruthy();
});

test("drafts go up after a pause, are in another view of the page, and never have a secret", () => {
  const { $, el, model, button, widget, controller } = open([
    form(object(field("name"), field("pin", { secret: true, format: "password" }))),
  ]);
  const [name, pin] = el.querySelectorAll("input");
  type(name, "A");
  type(name, "Ad");
  expect(model.sent("drafts")).toEqual([]);
  vi.advanceTimersByTime(500);
  type(pin, "1234");
  vi.advanceTimersByTime(500);
  const sent = { fields: { name: { text: "Ad" } } };
  expect(model.sent("drafts").map((one) => one.drafts)).toEqual([sent, sent]);
  expect($("input[type=password]")).toBe(pin);
  const other = document.createElement("div");
  widget.render({ model, el: other, signal: controller.signal });
  expect([...other.querySelectorAll("input")].map(({ value }) => value)).toEqual(["Ad", ""]);
  button("Send").click();
  expect(model.sent("answer")[0].drafts.fields.pin).toEqual({ text: "1234" });
});

test("drafts go up at once where a field is left, as the next press may close the card", () => {
  const { $, model } = open([form(object(field("name")))]);
  type($("input"), "Ada");
  $("input").dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  $("input").dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  expect(model.sent("drafts").map((one) => one.drafts)).toEqual([
    { fields: { name: { text: "Ada" } } },
  ]);
  vi.advanceTimersByTime(5000);
  expect(model.sent("drafts").length).toBe(1);
});

test("what was typed right before a refused press goes up after all, for a reload", () => {
  const { $, model, judge } = open([form(object(field("note")))]);
  type($("input"), "kept");
  press($("input"), "Enter");
  judge({ ok: false, errors: [{ field: "/note", message: "no" }] });
  vi.advanceTimersByTime(1000);
  expect(model.sent("drafts").at(-1)?.drafts).toEqual({ fields: { note: { text: "kept" } } });
});

test("a refusal asks for a reason first, and Ctrl+Enter there refuses and never approves", () => {
  const { $, model, button } = open([edit()]);
  type($(".nba-number"), "1");
  button("Reject…").click();
  expect(model.sent("answer")).toEqual([]);
  const reason = $(".nba-reason textarea");
  expect(document.activeElement).toBe(reason);
  type(reason, "not today");
  press(reason, "Enter", { ctrlKey: true });
  const { action: name, reason: sentReason, drafts } = model.sent("answer")[0];
  expect([name, sentReason, drafts]).toEqual(["reject", "not today", null]);
});

test("Escape settles nothing: it only closes the reason", () => {
  const { $, model, button } = open([edit()]);
  button("Reject…").click();
  press($(".nba-reason textarea"), "Escape");
  press($("input"), "Escape");
  expect(button("Approve")).toBeTruthy();
  expect(model.sent("answer")).toEqual([]);
});

test("a press by pointer on a button that has just appeared or moved is ignored", () => {
  const { model, button, $ } = open([edit()]);
  const approve = button("Approve");
  const click = () => approve.dispatchEvent(new MouseEvent("click", { detail: 1, bubbles: true }));
  click();
  expect(model.sent("answer")).toEqual([]);
  expect($(".nba-hint").textContent).toContain("moved");
  vi.advanceTimersByTime(600);
  approve.getBoundingClientRect = () => ({ x: 0, y: 40, width: 80, height: 30 });
  click();
  expect(model.sent("answer")).toEqual([]);
  vi.advanceTimersByTime(600);
  click();
  expect(model.sent("answer")).toHaveLength(1);
});

test("a press by pointer on a button that was hidden a moment ago is ignored", () => {
  const { model, button } = open([edit()]);
  const approve = button("Approve");
  const click = () => approve.dispatchEvent(new MouseEvent("click", { detail: 1, bubbles: true }));
  approve.hidden = true;
  vi.advanceTimersByTime(600);
  approve.hidden = false;
  click();
  expect(model.sent("answer")).toEqual([]);
  vi.advanceTimersByTime(600);
  click();
  expect(model.sent("answer")).toHaveLength(1);
});

test("a press counts that begins on a button which stands still, though leaving a field moves it", () => {
  const { model, button } = open([edit()]);
  const approve = button("Approve");
  const pointer = (type) =>
    approve.dispatchEvent(new MouseEvent(type, { detail: 1, bubbles: true }));
  vi.advanceTimersByTime(600);
  pointer("pointerdown");
  approve.getBoundingClientRect = () => ({ x: 0, y: 40, width: 80, height: 30 });
  pointer("click");
  expect(model.sent("answer")).toHaveLength(1);
});

test("a press does not count that begins on a button which just moved", () => {
  const { model, button } = open([edit()]);
  const approve = button("Approve");
  const pointer = (type) =>
    approve.dispatchEvent(new MouseEvent(type, { detail: 1, bubbles: true }));
  vi.advanceTimersByTime(600);
  approve.getBoundingClientRect = () => ({ x: 0, y: 40, width: 80, height: 30 });
  pointer("pointerdown");
  vi.advanceTimersByTime(600);
  pointer("click");
  expect(model.sent("answer")).toEqual([]);
});

test("long input must be shown whole before it can be approved, in facts and in fields", () => {
  const long = Array.from({ length: 30 }, (_, line) => `line ${line}`).join("\n");
  const facts = [{ label: "script", value: long, code: true, changed_from: null }];
  const code = field("sql", { kind: "code", initial: { text: long }, prefilled: true });
  const { el, model, button } = open([
    form(object(code), { actions: GATE, approval: true, facts }),
  ]);
  const show = [...el.querySelectorAll(".nba-link")].filter((one) =>
    /Show all/.test(one.textContent),
  );
  expect(show).toHaveLength(2);
  for (const one of show) {
    button("Approve").click();
    expect(button("Approve").getAttribute("aria-disabled")).toBe("true");
    one.click();
  }
  expect(model.sent("answer")).toEqual([]);
  show[0].click();
  button("Approve").click();
  expect(model.sent("answer")).toHaveLength(1);
});

test("nothing of what is approved hides beyond the end of a line", () => {
  const value = `ABC123${" ".repeat(30)}and 9,999 to EVIL`;
  const to = field("to", { initial: { text: value }, prefilled: true });
  const { $ } = open([form(object(to), { actions: GATE, approval: true })]);
  expect($(".nba-fields textarea").value).toBe(value);
});

test("a kernel that is gone disables the form, says so, and keeps what is typed", () => {
  vi.spyOn(console, "warn").mockImplementation(() => {});
  const { $, model, button } = open([edit()]);
  type($(".nba-number"), "150");
  model.dead = true;
  button("Approve with changes").click();
  expect($(".nba-gone").hidden).toBe(false);
  expect($(".nba-gone").textContent).toContain("Run the cell again");
  expect($(".nba-number").value).toBe("150");
  expect($(".nba-number").readOnly).toBe(true);
  expect(button("Approve with changes").getAttribute("aria-disabled")).toBe("true");
});

test("after this view's answer the record takes the focus; after another's it does not", () => {
  const own = open([form({ kind: "text" })]);
  type(own.$("input"), "x");
  press(own.$("input"), "Enter");
  own.judge({ ok: true });
  own.patch({ op: "put", index: 0, item: { ...record, key: "f1" } });
  expect(document.activeElement).toBe(own.$(".nba-record"));
  const other = open([form({ kind: "text" })]);
  other.patch({ op: "put", index: 0, item: { ...record, key: "f1" } });
  expect(document.activeElement).toBe(document.body);
});

test("what was typed is handed over if another answer settled the question, and not if it was taken", () => {
  for (const taken of [true, false]) {
    const { el, $, button, judge, patch } = open([edit()]);
    type($(".nba-number"), "150");
    if (taken) {
      button("Approve with changes").click();
      judge({ ok: true });
    }
    patch({ op: "put", index: 0, item: { ...record, key: "f1" } });
    expect(el.querySelectorAll(".nba-unsent")).toHaveLength(taken ? 0 : 1);
  }
});

test("another question under the same key is drawn anew", () => {
  const { $, patch } = open([form({ kind: "text" })]);
  type($("input"), "for the first");
  patch({ op: "put", index: 0, item: form({ kind: "text" }, { interrupt: "i2" }) });
  expect($("input").value).toBe("");
});

test("deceptive characters are marked, and named in words", () => {
  const parts = ["payp", "а", "l"];
  const fact = { label: "to", value: parts.join(""), code: true, changed_from: null };
  const facts = [{ ...fact, parts, remark: "Cyrillic а" }, fact];
  const { el } = open([form(null, { actions: GATE, approval: true, facts })]);
  const [odd, plain] = el.querySelectorAll(".nba-kv dd > div");
  expect(odd?.querySelector("mark")?.textContent).toBe("а");
  expect(odd?.querySelector("mark")?.title).toBe("Cyrillic а");
  expect(odd?.querySelector(".nba-odd")?.textContent).toBe("Cyrillic а");
  expect(plain?.innerHTML).toBe("paypаl");
});

test("what is approved is what is shown: changed facts are drawn anew with what was typed", () => {
  const { $, patch } = open([edit()]);
  type($(".nba-number"), "150");
  const facts = [{ label: "to", value: "B", code: true, changed_from: null }];
  patch({ op: "put", index: 0, item: edit({ facts }) });
  expect($(".nba-facts").textContent).toContain("B");
  expect($(".nba-number").value).toBe("150");
});

test("an answer that waits behind another cell is shown as sent, until its receipt", () => {
  const { $, button, judge } = open([form({ kind: "text" })]);
  type($("input"), "x");
  button("Send").click();
  vi.advanceTimersByTime(900);
  expect($(".nba-hint").textContent).toBe("");
  vi.advanceTimersByTime(200);
  expect($(".nba-hint").textContent).toContain("Sent. The kernel is busy");
  judge({ ok: true });
  vi.advanceTimersByTime(9000);
  expect($(".nba-hint").textContent).toBe("");
});

test("a missing receipt is shown after a while, and a snapshot with the question still open frees the form", () => {
  const { $, model, button } = open([form({ kind: "text" })]);
  type($("input"), "x");
  button("Send").click();
  vi.advanceTimersByTime(9000);
  expect($(".nba-hint").textContent).not.toBe("");
  expect(model.sent("hello")).toHaveLength(2);
  model.receive({
    type: "snapshot",
    seq: 5,
    view: { head: WIRE.after_patch.head, items: [form({ kind: "text" })] },
    now: 1,
    texts: {},
  });
  button("Send").click();
  expect(model.sent("answer")).toHaveLength(2);
});

test("the deadline counts down by the kernel's clock", () => {
  const { $ } = open([edit({ expires_at: Date.now() / 1000 + 65 })]);
  expect($(".nba-right").textContent).toContain("1:05");
  vi.advanceTimersByTime(6000);
  expect($(".nba-right").textContent).toContain("0:59");
  vi.advanceTimersByTime(60_000);
  expect($(".nba-right").textContent).toContain("expired");
});

test("the main action stands first, whatever order it came in", () => {
  const actions = [action("reject", "No"), action("submit", "Send", { primary: true })];
  const { el } = open([form({ kind: "text" }, { actions })]);
  expect(
    [...el.querySelectorAll(".nba-acts .nba-buttons button")].map((one) => one.textContent),
  ).toEqual(["Send", "No"]);
});

test("a preview stands above the buttons, is drawn anew, and leaves what is typed alone", () => {
  const seen = (data) => ({ preview: [{ kind: "html", data, alt: "" }], preview_error: null });
  const { $, patch } = open([edit(seen("<p>200 rows</p>"))]);
  expect($(".nba-preview .nba-view").textContent).toBe("200 rows");
  expect($(".nba-preview").compareDocumentPosition($(".nba-acts"))).toBe(
    Node.DOCUMENT_POSITION_FOLLOWING,
  );
  const input = $(".nba-number");
  type(input, "150");
  patch({ op: "put", index: 0, item: edit(seen("<p>150 rows</p>")) });
  expect($(".nba-preview .nba-view").textContent).toBe("150 rows");
  expect([$(".nba-number"), input.value]).toEqual([input, "150"]);
  patch({ op: "put", index: 0, item: edit({ preview: [], preview_error: "no table" }) });
  expect($(".nba-preview .nba-err").textContent).toBe("no table");
  expect($("form").hasAttribute("data-doubt")).toBe(true);
  patch({ op: "put", index: 0, item: edit({ preview: [], preview_error: null }) });
  expect($(".nba-preview").hidden).toBe(true);
});

const INSTEAD = [...GATE, action("answer", "Answer instead…", { menu: true })];
const result = (root = { kind: "text" }, drafts = null) => ({
  spec: { root: { id: "", key: "", label: "", required: true, ...root } },
  drafts,
});
const instead = (more = {}) => edit({ actions: INSTEAD, instead: result(), ...more });

test("a call's result is given in its place: by keyboard, and no approval goes with it", () => {
  const { $, el, model, button, judge } = open([instead()]);
  type($(".nba-number"), "150");
  $(".nba-more").click();
  button("Answer instead…").click();
  const line = $(".nba-instead input");
  expect(document.activeElement).toBe(line);
  expect(el.ownerDocument.getElementById(line.getAttribute("aria-labelledby")).textContent).toBe(
    "Result (transfer does not run)",
  );
  expect($(".nba-fields").inert).toBe(true);
  expect(
    [...el.querySelectorAll(".nba-acts .nba-buttons button")].map((b) => b.textContent),
  ).toEqual(["Send", "Cancel"]);
  type(line, "by hand");
  press(line, "Enter");
  const [answer] = model.sent("answer");
  expect([answer.action, answer.drafts, answer.remember]).toEqual([
    "answer",
    { text: "by hand" },
    null,
  ]);
  judge({ ok: false, errors: [{ field: "", message: "too short" }] });
  expect($(".nba-instead .nba-err").textContent).toBe("too short");
  expect(line.value).toBe("by hand");
});

test("Cancel and Escape bring the approval back, with what was typed in both", () => {
  const { $, model, button } = open([instead()]);
  type($(".nba-number"), "150");
  for (const back of [
    () => button("Cancel").click(),
    () => press($(".nba-instead input"), "Escape"),
  ]) {
    $(".nba-more").click();
    button("Answer instead…").click();
    type($(".nba-instead input"), "by hand");
    back();
    expect($(".nba-instead").hidden).toBe(true);
    expect(document.activeElement).toBe($(".nba-more"));
  }
  button("Approve with changes").click();
  const [answer] = model.sent("answer");
  expect([answer.action, answer.drafts]).toEqual([
    "approve",
    { fields: { amount: { text: "150" } } },
  ]);
});

test("what is typed as a result is kept for a reload, and opens there; Cancel forgets it", () => {
  const { $, model, button } = open([instead()]);
  $(".nba-more").click();
  button("Answer instead…").click();
  type($(".nba-instead input"), "by hand");
  vi.advanceTimersByTime(500);
  expect(model.sent("drafts").at(-1)).toEqual({
    type: "drafts",
    interrupt: "i1",
    drafts: { text: "by hand" },
    instead: true,
  });
  const again = open([instead({ instead: result(undefined, { text: "by hand" }) })]);
  expect(again.$(".nba-instead").hidden).toBe(false);
  expect(again.$(".nba-instead input").value).toBe("by hand");
  again.button("Cancel").click();
  expect(again.model.sent("drafts").at(-1).drafts).toBe(null);
});

test("a question that asks for an answer runs its call by the menu alone, and with no drafts", () => {
  const actions = [
    action("submit", "Send", { primary: true }),
    action("approve", "Run ask", { menu: true }),
  ];
  const { $, model, button } = open([form({ kind: "text" }, { actions })]);
  type($("input"), "typed");
  expect($(".nba-more").getAttribute("aria-label")).toBe("More ways to answer");
  $(".nba-more").click();
  button("Run ask").click();
  const [answer] = model.sent("answer");
  expect([answer.action, answer.drafts]).toEqual(["approve", null]);
});

test("the name of the fields is shown above them if the title does not say it", () => {
  const { $ } = open([form({ kind: "text" }, { named: "Result" })]);
  const label = $(`[id="${$("input").getAttribute("aria-labelledby")}"]`);
  expect([label.textContent, label.hidden]).toEqual(["Result", false]);
});
