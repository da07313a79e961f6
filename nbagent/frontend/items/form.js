// @ts-check
// A question that waits. Once drawn it stays: what is typed, focus and selection outlive every message.

import { attr, fill, h, isEqual, randomId, setText, showText, words } from "../dom.js";
import { factList } from "../fields/facts.js";
import { makeField } from "../fields/index.js";
import { freeze } from "../fields/inputs.js";
import { unseenTexts } from "../fields/long-text.js";
import { lifeWithin, makeTimer, on } from "../lifetime.js";
import { actionBar } from "./actions.js";
import { drawRich } from "./call.js";
import { errorSummary, placeError, unfinishedFields } from "./errors.js";
import { isPick, pressKey } from "./form-keys.js";
import { nextSubmission, OPEN } from "./submission.js";

/**
 * @typedef {import("../wire.js").FormItem} FormItem
 * @typedef {import("../wire.js").Action} Action
 * @typedef {import("../fields/field.js").Field} Field
 * @typedef {import("../fields/spec.js").Draft} Draft
 * @typedef {import("./item.js").CardContext} CardContext
 */

/**
 * Who shows a form among others of its kind.
 * @typedef {object} FormOwner
 * @property {() => void} [drawn] it changed
 * @property {(cut: boolean) => boolean} [unseen] the same of the owner's own, where `cut` is the form's
 * @property {(errors: import("../wire.js").FieldError[], forAll: boolean) => void} [refused] an answer, or one for all, was not taken, before the form tells why
 * @property {(answer: import("../wire.js").Answer) => boolean} [take] whether it sends the answer itself
 */

/** Milliseconds after the last key until drafts go up. */
const DRAFTS_AFTER = 400;
/** Milliseconds without a receipt after which the person is told why, and a lost one is asked for. */
const [DELAYED_AFTER, OVERDUE_AFTER] = [1000, 8000];

export class FormView {
  /** @type {FormOwner|null} */ owner = null;
  /** @type {FormItem} */ #item;
  /** @type {CardContext} */ #card;
  /** @type {Field|null} */ #root = null;
  /** @type {import("./submission.js").Submission} */ #submission = OPEN;
  /** @type {Node|null} */ #lastUsed = null;
  #path = words("div", "nba-path");
  #title = words("h4", { class: "nba-title", tabindex: "-1" });
  #note = words("p", "nba-note");
  #facts = h("div", "nba-facts");
  #slot = h("div", "nba-fields");
  #preview = h("div", { class: "nba-outputs nba-preview", hidden: true });
  #gone = h("p", { class: "nba-gone", role: "alert", hidden: true });
  #life;
  #draftsDue;
  #receiptDue;
  #unseen;

