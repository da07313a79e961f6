// @ts-check
// The box of a chat: a message, its files, and the names that are offered while it is typed.

import {
  attr,
  disable,
  div,
  fill,
  h,
  isComposing,
  makeButton,
  makeInput,
  prevent,
  randomId,
  setClass,
  setLabel,
  showText,
  span,
  stepOf,
} from "../dom.js";
import { base64, fileSize, MAX_FILE, megabytes } from "../fields/file.js";
import { ENDED } from "../header-footer.js";
import { makeTimer, nextFrame, on, onChange, onClick, onInput } from "../lifetime.js";
import { offerNames } from "./names.js";

/** @import { Head, MessageItem, Name } from "../wire.js" */
/**
 * A file of the message. `id` identifies a file that the kernel has received. `kept` is the number of a file
 * in the edited message. `src` is there for a picture that was added on this page. `gone` marks a removed file.
 * @typedef {{name: string, size: number, id?: string, kept?: number, src?: string, gone?: boolean}} Chip
 */
/** @typedef {{submission: string, text: string, chips: Chip[], edited: MessageItem|null}} Sent */

/** Files of one message; the kernel has the same number. */
const MAX_FILES = 10;
/** Milliseconds after which the person sees that the kernel has not received the message yet. */
const LATE = 1000;
/** Milliseconds after the last key until the draft is sent. */
const DRAFT_AFTER = 400;

/**
 * The box, and the elements around it.
 * @param {import("../items/item.js").CardContext} card
 * @param {() => void} onSent called after a message was sent
 * @param {() => void} onLeave called when Escape was pressed
 */
