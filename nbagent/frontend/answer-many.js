// @ts-check
// The questions of many rows that a rule chooses, and that are answered together.

import { attr, div, h, makeButton, randomId, setText, showText, span, words } from "./dom.js";
import { factList } from "./fields/facts.js";
import { drawCovers } from "./items/covers.js";
import { makeTimer, onChange, onClick, onInput } from "./lifetime.js";

/** A rule, and an id of the choice that made it; empty if the kernel made it. @typedef {[tool: string, field: string, operator: string, value: string, version: string]} Rule */
/**
 * @typedef {{
 *   tools: [string, string, number][], fields: [string, string][], rule: Rule,
 *   fit: number, preview: number, said: string, approvable: boolean, choices: [string, string][], writable: boolean, told: string, waits: string,
 * }} Asks
 */
/** A value that is opened first: the fact, once the kernel has sent it. @typedef {[id: string, text: string, brief: string, n: number, fact: import("./wire.js").Fact|null]} Odd */
/**
 * The value of the kernel's `BatchView.covers`.
 * @typedef {import("./wire.js").Covers & {preview: number, look: Odd[], more: number}} Covered
 */
/** Milliseconds after the last key until the rule is sent. */
const LOOK_AFTER = 150;

/**
 * Gives a select these options, if it has others, and chooses one of them.
 * @param {HTMLSelectElement} select @param {[value: string, label: string][]} all @param {string} chosen
 */
export function setOptions(select, all, chosen) {
  const shown = JSON.stringify(all);
  if (select.dataset["shown"] !== shown) {
    select.dataset["shown"] = shown;
    select.replaceChildren(...all.map(([name, text]) => h("option", { value: name }, text)));
  }
  if (select.value !== chosen) select.value = chosen;
}

/** The questions that a rule chooses, which are answered together. @param {import("./table.js").TableContext} about */
export function drawAsks({ model, send, signal, state, t }) {
  const title = h("p", "t-title");
  const tool = h("select");
  const toolLabel = h("label", "", span(), tool);
  const field = h("select");
  const fieldLabel = h("label", "", span(), field);
  const operator = h("select");
  const value = h("input", { class: "t-value" });
  const ruleStatus = span({ class: "t-soft", role: "status" });
  const covers = drawCovers(t);
  const odds = drawOdds({ send, signal, t, covered: () => covered() });
  const approve = makeButton("t-button");
  approve.dataset["look"] = "main";
  const choice = h("select");
  const text = h("input", { class: "t-reason" });
  const answer = makeButton("t-button");
  answer.dataset["look"] = "main";
  const reason = h("input", { class: "t-reason" });
  const reject = makeButton("t-button");
  const oneByOne = span("t-soft");
  const decisionStatus = span({ class: "t-soft", role: "status" });
  const replies = div("t-line", choice, text, answer);
  const actions = div("t-line", approve, reject, reason, oneByOne, decisionStatus);
  const el = div(
    { class: "t-asks", role: "group" },
    title,
    div("t-line", toolLabel, fieldLabel, operator, value, ruleStatus),
    covers.el,
    odds.el,
    replies,
    actions,
  );
  const covered = () => /** @type {Covered|undefined} */ (model.get("covers"));
  const timer = makeTimer(signal);
  /** The rule in the controls; the rules that the kernel does not show yet; and the rule that it showed last. */
  let rule = /** @type {Rule} */ (["", "", "", "", ""]);
  let unseen = /** @type {string[]} */ ([]);
  let seen = "";
  const chooseRule = () => {
    const text = field.value ? value.value : "";
    rule = [tool.value, field.value, operator.value, text, randomId()];
    unseen.push(JSON.stringify(rule));
    timer.start(LOOK_AFTER, () => send({ type: "rule", rule }));
    update();
  };
  /** Whether the kernel has not answered the latest choice yet. @param {string} rule the rule that the kernel shows */
  const isBehind = (rule) => {
    if (rule !== seen) unseen = unseen.includes(rule) ? unseen.slice(unseen.indexOf(rule) + 1) : [];
    seen = rule;
    return unseen.length > 0;
  };
  for (const select of [tool, field, operator]) {
    onChange(signal, select, () => {
      chooseRule();
      timer.now();
    });
  }
  onInput(signal, value, chooseRule);
  const decide = (/** @type {string} */ action) => {
    const { asks } = state();
    if (!asks) return;
    const box = action === "reject" ? reason : asks.choices.length ? choice : text;
    const reasonText = action === "approve" ? "" : box.value;
    const opened = odds.opened();
    send({ type: "decide", rule, preview: asks.preview, opened, action, reason: reasonText });
    if (reasonText && box !== choice) box.value = "";
  };
  onClick(signal, approve, () => decide("approve"));
  onClick(signal, reject, () => decide("reject"));
  onClick(signal, answer, () => decide("answer"));
  const update = () => {
    const { asks } = state();
    el.hidden = asks === null;
    if (!asks) return;
    const current = covered();
    const isOld = isBehind(JSON.stringify(asks.rule)) || current?.preview !== asks.preview;
    if (!isOld) rule = asks.rule;
    const [ofTool, ofField, op, ofValue] = rule;
    const isKnown = current?.preview === asks.preview;
    const answers = isKnown ? current.n : 0;
    const n = answers.toLocaleString("en");
    const left = asks.fit - answers;
    const look =
      isKnown &&
      left > 0 &&
      t(left === 1 ? "needs_look_one" : "needs_look", { n: left.toLocaleString("en") });
    attr(el, "aria-label", t("batch_answer"));
    setText(title, asks.waits);
    setText(/** @type {HTMLElement} */ (toolLabel.firstChild), t("batch_tool"));
    setText(/** @type {HTMLElement} */ (fieldLabel.firstChild), t("batch_where"));
    setOptions(
      tool,
      asks.tools.map(([name, text, count]) => [name, `${text} (${count.toLocaleString("en")})`]),
      ofTool,
    );
    setOptions(field, [["", t("batch_any")], ...asks.fields], ofField);
    setOptions(
      operator,
      ["is", "contains", "below", "above"].map((name) => [name, t(`batch_${name}`)]),
      op,
    );
    attr(operator, "aria-label", t("batch_where"));
    attr(value, "aria-label", t("batch_value"));
    attr(value, "placeholder", t("batch_value"));
    attr(reason, "aria-label", t("batch_reason"));
    attr(reason, "placeholder", t("batch_reason"));
    operator.hidden = value.hidden = ofField === "";
    if (value.value !== ofValue) value.value = ofValue;
    setText(ruleStatus, isOld ? "…" : asks.said);
    covers.update(isKnown ? current : null);
    odds.update();
    setText(approve, [t("batch_approve", { n }), look].filter(Boolean).join(", "));
    setText(reject, t("batch_reject", { n }));
    approve.hidden = !asks.approvable;
    for (const button of [approve, reject, answer])
      attr(button, "disabled", isOld || answers === 0);
    const hasChoices = asks.choices.length > 0;
    const isAnswered = hasChoices || asks.writable;
    replies.hidden = !isAnswered;
    choice.hidden = !hasChoices;
    text.hidden = hasChoices;
    setOptions(choice, asks.choices, choice.value || (asks.choices[0]?.[0] ?? ""));
    for (const each of [choice, text]) attr(each, "aria-label", t("batch_reply_with"));
    attr(text, "placeholder", t("batch_reply_with"));
    setText(answer, t("batch_reply", { n }));
    showText(oneByOne, asks.approvable || isAnswered ? "" : t("batch_one_by_one"));
    setText(decisionStatus, asks.told);
  };
  return { el, update };
}

