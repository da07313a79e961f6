"""Answers through the stored record alone: they act like answers to the run, or are refused before a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, SecretStr

import nbagent as nb
from nbagent.core.base.events import Resolved, StoredEvent, ToolStarted
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.process import this_process
from nbagent.core.call.questions import reply_types
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import AnyResolution, interrupts_of
from nbagent.core.stored import opening
from nbagent.core.stored.opening import answer_by_record

call = nb.ScriptedModel.call
STAMP = ("command line", 2_000_000_000.0)


def even(number: int) -> int:
    """A check that JSON Schema cannot express."""
    if number % 2:
        raise ValueError("should be even")
    return number


class Seat(BaseModel):
    """A typed answer."""

    row: int
    when: str = "now"


class Office:
    """An agent with a tool of each kind, and a log of their work."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.did: list[Any] = []
        self.agent = nb.Agent(nb.ScriptedModel([*script, "done"]), name="office", **options)
        self._gates()
        self._questions()

    def _gates(self) -> None:
        did, tool = self.did, self.agent.tool

        @tool(approval=True)
        def send(n: int) -> str:
            did.append(("send", n))
            return f"sent {n}"

        @tool(approval=True, editable=["n"])
        def pay(n: Annotated[int, AfterValidator(even)], to: str = "Bob") -> str:
            did.append(("pay", n, to))
            return f"paid {n} to {to}"

        @tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"quote": n})
            did.append(("gate", n, ctx.state, ctx.resumed.data))
            return "acted"

        @tool
        def act(n: int) -> str:
            did.append(("act", n))
            return f"did {n}"

    def _questions(self) -> None:
        did, tool = self.did, self.agent.tool
        self.agent.add(nb.interrupt_tool("seat", output=Seat))

        @tool
        async def colors(ctx: nb.ToolContext) -> str:
            color = await ctx.ask(nb.Choose(message="Which?", choices=["red", "blue"]), reply=str)
            did.append(("colors", color))
            return color

        @tool
        async def evens(ctx: nb.ToolContext) -> int:
            number = await ctx.ask("How many?", reply=Annotated[int, AfterValidator(even)])
            did.append(("evens", number))
            return number

        @tool
        async def login(ctx: nb.ToolContext) -> str:
            await ctx.ask("Password?", reply=SecretStr)
            return "in"

        @tool
        async def sure(ctx: nb.ToolContext) -> bool:
            agreed = await ctx.ask(nb.Confirm(message="Sure?"), reply=bool)
            did.append(("sure", agreed))
            return agreed

        @tool
        def bank(ctx: nb.ToolContext) -> int:
            ctx.interrupt({"waits for": "the bank"}, external=True)
            return 0


def answer(
    store: nb.Store, run_id: str, say: Callable[[PendingInterrupt], AnyResolution]
) -> Resolved:
    """Answer a run's only question as a process without an agent does."""
    journal = Journal(run_id, store)
    journal.catch_up()
    [asked] = interrupts_of(journal.state, {}, journal.state.agent)
    reply_types.pop(asked.id, None)  # another process has no types
    return answer_by_record(journal, asked.id, say(asked), STAMP)


async def waiting_run(*script: Any, gone: str = "", **options: Any) -> tuple[Office, nb.Run]:
    """A waiting run; with ``gone``, a run whose call was started by that ended process."""
    office = Office(*script, **options)
    run = await office.agent.run("go", attended=False, show=False).settled()
    if not gone:
        return office, run
    events = list(run.journal)
    last = max(n for n, event in enumerate(events) if isinstance(event, ToolStarted))
    events[last] = events[last].model_copy(update={"owner": gone})
    store = nb.MemoryStore()
    store.append("lost", events[: last + 1], 0)
    again = Office(**options)
    lost = await nb.open_run("lost", agent=again.agent, store=store, attended=False, show=False)
    await lost.settled()
    return again, lost


