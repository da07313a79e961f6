"""The promises of DESIGN, on random turns, random answers and random orders."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
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
from nbagent.core.state import RunState, apply, next_step

call = nb.ScriptedModel.call
KINDS = ["plain", "plain_sync", "failing", "gate", "gate_sync", "sly", "ask", "slow", "stream"]
NEED_ANSWERS = ("gate", "gate_sync", "sly", "ask")
WRONG: list[Any] = [None, 5, "x", {}, [], True, "approve", nb.Restart, {"type": "restart"}]


class World:
    """Tools whose every act is written down by call, and slow ones that wait for the test."""

    def __init__(self) -> None:
        self.acted: dict[str, list[int]] = {}
        self.slow: dict[str, asyncio.Future[str]] = {}

    def act(self, ctx: nb.ToolContext, n: int) -> str:
        """Do what cannot be undone."""
        self.acted.setdefault(ctx.call_id, []).append(n)
        return f"did {n}"

    def agent(self, model: nb.ScriptedModel) -> nb.Agent:  # noqa: C901 - a list of tools
        """An agent with one tool of every kind."""
        agent = nb.Agent(model, max_turns=1000)
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        async def plain(n: int, ctx: nb.ToolContext) -> str:
            return self.act(ctx, n)

        @agent.tool
        def plain_sync(n: int, ctx: nb.ToolContext) -> str:
            return self.act(ctx, n)

        @agent.tool
        def failing(n: int, ctx: nb.ToolContext) -> str:
            self.act(ctx, n)
            raise RuntimeError("broken on purpose")

        @agent.tool
        async def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n})
            return self.act(ctx, n)

        @agent.tool
        def gate_sync(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                raise nb.Interrupt({"n": n})
            return self.act(ctx, n)

        @agent.tool
        def sly(n: int, ctx: nb.ToolContext) -> str:
            """Swallow its own pause: a pause is sticky."""
            try:
                if not ctx.resumed:
                    ctx.interrupt({"n": n})
            except BaseException:
                return "as if nobody had to be asked"
            return self.act(ctx, n)

        @agent.tool
        async def slow(n: int, ctx: nb.ToolContext) -> str:
            self.slow[ctx.call_id] = asyncio.get_running_loop().create_future()
            told = await self.slow[ctx.call_id]
            self.act(ctx, n)
            return told

        @agent.tool
        async def stream(n: int, ctx: nb.ToolContext):
            yield "did "
            yield str(n)
            self.act(ctx, n)

        return agent


def script(turns: list[list[str]]) -> nb.ScriptedModel:
    """A model that asks for these kinds of calls, turn by turn, each with a number of its own."""
    numbers = iter(range(10_000))
    return nb.ScriptedModel([*([call(k, n=next(numbers)) for k in turn] for turn in turns), "done"])


def replayed(journal: list[events.StoredEvent]) -> RunState:
    """The state that the journal's JSON stands for."""
    state = RunState()
    for event in journal:
        state = apply(state, events.parse(events.dump(event)))
    return state


TURNS = st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5), min_size=1, max_size=3)


