// @ts-check
// A question that waits. Once drawn it stays: what is typed, focus and selection outlive every message.

import { attr, equal, fill, h, random, tell, text, words } from "../dom.js";
import { factList } from "../fields/fact.js";
import { makeField } from "../fields/index.js";
import { unseenTexts } from "../fields/reveal.js";
import { lifeWithin, makeTimer, on } from "../lifetime.js";
import { actionBar } from "./actions.js";
import { rich } from "./call.js";
import { freeze, typing } from "./controls.js";
import { errorSummary, place, unfinished } from "./errors.js";
import { nextSubmission, OPEN } from "./submission.js";

/**
 * @typedef {import("../wire.js").FormItem} FormItem
 * @typedef {import("../wire.js").Action} Action
 * @typedef {import("../fields/node.js").Field} Field
 * @typedef {import("../fields/node.js").Draft} Draft
 * @typedef {import("./env.js").Env} Env
 */

/**
 * Who shows a form among others of its kind.
 * @typedef {object} Host
 * @property {() => void} [drawn] it changed
 * @property {(cut: boolean) => boolean} [unseen] the same of the host's own, where `cut` is the form's
 * @property {(errors: import("../wire.js").FieldError[], forAll: boolean) => void} [refused] an answer, or one for all, was not taken, before the form tells why
 * @property {(answer: import("../wire.js").Answer) => boolean} [take] whether it sends the answer itself
 */

/** Milliseconds after the last key until drafts go up. */
const DRAFTS_AFTER = 400;
/** Milliseconds without a receipt after which the person is told why, and a lost one is asked for. */
const [DELAYED_AFTER, OVERDUE_AFTER] = [1000, 8000];
/** Kinds that are one question: Send waits for an answer, digits pick one. */
const PICKED = new Set(["choice", "multi", "bool"]);

export class FormView {
  /** @type {Host|null} */ host = null;
  /** @type {FormItem} */ #item;
  /** @type {Env} */ #env;
  /** @type {AbortController} */ #life;
  /** @type {Field|null} */ #root = null;
  #unseen;
  /** @type {import("./submission.js").Submission} */ #submission = OPEN;
  /** @type {Node|null} What the person last acted on. */ #at = null;
  /** @type {import("../lifetime.js").Timer} */ #draftsDue;
  /** @type {import("../lifetime.js").Timer} */ #receiptDue;