/**
 * The values that need a look. An opened value stays open, and its questions are answered with the others.
 * @param {{send: (message: object) => void, signal: AbortSignal, t: import("./items/covers.js").Texts, covered: () => Covered|undefined}} about
 */
function drawOdds({ send, signal, t, covered }) {
  const title = div("t-soft");
  const list = h("ul", "nba-odds");
  const more = div("t-soft");
  const el = div({ class: "t-look", role: "group" }, title, list, more);
  /** @type {Map<string, {el: HTMLElement, button: HTMLButtonElement, value: HTMLElement|null}>} */
  const lines = new Map();
  const make = (/** @type {Odd} */ [id, text, brief, n]) => {
    const button = makeButton("t-button", t("odd_open"));
    const what = n > 1 ? `${text}, ${t("odd_in", { n: n.toLocaleString("en") })}` : text;
    attr(button, "aria-label", `${t("odd_open")}: ${what}`);
    onClick(signal, button, () =>
      send({ type: "look", preview: covered()?.preview ?? 0, value: id }),
    );
    const line = {
      el: h("li", {}, button, words("span", "", what), words("span", "nba-mono", brief)),
      button,
      value: null,
    };
    lines.set(id, line);
    return line;
  };
  return {
    el,
    opened: () => [...lines].flatMap(([id, line]) => (line.value?.isConnected ? [id] : [])),
    update() {
      const { look = [], more: rest = 0 } = covered() ?? {};
      const ids = new Set(look.map(([id]) => id));
      for (const [id, line] of lines) {
        if (ids.has(id)) continue;
        line.el.remove();
        lines.delete(id);
      }
      for (const [at, one] of look.entries()) {
        const line = lines.get(one[0]) ?? make(one);
        const fact = one[4];
        if (fact && !line.value) {
          const about = { class: "nba-value", tabindex: 0, role: "group", "aria-label": one[1] };
          line.value = div(about, factList([fact]));
          const hadFocus = line.button === document.activeElement;
          line.button.remove();
          line.el.append(line.value);
          if (hadFocus) line.value.focus();
        }
        if (list.children[at] !== line.el) list.insertBefore(line.el, list.children[at] ?? null);
      }
      el.hidden = look.length === 0;
      setText(title, t("odd_title"));
      attr(el, "aria-label", title.textContent);
      showText(more, rest > 0 ? t("odd_more", { n: rest.toLocaleString("en") }) : "");
    },
  };
}
