"""A model's code in real kernels runs on the main thread in the cells' namespace; Jupyter's stop button ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kernels import NEWEST, FrontEnd, front_end
from tests.integration.test_runs_in_kernels import Page

SETUP = """
import asyncio, threading
import nbagent as nb
call = nb.ScriptedModel.call
before = 20

def going(*codes, **options):
    turns = [call("run_python", code=code) for code in codes]
    agent = nb.Agent(nb.ScriptedModel([*turns, "all done"]), tools=nb.notebook_tools(code=True))
    return agent.run("go", show=False, **options)

def told(run):
    return [one.output for one in run.calls["run_python"]]
"""
CODE = """print("from the code")
after = before + 1
after, threading.current_thread() is threading.main_thread(), __name__"""
COME = '[21,true,"__main__"]'
NAMED = 'answers={"run_python": True}'
WAYS = {
    "between cells": [
        f"run = going({CODE!r}, attended=True)",
        "await run.settled(); run.approve(run.interrupts[0]); print('approved')",
        "while run.status == 'running': await asyncio.sleep(0.01)",
    ],
    "a cell awaits": [
        f"run = going({CODE!r}, attended=True)",
        "await run.settled(); run.approve(run.interrupts[0]); await run; print('approved')",
    ],
    "the cell is lent": [f"run = going({CODE!r}, attended=False, {NAMED}); run.wait()"],
    "in the background": [
        f"run = going({CODE!r}, background=True, attended=True)",
        "await run.settled(); run.approve(run.interrupts[0]); await run",
    ],
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("6.31.0", False), id="6.31.0", marks=pytest.mark.variant),
        pytest.param(("7.0.1", True), id="7.0.1", marks=pytest.mark.variant),
        pytest.param((NEWEST, True), id=NEWEST),
    ],
)
def kernel(request: pytest.FixtureRequest) -> Iterator[FrontEnd]:
    """A kernel with a model that writes code."""
    version, subshell = request.param
    with front_end(version, subshell=subshell) as page:
        page.must_run(SETUP)
        yield page


@pytest.mark.parametrize("way", WAYS)
def test_c438_code_runs_on_the_main_thread_however_its_run_is_awaited(kernel, way):
    """The code runs in the cells' namespace; its printed output belongs to the call, not to a cell."""
    kernel.seen.clear()
    kernel.must_run("after = 0")
    for cell in WAYS[way]:
        kernel.must_run(cell)
    assert "from the code" not in kernel.printed()
    assert kernel.must_run("print(*told(run), after)") == (
        f"from the code\n{COME}\nReassigned: after (int). 21\n"
    )


WATCH = """
import time
hits = 0
def watch():
    while not hits:
        time.sleep(0.01)
    print("it runs")
"""
STOPPED = {
    "between cells": (
        "while True: hits = hits + 1",
        "attended=True",
        "run.approve(run.interrupts[0])",
    ),
    "between cells, awaiting": (
        "while True:\n    hits = hits + 1\n    await asyncio.sleep(0)",
        "attended=True",
        "run.approve(run.interrupts[0])",
    ),
    "a cell awaits": (
        "while True: hits = hits + 1",
        "attended=True",
        "run.approve(run.interrupts[0]); await run",
    ),
    "the cell is lent": ("while True: hits = hits + 1", f"attended=False, {NAMED}", "run.wait()"),
}


@pytest.mark.parametrize("way", STOPPED)
def test_c439_the_stop_button_of_jupyter_ends_an_endless_loop_and_the_run_continues(kernel, way):
    """This works between cells too, when a kernel ignores the signal by default; the model gets an error."""
    code, options, then = STOPPED[way]
    kernel.must_run(WATCH)
    kernel.must_run(f"run = going({code!r}, {options}); threading.Thread(target=watch).start()")
    if "attended=True" in options:
        kernel.must_run("await run.settled()")
    kernel.seen.clear()
    request = kernel.send(then)
    kernel.until_printed("it runs")
    kernel.interrupt()
    kernel.finish(request)
    kernel.must_run("if run.status == 'running': await run")
    told = kernel.must_run("print(run.status, *told(run))")
    assert "completed The tool run_python failed: A person stopped it" in told


ENDLESS = """
import time
for n in range(10_000):
    print("step", n)
    time.sleep(0.05)
"""


