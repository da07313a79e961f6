"""``ctx.ask``, ``ctx.ask_sync`` and ``ctx.step``: continue at the line, or run again with earlier answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import threading
from typing import Any, Literal

import numpy
import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter

import nbagent as nb
from nbagent.core.base.errors import Misuse
from nbagent.core.base.interrupts import SECRET_GONE
from nbagent.core.base.secrets import schema_has_secret
from nbagent.core.call.threads import MAX_THREADS
from nbagent.core.run import session as session_module
from nbagent.core.run.run import session_of
from tests.until import PATIENCE, turns, until

call = nb.ScriptedModel.call


class Flight(BaseModel):
    """A typed answer."""

    seat: str
    price: float


class Wizard:
    """A tool that asks twice, with a side effect in between that must happen once."""

    def __init__(self, *, is_async: bool = True) -> None:
        self.entered = 0
        self.reserved = 0
        self._is_async = is_async

    def __call__(self, agent: nb.Agent) -> None:
        """Define wizard."""

        def reserve() -> dict[str, int]:
            self.reserved += 1
            return {"number": self.reserved}

        @agent.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            self.entered += 1
            where = await ctx.ask("where to?")
            reservation = await ctx.step("reserve", reserve)
            flight = await ctx.ask(nb.Ask(message=f"{where}?"), reply=Flight)
            return f"{where} {flight.seat} {reservation['number']}"

        if self._is_async:
            return

        @agent.tool(name="wizard_sync")
        def wizard_sync(ctx: nb.ToolContext) -> str:
            self.entered += 1
            where = ctx.ask_sync("where to?")
            reservation = ctx.step_sync("reserve", reserve)
            flight = ctx.ask_sync(nb.Ask(message=f"{where}?"), reply=Flight)
            return f"{where} {flight.seat} {reservation['number']}"


SEAT = {"seat": "1A", "price": 5}


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_body_asks_several_times_and_runs_steps_between_once(play, is_async):
    """Step by step, live and through JSON: the same result, one reservation."""
    wizard = Wizard(is_async=is_async)
    s = await play([call("wizard" if is_async else "wizard_sync"), "done"], wizard)
    (i,) = s.interrupts
    assert (i.kind, i.metadata, i.restartable) == ("ask", {"message": "where to?"}, False)
    await s.answer(respond={0: "Rome"})
    (i,) = s.interrupts
    assert i.metadata == {"message": "Rome?"}
    assert i.reply_schema["properties"].keys() == {"seat", "price"}
    await s.answer(respond={0: SEAT})
    assert (s.results, s.text, wizard.reserved) == (["Rome 1A 1"], "done", 1)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_live_body_continues_at_its_line_with_its_locals(is_async):
    """The body is entered once."""
    wizard = Wizard(is_async=is_async)
    agent = nb.Agent(nb.ScriptedModel([call("wizard" if is_async else "wizard_sync"), "done"]))
    wizard(agent)
    run = await agent.run("go").settled()
    run.respond(run.interrupts[0], "Rome")
    await run.settled()
    run.respond(run.interrupts[0], SEAT)
    await run
    assert wizard.entered == 1
    assert [e.attempt for e in run.journal if e.type == "tool_started"] == [1, 1, 1]


async def test_settled_and_headless_await_work_while_a_body_waits_at_its_line():
    """The run is interrupted, and ``await run`` raises with the question."""
    agent = nb.Agent(nb.ScriptedModel([call("wizard"), "done"]))
    Wizard()(agent)
    run = agent.run("go")
    with pytest.raises(nb.HumanInputRequired, match="where to") as caught:
        await run
    assert (run.status, len(caught.value.interrupts)) == ("interrupted", 1)
    assert session_of(run).executing == []
    run.respond(run.interrupts[0], "Rome")
    run = await run.settled()
    run.respond(run.interrupts[0], SEAT)
    assert (await run).text == "done"


async def test_settled_returns_when_a_slow_sibling_of_a_waiting_body_has_ended():
    go = asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel([[call("wizard"), call("slow")], "done"]))
    Wizard()(agent)

    @agent.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    run = agent.run("go")
    settled = asyncio.ensure_future(run.settled())
    for _ in range(50):
        await asyncio.sleep(0)
    assert (len(run.interrupts), run.status, settled.done()) == (1, "running", False)
    go.set()
    await asyncio.wait_for(settled, 10)
    assert run.status == "interrupted"
    await run.cancel()


async def test_one_call_can_have_several_open_questions(play):
    """``asyncio.gather``: all are asked at once, answered in any order, each at its own line."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def both(ctx: nb.ToolContext) -> list[Any]:
            return list(
                await asyncio.gather(ctx.ask("a?"), ctx.ask("b?", reply=int), ctx.ask("c?"))
            )

    s = await play([call("both"), "done"], define)
    assert [i.metadata["message"] for i in s.interrupts] == ["a?", "b?", "c?"]
    await s.answer(respond={2: "C"})
    assert [i.metadata["message"] for i in s.interrupts] == ["a?", "b?"]
    assert s.status == "interrupted"
    await s.answer(respond={1: 2, 0: "A"})
    assert s.results == [["A", 2, "C"]]


