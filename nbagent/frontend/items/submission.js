// @ts-check
// The state of one form's answer. Pure: the form acts on the new state.

/**
 * `open`: an answer can be given. `sent`: the form waits for its receipt. `delayed`: it has waited so long that
 * the person sees a hint. `overdue`: so long that it requests a snapshot. `accepted`: the form stays as it is
 * until its record comes. `forAll`: it is an answer for all questions of a table, not only for this form.
 * @typedef {{state: "sent"|"delayed"|"overdue", id: string, forAll: boolean}} Sent
 * @typedef {{state: "open"}|Sent|{state: "accepted"}} Submission
 */
/**
 * `late`: the time of a state is over. `shown`: the kernel shows the question, still unanswered.
 * @typedef {{type: "sent", id: string, forAll: boolean}|{type: "late"}|{type: "shown"}|{type: "judged", ok: boolean}} SubmissionEvent
 */

/** @type {Submission} */
export const OPEN = { state: "open" };

/**
 * The submission after something happened.
 * @param {Submission} now
 * @param {SubmissionEvent} event
 * @returns {Submission}
 */
export function nextSubmission(now, event) {
  switch (event.type) {
    case "sent":
      return { state: "sent", id: event.id, forAll: event.forAll };
    case "late":
      if (now.state === "sent") return { ...now, state: "delayed" };
      return now.state === "delayed" ? { ...now, state: "overdue" } : now;
    case "shown":
      // The receipt or the answer was lost: the question can be answered again.
      return now.state === "overdue" ? OPEN : now;
    case "judged":
      return event.ok ? { state: "accepted" } : OPEN;
  }
}
