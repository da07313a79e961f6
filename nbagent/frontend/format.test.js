import { expect, test } from "vitest";
import { countdown, groupDigits } from "./format.js";

test("numbers are written alike in every locale", () => {
  expect([0, 999, 1000, 1234567].map(groupDigits)).toEqual(["0", "999", "1,000", "1,234,567"]);
});

test("what is left is counted in hours only where there are some, and never below nothing", () => {
  expect([-5, 9, 65, 3661].map(countdown)).toEqual(["0:00", "0:09", "1:05", "1:01:01"]);
});