async def test_a_rejection_raises_at_the_line_that_asked(play):
    """The body may catch ``Rejected``; else it is the call's result, not a failure."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def careful(ctx: nb.ToolContext) -> str:
            try:
                await ctx.ask("really?", reply=bool)
            except nb.Rejected as no:
                return f"left it ({no})"
            return "did it"

        @agent.tool
        async def careless(ctx: nb.ToolContext) -> str:
            await ctx.ask("really?", reply=bool)
            return "did it"

    s = await play([[call("careful"), call("careless")], "done"], define, on_tool_error="raise")
    await s.answer(reject={0: "too late", 1: None})
    assert "too late" in s.results[0]
    assert s.results[0].startswith("left it")
    assert "a person rejected this" in s.results[1]


REPLIES: list[tuple[Any, Any, Any, list[Any]]] = [
    # metadata, reply=, a good answer, bad ones
    ("how?", None, "well", [5, None, {}]),
    (nb.Confirm(message="sure?"), None, True, ["yes!", None, {}, "maybe"]),
    (nb.Ask(message="n?"), int, 5, ["five", None, 1.5]),
    (nb.Choose(message="?", choices=["a", "b"]), None, "b", ["c", 1, None, ["a"]]),
    (nb.Choose(message="?", choices=["a", "b"], multiple=True), None, ["a"], ["a", ["c"]]),
    (nb.Choose(message="?", choices=["a"], allow_other=True), None, "zebra", [5, None]),
    (nb.Choose(message="?", choices=[nb.Option(value=1), nb.Option(value=2)]), None, 2, [3, "x"]),
    ({"my": "own"}, Literal["x"], "x", ["y", 5]),
    ({"my": "own"}, None, {"any": "thing"}, []),
]


@pytest.mark.parametrize(("metadata", "reply", "good", "bad"), REPLIES)
async def test_the_reply_type_is_derived_or_passed_and_wrong_answers_change_nothing(
    play, metadata, reply, good, bad
):
    """P4, live and cold: answers are checked before anything is stored; the question stays open."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def asks(ctx: nb.ToolContext) -> Any:
            return [await ctx.ask(metadata, reply=reply)]

    s = await play([call("asks"), "done"], define)
    for wrong in bad:
        with pytest.raises(nb.errors.InvalidAnswer):
            await s.answer(respond={0: wrong})
    with pytest.raises(nb.errors.InvalidAnswer, match="respond"):
        await s.answer(restart={0: {}})
    await s.answer(respond={0: good})
    assert s.results == [[good]]


