"""The typed API as a person writes it; checked by mypy in test_api.py, never run.

Each line that must not type-check says so with an expected error; an unused ``type: ignore`` is an
error too, so a check that stops working is found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import assert_type

from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.events import StoredEvent
from nbagent.core.base.model import Finished, ModelDelta, Request, TextDelta
from nbagent.core.run.result import Result
from nbagent.listeners.notify import Notification, Notifier
from nbagent.listeners.trace import Tracing
from nbagent.notebook.forms import form


class Transfer(BaseModel):
    """An input."""

    amount: float


class Other(BaseModel):
    """Another tool's input."""

    color: str


agent = nb.Agent("demo")


@agent.tool
def send(input: Transfer, ctx: nb.ToolContext) -> int:  # noqa: A002
    """Take one model."""
    return int(input.amount)


@agent.tool(name="look", approval=True)
async def look(path: str) -> str:
    """Be async."""
    return path


@nb.tool
def pieces(count: int) -> Iterator[str]:
    """Stream."""
    yield from "ab"


@nb.tool
async def later(count: int) -> AsyncIterator[str]:
    """Stream, async."""
    yield "a"


@nb.flow(store=nb.MemoryStore())
async def clean(path: str, ctx: nb.ToolContext) -> int:
    """Be a flow."""
    return len(path)


async def flows() -> None:
    """Run a flow."""
    assert_type(clean.with_options(answers=[1], show=False).run("a.csv"), nb.Run)
    assert_type(clean.run_sync("a.csv"), Result)
    clean.with_options(anwsers=[1])  # type: ignore[call-arg]
    assert_type(await nb.open_run("r", agent=clean), nb.Run)


ask = nb.interrupt_tool("ask", output=str)
loose = nb.interrupt_tool("loose")


def answers(i: nb.PendingInterrupt) -> None:
    """An answer has the type that the tool returns."""
    assert_type(send.respond(i, 5), nb.Respond)
    send.respond(i, "five")  # type: ignore[arg-type]
    look.respond(i, "text")
    look.respond(i, 5)  # type: ignore[call-overload]
    pieces.respond(i, "whole")
    pieces.respond(i, 5)  # type: ignore[call-overload]
    later.respond(i, "whole")
    later.respond(i, 5)  # type: ignore[call-overload]
    ask.respond(i, "b")
    ask.respond(i, 5)  # type: ignore[arg-type]
    loose.respond(i, object())
    send.respond("id", 5)  # type: ignore[arg-type]


def restarts(i: nb.PendingInterrupt) -> None:
    """A new input is the tool's own model or a mapping."""
    assert_type(send.restart(i), nb.Restart)
    send.restart(i, new_input=Transfer(amount=5), data={"ok": True})
    send.restart(i, new_input={"amount": 5})
    send.restart(i, new_input=Other(color="red"))  # type: ignore[call-overload]
    send.restart(i, new_input=5)  # type: ignore[call-overload]
    look.restart(i, new_input={"path": "/"})
    look.restart(i, new_input=Transfer(amount=5))  # type: ignore[arg-type]


async def asks(ctx: nb.ToolContext) -> None:
    """An answer has the requested type."""
    assert_type(await ctx.ask("how many?", reply=int), int)
    assert_type(ctx.ask_sync("how many?", reply=Transfer), Transfer)
    assert_type(await ctx.call(look, path="/"), str)
    assert_type(ctx.call_sync(send, amount=5), int)


async def loop() -> None:
    """The classic loop."""
    response = await agent.generate("go", tools=[send, "look"])
    assert_type(response, nb.Response)
    assert_type(response.interrupts, list[nb.PendingInterrupt])
    await agent.generate(
        messages=response.messages,
        tool_responses=[nb.tool_response(i, 1) for i in response.interrupts],
    )


class Parrot:
    """A custom model."""

    name = "parrot"

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """Repeat the request."""
        yield TextDelta(request.messages[-1]["content"][0]["text"])
        yield Finished()


class Shelf:
    """A custom store."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Store nothing."""

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """Return no events."""
        return []

    def run_ids(self) -> list[str]:
        """Return no ids."""
        return []


def extending() -> None:
    """The protocols are public, and other objects are refused."""
    model: nb.Model = Parrot()
    store: nb.Store = Shelf()
    nb.Agent(model, store=store)
    nb.Agent(Shelf())  # type: ignore[arg-type]
    nb.Agent("demo", store=Parrot())  # type: ignore[arg-type]


