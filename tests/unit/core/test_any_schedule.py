"""The promises on random schedules of the whole engine, agents and questions inside included."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import nbagent as nb
from nbagent.core import events
from nbagent.core.host import ScriptHost
from nbagent.core.journal import Journal
from nbagent.core.messages import load, user
from nbagent.core.run import Place, Run
from nbagent.core.state import RunState, apply, next_step, restore

call = nb.ScriptedModel.call
FLAT = ["plain", "flaky", "gate", "timed", "asks", "asks_sync", "reviewed", "denied", "ask", "slow"]
GATED = ("gate", "timed", "reviewed")
EDIT = 5000
"""What an edit adds to a call's number, which tells calls apart at every depth."""


class Swallow:
    """Hostile: takes whatever comes for success, and tries twice."""

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        """Never mind."""
        for _ in range(2):
            try:
                return await nxt(c)
            except asyncio.CancelledError:
                raise
            except BaseException:
                await asyncio.sleep(0)
        return "all went well"


MIDDLEWARE = {
    "none": [],
    "usual": [nb.ToolErrorsToText(), nb.Retry(2), nb.Timeout(1000)],
    "hostile": [nb.Retry(2), Swallow()],
}


class World:
    """Tools whose every act is written down by the call's number."""

    def __init__(self, middleware: str = "none") -> None:
        self.acted: dict[int, list[int]] = {}
        self.tried: dict[int, int] = {}
        self.slow: dict[int, asyncio.Future[str]] = {}
        self.options = {
            "middleware": MIDDLEWARE[middleware],
            "policy": [nb.deny("denied"), nb.review("reviewed"), nb.allow("*")],
        }

    def act(self, n: int) -> str:
        """Do what cannot be undone."""
        self.acted.setdefault(n % EDIT, []).append(n)
        return f"did {n}"

    def agent(self, model: Any, *, depth: int = 2, **more: Any) -> nb.Agent:
        """An agent with one tool of every kind, and one of its own kind inside."""
        agent = nb.Agent(model, **(self.options | more))
        agent.add(nb.interrupt_tool("ask", output=str))
        self._add_acting(agent)
        self._add_asking(agent)
        if depth:
            agent.add(self.agent(nb.ScriptedModel(obey), depth=depth - 1).as_tool(name="inner"))
        return agent

    def _add_acting(self, agent: nb.Agent) -> None:
        @agent.tool
        async def plain(n: int) -> str:
            return self.act(n)

        @agent.tool
        async def flaky(n: int) -> str:
            self.tried[n] = self.tried.get(n, 0) + 1
            if self.tried[n] == 1:
                raise OSError("line is down")
            return self.act(n)

        @agent.tool
        def reviewed(n: int) -> str:
            return self.act(n)

        @agent.tool
        def denied(n: int) -> str:
            return self.act(n)

        @agent.tool
        async def slow(n: int) -> str:
            self.slow[n] = asyncio.get_running_loop().create_future()
            told = await self.slow[n]
            self.act(n)
            return told

    def _add_asking(self, agent: nb.Agent) -> None:
        @agent.tool
        async def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"n": n})
            return self.act(n)

        @agent.tool
        def timed(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                default = nb.Respond(output="by default") if n % 2 else "reject"
                ctx.interrupt({"n": n}, expires_in=100, on_expire=default)
            return self.act(n)

        @agent.tool
        async def asks(n: int, ctx: nb.ToolContext) -> str:
            one, two = await asyncio.gather(ctx.ask(f"{n} one?"), ctx.ask(f"{n} two?"))
            await ctx.step("act", lambda: self.act(n))
            return f"{one} {two} {await ctx.ask(f'{n} three?')}"

        @agent.tool
        def asks_sync(n: int, ctx: nb.ToolContext) -> str:
            one = ctx.ask_sync(f"{n} one?")
            ctx.step_sync("act", lambda: self.act(n))
            return f"{one} {ctx.ask_sync(f'{n} two?')}"


NEEDED = {"asks": 2, "asks_sync": 1}
"""How many answers these need before they act."""


def obey(messages: Any) -> Any:
    """An inner model: it asks for the calls that its prompt lists."""
    last = messages[-1]
    if last["role"] == "tool":
        return "inner done"
    return requested(json.loads(last["content"][0]["text"]))


def requested(turn: list[Any]) -> list[Any]:
    """The calls of a turn of ``[kind, number or inner turn]``."""
    return [
        call("inner", prompt=json.dumps(what)) if kind == "inner" else call(kind, n=what)
        for kind, what in turn
    ]


def numbered(turns: Any, counter: Any) -> Any:
    """A drawn turn with a number for each call."""
    return [
        ["inner", numbered(one, counter)] if isinstance(one, list) else [one, next(counter)]
        for one in turns
    ]


LEAVES = st.sampled_from(FLAT)
TURN = st.lists(
    LEAVES | st.lists(LEAVES | st.lists(LEAVES, min_size=1, max_size=2), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)
TURNS = st.lists(TURN, min_size=1, max_size=3)


def kinds_in(turn: Any) -> dict[int, str]:
    """Each call's tool by its number."""
    found: dict[int, str] = {}
    for kind, what in turn:
        found |= kinds_in(what) if kind == "inner" else {what: kind}
    return found


def replayed(journal: list[events.StoredEvent]) -> RunState:
    """The state that the journal's JSON stands for."""
    state = RunState()
    for event in journal:
        state = apply(state, events.parse(events.dump(event)))
    return state


class AnySchedule(RuleBasedStateMachine):
    """One live run, driven by whatever order hypothesis thinks of."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 1000.0
        self.allowed: dict[int, int] = {}
        """By number: the input that an accepted approval lets run."""
        self.replies: dict[int, int] = {}
        """By number: how many questions in the middle were answered."""
        self.settled: list[str] = []
        self.past: list[events.StoredEvent] = []

    @initialize(
        turns=TURNS,
        middleware=st.sampled_from(list(MIDDLEWARE)),
        max_turns=st.sampled_from([1, 2, 50]),
        cancels=st.booleans(),
    )
    def start(self, turns: Any, middleware: str, max_turns: int, cancels: bool) -> None:
        """Begin a run."""
        counter = iter(range(EDIT))
        script = [numbered(turn, counter) for turn in turns]
        self.kinds = {n: kind for turn in script for n, kind in kinds_in(turn).items()}
        self.world, self.cancels = World(middleware), cancels
        self.model = nb.ScriptedModel([*map(requested, script), "done"])
        agent = self.world.agent(self.model, max_turns=max_turns)
        spec = replace(agent._spec(agent.tools), clock=lambda: self.now)
        self.run = Run(
            spec,
            Journal("r", nb.MemoryStore()),
            Place(ScriptHost(), attended=False, loop=self.loop),
        )
        self.loop.run_until_complete(self._start())
        self.quiet()

    async def _start(self) -> None:
        self.run.start([user("go")])

    def quiet(self) -> None:
        """Let everything happen that can happen by itself."""
        self.loop.run_until_complete(asyncio.wait_for(self._quiet(), 30))

    async def _quiet(self) -> None:
        while self._is_busy():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)

    def _is_busy(self) -> bool:
        state = self.run._journal.state
        if state.outcome is not None:
            return self.run._active
        return self._works(state, blocked=False)

    def _works(self, state: RunState, *, blocked: bool) -> bool:
        blocked = blocked or state.budget is not None
        if state.outcome is not None or not state.calls:
            return not blocked
        return any(self._call_works(c, blocked=blocked) for c in state.calls.values())

    def _call_works(self, one: Any, *, blocked: bool) -> bool:
        if one.status == "running":
            future = self.world.slow.get(one.input.get("n"))
            return future is None or future.done()
        if one.status == "ready" and one.child is not None and one.child.outcome is None:
            return self._works(one.child, blocked=blocked)
        return one.status == "ready"

    @property
    def waiting(self) -> list[nb.PendingInterrupt]:
        """What can be answered."""
        return self.run.interrupts

    # --- answers

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), answer=st.sampled_from(["respond", "restart", "edit", "reject"]))
    def answer(self, data: st.DataObject, answer: str) -> None:
        """Settle a question in some way that fits it."""
        i = data.draw(st.sampled_from(self.waiting))
        resolution = self.resolution(i, answer)
        self.run.resolve(i, resolution)
        self.took(i, resolution)

    def resolution(self, i: nb.PendingInterrupt, answer: str) -> Any:
        """What an answer means for this interrupt."""
        if i.kind == "budget":
            return nb.Respond(output=1)
        if answer == "reject":
            return nb.Reject(reason="no")
        if answer == "respond" or not i.restartable:
            return nb.Respond(output="answered")
        return nb.Restart(input={"n": i.input["n"] % EDIT + EDIT} if answer == "edit" else None)

    def took(self, i: nb.PendingInterrupt, resolution: Any) -> None:
        """An answer was accepted: it counts at once."""
        assert i.id not in [p.id for p in self.waiting]
        self.settled.append(i.id)
        if i.kind != "budget":
            n = i.input["n"] % EDIT
            if isinstance(resolution, nb.Restart):
                self.allowed[n] = i.input["n"] if resolution.input is None else n + EDIT
            if i.kind == "ask" and isinstance(resolution, nb.Respond):
                self.replies[n] = self.replies.get(n, 0) + 1
        self.quiet()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def p2_of_several_who_answer_at_once_one_wins(self, data: st.DataObject) -> None:
        """The others are told; only the winner's answer counts."""
        i = data.draw(st.sampled_from(self.waiting))
        answers = [self.resolution(i, a) for a in ("respond", "restart", "edit", "reject")]

        def attempt(resolution: Any) -> Any:
            try:
                self.run.resolve(i, resolution)
            except nb.Conflict:
                return None
            return resolution

        with ThreadPoolExecutor(4) as pool:
            won = [r for r in pool.map(attempt, answers) if r is not None]
        assert len(won) == 1
        self.took(i, won[0])

    @precondition(lambda self: self.waiting)
    @rule(
        data=st.data(),
        wrong=st.sampled_from([None, 5, "approve", {}, True, nb.Restart, {"type": "restart"}]),
    )
    def p4_a_bad_answer_changes_nothing(self, data: st.DataObject, wrong: Any) -> None:
        """Refused, journal as it was, still pending."""
        i = data.draw(st.sampled_from(self.waiting))
        before = self.run.journal
        for attempt in (
            lambda: self.run.resolve(i, wrong),
            lambda: self.run.respond(i, {"not": "a text"}),
            lambda: self.run.restart(i, new_input={"m": 1}),
        ):
            with pytest.raises(nb.InvalidAnswer):
                attempt()
        assert self.run.journal == before

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def p2_a_second_answer_is_a_conflict(self, data: st.DataObject) -> None:
        """Whatever it says, and however long after."""
        i = data.draw(st.sampled_from(self.settled))
        before = self.run.journal
        for again in (nb.Respond(output="x"), nb.Restart(), nb.Reject()):
            with pytest.raises(nb.Conflict):
                self.run.resolve(i, again)
        assert self.run.journal == before

    # --- other things that happen

    @rule()
    def time_passes(self) -> None:
        """Deadlines are applied once, and their questions take no answer any more."""
        late = [i for i in self.waiting if i.expires_at is not None]
        self.now += 1000
        self.run._expire_due()
        self.settled += [i.id for i in late]
        self.quiet()
        answers = [e for e in self.run.journal if e.type == "resolved"]
        for i in late:
            assert [e.by for e in answers if e.id == i.id] == ["expiry"]

    @precondition(lambda self: self.open_slow)
    @rule(data=st.data(), fails=st.booleans())
    def a_slow_tool_ends(self, data: st.DataObject, fails: bool) -> None:
        """Well or badly."""
        future = self.world.slow[data.draw(st.sampled_from(self.open_slow))]
        if fails:
            future.set_exception(ValueError("gone"))
        else:
            future.set_result("slowly")
        self.quiet()

    @property
    def open_slow(self) -> list[int]:
        """Slow calls that wait for the test."""
        return [n for n, f in self.world.slow.items() if not f.done()]

    # --- what always holds

    @invariant()
    def p1_nothing_refused_or_unanswered_ran_and_p5_what_was_approved_is_what_ran(self) -> None:
        """At every depth, with any middleware."""
        for n, acts in self.world.acted.items():
            kind = self.kinds[n]
            if kind in GATED:
                assert acts == [self.allowed.get(n)], (kind, n)
            elif kind in NEEDED:
                assert self.replies.get(n, 0) >= NEEDED[kind]
            else:
                assert kind in ("plain", "flaky", "slow")

    @invariant()
    def p3_each_side_effect_happened_once(self) -> None:
        """Also with Retry around, and steps in bodies that ask."""
        assert all(len(acts) == 1 for acts in self.world.acted.values())

    @invariant()
    def p9_results_are_in_call_order_and_p12_no_model_saw_a_dangling_call(self) -> None:
        """The doubles refuse what a server would."""
        stored = self.run.journal
        assert "refuses the request" not in "".join(map(events.dump, stored))
        order = [
            c.id for e in stored if e.type == "model_responded" and not e.scope for c in e.calls
        ]
        told = [p["id"] for m in self.run.messages if m["role"] == "tool" for p in m["content"]]
        assert told == order[: len(told)]
        calls = list(self.run._journal.state.calls)
        by_call = [
            (e.scope or (e.call_id,))[0] for e in self.run._journal.state.pending if e.call_id
        ]
        assert by_call == sorted(by_call, key=calls.index)

    @invariant()
    def the_journal_only_grows_and_replays_to_the_same_state(self) -> None:
        """Also through JSON."""
        journal = self.run.journal
        assert journal[: len(self.past)] == self.past
        self.past = journal
        state, again = self.run._journal.state, replayed(journal)
        assert again == state
        assert next_step(again) == next_step(state)

    @invariant()
    def what_is_paused_is_the_same_after_its_messages_went_through_json(self) -> None:
        """The same questions, at every depth."""
        state = self.run._journal.state
        if state.outcome is None and not self.open_slow and state.calls:
            again = restore(load(json.loads(json.dumps(self.run.messages))))
            assert again.pending == [e for e in state.pending if e != state.budget]
            assert next_step(again) == next_step(replace(state, budget=None))

    @invariant()
    def p7_headless_never_hangs(self) -> None:
        """A settled run says so, and awaiting one that is paused raises."""
        if self.run.status == "interrupted":
            with pytest.raises(nb.HumanInputRequired) as caught:
                self.loop.run_until_complete(asyncio.wait_for(self.run._wait(), 30))
            assert list(caught.value.interrupts) == self.waiting

    def teardown(self) -> None:
        """Every run comes to its end, and a cancelled one to that."""
        if hasattr(self, "run"):
            if self.cancels:
                self.loop.run_until_complete(asyncio.wait_for(self.run.cancel(), 30))
                assert self.run.status in ("cancelled", "completed")
            self._finish()
            self.p1_nothing_refused_or_unanswered_ran_and_p5_what_was_approved_is_what_ran()
            self.p3_each_side_effect_happened_once()
            self.the_journal_only_grows_and_replays_to_the_same_state()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _finish(self) -> None:
        while self.run.status in ("interrupted", "running"):
            for n in self.open_slow:
                self.world.slow[n].set_result("slowly")
            for i in self.waiting:
                resolution = self.resolution(i, "respond")
                self.run.resolve(i, resolution)
                self.took(i, resolution)
            self.quiet()
        if not self.cancels:
            assert self.run.status == "completed", self.run.journal[-1]
            self.model.check()


def test_promises_hold_for_any_schedule_of_the_whole_engine():
    """Random turns, agents inside, middleware, answers and orders."""
    run_state_machine_as_test(
        AnySchedule,
        settings=settings(
            max_examples=60,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- the same on all paths


def bare(messages: Any) -> Any:
    """A history without what differs from run to run: ids and times of interrupts."""
    plain = json.loads(json.dumps(messages))
    for item in plain:
        for part in item["content"]:
            for record in part.get("nbagent", ()):
                del record["interrupt"], record["at"]
            part.get("nbagent", []).sort(key=json.dumps)
    return plain


def decided(i: nb.PendingInterrupt, decisions: list[str]) -> Any:
    """The resolution of an interrupt, by its call's number."""
    decision = decisions[i.input["n"] % len(decisions)]
    if decision == "reject":
        return nb.Reject(reason="no")
    if decision == "respond" or not i.restartable:
        return nb.Respond(output="answered")
    return nb.Restart(input={"n": i.input["n"] % EDIT + EDIT} if decision == "edit" else None)


async def played_live(world: World, script: Any, decisions: list[str]) -> Any:
    """Messages of a live run."""
    model = nb.ScriptedModel([*map(requested, script), "done"])
    run = world.agent(model).run("go", store=nb.MemoryStore())
    while (await run.settled()).interrupts:
        for i in run.interrupts:
            run.resolve(i, decided(i, decisions))
    return (await run).messages


async def played_step_by_step(world: World, script: Any, decisions: list[str]) -> Any:
    """The same by generate, through JSON into a fresh agent at every pause."""
    model = nb.ScriptedModel([*map(requested, script), "done"])
    response = await world.agent(model).generate("go")
    lists = {
        nb.Respond: "tool_responses",
        nb.Restart: "tool_restarts",
        nb.Reject: "tool_rejections",
    }
    while response.interrupts:
        messages = json.loads(json.dumps(response.messages))
        agent = world.agent(model)
        replies: dict[str, list[Any]] = {}
        for i in agent.interrupts(messages):
            resolution = decided(i, decisions)
            replies.setdefault(lists[type(resolution)], []).append((i, resolution))
        response = await agent.generate(messages=messages, **replies)
    return response.messages


QUICK = st.sampled_from([kind for kind in FLAT if kind not in ("slow", "flaky", "timed")])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=st.lists(
        st.lists(QUICK | st.lists(QUICK, min_size=1, max_size=3), min_size=1, max_size=3),
        max_size=2,
    ),
    decisions=st.lists(st.sampled_from(["respond", "restart", "edit", "reject"]), min_size=1),
    middleware=st.sampled_from(list(MIDDLEWARE)),
)
def test_live_and_through_json_come_to_the_same_history(turns, decisions, middleware):
    """With agents inside, questions in the middle and steps; and to the same acts."""
    counter = iter(range(EDIT))
    script = [numbered(turn, counter) for turn in turns]
    live, steps = World(middleware), World(middleware)
    one = asyncio.run(played_live(live, script, decisions))
    two = asyncio.run(played_step_by_step(steps, script, decisions))
    assert bare(one) == bare(two)
    assert live.acted == steps.acted