async def test_an_answer_counts_only_for_the_question_it_was_given_to():
    """A body that asks another question when it runs again does not get this answer."""
    asked = iter(["delete the draft?", "delete everything?"])
    did: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([call("sly"), "done"]))

    @agent.tool
    async def sly(ctx: nb.ToolContext) -> str:
        question = next(asked)
        if await ctx.ask(nb.Confirm(message=question)):
            did.append(question)
        return "ok"

    paused = await agent.generate("go")
    again = await agent.generate(
        messages=paused.messages, tool_responses=[nb.tool_response(paused.interrupts[0], True)]
    )
    assert did == []
    assert again.interrupts[0].metadata["message"] == "delete everything?"


async def test_a_body_that_swallows_its_question_still_waits():
    """The pause holds, even if the body returns."""
    agent = nb.Agent(nb.ScriptedModel([call("sly"), "done"]))

    @agent.tool
    async def sly(ctx: nb.ToolContext) -> str:
        try:
            return await ctx.ask("well?")
        except BaseException:
            return "as if it had been answered"

    paused = await agent.generate("go")
    assert len(paused.interrupts) == 1
    done = await agent.generate(
        messages=paused.messages, tool_responses=[nb.tool_response(paused.interrupts[0], "b")]
    )
    assert done.messages[2]["content"][0]["output"] == "b"


@pytest.mark.parametrize("is_async", [True, False])
async def test_cancel_reaches_a_waiting_question_at_once(monkeypatch, is_async):
    """No grace period passes, and a body in a thread does not continue."""
    monkeypatch.setattr(session_module, "GRACE", 20.0)
    ended: list[Any] = []
    over = threading.Event()
    agent = nb.Agent(nb.ScriptedModel([call("asks")]))

    if is_async:

        @agent.tool
        async def asks(ctx: nb.ToolContext) -> str:
            try:
                ended.append(await ctx.ask("well?"))
            finally:
                over.set()
            return "did"

    else:

        @agent.tool(name="asks")
        def asks_sync(ctx: nb.ToolContext) -> str:
            try:
                try:
                    ended.append(ctx.ask_sync("well?"))
                except Exception as error:
                    ended.append(error)
            finally:
                over.set()
            return "did"

    run = await agent.run("go").settled()
    await asyncio.wait_for(run.cancel(), 10)
    assert run.status == "cancelled"
    assert run.journal[-1].still_running == ()
    await asyncio.to_thread(over.wait, 10)
    assert ended == []


async def test_threads_that_wait_for_a_person_use_no_slot():
    """More sync tools than slots can ask, and other tools still run."""
    questions = MAX_THREADS + 5
    names = [call("asks", n=n) for n in range(questions)]
    script = [[*names, call("quick")], "done"]
    agent = nb.Agent(nb.ScriptedModel(script), max_questions=questions)

    @agent.tool
    def asks(n: int, ctx: nb.ToolContext) -> int:
        return ctx.ask_sync(f"{n}?", reply=int)

    @agent.tool
    def quick() -> str:
        return "quick"

    run = await asyncio.wait_for(agent.run("go").settled(), 30)
    assert len(run.interrupts) == questions
    assert run.calls["quick"][0].output == "quick"
    for i in run.interrupts:
        run.respond(i, 1)
    assert (await asyncio.wait_for(run, 30)).text == "done"


async def _later() -> int:
    return 1


async def bad_question(ctx: nb.ToolContext) -> Any:
    """Metadata that is not JSON."""
    await ctx.ask({"x": object()})


async def bad_step(ctx: nb.ToolContext) -> Any:
    """A value that is not JSON."""
    await ctx.step("s", object)


def ask_on_the_loop(ctx: nb.ToolContext) -> Any:
    """A wait on the loop that would block itself."""
    ctx.ask_sync("?")


def async_step(ctx: nb.ToolContext) -> Any:
    """Async work in a thread."""
    ctx.step_sync("s", _later)