def sync(run: nb.Run) -> None:
    """``run_sync`` accepts the arguments of ``run``."""
    assert_type(agent.run("go", after=run, show=False), nb.Run)
    assert_type(agent.run_sync("go", after=run, on_rerun="keep", pending="queue"), Result)
    agent.run_sync("go", atended=False)  # type: ignore[call-arg]
    agent.run_sync("go", on_rerun="stop")  # type: ignore[arg-type]
    agent.run("go", on_rerun="stop")  # type: ignore[arg-type]


@agent.tool(aproval=True)  # type: ignore[call-overload,untyped-decorator]
def mistyped(path: str) -> str:
    """An option that there is not is refused on both."""
    return path


async def events(run: nb.Run) -> None:
    """Every event has a type."""
    async for event in run.events():
        assert_type(event.type.upper(), str)
        if event.type == "text_delta":
            assert_type(event.text, str)


async def resolutions(i: nb.PendingInterrupt, run: nb.Run) -> None:
    """Each helper creates the value of its kind, and each list accepts only its own kind."""
    assert_type(nb.tool_response(i, 1), nb.Respond)
    assert_type(i.restart(), nb.Restart)
    assert_type(nb.tool_rejection(i), nb.Reject)
    await agent.generate(
        messages=[],
        tool_responses=[nb.tool_response(i, 1), send.respond(i, 5), nb.Respond(1, interrupt=i)],
        tool_restarts=[i.restart(), nb.Restart(interrupt=i.id)],
        tool_rejections=[i.reject("no")],
    )
    await agent.generate(tool_responses=[i.restart()])  # type: ignore[list-item]
    await agent.generate(tool_restarts=[(i, i.restart())])  # type: ignore[list-item]
    run.resolve(i, nb.Restart())
    run.resolve(i.restart())
    run.resolve(i, "yes")  # type: ignore[arg-type]
    nb.Respond(1, interrupt=1)  # type: ignore[arg-type]


async def forms() -> None:
    """A form's answer has the requested type."""
    assert_type(await form(Transfer), Transfer)
    print(form(Transfer).amount)  # type: ignore[attr-defined]


def still_functions() -> None:
    """A tool can be called like its function."""
    pieces(count=1)
    pieces(count="one")  # type: ignore[arg-type]


class ConfirmTransfer(nb.Confirm):
    """Metadata with facts of its own."""

    amount: float


def metadata(names: list[str]) -> None:
    """The first field is positional, the others are keywords, and each has its type."""
    nb.Confirm("Sure?", danger=True)
    nb.Confirm(message="Sure?")
    nb.Confirm("Sure?", dangr=True)  # type: ignore[call-overload]
    nb.Confirm()  # type: ignore[call-overload]
    nb.Ask("How many?")
    nb.Ask(5)  # type: ignore[call-overload]
    nb.Choose("Which?", ["a", nb.Option("b", "Bee")], multiple=True)
    nb.Choose("Which?", choices=lambda: names)
    nb.Choose("Which?")  # type: ignore[call-overload]
    nb.Edit("Look it over", fields=["text"])
    nb.Reject("no"), nb.Respond("x"), nb.Restart({"amount": 5}, data=1)
    nb.Reject(5)  # type: ignore[arg-type]
    nb.Respond(outptu="x")  # type: ignore[call-arg]
    ConfirmTransfer(message="Sure?", amount=5)
    ConfirmTransfer(message="Sure?")  # type: ignore[call-arg]


async def careful(input: Transfer, call: nb.CallView) -> bool:  # noqa: A002
    """A condition that looks at the call."""
    return input.amount > 1 and bool(call.messages) and call.context is not None


def conditions() -> None:
    """A condition takes the input, or the input and the call; it may be async."""
    nb.allow("send", when=lambda a: a.amount > 1)
    nb.review("send", when=lambda a, c: c.context is None)
    nb.deny("send", when=careful)
    agent.tool(approval=careful)
    nb.deny("send", when=5)  # type: ignore[arg-type]
    agent.run("go", answer=1)  # type: ignore[call-arg]


async def tell(message: Notification) -> None:
    """Receive messages about questions."""
    assert_type((message.title, message.text, message.runs), tuple[str, str, tuple[str, ...]])


def outside(sent: list[Notification]) -> None:
    """Report and trace runs outside of the notebook."""
    assert_type(nb.notify(tell, inputs=True), Notifier)
    with nb.notify(sent.append) as notifier, nb.trace(content=True) as tracing:
        notifier.stop()
        assert_type(tracing, Tracing)
    nb.notify("json://localhost")
    nb.notify()
    nb.notify(inputs=True)  # type: ignore[call-overload]
    nb.notify(7)  # type: ignore[call-overload]
