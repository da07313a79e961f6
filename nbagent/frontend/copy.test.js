// @ts-check
import { expect, test } from "vitest";
import { textOf } from "./copy.js";

/** @param {string} html */
function made(html) {
  const el = document.createElement("div");
  el.innerHTML = html;
  return /** @type {HTMLElement} */ (el.firstElementChild);
}

test("a table is copied with tabs, its cells on one line each", () => {
  const table = made(
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1\n2</td><td>x\ty</td></tr></tbody></table>",
  );
  expect(textOf(table)).toBe("a\tb\n1 2\tx y");
});

test("arguments are copied a line each, as they are now", () => {
  const input = made(
    '<div class="nba-input"><dl><dt>to</dt><dd><div><del>Rome</del> <ins>Oslo</ins></div></dd><dt>n</dt><dd>3</dd></dl></div>',
  );
  expect(textOf(input)).toBe("to: Oslo\nn: 3");
});

test("code is copied without the line break at its end", () => {
  expect(textOf(made("<pre><code>a = 1\nb = 2\n</code></pre>"))).toBe("a = 1\nb = 2");
});
