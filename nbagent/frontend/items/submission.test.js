import { expect, test } from "vitest";
import { nextSubmission, OPEN } from "./submission.js";

const sent = { type: "sent", id: "s1", forAll: false };
const late = { type: "late" };
const shown = { type: "shown" };
const judged = (ok) => ({ type: "judged", ok });

test.each([
  ["nothing sent, the question shown again", [shown], "open"],
  ["nothing sent, nothing late", [late], "open"],
  ["a press", [sent], "sent"],
  ["a question that is shown while its answer is on its way", [sent, shown], "sent"],
  ["no receipt for a while", [sent, late], "delayed"],
  ["a question shown meanwhile", [sent, late, shown], "delayed"],
  ["no receipt for long", [sent, late, late], "overdue"],
  ["as late as it gets", [sent, late, late, late], "overdue"],
  ["overdue, and the question still waits", [sent, late, late, shown], "open"],
  ["refused", [sent, judged(false)], "open"],
  ["refused late", [sent, late, late, judged(false)], "open"],
  ["taken", [sent, judged(true)], "accepted"],
  ["taken late", [sent, late, late, judged(true)], "accepted"],
  [
    "taken, the question still shown until its record comes",
    [sent, judged(true), shown],
    "accepted",
  ],
  ["refused, and sent again", [sent, judged(false), sent], "sent"],
])("a submission: %s", (_, events, state) => {
  expect(events.reduce(nextSubmission, OPEN).state).toBe(state);
});

test("a submission keeps its id and for whom it is until it is judged", () => {
  const overdue = [{ ...sent, forAll: true }, late, late].reduce(nextSubmission, OPEN);
  expect(overdue).toEqual({ state: "overdue", id: "s1", forAll: true });
});
