"""``run_python`` runs only approved code, in the person's namespace; the code can approve nothing."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import nbagent as nb
from nbagent.core.base.interrupts import digest_of
from nbagent.core.base.memory import Remembered
from nbagent.core.base.model import Usage
from nbagent.core.run.run import session_of
from nbagent.core.tools.json_schema import form_type
from nbagent.data.code import ERROR_LINES, MAX_RESULT, reach_of
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.questions import Question
from tests.until import until

call = nb.ScriptedModel.call
NAMED = {"run_python": True}


@pytest.fixture
def main(monkeypatch):
    """The namespace of a script or of cells, with a table."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    module.sales = pd.DataFrame({"month": ["jan", "feb"], "amount": [3, 5]})
    return module


def agent_of(*codes, **options):
    """An agent whose model runs these pieces of code, one in each turn."""
    steps = [call("run_python", code=code) for code in codes]
    model = nb.ScriptedModel([*steps, "done"])
    return nb.Agent(model, name="analyst", tools=nb.notebook_tools(code=True), **options)


async def text_to_model(code, answers=NAMED):
    """The result that the model gets for one approved piece of code."""
    run = agent_of(code).run("go", answers=answers, show=False)
    await run
    return run.calls["run_python"][-1].output


async def test_c430_approved_code_uses_the_variables_and_its_last_value_is_the_result(main):
    """The model gets the names that changed; the value is the object itself, in memory."""
    main.old = 1
    code = "sales['double'] = sales.amount * 2\ntotal = int(sales.double.sum())\ndel old\ntotal"
    made = "Created: total (int). Modified in place: sales (DataFrame, 2 by 3). Deleted: old."
    assert await text_to_model(code) == f"16\n{made}"
    assert (main.total, hasattr(main, "old")) == (16, False)
    table = await text_to_model("sales = sales[sales.amount > 3]\nsales")
    assert table.startswith("table (pandas.DataFrame) of 1 row \u00d7 3 columns\n")
    assert table.endswith(
        "\nmonth\tamount\tdouble\nfeb\t5\t10\nReassigned: sales (DataFrame, 1 by 3)."
    )
    assert await text_to_model("total;") == "It ran and returned no value."
    assert await text_to_model("import asyncio\nawait asyncio.sleep(0, total + 1)") == (
        "17\nCreated: asyncio (module)."
    )
    run = agent_of("doubled = [total]", "doubled").run(
        "go", answers={"run_python": True}, show=False
    )
    await run
    ended = [event for event in run.journal if event.type == "tool_finished"]
    assert [event.printed.count("Created") + event.output.count("Created") for event in ended] == [
        1,
        0,
    ]
    long = await text_to_model("'x' * 10**6")
    assert len(long) < MAX_RESULT + 200
    assert "characters left out" in long


async def test_c431_the_approval_shows_what_the_code_can_reach_and_the_edited_code_runs(main):
    """The reach of the edited text is shown; the edited code runs, and the model learns of the change."""
    agent = agent_of("sales.drop(columns='amount', inplace=True)")
    run = await agent.run("go", attended=True, show=False).settled()
    parse = agent.tools["run_python"].parse
    [asked] = run.interrupts
    assert (asked.expects, asked.editable) == ("edit", ("code",))
    words = str(reach_of(parse(asked.input)))
    assert "with access to all your variables, files and connections" in words
    assert "Uses: sales (DataFrame, 2 by 2)\nModifies in place: sales" in words
    told = agent.tools["run_python"].input_schema["properties"]
    assert told == {"code": {"title": "Code", "type": "string"}}  # works with any server
    types = Types(form_type(agent.tools["run_python"].input_type))
    [field] = Question.of(asked, types).item("q", "c", "").spec["root"]["fields"]
    assert (field["kind"], field["hint"]["code"]) == ("code", "python")
    assert '<span class="s">' in field["tint"]
    hostile = Question.of(replace(asked, input={"code": "'<img src=x onerror=1>'"}), types)
    [field] = hostile.item("q", "c", "").spec["root"]["fields"]
    assert "&lt;img" in field["tint"]
    assert "<img" not in field["tint"]
    main.pd, main.total = pd, 3
    edited = "import os\ntotal = pd.concat([sales for n in open('f')])\nnew: int = 1\ndel sales"
    assert str(reach_of(parse({"code": edited}))).splitlines()[1:] == [
        "Uses: sales (DataFrame, 2 by 2)",
        "Assigns: total (replaces int), os (new), new (new)",
        "Deletes: sales",
        "Modules: os, pandas",
        "Calls: open()",
    ]
    assert "This is not valid Python: line 1" in str(reach_of(parse({"code": "a b"})))
    run.restart(asked.id, new_input={"code": "shown = len(sales)\nshown"})
    await run
    assert "2\nCreated: shown (int)." in run.calls["run_python"][-1].output
    assert list(main.sales.columns) == ["month", "amount"]


