// @ts-check
// Names that are offered while a message is typed: variables after @, tools after /.

import { announce, attr, fill, focused, h, prevent, setLabel, span, stepOf } from "../dom.js";
import { on, onInput } from "../lifetime.js";

/** The text before the caret that may be completed. */
const NAME_AT_CARET = /(?:^|[\s(])(@[\p{L}\p{N}_]*)$|^(\/[\w.:-]*)$/u;

/**
 * A list of names for what is typed at the caret of a text box.
 * @param {import("../items/item.js").CardContext} card
 * @param {HTMLTextAreaElement} box
 */
export function offerNames({ store, signal, id }, box) {
  const listId = id();
  const el = h("ul", { class: "nba-names", role: "listbox", id: listId, hidden: true });
  setLabel(el, store.t("message_hint"));
  // Not a combobox: a text box of several lines must not be one.
  attr(box, "aria-autocomplete", "list");
  attr(box, "aria-controls", listId);
  /** @type {import("../wire.js").Name[]} */
  let names = [];
  let selected = 0;
  let requested = "";

  const nameAtCaret = () => {
    const match = NAME_AT_CARET.exec(box.value.slice(0, box.selectionStart));
    return box.selectionStart === box.selectionEnd ? (match?.[1] ?? match?.[2] ?? "") : "";
  };
  const close = () => {
    names = [];
    draw();
  };
  const draw = () => {
    el.hidden = !names.length;
    const rows = names.map(({ name, about }, index) =>
      h(
        "li",
        { role: "option", id: `${listId}-${index}`, "aria-selected": String(index === selected) },
        span("nba-mono", name),
        span("nba-help", about),
      ),
    );
    fill(el, ...rows);
    attr(box, "aria-activedescendant", names.length ? `${listId}-${selected}` : null);
    rows[selected]?.scrollIntoView?.({ block: "nearest" });
  };
  const choose = () => {
    const name = names[selected]?.name ?? "";
    const caret = box.selectionStart;
    const from = caret - nameAtCaret().length + 1;
    box.setRangeText(`${name} `, from, caret, "end");
    close();
    announce(box, "input");
  };
  const requestNames = () => {
    requested = nameAtCaret();
    if (requested) store.send({ type: "complete", text: requested });
    else if (names.length) close();
  };
  onInput(signal, box, requestNames);
  on(signal, box, "blur", close);
  on(signal, el, "mousedown", (event) => {
    prevent(event); // the box keeps the focus
    const row = /** @type {HTMLElement} */ (event.target).closest("li");
    if (!row) return;
    selected = [...el.children].indexOf(row);
    choose();
  });
  store.listen((event) => {
    if (event.type !== "names") return;
    const { text, names: offered } = event;
    if (!text || text !== requested || requested !== nameAtCaret()) return;
    selected = 0;
    // A complete name needs no completing.
    const isComplete = offered.length === 1 && offered[0]?.name === requested.slice(1);
    names = isComplete || focused() !== box ? [] : offered;
    draw();
  }, signal);
  draw();

  return {
    el,
    close,
    /**
     * Handles a key that is for the list; returns whether the key was for the list.
     * @param {KeyboardEvent} event
     */
    key(event) {
      if (!names.length) return false;
      const step = stepOf(event);
      if (step) {
        selected = (selected + step + names.length) % names.length;
        draw();
      } else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") choose();
      else if (event.key === "Escape") close();
      else return false;
      prevent(event);
      return true;
    },
  };
}
