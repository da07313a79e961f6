"""Background runs in real kernels continue and accept answers while a cell blocks the main thread."""

from __future__ import annotations

import pytest

from tests.integration.kernels import NEWEST, front_end
from tests.integration.test_runs_in_kernels import Page

AGENT = """
import threading, time
main = threading.current_thread()
at = {}

def seen(name):
    at[name] = time.monotonic()
    return threading.current_thread() is main

def working():
    made = nb.Agent(nb.ScriptedModel([
        call("sure"), [call("awaits"), call("threaded"), call("bound")], "all done",
    ]))

    @made.tool(approval=True)
    def sure() -> bool:
        return seen("sure")

    @made.tool
    async def awaits() -> bool:
        return seen("awaits")

    @made.tool
    def threaded() -> bool:
        return seen("threaded")

    @made.tool(thread=False)
    def bound() -> bool:
        return seen("bound")

    return made
"""
BUSY = """
run = working().run("go", background=True)
print("started")
until = time.monotonic() + {seconds}
while time.monotonic() < until and len(at) < 3:
    time.sleep(0.01)
over = time.monotonic()
print("then", sorted(at))
"""
TOLD = """
print((await run).text, {name: run.calls[name][0].value for name in sorted(at)}, at["bound"] >= over)
"""
ON_MAIN = "{'awaits': False, 'bound': True, 'sure': False, 'threaded': False} True"


@pytest.mark.parametrize(
    ("version", "subshell"),
    [("6.29.5", False), ("7.0.1", True), (NEWEST, True), (NEWEST, False)],
)
def test_c229_a_background_run_is_answered_while_a_cell_computes(version, subshell):
    """With a subshell, the run continues at once, otherwise after the cell. A tool bound to the main thread waits."""
    with front_end(version, subshell=subshell) as kernel:
        page = Page(kernel)
        kernel.must_run(AGENT)
        request = page.start(BUSY.format(seconds=20 if subshell else 0.5))
        kernel.until_printed("started")
        card = page.card()
        if subshell:
            page.press(card, page.question(card))
        assert kernel.finish(request).status == "ok", kernel.errors()
        ran = ["awaits", "sure", "threaded"] if subshell else []
        assert f"then {ran}" in kernel.printed()
        if not subshell:
            page.press(card, page.question(card))
        assert kernel.must_run(TOLD) == f"all done {ON_MAIN}\n"


SYNC = """
run = working().run("go", background=True)
print("waits")
print(run.wait().text, at["bound"] > 0)
"""
STOPS = """
made = working()
run = made.run("go", background=True)
print("waits")
run.wait()
"""


def test_c229_a_cell_that_waits_for_a_background_run_lends_it_the_main_thread():
    """The form can be answered, bound tools run on the main thread, and the stop button cancels the run."""
    with front_end(subshell=False) as kernel:
        page = Page(kernel)
        kernel.must_run(AGENT)
        request = page.start(SYNC)
        card = page.card()
        page.press(card, page.question(card))
        assert kernel.finish(request).status == "ok", kernel.errors()
        assert "all done True" in kernel.printed()
        request = page.start(STOPS)
        page.question(page.card())
        kernel.until_printed("waits")
        kernel.interrupt()
        assert kernel.finish(request).error == "KeyboardInterrupt"
        assert "cancelled" in kernel.must_run("print(run.status)")


RUN_ALL = """
import nbagent as nb
call = nb.ScriptedModel.call
model = nb.ScriptedModel([call("ask", question="Which?"), "one", "two", "three"])
agent = nb.Agent(model, tools=[nb.interrupt_tool("ask", output=str)])
first = agent.run("a"{answers})
"""


@pytest.mark.parametrize("answers", ["", ", answers={'ask': 'this'}"])
def test_c145_run_all_without_a_person_finishes_or_names_the_question(answers):
    """Like nbclient and nbval: no cell hangs; with ``answers=`` all runs end in order."""
    with front_end() as kernel:
        cells = [
            RUN_ALL.replace("{answers}", answers),
            "second = agent.run('b', after=first)\nsecond.status",
            "third = agent.run('c', after=second)\nthird",
            "print((await third).text, second.result.text)",
        ]
        done = [kernel.run(cell, cell_id=cell, allow_stdin=False) for cell in cells]
        ends = [(each.status, each.error) for each in done]
        if answers:
            assert ends == [("ok", "")] * 4, kernel.errors()
            assert done[3].stdout == "three two\n"
            assert "three" in done[2].displays[-1]["text/plain"]
        else:
            asked = ("error", "HumanInputRequired")
            assert ends == [("ok", ""), ("ok", ""), asked, asked], kernel.errors()
            assert "queued behind the previous run" in done[2].displays[-1]["text/plain"]


CONNECTED = """
import sqlite3
import nbagent as nb
kept = sqlite3.connect(":memory:")
call = nb.ScriptedModel.call
seen = []

def banker():
    made = nb.Agent(nb.ScriptedModel([call("count"), "counted"]))

    @made.tool(thread=False)
    def count() -> int:
        seen.extend(kept.execute("select 41 + 1").fetchone())
        return seen[-1]

    return made

def asking(**options):
    made = nb.Agent(nb.ScriptedModel([call("delegate"), "all"]))

    @made.tool(thread=options.pop("thread", True))
    def delegate() -> str:
        return banker().run_sync("go", **options).text

    return made
"""
WAITS = (
    "await banker().run('go')",
    "await banker().run('go', background=True)",
    "banker().run_sync('go')",
    "%load_ext nbagent\nmade = banker()\n%agent made go",
    "await asking().run('go')",
    "await asking(thread=False, nested=False).run('go')",
    "store = nb.MemoryStore()\n"
    "made = banker()\n"
    "made.policy = [nb.review('count')]\n"
    "run = made.run('go', store=store)\n"
    "await run.settled()\n"
    "again = await nb.open_run(run.id, agent=made, store=store, answers={'count': True})\n"
    "await again",
)
ALONE = ("banker().run('go').wait()", "banker().run('go')")
"""Cells for unattended runs; an attended run would use the loop that such a cell blocks, or outlive the cell."""


@pytest.mark.parametrize("attended", [True, False])
@pytest.mark.parametrize("version", ["6.29.5", NEWEST])
def test_c229_a_tool_bound_to_the_main_thread_runs_there_however_a_cell_waits(version, attended):
    """A cell's ``sqlite3`` connection works in a ``thread=False`` tool, with or without a person."""
    with front_end(version) as kernel:
        kernel.must_run(CONNECTED)
        for cell in WAITS[:-1] if attended else WAITS + ALONE:
            done = kernel.run(cell, allow_stdin=attended)
            assert done.status == "ok", (cell, kernel.errors())
            assert kernel.must_run("print(seen.pop() if seen else None)") == "42\n", cell
