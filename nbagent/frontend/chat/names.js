// @ts-check
// Names that are offered while a message is written: variables behind @, tools behind /.

import { announce, attr, fill, focused, h, prevent, setLabel, span, stepOf } from "../dom.js";
import { on, onInput } from "../lifetime.js";

/** The text before the caret that may be completed. */
const BEGUN = /(?:^|[\s(])(@[\p{L}\p{N}_]*)$|^(\/[\w.:-]*)$/u;

/**
 * A list of names for what is typed at the caret of a text box.
 * @param {import("../items/item.js").CardContext} card
 * @param {HTMLTextAreaElement} box
 */
export function offerNames({ store, signal, id }, box) {
  const listId = id();
  const el = h("ul", { class: "nba-names", role: "listbox", id: listId, hidden: true });
  setLabel(el, store.t("message_hint"));
  // No combobox, which a text box of several lines may not be.
  attr(box, "aria-autocomplete", "list");
  attr(box, "aria-controls", listId);
  /** @type {import("../wire.js").Name[]} */
  let names = [];
  let at = 0;
  let asked = "";

  const begun = () => {
    const match = BEGUN.exec(box.value.slice(0, box.selectionStart));
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
        { role: "option", id: `${listId}-${index}`, "aria-selected": String(index === at) },
        span("nba-mono", name),
        span("nba-help", about),
      ),
    );
    fill(el, ...rows);
    attr(box, "aria-activedescendant", names.length ? `${listId}-${at}` : null);
    rows[at]?.scrollIntoView?.({ block: "nearest" });
  };
  const choose = () => {
    const name = names[at]?.name ?? "";
    const caret = box.selectionStart;
    const from = caret - begun().length + 1;
    box.setRangeText(`${name} `, from, caret, "end");
    close();
    announce(box, "input");
  };
  const look = () => {
    asked = begun();
    if (asked) store.send({ type: "complete", text: asked });
    else if (names.length) close();
  };
  onInput(signal, box, look);
  on(signal, box, "blur", close);
  on(signal, el, "mousedown", (event) => {
    prevent(event); // the box keeps the focus
    const row = /** @type {HTMLElement} */ (event.target).closest("li");
    if (!row) return;
    at = [...el.children].indexOf(row);
    choose();
  });
  store.listen((event) => {
    if (event.type !== "names") return;
    const { text, names: known } = event.names;
    if (text !== asked || asked !== begun()) return;
    at = 0;
    // A complete name needs no completing.
    const whole = known.length === 1 && known[0]?.name === asked.slice(1);
    names = whole || focused() !== box ? [] : known;
    draw();
  }, signal);
  draw();

  return {
    el,
    close,
    /**
     * Takes a key that is for the list.
     * @param {KeyboardEvent} event
     */
    key(event) {
      if (!names.length) return false;
      const step = stepOf(event);
      if (step) {
        at = (at + step + names.length) % names.length;
        draw();
      } else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") choose();
      else if (event.key === "Escape") close();
      else return false;
      prevent(event);
      return true;
    },
  };
}
