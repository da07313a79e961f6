"""Calls that a run makes into the code of capabilities that it does not use: a table, and the measured runs.

    python -m tests.bench.capabilities          prints the calls into each capability's room, without and with it
    python -m tests.bench.capabilities --json   the same, as ``tests/unit/test_figures.py`` reads it

A capability's room is its code: files or folders of nbagent (``data/``), or functions of a file
(``core/base/secrets.py:release``; a class means its methods). Runs without a capability are counted from start to end,
because making an agent may check what it needs. ``figures.json`` has the known counts. Run this in a new process.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import pandas as pd
import pydantic
from opentelemetry.sdk.trace import TracerProvider

import nbagent as nb
from nbagent.core.base.model import Hosted

from .journeys import Profiler, Step

call = nb.ScriptedModel.call
Play = Callable[[], Awaitable[object]]
LOOKED = call("look", n=1)
ASKED = call("send", n=1)


class Capability(NamedTuple):
    """A capability, the code (room) that only this capability needs, and runs that use it."""

    name: str
    room: tuple[str, ...]
    used: Play
    without: tuple[str, ...] = ("run", "pause", "generate")
    """Names of the plain runs that do not use the capability."""

    def calls(self, steps: Sequence[Step]) -> Counter[Step]:
        """Calls into the capability's room, by function."""
        return Counter(step for step in steps if any(is_in(step, part) for part in self.room))


def is_in(step: Step, part: str) -> bool:
    """Whether a function belongs to this part of a room."""
    file, _, function = part.partition(":")
    if function:
        return step.file == file and f"{step.function}.".startswith(f"{function}.")
    return step.file.startswith(part) if part.endswith("/") else step.file == part


# --- agents