class AnySchedule(RuleBasedStateMachine):
    """One live run, driven by whatever order hypothesis thinks of."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.allowed: dict[str, int] = {}
        """By call: the input that an accepted restart lets run."""
        self.answered: list[str] = []
        self.past: list[events.StoredEvent] = []

    @initialize(turns=TURNS)
    def start(self, turns: list[list[str]]) -> None:
        """Begin a run."""
        self.model = script(turns)
        self.agent = self.world.agent(self.model)
        self.loop.run_until_complete(self._start())
        self.quiet()

    async def _start(self) -> None:
        self.run = self.agent.run("go", store=nb.MemoryStore())

    def quiet(self) -> None:
        """Let everything happen that can happen by itself."""
        self.loop.run_until_complete(asyncio.wait_for(self._quiet(), 30))

    async def _quiet(self) -> None:
        while self._busy():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _busy(self) -> bool:
        open_ = {i for i, f in self.world.slow.items() if not f.done()}
        calls = self.run._journal.state.calls.values()
        if self.run.status != "running":
            return self.run._drive.active
        return (
            not calls
            or any(c.status == "ready" for c in calls)
            or not ({c.id for c in calls if c.status == "running"} <= open_)
        )

    @property
    def waiting(self) -> list[nb.PendingInterrupt]:
        """What can be answered."""
        return self.run.interrupts

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def respond(self, data: st.DataObject) -> None:
        """Answer in the tool's place."""
        i = data.draw(st.sampled_from(self.waiting), label="interrupt")
        self.run.respond(i, "answered")
        self._answered(i)

    @precondition(lambda self: any(i.restartable for i in self.waiting))
    @rule(data=st.data(), edited=st.booleans())
    def restart(self, data: st.DataObject, edited: bool) -> None:
        """Approve, as shown or with another input."""
        i = data.draw(st.sampled_from([i for i in self.waiting if i.restartable]))
        shown = i.input["n"]
        self.allowed[i.call_id] = shown + 5000 if edited else shown
        self.run.restart(i, new_input={"n": shown + 5000} if edited else None)
        self._answered(i)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        """Refuse."""
        i = data.draw(st.sampled_from(self.waiting))
        self.run.reject(i, "no")
        self._answered(i)

    def _answered(self, i: nb.PendingInterrupt) -> None:
        assert i.id not in [p.id for p in self.waiting], "an accepted answer counts at once"
        self.answered.append(i.id)
        self.quiet()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), wrong=st.sampled_from(WRONG))
    def p4_a_bad_answer_changes_nothing(self, data: st.DataObject, wrong: Any) -> None:
        """Refused, journal as it was, still pending."""
        i = data.draw(st.sampled_from(self.waiting))
        before = self.run.journal
        with pytest.raises(nb.InvalidAnswer):
            self.run.resolve(i, wrong)
        with pytest.raises(nb.InvalidAnswer):
            self.run.respond(i, {"not": "a text"})
        with pytest.raises(nb.InvalidAnswer):
            self.run.restart(i, new_input={"m": 1})
        assert self.run.journal == before
        assert i.id in [p.id for p in self.waiting]

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def p2_a_second_answer_is_a_conflict(self, data: st.DataObject) -> None:
        """Whatever it says, and however long after."""
        i = data.draw(st.sampled_from(self.answered))
        before = self.run.journal
        for again in (nb.Respond(output="x"), nb.Restart(), nb.Reject()):
            with pytest.raises(nb.Conflict, match="answered already"):
                self.run.resolve(i, again)
        assert self.run.journal == before

    @rule(i=st.sampled_from(["", "call_1", "nonsense"]))
    def an_unknown_id_is_not_found(self, i: str) -> None:
        """Nothing runs."""
        with pytest.raises(nb.NotPending):
            self.run.restart(i)

    @precondition(lambda self: self.open_slow)
    @rule(data=st.data(), fails=st.booleans())
    def a_slow_tool_ends(self, data: st.DataObject, fails: bool) -> None:
        """Well or badly."""
        future = self.world.slow[data.draw(st.sampled_from(self.open_slow))]
        if fails:
            future.set_exception(OSError("gone"))
        else:
            future.set_result("slowly")
        self.quiet()

    @property
    def open_slow(self) -> list[str]:
        """Slow calls that wait for the test."""
        return [i for i, f in self.world.slow.items() if not f.done()]

    @invariant()
    def p1_what_is_not_approved_never_runs_and_p5_what_was_seen_is_what_runs(self) -> None:
        """A gated body acts only on an accepted restart, and on that input."""
        for call_id, acts in self.world.acted.items():
            name, proposed = self.proposed(call_id)
            if name in NEED_ANSWERS:
                assert acts == [self.allowed.get(call_id)]
            else:
                assert acts == [proposed]

    @invariant()
    def p3_nothing_runs_twice(self) -> None:
        """Each body acts at most once."""
        assert all(len(acts) == 1 for acts in self.world.acted.values())

    def proposed(self, call_id: str) -> tuple[str, int]:
        """A call's tool and the model's input."""
        for one in self.all_calls:
            if one.id == call_id:
                return one.name, one.input["n"]
        raise KeyError(call_id)

    @property
    def all_calls(self) -> list[events.CallRequested]:
        """Every call so far, in the model's order."""
        return [c for e in self.run.journal if e.type == "model_responded" for c in e.calls]

    @invariant()
    def p9_interrupts_and_results_are_in_call_order(self) -> None:
        """Whatever was answered or finished first."""
        order = [c.id for c in self.all_calls]
        pending = [order.index(i.call_id) for i in self.waiting]
        assert pending == sorted(pending)
        told = [p["id"] for m in self.run.messages if m["role"] == "tool" for p in m["content"]]
        assert told == order[: len(told)]

    @invariant()
    def the_journal_only_grows_and_replays_to_the_same_state(self) -> None:
        """Also through JSON."""
        journal = self.run.journal
        assert journal[: len(self.past)] == self.past
        self.past = journal
        state, again = self.run._journal.state, replayed(journal)
        assert json.dumps(again.messages) == json.dumps(state.messages)
        for name in ("position", "turns", "limit", "used_ids", "settled", "calls", "outcome"):
            assert getattr(again, name) == getattr(state, name), name
        assert next_step(again) == next_step(state)

    @invariant()
    def p7_headless_never_hangs(self) -> None:
        """Awaiting a paused run raises at once, and it stays paused."""
        if self.run.status == "interrupted":
            with pytest.raises(nb.HumanInputRequired) as caught:
                self.loop.run_until_complete(asyncio.wait_for(self._awaited(), 30))
            assert list(caught.value.interrupts) == self.waiting
            assert caught.value.run_id == self.run.id
            assert self.run.status == "interrupted"

    async def _awaited(self) -> nb.Result:
        return await self.run

    @invariant()
    def p12_the_model_never_sees_a_dangling_call(self) -> None:
        """The double refuses one, and then the run fails."""
        assert self.run.status != "failed", self.run.journal[-1]

    def teardown(self) -> None:
        """Answer all that is open: every run comes to its end."""
        if hasattr(self, "run"):
            while self.run.status in ("interrupted", "running"):
                for i in self.open_slow:
                    self.world.slow[i].set_result("slowly")
                for i in self.waiting:
                    self.run.respond(i, "at last")
                self.quiet()
            assert self.run.status == "completed"
            self.p11_a_failing_tool_keeps_its_siblings()
            self.model.check()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def p11_a_failing_tool_keeps_its_siblings(self) -> None:
        """Every call has exactly one result, a failure only its own."""
        results = {p["id"]: p for m in self.run.messages for p in m["content"] if "output" in p}
        assert list(results) == [c.id for c in self.all_calls]
        gated = [c.id for c in self.all_calls if c.name in NEED_ANSWERS]
        assert all("nbagent" in results[i] for i in gated), "P1: a result that nobody answered for"
        for one in self.all_calls:
            if one.name == "failing":
                assert "broken on purpose" in results[one.id]["output"]
            elif one.name in ("plain", "plain_sync", "stream"):
                assert results[one.id]["output"] == f"did {one.input['n']}"


