"""The promises on random schedules of the whole engine: whatever happens, in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.base.interrupts import token_digest
from nbagent.core.run.generate import NEW_MESSAGE
from nbagent.core.run.run import session_of
from nbagent.core.state.state import running_calls
from tests.unit.core.schedules.branch import Branch
from tests.unit.core.schedules.invariants import Promises
from tests.unit.core.schedules.ledger import Ledger
from tests.unit.core.schedules.search import search
from tests.unit.core.schedules.world import FLAT, MIDDLEWARE, NESTS, REVIEWED, Seat

T = TypeVar("T")
ANSWERS = ["respond", "restart", "edit", "always", "reject"]


def one_of(data: st.DataObject, found: Sequence[T], label: str) -> T:
    """A drawn element; the draw is an index, which is the same in every run."""
    return found[data.draw(st.integers(0, len(found) - 1), label=label)]


class AnySchedule(Promises):
    """Moves in any order that hypothesis draws."""

    def branch_where(self, data: st.DataObject, holds: Any) -> Branch:
        """One of the branches for which this holds."""
        return one_of(data, [b for b in self.branches if holds(b)], "branch")

    def seat(self, data: st.DataObject, branch: Branch) -> Seat:
        """One of a branch's handles."""
        return one_of(data, branch.seats, "seat")

    def question(self, data: st.DataObject) -> tuple[Branch, Seat, nb.PendingInterrupt]:
        """A question that can be answered, its branch and a handle."""
        branch = self.branch_where(data, self.takes)
        seat = self.seat(data, branch)
        return branch, seat, one_of(data, self.takes(branch), "interrupt")

    def asked_in(self, branch: Branch) -> list[str]:
        """The ids of all questions so far, sorted by place: threads may change the order in time."""
        found = [e for e in branch.journal if e.type == "interrupted"]
        return [e.id for e in sorted(found, key=lambda e: (e.scope, e.call_id, e.at, e.ask or 0))]

    def asks(self) -> bool:
        """Whether anything can be answered."""
        return any(self.takes(b) for b in self.branches)

    def takes(self, branch: Branch) -> list[nb.PendingInterrupt]:
        """The questions that can be answered; an expired question may stay open until a call ends."""
        now = self.world.now
        return [i for i in branch.run.interrupts if i.expires_at is None or i.expires_at > now]

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
        if self.world.open_slow(branch.number):
            return  # awaiting waits for the slow call, even if another process failed the run
        with pytest.raises(nb.errors.RunError) as caught:
            self.loop.run_until_complete(asyncio.wait_for(branch.run, 30))
        assert branch.run.status == "failed"
        assert caught.value.messages == branch.run.messages

    @precondition(asks)
    @rule(
        data=st.data(),
        moves=st.lists(st.sampled_from([*ANSWERS, "expire", "cancel"]), min_size=2, max_size=4),
    )
    def p2_of_several_who_act_at_once_one_wins(self, data: st.DataObject, moves: Any) -> None:
        """Handles act before they read each other's events; deadlines and cancels act too."""
        branch = self.branch_where(data, self.takes)
        i = one_of(data, self.takes(branch), "interrupt")
        moves = [m for m in moves if self.cancels or m != "cancel"]
        stops: list[Any] = []
        won = []
        for k, move in enumerate(moves):
            seat = branch.seats[k % len(branch.seats)]
            try:
                if move == "cancel":
                    stops.append(session_of(seat.run).stop(by="code"))
                elif move == "expire":
                    self.time_goes_on()
                    seat.notices()
                else:
                    resolution = self.resolution(branch, i, move)
                    seat.run.resolve(i, resolution)
                    won.append((seat, resolution))
            except nb.Conflict:
                pass
        assert len(won) == 1 or (not won and (len(set(moves) & {"expire", "cancel"}) or not moves))
        if "expire" in moves:
            self.deadlines_come(range(len(self.all_seats)))
        for seat, resolution in won:
            self.took(branch, seat, i, resolution)
        self.stopped(stops)
        by = [e.by for e in branch.journal if e.type == "resolved" and e.id == i.id]
        assert by.count("code") == len(won)
        assert len(by) <= 1

    @precondition(asks)
    @rule(
        data=st.data(),
        wrong=st.sampled_from([None, 5, "approve", {}, True, nb.Restart, {"type": "restart"}]),
    )
    def p4_a_bad_answer_changes_nothing(self, data: st.DataObject, wrong: Any) -> None:
        """Refused; journal and question are unchanged."""
        branch, seat, i = self.question(data)
        before, remembers = branch.journal, nb.Restart(input={"n": 1}, remember="tool")
        attempts = [
            lambda: seat.run.resolve(i, wrong),
            lambda: seat.run.resolve(i, remembers),
            lambda: seat.run.restart(i, new_input={"m": 1}),
        ]
        if (i.tool_name, i.kind) != ("own", "approval"):  # whose results have no type
            attempts.append(lambda: seat.run.respond(i, {"not": "a text"}))
        for attempt in attempts:
            with pytest.raises(nb.errors.InvalidAnswer):
                attempt()
        assert branch.journal == before

    @rule(data=st.data())
    def p2_what_is_settled_or_unknown_takes_no_answer(self, data: st.DataObject) -> None:
        """Any answer, at any later time, also once the run has ended."""
        branch = self.branch_where(data, lambda _: True)
        run, before = self.seat(data, branch).run, branch.journal
        open_ = {i.id for i in run.interrupts}
        asked = [i for i in self.asked_in(branch) if i not in open_]
        i = one_of(data, [*asked, "call_1", ""], "id")
        settled = {e.id for e in before if e.type == "resolved"}  # not what an outage refused
        was_answered = i in self.given and i in settled
        for again in (nb.Respond(output="x"), nb.Restart(), nb.Reject()):
            with pytest.raises(
                nb.Conflict if was_answered else (nb.Conflict, nb.errors.NotPending)
            ):
                run.resolve(i, again)
        assert branch.journal == before

    @precondition(lambda self: self.world.tokens)
    @rule(data=st.data(), error=st.sampled_from([None, None, "no money"]))
    def an_outside_system_answers(self, data: st.DataObject, error: str | None) -> None:
        """A token settles the question it was made for, once, and no other."""
        token = one_of(data, list(self.world.tokens), "token")
        digest = token_digest(token)
        before = {b.number: b.journal for b in self.branches}
        waits = [(b, e) for b in self.branches for e in b.state.open if e.external == digest]
        if not waits:
            with pytest.raises((nb.Conflict, nb.errors.NotPending)):
                nb.answer_external(token, None if error else "paid", error=error)
            assert before == {b.number: b.journal for b in self.branches}
            return
        ((branch, event),) = waits
        nb.answer_external(token, None if error else "paid", error=error)
        self.given[event.id] = nb.Respond(output=None if error else "paid", error=error)
        self.quiet()
        assert [b for b in self.branches if b.journal != before[b.number]] == [branch]

    # --- the store

    @rule(
        data=st.data(),
        fails=st.sampled_from(["reads", "writes", "both"]),
        calls=st.integers(1, 12),
        loses_word=st.booleans(),
        act=st.sampled_from(["answer", "answer", "cancel", "end", "send", "open", "queue", "look"]),
    )
    def the_store_goes_away_and_comes_back(
        self, data: st.DataObject, fails: str, calls: int, act: str, *, loses_word: bool
    ) -> None:
        """An outage during an act: an act that is not refused takes effect once the store is back."""
        branch = self.branch_where(data, lambda _: True)
        self.outage.reads = 0 if fails == "writes" else calls
        self.outage.writes = 0 if fails == "reads" else calls
        self.outage.loses_word = loses_word
        with suppress(nb.errors.StoreError, UsageError):
            self._acted(data, branch, self.seat(data, branch), act)
        self.loop.run_until_complete(self._idle())
        self.outage.reads = self.outage.writes = 0
        self.looks_come()
        self.quiet()

    def _acted(self, data: st.DataObject, branch: Branch, seat: Seat, act: str) -> None:
        slow = self.world.open_slow(branch.number)
        if act == "answer" and self.takes(branch):
            i = one_of(data, self.takes(branch), "interrupt")
            resolution = self.resolution(branch, i, data.draw(st.sampled_from(ANSWERS)))
            self.given[i.id] = resolution
            if isinstance(resolution, nb.Restart) and resolution.remember == "tool":
                seat.remembered.add((i.path[1:-1].count("inner"), i.tool_name))
            seat.run.resolve(i, resolution)
        elif act == "cancel" and self.cancels:
            session_of(seat.run).stop(by="code")
        elif act == "end" and slow:
            self.world.slow[branch.number, one_of(data, slow, "slow")].set_result("slowly")
        elif act == "send" and self._may_queue(branch):
            session_of(seat.run).send(f"and {len(branch.journal)}", lambda: None)
        elif act == "open" and len(branch.seats) < 2:
            self.opened(branch)
        elif act == "queue" and branch.state.outcome is None:
            self.queued_behind(branch, seat)

    @precondition(lambda self: any(b.state.outcome is None for b in self.branches))
    @rule(data=st.data())
    def c226_a_run_is_queued_behind_another(self, data: st.DataObject) -> None:
        branch = self.branch_where(data, lambda b: b.state.outcome is None)
        self.queued_behind(branch, self.seat(data, branch))
        self.quiet()

    # --- other things that happen

    @precondition(lambda self: any(self._is_timed(b) for b in self.branches))
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        """A deadline is applied once, by whichever handle notices first."""
        late = [(b, e) for b in self.branches for e in b.state.open if e.expires_at is not None]
        self.time_goes_on()
        self.deadlines_come(data.draw(st.permutations(range(len(self.all_seats)))))
        self.quiet()
        for branch, event in late:
            by = [e.by for e in branch.journal if e.type == "resolved" and e.id == event.id]
            assert by == ["expiry"] or (not by and self._could_not_expire(branch, event))

    def _is_timed(self, branch: Branch) -> bool:
        """Whether time makes a difference: to a deadline, or to a budget."""
        deadlines = any(e.expires_at is not None for e in branch.state.open)
        return deadlines or ("seconds" in self.budgets[0] and branch.state.outcome is None)

    def _could_not_expire(self, branch: Branch, event: Any) -> bool:
        """Whether a deadline fails the run first, once no call runs."""
        others = any(e.on_expire == "fail" for e in branch.state.pending)
        return others and (branch.run.status in ("failed", "running") or event.on_expire == "fail")

    @precondition(lambda self: any(self.world.open_slow(b.number) for b in self.branches))
    @rule(data=st.data(), fails=st.booleans())
    def a_slow_tool_ends(self, data: st.DataObject, fails: bool) -> None:
        """The tool returns or fails."""
        branch = self.branch_where(data, lambda b: self.world.open_slow(b.number))
        n = one_of(data, self.world.open_slow(branch.number), "slow")
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
        """Whether a process can die without a call whose outcome is unknown."""
        return any(self._is_killable(b) for b in self.branches)

    def _is_killable(self, branch: Branch) -> bool:
        return branch.state.outcome is None and not running_calls(branch.state)

    @precondition(may_be_killed)
    @rule(data=st.data())
    def p6_a_process_is_killed_and_another_goes_on(self, data: st.DataObject) -> None:
        """The same questions are open, and earlier answers count."""
        branch = self.branch_where(data, self._is_killable)
        before = [i.id for i in branch.run.interrupts]
        self.killed(branch, self.seat(data, branch))
        self.opened(branch)
        self.quiet()
        assert [i.id for i in branch.seats[-1].run.interrupts] == before

    @precondition(lambda self: len(self.branches) < 3)
    @rule(data=st.data(), here=st.booleans())
    def c99_the_run_is_forked(self, data: st.DataObject, here: bool) -> None:
        """At any earlier question, or at the last event; refused if calls were running there."""
        branch = self.branch_where(data, lambda _: True)
        asked = self.asked_in(branch)
        at = None if here or not asked else one_of(data, asked, "question")
        try:
            self.forked(branch, self.seat(data, branch), at)
        except UsageError:
            journal = branch.journal
            ids = [getattr(event, "id", None) for event in journal]
            there = len(journal) if at is None else ids.index(at) + 1
            later = range(there, len(journal) + 1)  # with an interim result, a run continues
            assert any(Ledger(journal[:n]).unfinished() for n in later)
        self.quiet()

    @precondition(lambda self: any(b.run.status == "failed" for b in self.branches))
    @rule(data=st.data())
    def c102_a_failed_run_is_tried_again(self, data: st.DataObject) -> None:
        """From its last good state."""
        branch = self.branch_where(data, lambda b: b.run.status == "failed")
        self.seat(data, branch).run.retry()
        self.quiet()

    @precondition(lambda self: any(self._may_queue(b) for b in self.branches))
    @rule(data=st.data())
    def c61_a_message_is_queued(self, data: st.DataObject) -> None:
        """The message waits for the open turn's results; an ended run refuses it."""
        branch = self.branch_where(data, self._may_queue)
        ended = branch.state.outcome is not None
        session = session_of(self.seat(data, branch).run)
        assert session.send(f"and {len(branch.journal)}", lambda: None) is not ended
        self.quiet()

    def _may_queue(self, branch: Branch) -> bool:
        return sum(e.type == "message_queued" for e in branch.journal) < 2

    @precondition(lambda self: self.cancels and self.asks())
    @rule(data=st.data())
    def c61_a_new_message_rejects_what_is_asked(self, data: st.DataObject) -> None:
        """A paused run is cancelled too; a running run is not."""
        branch = self.branch_where(data, self.takes)
        asked, paused = branch.run.interrupts, branch.run.status == "interrupted"
        session_of(self.seat(data, branch).run).dismiss()
        if paused:
            self.given |= {i.id: nb.Reject(reason=NEW_MESSAGE) for i in asked}
        self.quiet()
        assert (branch.run.status == "cancelled") is paused

    @precondition(lambda self: self.cancels)
    @rule(data=st.data())
    def c128_the_run_is_cancelled(self, data: st.DataObject) -> None:
        """The run has ended for good, whichever handle did it."""
        branch = self.branch_where(data, lambda _: True)
        run, outcome = self.seat(data, branch).run, branch.state.outcome
        self.stopped([session_of(run).stop(by="code")])
        assert branch.state.outcome == outcome or outcome is None
        assert branch.run.status != "interrupted"
        assert branch.run.interrupts == []


FOCUS = {
    "everything": (FLAT, MIDDLEWARE, NESTS),
    "approvals": (
        [*REVIEWED, *REVIEWED, "denied", "guarded", "plain"],
        ["drifting", "none"],
        ["inner"],
    ),
    "rounds": (
        ["twice", "last", "asks", "flaky", "pay", "late", "slow"],
        ["none", "hostile"],
        ["inner"],
    ),
    "bodies": (
        ["reviewed", "gate", "asks", "own", "own", "plain", "later", "timed", "slow"],
        ["none", "usual", "hostile"],
        ["calls", "calls", "inner"],
    ),
}
"""The tools, middleware and callers of tools of each focus: fewer kinds meet each other more often."""


@pytest.mark.parametrize("focus", FOCUS)
def test_promises_hold_for_any_schedule_of_the_whole_engine(tmp_path: Path, focus: str):
    """Turns, agents inside, rules, middleware, budgets, answers, forks, deaths, cancels and orders."""
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path) as one, nb.SQLiteStore(path) as two:
        tools, around, nests = FOCUS[focus]
        fields = {"files": (one, two), "tools": tools, "around": around, "nests": nests}
        search(type(AnySchedule.__name__, (AnySchedule,), fields), steps=25)