def agent_of(*steps: Any, tools: Sequence[Any] = (), **options: Any) -> nb.Agent:
    """An agent that plays these steps; the tool ``look`` looks something up, ``send`` asks before it sends."""
    agent = nb.Agent(options.pop("model", None) or nb.ScriptedModel(steps), tools=tools, **options)

    @agent.tool
    async def look(n: int) -> str:
        """Look something up."""
        return f"found {n}"

    @agent.tool
    async def send(n: int, ctx: nb.ToolContext) -> str:
        """Ask, then send."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Send?"))
        return f"sent {n}"

    return agent


async def answered(run: nb.Run) -> nb.Run:
    """Approve the run's one question, and wait for the run's end."""
    await run.settled()
    run.restart(run.interrupts[0])
    await run
    return run


def started(agent: nb.Agent, prompt: Any = "go", **options: Any) -> nb.Run:
    """A run that a person could answer, without a card."""
    return agent.run(prompt, attended=True, show=False, **options)


# --- plain runs: an agent with two tools, in memory, outside of a notebook


def plain_runs() -> dict[str, Callable[[nb.Agent], Awaitable[object]]]:
    """Plain runs by name; each plays an agent that was made before."""

    async def generate(agent: nb.Agent) -> None:
        await agent.generate("go")

    async def run(agent: nb.Agent) -> None:
        await agent.run("go")

    async def pause(agent: nb.Agent) -> None:
        await answered(started(agent))

    return {"run": run, "pause": pause, "generate": generate}


# --- runs with a capability


async def with_a_store_on_disk() -> None:
    """A run that other processes may open."""
    with tempfile.TemporaryDirectory() as folder:
        await answered(started(agent_of(ASKED, "done"), store=f"{folder}/runs.db"))
        nb.runs(store=f"{folder}/runs.db")


async def with_servers() -> None:
    """A server of tools that cannot be reached."""
    with suppress(nb.NbagentError):
        await agent_of("done", tools=[nb.mcp([sys.executable, "-c", ""])]).run("go")


async def with_a_shortened_history() -> None:
    """A model that receives only the newest turn."""
    await agent_of(LOOKED, "done", history=nb.keep(turns=1)).run("go")


async def with_secrets() -> None:
    """A tool that takes a secret."""

    async def login(pin: pydantic.SecretStr) -> str:
        """Log in."""
        return f"{len(pin.get_secret_value())} characters"

    await agent_of(call("login", pin="1234"), "done", tools=[login]).run("go")


async def with_a_flow() -> None:
    """A run without a model."""

    @nb.flow
    async def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    await double.run(2)


async def with_a_chat() -> None:
    """A thread of runs."""
    await agent_of("done").chat(show=False).send("go")


async def with_files() -> None:
    """A prompt with a file."""
    await agent_of("done").run(["Read this.", nb.File(b"text", "text/plain", name="a.txt")])


async def with_a_picture() -> None:
    """A prompt with a picture of one pixel."""
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d494844520000000100000001080600000"
        "01f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
    await agent_of("done").run(["What is this?", nb.File(pixel, "image/png")])


class HostingModel(nb.ScriptedModel):
    """A model whose provider runs tools."""

    def check_hosted(self, tool: Hosted) -> None:
        """Accept every hosted tool."""


async def with_hosted_tools() -> None:
    """A tool that the provider runs."""
    await agent_of(model=HostingModel(["done"]), tools=[nb.hosted("web_search")]).run("go")


async def with_several_models() -> None:
    """A model that cannot answer, and one that does."""
    down = nb.ScriptedModel([OSError("down")])
    await agent_of(model=nb.Fallback(down, nb.ScriptedModel(["done"]))).run("go")


async def with_a_run_inside() -> None:
    """A tool whose body starts a run."""

    async def delegate() -> str:
        """Have another do it."""
        return (await agent_of("inner").run("go")).text

    await agent_of(call("delegate"), "done", tools=[delegate]).run("go")


async def with_a_queued_run() -> None:
    """A run that waits until the one before it has ended."""
    first = started(agent_of(ASKED, "done"))
    await first.settled()
    second = started(agent_of("done"), after=first)
    await answered(first)
    await second


async def with_a_run_before() -> None:
    """A run that continues the conversation of another run."""
    first = agent_of("done").run("go")
    await first
    await agent_of("done").run("and now?", after=first)


async def with_rules() -> None:
    """A rule that allows a call."""
    await agent_of(LOOKED, "done", policy=[nb.allow("look")]).run("go")


async def with_an_answer_type() -> None:
    """An answer that is a number."""
    await agent_of("42", output_type=int).run("go")


async def with_a_budget() -> None:
    """A run with a budget."""
    await agent_of("done", budget=nb.Budget(cost=1.0)).run("go")


async def with_made_instructions() -> None:
    """Instructions that a function makes."""
    await agent_of("done", instructions=lambda _: "Be brief.").run("go")


async def with_middleware() -> None:
    """A middleware around each call."""
    await agent_of(LOOKED, "done", middleware=[nb.Timeout(60)]).run("go")


async def with_a_deadline() -> None:
    """A question that is answered long before its deadline."""

    async def hurry(ctx: nb.ToolContext) -> str:
        """Ask for an answer within the hour."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Now?"), expires_in=3600)
        return "now"

    await answered(started(agent_of(call("hurry"), "done", tools=[hurry])))


async def with_prepared_answers() -> None:
    """An answer that was given with the prompt."""
    await agent_of(ASKED, "done").run("go", attended=False, answers=[nb.Restart()])


async def with_a_fork() -> None:
    """A fork whose question is answered."""
    run = started(agent_of(ASKED, "done", "done"))
    await run.settled()
    fork = run.fork()
    await answered(fork)
    await run.cancel()


async def with_a_retry() -> None:
    """A model that fails once."""
    run = agent_of(OSError("the network is down"), "done").run("go")
    with suppress(nb.NbagentError):
        await run
    await run.retry()


async def with_a_thread() -> None:
    """A tool that is no coroutine."""

    def compute(n: int) -> int:
        """Compute."""
        return n + 1

    await agent_of(call("compute", n=1), "done", tools=[compute]).run("go")


async def with_a_question_in_a_body() -> None:
    """A body that asks, and continues after the answer."""

    async def ask(ctx: nb.ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask("Really?", reply=bool))

    await agent_of(call("ask"), "done", tools=[ask]).run("go", attended=False, answers=[True])


async def with_a_loop_of_its_own() -> None:
    """A run that continues while this thread computes."""
    await agent_of("done").run("go", attended=False, background=True)


async def with_a_plan() -> None:
    """The model shows its plan."""
    planner = nb.Agent(nb.ScriptedModel([call("plan", steps=["a", "b"]), "ok"]), tools=[nb.plan])
    await planner.run("go")