def test_promises_p1_p2_p3_p4_p5_p7_p9_p11_p12_hold_for_any_schedule():
    """Random turns, tools, answers and orders."""
    run_state_machine_as_test(
        AnySchedule,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


DECISIONS = st.lists(st.sampled_from(["respond", "restart", "edit", "reject"]), min_size=1)


def bare(messages: Any) -> Any:
    """A history without what differs from run to run: ids and times of interrupts."""
    plain = json.loads(json.dumps(messages))
    for item in plain:
        for part in item["content"]:
            for record in part.get("nbagent", ()):
                del record["interrupt"], record["at"]
    return plain


def decide(i: nb.PendingInterrupt, decision: str) -> Any:
    """The resolution of a decision that fits this interrupt."""
    if decision == "reject":
        return nb.Reject(reason="no")
    if decision == "respond" or not i.restartable:
        return nb.Respond(output="answered")
    return nb.Restart(input={"n": i.input["n"] + 5000} if decision == "edit" else None)


async def played_live(turns: list[list[str]], decisions: list[str]) -> Any:
    """Messages of a live run; each call's decision is told by its number."""
    run = World().agent(script(turns)).run("go", store=nb.MemoryStore())
    while (await run.settled()).interrupts:
        for i in run.interrupts:
            run.resolve(i, decide(i, decisions[i.input["n"] % len(decisions)]))
    return (await run).messages


async def played_step_by_step(turns: list[list[str]], decisions: list[str]) -> Any:
    """The same by generate, through JSON into a fresh agent at every pause."""
    model = script(turns)
    response = await World().agent(model).generate("go")
    while response.interrupts:
        messages = json.loads(json.dumps(response.messages))
        agent = World().agent(model)
        replies: dict[str, list[Any]] = {}
        names = {
            nb.Respond: "tool_responses",
            nb.Restart: "tool_restarts",
            nb.Reject: "tool_rejections",
        }
        for i in agent.interrupts(messages):
            resolution = decide(i, decisions[i.input["n"] % len(decisions)])
            replies.setdefault(names[type(resolution)], []).append((i, resolution))
        response = await agent.generate(messages=messages, **replies)
    return response.messages


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=st.lists(
        st.lists(st.sampled_from([k for k in KINDS if k != "slow"]), min_size=1, max_size=4),
        max_size=3,
    ),
    decisions=DECISIONS,
)
def test_promises_hold_alike_live_and_through_json(turns, decisions):
    """The same turns and answers give the same history on both paths."""
    live = asyncio.run(played_live(turns, decisions))
    steps = asyncio.run(played_step_by_step(turns, decisions))
    assert bare(live) == bare(steps)


