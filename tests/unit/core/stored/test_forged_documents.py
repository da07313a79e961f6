"""Forged documents and histories: only the input that the card showed can be approved."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, MessagesError, NotPending, RunError, StoreError
from nbagent.core.base.events import Interrupted, RunQueued, parse
from nbagent.core.base.interrupts import INPUT_CHANGED, PendingInterrupt, token_digest
from nbagent.core.journal.rows import with_seals
from nbagent.core.run.run import session_of
from nbagent.core.stored import document as documents_of_runs
from nbagent.notebook.render import facts
from nbagent.notebook.view.questions import Question
from nbagent.notebook.view.view import SingleRunView

call = nb.ScriptedModel.call
ANN, EVIL = {"to": "Ann", "amount": 1}, {"to": "Evil", "amount": 10_000}
TOKEN = "known to the forger"
KINDS = [
    "approval",
    "tool",
    "bare",
    "ask",
    "ask value",
    "external",
    "later",
    "question",
    "middleware",
    "changed",
    "budget",
    "lost",
    "nested",
    "inside",
    "flow",
]


class Bank:
    """An agent with a tool for every kind of question; each pays only after an answer."""

    def __init__(self, *script: Any, store: Any = None, middleware: Any = (), **more: Any) -> None:
        self.paid: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        model = nb.ScriptedModel([*script, *["done"] * 9])
        agent = self.agent = nb.Agent(
            model, name="bank", store=store, middleware=list(middleware), **more
        )
        agent.tool(self.approval, approval=True)
        for plain in (self.tool, self.bare, self.ask, self.ask_value, self.external, self.later):
            agent.tool(plain)
        agent.tool(self.inside)
        agent.add(nb.interrupt_tool("question", description="Asks.", output=str))
        inner = nb.Agent(nb.ScriptedModel([call("approval", **ANN), "in"] * 9), name="inner")
        inner.add(agent.tools["approval"])
        agent.add(inner.as_tool(name="nested"))

        @nb.flow(store=store)
        async def flow(to: Any, amount: Any) -> str:
            return self.approval(to, amount)

        self.flow = flow

    def approval(self, to: Any, amount: Any) -> str:
        """Pays."""
        self.paid.append({"to": to, "amount": amount})
        return "paid"

    def tool(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Asks before it pays."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm("Pay?"))
        return self.approval(to, amount)

    def bare(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Asks without a word."""
        if not ctx.resumed:
            ctx.interrupt(expires_in=3600, on_expire=nb.Respond("paid"))
        return self.approval(to, amount)

    async def ask(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Asks in its middle."""
        if await ctx.ask(nb.Confirm("Pay?"), reply=bool, expires_in=3600):
            self.approval(to, amount)
        return "asked"

    async def ask_value(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Asks for a value in its middle."""
        if await ctx.ask("The password?") == "yes":
            self.approval(to, amount)
        return "asked"

    def external(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Asks an outside system."""
        if not ctx.resumed:
            self.tokens.append(ctx.external_token)
            ctx.interrupt(external=True)
        return self.approval(to, amount)

    def later(self, to: Any, amount: Any, ctx: nb.ToolContext) -> Any:
        """Gives the final result later."""
        self.tokens.append(ctx.external_token)
        return ctx.later("soon")

    async def inside(self, to: Any, amount: Any, ctx: nb.ToolContext) -> str:
        """Calls another tool."""
        return str(await ctx.call(self.agent.tools["approval"], to=to, amount=amount))


async def asks_first(c: nb.ToolCall, nxt: Any) -> Any:
    """Middleware that asks before it passes on a call."""
    if not c.resumed:
        c.interrupt(nb.Confirm("Pass?"))
    return await nxt(c)


async def doubles(c: nb.ToolCall, nxt: Any) -> Any:
    """Middleware that doubles the amount."""
    amount = c.input.amount
    if isinstance(amount, int):
        c.input = c.input.model_copy(update={"amount": amount * 2})
    return await nxt(c)


MIDDLEWARE: dict[str, Any] = {"middleware": [asks_first], "changed": [doubles]}


async def honest(kind: str) -> tuple[dict[str, Any], Bank]:
    """The document of a run that waits in this way, and its bank."""
    store = nb.MemoryStore()
    name = {"ask value": "ask_value", "middleware": "approval", "changed": "tool"}.get(kind, kind)
    name = {"budget": "later", "lost": "approval"}.get(name, name)
    arguments = {"prompt": "go"} if kind == "nested" else ANN
    bank = Bank(
        call(name, **arguments),
        store=store,
        middleware=MIDDLEWARE.get(kind, ()),
        **({"max_turns": 1} if kind == "budget" else {}),
    )
    run: Any = bank.flow.run(**ANN) if kind == "flow" else bank.agent.run("go", attended=True)
    await run.settled()
    if kind == "lost":
        await run.approve(run.interrupts[0])
        await run
    document = nb.export_run(run.id, store=store)
    if kind in ("flow", "lost"):
        rows = document["runs"][-1]["rows"]
        types = [json.loads(row["data"])["type"] for row in rows]
        last = "tool_started" if "tool_started" in types else "run_started"
        del rows[types.index(last) + 1 :]
    if run.status == "interrupted":
        await run.cancel()
    bank.paid.clear()
    return document, bank


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    """An honest document of each kind."""

    async def made() -> dict[str, dict[str, Any]]:
        return {kind: (await honest(kind))[0] for kind in KINDS}

    return asyncio.run(made())


def events_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(row["data"]) for row in document["runs"][-1]["rows"]]


def with_events(document: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """The document with these events in its run, sealed as a forger would."""
    made = json.loads(json.dumps(document))
    rows = with_seals("", (json.dumps(event) for event in events))
    made["runs"][-1]["rows"] = [row._asdict() for row in rows]
    return made


async def opened(
    document: dict[str, Any], *, flow: bool = False, middleware: Any = ()
) -> tuple[Bank, nb.Run, Any]:
    """The run of a document, opened in a store of its own."""
    store = nb.MemoryStore()
    run_id = nb.import_run(document, store=store, unverified=True)
    bank = Bank(store=store, middleware=middleware)
    agent = bank.flow if flow else bank.agent
    run = await nb.open_run(run_id, agent=agent, store=store, attended=True, show=False)
    await settled(run)
    return bank, run, store


async def settled(run: nb.Run) -> None:
    """Wait until the run has ended, asks, or has an error; a run that never does fails the test."""
    await asyncio.wait_for(run.settled(), 60)
    assert run.status != "running" or session_of(run).error is not None


def press(run: nb.Run, interrupt: PendingInterrupt) -> tuple[Question, Any]:
    """The displayed question, and the answer of its Approve button, or else an answer of yes."""
    assert any(isinstance(e, Interrupted) and e.id == interrupt.id for e in run.journal)
    question = Question.of(interrupt)
    if any(action.name == "approve" for action in question.actions):
        drafts = None if question.form is None else question.form.spec().get("value")
        pressed = question.resolve("approve", drafts)
        if not isinstance(pressed, list):
            return question, pressed
    if interrupt.kind in ("tool", "approval", "lost"):
        return question, nb.Restart()
    return question, nb.Respond(output=1 if interrupt.kind == "budget" else "yes")


def is_shown(question: Question, interrupt: PendingInterrupt, paid: dict[str, Any]) -> bool:
    """Whether the question shows these arguments."""
    if facts.facts_of(paid) != facts.facts_of(dict(interrupt.input)):
        return False
    if interrupt.expects not in ("approval", "outcome"):  # in a form, or in the call's row
        return True
    seen = {(fact.label, fact.value) for fact in question.facts}
    wanted = [facts._unmistakable(fact, paid[fact.label]) for fact in facts.facts_of(paid)]
    return {(fact.label, fact.value) for fact in wanted} <= seen


# --- known attacks


@pytest.mark.parametrize("inside", [["run_started"], ["body_called", "interrupted"]])
async def test_p5_an_imported_flow_shows_its_input_whatever_is_inside_its_call(documents, inside):
    """No rule applies to a flow's call. A run, or a question about Ann, in it does not let it pay Evil."""
    events = json.loads(json.dumps(events_in(documents["flow"])).replace("Ann", "Evil"))
    inner = [event for event in events_in(documents["inside"]) if event["type"] in inside]
    for event in inner:
        event["scope"] = [events[-1]["call_id"]]
    bank, run, _ = await opened(with_events(documents["flow"], [*events, *inner]), flow=True)
    for asked in run.interrupts:
        if asked.kind == "approval":
            await run.approve(asked)
            await settled(run)
    (question,) = run.interrupts
    assert (bank.paid, question.kind, question.input["to"]) == ([], "lost", "Evil")
    await run.cancel()


async def test_p1_no_imported_question_answers_itself(documents):
    """A default whose deadline has passed in the document does not count, at any depth."""
    late = {"expires_at": 1.0, "on_expire": "answer", "expire_output": True}
    for kind in KINDS:
        for then in (late, {**late, "on_expire": "fail"}, {**late, "on_expire": "reject"}):
            events = events_in(documents[kind])
            for event in events:
                if event["type"] == "interrupted":
                    event.update(then)
            is_flow = kind == "flow"
            bank, run, _ = await opened(
                with_events(documents[kind], events),
                flow=is_flow,
                middleware=MIDDLEWARE.get(kind, ()),
            )
            assert (bank.paid, run.status) == ([], "interrupted"), (kind, then)
            assert all(i.expires_at is None for i in run.interrupts), kind
            types = [e.type for e in run.journal]
            assert "resolved" not in types[types.index("run_imported") :]
            view = SingleRunView(run.id)
            for event in run.journal:
                view.apply(event)
            view.flush(1.0)
            drawn = [item for item in view.snapshot().items if item.type == "form"]
            assert {form.expires_at for form in drawn} <= {None}, kind
            await run.cancel()


@pytest.mark.parametrize("kind", ["external", "later"])
async def test_p2_the_token_of_an_imported_or_forked_question_answers_only_the_original(kind):
    """A token that the forger knows does not work either; the copy needs an answer here."""
    store = nb.MemoryStore()
    bank = Bank(call(kind, **ANN), store=store)
    run = bank.agent.run("go", attended=True)
    await run.settled()
    document = nb.export_run(run.id, store=store)
    events = events_in(document)
    known = f"{TOKEN}, in the case {kind}"  # other tests' runs may still be in memory
    for event in events:
        if event["type"] == "interrupted":
            event["external"] = token_digest(known)
    fork = run.fork()
    await fork.settled()
    nb.answer_external(bank.tokens[0], "x")  # answers the original
    assert (await run).text == "done"
    assert [i.expects for i in fork.interrupts] == ["external"]
    forged = with_events(document, events)
    for brought, token, why in (
        (document, bank.tokens[0], None),
        (forged, known, "does not accept it"),
    ):
        there, copied, place = await opened(brought)
        with pytest.raises(nb.Conflict, match=why):
            nb.answer_external(token, "x", store=place)
        assert [i.expects for i in copied.interrupts] == ["external"]
        if kind == "external":
            copied.restart(copied.interrupts[0])
        else:
            copied.respond(copied.interrupts[0], "here")
        assert (await copied).text == "done"
        assert there.paid == [ANN] * (kind == "external")
    assert [i.expects for i in fork.interrupts] == ["external"]
    await fork.cancel()


LIES: dict[str, dict[str, Any]] = {
    "entered": {"entered": EVIL},
    "around": {"entered": EVIL, "around": True},
    "approval": {"entered": EVIL, "kind": "approval"},
    "proposed": {},
}


@pytest.mark.parametrize("kind", ["tool", "bare", "ask", "external", "approval", "changed", "lost"])
@pytest.mark.parametrize("lie", LIES)
async def test_p5_the_input_that_a_document_shows_is_the_input_that_runs(documents, kind, lie):
    """A forged question shows Ann and would run Evil: Approve runs Ann, or a question shows Evil first."""
    events = events_in(documents[kind])
    for event in events:
        if event["type"] == "interrupted":
            event.update(LIES[lie])
            event["input"] = {**ANN, "amount": 2} if kind == "changed" else ANN
        if event["type"] == "model_responded" and lie == "proposed":
            event["calls"][0]["input"] = EVIL
        if event["type"] == "tool_started":
            event["input"] = ANN
    forged = with_events(documents[kind], events)
    if (kind, lie) == ("ask", "approval"):
        with pytest.raises(StoreError, match=r"does not have the form of a ctx\.ask"):
            nb.import_run(forged, store=nb.MemoryStore(), unverified=True)
        return
    bank, run, _ = await opened(forged, middleware=MIDDLEWARE.get(kind, ()))
    question, resolution = press(run, run.interrupts[0])
    shown = run.interrupts[0]
    with suppress(InvalidAnswer):  # such a tool does not ask this kind of question
        await run.resolve(shown, resolution)
    await settled(run)
    assert all(is_shown(question, shown, paid) for paid in bank.paid)
    if run.status == "interrupted":
        again = run.interrupts[0]
        assert bank.paid == []
        if INPUT_CHANGED in (again.note or ""):
            assert again.kind == "approval"
            assert again.input["to"] == "Evil"
            await run.approve(again)
            await run.settled()
            assert bank.paid in ([], [again.input])
    if run.status == "interrupted":
        await run.cancel()


# --- documents of impossible runs

BEGUN = {"max_turns": 20, "owner": "", "flow": False}
MADE_UP: list[dict[str, Any]] = [
    {"type": "run_queued", "at": 1.0, "agent": "bank", "model": "", "after": "x", "text": "go"},
    {"type": "run_started", "at": 1.0, "agent": "bank", "model": "", "messages": [], **BEGUN},
    {
        "type": "run_started",
        "at": 1.0,
        "agent": "flow",
        "model": "",
        "messages": ["go"],
        **BEGUN,
        "flow": True,
    },
    {"type": "model_responded", "at": 1.0, "text": "hi"},
    {"type": "model_responded", "at": 1.0, "calls": [{"id": "c", "name": "nested", "input": {}}]},
    {"type": "body_called", "at": 1.0, "call_id": "c", "name": "approval", "input": ANN},
    {"type": "tool_finished", "at": 1.0, "call_id": "c"},
    {"type": "step_finished", "at": 1.0, "call_id": "c", "name": "s"},
    {"type": "message_queued", "at": 1.0, "text": "go on", "by": "x"},
    {"type": "output_refused", "at": 1.0, "errors": "no"},
    {"type": "run_completed", "at": 1.0},
    {"type": "run_failed", "at": 1.0, "error": "X", "message": "x"},
    {"type": "run_cancelled", "at": 1.0, "by": "x"},
    {"type": "run_retried", "at": 1.0, "by": "x"},
    {"type": "run_taken", "at": 1.0, "by": "silence"},
    {"type": "run_imported", "at": 1.0, "by": "code"},
    {"type": "message_queued", "at": 1.0, "text": "no, go back", "by": "x", "replaces": 0},
]
"""Events of the kinds that the honest documents lack."""

NEVER: dict[str, Any] = {
    "no history": (
        lambda made: made.__setitem__(slice(None), [{**made[0], "messages": []}]),
        "tool",
        "is not waiting for anything",
    ),
    "a history of texts": (
        lambda made: made.__setitem__(slice(None), [{**made[0], "messages": ["go"]}]),
        "tool",
        "a message without parts",
    ),
    "a flow without its call": (
        lambda made: made[0].update(messages=[{"role": "assistant", "content": []}]),
        "flow",
        "a flow starts with its call",
    ),
    "two beginnings": (lambda made: made.insert(2, made[0]), "tool", "the run has already started"),
    "queued inside of a call": (
        lambda made: made.insert(4, {**MADE_UP[0], "scope": [made[3]["scope"][0]]}),
        "inside",
        "not to one inside a call",
    ),
    "a body's runs that failed": (
        lambda made: made.insert(4, {**MADE_UP[11], "scope": [made[3]["scope"][0]]}),
        "inside",
        "cannot end before the body",
    ),
    "an end before the answer": (
        lambda made: made.insert(1, MADE_UP[10]),
        "tool",
        "has not answered",
    ),
    "a call that is started while it asks": (
        lambda made: made.append(made[2]),
        "tool",
        "cannot be started",
    ),
    "an answer to no question": (
        lambda made: made.insert(
            2,
            {
                "type": "resolved",
                "at": 1.0,
                "id": "x",
                "call_id": made[2]["call_id"],
                "resolution": {"type": "restart"},
                "by": "Ada",
            },
        ),
        "tool",
        "is not open",
    ),
    "a message in place of none": (
        lambda made: made.append({**MADE_UP[8], "replaces": 0}),
        "tool",
        "that it replaces is not waiting",
    ),
    "a model that answers twice": (
        lambda made: made.insert(2, {**made[1], "calls": []}),
        "tool",
        "the model was not called",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_p15_a_document_of_an_impossible_run_is_refused(documents, name):
    """Each event is valid, but no run can produce these events, so nobody could continue the run."""
    change, kind, why = NEVER[name]
    events = events_in(documents[kind])
    change(events)
    store = nb.MemoryStore()
    with pytest.raises(StoreError, match=why):
        nb.import_run(with_events(documents[kind], events), store=store, unverified=True)
    assert store.run_ids() == []


def test_p15_a_document_of_a_run_that_waits_for_itself_is_refused():
    """Alone, with a run of the document, or with an earlier import: none of them could start."""

    def queued(**after: str) -> dict[str, Any]:
        runs = []
        for run_id, before in after.items():
            event = json.dumps({**MADE_UP[0], "after": before, "elsewhere": True})
            runs.append({"id": run_id, "rows": [row._asdict() for row in with_seals("", [event])]})
        return {"format": "nbagent-run", "version": 1, "id": runs[-1]["id"], "runs": runs}

    store = nb.MemoryStore()
    assert nb.import_run(queued(first="second"), store=store, unverified=True) == "first"
    for document in (queued(a="a"), queued(b="a", a="b"), queued(second="first")):
        with pytest.raises(StoreError, match="is in a circle of runs that wait for each other"):
            nb.import_run(document, store=store, unverified=True)
    assert store.run_ids() == ["first"]


def test_the_runs_of_a_long_queue_are_checked_once_each():
    """Ten thousand runs in a document, each behind the one before, take no time with its square."""

    class Counted(dict[str, list[RunQueued]]):
        reads = 0

        def __getitem__(self, run_id: str) -> list[RunQueued]:
            self.reads += 1
            return super().__getitem__(run_id)

    fields = {"at": 0.0, "agent": "a", "model": "m", "text": "x"}
    runs = Counted({f"r{n}": [RunQueued(**fields, after=f"r{n - 1}")] for n in range(100)})
    documents_of_runs._check_queue([*runs], runs, nb.MemoryStore(), set())
    assert runs.reads <= 2 * len(runs)


async def test_p15_an_imported_run_can_be_imported_elsewhere(documents):
    """A waiting and an answered import are exported: our own events do not count as forged."""
    for kind in KINDS:
        document, name = documents[kind], {"flow": kind == "flow"}
        for _ in range(2):
            _, run, store = await opened(document, **name, middleware=MIDDLEWARE.get(kind, ()))
            document = nb.export_run(run.id, store=store)
            question, resolution = press(run, run.interrupts[0])
            assert question.id == run.interrupts[0].id
            await run.resolve(run.interrupts[0], resolution)
            await settled(run)
            answered = nb.export_run(run.id, store=store)
            assert nb.import_run(answered, store=nb.MemoryStore(), unverified=True) == run.id
            if run.status == "interrupted":
                await run.cancel()


@pytest.mark.parametrize("flow", [False, True])
async def test_p7_a_stored_run_that_waits_for_nothing_says_so(flow):
    """If the run was stored without ``nb.import_run``, awaiting it raises an error."""
    store = nb.MemoryStore()
    begun = {**MADE_UP[2 if flow else 1]}
    store.append("odd", [parse(json.dumps(begun))], 0)
    bank = Bank(store=store)
    agent = bank.flow if flow else bank.agent
    run = await nb.open_run("odd", agent=agent, store=store, attended=True, show=False)
    await settled(run)
    with pytest.raises(RunError, match="is not waiting for anything"):
        await run
    await run.cancel()
    assert run.status == "cancelled"


# --- random changes of a document

STEPS = {"at": 9.0, "call_id": "c"}
JUNK: list[Any] = [None, True, False, 0, 1, 1.0, 2.5e9, "", "Evil", 10_000, [], {}, EVIL, ANN]
JUNK += ["approval", "tool", "ask", "later", "lost", "budget", "question", "external", "outcome"]
JUNK += ["confirmation", "edit", "value", "choice", "answer", "fail", token_digest(TOKEN), ["to"]]
JUNK += ["approval", "nested", "inside", "tool", "ask"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document."""
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


FIELDS = [field.name for field in dataclasses.fields(Interrupted)]


WAYS = ["place", "field", "field", "field", "drop", "approve", "swap", "insert", "insert"]


def changed_events(
    data: st.DataObject, events: list[dict[str, Any]], others: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The events with some replaced, left out, moved, repeated or inserted, and with forged approvals."""
    events = copy.deepcopy(events)
    for _ in range(data.draw(st.integers(1, 4))):
        how = data.draw(st.sampled_from(WAYS))
        asked = [event for event in events if event["type"] == "interrupted"]
        if how == "drop" and len(events) > 1:
            del events[data.draw(st.integers(1, len(events) - 1))]
        elif how == "swap":
            one, other = (data.draw(st.integers(0, len(events) - 1)) for _ in range(2))
            events[one], events[other] = events[other], events[one]
        elif how == "insert":
            made = copy.deepcopy(data.draw(st.sampled_from([*events, *others])))
            scopes = [event.get("scope", []) for event in events]
            calls = [event["call_id"] for event in events if event.get("call_id")]
            made["scope"] = data.draw(st.sampled_from([*scopes, *([each] for each in calls)]))
            if "call_id" in made and calls:
                made["call_id"] = data.draw(st.sampled_from(calls))
            events.insert(data.draw(st.integers(0, len(events))), made)
        elif how == "field" and asked:
            name = data.draw(st.sampled_from(FIELDS))
            data.draw(st.sampled_from(asked))[name] = copy.deepcopy(
                data.draw(st.sampled_from(JUNK))
            )
        elif how == "approve" and asked:
            of = data.draw(st.sampled_from(asked))
            said = data.draw(st.sampled_from([{"type": "restart"}, {"output": True}]))
            resolution = {"type": "respond", **said}
            answer = {"type": "resolved", "at": 5.0, "by": "Ada", "resolution": resolution}
            told = {"id": of.get("id"), "call_id": of.get("call_id"), "scope": of.get("scope", [])}
            events.append({**answer, **told})
        else:
            event = data.draw(st.sampled_from(events))
            where = data.draw(st.sampled_from([*places(event)]))
            if where == ("type",):
                continue
            inside: Any = event
            for step in where[:-1]:
                inside = inside[step]
            inside[where[-1]] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
    return events


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
async def test_p5_a_document_changed_in_any_way_runs_only_the_displayed_input(documents, data):
    """Nothing runs before a press here; each press runs at most the input of a card that was pressed."""
    kind = data.draw(st.sampled_from(KINDS))
    others = [event for each in documents.values() for event in events_in(each)]
    events = changed_events(data, events_in(documents[kind]), [*others, *MADE_UP])
    middleware = MIDDLEWARE.get(kind, ())
    run: Any = None
    try:
        bank, run, store = await opened(
            with_events(documents[kind], events), flow=kind == "flow", middleware=middleware
        )
    except nb.NbagentError:
        return  # refused with a message
    try:
        assert bank.paid == []
        with suppress(NotPending, nb.Conflict):
            nb.answer_external(TOKEN, "yes", store=store)
            raise AssertionError("a token of the document answers")
        pressed: list[tuple[Question, PendingInterrupt]] = []
        for _ in range(3):
            if not run.interrupts:
                break
            asked = data.draw(st.sampled_from(run.interrupts))
            question, resolution = press(run, asked)
            pressed.append((question, asked))
            before = len(bank.paid)
            with suppress(nb.NbagentError):
                await run.resolve(asked, resolution)
            await settled(run)
            new = bank.paid[before:]
            assert len(new) <= 1
            # an approved call may wait until a budget question is answered too
            assert all(any(is_shown(*one, paid) for one in pressed) for paid in new), (asked, new)
    finally:
        if run.status in ("interrupted", "running", "queued"):
            await run.cancel()


# --- random changes of a history


async def histories() -> dict[str, list[Any]]:
    """An honest history of each kind that ``generate`` supports."""
    made: dict[str, list[Any]] = {}
    for kind in KINDS:
        if kind in ("budget", "lost", "flow", "middleware"):
            continue
        name = {"ask value": "ask_value", "changed": "tool"}.get(kind, kind)
        arguments = {"prompt": "go"} if kind == "nested" else ANN
        bank = Bank(call(name, **arguments), middleware=MIDDLEWARE.get(kind, ()))
        response = await bank.agent.generate("go")
        made[kind] = json.loads(json.dumps(response.messages))
    return made


@pytest.fixture(scope="module")
def saved() -> dict[str, list[Any]]:
    """Histories with open questions."""
    return asyncio.run(histories())


def questions_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every open question of a history."""
    if isinstance(value, dict):
        if "tool_name" in value and "expects" in value:
            yield value
        for inner in value.values():
            yield from questions_in(inner)
    if isinstance(value, list):
        for inner in value:
            yield from questions_in(inner)


def test_p15_a_history_in_which_an_open_call_waits_for_nothing_is_refused(saved):
    """The error comes before anything is continued."""
    emptied = copy.deepcopy(saved["nested"])
    emptied[-1]["content"][0]["nbagent"]["child"]["messages"][-1]["content"] = []
    done = copy.deepcopy(saved["bare"])
    part = done[-1]["content"][0]
    result = {"type": "tool_result", "id": part["id"], "name": "bare", "output": "paid"}
    part["nbagent"] = {"status": "done", "result": result}
    for messages, why in (
        (emptied, "does not match its other fields"),
        (done, "is not waiting for anything"),
    ):
        with pytest.raises(MessagesError, match=why):
            Bank().agent.interrupts(messages)


TRUSTED = ("expires_at", "on_expire", "expire_output")
"""A history's deadline and default count, as its approvals do: see docs/security.md."""


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
async def test_p5_a_history_with_changed_questions_runs_only_the_displayed_input(saved, data):
    """Whatever a history claims, an answer runs only the input that its question showed."""
    kind = data.draw(st.sampled_from(sorted(saved)))
    messages = copy.deepcopy(saved[kind])
    names = [name for name in FIELDS if name not in TRUSTED]
    for _ in range(data.draw(st.integers(1, 3))):
        asked = data.draw(st.sampled_from(list(questions_in(messages))))
        asked[data.draw(st.sampled_from(names))] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
        parts = [p for m in messages for p in m["content"] if isinstance(p, dict)]
        calls = [p for p in parts if p.get("type") == "tool_call"]
        if calls and data.draw(st.booleans()):
            data.draw(st.sampled_from(calls))["input"] = copy.deepcopy(
                data.draw(st.sampled_from([ANN, EVIL, {}]))
            )
    bank = Bank(middleware=MIDDLEWARE.get(kind, ()))
    try:
        found = bank.agent.interrupts(messages)
    except nb.NbagentError:
        return
    if data.draw(st.booleans()):
        run = bank.agent.run(messages=messages, attended=True)
        await settled(run)
        assert bank.paid == []
        await run.cancel()
        return
    for shown in found[:1]:
        question = Question.of(shown)
        if shown.kind in ("tool", "approval", "lost"):
            replies: Any = {"tool_restarts": [nb.tool_restart(shown)]}
        else:
            output: Any = True if shown.expects == "confirmation" else "yes"
            replies = {"tool_responses": [nb.Respond(output, interrupt=shown)]}
        with suppress(nb.NbagentError):
            await bank.agent.generate(messages=messages, partial=True, **replies)
        assert len(bank.paid) <= 1
        assert all(is_shown(question, shown, paid) for paid in bank.paid), (shown, bank.paid)