async def steps_of_one_name(ctx: nb.ToolContext) -> Any:
    """A loop whose second step would get the value of the first."""
    for n in range(2):
        await ctx.step("load", lambda n=n: n)


async def steps_at_once(ctx: nb.ToolContext) -> Any:
    """Two steps of one name at once: after a restart both would get the same value."""

    async def load(n: int) -> int:
        await asyncio.sleep(0)
        return n

    await asyncio.gather(*(ctx.step("load", functools.partial(load, n)) for n in range(2)))


def sync_steps_of_one_name(ctx: nb.ToolContext) -> Any:
    """A loop in a thread, whose lambda reads the loop variable."""
    for n in range(2):
        ctx.step_sync("load", lambda: n)  # noqa: B023 - done at once


MISUSES = [
    bad_question,
    bad_step,
    ask_on_the_loop,
    async_step,
    steps_of_one_name,
    steps_at_once,
    sync_steps_of_one_name,
]


@pytest.mark.parametrize("misuse", MISUSES)
async def test_misuse_fails_the_run_and_never_becomes_text(play, misuse):
    """Also where the tool and the middleware swallow exceptions."""

    def define(agent: nb.Agent) -> None:
        @agent.tool(thread=misuse is not ask_on_the_loop)
        def bad_sync(ctx: nb.ToolContext) -> str:
            try:
                misuse(ctx)
            except Exception:
                return "never mind"
            return "ok"

        @agent.tool
        async def bad(ctx: nb.ToolContext) -> str:
            try:
                await misuse(ctx)
            except Exception:
                return "never mind"
            return "ok"

    name = "bad" if inspect.iscoroutinefunction(misuse) else "bad_sync"
    with pytest.raises(Misuse):
        await play([call(name)], define, middleware=[nb.ToolErrorsToText()])


class Account(BaseModel):
    """An answer with a secret in it."""

    user: str
    password: SecretStr | None = None


class Plain(BaseModel):
    """What only looks like a schema with a secret."""

    format: str = "password"
    kind: Literal["password"] = "password"
    more: dict[str, Any] = {"writeOnly": True, "format": "password"}


@pytest.mark.parametrize("name", ["login", "login_sync"])
async def test_an_answer_with_a_lost_secret_is_requested_again(play, name):
    """No journal has the secret: a body that runs again in another process asks again, with a note."""
    got = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def login(ctx: nb.ToolContext) -> str:
            given = await ctx.ask("who?", reply=Account)
            got.append(given.password.get_secret_value())
            await ctx.ask("go on?", reply=bool)
            return given.user

        @agent.tool
        def login_sync(ctx: nb.ToolContext) -> str:
            given = ctx.ask_sync("who?", reply=list[Account])[0]
            got.append(given.password.get_secret_value())
            ctx.ask_sync("go on?", reply=bool)
            return given.user

    answer = {"user": "ann", "password": "hunter2"}
    answer = answer if name == "login" else [answer]
    s = await play([call(name), "done"], define)
    await s.answer(respond={0: answer})
    while s.interrupts:
        (asked,) = s.interrupts
        again = asked.note == SECRET_GONE
        assert again or asked.metadata["message"] == "go on?"
        await s.answer(respond={0: answer if again else True})
        assert "hunter2" not in json.dumps(s.messages)
    assert (s.text, s.results[-1]) == ("done", "ann")
    assert set(got) <= {"hunter2"}


def test_a_tool_that_only_a_person_answers_cannot_have_a_secret():
    """Its answers are stored; the word "password" as a value or a name is no secret."""
    with pytest.raises(nb.errors.ToolError, match="contain a secret"):
        nb.interrupt_tool("login", output=dict[str, Account])
    nb.interrupt_tool("plain", output=Plain)
    assert not schema_has_secret(TypeAdapter(Plain).json_schema())