# --- P5: what you saw is what runs


def gate_of(agent: nb.Agent, kind: str, ran: list[Any]) -> None:
    """Define (again) a gate, with another body or another schema."""
    if kind == "other schema":

        def gate(n: int, ctx: nb.ToolContext, force: bool = True) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"s": 1}, editable=["n"])
            ran.append((kind, n, force, ctx.state))
            return "ran"
    else:

        def gate(n: int, ctx: nb.ToolContext) -> str:  # type: ignore[misc]
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"s": 1}, editable=["n"])
            ran.append((kind, n, ctx.state))
            return "ran"

    agent.tools.pop("gate", None)
    agent.add(nb.tool(gate))


async def test_p5_a_tool_with_another_schema_is_asked_about_again():
    """An approval of the old one does not count; the new pause says why and keeps what it had."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    first = run.interrupts[0]
    gate_of(agent, "other schema", ran)
    run.restart(first)
    await run.settled()
    (again,) = run.interrupts
    assert ran == []
    assert again.id != first.id
    assert "changed" in (again.note or "")
    assert (again.metadata, again.state, again.editable) == ({"n": 1}, {"s": 1}, ("n",))
    assert again.digest != first.digest
    run.restart(again)
    await run
    assert ran == [("other schema", 1, True, {"s": 1})]


async def test_p5_a_tool_with_another_body_runs_its_newest_body():
    """The schema is what was shown; the body is the person's own cell."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    gate_of(agent, "second", ran)
    run.restart(run.interrupts[0])
    await run
    assert ran == [("second", 1, {"s": 1})]