async def with_what_a_call_gives_off() -> None:
    """A tool that reports its progress."""

    async def count(ctx: nb.ToolContext) -> str:
        """Count."""
        ctx.progress(0.5, "half of it")
        return "all"

    await agent_of(call("count"), "done", tools=[count]).run("go")


async def with_a_remembered_answer() -> None:
    """An approval that also counts for the second call."""
    run = started(agent_of(LOOKED, LOOKED, "done", policy=[nb.review("look")]))
    await run.settled()
    run.approve(run.interrupts[0], remember="tool_in_run")
    await run


async def with_partial_answers() -> None:
    """An answer that is read while it streams."""
    run = agent_of(nb.ScriptedModel.slow("one two three", pieces=3)).run("go")
    async for _ in run.partials():
        pass


async def with_a_history() -> None:
    """A conversation that was stored as data, with a question in it."""
    response = await agent_of(ASKED).generate("go")
    await agent_of("done").generate(
        messages=response.messages, tool_restarts=[nb.tool_restart(response.interrupts[0])]
    )


async def with_a_cancel() -> None:
    """A run that is stopped."""
    run = started(agent_of(ASKED))
    await run.settled()
    await run.cancel()


async def with_a_page() -> None:
    """A run that is drawn, with its question."""
    run = started(agent_of(ASKED))
    await run.settled()
    assert run.to_html()
    await run.cancel()


async def with_a_table() -> None:
    """A table in a prompt, and a name in braces."""
    orders = pd.DataFrame({"a": [1]})
    await agent_of("done").run(["look", orders])
    with suppress(UserWarning), warnings.catch_warnings(action="error"):
        await agent_of("done").run("look at {orders}")


async def with_a_table_of_a_step() -> None:
    """A step that returns a table."""

    @nb.flow
    async def load(ctx: nb.ToolContext) -> int:
        """Load some."""
        return len(await ctx.step("load", lambda: pd.DataFrame({"a": [1]})))

    await load.run()


async def with_code() -> None:
    """A model that runs Python after an approval."""
    agent = agent_of(call("run_python", code="1"), "done", tools=nb.notebook_tools(code=True))
    await answered(started(agent))


