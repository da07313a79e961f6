// @ts-check
// The form of an open question. Once drawn it stays: no message changes its input, focus or selection.

import { PYTHON } from "../copy.js";
import {
  attr,
  div,
  fill,
  h,
  isEqual,
  present,
  prevent,
  randomId,
  setText,
  showText,
  words,
} from "../dom.js";
import { factList, makeFact, nodeText } from "../fields/facts.js";
import { makeField } from "../fields/index.js";
import { freeze } from "../fields/inputs.js";
import { unseenTexts } from "../fields/long-text.js";
import { lifeWithin, makeTimer, on } from "../lifetime.js";
import { keepInView } from "../place.js";
import { actionBar } from "./actions.js";
import { drawRich } from "./call.js";
import { errorSummary, fieldsWithin, placeError, unfinishedFields } from "./errors.js";
import { isPick, pressKey } from "./form-keys.js";
import { nextSubmission, OPEN } from "./submission.js";

/** @import { Context, Field } from "../fields/field.js" */
/** @import { Draft, DraftParts, SpecNode } from "../fields/spec.js" */
/** @import { Action, Answer, FieldError, FormItem, Receipt } from "../wire.js" */
/** @import { CardContext } from "./item.js" */

/**
 * The table that shows a form among others of its kind.
 * @typedef {object} FormOwner
 * @property {() => void} [drawn] it changed
 * @property {() => void} [opened] its fields must be seen now
 * @property {(cut: boolean) => boolean} [unseen] whether the owner or the form has unseen text; `cut` says
 * whether the form has some
 * @property {(errors: FieldError[], forAll: boolean) => void} [refused] an answer, or one for all, was
 * refused; called before the form shows why
 * @property {(answer: Answer) => boolean} [take] sends the answer itself and returns true,
 * or leaves that to the form and returns false
 * @property {(action: Action) => boolean} [idle] whether a press of this button would answer nothing
 */

/** @type {Action} */
const ANSWER = {
  name: "answer",
  label: "",
  changed_label: null,
  primary: false,
  danger: false,
  reason: false,
};
/** Milliseconds after the last key until drafts are sent. */
const DRAFTS_AFTER = 400;
/** Milliseconds without a receipt after which the person sees a hint, and after which a snapshot is requested. */
const [DELAYED_AFTER, OVERDUE_AFTER] = [1000, 8000];

