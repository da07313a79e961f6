import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { TEXTS } from "./fake.js";

const here = import.meta.dirname;
const sources = ["", "fields", "items"].flatMap((folder) =>
  readdirSync(join(here, folder))
    .filter((name) => name.endsWith(".js") && !/test|fake|config/.test(name))
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

test("markup comes in at one place only", () => {
  const writers = sources.filter(([, source]) =>
    /innerHTML|outerHTML|insertAdjacentHTML/.test(source),
  );
  expect(writers.map(([name]) => name)).toEqual(["dom.js"]);
});