  /**
   * @param {FormItem} item
   * @param {Env} env
   */
  constructor(item, env) {
    this.#item = item;
    this.#env = env;
    this.#life = lifeWithin(env.signal);
    const { signal } = this.#life;
    this.#draftsDue = makeTimer(signal);
    this.#receiptDue = makeTimer(signal);
    this.title = words("h4", { class: "nba-title", id: env.id(), tabindex: "-1" });
    this.path = words("div", "nba-path");
    this.note = words("p", "nba-note");
    this.facts = h("div", "nba-facts");
    this.slot = h("div", "nba-fields");
    this.preview = h("div", { class: "nba-outputs nba-preview", hidden: true });
    this.gone = h("p", { class: "nba-gone", role: "alert", hidden: true });
    this.summary = errorSummary(env, signal);
    this.bar = actionBar(env, signal, {
      press: (action, said) => this.#submit(action, said),
      reset: () => this.#reset(),
    });
    this.el = h(
      "form",
      {
        class: "nba-form",
        novalidate: true,
        autocomplete: "off",
        "aria-labelledby": this.title.id,
      },
      h("div", "nba-asking", this.path, this.title, this.note),
      this.facts,
      this.summary.el,
      this.summary.said,
      this.slot,
      this.preview,
      this.gone,
      ...this.bar.els,
    );
    attr(this.el, "data-interrupt", item.interrupt);
    this.#unseen = unseenTexts(this.el, () => this.draw());
    const at = (/** @type {Event} */ event) => {
      this.#at = /** @type {Node} */ (event.target);
    };
    for (const type of /** @type {const} */ (["input", "change", "click", "keydown"]))
      on(signal, this.slot, type, at, true);
    on(signal, this.el, "submit", (event) => event.preventDefault());
    on(signal, this.el, "keydown", (event) => this.#key(event));
    env.store.listen((event) => {
      if (event.type === "receipt") this.#judged(event.receipt);
      else if (event.type === "gone") this.draw();
    }, signal);
    this.#build(item.drafts);
    this.#foresee();
    this.bar.build(item.actions, item.remember);
    this.draw();
  }

  /** @param {FormItem} item */
  update(item) {
    const old = this.#item;
    this.#item = item;
    this.#move({ type: "shown" });
    const foreseen = (/** @type {FormItem} */ one) => [one.preview, one.preview_error];
    if (!equal(foreseen(old), foreseen(item))) this.#foresee();
    const shown = (/** @type {FormItem} */ one) => [one.facts, one.spec, one.approval];
    // What is shown is what is approved: another question is drawn anew, with what was typed.
    if (!equal(shown(old), shown(item))) this.#build(this.#drafts(true));
    if (!equal(old.actions, item.actions)) this.bar.build(item.actions, item.remember);
    this.draw();
  }

  remove() {
    this.#life.abort();
  }

  tick() {
    this.bar.tick();
  }

  get interrupt() {
    return this.#item.interrupt;
  }

  /** Whether an answer is on its way. */
  get busy() {
    return this.#submission.state !== "open";
  }

  /** Whether something to approve was not shown whole yet. */
  get unseen() {
    const cut = this.#item.approval && this.#unseen.any();
    return this.host?.unseen?.(cut) ?? cut;
  }

  /**
   * What the person changed, field by field.
   * @returns {[import("../fields/node.js").Node, import("../fields/node.js").DraftParts][]}
   */
  changes() {
    const inside = this.#root?.children().map(([, field]) => field) ?? [];
    const fields = inside.length > 0 || !this.#root ? inside : [this.#root];
    return fields.flatMap((field) => {
      const draft = field.draft(true);
      return draft === null ? [] : [[field.node, draft]];
    });
  }

  /**
   * Answers, as part of an answer for all, what a press of the button of this name does, with these
   * drafts where they are given.
   * @param {Action["name"]} name
   * @param {string|null} reason
   * @param {Draft} [drafts]
   */
  press(name, reason, drafts) {
    const action = this.#item.actions.find((one) => one.name === name);
    if (!action || this.#env.store.gone) return;
    if (drafts !== undefined) this.#build(drafts);
    this.#submit(action, { reason, remember: null }, true);
  }

  /**
   * Shows what is wrong with an answer.
   * @param {import("../wire.js").FieldError[]} errors
   */
  fail(errors) {
    if (errors.length > 0) this.bar.escape();
    this.summary.show(
      errors.map((error) => place(error, this.#root)),
      this.#root,
    );
  }

  /** For a person who asked to go to the question: its first control, never a button that decides. */
  enter() {
    const controls = [...this.slot.querySelectorAll("input, textarea, select")];
    const first = controls.find((control) => control.closest("[hidden]") === null);
    (first instanceof HTMLElement ? first : this.title).focus();
  }

  /** @param {Draft} saved */
  #build(saved) {
    const { store, id } = this.#env;
    const { facts, spec, approval } = this.#item;
    /** @type {import("../fields/node.js").Context} */
    const ctx = {
      t: (key, values) => store.t(key, values),
      tn: (key, n) => store.tn(key, n),
      id,
      signal: this.#life.signal,
      titleId: this.title.id,
      approval,
      root: spec?.root ?? { id: "", key: "", kind: "object", label: "" },
      touched: () => this.#touched(),
      hold: this.#unseen.hold,
      make: makeField,
    };
    fill(this.facts, factList(facts, ctx));
    this.#root = spec ? makeField(ctx, spec.root, saved, { depth: 0 }) : null;
    fill(this.slot, this.#root?.el);
  }

  /** Show what approving would do. */
  #foresee() {
    const { preview, preview_error: error } = this.#item;
    fill(this.preview, ...(preview ?? []).map(rich), error && words("p", "nba-help", error));
    this.preview.hidden = !this.preview.firstChild;
  }

  draw() {
    const item = this.#item;
    const { store } = this.#env;
    const changed = this.#drafts(true) !== null;
    const root = this.#root?.node;
    text(this.title, item.title);
    text(this.path, [item.path, item.tool].filter(Boolean).join(" ▸ "));
    text(this.note, item.note ?? "");
    for (const part of [this.path, this.note, this.facts, this.slot])
      part.hidden = !part.firstChild;
    const { busy } = this;
    attr(this.el, "aria-busy", busy ? "true" : null);
    attr(this.el, "data-approval", item.approval);
    attr(
      this.el,
      "data-danger",
      item.actions.some((action) => action.danger && action.primary),
    );
    if (store.gone || !this.gone.hidden) freeze(this.slot, store.gone);
    tell(this.gone, store.gone ? store.t("gone", { run: store.view?.head.run ?? "" }) : "");
    this.bar.update({
      busy,
      gone: store.gone,
      changed,
      unseen: this.unseen,
      empty: PICKED.has(root?.kind ?? "") && !root?.initial && !changed,
      enter: item.approval
        ? item.interrupt === "" && null
        : this.slot.querySelector("textarea") === null,
      expires: item.expires_at,
    });
    this.host?.drawn?.();
  }

  #touched() {
    if (this.#at) this.summary.edited(this.#at);
    this.draw();
    this.#draftsDue.start(DRAFTS_AFTER, () => {
      const drafts = this.#drafts(false);
      this.#env.store.send({ type: "drafts", interrupt: this.#item.interrupt, drafts });
    });
  }

  /**
   * What the person changed; null for nothing.
   * @param {boolean} secrets whether secrets are among it: in a submission only
   * @returns {Draft}
   */
  #drafts(secrets) {
    return this.#root?.draft(secrets) ?? null;
  }

