// @ts-check
import { expect, test } from "vitest";
import { kindOf, textOf } from "./copy.js";
import { factList, makeFact } from "./fields/facts.js";

/** @param {string} html */
function element(html) {
  const el = document.createElement("div");
  el.innerHTML = html;
  return /** @type {HTMLElement} */ (el.firstElementChild);
}

test("a table is copied with tabs, its cells on one line each", () => {
  const table = element(
    "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1\n2</td><td>x\ty</td></tr></tbody></table>",
  );
  expect(textOf(table)).toBe("a\tb\n1 2\tx y");
});

test("arguments are copied a line each, as they are now", () => {
  const input = element(
    '<div class="nba-input"><dl><dt>to</dt><dd><div><del>Rome</del> <ins>Oslo</ins></div></dd><dt>n</dt><dd>3</dd></dl></div>',
  );
  expect(textOf(input)).toBe("to: Oslo\nn: 3");
});

test("Python is copied as a cell, all of it where only its change is shown", () => {
  const [lines, gone] = ["a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 7", "x"];
  const input = element('<div class="nba-input"></div>');
  input.append(/** @type {HTMLElement} */ (factList([makeFact("code", lines, true, gone)])));
  expect([kindOf(input), textOf(input)]).toEqual(["cell", lines]);
  const two = factList([makeFact("code", lines, true, gone), makeFact("n", "1")]);
  input.replaceChildren(/** @type {HTMLElement} */ (two));
  expect([kindOf(input), textOf(input)]).toEqual(["input", `code: ${lines}\nn: 1`]);
});

test("code is copied without the line break at its end", () => {
  expect(textOf(element("<pre><code>a = 1\nb = 2\n</code></pre>"))).toBe("a = 1\nb = 2");
});
