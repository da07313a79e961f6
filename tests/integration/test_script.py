"""Scripts: what a run that nothing waits for does at the end, in a terminal, without one, and in a shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.cli import script as script_end
from nbagent.core.run.host import started
from tests.integration.scripts import Scripts, Started, scripts
from tests.integration.terminal import typed

ROOT = Path(__file__).parents[2]
IS_THOROUGH = "NBAGENT_THOROUGH" in os.environ
HEAD = """
import asyncio, os, sys, threading, time
import nbagent as nb

call = nb.ScriptedModel.call


def agent_of(*script, **options):
    agent = nb.Agent(nb.ScriptedModel(list(script)), name="bank", **options)

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        print("paid", amount)
        return "paid"

    @agent.tool
    async def slow(seconds: float = 0.3) -> str:
        await asyncio.sleep(seconds)
        print("slept")
        return "slept"

    return agent


@nb.flow
async def greet(ctx: nb.ToolContext) -> str:
    return "Hello " + await ctx.ask("Your name?", reply=str)


def asking(**options):
    return agent_of(call("pay", amount=5), "It is done.", **options)


def quiet(seconds=0.3, **options):
    return agent_of(call("slow", seconds=seconds), "It is done.", **options)


"""
FAILING = "nb.Agent(nb.ScriptedModel([RuntimeError('down')]), name='bank').run('go')"
FAILING_ROWS = "nb.map(nb.Agent(nb.ScriptedModel([RuntimeError('down')] * 9), name='bank'), [1, 2], prompt='{}', id='b')"
IN_LOOP = """
async def main():
    {run}
    await asyncio.sleep(0.2)

asyncio.run(main())
"""
IN_THREAD = """
def work():
    time.sleep(0.2)
    run = asking().run("go", answers={"pay": True})
    time.sleep(0.2)
    print(run.wait().text)

threading.Thread(target=work).start()
"""
AWAITED = """
async def main():
    await asyncio.gather(*(asking().run('go', attended=True) for _ in range(2)))

asyncio.run(main())
"""
LOOK = """
store = nb.SQLiteStore("runs.db")
agent = asking(store=store)

async def look():
    await agent.run("go", id="one").settled()
    found = await nb.open_run("one", agent=agent, store=nb.SQLiteStore("runs.db"))
    print(found.status)

asyncio.run(look())
"""
LATE = """
agent = {agent}