async def test_c432_no_rule_and_no_list_lets_code_run_without_approval(main):
    """Allow rules are ignored, ``answers=`` must name the tool, and only the run itself can remember it."""
    for answers in (None, [True], lambda _asked: True):
        agent = agent_of("hit = 1", policy=[nb.allow("run_*"), nb.allow("*")])
        with pytest.raises(nb.HumanInputRequired, match=r"answers=\{'run_python': True\}"):
            await agent.run("go", answers=answers, show=False)
    agent = agent_of("hit = 1", "hit = 2")
    run = await agent.run("go", attended=True, show=False).settled()
    for scope in ("input", "tool"):
        with pytest.raises(nb.errors.InvalidAnswer, match=f"remember='{scope}_in_run'"):
            run.approve(run.interrupts[0], remember=scope)
    assert not hasattr(main, "hit")
    tool = agent.tools["run_python"]
    parameters = digest_of(tool.name, None, tool.input_schema)
    other = agent_of("hit = 1")
    other.remembered.append(
        Remembered(tool=tool.name, parameters=parameters, code=tool.code_digest)
    )
    assert (await other.run("go", attended=True, show=False).settled()).status == "interrupted"
    run.approve(run.interrupts[0], remember="tool_in_run")
    await run
    assert main.hit == 2
    denied = agent_of("hit = 3", policy=[nb.deny("run_python")])
    await denied.run("go", answers=NAMED, show=False)
    assert main.hit == 2


ANSWERS = {
    "approve": "run.approve(run.interrupts[0])",
    "respond": "run.respond(run.interrupts[0], 1)",
    "resolve": "run.resolve(run.interrupts[0].restart())",
    "asked": "[asked] = nb.inbox(store, tool='wipe')\nawait asked.answer(True)",
    "inbox": "[asked] = nb.inbox(store, tool='wipe')\n(await nb.open_run(asked.run.id, store=store)).approve(asked.interrupt)",
    "task": "import asyncio\nasync def later():\n    run.approve(run.interrupts[0])\nawait asyncio.ensure_future(later())",
    "thread": "import asyncio\nawait asyncio.to_thread(run.approve, run.interrupts[0])",
}


@pytest.mark.parametrize("way", ANSWERS)
async def test_c433_code_cannot_answer_a_question_of_any_run(main, way):
    """Whatever the code tries, the question stays open, and the model gets an error."""
    ran = []

    def wipe(path: str) -> str:
        """Wipe a disk."""
        ran.append(path)
        return "gone"

    main.nb, main.store = nb, nb.MemoryStore()
    turn = [call("run_python", code=ANSWERS[way]), call("wipe", path="/")]
    main.agent = nb.Agent(
        nb.ScriptedModel([turn, "done"]),
        tools=[*nb.notebook_tools(code=True), nb.tool(approval=True)(wipe)],
        store=main.store,
    )
    main.run = run = await main.agent.run("go", attended=True, show=False).settled()
    code = next(each for each in run.interrupts if each.tool_name == "run_python")
    run.approve(code)
    await run.settled()
    [left] = run.interrupts
    assert (left.tool_name, ran) == ("wipe", [])
    assert "Code that a model wrote cannot answer questions" in run.calls["run_python"][-1].output
    run.approve(left)
    await run
    assert ran == ["/"]


