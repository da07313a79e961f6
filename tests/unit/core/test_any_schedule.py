"""The promises on random schedules of the whole engine: whatever happens, in whatever order."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

import nbagent as nb
from nbagent.core import events
from nbagent.core.errors import UsageError
from nbagent.core.interrupts import token_digest
from nbagent.core.messages import load
from nbagent.core.state import RunState, apply, next_step, restore
from nbagent.core.steps import NEW_MESSAGE

from .ledger import Ledger
from .schedule import Branch, Schedule
from .world import Seat

ANSWERS = ["respond", "restart", "edit", "always", "reject"]
THOROUGH = int(os.environ.get("NBAGENT_THOROUGH", "0"))
"""How many examples to search at random; 0 for the same few in every run, as CI needs it."""


def replayed(journal: list[events.StoredEvent]) -> RunState:
    """The state that the journal's JSON stands for."""
    state = RunState()
    for event in journal:
        state = apply(state, events.parse(events.dump(event)))
    return state


class AnySchedule(Schedule):
    """Whatever order hypothesis thinks of."""

    def branch_where(self, data: st.DataObject, holds: Any) -> Branch:
        """One of the branches for which this holds."""
        found = [b for b in self.branches if holds(b)]
        return data.draw(st.sampled_from(found), label="branch")

    def seat(self, data: st.DataObject, branch: Branch) -> Seat:
        """One of a branch's handles."""
        return branch.seats[data.draw(st.integers(0, len(branch.seats) - 1), label="seat")]

    def question(self, data: st.DataObject) -> tuple[Branch, Seat, nb.PendingInterrupt]:
        """Something that can be answered, and from where."""
        branch = self.branch_where(data, lambda b: b.run.interrupts)
        seat = self.seat(data, branch)
        return branch, seat, data.draw(st.sampled_from(seat.run.interrupts), label="interrupt")

    def asks(self) -> bool:
        """Whether anything can be answered."""
        return any(b.run.interrupts for b in self.branches)

    # --- answers

    @precondition(asks)
    @rule(data=st.data(), answer=st.sampled_from(ANSWERS))
    def answer(self, data: st.DataObject, answer: str) -> None:
        """Settle a question in some way that fits it."""
        branch, seat, i = self.question(data)
        resolution = self.resolution(branch, i, answer)
        seat.run.resolve(i, resolution)
        self.took(branch, seat, i, resolution)
        if i.kind == "budget" and answer == "reject" and len(i.path) == 1:
            self._p10_a_refused_budget_fails_the_run(branch)

    def _p10_a_refused_budget_fails_the_run(self, branch: Branch) -> None:
        if branch.run.status == "running":
            return  # a slow call may still end
        with pytest.raises(nb.RunError) as caught:
            self.loop.run_until_complete(asyncio.wait_for(branch.run._wait(), 30))
        assert branch.run.status == "failed"
        assert caught.value.messages == branch.run.messages

    @precondition(asks)
    @rule(
        data=st.data(),
        moves=st.lists(st.sampled_from([*ANSWERS, "expire", "cancel"]), min_size=2, max_size=4),
    )
    def p2_of_several_who_act_at_once_one_wins(self, data: st.DataObject, moves: Any) -> None:
        """From all handles, beside deadlines and cancels; the others are told."""
        branch = self.branch_where(data, lambda b: b.run.interrupts)
        i = data.draw(st.sampled_from(branch.run.interrupts))
        moves = [m for m in moves if self.cancels or m != "cancel"]
        stops: list[Any] = []
        start = threading.Barrier(len(moves) or 1)

        def act(k: int) -> Any:
            seat, move = branch.seats[k % len(branch.seats)], moves[k]
            resolution = None
            if move not in ("expire", "cancel"):
                resolution = self.resolution(branch, i, move)
            start.wait(30)
            try:
                if move == "cancel":
                    stops.append(seat.run.stop())
                elif move == "expire":
                    self.time_goes_on()
                    seat.run._expire_due()
                else:
                    seat.run.resolve(i, resolution)
                    return seat, resolution
            except nb.Conflict:
                pass
            return None

        with ThreadPoolExecutor(4) as pool:
            won = [w for w in pool.map(act, range(len(moves))) if w is not None]
        assert len(won) == 1 or (not won and (len(set(moves) & {"expire", "cancel"}) or not moves))
        for seat, resolution in won:
            self.took(branch, seat, i, resolution)
        self.quiet()
        self.loop.run_until_complete(
            asyncio.wait_for(asyncio.gather(*map(asyncio.wrap_future, stops)), 30)
            if stops
            else asyncio.sleep(0)
        )
        self.quiet()
        by = [e.by for e in branch.journal if e.type == "resolved" and e.id == i.id]
        assert by.count("code") == len(won)
        assert len(by) <= 1

    @precondition(asks)
    @rule(
        data=st.data(),
        wrong=st.sampled_from([None, 5, "approve", {}, True, nb.Restart, {"type": "restart"}]),
    )
    def p4_a_bad_answer_changes_nothing(self, data: st.DataObject, wrong: Any) -> None:
        """Refused, journal as it was, still pending."""
        branch, seat, i = self.question(data)
        before, remembers = branch.journal, nb.Restart(input={"n": 1}, remember="tool")
        for attempt in (
            lambda: seat.run.resolve(i, wrong),
            lambda: seat.run.resolve(i, remembers),
            lambda: seat.run.respond(i, {"not": "a text"}),
            lambda: seat.run.restart(i, new_input={"m": 1}),
        ):
            with pytest.raises(nb.InvalidAnswer):
                attempt()
        assert branch.journal == before

    @rule(data=st.data())
    def p2_what_is_settled_or_unknown_takes_no_answer(self, data: st.DataObject) -> None:
        """Whatever it says, and however long after; also once the run has ended."""
        branch = self.branch_where(data, lambda _: True)
        run, before = self.seat(data, branch).run, branch.journal
        open_ = {i.id for i in run.interrupts}
        asked = [e.id for e in before if e.type == "interrupted" and e.id not in open_]
        i = data.draw(st.sampled_from([*asked, "call_1", ""]))
        for again in (nb.Respond(output="x"), nb.Restart(), nb.Reject()):
            with pytest.raises(nb.Conflict if i in self.given else (nb.Conflict, nb.NotPending)):
                run.resolve(i, again)
        assert branch.journal == before

    @precondition(lambda self: self.world.tokens)
    @rule(data=st.data())
    def an_outside_system_answers(self, data: st.DataObject) -> None:
        """A token settles the question it was made for, once, and no other."""
        token = data.draw(st.sampled_from(list(self.world.tokens)))
        digest = token_digest(token)
        before = {b.number: b.journal for b in self.branches}
        waits = [
            (b, e) for b in self.branches for e in b.run.open_events if e.external == digest
        ]
        if not waits:
            with pytest.raises((nb.Conflict, nb.NotPending)):
                nb.answer_external(token, "paid")
            assert before == {b.number: b.journal for b in self.branches}
            return
        ((branch, event),) = waits
        nb.answer_external(token, "paid")
        self.given[event.id] = nb.Respond(output="paid")
        self.quiet()
        assert [b for b in self.branches if b.journal != before[b.number]] == [branch]

    # --- other things that happen

    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        """Deadlines are applied once, whoever notices, and their questions take no answer any more."""
        late = [(b, e) for b in self.branches for e in b.run.open_events if e.expires_at is not None]
        self.time_goes_on()
        seats = [seat for b in self.branches for seat in b.seats]
        for seat in data.draw(st.permutations(seats)):
            seat.run._expire_due()
        self.quiet()
        for branch, event in late:
            by = [e.by for e in branch.journal if e.type == "resolved" and e.id == event.id]
            assert by == ["expiry"] or (not by and self._could_not_expire(branch, event))

    def _could_not_expire(self, branch: Branch, event: Any) -> bool:
        """Whether a deadline fails the run: as soon as no call runs any more."""
        others = any(e.on_expire == "fail" for e in branch.state.pending)
        return others and (branch.run.status in ("failed", "running") or event.on_expire == "fail")

    @precondition(lambda self: any(self.world.open_slow(b.number) for b in self.branches))
    @rule(data=st.data(), fails=st.booleans())
    def a_slow_tool_ends(self, data: st.DataObject, fails: bool) -> None:
        """Well or badly."""
        branch = self.branch_where(data, lambda b: self.world.open_slow(b.number))
        n = data.draw(st.sampled_from(self.world.open_slow(branch.number)))
        future = self.world.slow[branch.number, n]
        if fails:
            future.set_exception(ValueError("gone"))
        else:
            future.set_result("slowly")
        self.quiet()

    @precondition(lambda self: any(len(b.seats) < 2 for b in self.branches))
    @rule(data=st.data())
    def another_handle_opens_the_run(self, data: st.DataObject) -> None:
        """On the same file, or the same memory."""
        branch = self.branch_where(data, lambda b: len(b.seats) < 2)
        self.opened(branch)
        self.quiet()

    def may_be_killed(self) -> bool:
        """Whether a process could die of which nobody needs to ask what its bodies did."""
        return any(self._is_killable(b) for b in self.branches)

    def _is_killable(self, branch: Branch) -> bool:
        return branch.state.outcome is None and not self.world.open_slow(branch.number)

    @precondition(may_be_killed)
    @rule(data=st.data())
    def p6_a_process_is_killed_and_another_goes_on(self, data: st.DataObject) -> None:
        """The same questions wait, and what was answered counts."""
        branch = self.branch_where(data, self._is_killable)
        before = [i.id for i in branch.run.interrupts]
        self.killed(branch, self.seat(data, branch))
        self.opened(branch)
        self.quiet()
        assert [i.id for i in branch.seats[-1].run.interrupts] == before

    @precondition(lambda self: len(self.branches) < 3)
    @rule(data=st.data(), here=st.booleans())
    def c99_the_run_is_forked(self, data: st.DataObject, here: bool) -> None:
        """At any question it ever asked, or where it stands; refused while calls run."""
        branch = self.branch_where(data, lambda _: True)
        asked = [e.id for e in branch.journal if e.type == "interrupted"]
        at = None if here or not asked else data.draw(st.sampled_from(asked))
        try:
            fork = self.seat(data, branch).run.fork(at=at)
        except UsageError:
            assert self.world.open_slow(branch.number)
            return
        made = Branch(len(self.branches), fork.id, forked=True)
        self.branches.append(made)
        self.seated(made, fork)
        made.inherited = Ledger(made.journal).finished()
        if branch.number in self.failed:
            self.failed.add(made.number)
        self.pushed(fork)
        self.quiet()

    @precondition(lambda self: any(b.run.status == "failed" for b in self.branches))
    @rule(data=st.data())
    def c102_a_failed_run_is_tried_again(self, data: st.DataObject) -> None:
        """From its last good state."""
        branch = self.branch_where(data, lambda b: b.run.status == "failed")
        self.seat(data, branch).run.retry()
        self.quiet()

    @rule(data=st.data())
    def c61_a_message_is_queued(self, data: st.DataObject) -> None:
        """It waits for the open turn's results; a run that has ended takes none."""
        branch = self.branch_where(data, lambda _: True)
        ended = branch.state.outcome is not None
        assert self.seat(data, branch).run.queue(f"and {len(branch.journal)}") is not ended
        self.quiet()

    @precondition(lambda self: self.cancels and self.asks())
    @rule(data=st.data())
    def c61_a_new_message_rejects_what_is_asked(self, data: st.DataObject) -> None:
        """And stops the run, unless something is at work."""
        branch = self.branch_where(data, lambda b: b.run.interrupts)
        asked, paused = branch.run.interrupts, branch.run.status == "interrupted"
        self.seat(data, branch).run.dismiss()
        if paused:
            self.given |= {i.id: nb.Reject(reason=NEW_MESSAGE) for i in asked}
        self.quiet()
        assert (branch.run.status == "cancelled") is paused

    @precondition(lambda self: self.cancels)
    @rule(data=st.data())
    def c128_the_run_is_cancelled(self, data: st.DataObject) -> None:
        """Ended for good, whoever did it."""
        branch = self.branch_where(data, lambda _: True)
        run, outcome = self.seat(data, branch).run, branch.state.outcome
        self.loop.run_until_complete(asyncio.wait_for(run.cancel(), 30))
        self.quiet()
        assert branch.state.outcome == outcome or outcome is None
        assert branch.run.status != "interrupted"
        assert branch.run.interrupts == []

    # --- what always holds

    @invariant()
    def nothing_wrong_reached_a_model(self) -> None:
        """P9, P10, P12 at the door of every model, at every depth; no model is asked for nothing."""
        assert self.wrong == []
        for branch in self.branches:
            assert "refuses the request" not in "".join(map(events.dump, branch.journal))

    @invariant()
    def p1_nothing_refused_or_unanswered_ran_and_p5_what_was_approved_is_what_ran(self) -> None:
        """By the answers that were stored when it ran; at every depth, with any middleware."""
        for branch in self.branches:
            acts, stored = self.world.acts.get(branch.number, []), branch.journal
            for act in acts[branch.acts_seen :]:
                assert act.kind == self.kinds[act.n]
                assert Ledger(stored[: act.position]).lets(act), act
            branch.acts_seen = len(acts)

    @invariant()
    def p3_each_side_effect_happened_once(self) -> None:
        """Also with Retry around, steps in bodies that ask, and what a fork took over."""
        for branch in self.branches:
            acts = [act.n for act in self.world.acts.get(branch.number, [])]
            assert len(set(acts)) == len(acts)
            assert not branch.inherited & set(acts)

    @invariant()
    def every_answer_in_a_journal_is_one_that_was_accepted(self) -> None:
        """Or the end of a question's time, which had come."""
        for branch in self.branches:
            asked = Ledger(branch.journal).asked
            for event in branch.journal:
                if event.type == "resolved" and event.by == "expiry":
                    assert event.at >= asked[event.id].expires_at
                    assert event.resolution.type != "restart"
                elif event.type == "resolved":
                    given = self.given[event.id]
                    assert event.resolution == given, (event, given)

    @invariant()
    def p9_results_and_questions_are_in_call_order(self) -> None:
        """Each result is its own call's."""
        for branch in self.branches:
            state, ledger = branch.state, Ledger(branch.journal)
            assert list(self.misplaced(ledger, branch.run.messages)) == []
            calls = list(state.calls)
            by_call = [(e.scope or (e.call_id,))[0] for e in state.pending if e.call_id]
            assert by_call == sorted(by_call, key=calls.index)

    @invariant()
    def the_journal_only_grows_and_replays_to_the_same_state_everywhere(self) -> None:
        """Through JSON, and in every handle."""
        for branch in self.branches:
            journal, state = branch.journal, branch.state
            assert journal[: len(branch.past)] == branch.past
            self._a_budget_is_asked_about_once_it_is_used_up(branch, journal)
            branch.past = journal
            again = replayed(journal)
            assert again == state
            assert next_step(again) == next_step(state)
            for seat in branch.seats:
                assert seat.run._journal.state == state

    def _a_budget_is_asked_about_once_it_is_used_up(self, branch: Branch, journal: Any) -> None:
        for k in range(len(branch.past), len(journal)):
            event = journal[k]
            if event.type == "interrupted" and event.budget in ("tokens", "cost"):
                ledger = Ledger(journal[:k])
                allowed = self.budgets[bool(event.scope)][event.budget]
                spent = ledger.spent(event.budget, event.scope)
                assert spent >= allowed + ledger.granted(event.budget, event.scope)

    @invariant()
    def a_run_that_does_nothing_waits_for_somebody(self) -> None:
        """Nothing that could be done is left undone."""
        for branch in self.branches:
            if branch.run.status == "running":
                assert self.world.open_slow(branch.number), branch.state

    @invariant()
    def what_is_paused_is_the_same_after_its_messages_went_through_json(self) -> None:
        """The same questions, at every depth."""
        for branch in self.branches:
            state = branch.state
            if state.outcome is None and not self.world.open_slow(branch.number) and state.calls:
                again = restore(load(json.loads(json.dumps(branch.run.messages))))
                assert again.pending == [e for e in state.pending if e != state.budget]
                assert next_step(again) == next_step(replace(state, budget=None))

    @invariant()
    def c72_what_a_tool_streamed_is_its_result(self) -> None:
        """The pieces of each call, never mixed."""
        for branch in self.branches:
            called = Ledger(branch.journal).called()
            for event in branch.journal:
                if event.type == "tool_finished" and not event.error:
                    made = called[event.scope, event.call_id]
                    known = made.name == "inner" or made.input["n"] in branch.inherited
                    if made.name.startswith("stream") and not known:
                        assert branch.chunks[event.scope, event.call_id] == event.output

    @invariant()
    def p7_headless_never_hangs(self) -> None:
        """A settled run says so, and awaiting one that is paused raises."""
        for branch in self.branches:
            if branch.run.status == "interrupted":
                with pytest.raises(nb.HumanInputRequired) as caught:
                    self.loop.run_until_complete(asyncio.wait_for(branch.run._wait(), 30))
                assert list(caught.value.interrupts) == branch.run.interrupts

    def teardown(self) -> None:
        """Every run comes to its end, and all that held on the way holds there."""
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
        assert run.status == "completed" or (self.cancels and run.status == "cancelled"), run.journal[-1]
        if run.status == "completed":
            queued = [e.text for e in run.journal if e.type == "message_queued"]
            told = [m["content"][0]["text"] for m in run.messages if m["role"] == "user"]
            assert told == ["go", *queued]


def test_promises_hold_for_any_schedule_of_the_whole_engine(tmp_path: Path):
    """Turns, agents inside, rules, middleware, budgets, answers, forks, deaths, cancels and orders."""
    search: dict[str, Any] = (
        {"max_examples": THOROUGH} if THOROUGH else {"max_examples": 80, "derandomize": True}
    )
    with nb.SQLiteStore(tmp_path / "runs.db") as one, nb.SQLiteStore(tmp_path / "runs.db") as two:
        AnySchedule.files = (one, two)
        run_state_machine_as_test(
            AnySchedule,
            settings=settings(
                **search,
                database=None,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