async def with_data_tools() -> None:
    """Tools that read the notebook's data."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as sales:
        await agent_of(call("list_data"), "done", tools=nb.notebook_tools(sales=sales)).run("go")


async def with_messages_and_spans() -> None:
    """A run whose question is reported, and which is traced."""
    provider = TracerProvider()
    with nb.notify(lambda _message: None) as notifier, nb.trace(tracer_provider=provider):
        await answered(started(agent_of(ASKED, "done")))
    notifier.flush(0.0)


CAPABILITIES = [
    Capability("messages and spans", ("listeners/",), with_messages_and_spans),
    Capability(
        "processes that share a store",
        ("core/run/session.py:Follower", "core/run/lost_calls.py", "core/run/heartbeat.py"),
        with_a_store_on_disk,
    ),
    Capability("stores on disk", ("stores/", "core/stored/"), with_a_store_on_disk),
    Capability("servers of tools", ("mcp_servers/", "core/tools/toolbox.py"), with_servers),
    Capability(
        "secrets",
        ("core/base/secrets.py",),
        with_secrets,
    ),
    Capability("shortened histories", ("core/engine/sent_history.py",), with_a_shortened_history),
    Capability("flows", ("core/flow.py",), with_a_flow),
    Capability("chats", ("core/chat.py",), with_a_chat),
    Capability("files", ("core/tools/attachments.py", "core/base/file_parts.py"), with_files),
    Capability("pictures", ("core/tools/image_bytes.py",), with_a_picture),
    Capability("hosted tools", ("core/tools/hosted.py",), with_hosted_tools),
    Capability("several models", ("models/fallback.py",), with_several_models),
    Capability(
        "runs inside calls", ("core/run/nested.py", "core/engine/runs.py"), with_a_run_inside
    ),
    Capability(
        "queued runs",
        (
            "core/run/session.py:queued_run_events",
            "core/run/session.py:Session.start_or_end_after_previous",
            "core/run/session.py:Session.first_in_queue",
            "core/run/session.py:Session._leave_queue",
        ),
        with_a_queued_run,
    ),
    Capability("conversations over runs", ("core/journal/history.py",), with_a_run_before),
    Capability("rules", ("core/tools/policy.py", "core/tools/rule_check.py"), with_rules),
    Capability("answer types", ("core/tools/answer_type.py",), with_an_answer_type),
    Capability("budgets of cost", ("core/tools/spec.py:check_cost",), with_a_budget),
    Capability("made instructions", ("core/tools/instructions.py",), with_made_instructions),
    Capability("middleware", ("core/tools/middleware.py",), with_middleware),
    Capability(
        "deadlines",
        (
            "core/run/session.py:Session._watch",
            "core/run/session.py:Session._apply_deadlines",
        ),
        with_a_deadline,
    ),
    Capability("prepared answers", ("core/run/scripted_answers.py",), with_prepared_answers),
    Capability("forks", ("core/state/fork.py",), with_a_fork),
    Capability("retries", ("core/state/retried_calls.py",), with_a_retry),
    Capability("threads", ("core/call/threads.py:run_in_thread",), with_a_thread),
    Capability(
        "questions",
        ("core/call/questions.py", "core/run/answers.py"),
        with_a_question_in_a_body,
        without=("run",),
    ),
    Capability(
        "loops of their own", ("core/call/threads.py:private_loop",), with_a_loop_of_its_own
    ),
    Capability("what calls give off", ("core/tools/call_output.py",), with_what_a_call_gives_off),
    Capability(
        "plans", ("core/tools/plan.py", "core/tools/context.py:ToolContext.plan"), with_a_plan
    ),
    Capability("remembered answers", ("core/base/memory.py",), with_a_remembered_answer),
    Capability("partial answers", ("core/run/partial_answer.py",), with_partial_answers),
    Capability("records of a pause", ("core/state/pause_record.py",), with_a_history),
    Capability(
        "cancelling",
        (
            "core/run/session.py:Session.stop",
            "core/run/session.py:Session.stopped_by_keyboard",
            "core/run/session.py:Session._write_cancellation",
        ),
        with_a_cancel,
    ),
    Capability("drawing", ("notebook/", "forms/"), with_a_page),
    Capability("data of the notebook", ("data/",), with_data_tools),
    Capability(
        "tables of steps",
        ("core/tools/step_values.py", "core/call/questions.py:Questions._packed"),
        with_a_table_of_a_step,
    ),
    Capability(
        "tables in a prompt",
        (
            "core/tools/tables.py",
            "core/tools/attachments.py:_hint_at_braces",
            "core/base/keywords.py:calling_frame",
        ),
        with_a_table,
    ),
    Capability("code of a model", ("data/code.py",), with_code),
]


async def calls_by_capability() -> dict[str, dict[str, dict[str, int]]]:
    """Calls into each capability's room: ``without`` the capability, and ``with`` it."""
    profiler, without, used = Profiler(), {}, {}
    for name, play in plain_runs().items():
        played = []
        # the first round imports modules, and on a busy machine a round may poll twice
        for _ in range(4):
            agent = agent_of(ASKED if name == "pause" else LOOKED, "done")
            with profiler.on() as steps:
                await play(agent)
            played.append(steps)
        without[name] = min(played, key=len)
    for capability in CAPABILITIES:
        with profiler.on() as used[capability.name]:
            await capability.used()
    return {
        one.name: {
            "without": sorted_calls(one.calls([s for name in one.without for s in without[name]])),
            "with": sorted_calls(one.calls(used[one.name])),
        }
        for one in CAPABILITIES
    }


def sorted_calls(calls: Counter[Step]) -> dict[str, int]:
    """Calls by file and function, most frequent first."""
    return {f"{step.file}:{step.function}": count for step, count in calls.most_common()}


def main() -> None:
    """Print the table."""
    calls = asyncio.run(calls_by_capability())
    if "--json" in sys.argv:
        print(json.dumps(calls))
        return
    for one in CAPABILITIES:
        without, used = calls[one.name]["without"], calls[one.name]["with"]
        print(f"{one.name:32}{sum(without.values()):6} without it{sum(used.values()):6} with it")
        for function, count in without.items():
            print(f"{'':32}{count:6} {function}")


if __name__ == "__main__":
    main()