LATER = {
    "a thread": "t = threading.Thread(target=attempt)\nt.start()\nt.join()",
    "a pool": "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(attempt).result()",
    "a timer": "t = threading.Timer(0, attempt)\nt.start()\nt.join()",
    "a new context": "contextvars.Context().run(attempt)",
    "a callback": "asyncio.get_running_loop().call_later(0, attempt)",
    "a callback in a new context": "asyncio.get_running_loop().call_soon(attempt, context=contextvars.Context())",
    "a thread's callback": "loop = asyncio.get_running_loop()\nt = threading.Thread(target=loop.call_soon_threadsafe, args=(attempt,))\nt.start()\nt.join()",
    "a task": "task = asyncio.create_task(attempt_later())",
    "a task in a new context": "task = asyncio.create_task(attempt_later(), context=contextvars.Context())",
    "an inbox": "t = threading.Thread(target=asyncio.run, args=(by_inbox(),))\nt.start()\nt.join()",
    "prepared answers": "t = threading.Thread(target=asyncio.run, args=(by_answers(),))\nt.start()",
    "a history": "t = threading.Thread(target=asyncio.run, args=(by_history(),))\nt.start()\nt.join()",
    "a function that it leaves": "def total():\n    attempt()",
}
"""Code that answers later, by functions of the person, so that no frame of the code is left."""


@pytest.mark.parametrize("way", LATER)
async def test_p2_code_cannot_answer_later_or_elsewhere_and_the_person_still_can(main, way):
    """In a thread, a timer, a new context or a later call; a form, a cell's tasks and copies of its context answer."""
    ran, tries = [], []

    def wipe(path: str) -> str:
        """Wipe a disk."""
        ran.append(path)
        return "gone"

    store = nb.MemoryStore()
    turn = [call("run_python", code=LATER[way]), call("wipe", path="/")]
    agent = nb.Agent(
        nb.ScriptedModel([turn, "done", "done"]),
        name="wiper",
        tools=[*nb.notebook_tools(code=True), nb.tool(approval=True)(wipe)],
        store=store,
    )
    history = (await agent.generate("go")).messages
    agent.model = nb.ScriptedModel([turn, "done"])
    run = await agent.run("go", attended=True, show=False).settled()
    code, left = run.interrupts

    def attempt() -> None:
        tries.append(None)
        with pytest.raises(nb.errors.UsageError, match="wrote cannot answer questions"):
            run.approve(left)

    async def attempt_later() -> None:
        attempt()

    async def by_inbox() -> None:
        tries.append(None)
        [asked] = nb.inbox(store, tool="wipe")
        with pytest.raises(nb.errors.UsageError, match="wrote cannot answer questions"):
            await asked.answer(True)

    async def by_answers() -> None:
        again = await nb.open_run(run.id, store=store, agent=agent, answers=[True], show=False)
        await again.settled()
        tries.append(None)

    async def by_history() -> None:
        tries.append(None)
        answers = [nb.Restart(interrupt=i) for i in agent.interrupts(history)]
        with pytest.raises(nb.errors.UsageError, match="wrote cannot answer questions"):
            await agent.generate(messages=history, tool_restarts=answers)

    vars(main).update(locals(), asyncio=asyncio, contextvars=contextvars, threading=threading)
    run.approve(code)
    await run.settled()
    if way == "a function that it leaves":
        main.total()
    await until(lambda: tries)
    assert (run.status, run.interrupts, ran) == ("interrupted", [left], [])

    async def approve() -> None:
        run.approve(left)

    person = {
        "a thread": lambda: asyncio.to_thread(run.approve, left),
        "a pool": approve,
        "a timer": lambda: asyncio.create_task(approve()),
        "a new context": lambda: _in_a_copy(run.approve, left),
        "a callback": lambda: _called_soon(run.approve, left),
        "an inbox": lambda: nb.inbox(store, tool="wipe")[0].answer(True),
        "prepared answers": lambda: nb.open_run(run.id, store=store, answers=[True], show=False),
    }
    await person.get(way, approve)()
    await run
    assert ran == ["/"]