def work():
    time.sleep(0.5)
    agent.run("go"{options}

{start}
"""
THREAD = "threading.Thread(target=work).start()"
POOL = "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor(1).submit(work)"
SECRET = """
from pydantic import SecretStr

@nb.flow
async def log_in(ctx: nb.ToolContext) -> int:
    return len((await ctx.ask("Password?", reply=SecretStr)).get_secret_value())

log_in.run()
"""
TWICE = """
@nb.flow
async def pay_to(ctx: nb.ToolContext) -> str:
    name = await ctx.ask("Who gets it?", reply=str)
    await ctx.ask(nb.Confirm(f"Pay 9000 to {name}?"))
    print("paid", 9000)
    return name

pay_to.run()
"""
EXPIRING = """
agent = agent_of(call("sign"), "It is closed.")

@agent.tool
def sign(ctx: nb.ToolContext) -> str:
    if not ctx.resumed:
        ctx.interrupt(nb.Confirm("Sign?"), expires_in=1, on_expire=nb.Respond(output="no"))
    return "signed"

print(agent.run("go", attended=True).wait().text)
"""
SIGN_IN = """
from nbagent.core.run.host import current_host
from nbagent.mcp_servers.sign_in import SignInQuestion

question = SignInQuestion("docs", "https://login.example/?state=s1", "login.example", "s1", "http://localhost:1/")

async def ask():
    return await current_host().ask(question.reply, question.message, link=question.link)

async def main():
    if {answered_elsewhere}:
        asked = asyncio.create_task(ask())
        await asyncio.sleep(0.5)
        asked.cancel()
        await asyncio.wait([asked])
        return await nb.form(int, title="How many?")
    return (await ask()).address.get_secret_value()

print("got", asyncio.run(main()))
"""
SIGNED = "http://localhost:1/?code=c0de&state=s1"
APPROVE = ("to skip:", "a\n")
NAME = [("to skip:", "s\n"), ("Answer:", "Ada\n"), ("[y/N]", "y\n")]
FORM = """
async def main():
    return await nb.form(int, title="How many?")

print(asyncio.run(main()))
"""
REVIEWED = """
agent = nb.Agent(
    nb.ScriptedModel([call("pay", amount=5), "It is done."]),
    name="bank",
    policy=[nb.review("pay", danger=True, editable=True)],
)

@agent.tool(approve_label="Send money")
def pay(amount: int) -> str:
    print("paid", amount)
    return "paid"

agent.run("go")
"""
IN_ROW = REVIEWED.replace(
    'agent.run("go")', "nb.map(agent, [1], prompt='{}', id='b', attended=True).wait()"
)
ASKED = """
from pydantic import SecretStr

@nb.flow
async def plan(ctx: nb.ToolContext) -> str:
    seat = await ctx.ask(nb.Choose("Which seat?", ["Window", "Aisle", "Behind the wing"]))
    names = [await ctx.ask("Your name?", reply=str), await ctx.ask("Friends?", reply=str)]
    secret = await ctx.ask("Password?", reply=SecretStr)
    return f"{[seat, *names, len(secret.get_secret_value())]}"

plan.run()
"""
UP, DOWN, BACK, ON, PASTED = "\x1b[A", "\x1b[B", "\x1b[D", "\x1bOC", "\x1b[200~{}\x1b[201~"
FILL, SEND = ("to skip:", "s\n"), ("[y/N]", "y\n")
SURE = "Type yes to continue:"
REVIEWING = [
    ("to skip:", f"{DOWN}{ON}" + PASTED.format("a\na\n") + "\n"),
    ("Please type", ""),
    ("to skip:", "c\n"),
    (SURE, "y\n"),
    ("to skip:", f"{UP * 9}\n"),
    (SURE, "yes\n"),
]


def planning(seat: str, name: str, friends: str) -> list[tuple[str, str]]:
    """The keys for ``ASKED``."""
    typed = [
        ("number):", seat),
        ("Answer:", name),
        ("Answer:", friends),
        ("Answer:", f"x{UP}y{ON}"),
    ]
    return [key for prompt, keys in typed for key in (FILL, (prompt, f"{keys}\n"), SEND)]


LOOSE = """
@nb.flow
async def loose(ctx: nb.ToolContext) -> str:
    given = await ctx.approve("pay", {"amount": 5}, editable=True)
    print("paid", given["amount"])

loose.run()
"""
EDITED = planning(UP * 3 + DOWN, f"Aa{BACK}d{ON}{DOWN}{UP}", PASTED.format("Bo\nCy"))
ENDED = "nbagent: the program ended before its run of 'bank' finished"


@pytest.fixture(scope="module")
def warm() -> Iterator[Scripts]:
    """The process that scripts are forked from."""
    with scripts() as running:
        yield running


@pytest.fixture
def script(tmp_path: Path, warm: Scripts) -> Script:
    """A script in a folder of its own."""
    return Script(tmp_path, warm)


class Script:
    """A script, started with and without a terminal."""

    def __init__(self, folder: Path, warm: Scripts) -> None:
        self.folder = folder
        self.store = folder / "runs.db"
        self._warm = warm

    def command(self, code: str, *options: str) -> list[str]:
        """The command that runs this code after ``HEAD`` in a new process."""
        return [sys.executable, *options, str(self._written(code))]

    def _written(self, code: str) -> Path:
        path = self.folder / "script.py"
        path.write_text(HEAD + code, encoding="utf-8")
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the script."""
        return {**os.environ, "PYTHONPATH": str(ROOT), "VISUAL": "", "TERM": "dumb"}

    def start(self, code: str) -> Started:
        """Start without a terminal; nobody reads what it says."""
        nothing = os.open(os.devnull, os.O_RDWR)
        return self._warm.start(self._written(code), self.environment, [nothing] * 3)

    def piped(self, code: str) -> tuple[int, str, str]:
        """Run without a terminal; returns exit code, output and errors."""
        return self._warm.piped(self._written(code), self.environment)

    def typed(
        self,
        code: str,
        keys: Sequence[tuple[str, str]] = (),
        term: str = "dumb",
        **terminal: Any,
    ) -> tuple[int, str]:
        """Run in a terminal, and type; returns exit code and screen."""
        environment = {**self.environment, "TERM": term}
        return self._warm.typed(self._written(code), environment, keys, **terminal)

    def status(self) -> str:
        """The status of the one stored run; empty if there is none yet."""
        if not self.store.exists():
            return ""
        with nb.SQLiteStore(self.store) as store:
            return "".join(found.status for found in nb.runs(store=store))


STORED = "store=nb.SQLiteStore('runs.db')"


@pytest.mark.parametrize(
    ("code", "exit_code", "out", "err"),
    [
        ("asking().run('go')", 3, "", "answers={'pay': True}"),
        (f"asking({STORED}).run('go', id='one')", 3, "", "nbagent answer one --store runs.db"),
        ("asking().run('go', attended=True)", 3, "", ENDED),
        ("asking().chat().send('go')", 3, "", ENDED),
        ("greet.run()", 3, "", "with a string"),
        (
            "nb.map(asking(), [1], prompt='{}', id='rows')",
            3,
            "",
            "its batch 'rows' finished. 1 row",
        ),
        (
            "nb.map(asking(), [1], prompt='{}', id='b', attended=True)",
            3,
            "",
            "rows wait for answers",
        ),
        (IN_LOOP.format(run="asking().run('go')"), 3, "", ENDED),
        ("asking().run('go'); sys.exit(0)", 3, "", ENDED),
        ("asking().run('go'); time.sleep(0.5); raise SystemError", 1, "", ENDED),
        ("quiet().run('go')", 0, "slept\n", None),
        (f"quiet({STORED}).run('go')", 0, "slept\n", None),
        ("nb.map(quiet(), [1], prompt='{}', id='b')", 0, "slept\n", None),
        ("quiet().run('go'); sys.exit(7)", 7, "slept\n", None),
        ("quiet(30).run('go'); raise SystemError", 1, "", "Use agent.run_sync(…)"),
        (
            f"quiet(30, {STORED}).run('go', id='one'); raise SystemError",
            1,
            "",
            "nb.open_run('one', agent=…, store='runs.db')",
        ),
        (IN_LOOP.format(run="quiet(30).run('go')"), 1, "", "Use agent.run_sync(…)"),
        (IN_THREAD, 0, "paid 5\nIt is done.\n", None),
        (LATE.format(agent="asking()", options=")", start=THREAD), 3, "", ENDED),
        (LATE.format(agent="asking()", options=")", start=POOL), 3, "", ENDED),
        (LATE.format(agent="quiet(30)", options=")", start=THREAD), 1, "", "Use agent.run_sync(…)"),
        (
            "nb.map(asking(), [1], prompt='{}', id='b', attended=True).wait()",
            3,
            "",
            "rows wait for",
        ),
        ("asking().run('go'); raise KeyboardInterrupt", 130, "", ENDED),
        ("asking().run('go', answers={'pay': 5})", 3, "", "answers= has a value of type int"),
        (LOOK, 0, "interrupted\n", None),
        (FAILING, 1, "", "nbagent: the run of 'bank' failed: ModelError: RuntimeError: down"),
        (f"{FAILING}; time.sleep(0.5)", 1, "", "nbagent: the run of 'bank' failed"),
        ("print(quiet().run_sync('go').text)", 0, "slept\nIt is done.\n", None),
        ("asking().run('go').wait()", 1, "", "HumanInputRequired: The run is paused"),
        ("run = asking().run('go', answers={'pay': True})", 0, "paid 5\n", None),
    ],
)
def test_c660_a_script_without_a_terminal_finishes_what_it_started_or_says_what_is_left(
    script: Script, code: str, exit_code: int, out: str, err: str | None
) -> None:
    """The exit code is 3 if a question is left; nothing is lost in silence, and asyncio says nothing."""
    told = script.piped(code)
    assert told[:2] == (exit_code, out), told
    assert told[2] == "" if err is None else err in told[2], told[2]
    assert "Task" not in told[2], told[2]
    assert "never awaited" not in told[2], told[2]


@pytest.mark.parametrize(
    ("code", "keys", "exit_code", "shown"),
    [
        ("asking().run('go')", [APPROVE], 0, "paid 5\nnbagent: bank: It is done."),
        (f"asking({STORED}).run('go')", [APPROVE], 0, "nbagent: bank: It is done."),
        (
            "print(asking().run('go', attended=True).wait().text)",
            [APPROVE],
            0,
            "paid 5\nIt is done.",
        ),
        ("asking().chat().send('go')", [APPROVE], 0, "nbagent: bank: It is done."),
        ("greet.run()", NAME, 0, "nbagent: greet: Hello Ada"),
        ("print(greet.with_options(attended=True).run().wait().output)", NAME, 0, "Hello Ada"),
        ("nb.map(asking(), [1], prompt='{}', id='rows')", [("rows:0:", ""), APPROVE], 0, "paid 5"),
        (
            "nb.map(asking(), [1], prompt='{}', id='b', attended=True).wait()",
            [APPROVE],
            0,
            "paid 5",
        ),
        (IN_LOOP.format(run="asking().run('go')"), [APPROVE], 0, "nbagent: bank: It is done."),
        (FORM, [("integer):", "x\n"), ("whole number", ""), ("integer):", "7\n")], 0, "\n7\n"),
        ("quiet().run('go')", [], 0, "slept\nnbagent: bank: It is done."),
        ("asking().run('go'); asking().run('go')", [APPROVE, APPROVE], 0, "bank: It is done."),
        ("asking().run('go')", [("to skip:", "\n")], 3, ENDED),
        ("asking().run('go')", [("to skip:", "\x04")], 3, ENDED),
        ("asking().run('go')", [("to skip:", "\x03")], 130, ""),
        ("quiet(30).run('go')", [("Ctrl+C stops it", "\x03")], 130, "waiting for <Run of bank"),
        ("asking().run('go', attended=True).wait()", [("to skip:", "\n")], 1, "HumanInputRequired"),
        (
            "asking().run('go', attended=True).wait()",
            [("to skip:", "\x03")],
            -2,
            "KeyboardInterrupt",
        ),
        (SECRET, [("to skip:", "s\n"), ("Answer", "hunter2\n"), ("[y/N]", "y\n")], 0, "log_in: 7"),
        (
            TWICE,  # what was pasted answers no question that was not shown
            [
                ("to skip:", "s\n"),
                ("Answer:", "Ada\ny\na\n"),
                ("[y/N]", "y\n"),
                ("9000", ""),
                ("to skip:", "\n"),
            ],
            3,
            "Pay 9000 to Ada?",
        ),
        (EXPIRING, [APPROVE, ("already answered", "")], 0, "It is closed."),
        (
            "nb.map(asking(), [1], prompt='{}', id='b', attended=True).wait()",
            [("to skip:", "\n")] * 2,
            3,
            "rows wait for",
        ),
        (FORM, [("integer):", "\x03")], -2, "KeyboardInterrupt"),
        (
            LATE.format(agent="asking()", options=", attended=True).wait()", start=THREAD),
            [("asks for approval", "\x03")],
            None,
            "only the main thread does",
        ),
        (FORM, [("integer):", "\x04")], 1, "Rejected: How many? was left unanswered"),
        (LOOSE, [("to skip:", "c\n"), ("needs an editor", ""), APPROVE], 0, "paid 5"),
        (AWAITED, [APPROVE, APPROVE], 0, "paid 5"),
        (AWAITED, [("to skip:", "\x03")], None, "KeyboardInterrupt"),
        (
            AWAITED,
            [("to skip:", "\n")],
            1,
            "HumanInputRequired: A question of the run of 'bank' was left",
        ),
    ],
)
def test_c661_a_script_asks_in_its_terminal(
    script: Script, code: str, keys: Sequence[tuple[str, str]], exit_code: int | None, shown: str
) -> None:
    """At its end for what nothing waits for, and in ``.wait()`` of an attended run; Enter never approves."""
    told, screen = script.typed(code, keys, pause=2.0 if code == EXPIRING else 0.0)
    assert (told if exit_code is not None else None, shown in screen) == (exit_code, True), screen
    assert "Task" not in screen, screen
    if exit_code:
        assert "paid" not in screen


SLOW = """
from nbagent.cli import script

def slowly(*given, usual=script._asked_all):
    answered = usual(*given)
    time.sleep(0.5)
    print("drawn")
    return answered

script._asked_all = slowly
"""


def test_the_end_of_a_script_waits_for_a_question_that_is_still_drawn(script: Script):
    """Python aborts if a thread prints while it ends. The second question may be drawn as the first is left open."""
    told, screen = script.typed(f"{SLOW}{AWAITED}", [("to skip:", "\n")])
    assert (told, screen.count("drawn")) == (1, screen.count("Run pay?")), screen


@pytest.mark.parametrize(
    ("code", "keys", "exit_code", "shown"),
    [
        (
            SIGN_IN.format(answered_elsewhere=False),
            [
                ("state=s1", ""),
                ("code:", "wrong?state=s2\n"),
                ("another sign-in", ""),
                ("code:", f"{SIGNED}\n"),
            ],
            0,
            f"\ngot {SIGNED}",
        ),
        (SIGN_IN.format(answered_elsewhere=False), [("code:", "\x04")], 1, "was left unanswered"),
        (SIGN_IN.format(answered_elsewhere=True), [("integer):", "7\n")], 0, "got 7"),
    ],
    ids=["pasted", "left", "answered by the browser"],
)
def test_c779_a_sign_in_is_asked_in_the_terminal(
    script: Script, code: str, keys: Sequence[tuple[str, str]], exit_code: int, shown: str
) -> None:
    """What is pasted is not shown. Once the browser has answered, the terminal is free for the next question."""
    told, screen = script.typed(code, keys)
    assert (told, shown in screen) == (exit_code, True), screen
    assert screen.count("c0de") == (shown.count("c0de"))


@pytest.mark.parametrize(
    ("code", "keys", "exit_code", "shown", "terminal"),
    [
        (REVIEWED, REVIEWING, 0, "a) Send money  (cannot be undone)\n", {}),
        (REVIEWED, REVIEWING, 0, "\npaid 5\n", {"columns": 40}),
        (REVIEWED, REVIEWING, 0, "\npaid 5\n", {"columns": 20}),
        (
            IN_ROW,
            [("to skip:", "a\n"), (SURE, "yes\n")],
            0,
            "Send money? This cannot be undone.",
            {},
        ),
        (REVIEWED, [("to skip:", f"{UP}\x03")], 130, "Enter to skip", {}),
        (ASKED, EDITED, 0, r"plan: ['Aisle', 'Ada', 'Bo\nCy', 2]", {}),
        (ASKED, EDITED, 0, r"plan: ['Aisle', 'Ada', 'Bo\nCy', 2]", {"columns": 20}),
        (
            ASKED,  # without a line editor
            planning(f"{UP}2", f"Ada{BACK}", PASTED.format("Bo")),
            0,
            "plan: ['Aisle', 'Ada', 'Bo', 2]",
            {"columns": 20, "term": "dumb"},
        ),
    ],
)
def test_c860_keys_in_a_terminal_answer_what_they_show(
    script: Script,
    code: str,
    keys: Sequence[tuple[str, str]],
    exit_code: int,
    shown: str,
    terminal: dict[str, Any],
) -> None:
    """Arrows choose and edit, and are in no answer; pasted lines send nothing; what cannot be undone needs a word."""
    told, screen = script.typed(code, keys, **{"term": "xterm", **terminal})
    assert not re.search(r"\x1b\[[0-9;]*m", screen), screen  # no color
    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert "Not answered" not in screen
    assert (told, shown in screen) == (exit_code, True), screen


ENDS: dict[str, tuple[str, list[tuple[str, str]] | None, int | None, str, str]] = {
    "waits, is done": (
        "print(quiet({store}).run_sync('go').text)",
        None,
        0,
        "It is done.",
        "completed",
    ),
    "waits, is done, in a terminal": (
        "print(quiet({store}).run_sync('go').text)",
        [],
        0,
        "It is done.",
        "completed",
    ),
    "waits, asks": ("asking({store}).run_sync('go')", None, 1, "HumanInputRequired", "interrupted"),
    "waits, asks in a terminal": (
        "asking({store}).run('go', attended=True).wait()",
        [APPROVE],
        0,
        "paid 5",
        "completed",
    ),
    "does not wait, is done": ("quiet({store}).run('go')", None, 0, "slept", "completed"),
    "does not wait, is done, in a terminal": (
        "quiet({store}).run('go')",
        [],
        0,
        "nbagent: bank: It is done.",
        "completed",
    ),
    "does not wait, asks": ("asking({store}).run('go')", None, 3, "nbagent answer", "interrupted"),
    "does not wait, asks in a terminal": (
        "asking({store}).run('go')",
        [APPROVE],
        0,
        "nbagent: bank: It is done.",
        "completed",
    ),
    "asks nobody, in a terminal": (
        "asking({store}).run('go', attended=False)",
        [],
        3,
        "nbagent answer",
        "interrupted",
    ),
    "is cut off by asyncio.run while it asks": (
        IN_LOOP.format(run="greet.run({store})"),
        None,
        3,
        "before its run of 'greet' finished",
        "interrupted",
    ),
    "sys.exit": (
        "asking({store}).run('go'); sys.exit(0)",
        None,
        3,
        "nbagent answer",
        "interrupted",
    ),
    "an exception": (
        "asking({store}).run('go'); time.sleep(0.5); raise SystemError",
        None,
        1,
        "nbagent answer",
        "interrupted",
    ),
    "SIGTERM": (
        "asking({store}).run('go'); time.sleep(0.5); os.kill(os.getpid(), 15); time.sleep(60)",
        None,
        -15,
        "",
        "interrupted",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_c779_each_end_of_a_script_says_what_is_left(script: Script, end: str) -> None:
    """Whether it waits, asks, has a terminal or has a store; and where it is ended."""
    code, keys, exit_code, shown, status = ENDS[end]
    code = code.replace(
        "greet.run({store})", "greet.with_options(store=nb.SQLiteStore('runs.db')).run()"
    )
    code = code.format(store=STORED)
    if keys is None:
        told, out, err = script.piped(code)
        screen = out + err
    else:
        told, screen = script.typed(code, keys)
    assert (told, shown in screen, script.status()) == (exit_code, True, status), screen
    assert "Task" not in screen, screen
    assert "\x1b[" not in screen, screen


AGAIN = """
is_first = not os.path.exists("runs.db")
agent = agent_of(*([call("pay", amount=5)] if is_first else []), "It is done.", store=nb.SQLiteStore("runs.db"))
flow = greet.with_options(store=nb.SQLiteStore("runs.db"), id="one")
{start}
"""


@pytest.mark.parametrize(
    ("start", "asked", "keys", "shown"),
    [
        ("agent.run('go', id='one')", "use answers={'pay': True}", [APPROVE], "bank: It is done."),
        ("flow.run()", "with a string", NAME, "nbagent: greet: Hello Ada"),
        ("agent.run('go', id='one', attended=False)", "{'pay': True}", None, "nbagent answer one"),
    ],
)
def test_c872_a_script_that_starts_again_with_the_id_of_a_waiting_run_asks_its_question(
    script: Script, start: str, asked: str, keys: list[tuple[str, str]] | None, shown: str
) -> None:
    """As at its first end; what only opens a run with ``nb.open_run`` asks nothing."""
    code, _, told = script.piped(AGAIN.format(start=start))
    assert (code, asked in told) == (3, True), told
    again, screen = script.typed(AGAIN.format(start=start), keys or [])
    assert (again, shown in screen) == (3 if keys is None else 0, True), screen


IN_RUNNER = """
threading.Timer(0.5, print, ["ready"]).start()

async def main():
    {code}

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    [
        "run = asking({store}).run('go', attended=True); await asyncio.to_thread(run.wait)",
        "await asyncio.to_thread(quiet(30, {store}).run_sync, 'go')",
        "quiet(30, {store}).run_sync('go')",
        "rows = nb.map(quiet(30, {store}), [1], prompt='{{}}', id='b'); await asyncio.to_thread(rows.wait)",
        "await quiet(30, {store}).run('go')",
    ],
)
def test_c873_one_ctrl_c_ends_asyncio_run_whatever_thread_waits_for_the_run(
    script: Script, code: str
) -> None:
    """``asyncio.run`` waits for the threads of its pool, and takes the first Ctrl+C for itself."""
    told, screen = script.typed(
        IN_RUNNER.format(code=code.format(store=STORED)), [("ready", "\x03")]
    )
    assert (told, "slept" in screen) == (-2, False), screen
    assert script.status().replace("cancelled", "") == ""


STUCK = """
from nbagent.core.call import threads
from nbagent.core.run import session

session.GRACE = threads.CLOSING_SECONDS = 600
model = nb.ScriptedModel([call("run_python", code="print('begun', flush=True)\\n{code}"), "never"])
agent = nb.Agent(model, name="coder", tools=nb.notebook_tools(code=True))
try:
    agent.run_sync("go", answers={{"run_python": True}})
except KeyboardInterrupt:
    print(quiet().run_sync("go").text)
    raise
"""


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(600)"])
def test_ctrl_c_ends_a_script_at_once_although_code_keeps_the_loop(script: Script, code: str):
    """Code that computes, or waits outside of Python, keeps the private loop; later runs use another one."""
    told, screen = script.typed(STUCK.format(code=code), [("begun", "\x03")])
    assert (told, "It is done." in screen) == (-2, True), screen


PROCESSES = """
import multiprocessing

def child(ends):
    run = asking().run("go") if ends != "quiet" else quiet().run("go")
    if ends == "failing":
        time.sleep(0.5)
        raise SystemError

if __name__ == "__main__":
    for ends in ("quiet", "asking", "failing"):
        process = multiprocessing.get_context("{method}").Process(target=child, args=(ends,))
        process.start()
        process.join()
        print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_process_of_multiprocessing_ends_as_a_script_does(script: Script, method: str):
    """Its parent learns of a question by the exit code, however the process was started."""
    command = script.command(PROCESSES.format(method=method))
    environment, folder = script.environment, script.folder
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.replace("slept\n", "") == "0\n3\n1\n", done
    assert done.stderr.count("use answers={'pay': True}") == 2, done


def test_ctrl_c_in_asyncio_run_ends_a_script_by_its_signal(script: Script):
    """A shell's loop ends then too. To load more at the end would make it exit code 1."""
    code = IN_LOOP.format(
        run="threading.Timer(0.5, os.kill, (os.getpid(), 2)).start(); await quiet(30).run('go')"
    )
    done = subprocess.run(
        script.command(code), cwd=script.folder, env=script.environment, check=False
    )
    assert done.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("code", "exit_code", "shown"),
    [
        (FAILING_ROWS, 1, "nbagent: <Batch b: 0 of 2 done, 2 failed>\n"),
        (f"{FAILING_ROWS}; time.sleep(0.5)", 1, "nbagent: <Batch b: 0 of 2 done, 2 failed>\n"),
        (f"{FAILING_ROWS}.wait()", 0, ""),
        (
            IN_LOOP.format(run="nb.map(quiet(30), [1], prompt='{}', id='b')"),
            1,
            "batch 'b' failed: RunError: The event loop",
        ),
    ],
)
def test_c874_rows_that_failed_are_named_if_nothing_waits_for_their_batch(
    script: Script, code: str, exit_code: int, shown: str
) -> None:
    """Also if the batch has ended before the script, or its loop was closed."""
    told, _, err = script.piped(code)
    assert (told, shown in err if shown else err) == (exit_code, True if shown else ""), err


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("asking().run('go'); {gone}", 3),
        ("quiet().run('go'); {gone}", 0),
        (FAILING + "; {gone}", 1),
    ],
)
@pytest.mark.parametrize("gone", ["os.close(2)", "sys.stderr.close()", "sys.stderr = None"])
def test_c875_the_exit_code_is_the_same_if_nobody_reads_what_is_said(
    script: Script, code: str, exit_code: int, gone: str
) -> None:
    """As in ``python script.py 2>&1 | true``, or without standard streams."""
    assert script.piped(code.format(gone=gone))[0] == exit_code