async def test_a_failing_sibling_does_not_hang_on_a_body_that_asks():
    """With ``on_tool_error="raise"``: the run fails, and a retry asks again."""
    go, failing = asyncio.Event(), [True]
    agent = nb.Agent(
        nb.ScriptedModel([[call("fails"), call("asks")], "done"]), on_tool_error="raise"
    )

    @agent.tool
    async def fails() -> str:
        if failing:
            failing.clear()
            raise OSError("line is down")
        return "through"

    @agent.tool
    async def asks(ctx: nb.ToolContext) -> str:
        await go.wait()
        return await ctx.ask("well?")

    run = agent.run("go")
    for _ in range(20):
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(nb.errors.RunError, match="line is down"):
        await asyncio.wait_for(run, 10)
    run.retry()
    await run.settled()
    assert run.calls["fails"][0].output == "through"
    run.respond(run.interrupts[0], "b")
    assert (await run).text == "done"


async def test_a_failing_sibling_does_not_hang_on_a_question_that_is_still_being_stored():
    """The body still runs when the run starts to fail; it must not wait for an answer."""
    kept, asking, failing = nb.MemoryStore(), threading.Event(), threading.Event()
    told: list[asyncio.Task[None]] = []

    class Slow:
        """A store in which a question is written only once the run has started to fail."""

        read, run_ids = kept.read, kept.run_ids

        def append(self, run_id: str, events: Any, expected: int) -> None:
            if any(event.type == "interrupted" for event in events):
                asking.set()
                failing.wait(PATIENCE)
            kept.append(run_id, events, expected)

    async def tell() -> None:
        await turns(50)
        failing.set()

    model = nb.ScriptedModel([[call("asks"), call("fails")], "done"])
    agent = nb.Agent(model, on_tool_error="raise", store=Slow())

    begun = asyncio.Event()

    @agent.tool
    async def asks(ctx: nb.ToolContext) -> str:
        await begun.wait()  # else the question may be stored before the sibling starts
        return await ctx.ask("well?")

    @agent.tool
    async def fails() -> str:
        begun.set()
        await until(asking.is_set)
        if told:
            return "through"
        told.append(asyncio.create_task(tell()))
        raise OSError("line is down")

    run = agent.run("go")
    with pytest.raises(nb.errors.RunError, match="line is down"):
        await asyncio.wait_for(run, PATIENCE)
    await run.retry().settled()
    run.respond(run.interrupts[0], "b")
    assert (await run).text == "done"


@pytest.mark.parametrize("sync", [False, True])
async def test_a_failing_sibling_does_not_hang_on_a_working_body_that_called_a_tool_that_asks(
    sync: bool,
):
    """Running bodies end first; the inner question is dropped, and is open again after a retry."""
    go, tries = asyncio.Event(), []
    agent = nb.Agent(
        nb.ScriptedModel([[call("both"), call("fails")], "done"]), on_tool_error="raise"
    )

    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("well?")

    def asks_sync(ctx: nb.ToolContext) -> str:
        return ctx.ask_sync("well?")

    async def slow() -> str:
        await go.wait()
        return "slowly"

    @agent.tool
    async def both(ctx: nb.ToolContext) -> str:
        one = asks_sync if sync else asks
        return " ".join(await asyncio.gather(ctx.call(one), ctx.call(slow)))

    @agent.tool
    async def fails() -> str:
        tries.append(1)
        await until(lambda: bool(run.interrupts))
        if len(tries) == 1:
            raise OSError("line is down")
        return "through"

    run = agent.run("go")
    await until(lambda: bool(tries and run.interrupts))
    await turns(50)
    go.set()
    with pytest.raises(nb.errors.RunError, match="line is down"):
        await asyncio.wait_for(run, PATIENCE)
    await run.retry().settled()
    run.respond(run.interrupts[0], "well")
    assert (await asyncio.wait_for(run, PATIENCE)).text == "done"
    assert run.calls["both"][0].output == "well slowly"