  /**
   * @param {FormItem} item
   * @param {CardContext} card
   */
  constructor(item, card) {
    this.#item = item;
    this.#card = card;
    this.#life = lifeWithin(card.signal);
    const { signal } = this.#life;
    this.#draftsDue = makeTimer(signal);
    this.#receiptDue = makeTimer(signal);
    this.#title.id = card.id();
    this.summary = errorSummary(card, signal);
    this.bar = actionBar(card, signal, {
      press: (action, said) => this.#submit(action, said),
      reset: () => this.#reset(),
    });
    this.el = h(
      "form",
      {
        class: "nba-form",
        novalidate: true,
        autocomplete: "off",
        "aria-labelledby": this.#title.id,
      },
      h("div", "nba-asking", this.#path, this.#title, this.#note),
      this.#facts,
      this.summary.el,
      this.summary.said,
      this.#slot,
      this.#preview,
      this.#gone,
      ...this.bar.els,
    );
    attr(this.el, "data-interrupt", item.interrupt);
    this.#unseen = unseenTexts(this.el, () => this.draw());
    const used = (/** @type {Event} */ event) => {
      this.#lastUsed = /** @type {Node} */ (event.target);
    };
    for (const type of /** @type {const} */ (["input", "change", "click", "keydown"]))
      on(signal, this.#slot, type, used, true);
    on(signal, this.el, "submit", (event) => event.preventDefault());
    on(signal, this.el, "keydown", (event) =>
      pressKey(event, { item: this.#item, slot: this.#slot, bar: this.bar }),
    );
    card.store.listen((event) => {
      if (event.type === "receipt") this.#judged(event.receipt);
      else if (event.type === "gone") this.draw();
    }, signal);
    this.#build(item.drafts);
    this.#drawPreview();
    this.bar.build(item.actions, item.remember);
    this.draw();
  }

  /**
   * Follows the item; what is typed stays.
   * @param {FormItem} item
   */
  update(item) {
    const old = this.#item;
    this.#item = item;
    this.#move({ type: "shown" });
    const previewed = (/** @type {FormItem} */ one) => [one.preview, one.preview_error];
    if (!isEqual(previewed(old), previewed(item))) this.#drawPreview();
    const shown = (/** @type {FormItem} */ one) => [one.facts, one.spec, one.approval];
    // What is shown is what is approved: another question is drawn anew, with what was typed.
    if (!isEqual(shown(old), shown(item))) this.#build(this.#drafts(true));
    if (!isEqual(old.actions, item.actions)) this.bar.build(item.actions, item.remember);
    this.draw();
  }

  /** Ends all that listens. */
  remove() {
    this.#life.abort();
  }

  /** Counts down. */
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
    return this.owner?.unseen?.(cut) ?? cut;
  }

  /**
   * What the person changed, field by field.
   * @returns {[import("../fields/spec.js").SpecNode, import("../fields/spec.js").DraftParts][]}
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
    if (!action || this.#card.store.gone) return;
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
      errors.map((error) => placeError(error, this.#root)),
      this.#root,
    );
  }

  /** For a person who asked to go to the question: its first control, never a button that decides. */
  enter() {
    const controls = [...this.#slot.querySelectorAll("input, textarea, select")];
    const first = controls.find((control) => control.closest("[hidden]") === null);
    (first instanceof HTMLElement ? first : this.#title).focus();
  }

  /**
   * Makes the fields, with what was typed in them earlier.
   * @param {Draft} saved
   */
  #build(saved) {
    const { store, id } = this.#card;
    const { facts, spec, approval } = this.#item;
    /** @type {import("../fields/field.js").Context} */
    const ctx = {
      t: store.t,
      tn: store.tn,
      id,
      signal: this.#life.signal,
      titleId: this.#title.id,
      approval,
      root: spec?.root ?? { id: "", key: "", kind: "object", label: "" },
      touched: () => this.#touched(),
      hold: this.#unseen.hold,
      make: makeField,
    };
    fill(this.#facts, factList(facts, ctx));
    this.#root = spec ? makeField(ctx, spec.root, saved, { depth: 0 }) : null;
    fill(this.#slot, this.#root?.el);
  }

  /** Shows what approving would do. */
  #drawPreview() {
    const { preview, preview_error: error } = this.#item;
    fill(this.#preview, ...(preview ?? []).map(drawRich), error && words("p", "nba-help", error));
    this.#preview.hidden = !this.#preview.firstChild;
  }

  /** Draws all around the fields as things stand. */
  draw() {
    const item = this.#item;
    const { store } = this.#card;
    const changed = this.#drafts(true) !== null;
    const root = this.#root?.node;
    const belongsToNone = item.interrupt === "";
    setText(this.#title, item.title);
    setText(this.#path, [item.path, item.tool].filter(Boolean).join(" ▸ "));
    setText(this.#note, item.note ?? "");
    for (const part of [this.#path, this.#note, this.#facts, this.#slot])
      part.hidden = !part.firstChild;
    const { busy } = this;
    attr(this.el, "aria-busy", busy ? "true" : null);
    attr(this.el, "data-approval", item.approval);
    attr(
      this.el,
      "data-danger",
      item.actions.some((action) => action.danger && action.primary),
    );
    if (store.gone || !this.#gone.hidden) freeze(this.#slot, store.gone);
    showText(this.#gone, store.gone ? store.t("gone", { run: store.view?.head.run ?? "" }) : "");
    this.bar.update({
      busy,
      gone: store.gone,
      changed,
      unseen: this.unseen,
      empty: isPick(root) && !root?.initial && !changed,
      enter: item.approval ? belongsToNone && null : this.#slot.querySelector("textarea") === null,
      expires: item.expires_at,
    });
    this.owner?.drawn?.();
  }

  #touched() {
    if (this.#lastUsed) this.summary.edited(this.#lastUsed);
    this.draw();
    this.#draftsDue.start(DRAFTS_AFTER, () => {
      const drafts = this.#drafts(false);
      this.#card.store.send({ type: "drafts", interrupt: this.#item.interrupt, drafts });
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
   * Sends the answer, or shows what is unfinished.
   * @param {Action} action
   * @param {{reason: string|null, remember: string|null}} said
   * @param {boolean} [forAll]
   */
  #submit(action, { reason, remember }, forAll = false) {
    const open = this.#root && action.name !== "reject" ? unfinishedFields(this.#root) : [];
    if (open.length > 0) {
      this.owner?.refused?.([], forAll);
      this.summary.show(open, this.#root);
      return;
    }
    /** @type {import("../wire.js").Answer} */
    const answer = {
      type: "answer",
      interrupt: this.#item.interrupt,
      submission: randomId(),
      action: action.name,
      drafts: action.name === "reject" ? null : this.#drafts(true),
      reason,
      remember,
    };
    if (this.owner?.take?.(answer)) return;
    this.#draftsDue.stop();
    if (this.#card.store.send(answer)) this.#move({ type: "sent", id: answer.submission, forAll });
    this.draw();
  }

  /**
   * Moves the submission on, and does what its new state asks for.
   * @param {import("./submission.js").SubmissionEvent} event
   */
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
        this.bar.hint(this.#card.store.t("sent"));
        this.#receiptDue.start(OVERDUE_AFTER - DELAYED_AFTER, late);
        break;
      case "overdue":
        // The receipt may be lost: a snapshot tells how things stand.
        this.#card.store.send({ type: "hello" });
        break;
      case "open":
      case "accepted":
        this.#receiptDue.stop();
        this.bar.hint("");
        break;
      default:
        /** @satisfies {never} */ (state);
    }
  }

  /**
   * Acts on the kernel's judgement of this form's answer.
   * @param {import("../wire.js").Receipt} receipt
   */
  #judged({ submission, ok, errors }) {
    const sent = this.#submission;
    if (!("id" in sent) || sent.id !== submission) return;
    this.#move({ type: "judged", ok });
    if (ok) this.#card.answered(this.#item);
    // The press held back what was typed: refused, it goes up for a reload.
    else this.#touched();
    this.draw();
    if (!ok) this.owner?.refused?.(errors, sent.forAll);
    this.fail(ok ? [] : errors);
  }
}