async def test_p5_a_history_changed_after_the_pause_runs_what_was_shown():
    """Another input smuggled into the saved call does not ride on the approval."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    paused = await agent.generate("go")
    messages = json.loads(json.dumps(paused.messages))
    messages[-1]["content"][0]["input"] = {"n": 666}
    messages[-1]["content"][0]["nbagent"]["input"] = {"n": 667}
    (i,) = agent.interrupts(messages)
    assert i.input == {"n": 1}
    await agent.generate(messages=messages, tool_restarts=[nb.tool_restart(i)])
    assert ran == [("first", 1, {"s": 1})]


async def test_p5_key_order_of_a_store_does_not_void_an_approval():
    """A database may give a JSON object back in another order."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("two", b=1, a=2), "done"]))

    @agent.tool
    def two(b: int, a: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        ran.append((a, b))
        return "ok"

    paused = await agent.generate("go")
    messages = json.loads(json.dumps(paused.messages, sort_keys=True))
    done = await agent.generate(
        messages=messages, tool_restarts=[nb.tool_restart(agent.interrupts(messages)[0])]
    )
    assert ran == [(2, 1)]
    assert done.messages[2]["content"][0]["output"] == "ok"


# --- P1: fail closed


@pytest.mark.parametrize(
    "record",
    [
        {"status": "running"},
        {"status": "waiting"},
        {"status": "done"},
        {"status": "yes"},
        {"status": None},
        {"status": "ready", "resumed": {"data": None}},
        {"status": "waiting", "pause": {"id": "x"}},
        {
            "status": "done",
            "result": {"id": "other", "type": "tool_result", "name": "gate", "output": 1},
        },
        "approved",
        ["ready"],
    ],
    ids=repr,
)
async def test_p1_a_malformed_record_of_a_pause_is_refused(record):
    """A history that was tampered with runs nothing and calls no model."""
    ran: list[Any] = []
    model = nb.ScriptedModel([])
    agent = nb.Agent(model)
    gate_of(agent, "first", ran)
    part = {"type": "tool_call", "id": "c", "name": "gate", "input": {"n": 1}, "nbagent": record}
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [part]}]
    with pytest.raises(nb.NbagentError, match="record of the open call 'c'"):
        await agent.generate(messages=history)
    assert (ran, model.requests) == ([], [])


# --- P2: exactly once


@pytest.mark.parametrize("kind", ["respond", "restart", "reject"])
async def test_p2_of_twenty_threads_that_answer_at_once_one_wins(kind):
    """The others are told who won; the body runs at most once."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    gate_of(agent, "first", ran)
    run = await agent.run("go").settled()
    (i,) = run.interrupts
    answer = {
        "respond": lambda k: run.respond(i, f"by {k}"),
        "restart": lambda _: run.restart(i),
        "reject": lambda k: run.reject(i, f"by {k}"),
    }[kind]

    def attempt(k: int) -> str:
        try:
            answer(k)
        except nb.Conflict as error:
            return f"lost: {error}"
        return "won"

    with ThreadPoolExecutor(20) as pool:
        waiting = [asyncio.wrap_future(pool.submit(attempt, k)) for k in range(20)]
        outcomes = await asyncio.gather(*waiting)
    lost = [one for one in outcomes if one != "won"]
    assert len(lost) == 19
    assert all("answered already" in one for one in lost)
    await run
    assert len(ran) == (kind == "restart")
    assert [e.type for e in run.journal].count("resolved") == 1


# --- P7: headless never hangs


async def test_p7_the_error_names_the_interrupt_and_its_schema_and_the_run_stays_paused():
    """And it can be answered later."""
    agent = nb.Agent(nb.ScriptedModel([call("ask", q="beer?"), "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = agent.run("go")
    with pytest.raises(nb.HumanInputRequired) as caught:
        await run
    text = str(caught.value)
    for word in ("ask", run.interrupts[0].id, "beer?", "'string'", "answers="):
        assert word in text
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], "yes")
    assert (await run).text == "done"


ANSWERS = {
    "list": ["b", True],
    "by tool": {"ask": "b", "gate": True},
    "by tool, in order": {"ask": ["b"], "gate": [nb.Restart()]},
    "by tool, computed": {"ask": lambda i: i.input["q"], "gate": nb.Restart()},
    "computed": lambda i: "b" if i.tool_name == "ask" else nb.Restart(),
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
async def test_p7_answers_stand_in_for_a_person(answers):
    """A list in order, by tool, or computed."""
    ran: list[Any] = []
    agent = nb.Agent(nb.ScriptedModel([[call("ask", q="b"), call("gate", n=1)], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    gate_of(agent, "first", ran)
    run = agent.run("go", answers=answers)
    assert (await run).text == "done"
    assert run.calls["ask"][0].output == "b"
    assert len(ran) == 1
    assert {e.by for e in run.journal if e.type == "resolved"} == {"answers="}


async def test_p7_answers_that_run_out_leave_the_run_paused():
    """The rest is for a person."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("ask")]]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = agent.run("go", answers=["first"])
    with pytest.raises(nb.HumanInputRequired) as caught:
        await run
    assert [i.call_id for i in caught.value.interrupts] == ["call_2"]


