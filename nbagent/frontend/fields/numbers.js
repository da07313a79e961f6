// @ts-check
// Typed numbers as the kernel reads them: ../../forms/answer/controls.py.

/** The kinds of nodes that are numbers. */
export const NUMBERS = new Set(["int", "num", "decimal"]);
const INT = /^[+-]?\d+(\.0+)?$/;
const NUM = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

/**
 * The key of the message about an invalid number; empty for a valid one, and for a kind that is not a number.
 * @param {string} kind
 * @param {string} text without blanks around it
 */
export function numberError(kind, text) {
  if (!NUMBERS.has(kind) || (kind === "int" ? INT : NUM).test(text)) return "";
  return kind === "int" ? "not_int" : text.includes(",") ? "not_num_comma" : "not_num";
}
