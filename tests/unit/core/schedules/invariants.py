"""Invariants of a run, whatever has happened to it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis.stateful import invariant

import nbagent as nb
from nbagent.core.base import events
from nbagent.core.base.interrupts import INPUT_CHANGED
from nbagent.core.base.messages import load
from nbagent.core.run.run import session_of
from nbagent.core.state.fold import apply
from nbagent.core.state.next_step import next_step
from nbagent.core.state.pause_record import restore
from nbagent.core.state.state import RunState, running_calls
from tests.unit.core.schedules.branch import Branch
from tests.unit.core.schedules.ledger import Ledger, number_of
from tests.unit.core.schedules.schedule import Schedule
from tests.unit.core.schedules.world import GATED, NESTS


def replayed(journal: list[events.StoredEvent]) -> RunState:
    """The state that the journal's JSON folds to."""
    state = RunState()
    for event in journal:
        state = apply(state, events.parse(events.dump(event)))
    return state


class Promises(Schedule):
    """The promises, checked after every step and at the end."""

    @invariant()
    def nothing_wrong_reached_a_model(self) -> None:
        """P9, P10 and P12 for each request to a model, at every depth; no model refuses a request."""
        assert self.wrong == [], self.wrong
        for branch in self.branches:
            assert "refuses the request" not in "".join(map(events.dump, branch.journal))

    @invariant()
    def p1_nothing_refused_or_unanswered_ran_and_p5_what_was_approved_is_what_ran(self) -> None:
        """Judged by the answers stored when the call ran; at every depth, with any middleware."""
        for branch in self.branches:
            acts, stored = self.world.acts.get(branch.number, []), branch.journal
            for act in acts[branch.acts_seen :]:
                assert act.kind == self.kinds[act.n]
                assert Ledger(stored[: act.position]).lets(act), act
            branch.acts_seen = len(acts)

    @invariant()
    def p3_each_side_effect_happened_once(self) -> None:
        """Also with Retry, with steps in bodies that ask, and in forks."""
        for branch in self.branches:
            acts = [act.n for act in self.world.acts.get(branch.number, [])]
            again = {n for n in acts if acts.count(n) > 1}
            again -= set(branch.ledger.run_again())
            # a failure in one process does not wait for bodies that run in another
            assert again <= (branch.ledger.cut_off() if branch.shared else set())
            assert not branch.inherited & set(acts)

    @invariant()
    def c36_a_body_that_pauses_is_entered_once_and_once_more_for_each_restart(self) -> None:
        """However often middleware retries, and whichever process drives."""
        for branch in self.branches:
            ledger = branch.ledger
            # a failure in one process cuts off bodies that run in another
            again, lost = ledger.cut_off() if branch.shared else set(), ledger.run_again()
            for n, times in ledger.entered().items():
                if self.kinds[n] in GATED and n not in again:
                    assert times <= 1 + len(ledger.approved(n)) + lost[n]

    @invariant()
    def every_answer_in_a_journal_is_one_that_was_accepted(self) -> None:
        """Or an expiry, whose deadline had passed."""
        for branch in self.branches:
            asked = branch.ledger.asked
            for event in branch.journal:
                if event.type == "resolved" and event.by == "expiry":
                    assert event.at >= asked[event.id].expires_at
                    assert event.resolution.type != "restart"
                elif event.type == "resolved":
                    given = self.given[event.id]
                    assert event.resolution == given, (event, given)

    @invariant()
    def p9_results_and_questions_are_in_call_order(self) -> None:
        """Each result belongs to its call."""
        for branch in self.branches:
            state, ledger = branch.state, branch.ledger
            assert list(self.misplaced(ledger, branch.run.messages)) == []
            calls = list(state.calls)
            listed = [e for e in state.pending if e.call_id]
            own = [e for e in listed if e.kind == "later" and not e.scope]
            assert listed[len(listed) - len(own) :] == own  # their turns are over
            by_call = [(e.scope or (e.call_id,))[0] for e in listed if e not in own]
            assert by_call == sorted(by_call, key=calls.index)

    @invariant()
    def the_journal_only_grows_and_replays_to_the_same_state_everywhere(self) -> None:
        """Through JSON, and in every handle."""
        for branch in self.branches:
            journal, state = branch.run.journal, branch.state
            grown = len(journal) > len(branch.past)
            assert journal[: len(branch.past)] == branch.past
            self._a_budget_is_asked_about_once_it_is_used_up(branch, journal)
            self._what_is_always_allowed_is_asked_no_more(branch, journal)
            branch.past = journal
            again = replayed(journal) if grown else state
            assert again == state
            assert next_step(again) == next_step(state)
            for seat in branch.seats:
                assert seat.journal.state == state

    def _a_budget_is_asked_about_once_it_is_used_up(self, branch: Branch, journal: Any) -> None:
        for k in range(len(branch.past), len(journal)):
            event = journal[k]
            if event.type == "interrupted" and event.budget in ("tokens", "cost"):
                ledger = Ledger(journal[:k])
                allowed = self.budgets[bool(event.scope)][event.budget]
                spent = ledger.spent(event.budget, event.scope)
                assert spent >= allowed + ledger.granted(event.budget, event.scope)

    def _what_is_always_allowed_is_asked_no_more(self, branch: Branch, journal: Any) -> None:
        """Check "always allow in this run": at any depth, in any body, process or fork.

        Exception: a person was shown another input of the same call; the shown input is what runs.
        """
        for k in range(len(branch.past), len(journal)):
            event = journal[k]
            if event.type == "interrupted" and event.kind == "approval":
                before = Ledger(journal[:k])
                if event.tool_name in before.always():
                    approved = before.approved(number_of(event.input))
                    assert approved[-1:] not in ([], [event.input["n"]]), event
                    assert INPUT_CHANGED in (event.note or ""), event

    @invariant()
    def a_run_that_does_nothing_waits_for_somebody(self) -> None:
        """No possible step is left undone."""
        for branch in self.branches:
            if branch.run.status == "running":
                assert self.world.open_slow(branch.number), branch.state

    @invariant()
    def no_trouble_outlives_its_cause(self) -> None:
        """Once the store is back, no open run has an error of the outage."""
        for seat in self.all_seats:
            if seat.journal.state.outcome is None:
                assert session_of(seat.run).error is None

    @invariant()
    def c226_what_waits_behind_a_run_comes_of_it(self) -> None:
        """It is queued until the run before it ends, and no longer."""
        for _, seat, run in self.behind:
            before = seat.run.status
            if not session_of(
                run
            ).state.position:  # never stored: awaiting the run raises this error
                assert isinstance(session_of(run).error, nb.errors.StoreError)
            elif before in ("completed", "cancelled", "failed"):
                assert run.status in (before, "cancelled", "failed"), (before, run)
            else:
                assert run.status in ("queued", "failed", "cancelled"), (before, run)

    @invariant()
    def what_is_paused_is_the_same_after_its_messages_went_through_json(self) -> None:
        """The same questions, at every depth."""
        for branch in self.branches:
            state = branch.state
            if state.outcome is None and not running_calls(state) and state.questions:
                again = restore(load(json.loads(json.dumps(branch.run.messages))))
                assert again.pending == [e for e in state.pending if e != state.limit_question]
                if state.calls or state.limit_question is None:  # a history has no limits
                    assert next_step(again) == next_step(replace(state, limit_question=None))

    @invariant()
    def c72_what_a_tool_streamed_is_its_result(self) -> None:
        """The chunks of different calls are never mixed."""
        for branch in self.branches:
            called = branch.ledger.called()
            for event in branch.journal:
                if event.type == "tool_finished" and not event.error:
                    made = called[event.scope, event.call_id]
                    known = made.name in NESTS or made.input["n"] in branch.inherited
                    if made.name.startswith("stream") and not known:
                        assert branch.chunks[event.scope, event.call_id] == event.output

    @invariant()
    def p7_headless_never_hangs(self) -> None:
        """Awaiting a paused run raises, unless only outside systems are asked."""
        for branch in self.branches:
            asked = {i.expects for i in branch.run.interrupts}
            if branch.run.status == "interrupted" and asked == {"external"}:
                assert not session_of(branch.run).is_over()
            elif branch.run.status == "interrupted":
                with pytest.raises(nb.HumanInputRequired) as caught:
                    self.loop.run_until_complete(asyncio.wait_for(branch.run, 30))
                assert list(caught.value.interrupts) == branch.run.interrupts

    def teardown(self) -> None:
        """Finish every run, then check the invariants again."""
        try:
            if self.branches:
                self.finish()
                for branch in self.branches:
                    self._ended_well(branch)
                self.nothing_wrong_reached_a_model()
                self.p1_nothing_refused_or_unanswered_ran_and_p5_what_was_approved_is_what_ran()
                self.p3_each_side_effect_happened_once()
                self.every_answer_in_a_journal_is_one_that_was_accepted()
                self.p9_results_and_questions_are_in_call_order()
                self.the_journal_only_grows_and_replays_to_the_same_state_everywhere()
        finally:
            self.closed()

    def _ended_well(self, branch: Branch) -> None:
        run = branch.run
        assert run.status == "completed" or (self.cancels and run.status == "cancelled"), (
            self._where_it_stands(branch)
        )
        if run.status == "completed":
            said = [m["content"][0]["text"] for m in run.messages if m["role"] == "user"]
            assert said == ["go", *branch.ledger.said()]

    def _where_it_stands(self, branch: Branch) -> str:
        """A text that shows why a run has not ended."""
        handles = [
            f"{seat.run.status} at {seat.position}, next {next_step(seat.journal.state)!r}, waits to be written "
            f"{len(seat.journal._line)}, drives {session_of(seat.run).is_active}, error {session_of(seat.run).error!r}"
            for seat in branch.seats
        ]
        tail = [f"{e.type} {e.scope} {getattr(e, 'call_id', '')}" for e in branch.journal[-12:]]
        return "\n".join(["", *handles, f"{branch.state.calls}", *tail])