def test_c690_printed_text_is_shown_at_once_and_the_stop_button_of_the_card_ends_the_code(kernel):
    """Where pages send their messages to a subshell, as in JupyterLab; elsewhere Jupyter's stop button ends the code."""
    page = Page(kernel)
    kernel.must_run(f"""
        model = nb.ScriptedModel([call("run_python", code={ENDLESS!r}), "never"])
        coder = nb.Agent(model, tools=nb.notebook_tools(code=True))""")
    page.start("run = coder.run('go', attended=True)\nrun")
    card = page.card()
    page.press(card, page.question(card))
    kernel.read_until(lambda: "step 3" in page.drawn(card))
    assert "step 3" in page.drawn(card)
    if kernel.subshell is None:
        kernel.interrupt()
    else:
        kernel.answer(card, {"type": "stop"})
        page.status(card, "cancelled")
        assert kernel.must_run("print(run.status)") == "cancelled\n"


def test_c440_code_that_awaits_is_refused_where_its_loop_is_not_on_the_main_thread(kernel):
    """No part of the code runs; on the main thread it runs on the kernel's loop, as in a cell."""
    code = "hits = 7\nawait asyncio.sleep(0)\nasyncio.get_running_loop() is loop"
    kernel.must_run("hits = 0; loop = asyncio.get_running_loop()")
    kernel.must_run(f"run = going({code!r}, attended=False, {NAMED}); run.wait()")
    told = kernel.must_run("print(*told(run), hits)")
    assert "`await` does not work here" in told
    assert told.endswith(" 0\n")
    kernel.must_run(f"run = going({code!r}, attended=True)")
    kernel.must_run("await run.settled(); run.approve(run.interrupts[0]); await run")
    assert kernel.must_run("print(*told(run), hits)") == "true\nReassigned: hits (int). 7\n"


ATTEMPTS = """
import contextvars
import ipywidgets
tries = []
def at_once(*codes):
    turn = [call("run_python", code=code) for code in codes]
    agent = nb.Agent(nb.ScriptedModel([turn, "all done"]), tools=nb.notebook_tools(code=True))
    return agent.run("go", show=False, attended=True)
def attempt(*_):
    try:
        run.approve(left)
    except nb.errors.UsageError as error:
        tries.append(str(error))
    else:
        tries.append("approved")
async def approve():
    run.approve(left)
button = ipywidgets.Button()
button.on_click(lambda _: run.approve(left))
"""
THEN_A_PERSON = {
    "threading.Timer(0, attempt).start()": "run.approve(left)",
    "asyncio.get_running_loop().call_later(0, attempt)": "await approve()",
    "asyncio.get_running_loop().call_soon(attempt, context=contextvars.Context())": (
        "task = asyncio.create_task(approve())"
    ),
    "threading.Timer(0, get_ipython().run_cell, ['attempt()']).start()": (
        "await asyncio.to_thread(run.approve, left)"
    ),
    "get_ipython().events.register('post_execute', lambda: attempt())": (
        "context = contextvars.copy_context()\n"
        "threading.Thread(target=context.run, args=(attempt,)).start()"
    ),
    "trap = ipywidgets.Button()\ntrap.on_click(lambda _: attempt())": "",
}
"""What code tries, and a way in which the person then answers; the page clicks the buttons of both."""


@pytest.mark.parametrize("code", THEN_A_PERSON)
def test_p2_what_code_leaves_behind_answers_nothing_and_each_way_of_a_person_does(kernel, code):
    """A timer, a callback, a cell of its own, a hook and a button of code are refused; a cell and its tasks are not."""
    kernel.must_run(ATTEMPTS)
    kernel.must_run(f"run = at_once({code!r}, '40 + 2')")
    kernel.must_run("await run.settled(); first, left = run.interrupts; run.approve(first)")
    kernel.must_run("while run.calls['run_python'][0].output is None: await asyncio.sleep(0.01)")
    if "trap" in code:
        kernel.answer(kernel.must_run("print(trap.comm.comm_id)").strip(), {"event": "click"})
    told = kernel.must_run(
        "while not tries: await asyncio.sleep(0.01)\nprint(len(run.interrupts), *tries)"
    )
    assert told.startswith("1 Code that a model wrote cannot answer questions"), told
    kernel.must_run("get_ipython().events.callbacks['post_execute'].clear()")
    if THEN_A_PERSON[code]:
        kernel.must_run(THEN_A_PERSON[code])
    else:
        kernel.answer(kernel.must_run("print(button.comm.comm_id)").strip(), {"event": "click"})
    told = kernel.must_run(
        "while run.status != 'completed': await asyncio.sleep(0.01)\nprint(*told(run))"
    )
    assert told.endswith("42\n")