async def test_an_answer_leaves_the_run_to_the_process_that_is_working_on_it() -> None:
    """On another machine, where a call of the same turn still runs; the next process does not take the run over."""
    _, run = await waiting_run([call("send", n=1), call("act", n=2)])
    far = "far:1:1:far"
    events = [event for event in run.journal if event.type != "tool_finished"]
    store = nb.MemoryStore()
    store.append("far", [replace(e, owner=far) if hasattr(e, "owner") else e for e in events], 0)
    assert answer(store, "far", lambda _: nb.Restart()).owner == far


SAID: list[tuple[str, Any, dict[str, Any], AnyResolution]] = [
    ("approve", call("send", n=1), {}, nb.Restart()),
    ("reject", call("send", n=1), {}, nb.Reject("no")),
    ("instead", call("send", n=1), {}, nb.Respond("sent elsewhere")),
    ("failed", call("send", n=1), {}, nb.Respond(error="the bank is closed")),
    ("change", call("pay", n=2), {}, nb.Restart({"n": 4})),
    ("as shown", call("pay", n=2), {}, nb.Restart()),
    ("pause", call("gate", n=1), {}, nb.Restart(data={"ok": True})),
    ("pause instead", call("gate", n=1), {}, nb.Respond("never mind")),
    ("question", call("seat"), {}, nb.Respond({"row": 3, "when": "noon"})),
    ("question rejected", call("seat"), {}, nb.Reject()),
    ("choice", call("colors"), {}, nb.Respond("blue")),
    ("ask", call("evens"), {}, nb.Respond(4)),
    ("confirmation", call("sure"), {}, nb.Respond(True)),
    ("confirmation rejected", call("sure"), {}, nb.Reject("wait")),
    ("external", call("bank"), {}, nb.Respond(7)),
    ("external failed", call("bank"), {}, nb.Respond(error="no money")),
    ("budget", call("act", n=1), {"max_turns": 1}, nb.Respond(3)),
    ("lost runs again", call("act", n=1), {"gone": True}, nb.Restart()),
    ("lost result", call("act", n=1), {"gone": True}, nb.Respond("did it")),
    ("lost failed", call("act", n=1), {"gone": True}, nb.Reject("it failed")),
]


@pytest.mark.parametrize(
    ("script", "options", "said"), [x[1:] for x in SAID], ids=[x[0] for x in SAID]
)
async def test_c290_an_answer_by_the_record_has_the_same_effect_as_in_the_run(
    script: Any, options: dict[str, Any], said: AnyResolution, ended_process: str
) -> None:
    """For each kind of question, the bodies' work, the model's input and the run's end are compared."""
    options = {**options, "gone": ended_process} if options.get("gone") else options
    live_office, live = await waiting_run(script, **options)
    office, waiting = await waiting_run(script, **options)
    [asked] = live.interrupts
    await live.resolve(asked.id, said)
    events = list(waiting.journal)
    store = nb.MemoryStore()
    store.append("copy", events, 0)
    event = answer(store, "copy", lambda _: said)
    assert (event.by, event.owner) == ("command line", "")
    again = Office(max_turns=options.get("max_turns", 10))
    run = await nb.open_run("copy", agent=again.agent, store=store, attended=False, show=False)
    assert (await run).text == (await live).text
    assert [m["content"] for m in without_ids(run)] == [m["content"] for m in without_ids(live)]
    assert office.did + again.did == live_office.did


def without_ids(run: nb.Run) -> list[dict[str, Any]]:
    """The messages without ids and times."""
    keep = ("type", "text", "output", "error", "name", "input")
    return [
        {"content": [{k: part[k] for k in keep if k in part} for part in message["content"]]}
        for message in run.messages
    ]


WRONG: list[tuple[str, Any, AnyResolution, str]] = [
    (
        "fixed field",
        call("pay", n=2),
        nb.Restart({"n": 2, "to": "Eve"}),
        "'pay' does not allow new values of to",
    ),
    (
        "fixed input",
        call("send", n=1),
        nb.Restart({"n": 2}),
        "'send' does not allow new values of n",
    ),
    ("misfit input", call("pay", n=2), nb.Restart({"n": "many"}), "does not match its schema"),
    ("misfit value", call("seat"), nb.Respond({"row": "first"}), "does not match its schema"),
    ("unoffered choice", call("evens"), nb.Respond("many"), "does not match its schema"),
    ("no function", call("seat"), nb.Restart(), "no function"),
    ("remembered", call("send", n=1), nb.Restart(remember="tool"), "cannot be remembered"),
    ("a secret", call("login"), nb.Respond("hunter2"), "[Ss]ecrets are never stored"),
]