CLOSED = """
with nb.SQLiteStore("runs.db") as store:
    run = asking(store=store).run("go")
    while not run.interrupts:
        time.sleep(0.05)
asking().run("go")
"""


def test_c876_a_store_that_was_closed_before_the_end_is_named_and_other_runs_go_on(
    script: Script,
) -> None:
    """The script ends with its exit code, not in a traceback."""
    told, screen = script.typed(CLOSED, [APPROVE])
    assert (told, "paid 5\nnbagent: bank: It is done." in screen) == (1, True), screen
    assert (
        "nbagent: the run of 'bank' failed: StoreError: SQLiteStore('runs.db') is closed" in screen
    )
    assert "Traceback" not in screen
    assert script.status() == "interrupted"


GIVEN_UP = """
async def main():
    waits = asyncio.ensure_future({waits})
    await asyncio.wait([waits], timeout=0.5)
    waits.cancel()
    await asyncio.wait([waits])

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("waits", "shown"),
    [
        ("asyncio.wait_for(quiet(30, {store}).run('go'), 0.2)", ENDED),
        ("quiet(30, {store}).run('go').settled()", ENDED),
        (
            "asyncio.wait_for(nb.map(quiet(30, {store}), [1], prompt='{{}}', id='b'), 0.2)",
            "batch 'b'",
        ),
    ],
)
def test_c877_a_run_whose_wait_was_given_up_is_named_at_the_end(
    script: Script, waits: str, shown: str
) -> None:
    """As if nothing had waited: a time limit, or a cancelled task, is no end of the run."""
    told, _, err = script.piped(GIVEN_UP.format(waits=waits.format(store=STORED)))
    assert (told, shown in err) == (1, True), err
    assert {*script.status().split("running")} == {""}


CHAT = """
chat = agent_of("Rome.", call("pay", amount=5), "It is done.", RuntimeError("down"), store=nb.SQLiteStore("runs.db")).chat(id="c")
chat.view()
print("after", len(chat.runs))
"""
TALK = "To bank (Enter to end): "


@pytest.mark.parametrize(
    ("keys", "exit_code", "shown"),
    [
        (
            [
                (TALK, "capital?\n"),
                ("nbagent: bank: Rome.", ""),
                (TALK, "pay\n"),
                APPROVE,
                ("nbagent: bank: It is done.", ""),
                (TALK, "more\n"),
                ("ModelError: RuntimeError: down", ""),
                (TALK, "\n"),
            ],
            0,
            "after 3",
        ),
        ([(TALK, "capital?\n"), (TALK, "pay\n"), ("to skip:", "\n")], 0, "nbagent answer c.2"),
        ([(TALK, "\x04")], 0, "after 0"),
        ([(TALK, "\x03")], -2, "KeyboardInterrupt"),
        (None, 0, "<Chat with bank: 0 messages>\nafter 0\n"),
    ],
)
def test_c878_a_chat_is_held_in_the_terminal_of_a_script(
    script: Script, keys: list[tuple[str, str]] | None, exit_code: int, shown: str
) -> None:
    """Where its view is asked for, until an empty line; without a terminal, one line names it."""
    told, screen = script.piped(CHAT)[:2] if keys is None else script.typed(CHAT, keys)
    assert (told, shown in screen) == (exit_code, True), screen


@pytest.mark.parametrize(
    ("code", "ends", "status"),
    [
        ("asking({store}).run('go'); time.sleep(60)", "SIGTERM", "interrupted"),
        ("quiet(60, {store}).run('go'); time.sleep(60)", "SIGTERM", "running"),
        ("quiet(60, {store}).run('go')", "SIGTERM", "running"),
        ("quiet(60, {store}).run('go'); time.sleep(1); raise SystemError", "", "running"),
        ("asking({store}).run('go')", "", "interrupted"),
    ],
)
def test_c662_a_process_that_ends_leaves_its_stored_runs_as_they_were(
    script: Script, code: str, ends: str, status: str
) -> None:
    """Nothing is stored as failed because Python shut down."""
    started = script.start(code.format(store=STORED))
    if ends:
        until = time.monotonic() + 30
        while script.status() != status:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(started.pid, getattr(signal, ends))
    started.wait()
    assert script.status() == status


def test_c663_an_interactive_shell_shows_each_status_and_wait_asks(script: Script) -> None:
    """In one line; the question is asked where the person waits."""
    keys = [
        ("pay asks for approval>", "run.wait()\n"),
        APPROVE,
        ("completed>", ""),
        (">>> ", "print(run)\n"),
        (">>> ", "exit()\n"),
    ]
    command = script.command("run = asking().run('go')\n", "-i")
    code, screen = typed(command, keys, folder=script.folder, environment=script.environment)
    assert code == 0, screen
    assert "<Run of bank on 'go': running>" in screen
    assert screen.count("paid 5") == 1


def test_c663_a_file_that_ipython_runs_is_a_script(script: Script) -> None:
    """Its end waits and asks, though IPython also has prompts."""
    command = [sys.executable, "-m", "IPython", *script.command("asking().run('go')\n")[1:]]
    code, screen = typed(command, [APPROVE], folder=script.folder, environment=script.environment)
    assert (code, "paid 5\nnbagent: bank: It is done." in screen) == (0, True), screen


@pytest.mark.timeout(7_200 if IS_THOROUGH else 60)
def test_c660_no_start_of_a_script_is_noisy(script: Script) -> None:
    """A script that ends at once, each time: also while its client and its loop are still starting.

    With ``NBAGENT_THOROUGH``, each end without a terminal is tried 100 times.
    """
    ends = [("asking().run('go')", 3), ("quiet(0.0).run('go')", 0)]
    piped = [(end[0], end[2]) for end in ENDS.values() if end[1] is None and end[2] != -15]
    for code, exit_code in ends + piped * IS_THOROUGH:
        own = code.replace("greet.run({store})", "greet.run()").format(store=STORED)
        command = script.command(own)
        for _ in range(100 if IS_THOROUGH else 3):
            script.store.unlink(missing_ok=True)
            done = subprocess.run(
                command,
                cwd=script.folder,
                env=script.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            said = done.stderr
            assert done.returncode == exit_code, done
            assert said.count("nbagent:") == (exit_code in (1, 3) and "run_sync" not in code), said
            assert not re.search("Task|never awaited|can't register|Exception ignored", said), said


def test_the_end_of_pytest_is_no_end_of_a_script(script: Script) -> None:
    """It waits for nothing, asks nothing, and its exit code is pytest's."""
    body = (
        "def test_it():\n    asking().run('go')\n    nb.map(quiet(30), [1], prompt='{}', id='b')\n"
    )
    (script.folder / "test_it.py").write_text(HEAD + body, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(
        command, cwd=script.folder, env=script.environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_row_that_starts_while_the_end_looks_at_the_runs_breaks_nothing(monkeypatch):
    """The thread of a batch starts rows while the main thread is at the script's end."""
    run = nb.Agent(nb.ScriptedModel(["done"])).run("go", show=False)
    run.wait()
    monkeypatch.setattr(started, "runs", {"a": run, "b": run})

    def is_here(_run: object) -> bool:
        started.runs[f"row {len(started.runs)}"] = run
        return False

    monkeypatch.setattr(script_end, "_is_here", is_here)
    script_end.finish(is_last=False)
    assert started.runs == {}
