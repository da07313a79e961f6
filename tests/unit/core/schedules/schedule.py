"""A run under test, its branches and their handles, and the moves that a test can make."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

import nbagent as nb
from nbagent.core.base.errors import StoreError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Request
from nbagent.core.journal import writer
from nbagent.core.journal.journal import Journal
from nbagent.core.run import lost_calls
from nbagent.core.run.host import Place, ScriptHost
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.session import Session
from nbagent.core.state.next_step import Wait, next_step
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec
from tests.unit.core.clock import spec_of
from tests.unit.core.schedules.branch import Branch, Grouped, Mortal, Near, Outage, Remote
from tests.unit.core.schedules.ledger import Ledger, number_of, results_in, turns_of
from tests.unit.core.schedules.turns import (
    TURNS,
    USAGE,
    Watched,
    answer_count,
    kinds_in,
    named,
    numbered,
    speaker,
)
from tests.unit.core.schedules.world import (
    EDIT,
    FLAT,
    IN_THREADS,
    MIDDLEWARE,
    NESTS,
    SWALLOWED,
    Seat,
    World,
    middleware,
)

MORE = {"turns": 1, "tokens": 15, "cost": 0.015, "seconds": 6}
"""The amount that an answer adds to a budget."""
LOOKS, LONGEST = 6, 10.0
"""Looks of each handle after an outage of the store, and the seconds until a planned look is due."""
BUDGETS: list[dict[str, float]] = [
    {},
    {},
    {"tokens": 20},
    {"seconds": 7},
    {"tokens": 30, "cost": 0.025},
]


class Hasty(asyncio.SelectorEventLoop):
    """A loop whose clock the test can put forward."""

    ahead = 0.0
    """Seconds that its clock is ahead."""

    def time(self) -> float:
        """The time that the timers see."""
        return super().time() + self.ahead


class Schedule(RuleBasedStateMachine):
    """A live run and its forks, each with one or two handles, as other processes would have them."""

    files: tuple[nb.SQLiteStore, ...]
    """Two stores of one file."""
    tools: Sequence[str] = FLAT
    """The tools to call."""
    around: Sequence[str] = MIDDLEWARE
    """Kinds of middleware."""
    nests: Sequence[str] = NESTS
    """Tools that call tools."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Hasty()
        self.world = World()
        self.world.at_door = {}
        self.branches: list[Branch] = []
        self.given: dict[str, Any] = {}
        """Answers that were accepted, by interrupt id."""
        self.wrong: list[str] = []
        """Mistakes in the requests to models."""
        self.failed: set[int] = set()
        """Branches whose model has failed once."""
        self.outage = Outage()
        self.behind: list[tuple[Branch, Seat, Run]] = []
        """Runs that are queued behind another run, with the branch and handle of that run."""

    @initialize(
        turns=TURNS,
        place=st.integers(0, len(MIDDLEWARE) - 1),
        max_turns=st.sampled_from([50, 2, 1]),
        budget=st.sampled_from(BUDGETS),
        inner_budget=st.sampled_from([{}, {}, {"tokens": 6}]),
        raises=st.booleans(),
        fails_at=st.sampled_from([None, None, 0, 1]),
        in_file=st.booleans(),
        cancels=st.booleans(),
        handles=st.sampled_from([1, 2]),
        eager=st.booleans(),
        kind_of_store=st.sampled_from([Near, Near, Near, Remote, Grouped]),
    )
    def start(self, turns: Any, place: int, max_turns: int, **drawn: Any) -> None:
        """Start a run."""
        counter, kind = iter(range(EDIT)), self.around[place % len(self.around)]
        self.script = [numbered(turn, counter) for turn in named(turns, self.tools, self.nests)]
        self.kinds = {n: kind for turn in self.script for n, kind in kinds_in(turn).items()}
        self.hostile, self.max_turns = kind == "hostile", max_turns
        self.budgets = (drawn["budget"], drawn["inner_budget"])
        self.fails_at, self.cancels = drawn["fails_at"], drawn["cancels"]
        self.eager = drawn["eager"]
        memory = nb.MemoryStore()
        kind_of = drawn["kind_of_store"]
        stores = self.files if drawn["in_file"] else (memory, memory)
        first = kind_of(stores[0], self.outage)
        self.stores = (first, kind_of(stores[1], self.outage) if drawn["in_file"] else first)
        self.options = {
            "middleware": middleware(kind),
            "on_tool_error": "raise" if drawn["raises"] else "report",
        }
        branch = Branch(0, nb.core.tools.spec.new_id())
        self.branches.append(branch)
        seat = self.seated(branch)
        self.loop.run_until_complete(self._started(seat.run))
        self.loop.run_until_complete(self._idle())
        for _ in range(1, drawn["handles"]):
            self.opened(branch)
        self.quiet()

    async def _started(self, run: Run) -> None:
        session_of(run).start([user("go")])

    # --- handles

    def spec(self, seat: Seat) -> RunSpec:
        """The spec of a new agent for this seat."""
        budget, inner = ({"budget": nb.Budget(**b)} for b in self.budgets)
        agent = self.world.agent(
            seat,
            lambda depth: self._model(seat, depth),
            max_turns=self.max_turns,
            **self.options,
            **budget,
            inner={**self.options, **inner},
        )

        def clock() -> float:
            if threading.current_thread() is threading.main_thread():
                seat.checked = seat.position
            return self.world.now

        return spec_of(agent, clock)

    def _model(self, seat: Seat, depth: int) -> Watched:
        answer = speaker(None if depth else self.script, depth)

        def step(messages: Any) -> Any:
            if (
                not depth
                and answer_count(messages) == self.fails_at
                and seat.branch not in self.failed
            ):
                self.failed.add(seat.branch)
                return RuntimeError("the model is down")
            return answer(messages)

        model = nb.ScriptedModel(step, usage=USAGE[depth])
        return Watched(model, lambda request: self._looked(seat, depth, request))

    def seated(self, branch: Branch) -> Seat:
        """A new handle on a branch."""
        seat = Seat(branch.number)
        store = self.stores[len(branch.seats) % 2]
        place = Place(ScriptHost(), attended=False, loop=self.loop)
        seat.journal = Journal(branch.run_id, store)
        seat.run = Run(Session(self.spec(seat), seat.journal, place))
        seat.run.subscribe(branch.hears)
        branch.seats.append(seat)
        return seat

    def opened(self, branch: Branch) -> Seat:
        """Another handle, as if another process opened the run."""
        branch.shared |= bool(branch.seats)
        seat = self.seated(branch)
        try:
            seat.journal.catch_up()
        except StoreError:
            branch.seats.remove(seat)
            raise
        session_of(seat.run).follow_stored()
        self.pushed(seat)
        return seat

    def queued_behind(self, branch: Branch, seat: Seat) -> None:
        """Queue a run behind this one, which continues it."""
        if len(self.behind) >= 3:
            return
        agent = nb.Agent(nb.ScriptedModel(lambda _: "after"), name="outer")
        journal = Journal(nb.core.tools.spec.new_id(), seat.journal.store)
        place = Place(ScriptHost(), attended=False, loop=self.loop)
        session = Session(spec_of(agent, lambda: self.world.now), journal, place)
        run = Run(session)

        async def queue() -> None:
            session.start_behind(session_of(seat.run), "and then")

        self.loop.run_until_complete(queue())
        self.behind.append((branch, seat, run))

    def pushed(self, seat: Seat) -> None:
        """Have a handle continue the run, as a handle does when no other handle does."""
        if not isinstance(next_step(seat.journal.state), Wait):
            seat.goes_on()

    def killed(self, branch: Branch, seat: Seat) -> None:
        """Kill a handle's process: nothing more is written there."""
        branch.seats.remove(seat)
        self.behind = [each for each in self.behind if each[1] is not seat]
        store = seat.journal.store = Mortal(seat.journal.store)
        store.dead = True
        self.loop.run_until_complete(seat.run.cancel())

    def forked(self, branch: Branch, seat: Seat, at: str | None) -> Branch:
        """A fork that another process opens with its own agent; the forking handle dies.

        Raises:
            UsageError: calls are running.
        """
        store = seat.journal.store
        mortal = seat.journal.store = Mortal(store)
        try:
            run = seat.run.fork(at=at)
        finally:
            seat.journal.store = store
        mortal.dead = True
        self.loop.run_until_complete(run.cancel())
        made = Branch(len(self.branches), run.id, forked=True)
        made.inherited = Ledger(store.read(run.id)).finished()
        if branch.number in self.failed:
            self.failed.add(made.number)
        self.branches.append(made)
        self.opened(made)
        return made

    # --- time

    def quiet(self) -> None:
        """Run the loop until nothing more happens by itself."""
        self.loop.run_until_complete(asyncio.wait_for(self._quiet(), 60))

    async def _quiet(self) -> None:
        for _ in range(1_000):
            await self._calm()
            if not any(
                b.run.status == "running" and not self.world.open_slow(b.number)
                for b in self.branches
            ):
                return
            await asyncio.sleep(0.01)  # a call waits until its earlier body has ended

    async def _calm(self) -> None:
        seats = self.all_seats
        before: list[int] = []
        while (now := [seat.position for seat in seats]) != before:
            before = now
            await self._idle()
            for seat in seats:
                # a running handle reads others' events with its next event, a failed one at its next use
                if seat.run.status in ("running", "failed"):
                    seat.journal.catch_up()
                session_of(seat.run).follow()
            await self._idle()

    async def _idle(self) -> None:
        calm = 0
        while calm < 3:
            await asyncio.sleep(0)
            busy = self._writes() or bool(self.loop._ready) or any(map(self._works, self.branches))
            calm = 0 if busy else calm + 1
            if calm == 3 and self.world.let_in():
                calm = 0

    def _writes(self) -> bool:
        """Whether a thread writes, or has not yet told the loop."""
        alive = sum(each.name == "nbagent-write" for each in threading.enumerate())
        return alive > len(writer._idle)

    def _works(self, branch: Branch) -> bool:
        """Whether a thread runs a body; only the newest handle's state counts."""
        newest = max(branch.seats, key=lambda seat: seat.position, default=None)
        return newest is not None and self._computes(branch.number, newest.journal.state)

    def _computes(self, branch: int, state: RunState) -> bool:
        """Whether a body runs in a thread; the loop knows of all others."""
        for one in state.calls.values() if state.outcome is None else ():
            in_thread = one.status == "running" and one.name in IN_THREADS
            if in_thread and (branch, number_of(one.input)) not in (self.world.at_door or ()):
                return True
            if one.child is not None and one.status != "done" and self._computes(branch, one.child):
                return True
        return False

    def looks_come(self) -> None:
        """Let the planned looks of the handles at the store happen now."""
        moment, lost_calls.POLL = lost_calls.POLL, 0.0
        try:
            for _ in range(LOOKS):
                self.loop.ahead += LONGEST
                self.loop.run_until_complete(self._idle())
        finally:
            lost_calls.POLL = moment

    def stopped(self, stops: list[Future[None]]) -> None:
        """Wait until the cancels are done."""

        async def over() -> None:
            while not all(stop.done() for stop in stops):
                self.world.let_in()
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(over(), 30))
        self.quiet()

    def time_goes_on(self) -> None:
        """Let 1,000 seconds pass; only running branches use them up."""
        self.world.now += 1000
        for branch in self.branches:
            if branch.run.status == "running":
                self.world.worked[branch.number] = self.world.worked.get(branch.number, 0) + 1000

    @property
    def all_seats(self) -> list[Seat]:
        """Every handle."""
        return [seat for branch in self.branches for seat in branch.seats]

    def deadlines_come(self, order: Iterable[int]) -> None:
        """Apply deadlines in the handles, in this order."""
        for k in order:
            self.all_seats[k].notices()

    # --- answers

    def resolution(self, branch: Branch, i: nb.PendingInterrupt, answer: str, more: int = 1) -> Any:
        """The resolution for this kind of answer."""
        if answer == "reject":
            return nb.Reject(reason="no")
        if i.kind == "budget":
            name = branch.ledger.asked[i.id].budget or ""
            return nb.Respond(output=MORE[name] * more)
        if answer == "respond" or not i.restartable:
            return nb.Respond(output=f"answer to {i.id}")
        if answer == "always" and i.kind == "approval":
            return nb.Restart(remember="tool" if i.input["n"] % 2 else "tool_in_run")
        is_edited = answer == "edit" and i.kind != "lost"  # a lost call runs again unchanged
        return nb.Restart(input={"n": i.input["n"] % EDIT + EDIT} if is_edited else None)

    def took(self, branch: Branch, seat: Seat, i: nb.PendingInterrupt, resolution: Any) -> None:
        """Record an accepted answer; it counts at once."""
        assert i.id not in [p.id for p in seat.run.interrupts]
        self.given[i.id] = resolution
        if isinstance(resolution, nb.Restart) and resolution.remember == "tool":
            seat.remembered.add((i.path[1:-1].count("inner"), i.tool_name))
        for other in branch.seats if self.eager else ():  # each handle continues the run itself
            other.journal.catch_up()
            self.pushed(other)
        self.quiet()

    # --- the checks of requests to models

    def _looked(self, seat: Seat, depth: int, request: Request) -> None:
        with self.outage.over():
            events = seat.journal.read()
        ledger = Ledger(events[: seat.position])
        history = request.messages
        prompt = history[0]["content"][0]["text"]
        scope = ledger.scope_of(prompt) if depth else ()
        self.wrong += self.misplaced(ledger, history)
        limit = self.max_turns if not scope else 20
        if turns_of(history) >= limit + ledger.granted("turns", scope):
            self.wrong.append(f"P10: {turns_of(history)} turns at {scope}")
        # a thread may have stored what others spent, after this request was allowed
        self.wrong += self._overspent(Ledger(events[: seat.checked]), scope, seat.branch)
        if any(
            p["name"] == "last" and not p.get("error")
            for p in history[-1]["content"]
            if "output" in p
        ):
            self.wrong.append("a model was called after a final tool was answered")

    def misplaced(self, ledger: Ledger, history: Any) -> Iterator[str]:
        """P9, P12: results that belong to another call, or are out of order."""
        for calls, results in results_in(history):
            if [c["id"] for c in calls] != [r.get("id") for r in results]:
                yield f"P9: {calls} got {results}"
                continue
            for asked, part in zip(calls, results, strict=True):
                n = asked["input"].get("n")
                fits = n is None or ledger.fits(self.kinds[n], n, part["output"])
                if not fits and not (self.hostile and part["output"] == SWALLOWED):
                    yield f"{self.kinds[n]} {n} has the result {part['output']!r}"

    def _overspent(self, ledger: Ledger, scope: tuple[str, ...], branch: int) -> Iterator[str]:
        for run in ledger.runs_around(scope):
            for name, allowed in self.budgets[bool(run)].items():
                spent = self.spent(ledger, name, run, branch)
                if spent >= allowed + ledger.granted(name, run):
                    yield f"P10: {spent} {name} at {run}"

    def spent(self, ledger: Ledger, name: str, scope: tuple[str, ...], branch: int) -> float:
        """The usage of a run, computed from the models' responses and the tools' acts."""
        if name != "seconds":
            return ledger.spent(name, scope)
        return 0.0 if self.branches[branch].forked else self.world.worked.get(branch, 0.0)

    # --- the end

    def finish(self) -> None:
        """Answer every open question until every run has ended."""
        for branch in self.branches:
            for _ in range(60):
                if branch.run.status in ("completed", "cancelled"):
                    break
                self._went_on(branch)

    def _went_on(self, branch: Branch) -> None:
        if branch.run.status == "failed":
            branch.run.retry()
            self.quiet()
        for n in self.world.open_slow(branch.number):
            if n in self.world.open_slow(branch.number):  # else stopped, as another process failed
                self.world.slow[branch.number, n].set_result("slowly")
                self.quiet()
        for i in branch.run.interrupts:
            branch.seats[0].notices()  # a question whose time is over takes no answer
            self.quiet()
            if i.id in [p.id for p in branch.run.interrupts]:
                resolution = self.resolution(branch, i, "respond", 1000)
                branch.run.resolve(i, resolution)
                self.took(branch, branch.seats[0], i, resolution)

    def closed(self) -> None:
        """Cancel all tasks and close the loop."""
        for future in self.world.slow.values():
            if not future.done():
                future.cancel()
        left = [t for t in asyncio.all_tasks(self.loop) if not t.done()]
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.wait(left))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