async def test_a_step_beside_open_questions_survives_their_answers(play):
    """The step's value comes back as plain JSON."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def mixed(ctx: nb.ToolContext) -> Any:
            async def work() -> Flight:
                did.append(1)
                return Flight(seat="2B", price=1)

            first = await ctx.step("book", work)
            answer = await ctx.ask("ok?")
            return [await ctx.step("book", work), first, answer]

    s = await play([call("mixed"), "done"], define)
    await s.answer(respond={0: "yes"})
    assert s.results == [[{"seat": "2B", "price": 1.0}] * 2 + ["yes"]]
    assert did == [1]


@pytest.mark.parametrize("ends", ["value", "error", "cancelled"])
async def test_p3_two_uses_of_a_step_at_once_do_its_work_once(play, ends):
    """The others wait for the first, and get its failure; a later use tries again, as another does if it is given up."""
    began: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def books(ctx: nb.ToolContext) -> Any:
            async def book() -> str:
                began.append(1)
                await asyncio.sleep(0 if began[1:] or ends != "cancelled" else PATIENCE)
                if ends == "error" and not began[1:]:
                    raise LookupError("no seat")
                return "2B"

            uses = [asyncio.ensure_future(ctx.step("book", book)) for _ in range(10)]
            await until(lambda: began)
            if ends == "cancelled":
                uses[0].cancel()
            found = await asyncio.gather(*uses, return_exceptions=True)
            return [str(each) for each in found] + [len(began), await ctx.step("book", book)]

    s = await play([call("books"), "done"], define)
    first = {"value": "2B", "error": "no seat", "cancelled": ""}[ends]
    others = "no seat" if ends == "error" else "2B"
    assert s.results == [[first, *[others] * 9, 2 if ends == "cancelled" else 1, "2B"]]
    assert len(began) == (1 if ends == "value" else 2)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("thread", [False, True])
async def test_p7_steps_that_wait_for_each_other_raise_an_error_that_names_them(thread, count):
    """Each step's work uses the next step, whose work is already running."""
    names = ["prices", "rates", "taxes"][:count]
    began: list[str] = []

    async def act(ctx: nb.ToolContext) -> Any:
        async def fetch(name: str) -> Any:
            began.append(name)
            await until(lambda: len(began) == count)
            following = names[(names.index(name) + 1) % count]
            return await ctx.step(following, functools.partial(fetch, following))

        return await asyncio.gather(*(ctx.step(n, functools.partial(fetch, n)) for n in names))

    def act_sync(ctx: nb.ToolContext) -> Any:
        all_began = threading.Barrier(count)

        def fetch(name: str) -> Any:
            all_began.wait(PATIENCE)
            following = names[(names.index(name) + 1) % count]
            return ctx.step_sync(following, functools.partial(fetch, following))

        def use(name: str) -> None:
            with contextlib.suppress(Misuse):
                ctx.step_sync(name, functools.partial(fetch, name))

        users = [threading.Thread(target=use, args=(name,)) for name in names]
        for user in users:
            user.start()
        for user in users:
            user.join()

    run = await asyncio.wait_for(only_call(act_sync if thread else act), PATIENCE)
    with pytest.raises(Misuse, match="wait for each other") as caught:
        await run
    assert all(repr(name) in str(caught.value) for name in names)