export function drawComposer(card, onSent, onLeave) {
  const { store, signal } = card;
  const { t } = store;
  const box = h("textarea", { rows: 1, class: "nba-write", dir: "auto" });
  const send = makeButton("nba-button nba-go", t("message_send"));
  const attach = makeButton("nba-button nba-attach", "+");
  const fileInput = makeInput("file", { multiple: true, hidden: true, tabindex: -1 });
  const chipList = div({ class: "nba-chips", hidden: true });
  const editing = div({ class: "nba-editing nba-help", hidden: true });
  const cancel = makeButton("nba-link", t("cancel"));
  const errors = div({ class: "nba-err", role: "alert", hidden: true });
  const status = div({ class: "nba-help nba-status", role: "status", hidden: true });
  const hint = div("nba-help", t("message_hint"));
  const names = offerNames(card, box);
  const start = div({ class: "nba-start", hidden: true });
  const row = div("nba-box", attach, box, send);
  const below = div("nba-below", hint, status, errors);
  const el = div("nba-composer", start, editing, chipList, names.el, row, fileInput, below);
  fill(editing, t("message_editing"), " ", cancel);
  setLabel(box, t("message_box"));
  setLabel(attach, t("message_attach"));
  attach.title = t("message_attach");
  const lateTimer = makeTimer(signal);
  const draftTimer = makeTimer(signal);
  let chips = store.chips;
  /** @type {MessageItem|null} */
  let edited = null;
  /** @type {Sent|null} The message that the kernel has not accepted yet. */
  let sent = null;
  /** @type {Head|null} */
  let head = null;
  /** @type {number|null} The number of the earlier message that is in the box. */
  let recalled = null;
  /** @type {[text: string, chips: Chip[]][]} The unsent messages that an edit has replaced in the box, latest last. */
  const aside = [];

  const loadDraft = () => {
    box.value = store.written;
    chips = store.chips;
    grow();
    drawChips();
  };
  const setBoxText = (/** @type {string} */ text) => {
    box.value = text;
    saveDraft();
  };
  const isEmpty = () => !box.value.trim() && !chips.length;
  const setMessage = (
    text = "",
    /** @type {Chip[]} */ files = [],
    /** @type {MessageItem|null} */ instead = null,
  ) => {
    chips = files;
    edited = instead;
    recalled = null;
    setBoxText(text);
    drawChips();
  };
  const saveDraft = () => {
    const drafts = aside.at(-1)?.[0] ?? box.value;
    store.written = drafts;
    draftTimer.start(DRAFT_AFTER, () => {
      if (!store.gone) store.send({ type: "drafts", interrupt: "", drafts });
    });
    grow();
  };
  const grow = () => {
    if (CSS.supports("field-sizing", "content")) return;
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight + 2}px`;
  };
  const draw = () => {
    box.readOnly = store.gone;
    box.placeholder = placeholder();
    disable(send, store.gone || sent !== null || isEmpty());
    disable(attach, store.gone);
    editing.hidden = edited === null;
    for (const one of el.parentElement?.querySelectorAll(".nba-message") ?? [])
      setClass(one, "nba-edited", one.getAttribute("data-key") === edited?.key);
    chipList.hidden = !chips.length;
    // While a turn runs, the button beside the box is Stop; see `update`.
    send.hidden = !!head && !ENDED.has(head.status) && isEmpty();
    hint.hidden = !errors.hidden || !status.hidden || store.gone;
  };
  const isUnused = () => !store.view?.items.length;
  /** Offers first messages and the tools in an empty chat. @param {Name[]} offered */
  const drawStart = (offered) => {
    const starters = div("nba-buttons");
    const tools = div("nba-tools nba-soft", t("message_start"));
    for (const { name, about } of offered) {
      const isTool = /^\/\S+$/.test(name);
      const button = makeButton(isTool ? "nba-link nba-mono" : "nba-button", name);
      button.title = about;
      onClick(signal, button, () => {
        if (!isTool && !isEmpty()) aside.push([box.value, chips]);
        if (isTool) setBoxText(`${name} ${box.value}`);
        else setMessage(name);
        box.focus();
        if (isTool) draw();
        else submit();
      });
      (isTool ? tools : starters).append(button);
    }
    fill(start, ...[starters, tools].filter((one) => one.querySelector("button")));
    start.hidden = !offered.length || !isUnused();
  };
  const placeholder = () => {
    if (store.gone) return t("message_no_kernel");
    if (!head || ENDED.has(head.status)) return t("message_to_agent", { agent: head?.agent ?? "" });
    return t(head.status === "running" ? "message_to_run" : "message_to_question");
  };
  const showProblem = (/** @type {string} */ problem) => {
    showText(errors, problem);
    draw();
  };
  const drawChips = () => {
    chips = chips.filter(({ gone }) => !gone);
    store.chips = (aside.at(-1)?.[1] ?? chips).filter(({ id }) => id);
    fill(chipList, ...chips.map(drawChip));
    draw();
  };
  const drawChip = (/** @type {Chip} */ chip) => {
    const removeButton = makeButton("nba-link", "×");
    setLabel(removeButton, t("message_remove_file", { name: chip.name }));
    onClick(signal, removeButton, () => {
      discardFile(chip);
      drawChips();
      box.focus();
    });
    return span(
      "nba-chip",
      chip.src && h("img", { src: chip.src, alt: "" }),
      span({ dir: "auto" }, chip.name),
      span("nba-soft", chip.kept === undefined && fileSize({ t }, chip.size)),
      removeButton,
    );
  };

  /** Lets the kernel drop a file that it has. @param {Chip} chip */
  const discardFile = (chip) => {
    chip.gone = true;
    if (chip.id) store.send({ type: "attach", id: chip.id, file: null });
  };

  const addFiles = async (/** @type {Iterable<File>} */ files) => {
    if (store.gone) return;
    for (const file of files) {
      const bytes = chips.reduce((sum, chip) => sum + chip.size, file.size);
      if (chips.length >= MAX_FILES)
        return showProblem(t("message_too_many_files", { n: MAX_FILES }));
      if (bytes > MAX_FILE)
        return showProblem(t("message_files_too_large", { n: megabytes(MAX_FILE) }));
      /** @type {Chip} */
      const chip = { name: file.name, size: file.size };
      chips = [...chips, chip];
      try {
        const data = await base64(file, signal);
        if (chip.gone) continue;
        if (file.type.startsWith("image/")) chip.src = `data:${file.type};base64,${data}`;
        const id = randomId();
        const upload = { name: file.name, media_type: file.type, data };
        if (store.send({ type: "attach", id, file: upload })) chip.id = id;
        showProblem("");
      } catch {
        discardFile(chip);
        showProblem(t("file_unreadable"));
      }
      drawChips();
    }
  };

  const submit = () => {
    const isReading = chips.some((chip) => !chip.id && chip.kept === undefined);
    if (store.gone || sent || isReading || isEmpty()) return;
    sent = { submission: randomId(), text: box.value, chips, edited };
    const isSent = store.send({
      type: "say",
      submission: sent.submission,
      text: sent.text,
      files: chips.flatMap((chip) => chip.id ?? []),
      instead: edited?.key ?? null,
      keep: chips.flatMap((chip) => chip.kept ?? []),
    });
    if (!isSent) {
      sent = null;
      return;
    }
    names.close();
    setMessage();
    showProblem("");
    lateTimer.start(LATE, () => {
      showText(status, t("sent"));
      draw();
    });
    onSent();
  };
  const cancelEdit = () => {
    chips.forEach(discardFile);
    setMessage();
    takeBack();
  };
  /** Puts the message that an edit has replaced back into the box, unless the box has other text now. */
  const takeBack = () => {
    const last = isEmpty() && aside.pop();
    if (last) setMessage(...last);
  };
  /** Puts back a message that the kernel did not accept, unless the box has other text now. */
  const restore = () => {
    if (sent && isEmpty()) setMessage(sent.text, sent.chips, sent.edited);
    clearSent();
    drawChips();
  };
  const clearSent = () => {
    sent = null;
    lateTimer.stop();
    showText(status, "");
  };

  /**
   * Puts the next earlier message into the box, or the next later one; after the latest message, the box is empty.
   * @param {-1|1} by
   */
  const recall = (by) => {
    const items = store.view?.items ?? [];
    const earlier = items.flatMap((item) =>
      item.type === "message" && item.editable && item.text ? [item.text] : [],
    );
    if (box.value && (recalled === null || box.value !== earlier[recalled])) return false;
    const next = (recalled ?? earlier.length) + by;
    if (next < 0 || next > earlier.length || (recalled === null && by > 0)) return false;
    recalled = next === earlier.length ? null : next;
    setBoxText(earlier[next] ?? "");
    draw();
    return true;
  };

  on(signal, box, "keydown", (event) => {
    if (isComposing(event) || names.key(event)) return;
    const isPlain = !event.shiftKey && !event.altKey;
    if (event.key === "Enter" && isPlain) {
      prevent(event);
      submit();
    } else if (event.key === "Escape") {
      if (edited) cancelEdit();
      else onLeave();
    } else {
      const step = stepOf(event);
      if (isPlain && step && recall(step)) prevent(event);
    }
  });
  onInput(signal, box, () => {
    saveDraft();
    if (!errors.hidden) showText(errors, "");
    draw();
  });
  on(signal, box, "paste", (event) => {
    const files = event.clipboardData?.files ?? [];
    if (!files.length) return;
    prevent(event);
    void addFiles([...files]);
  });
  on(signal, el, "dragover", (event) => {
    prevent(event);
    attr(el, "data-over", true);
  });
  on(signal, el, "dragleave", () => attr(el, "data-over", null));
  on(signal, el, "drop", (event) => {
    prevent(event);
    attr(el, "data-over", null);
    void addFiles([...(event.dataTransfer?.files ?? [])]);
  });
  onChange(signal, fileInput, () => {
    void addFiles([...(fileInput.files ?? [])]);
    fileInput.value = "";
    box.focus();
  });
  onClick(signal, attach, () => store.gone || fileInput.click());
  onClick(signal, send, submit);
  onClick(signal, cancel, () => {
    cancelEdit();
    box.focus();
  });
  store.listen((event) => {
    if (event.type === "gone") restore();
    if (event.type === "names" && !event.text) drawStart(event.names);
    if (event.type === "written") loadDraft();
    if (event.type !== "receipt" || event.submission !== sent?.submission) return;
    if (event.ok) {
      clearSent();
      takeBack();
    } else restore();
    showProblem(event.errors.map(({ message }) => message).join("\n"));
  }, signal);
  loadDraft();
  nextFrame(signal, grow);

  return {
    el,
    box,
    /** Puts Stop beside Send, which it replaces while the box is empty. @param {HTMLElement} stop */
    hold: (stop) => stop.parentNode === row || row.append(stop),
    /** @param {Head} next */
    update(next) {
      const changed = head?.status !== next.status || head.agent !== next.agent;
      if (!head && next.chat && isUnused()) store.send({ type: "complete", text: "" });
      head = next;
      start.hidden ||= !isUnused();
      if (changed) draw();
    },
    /** @param {MessageItem} item */
    edit(item) {
      if (edited) cancelEdit();
      if (!isEmpty()) aside.push([box.value, chips]);
      // Variables are left out: the text names them, and they are checked again.
      const files = item.files.flatMap((file, kept) => {
        const about = file.kind === "image" ? file.alt : file.data;
        return /^(\w+ )?@/.test(about) ? [] : [{ name: about, size: 0, kept }];
      });
      setMessage(item.text, files, item);
      box.focus();
    },
    /** Sends the message in the box. */
    submit,
  };
}