export class FormView {
  /** @type {FormOwner|null} */ owner = null;
  /** @type {FormItem} */ #item;
  /** @type {CardContext} */ #card;
  /** @type {Field|null} The question's own fields. */ #questionField = null;
  /** @type {Field|null} The fields of the result that is given instead of running. */ #resultField =
    null;
  #answering = false;
  /** @type {import("./submission.js").Submission} */ #submission = OPEN;
  /** @type {Node|null} */ #lastUsed = null;
  #path = words("div", "nba-path");
  #title = words("h4", { class: "nba-title", tabindex: "-1" });
  #note = words("p", "nba-note");
  #facts = div("nba-facts");
  #fieldsTitle = words("div", "nba-named");
  #fieldsEl = div("nba-fields");
  /** The fields, which a person who signs in needs only if the browser is on another machine. */
  #folded = h("details", { class: "nba-folded" });
  #resultTitle = words("div", "nba-named");
  #resultEl = div({ class: "nba-fields nba-instead", hidden: true });
  #previewEl = div({ class: "nba-outputs nba-preview", hidden: true });
  #goneEl = h("p", { class: "nba-gone", role: "alert", hidden: true });
  #life;
  #draftsDue;
  #receiptDue;
  #unseen;
  #updateLift;

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
    for (const one of [this.#title, this.#fieldsTitle, this.#resultTitle]) one.id = card.id();
    setText(this.#resultTitle, card.store.t("instead_of", { tool: item.tool }));
    this.summary = errorSummary(card, signal);
    this.bar = actionBar(card, signal, {
      press: (action, extras) => this.#submit(action, extras),
      reset: () => this.#reset(),
      asked: () => this.draw(),
    });
    this.el = h(
      "form",
      {
        class: "nba-form",
        novalidate: true,
        autocomplete: "off",
        "aria-labelledby": this.#title.id,
      },
      div("nba-asking", this.#title, this.#path, this.#note),
      this.#facts,
      this.summary.el,
      this.summary.status,
      this.#fieldsTitle,
      this.#fieldsEl,
      this.#folded,
      this.#previewEl,
      this.#resultEl,
      this.#goneEl,
      ...this.bar.els,
    );
    attr(this.el, "data-interrupt", item.interrupt);
    this.#updateLift = keepInView(this.el, this.bar.acts, signal);
    this.#unseen = unseenTexts(this.el, () => this.draw());
    const rememberTarget = (/** @type {Event} */ event) => {
      this.#lastUsed = /** @type {Node} */ (event.target);
    };
    for (const type of /** @type {const} */ (["input", "change", "click", "keydown"]))
      for (const slot of [this.#fieldsEl, this.#resultEl])
        on(signal, slot, type, rememberTarget, true);
    // The next press after leaving a field may close the card.
    on(signal, this.el, "focusout", this.#draftsDue.now);
    on(signal, this.el, "submit", prevent);
    on(signal, this.el, "keydown", (event) =>
      pressKey(event, {
        approval: this.#current.approval,
        root: this.#activeField?.node,
        slot: this.#answering ? this.#resultEl : this.#fieldsEl,
        main: this.bar.main,
        escape: () => this.bar.escape() || (this.#answering && this.#showResultForm(false)),
      }),
    );
    card.store.listen((event) => {
      if (event.type === "receipt") this.#onReceipt(event);
      else if (event.type === "gone") this.draw();
      else if (event.type === "silent" && this.busy)
        this.bar.hint(card.store.t(card.store.silent ? "silent" : "sent"));
    }, signal);
    this.#buildFields(item.drafts);
    if (item.instead?.drafts) this.#buildResult(item.instead.drafts);
    this.#answering = this.#resultField?.draft(true) != null;
    this.#drawPreview();
    this.#buildBar();
    this.draw();
  }

  /**
   * Shows the new item and keeps what is typed.
   * @param {FormItem} item
   */
  update(item) {
    const old = this.#item;
    this.#item = item;
    this.#advance({ type: "shown" });
    const previewed = (/** @type {FormItem} */ one) => [
      one.preview,
      one.preview_error,
      one.preview_note,
    ];
    if (!isEqual(previewed(old), previewed(item))) this.#drawPreview();
    const shown = (/** @type {FormItem} */ one) => [one.facts, one.spec, one.approval];
    // Only shown values may be approved: if they change, the fields are drawn again with the unsent input.
    if (!isEqual(shown(old), shown(item))) this.#buildFields(draftOf(this.#questionField, true));
    if (this.#resultField && !isEqual(old.instead?.spec, item.instead?.spec))
      this.#buildResult(draftOf(this.#resultField, true));
    if (!isEqual(old.actions, item.actions) && !this.#answering) this.#buildBar();
    this.draw();
  }

  /** Ends the form's listeners, and hands unsent input to the card. */
  remove() {
    const typed = this.#submission.state === "accepted" ? [] : this.#unsentFacts();
    if (typed.length > 0) this.#card.unsent(this.#item.title, typed);
    this.#life.abort();
  }

  /** The unsent input of the fields, without secrets, and the unsent reason. */
  #unsentFacts() {
    const { t } = this.#card.store;
    const fields = [this.#questionField, this.#resultField].flatMap((root) =>
      root ? [...fieldsWithin(root)] : [],
    );
    const typed = fields.flatMap((field) => {
      const draft = field.children().length > 0 ? null : field.draft(false);
      if (draft === null) return [];
      const now = { ...field.node, initial: draft, initial_json: draft.json ?? null };
      const value = nodeText(/** @type {typeof field.node} */ (now), { t });
      return value ? [makeFact(field.name() || field.node.label, value)] : [];
    });
    const { reason } = this.bar;
    return reason ? [...typed, makeFact(t("reason_typed"), reason)] : typed;
  }

  /** Updates the countdown. */
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

  /** Whether the call's result is being given, instead of running it. */
  get answering() {
    return this.#answering;
  }

  /**
   * The person's unfinished input here, which an answer for all must not overwrite: a refusal, or an edit
   * with something to correct.
   * @returns {"rejecting"|"wrong"|null}
   */
  get unfinished() {
    if (this.bar.asking) return "rejecting";
    const wrong =
      this.summary.any || (this.#questionField && unfinishedFields(this.#questionField).length > 0);
    return wrong ? "wrong" : null;
  }

  /** The fields that can be edited now. */
  get #activeField() {
    return this.#answering ? this.#resultField : this.#questionField;
  }

  /** The question as it is shown now: while the person fills in the call's result, it is not an approval. */
  get #current() {
    const { t } = this.#card.store;
    if (!this.#answering) return this.#item;
    const send = { ...ANSWER, label: t("send"), primary: true };
    const actions = [send, { ...ANSWER, label: t("cancel") }];
    return { ...this.#item, approval: false, actions, remember: [] };
  }

  /** Whether something to approve was not shown completely yet. */
  get unseen() {
    const { approval, actions } = this.#current;
    const runs = approval || actions.some((action) => action.name === "approve");
    const cut = runs && this.#unseen.any();
    return this.owner?.unseen?.(cut) ?? cut;
  }

  /**
   * The person's changes, field by field.
   * @returns {[SpecNode, DraftParts][]}
   */
  changes() {
    const inside = this.#questionField?.children().map(([, field]) => field) ?? [];
    const fields = inside.length > 0 || !this.#questionField ? inside : [this.#questionField];
    return fields.flatMap((field) => {
      const draft = field.draft(true);
      return draft === null ? [] : [[field.node, draft]];
    });
  }

  /**
   * Answers like a press of the button of this name, as part of an answer for all, with these drafts if they
   * are given.
   * @param {Action["name"]} name
   * @param {string|null} reason
   * @param {Draft} [drafts]
   */
  press(name, reason, drafts) {
    const action = this.#item.actions.find((one) => one.name === name);
    if (!action || this.#card.store.gone) return;
    if (drafts !== undefined) this.#buildFields(drafts);
    this.#submit(action, { reason, remember: null }, true);
  }

  /**
   * Shows what is wrong with an answer.
   * @param {FieldError[]} errors
   */
  fail(errors) {
    if (errors.length > 0) this.bar.escape();
    this.summary.show(
      errors.map((error) => placeError(error, this.#activeField)),
      this.#activeField,
    );
    this.draw();
  }

  /** Puts the focus on the question's first control, never on a button that decides. */
  enter() {
    const slot = this.#answering ? this.#resultEl : this.#fieldsEl;
    /** @type {NodeListOf<HTMLElement>} */
    const controls = slot.querySelectorAll("input, textarea, select");
    const seen = [...controls].find((control) => !control.closest("[hidden], details:not([open])"));
    (seen ?? this.#facts.querySelector("a") ?? this.#title).focus();
  }

  /**
   * Creates the fields with their saved drafts.
   * @param {Draft} saved
   */
  #buildFields(saved) {
    const { facts, spec, approval, named } = this.#item;
    const ctx = this.#context(spec?.root, approval, named ? this.#fieldsTitle : this.#title);
    const { t } = this.#card.store;
    const signsIn = facts.some(
      ({ label, html }) => html?.startsWith("<a ") && label === t("sign_in"),
    );
    setText(this.#fieldsTitle, named || (signsIn ? t("sign_in_paste") : ""));
    if (signsIn) fill(this.#folded, h("summary", {}, this.#fieldsTitle), this.#fieldsEl);
    this.#folded.hidden = !signsIn;
    fill(this.#facts, factList(facts, ctx));
    this.#questionField = spec ? makeField(ctx, spec.root, saved, { depth: 0 }) : null;
    fill(this.#fieldsEl, this.#questionField?.el);
  }

  /**
   * Creates the fields of the result that may be given instead.
   * @param {Draft} saved
   */
  #buildResult(saved) {
    const root = this.#item.instead?.spec.root;
    const ctx = { ...this.#context(root, false, this.#resultTitle), hold: () => () => {} };
    this.#resultField = root ? makeField(ctx, root, saved, { depth: 0 }) : null;
    fill(this.#resultEl, this.#resultTitle, this.#resultField?.el);
  }

  /**
   * The context that fields get from the form.
   * @param {SpecNode|undefined} root
   * @param {boolean} approval
   * @param {HTMLElement} title
   * @returns {Context}
   */
  #context(root = { id: "", key: "", kind: "object", label: "" }, approval, title) {
    const { store, id } = this.#card;
    return {
      t: store.t,
      tn: store.tn,
      id,
      signal: this.#life.signal,
      titleId: title.id,
      approval,
      root,
      touched: () => this.#onEdit(),
      hold: this.#unseen.hold,
      make: makeField,
    };
  }

  #buildBar() {
    const { actions, remember } = this.#current;
    this.bar.build(actions, remember);
  }

  /**
   * Shows the form for the call's result, or the question again.
   * @param {boolean} answering
   */
  #showResultForm(answering) {
    this.summary.show([], this.#activeField);
    if (!this.#resultField) this.#buildResult(null);
    this.#answering = answering;
    this.#buildBar();
    if (answering) this.owner?.opened?.();
    // Removes the draft of the result, which other pages would show.
    else this.#sendDrafts(true, null);
    this.draw();
    if (answering) this.enter();
    else this.bar.enter();
    return true;
  }

  /** Shows what approving would do. */
  #drawPreview() {
    const { t } = this.#card.store;
    const { preview = [], preview_error: error, preview_note: note } = this.#item;
    const notes = [
      error && words("p", { class: "nba-err", role: "alert" }, error),
      note && words("p", "nba-help", note),
    ];
    const shown = [...preview.map(drawRich), ...present(notes)];
    const { facts, spec } = this.#item;
    const names = [
      ...facts.map(({ label }) => label),
      ...(spec?.root.fields ?? []).map(({ key }) => key),
    ];
    const named = t(names.some((name) => PYTHON.test(name)) ? "effects" : "preview");
    const about = { class: "nba-view", role: "group", "aria-label": named };
    const view = div({ ...about, tabindex: preview.length ? 0 : null }, ...shown);
    const heading = div({ class: "nba-named", "aria-hidden": "true" }, named);
    fill(this.#previewEl, ...(shown.length > 0 ? [heading, view] : []));
    this.#previewEl.hidden = shown.length === 0;
    attr(this.el, "data-doubt", Boolean(error));
  }

  /** Draws everything around the fields. */
  draw() {
    const item = this.#current;
    const { store } = this.#card;
    const changed = draftOf(this.#activeField, true) !== null;
    const root = this.#activeField?.node;
    const belongsToNone = item.interrupt === "";
    setText(this.#title, item.title);
    setText(this.#path, present([item.path, item.tool]).join(" ▸ "));
    setText(this.#note, item.note ?? "");
    for (const part of [this.#path, this.#note, this.#facts, this.#fieldsTitle, this.#fieldsEl])
      part.hidden = !part.firstChild;
    this.#resultEl.hidden = !this.#answering;
    this.#fieldsEl.inert = this.#answering;
    const { busy } = this;
    attr(this.el, "aria-busy", busy ? "true" : null);
    attr(this.el, "data-approval", item.approval);
    attr(this.el, "data-outside", !item.actions.length);
    attr(
      this.el,
      "data-danger",
      item.actions.some((action) => action.danger && action.primary),
    );
    if (store.gone || !this.#goneEl.hidden)
      for (const slot of [this.#fieldsEl, this.#resultEl]) freeze(slot, store.gone);
    showText(this.#goneEl, store.gone ? store.t("gone", { run: store.view?.head.run ?? "" }) : "");
    const counts = [...(this.#activeField ? fieldsWithin(this.#activeField) : [])].flatMap(
      (field) => field.rows?.() ?? [],
    );
    this.bar.update({
      busy,
      rows: counts.length === 1 ? Number(counts[0]) : null,
      gone: store.gone,
      changed,
      unseen: this.unseen,
      empty: isPick(root) && !root?.initial && !changed,
      enter: item.approval
        ? belongsToNone && null
        : !this.#activeField?.el.querySelector("textarea"),
      idle: (action) => this.owner?.idle?.(action) === true,
      expires: item.expires_at,
    });
    this.#updateLift();
    this.owner?.drawn?.();
  }

  #onEdit() {
    if (this.#lastUsed) this.summary.edited(this.#lastUsed);
    this.draw();
    const answering = this.#answering;
    this.#draftsDue.start(DRAFTS_AFTER, () =>
      this.#sendDrafts(
        answering,
        draftOf(answering ? this.#resultField : this.#questionField, false),
      ),
    );
  }

  /**
   * Sends what is typed so far, for a reload.
   * @param {boolean} instead
   * @param {Draft} drafts
   */
  #sendDrafts(instead, drafts) {
    const { interrupt } = this.#item;
    this.#draftsDue.stop();
    // Another view of this page shows them, too, as after the cell was moved.
    Object.assign((instead && this.#item.instead) || this.#item, { drafts });
    // The form that answers all questions of a table belongs to none.
    if (interrupt)
      this.#card.store.send({ type: "drafts", interrupt, drafts, ...(instead && { instead }) });
  }

  #reset() {
    this.#activeField?.reset();
    this.summary.show([], this.#activeField);
    this.#onEdit();
    this.enter();
  }

  /**
   * Sends the answer, or shows what is unfinished.
   * @param {Action} action
   * @param {{reason: string|null, remember: string|null}} extras
   * @param {boolean} [forAll]
   */
  #submit(action, { reason, remember }, forAll = false) {
    if (action.name === "answer" && !action.primary) {
      this.#showResultForm(!this.#answering);
      return;
    }
    const sent = this.#fieldSentBy(action);
    const unfinished = sent ? unfinishedFields(sent) : [];
    if (unfinished.length > 0) {
      this.owner?.refused?.([], forAll);
      this.summary.show(unfinished, this.#activeField);
      this.draw();
      return;
    }
    /** @type {Answer} */
    const answer = {
      type: "answer",
      interrupt: this.#item.interrupt,
      submission: randomId(),
      action: action.name,
      drafts: draftOf(sent, true),
      reason,
      remember,
    };
    if (this.owner?.take?.(answer)) return;
    this.#draftsDue.stop();
    if (this.#card.store.send(answer))
      this.#advance({ type: "sent", id: answer.submission, forAll });
    this.draw();
  }

  /**
   * The fields that a button sends.
   * @param {Action} action
   */
  #fieldSentBy({ name }) {
    if (name === "answer") return this.#resultField;
    return name === "submit" || (name === "approve" && this.#item.approval)
      ? this.#questionField
      : null;
  }

  /**
   * Moves the submission to its next state, and does what that needs.
   * @param {import("./submission.js").SubmissionEvent} event
   */
  #advance(event) {
    const { state: before } = this.#submission;
    this.#submission = nextSubmission(this.#submission, event);
    const { state } = this.#submission;
    if (state === before) return;
    const late = () => this.#advance({ type: "late" });
    switch (state) {
      case "sent":
        this.#receiptDue.start(DELAYED_AFTER, late);
        break;
      case "delayed":
        this.bar.hint(this.#card.store.t("sent"));
        this.#receiptDue.start(OVERDUE_AFTER - DELAYED_AFTER, late);
        break;
      case "overdue":
        // The receipt may be lost: a snapshot has the current state.
        this.#card.store.greet();
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
   * Handles the kernel's receipt for this form's answer.
   * @param {Receipt} receipt
   */
  #onReceipt({ submission, ok, errors }) {
    const sent = this.#submission;
    if (!("id" in sent) || sent.id !== submission) return;
    this.#advance({ type: "judged", ok });
    if (ok) this.#card.answered(this.#item);
    // The press stopped the timer for drafts: after a refusal they are sent again, for a reload.
    else this.#onEdit();
    this.draw();
    if (!ok) this.owner?.refused?.(errors, sent.forAll);
    this.fail(ok ? [] : errors);
  }
}

/**
 * The person's change; null for none.
 * @param {Field|null} root
 * @param {boolean} secrets whether to include secrets: only in a submission
 * @returns {Draft}
 */
function draftOf(root, secrets) {
  return root?.draft(secrets) ?? null;
}