  #reset() {
    this.#root?.reset();
    this.summary.show([], this.#root);
    this.#touched();
    this.enter();
  }

  /**
   * @param {Action} action
   * @param {{reason: string|null, remember: string|null}} said
   * @param {boolean} [forAll]
   */
  #submit(action, { reason, remember }, forAll = false) {
    const open = this.#root && action.name !== "reject" ? unfinished(this.#root) : [];
    if (open.length > 0) {
      this.host?.refused?.([], forAll);
      this.summary.show(open, this.#root);
      return;
    }
    /** @type {import("../wire.js").Answer} */
    const answer = {
      type: "answer",
      interrupt: this.#item.interrupt,
      submission: random(),
      action: action.name,
      drafts: action.name === "reject" ? null : this.#drafts(true),
      reason,
      remember,
    };
    if (this.host?.take?.(answer)) return;
    this.#draftsDue.stop();
    if (this.#env.store.send(answer)) this.#move({ type: "sent", id: answer.submission, forAll });
    this.draw();
  }

  /** @param {import("./submission.js").SubmissionEvent} event */
  #move(event) {
    const { state: before } = this.#submission;
    this.#submission = nextSubmission(this.#submission, event);
    const { state } = this.#submission;
    if (state === before) return;
    const late = () => this.#move({ type: "late" });
    switch (state) {
      case "sent":
        this.#receiptDue.start(DELAYED_AFTER, late);
        break;
      case "delayed":
        this.bar.hint(this.#env.store.t("sent"));
        this.#receiptDue.start(OVERDUE_AFTER - DELAYED_AFTER, late);
        break;
      case "overdue":
        // The receipt may be lost: a snapshot tells how things stand.
        this.#env.store.send({ type: "hello" });
        break;
      case "open":
      case "accepted":
        this.#receiptDue.stop();
        this.bar.hint("");
    }
  }

  /** @param {import("../wire.js").Receipt} receipt */
  #judged({ submission, ok, errors }) {
    const sent = this.#submission;
    if (!("id" in sent) || sent.id !== submission) return;
    this.#move({ type: "judged", ok });
    if (ok) this.#env.answered(this.#item);
    // The press held back what was typed: refused, it goes up for a reload.
    else this.#touched();
    this.draw();
    if (!ok) this.host?.refused?.(errors, sent.forAll);
    this.fail(ok ? [] : errors);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.isComposing) return;
    if (event.key === "Escape" && this.bar.escape()) event.preventDefault();
    if (event.key === "Enter") this.#enter(event, target);
    if (/^[1-9]$/.test(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey)
      this.#digit(event, target);
  }

  /**
   * @param {KeyboardEvent} event
   * @param {HTMLElement} target
   */
  #enter(event, target) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      if (!event.repeat) this.bar.main();
      return;
    }
    if (!(target instanceof HTMLInputElement)) return;
    event.preventDefault();
    const filter = target.classList.contains("nba-filter");
    if (!this.#item.approval && !event.shiftKey && !event.repeat && !filter) this.bar.main();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {HTMLElement} target
   */
  #digit(event, target) {
    const kind = this.#item.spec?.root.kind ?? "";
    if (this.#item.approval || !PICKED.has(kind) || typing(target)) return;
    const input = this.slot.querySelector(`[data-option="${Number(event.key) - 1}"]`);
    if (!(input instanceof HTMLInputElement) || input.closest("[hidden]") || input.disabled) return;
    event.preventDefault();
    input.focus();
    input.click();
  }
}