async def test_p3_two_threads_that_use_a_step_at_once_do_its_work_once():
    """On the event loop of an async body, waiting for such a step is refused."""
    began: list[int] = []
    goes_on = threading.Event()

    def book() -> str:
        began.append(1)
        assert goes_on.wait(PATIENCE)
        return "2B"

    agent = nb.Agent(nb.ScriptedModel([call("in_threads"), "done", call("on_the_loop"), "done"]))

    @agent.tool
    def in_threads(ctx: nb.ToolContext) -> list[str]:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(ctx.step_sync("book", book)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        goes_on.set()
        for thread in threads:
            thread.join()
        return found

    @agent.tool
    async def on_the_loop(ctx: nb.ToolContext) -> None:
        goes_on.clear()
        first = asyncio.ensure_future(asyncio.to_thread(ctx.step_sync, "book", book))
        await until(lambda: began[1:])
        try:
            ctx.step_sync("book", book)
        finally:
            goes_on.set()
            await first

    run = agent.run("go", show=False)
    await run
    assert (run.calls["in_threads"][-1].output, began) == (["2B", "2B"], [1])
    with pytest.raises(Misuse, match=r"already running.*Write `await"):
        await agent.run("go", show=False)


async def only_call(body: Any, **options: Any) -> nb.Run:
    """A settled run of an agent that calls this tool once."""
    agent = nb.Agent(nb.ScriptedModel([call("act"), "done"]), **options)
    agent.tool(name="act")(body)
    return await agent.run("go", attended=True, show=False).settled()


async def test_p3_a_step_given_up_while_it_is_stored_does_its_work_once():
    """The store is slow; the work is done, so the body that continues gets its value."""
    began: list[int] = []
    goes_on = threading.Event()

    class Slow(nb.MemoryStore):
        without_waiting = None  # type: ignore[assignment] -- as a store over a network

        def append(self, run_id: str, events: Any, expected: int) -> None:
            if events[0].type == "step_finished":
                assert goes_on.wait(PATIENCE)
            super().append(run_id, events, expected)

    def pay() -> int:
        began.append(1)
        return len(began)

    async def act(ctx: nb.ToolContext) -> Any:
        first = asyncio.ensure_future(ctx.step("pay", pay))
        await until(lambda: began)
        await turns()
        first.cancel()
        second = asyncio.ensure_future(ctx.step("pay", pay))
        await turns()
        goes_on.set()
        return await second

    run = await only_call(act, store=Slow())
    assert run.calls["act"][-1].output == 1
    assert [e.value for e in run.journal if e.type == "step_finished"] == [1]


async def test_threads_that_wait_for_a_step_leave_a_thread_for_its_table():
    """More threads wait than ``asyncio.to_thread`` has."""
    began = threading.Event()

    def load() -> Any:
        began.set()
        return numpy.array([1, 2])

    async def act(ctx: nb.ToolContext) -> Any:
        def part() -> Any:
            assert began.wait(PATIENCE)
            return int(ctx.step_sync("load", load).sum())

        parts = [asyncio.ensure_future(asyncio.to_thread(part)) for _ in range(40)]
        await ctx.step("load", load)
        return await asyncio.gather(*parts)

    run = await only_call(act)
    assert run.calls["act"][-1].output == [3] * 40


@pytest.mark.parametrize("thread", [False, True])
async def test_a_step_that_uses_itself_does_not_wait_for_itself(thread):
    tries: list[int] = []

    async def token(ctx: nb.ToolContext) -> str:
        async def login() -> str:
            tries.append(1)
            return await token(ctx) if len(tries) < 3 else "token"

        return await ctx.step("token", login)

    def token_sync(ctx: nb.ToolContext) -> str:
        def login() -> str:
            tries.append(1)
            return token_sync(ctx) if len(tries) < 3 else "token"

        return ctx.step_sync("token", login)

    run = await only_call(token_sync if thread else token)
    assert run.calls["act"][-1].output == "token"


async def test_a_use_that_waited_for_a_failed_step_does_not_get_other_work():
    """The first use fails and its name is used for other work; the second gets the failure it waited for."""

    async def act(ctx: nb.ToolContext) -> Any:
        async def primary() -> str:
            await asyncio.sleep(0)
            raise LookupError("primary")

        async def with_fallback() -> str:
            try:
                return await ctx.step("load", primary)
            except LookupError:
                return await ctx.step("load", lambda: "other")

        uses = (with_fallback(), ctx.step("load", primary))
        return list(map(str, await asyncio.gather(*uses, return_exceptions=True)))

    run = await only_call(act)
    assert run.calls["act"][-1].output == ["other", "primary"]


async def test_a_step_that_asks_is_not_asked_twice_by_its_second_use():
    """Where bodies do not wait, the first use pauses the call."""
    agent = nb.Agent(nb.ScriptedModel([call("act"), "done"]))

    @agent.tool
    async def act(ctx: nb.ToolContext) -> Any:
        async def which() -> Any:
            return await ctx.ask("which?")

        return await asyncio.gather(ctx.step("which", which), ctx.step("which", which))

    paused = await agent.generate("go")
    (question,) = paused.interrupts
    ended = await agent.generate(messages=paused.messages, tool_responses=[question.respond("x")])
    assert [part["output"] for part in ended.messages[-2]["content"]] == [["x", "x"]]


async def test_a_failed_step_can_be_replaced_by_another_of_the_same_name(play):
    """A step's name is free again after a failure; a helper may repeat the same step."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def mixed(ctx: nb.ToolContext) -> Any:
            async def fetched(server: str) -> Any:
                return await ctx.step("fetch", lambda: {"a": 1}[server])

            for server in ("b", "a"):
                with contextlib.suppress(KeyError):
                    first = await fetched(server)
                    break
            return [first, await fetched(server), await ctx.ask("ok?")]

    s = await play([call("mixed"), "done"], define)
    await s.answer(respond={0: "yes"})
    assert s.results == [[1, 1, "yes"]]


async def test_one_body_can_use_asks_and_interrupts(play):
    """A restart keeps the answers, an answer keeps the restart."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def mixed(ctx: nb.ToolContext) -> Any:
            name = await ctx.ask("name?")
            if not ctx.resumed:
                ctx.interrupt({"name": name}, state={"kept": name})
            more = await ctx.ask("more?")
            return [name, ctx.state, more]

    s = await play([call("mixed"), "done"], define)
    await s.answer(respond={0: "Ada"})
    assert s.interrupts[0].metadata == {"name": "Ada"}
    await s.answer(restart={0: {}})
    assert s.interrupts[0].metadata == {"message": "more?"}
    await s.answer(respond={0: "no"})
    assert s.results == [["Ada", {"kept": "Ada"}, "no"]]


async def test_a_streaming_tool_can_ask_in_its_middle():
    """Chunks before and after the question form one result."""
    agent = nb.Agent(nb.ScriptedModel([call("stream"), "done"]))

    @agent.tool
    async def stream(ctx: nb.ToolContext):
        yield "a"
        yield await ctx.ask("?")
        yield "c"

    run = await agent.run("go").settled()
    run.respond(run.interrupts[0], "b")
    await run
    assert run.calls["stream"][0].output == "abc"


async def test_a_reply_type_without_a_form_is_refused_at_the_call() -> None:
    """The line of ``ctx.ask`` itself raises, awaited or not, and names the type."""
    told: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([[call("wants")], "Done."]))

    @agent.tool
    async def wants(ctx: nb.ToolContext) -> str:
        for kind in (object, list[object]):
            try:
                ctx.ask(
                    "Which?", reply=threading.Lock if kind is object else list[threading.Thread]
                )
            except Exception as error:
                told.append(str(error))
        return "told"

    await agent.run("Go")
    assert ["Thread" in one or "lock" in one.lower() for one in told] == [True, True]


async def test_a_step_of_an_abandoned_body_does_no_work():
    """Its thread continues after the run was cancelled; the step raises before its work."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    did: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([call("mail"), "done"]))

    @agent.tool
    def mail(ctx: nb.ToolContext) -> str:
        begun.set()
        assert go_on.wait(20)
        try:
            ctx.step_sync("send", lambda: did.append("sent"))
        finally:
            ended.set()
        return "ok"

    run = agent.run("go", show=False, attended=True)
    await until(begun.is_set)
    await run.cancel()
    go_on.set()
    await until(ended.is_set)
    assert did == []
