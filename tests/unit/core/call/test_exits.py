"""An exception of a body ends only its call: siblings continue, and later runs work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.tools.tool import Tool

call = nb.ScriptedModel.call


class Stop(BaseException):
    """A library's exception that is not an ``Exception``."""


EXITS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, Stop]


def in_thread(error: type[BaseException]) -> Tool[..., Any]:
    @nb.tool
    def act() -> str:
        raise error("out")

    return act


def on_loop(error: type[BaseException]) -> Tool[..., Any]:
    @nb.tool(thread=False)
    def act() -> str:
        raise error("out")

    return act


def coroutine(error: type[BaseException]) -> Tool[..., Any]:
    @nb.tool
    async def act() -> str:
        await asyncio.sleep(0)
        raise error("out")

    return act


def generator(error: type[BaseException]) -> Tool[..., Any]:
    @nb.tool
    def act() -> Iterator[str]:
        yield "piece"
        raise error("out")

    return act


def async_generator(error: type[BaseException]) -> Tool[..., Any]:
    @nb.tool
    async def act() -> AsyncIterator[str]:
        yield "piece"
        raise error("out")

    return act


@nb.tool
async def beside() -> str:
    """A sibling that takes a moment longer."""
    await asyncio.sleep(0.01)
    return "done beside"


def agent_with(tool: Tool[..., Any]) -> nb.Agent:
    return nb.Agent(
        nb.ScriptedModel([[call("act"), call("beside")], "went on"]), tools=[tool, beside]
    )


def check(calls: dict[str, list[Any]], error: type[BaseException]) -> None:
    (act,), (sibling,) = calls["act"], calls["beside"]
    assert act.failed
    assert "act failed" in act.error
    assert error.__name__ in act.error
    assert sibling.output == "done beside"


@pytest.mark.parametrize("error", EXITS, ids=lambda e: e.__name__)
@pytest.mark.parametrize("kind", [in_thread, on_loop, coroutine, generator, async_generator])
class TestEveryBody:
    """Each kind of body, each exception, each kind of loop."""

    async def test_c143_a_tool_that_exits_fails_only_its_call_on_the_loop_of_the_caller(
        self, kind: Callable[..., Any], error: type[BaseException]
    ) -> None:
        """The run is on the script's loop."""
        run = agent_with(kind(error)).run("go")
        result = await asyncio.wait_for(run, 20)
        check(result.calls, error)
        assert result.text == "went on"

    def test_c143_a_tool_that_exits_fails_only_its_call_on_the_private_loop(
        self, kind: Callable[..., Any], error: type[BaseException]
    ) -> None:
        """``run_sync`` from code without a loop; the next one works too."""
        result = agent_with(kind(error)).run_sync("go")
        check(result.calls, error)
        assert nb.Agent(nb.ScriptedModel(["and again"])).run_sync("go").text == "and again"

    async def test_c143_a_tool_that_exits_fails_only_its_call_step_by_step(
        self, kind: Callable[..., Any], error: type[BaseException]
    ) -> None:
        response = await agent_with(kind(error)).generate("go")
        assert response.text == "went on"


@pytest.mark.parametrize("error", EXITS, ids=lambda e: e.__name__)
def test_an_exit_raised_by_middleware_fails_only_its_call(error: type[BaseException]) -> None:
    """Middleware is trusted no more than a tool."""

    async def around(_call: Any, _next: Any) -> Any:
        raise error("out")

    model = nb.ScriptedModel([[call("beside")], "went on"])
    result = nb.Agent(model, tools=[beside], middleware=[around]).run_sync("go")
    assert result.calls["beside"][0].failed
    assert result.text == "went on"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_model_that_exits_fails_only_its_run(error: type[BaseException]) -> None:
    """The shared loop of the runs continues."""

    class Exits:
        name = "exits"

        async def stream(self, _request: Any) -> AsyncIterator[Any]:
            raise error("out")
            yield

    with pytest.raises(nb.NbagentError, match=error.__name__):
        nb.Agent(Exits()).run_sync("go")
    assert nb.Agent(nb.ScriptedModel(["and again"])).run_sync("go").text == "and again"


def test_a_task_started_by_a_tool_that_exits_does_not_end_the_loop_of_runs() -> None:
    """Asyncio raises the exit out of the loop; the loop runs again."""

    @nb.tool
    async def act() -> str:
        async def leave() -> None:
            raise SystemExit

        task = asyncio.create_task(leave())
        await asyncio.wait([task])
        return type(task.exception()).__name__

    model = nb.ScriptedModel([[call("act")], "went on"])
    result = nb.Agent(model, tools=[act]).run_sync("go")
    assert (result.calls["act"][0].value, result.text) == ("SystemExit", "went on")
