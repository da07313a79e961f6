// @ts-check
// The form of streamed text's HTML on the wire (../notebook/render/shorthand.py): only the difference from the
// open part, with signs for tags.

/** The tags of the signs: U+0081 for the first, and so on. After U+0080 a sign is itself. */
export const TAGS = [
  ...["k", "nf", "nb", "s", "c", "m"].map((name) => `<span class="${name}">`),
  ..."</span> <p> </p> <strong> </strong> <em> </em> <code> </code>".split(" "),
  "<ul>\n<li>",
  "<ol>\n<li>",
  "</li>\n<li>",
  "</li>\n",
  "<table>\n<thead>\n<tr>\n",
  "</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n",
  "</td>\n</tr>\n<tr>\n",
  "</td>\n</tr>\n</tbody>\n</table>",
  "<th>",
  '<th align="right">',
  "</th>\n",
  "<td>",
  '<td align="right">',
  "</td>\n",
  '<pre class="code"><code>',
  "</code></pre>",
];
const ENDS = new Set("p li ul ol blockquote h4 h5 h6 pre table thead tbody tr td th".split(" "));
const NAMES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/**
 * The HTML of a text with signs.
 * @param {string} text
 */
export const long = (text) =>
  text.replace(/\u0080([\s\S])|[\u0081-\u009f]/g, (sign, quoted) =>
    quoted === undefined ? (TAGS[sign.charCodeAt(0) - 0x81] ?? "") : quoted,
  );

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
