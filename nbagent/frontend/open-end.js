// @ts-check
// The open end of streamed text, of which only the change is sent (../notebook/view/open_end.py).

const ENDS = new Set("p li ul ol blockquote h4 h5 h6 pre table thead tbody tr td th".split(" "));
const NAMES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/**
 * The open part as one piece of HTML: the raw text is at the end of the text in the tail's last block.
 * @param {string} tail
 * @param {string} raw
 */
export function openEnd(tail, raw) {
  const html = tail || "<p></p>";
  const end = endOfText(html);
  const text = raw.replace(/[&<>]/g, (sign) => NAMES[/** @type {"&"} */ (sign)]);
  return html.slice(0, end) + text + html.slice(end);
}

/**
 * The end of the last block's text, before the tags that close it and the elements around it.
 * @param {string} text
 */
function endOfText(text) {
  let size = text.length;
  for (;;) {
    const before = text.slice(0, size).replace(/[ \n]+$/, "");
    const start = before.lastIndexOf("<");
    const tag = start >= 0 && text.startsWith("</", start) ? before.slice(start + 2, -1) : "";
    const isCode = tag === "code" && text.startsWith("</pre>", size);
    if (!(isCode || ENDS.has(tag)) || !before.endsWith(">")) return size;
    size = start;
  }
}