async def _called_soon(work: Any, *args: Any) -> None:
    asyncio.get_running_loop().call_soon(work, *args)


async def _in_a_copy(work: Any, *args: Any) -> None:
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work, *args))
    thread.start()
    thread.join()


async def test_p2_answers_that_need_no_person_arrive_from_any_thread_after_code(main):
    """Answers that were prepared for a new run, and whoever has the token of an outside system."""
    tokens = []
    assert await text_to_model("1 + 1") == "2"

    def wait_for_bank(ctx: nb.ToolContext) -> str:
        """Wait."""
        tokens.append(ctx.external_token)
        ctx.interrupt(external=True)

    prepared = await _in_thread(lambda: agent_of("2 + 3").run_sync("go", answers=NAMED, show=False))
    assert prepared.text == "done"
    agent = nb.Agent(nb.ScriptedModel([call("wait_for_bank"), "paid"]), tools=[wait_for_bank])
    run = await agent.run("go", show=False).settled()
    await _in_thread(lambda: nb.answer_external(tokens[0], "ok"))
    assert (await run).text == "paid"


async def _in_thread(work: Any) -> Any:
    """The value of a function in a thread with an empty context."""
    with ThreadPoolExecutor() as pool:
        return await asyncio.wrap_future(pool.submit(work))


RULES = {
    "policy": "agent.policy.insert(0, nb.allow('*'))",
    "policy set": "agent.policy = []",
    "remembered": "agent.remembered.append(1)",
    "budget": "agent.budget = nb.Budget()",
    "tool": "@agent.tool\ndef wipe() -> str: return 'gone'",
    "tool gone": "agent.tools.clear()",
    "options": "agent.tools['wipe'].options = agent.tools['look'].options",
    "budget in place": "object.__setattr__(agent.budget, 'tokens', 10**9)",
    "rule in place": "object.__setattr__(agent.policy[0], 'verdict', 'allow')",
    "a method of lists": "list.clear(agent.policy)",
    "awaiting": "import asyncio\nfor n in range(2):\n    await asyncio.sleep(0)\n    agent.policy.clear()",
}


@pytest.mark.parametrize("what", RULES)
async def test_c434_rules_that_code_changes_are_restored_and_the_model_learns_it(main, what):
    """Rules of any agent are restored: changed lists, new objects, and new tools with an old name."""

    def wipe() -> str:
        """Wipe a disk."""
        return "gone"

    def look() -> str:
        """Look."""
        return "there"

    main.nb, wipe.__module__ = nb, "__main__"  # like a cell's tool, which another cell may replace
    turns = [[call("run_python", code=RULES[what])], [call("wipe")], "done"]
    main.agent = agent = nb.Agent(
        nb.ScriptedModel(turns),
        tools=[*nb.notebook_tools(code=True), nb.tool(approval=True)(wipe), look],
        policy=[nb.review("wipe")],
        budget=nb.Budget(tokens=10_000),
    )
    rules, budget, tools = [nb.review("wipe")], nb.Budget(tokens=10_000), dict(agent.tools)
    run = await agent.run("go", attended=True, show=False).settled()
    run.approve(run.interrupts[0])
    await run.settled()
    assert "A model's code cannot change rules" in run.calls["run_python"][-1].output
    assert (agent.policy, agent.budget, dict(agent.tools)) == (rules, budget, tools)
    assert agent.remembered == []
    assert [each.tool_name for each in run.interrupts] == ["wipe"]


