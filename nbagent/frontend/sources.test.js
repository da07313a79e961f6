import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { TEXTS } from "./test-support/fake-host.js";

const here = import.meta.dirname;
const sources = ["", "chat", "fields", "items"].flatMap((folder) =>
  readdirSync(join(here, folder))
    .filter((name) => name.endsWith(".js") && !/\.(test|config)\.js$/.test(name))
    .map((name) => [join(folder, name), readFileSync(join(here, folder, name), "utf8")]),
);

test("every sentence the page asks for is one Python sends", () => {
  const asked = sources.flatMap(([name, source]) => [
    ...[...source.matchAll(/\b(?:t|say)\(\s*"(\w+)"/g)].map((found) => [found[1], name]),
    ...[...source.matchAll(/\btn\(\s*"(\w+)"/g)].flatMap((found) => [
      [found[1], name],
      [`${found[1]}_one`, name],
    ]),
  ]);
  expect(asked.length).toBeGreaterThan(40);
  expect(asked.filter(([key]) => !(key in TEXTS))).toEqual([]);
});

/** The sources that contain this. */
const containing = (/** @type {RegExp} */ what) =>
  sources.filter(([, source]) => what.test(source)).map(([name]) => name);

test("markup comes in at one place only", () => {
  expect(containing(/innerHTML|outerHTML|insertAdjacentHTML/)).toEqual(["dom.js"]);
});

test("listeners and timers are created at one place only, where each has a signal that ends it", () => {
  const creation =
    /addEventListener|setTimeout|setInterval|request\w+(Frame|Callback)|Observer\(|\.on\w+ =/;
  expect(containing(creation)).toEqual(["lifetime.js"]);
});

test("the page's code stays small, since each notebook with a card loads it", () => {
  expect(statSync(join(here, "../static/card.js")).size).toBeLessThanOrEqual(111_000);
});