@pytest.mark.parametrize(
    ("script", "said", "why"), [x[1:] for x in WRONG], ids=[x[0] for x in WRONG]
)
async def test_c291_an_answer_that_the_record_shows_to_be_wrong_is_refused_and_not_stored(
    script: Any, said: AnyResolution, why: str
) -> None:
    """An answer may change only the offered fields, and may contain no secret."""
    _office, run = await waiting_run(script)
    store = nb.MemoryStore()
    store.append("copy", list(run.journal), 0)
    with pytest.raises(nb.errors.InvalidAnswer, match=why) as refused:
        answer(store, "copy", lambda _: said)
    assert "hunter2" not in str(refused.value)
    assert len(store.read("copy")) == len(run.journal)


@pytest.mark.parametrize(
    ("script", "wrong", "right", "did"),
    [
        (call("pay", n=2), nb.Restart({"n": 3}), nb.Restart({"n": 6}), ("pay", 6, "Bob")),
        (call("evens"), nb.Respond(3), nb.Respond(6), ("evens", 6)),
    ],
    ids=["input", "ask"],
)
async def test_c292_an_answer_that_only_the_tool_refuses_is_asked_again_with_the_error(
    script: Any, wrong: AnyResolution, right: AnyResolution, did: Any
) -> None:
    """JSON Schema cannot express the check: the wrong input never runs, and the person can correct it."""
    _office, run = await waiting_run(script)
    store = nb.MemoryStore()
    store.append("copy", list(run.journal), 0)
    answer(store, "copy", lambda _: wrong)
    again = Office()
    opened = await nb.open_run("copy", agent=again.agent, store=store, attended=False, show=False)
    await opened.settled()
    [asked] = opened.interrupts
    assert "should be even" in (asked.note or "")
    assert again.did == []
    await opened.resolve(asked.id, right)
    assert (await opened).text == "done"
    assert again.did == [did]


async def test_c293_a_handle_that_waits_elsewhere_continues_by_itself() -> None:
    """A handle follows its store, so the answer needs no notification."""
    office, run = await waiting_run(call("send", n=1))
    event = answer(run._session.journal.store, run.id, lambda _: nb.Restart())
    assert event.owner == ""
    assert (await run).text == "done"
    assert office.did == [("send", 1)]
    with pytest.raises(nb.Conflict, match="by command line"):
        run.approve(event.id)
    assert this_process() != event.owner


async def test_c294_a_token_answers_by_the_record_of_a_store_without_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A web hook needs only the token and the store."""
    tokens: list[str] = []

    async def events() -> list[StoredEvent]:
        agent = nb.Agent(nb.ScriptedModel([call("pay"), "done"]))

        @agent.tool
        def pay(ctx: nb.ToolContext) -> int:
            tokens.append(ctx.external_token)
            ctx.interrupt({"waits for": "the bank"}, external=True)
            return 0

        return list((await agent.run("go", show=False).settled()).journal)

    store = nb.MemoryStore()
    store.append("copy", await events(), 0)
    monkeypatch.setattr(opening, "all_sessions", list)  # as in a process without runs
    with pytest.raises(nb.errors.NotPending):
        nb.answer_external("another", 1, store=store)
    with pytest.raises(nb.errors.InvalidAnswer):
        nb.answer_external(tokens[0], "seven", store=store)
    await nb.answer_external(tokens[0], 7, store=store)
    with pytest.raises(nb.Conflict, match="was already used"):
        nb.answer_external(tokens[0], 7, store=store)
    assert isinstance(store.read("copy")[-1], Resolved)