@pytest.mark.parametrize(
    "answers", [[5], {"ask": 5}, lambda _i: 1 / 0], ids=["misfit", "by tool", "raises"]
)
async def test_p7_a_bad_prepared_answer_is_raised_where_the_run_is_awaited(answers):
    """Not swallowed, and the run stays paused to be answered well."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("slow")], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    async def slow() -> str:
        await asyncio.sleep(0.02)
        return "slow"

    run = agent.run("go", answers=answers)
    with pytest.raises((nb.InvalidAnswer, ZeroDivisionError)):
        await run
    assert run.calls["slow"][0].output == "slow"
    assert run.status == "interrupted"
    run.respond(run.interrupts[0], "good")
    assert (await run).text == "done"


async def test_p7_prepared_answers_are_never_used_beside_a_form():
    """With a person attached, the person answers."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    run = await agent.run("go", answers=["robot"], attended=True, show=False).settled()
    assert run.status == "interrupted"
    waiting = asyncio.ensure_future(run._wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    run.respond(run.interrupts[0], "person")
    await waiting
    assert run.calls["ask"][0].output == "person"


# --- P11 and cancelling tools


class OddError(BaseException):
    """No Exception: what some libraries raise to get past everybody."""


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError("a pool went away"),
        OddError("odd"),
        ExceptionGroup("g", [ValueError("in")]),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_p11_whatever_a_tool_raises_is_its_own_failure(error, alone, is_async):
    """The siblings and the run go on."""
    agent = nb.Agent(nb.ScriptedModel([[call("odd"), *([] if alone else [call("ok")])], "done"]))

    @agent.tool
    async def ok() -> str:
        await asyncio.sleep(0)
        return "ok"

    if is_async:

        @agent.tool
        async def odd() -> str:
            raise error
    else:

        @agent.tool(name="odd")
        def odd_sync() -> str:
            raise error

    run = agent.run("go")
    assert (await asyncio.wait_for(run.settled(), 10)).status == "completed"
    assert type(error).__name__ in run.calls["odd"][0].output


async def in_group(pause: Any) -> None:
    """A task group wraps what its tasks raise."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(pause())


async def in_task(pause: Any) -> None:
    """A task of its own."""
    await asyncio.create_task(pause())


async def gathered(pause: Any) -> None:
    """One of several."""
    await asyncio.gather(asyncio.sleep(0), pause())


async def as_cause(pause: Any) -> None:
    """Another error raised from it."""
    try:
        await pause()
    except nb.Interrupt as found:
        raise ValueError("wrapped") from found


async def as_context(pause: Any) -> None:
    """Another error raised while it was handled."""
    try:
        await pause()
    except nb.Interrupt:
        raise ValueError("wrapped")  # noqa: B904 - the context is what is tested


@pytest.mark.parametrize("wrap", [in_group, in_task, gathered, as_cause, as_context])
async def test_p1_a_pause_is_found_however_it_is_wrapped(wrap):
    """The call waits, and nothing is told to the model."""
    ran: list[int] = []
    agent = nb.Agent(nb.ScriptedModel([call("gate"), "done"]))

    async def pause() -> None:
        await asyncio.sleep(0)
        raise nb.Interrupt({"why": "wrapped"})

    @agent.tool
    async def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            await wrap(pause)
        ran.append(1)
        return "ok"

    run = await agent.run("go").settled()
    assert [i.metadata for i in run.interrupts] == [{"why": "wrapped"}]
    assert ran == []
    run.restart(run.interrupts[0])
    assert (await run).text == "done"
