"""Tests the first steps in a Python without threads: top-level code, which Pyodide awaits."""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import nbagent as nb
from nbagent.core.base.process import this_process
from nbagent.core.run import heartbeat

heartbeat.BEAT = 0.01
assert sys.platform == "emscripten"
assert "openai" not in sys.modules
call = nb.ScriptedModel.call
warned = []


class Heard(logging.Handler):
    def emit(self, record):
        warned.append(record.getMessage())


logging.getLogger("nbagent").addHandler(Heard())

# plain and async tools, and an approval given in code
store = nb.SQLiteStore(Path(tempfile.mkdtemp()) / "runs.db")
agent = nb.Agent(
    nb.ScriptedModel(
        [[call("plain", x=20), call("waits", x=1)], call("pay", amount=5), "**Paid**, $x^2$."]
    ),
    store=store,
)


@agent.tool
def plain(x: int) -> int:
    """Double it."""
    return 2 * x


@agent.tool
async def waits(x: int) -> int:
    """Add one."""
    await asyncio.sleep(0.2)
    return x + 1


@agent.tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


run = agent.run("go")
await run.settled()
assert run.status == "interrupted", run
run.approve(run.interrupts[0])
result = await run
assert result.text == "**Paid**, $x^2$.", result
assert run.calls["plain"][0].value == 40
assert run.calls["waits"][0].value == 2
assert store.beats(this_process()) > 1  # heartbeats for other processes with this store
page = run.to_html()
assert "<strong>Paid</strong>" in page, page
assert "<msup>" in page, page
opened = await nb.open_run(run.id, store=store)
assert (await opened).text == result.text


# a store that may block: elsewhere, a thread would write to it
class Waited:
    """A store with only the required methods."""

    def __init__(self):
        kept = nb.MemoryStore()
        self.append, self.read, self.run_ids = kept.append, kept.read, kept.run_ids


waited = nb.Agent(nb.ScriptedModel([call("plain", x=3), "done"]), tools=[plain], store=Waited())
assert (await waited.run("go")).text == "done"

# ctx.ask with a JSON Schema, answered by answers=
asker = nb.Agent(nb.ScriptedModel([call("why"), "done"]))


@asker.tool
async def why(ctx: nb.ToolContext) -> str:
    """Ask."""
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    return str(await ctx.ask("Why?", reply=schema))


asked = asker.run("go", answers=[{"why": "rent"}])
await asked
assert asked.calls["why"][0].value == "{'why': 'rent'}", asked.calls


# a flow
@nb.flow
async def both(a: int, ctx: nb.ToolContext) -> int:
    """Two steps."""
    first = await ctx.step("first", lambda: a + 1)
    return first + await ctx.step("second", lambda: a * 10)


assert (await both.run(4)).output == 45

# a nested agent, a chat, the demo model
talker = nb.Agent("demo", name="talker")
chat = talker.chat()
assert (await chat.send("Hello!")).text
assert "openai" not in sys.modules

assert not warned, warned


# unsupported calls raise an error with the reason
async def refused(make):
    try:
        made = make()
        if made is not None:
            await made
    except nb.NbagentError as error:
        return str(error)
    raise AssertionError("it was not refused")


for make in (
    lambda: talker.run("Hello!", background=True),
    lambda: talker.run_sync("Hello!"),
    lambda: run.fork(at=run.journal[0]).wait(),
):
    told = await refused(make)
    assert "Python in a web page has none" in told, told
    assert "await agent.run" in told, told

late = nb.Agent(
    nb.ScriptedModel([[call("blocks"), call("sleeps"), call("outer")], "done"]),
    middleware=[nb.Timeout(2)],
)


@late.tool
def blocks() -> str:
    """Block."""
    raise AssertionError("never called")


@late.tool
async def sleeps() -> str:
    """Sleep."""
    await asyncio.sleep(60)


@late.tool
async def outer(ctx: nb.ToolContext) -> str:
    """Start a run whose tool is plain."""
    inner = nb.Agent(nb.ScriptedModel([call("plain", x=1), "done"]), tools=[plain])
    return (await inner.run("go")).text


ended = late.run("go")
await ended
assert "Timeout cannot stop a `def` tool" in ended.calls["blocks"][0].error, ended.calls
assert "took longer than 2 s" in ended.calls["sleeps"][0].error, ended.calls
assert ended.calls["outer"][0].value == "done", ended.calls
blocked = nb.Agent(nb.ScriptedModel([call("asks")]))


@blocked.tool
def asks(ctx: nb.ToolContext) -> str:
    """Ask, and wait."""
    return ctx.ask_sync("Which?")


told = await refused(lambda: blocked.run("go"))
assert "await ctx.ask" in told, told
assert "a web page has no" in told, told
rows = await nb.map(
    nb.Agent(nb.ScriptedModel(lambda _: "sorted"), name="sorter"),
    range(5),
    prompt="row {}",
    id="rows",
)
assert rows.counts["completed"] == 5, rows
told = await refused(rows.wait)
assert "await batch" in told, told
print("whole")