CHANGES = {
    "no rules": (list.clear, "policy"),
    "another rule": (lambda rules: object.__setattr__(rules[0], "verdict", "allow"), "policy"),
    "a list of rules": (lambda state: state.update(policy=[]), "__dict__"),
    "a budget": (lambda budget: object.__setattr__(budget, "tokens", 10**9), "budget"),
    "no tools": (dict.clear, "tools"),
    "a tool's options": (lambda tools: setattr(tools["wipe"], "options", None), "tools"),
    "a tool's function": (lambda tools: setattr(tools["wipe"], "fn", print), "tools"),
    "approvals": (lambda known: list.append(known, "all"), "remembered"),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("what", CHANGES)
async def test_p2_a_run_keeps_the_rules_limits_and_tools_of_its_start(main, what, inside):
    """Whatever a thread of the code changes after the code has ended, also in an inner agent."""
    change, attribute = CHANGES[what]
    is_over, is_changed = threading.Event(), threading.Event()

    def wipe() -> str:
        """Wipe a disk."""
        return "gone"

    def later() -> None:
        is_over.wait(10)
        change(getattr(guarded, attribute))
        is_changed.set()

    async def reply(messages: Any) -> Any:
        if messages[-1]["role"] == "user":
            return call("run_python", code="threading.Thread(target=later).start()")
        if len(messages) > 3:
            return "done"
        is_over.set()
        await asyncio.to_thread(is_changed.wait, 10)
        return call("inner", prompt="wipe") if inside else call("wipe")

    limit = nb.Budget(tokens=12 if inside else 25)  # for one turn inside, else for the code's too
    rules = {"policy": [nb.deny("wipe")], "budget": limit}
    if what in ("a budget", "approvals"):
        rules["policy"] = [nb.review("wipe")]
    usage, code = Usage(10, 5), nb.notebook_tools(code=True)
    if inside:
        model = nb.ScriptedModel([call("wipe"), "done"], usage=usage)
        guarded = nb.Agent(model, name="inner", tools=[wipe], **rules)
        agent = nb.Agent(nb.ScriptedModel(reply), tools=[*code, guarded.as_tool()])
    else:
        model = nb.ScriptedModel(reply, usage=usage)
        agent = guarded = nb.Agent(model, tools=[*code, wipe], **rules)
    vars(main).update(threading=threading, later=later)
    run = await agent.run("go", attended=True, show=False).settled()
    run.approve(run.interrupts[0])
    await run.settled()
    if rules["policy"][0].verdict == "review":
        [asked] = run.interrupts
        assert asked.tool_name == "wipe"
        run.approve(asked)
        await run.settled()
    else:
        ended = [event for event in run.journal if event.type == "tool_finished"]
        assert "A rule denies" in ended[-1].output
    assert [asked.kind for asked in run.interrupts] == ["budget"]


async def test_p2_only_the_person_changes_rules_after_code(main):
    """A timer of the code gets an error; what the person remembers is in the agent's list as before."""
    agent = agent_of("1 + 1", "2 + 2", policy=[nb.review("*")])
    flow = nb.flow(name="f", policy=[nb.review("*")])(lambda: None)
    await agent.run("go", answers=NAMED, show=False)
    agent.remembered.append(1)
    changes = [
        agent.policy.clear,
        agent.remembered.pop,
        flow.policy.pop,
        agent.tools.clear,
        partial(setattr, agent, "budget", nb.Budget()),
        partial(agent.tools.__setitem__, "run_python", None),
    ]
    for change in changes:
        with pytest.raises(nb.errors.UsageError, match="A model's code cannot change rules"):
            await _in_thread(change)
    assert await _in_thread(lambda: nb.Agent("demo", policy=[nb.deny("x")]).policy)
    agent.policy.append(nb.deny("x"))
    agent.budget = nb.Budget(tokens=1)
    assert (len(agent.policy), agent.budget, len(flow.policy)) == (2, nb.Budget(tokens=1), 1)


async def test_c434_rules_that_a_person_changes_while_code_waits_stay(main):
    """For code that awaits, only changes in its own steps are undone: a person's new rule stays."""
    main.go, main.waits = asyncio.Event(), asyncio.Event()
    agent = agent_of("waits.set()\nawait go.wait()\n7")
    run = agent.run("go", answers=NAMED, show=False)
    await main.waits.wait()
    agent.policy.append(nb.deny("run_python"))
    main.go.set()
    await run
    assert (run.calls["run_python"][-1].output, len(agent.policy)) == ("7", 1)


ERRORS = {
    "x = 1\nsales['amont']": ['File "<run_python', "line 2, in <module>", "KeyError: 'amont'"],
    "x = (": ["This is not valid Python: line 1, '(' was never closed: x = ("],
    "%matplotlib inline": [
        "lines that begin with % or ! only work in Jupyter cells: %matplotlib inline"
    ],
    "raise SystemExit(3)": ["SystemExit: 3"],
    "raise KeyboardInterrupt": ["A person stopped it, in line 1."],
    "a\0b": ["line 1 has U+0000 null"],
    "def f(n): return f(n)\nf(1)": ["line 2, in <module>", "RecursionError"],
    "import asyncio\nawait asyncio.sleep('x')": ["line 2, in <module>", "TypeError"],
    "raise ValueError('\\n'.join('abcdefghijklmnopqrst'))": ["ValueError: a", "t"],
}


@pytest.mark.parametrize("code", ERRORS)
async def test_c435_an_error_reaches_the_model_as_a_person_reads_it(main, code):
    """The error has the code's lines, the last foreign line and the message. The run continues."""
    output = await text_to_model(code)
    assert all(part in output for part in ERRORS[code])
    assert len(output.splitlines()) <= ERROR_LINES + 1
    assert "nbagent/data/code.py" not in output


async def test_c436_sigint_ends_only_the_code_and_a_cancelled_run_ends_code_that_awaits(main):
    """Both computing and awaiting code ends; then the previous handler of the signal is restored."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # like a kernel between cells
    try:
        main.hits = []
        for loop in (
            "while True: hits.append(1)",
            "import asyncio\nwhile True:\n    hits.append(1)\n    await asyncio.sleep(0)",
        ):
            main.hits.clear()
            ticking = threading.Thread(target=_interrupt_once, args=(main.hits,))
            ticking.start()
            assert "A person stopped it" in await text_to_model(loop)
            ticking.join()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    main.began = asyncio.Event()
    waits = (
        "import asyncio\nbegan.set()\ntry:\n    await asyncio.sleep(60)\nfinally:\n    ended = True"
    )
    run = agent_of(waits).run("go", answers=NAMED, show=False)
    await main.began.wait()
    await run.cancel()
    assert main.ended


async def test_c690_a_run_stopped_by_another_thread_ends_code_that_computes_or_sleeps(main):
    """The run is cancelled; the signal's handler is restored, and a script goes on."""
    before = signal.getsignal(signal.SIGINT)
    main.began = threading.Event()
    for body in ("while True: pass", "import time\ntime.sleep(60)"):
        main.began.clear()
        run = agent_of(f"began.set()\n{body}").run("go", answers=NAMED, show=False)
        stopping = threading.Thread(target=_stop_once, args=(main.began, run))
        stopping.start()
        with pytest.raises(nb.errors.Cancelled):
            await run
        stopping.join()
        assert "A person stopped it" in str(run.calls["run_python"][-1].output)
    assert signal.getsignal(signal.SIGINT) == before


def _stop_once(began, run):
    assert began.wait(30)
    session_of(run).stop(by="code")


def _interrupt_once(hits):
    while not hits:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def test_c437_an_invalid_code_flag_is_reported(main):
    """Data named ``code`` needs another name; code alone needs no data."""
    with pytest.raises(nb.errors.UsageError, match="code must be True or False, got a DataFrame"):
        nb.notebook_tools(code=main.sales)
    assert [each.name for each in nb.notebook_tools(code=True)] == ["run_python"]
    assert "run_python" not in {each.name for each in nb.notebook_tools(sales=main.sales)}
