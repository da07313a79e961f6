"""Facts about a run, computed from its events alone: the oracle of the state machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import nbagent as nb
from nbagent.core.base import events
from nbagent.core.run.generate import NEW_MESSAGE
from nbagent.core.state.fold import later_text
from tests.unit.core.schedules.turns import answer_count
from tests.unit.core.schedules.world import EDIT, FREE, GATED, NEEDED, REVIEWED, SWALLOWED, Act

Scope = tuple[str, ...]


def number_of(input_: Any) -> int:
    """The number of the call with this input."""
    return int(input_["n"]) % EDIT


class Ledger:
    """Questions, answers, results and expenses of a run."""

    def __init__(self, journal: Sequence[events.StoredEvent]) -> None:
        self.journal = journal
        self.asked = {e.id: e for e in journal if e.type == "interrupted"}
        self.resolved = [e for e in journal if e.type == "resolved"]

    # --- answers

    def answers(self, n: int) -> list[tuple[Any, Any]]:
        """The answered questions of a call with their answers, in the order of the answers."""
        found = [(self.asked[e.id], e.resolution) for e in self.resolved]
        return [(i, r) for i, r in found if "n" in i.input and number_of(i.input) == n]

    def approved(self, n: int) -> list[int]:
        """The inputs that were approved, round by round."""
        return [
            i.input["n"] if r.input is None else r.input["n"]
            for i, r in self.answers(n)
            if isinstance(r, nb.Restart) and i.kind != "lost"
        ]

    def run_again(self) -> Counter[int]:
        """The number of restarts of each call whose outcome was unknown."""
        found = [(self.asked[e.id], e.resolution) for e in self.resolved]
        return Counter(
            number_of(i.input)
            for i, r in found
            if i.kind == "lost" and isinstance(r, nb.Restart) and "n" in i.input
        )

    def always(self) -> set[str]:
        """The tools that are always allowed in this run, at any depth."""
        scopes = [
            (self.asked[e.id], getattr(e.resolution, "remember", None)) for e in self.resolved
        ]
        return {i.tool_name for i, scope in scopes if scope == "tool_in_run"}

    def replies(self, n: int) -> dict[int, Any]:
        """The answers to a body's ``ask`` questions, by the question's place."""
        return {i.ask: r for i, r in self.answers(n) if i.kind == "ask"}

    def lets(self, act: Act) -> bool:
        """Whether the answers so far permit this act."""
        approved = self.approved(act.n)
        if act.kind in GATED:
            return len(approved) == (2 if act.kind == "twice" else 1) and approved[-1] == act.input
        if act.kind in (*REVIEWED, "own"):
            known = (act.depth, act.kind) in act.seat.remembered or act.kind in self.always()
            return approved[-1] == act.input if approved else known
        if act.kind in NEEDED:
            replies = self.replies(act.n).values()
            return sum(isinstance(r, nb.Respond) for r in replies) >= NEEDED[act.kind]
        return act.kind in (*FREE, "calls") and act.input == act.n

    # --- results

    def fits(self, kind: str, n: int, told: Any) -> bool:
        """Whether a result follows from the call and its answers."""
        told = str(told)
        answers = [(i, r) for i, r in self.answers(n) if i.kind not in ("ask", "later")]
        if kind == "own" and not any(i.kind == "lost" for i, _ in answers):
            return self._fits_own(n, told)
        if answers and answers[-1][0].kind == "lost" and isinstance(answers[-1][1], nb.Reject):
            return "stopped during the call" in told
        again = ("lost", nb.Restart)  # a restart of a lost call keeps the earlier answers
        settled = [r for i, r in answers if (i.kind, type(r)) != again]
        if kind == "calls" and not settled:
            return self._fits_calls(n, told)
        if kind in REVIEWED and (not settled or isinstance(settled[-1], nb.Restart)):
            did = told.rpartition("did ")[2]  # the input drifts; ``lets`` checks that
            return did.isdigit() and int(did) % EDIT == n
        if settled:
            return self._fits_answer(n, settled[-1], told)
        if kind in NEEDED:
            return self._fits_replies(n, told)
        outcomes = {
            "flaky": ("line is down", f"did {n}"),
            "slow": ("slowly", "gone"),
            "later": (f"did {n}", "so a later result could not reach a model"),
            "denied": ("denies this call",),
            "guarded": ("denies this call",),
        }
        if kind in GATED or kind == "ask":
            return False
        return any(outcome in told for outcome in outcomes.get(kind, (f"did {n}",)))

    def _fits_answer(self, n: int, answer: Any, told: str) -> bool:
        match answer:
            case nb.Respond(error=str() as error):
                return error in told
            case nb.Respond(output=output):
                return told.endswith(output)
            case nb.Reject(reason="Nobody answered in time."):  # an expiry
                return "Nobody answered in time, so this call" in told
            case nb.Reject():
                return "rejected this call" in told
            case _:
                return told.endswith(f"did {self.approved(n)[-1]}")

    def _fits_own(self, n: int, told: str) -> bool:
        """Whether the result of a foreign loop's call fits the answer to its approval."""
        answers = [r for _, r in self.answers(n)]
        if answers and isinstance(answers[-1], nb.Reject):
            return "rejected this call" in told or "was stopped while it was running" in told
        if answers and isinstance(answers[-1], nb.Respond):
            return "instead of approving it" in told
        return told.endswith(f"did {self.approved(n)[-1] if answers else n}")

    def _fits_replies(self, n: int, told: str) -> bool:
        replies = self.replies(n)
        if any(isinstance(r, nb.Reject) for r in replies.values()):
            return "rejected this" in told or "was stopped while it was running" in told
        return told == " | ".join(str(replies[k].output) for k in sorted(replies))

    def _fits_calls(self, n: int, told: str) -> bool:
        """Whether the results fit the calls that the body made, in this order."""
        (prompt,) = {
            c.input["prompt"]
            for c in self.called().values()
            if c.name == "calls" and c.input["n"] == n
        }
        made = [each for turn in json.loads(prompt) for each in turn]
        if "was stopped while it was running" in told:  # by a new message
            return any(getattr(e.resolution, "reason", "") == NEW_MESSAGE for e in self.resolved)
        results = json.loads(told)
        return len(made) == len(results) and all(map(self._fits_called, made, results))

    def _fits_called(self, made: Any, told: str) -> bool:
        kind, what = made
        if kind == "inner":
            return told.startswith(
                ("done at ", "failed: ", "did ", "answer to ")
            )  # of a final tool
        if told == SWALLOWED:
            return True
        return self.fits(kind, what[0] if kind == "calls" else what, told)

    def called(self) -> dict[tuple[Scope, str], Any]:
        """Every call, by its scope and id."""
        by_models = {
            (e.scope, c.id): c for e in self.journal if e.type == "model_responded" for c in e.calls
        }
        by_bodies = {(e.scope, e.call_id): e for e in self.journal if e.type == "body_called"}
        return by_models | by_bodies

    def said(self) -> list[str]:
        """The user messages to the outermost model: queued messages and later results, in order."""
        found = []
        for event in self.journal:
            asked = self.asked.get(event.id) if event.type == "resolved" else None
            if event.type == "message_queued":
                found.append(event.text)
            elif asked is not None and asked.kind == "later" and not asked.scope:
                found.append(later_text(asked, event.resolution))
        return found

    def unfinished(self) -> set[str]:
        """The tools whose bodies started and have no known end."""
        ends = ("tool_finished", "interrupted")
        over = {(e.scope, e.call_id) for e in self.journal if e.type in ends}
        called = self.called()
        began = {(e.scope, e.call_id) for e in self.journal if e.type == "tool_started"}
        return {called[where].name for where in began - over}

    def entered(self) -> dict[int, int]:
        """The number of starts of each call's body."""
        called = self.called()
        began = [called[e.scope, e.call_id] for e in self.journal if e.type == "tool_started"]
        return Counter(number_of(call.input) for call in began if "n" in call.input)

    def cut_off(self) -> set[int]:
        """The numbers of calls whose bodies were running when the run failed."""
        open_: dict[tuple[Scope, str], int] = {}
        cut: set[int] = set()
        for event in self.journal:
            if event.type == "tool_started":
                made = self.called()[event.scope, event.call_id]
                if "n" in made.input:
                    open_[event.scope, event.call_id] = number_of(made.input)
            elif event.type in ("tool_finished", "interrupted"):
                open_.pop((event.scope, event.call_id), None)
            elif event.type == "run_failed":
                cut |= set(open_.values())
        return cut

    def finished(self) -> set[int]:
        """The numbers of calls that are done, or have done the step in which they act."""
        called = self.called()
        ends = [e for e in self.journal if e.type in ("tool_finished", "step_finished")]
        steps = [e for e in ends if e.type == "step_finished"]
        made = [
            called[e.scope, e.call_id] for e in ends if e.type == "tool_finished" or not e.error
        ]
        # a foreign loop acts in a step of its own, after its approval has ended
        own = {int(e.name.split()[1]) for e in steps if e.name.startswith("own ")}
        others = [c for c in made if c.name != "own" and "n" in c.input]
        return own | {number_of(c.input) for c in others}

    # --- what it cost

    def scope_of(self, prompt: str) -> Scope:
        """The scope of the run with this prompt."""
        for event in self.journal:
            if event.type == "run_started" and event.messages[-1]["content"][0]["text"] == prompt:
                return event.scope
        raise LookupError(prompt)

    def runs_around(self, scope: Scope) -> list[Scope]:
        """The scopes of a run and the runs around it; a body's calls are not runs."""
        called = self.called()
        inside = [scope[:depth] for depth in range(1, len(scope) + 1)]
        return [(), *(at for at in inside if called[at[:-1], at[-1]].name == "inner")]

    def spent(self, name: str, scope: Scope) -> float:
        """The tokens or dollars of a run, inner runs included."""
        made = [e for e in self.journal if e.type == "model_responded"]
        within = [e for e in made if e.scope[: len(scope)] == scope]
        if name == "cost":
            return sum(e.cost or 0.0 for e in within)
        return sum(e.input_tokens + e.output_tokens for e in within)

    def granted(self, name: str, scope: Scope) -> float:
        """The amount that a person added to a run's own budget."""
        found = [(self.asked[e.id], e.resolution) for e in self.resolved]
        return sum(
            r.output
            for i, r in found
            if (i.kind, i.budget, i.scope) == ("budget", name, scope) and isinstance(r, nb.Respond)
        )


def turns_of(history: Any) -> int:
    """Model responses since the last message of a person."""
    last = max(k for k, m in enumerate(history) if m["role"] == "user")
    return answer_count(history[last:])


def results_in(history: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Each message that asks for calls, with the results that follow it."""
    for k, item in enumerate(history):
        calls = [p for p in item["content"] if p.get("type") == "tool_call"]
        if calls and k + 1 < len(history):
            yield calls, list(history[k + 1]["content"])
