"""The command line as people and programs use it: real processes, real terminals, the blocks of its docs page."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import nbagent as nb
from nbagent.cli import main
from tests.integration.terminal import typed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
BANK = re.search(r"```python\n(# bank\.py\n.*?)```", PAGE, re.DOTALL)[1]  # type: ignore[index]
WAITING = """
import asyncio, datetime, sys
from typing import Literal
from pydantic import BaseModel, Field, SecretStr
from bank import agent, nb
call = nb.ScriptedModel.call

class Leg(BaseModel):
    to: str
    nights: int = Field(ge=1, default=2)

class Trip(BaseModel):
    when: datetime.date
    seat: Literal["window", "aisle"]
    legs: list[Leg]
    insured: bool = False

class Member(BaseModel):
    key: SecretStr
    names: list[str]

async def begin(name, script, prompt, tools=()):
    clerk = nb.Agent(nb.ScriptedModel([script, "done"]), name=name, store=agent.store, tools=tools)
    if name == "vault":
        @clerk.tool
        async def unlock(ctx: nb.ToolContext) -> str:
            await ctx.ask("Password?", reply=SecretStr)
            return "open"
    if name == "club":
        @clerk.tool
        async def join(ctx: nb.ToolContext) -> str:
            await ctx.ask("Who?", reply=Member)
            return "in"
    if name == "outside":
        @clerk.tool
        def charge(ctx: nb.ToolContext) -> int:
            open("token", "w").write(ctx.external_token)
            ctx.interrupt({"waits for": "the bank"}, external=True)
    run = await clerk.run(prompt, show=False, attended=False).settled()
    return name, run.id

async def main():
    run = await agent.run("Pay Bob", show=False, attended=False).settled()
    ids = [("bank", run.id)]
    trip = nb.interrupt_tool("trip", output=Trip)
    ids.append(await begin("travel", call("trip", where="Rome"), "Go to Rome\\x1b[31m", [trip]))
    ids.append(await begin("vault", call("unlock"), "open"))
    ids.append(await begin("club", call("join"), "join"))
    ids.append(await begin("outside", call("charge"), "charge"))
    print(*(f"{name}={id}" for name, id in ids))

asyncio.run(main())
"""

SLEEPY = """
import asyncio
from bank import agent as clerk, nb
call = nb.ScriptedModel.call
agent = nb.Agent(
    nb.ScriptedModel([[call("nap", hours=1), call("nap", hours=2)], "done"]), name="sleepy", store=clerk.store
)

@agent.tool(approval=True)
async def nap(hours: int) -> None:
    print("napping", flush=True)
    await asyncio.sleep(3600)

@nb.flow(store=clerk.store)
async def tidy(ctx: nb.ToolContext, path: str) -> str:
    return await ctx.ask(nb.Choose("What of it?", ["keep", "drop"]))

async def main():
    await agent.run("go", show=False, attended=False).settled()
    await tidy.with_options(show=False, attended=False).run("downloads").settled()

if __name__ == "__main__":
    asyncio.run(main())
"""

EDITING = """
import json, pathlib, sys
edits, file = pathlib.Path("edits.json"), pathlib.Path(sys.argv[1])
(first, *rest), text = json.loads(edits.read_text()), file.read_text()
edits.write_text(json.dumps(rest))
with open("seen.txt", "a") as seen:
    seen.write(text)
for old, new in first:
    assert old in text, text
    text = text.replace(old, new)
file.write_text(text)
"""
"""An editor that replaces texts, and keeps each file as it was opened."""


class Folder:
    """A folder with a store of waiting runs, started by a process that has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "bank.py").write_text(BANK, encoding="utf-8")
        (path / "begin.py").write_text(WAITING, encoding="utf-8")
        self.environment = {**os.environ, "NBAGENT_STORE": "runs.db", "PYTHONPATH": str(ROOT)}
        told = self._run([sys.executable, "begin.py"])
        assert told.returncode == 0, told.stderr
        self.ids = dict(each.split("=") for each in told.stdout.split())

    def _run(self, command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
        given = {"cwd": self.path, "env": self.environment, "capture_output": True, "text": True}
        return subprocess.run(
            command, **{**given, "stdin": subprocess.DEVNULL, **more}, check=False
        )

    def nbagent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command without a terminal; with ``--agent``, in a new process."""
        command = [sys.executable, "-m", "nbagent", *arguments]
        if "--agent" in arguments:
            return self._run(command)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.path))
            stack.enter_context(patch.dict(os.environ, self.environment))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            try:
                code = main(arguments)
            except SystemExit as left:  # from argparse
                code = int(str(left.code))
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    def json(self, *arguments: str) -> Any:
        """The JSON that the command prints; its exit code must be 0."""
        told = self.nbagent(*arguments, "--json")
        assert (told.returncode, told.stderr) == (0, "")
        return json.loads(told.stdout)

    def edits(self, *edits: Sequence[tuple[str, str]]) -> None:
        """The replacements of the editor, each time that it opens."""
        (self.path / "edit.py").write_text(EDITING, encoding="utf-8")
        (self.path / "edits.json").write_text(json.dumps(edits), encoding="utf-8")
        (self.path / "seen.txt").write_text("", encoding="utf-8")

    def seen(self) -> str:
        """All files as the editor opened them."""
        return (self.path / "seen.txt").read_text(encoding="utf-8")

    def typed(
        self, arguments: Sequence[str], lines: Sequence[tuple[str, str]], **environment: str
    ) -> tuple[int, str]:
        """Run the command in a terminal, and type; returns exit code and screen."""
        here = {**self.environment, "VISUAL": "", **environment}
        return typed(lambda: main(arguments), lines, folder=self.path, environment=here)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Waiting runs; each test answers its own."""
    return Folder(tmp_path_factory.mktemp("command_line"))


def test_runs_and_questions_are_listed_for_people_and_programs(folder: Folder) -> None:
    """The list has waiting runs with their answer commands; the start of an id names a run."""
    listed = folder.nbagent("runs", "--waiting").stdout
    assert all(run_id[:8] in listed for run_id in folder.ids.values())
    assert "\x1b" not in listed
    for environment, is_colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        _, said = folder.typed(["runs", "--waiting"], [], **environment)
        assert ("\x1b[" in said) is is_colored, said
    [travel] = folder.json("runs", "--agent", "travel")["runs"]
    assert (travel["status"], travel["questions"][0]["tool"]) == ("interrupted", "trip")
    assert folder.json("runs", "--status", "failed")["runs"] == []
    shown = folder.nbagent("show", folder.ids["bank"][:10])
    assert "Run pay?" in shown.stdout
    assert "--approve" in shown.stdout


def test_a_wrong_command_is_named_and_changes_nothing(folder: Folder) -> None:
    """Each kind of mistake has an exit code; with ``--json``, the error is JSON too."""
    bank, travel, vault = (folder.ids[name] for name in ("bank", "travel", "vault"))
    for code, arguments, why in [
        (3, ["show", "nothing"], "There is no run 'nothing'"),
        (3, ["show", bank, "--store", "none.db"], "There is no store at 'none.db'"),
        (2, ["answer", bank], "There is no terminal for the"),
        (2, ["answer", travel, "--approve"], "nothing to approve. Use --value JSON"),
        (
            2,
            ["answer", bank, "--input", '{"amuont": 1}'],
            "has no field 'amuont'. Its fields: amount",
        ),
        (2, ["answer", bank, "--input", '{"to": "Eve"}'], "'pay' does not allow new values of to"),
        (2, ["answer", travel, "--value", '{"when": "soon", "seat": "x", "legs": []}'], "when: "),
        (2, ["answer", bank, "--input", '{"amount": "much"}'], "amount: Must be"),
        (2, ["answer", vault, "--text", "hunter2"], "Secrets are never stored"),
        (2, ["answer", bank, "--approve", "--agent", "bank.py:nobody"], "has no 'nobody'"),
        (2, ["prune", "--older-than", "soon"], "soon"),
        (2, ["delete", bank], "pass --yes"),
        (3, ["answer", bank, "zzz", "--approve"], "There is no question 'zzz'"),
        (
            3,
            ["answer", "--token", "wrong", "--value", "1"],
            "No interrupt in SQLiteStore('runs.db')",
        ),
        (1, ["export", bank, "--output", "none/run.json"], "none/run.json"),
    ]:
        told = folder.nbagent(*arguments, "--json")
        said = json.loads(told.stderr)
        assert (told.returncode, said["exit_code"], told.stdout) == (code, code, ""), arguments
        assert why in said["message"], said
        assert "hunter2" not in told.stderr
    assert folder.nbagent("answer", bank, "--value", "{no").returncode == 2
    assert len(folder.json("runs", "--waiting")["runs"]) == len(folder.ids)


def test_importing_a_document_twice_changes_nothing_and_says_so(
    folder: Folder,
) -> None:
    """Approved calls ask again only when the document is first imported."""
    bank = folder.ids["bank"]
    assert folder.nbagent("export", bank, "-o", "run.json").returncode == 0
    assert (folder.path / "run.json").stat().st_mode & 0o777 == 0o600
    first, again = (
        folder.nbagent("import", "run.json", "--store", "there.db").stdout for _ in range(2)
    )
    assert first.startswith(
        f"Imported {bank}. Calls that were approved elsewhere need approval again"
    )
    assert again == f"The run {bank} already exists here. Nothing was changed.\n"


def test_a_hint_can_be_pasted_and_a_stop_reports_its_effect(folder: Folder) -> None:
    """The hint has the store as given and the shortest ids; choices are shown before the person selects one."""
    (folder.path / "sleepy.py").write_text(SLEEPY, encoding="utf-8")
    told = folder._run([sys.executable, "sleepy.py"])
    assert told.returncode == 0, told.stderr
    listed = folder.nbagent("runs", "--status", "waiting").stdout.splitlines()
    assert [line.split(" ago  ")[1].split() for line in listed[:4:2]] == [
        ["tidy", 'path="downloads"'],
        ["sleepy", "go"],
    ]
    short = listed[2].split()[0]
    shown = folder.nbagent("show", short, "--store", "./runs.db").stdout
    hints = [shlex.split(line, comments=True) for line in shown.splitlines() if "--reject" in line]
    assert len(hints) == 2
    for hint in hints:
        assert hint[:3] == ["nbagent", "answer", short]
        assert "./runs.db" in hint
    assert folder.nbagent(*hints[0][1:]).returncode == 0
    place = ["--agent", "sleepy.py:agent"]
    code, said = folder.typed(["answer", short, "--approve", *place], [("napping", "\x03")])
    assert (code, "stopped run" in said, "It is cancelled" in said) == (130, True, True), said
    code, said = folder.typed(["answer", listed[0].split()[0]], [("to skip:", "\n")])
    assert (code, "1) keep" in said, "2) drop" in said) == (0, True, True), said


def test_a_terminal_asks_the_form_and_enter_never_approves(folder: Folder) -> None:
    """Errors name their fields, other values stay, the whole call is shown, and leaving changes nothing."""
    bank = folder.ids["bank"]
    code, said = folder.typed(["answer", bank[:12]], [("to skip:", "\n")])
    assert (code, "Nothing was changed." in said) == (0, True)
    code, said = folder.typed(["answer", bank], [("to skip:", "\x03")])
    assert (code, "Nothing was changed." in said) == (130, True)
    code, said = folder.typed(["answer", bank], [("to skip:", "c\n"), ("Amount", "\x04")])
    assert (code, "Nothing was changed." in said) == (130, True)
    code, said = folder.typed(["delete", bank], [("permanently?", "\x03")])
    assert (code, "Nothing was deleted." in said) == (130, True)
    assert len(folder.json("runs", "--waiting", "--agent", "bank")["runs"]) == 1
    code, said = folder.typed(
        ["answer", folder.ids["vault"]],
        [("to skip:", "s\n"), ("Answer", "hunter2\n"), ("to skip:", "\n")],
    )
    assert (code, "Secrets are never stored" in said, "hunter2" in said) == (0, True, False), said


def test_a_larger_answer_is_written_in_the_editor_and_checked_when_it_is_saved(
    folder: Folder,
) -> None:
    """The file has the schema and later the errors as comments; an unchanged file or no editor changes nothing."""
    travel, editor = folder.ids["travel"], f"{shlex.quote(sys.executable)} edit.py"
    code, said = folder.typed(["answer", travel], [("to skip:", "s\n")], EDITOR="")
    assert (code, "Set VISUAL or EDITOR" in said) == (2, True), said
    code, said = folder.typed(["answer", travel], [("to skip:", "s\n")], EDITOR="false")
    assert (code, "ended with exit code 1" in said) == (1, True), said
    folder.edits([])
    lines = [("to skip:", "s\n"), ("to skip:", "\n")]
    code, said = folder.typed(["answer", travel], lines, EDITOR="false", VISUAL=editor)
    told = ("The file is unchanged." in said, "Nothing was changed." in said)
    assert (code, *told) == (0, True, True), said
    assert '//   seat: one of "window", "aisle"\n//   legs: list of\n' in folder.seen()
    legs = '"legs": [{"to": "Rome", "nights": 0}]'
    folder.edits(
        [('"when": null', '"when": "soon"'), ('"seat": null', '"seat": "aisle"'), ("[]", "[")],
        [('"legs": [', legs)],
        [('"nights": 0', '"nights": 3')],
        [('"soon"', '"2026-12-24"')],
    )
    lines = [("to skip:", "s\n"), ("Send this?", "y\n")]
    code, said = folder.typed(["answer", travel], lines, EDITOR=editor)
    assert code == 0, said
    assert "\x1b" not in said
    assert "The run continues once a process has it open" in said
    assert "// This is not JSON: " in folder.seen()
    assert "// Not accepted: legs.0.nights: Must be at least 1" in folder.seen()
    assert "// Not accepted: when: Must be a valid date" in folder.seen()
    assert folder.json("runs", "--agent", "travel")["runs"][0]["questions"] == []


def test_a_secret_of_a_larger_answer_is_asked_in_the_terminal(folder: Folder) -> None:
    """No file of the editor has it; like any secret, it needs ``--agent``."""
    folder.edits([("[]", '["Ada"]')], [])
    lines = [("to skip:", "s\n"), ("Key", "hunter2\n"), ("to skip:", "\n")]
    editor = f"{shlex.quote(sys.executable)} edit.py"
    code, said = folder.typed(["answer", folder.ids["club"]], lines, EDITOR=editor)
    assert (code, "hunter2" in said, "hunter2" in folder.seen()) == (0, False, False), said
    assert "Secrets are never stored" in folder.seen()


def test_an_answer_is_stored_or_continues_the_run_and_a_second_one_is_refused(
    folder: Folder,
) -> None:
    """Without ``--agent``, another process continues the run; with it, this command does."""
    fresh = folder._run([sys.executable, "bank.py"]).stdout.split()[-1]
    kept = folder.json("answer", fresh, "--input", '{"amount": 4}')
    assert (kept["continues"], kept["answer"]["input"]) == (
        "when_opened",
        {"amount": 4, "to": "Bob"},
    )
    idle = folder.nbagent("runs", "--status", "idle").stdout
    assert fresh[:8] in idle
    assert "continues when opened" in idle
    second = folder.nbagent("answer", fresh, kept["question"], "--approve")
    assert (second.returncode, "command line" in second.stderr) == (4, True)
    late = folder.nbagent("answer", fresh, "--approve")  # as if a script ran twice
    assert (late.returncode, "answered by command line" in late.stderr) == (4, True), late.stderr
    went = folder.json("answer", fresh, "--agent", "bank.py:agent")
    assert (went["continues"], went["status"], went["text"]) == ("here", "completed", "Paid.")
    assert "paid 4 to Bob" in folder.nbagent("show", fresh).stdout


def test_a_process_that_drives_the_run_continues_it_by_itself(folder: Folder) -> None:
    """The process follows its store while it waits; the command reports the process."""
    waits = (
        "import asyncio\nfrom bank import agent\n"
        "async def main():\n"
        "    run = await agent.run('Pay Bob', show=False, attended=True).settled()\n"
        "    print(run.id, flush=True)\n"
        "    while run.status != 'completed': await asyncio.sleep(0.05)\n"
        "    print(run.result.text)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", waits]
    given = {"cwd": folder.path, "env": folder.environment, "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **given) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        told = folder.json("answer", run_id, "--approve")
        assert (told["continues"], str(process.pid) in told["driver"]) == ("elsewhere", True)
        assert process.stdout.readline() == "Paid.\n"


def test_a_token_answers_from_a_shell_and_from_a_web_hook(folder: Folder) -> None:
    """A token works once; the web hook is the example of the docs page, on the same store."""
    hook = re.search(r"```python\n(# hook\.py\n.*?)```", PAGE, re.DOTALL)[1]  # type: ignore[index]
    path = folder.path / "hook.py"
    path.write_text(hook.replace('"runs.db"', repr(str(folder.path / "runs.db"))))
    spec = importlib.util.spec_from_file_location("hook_of_the_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Hook.log_message = lambda *_: None
    token = (folder.path / "token").read_text()
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Hook) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}"
        codes = [posted(address, {"token": token, "value": value}) for value in ("much", 7, 7)]
        codes.append(posted(address, {"token": "wrong", "value": 1}))
        server.shutdown()
    module.store.close()
    assert codes == [400, 204, 409, 404]
    again = folder.nbagent("answer", "--token-file", "token", "--value", "7")
    assert (again.returncode, "used" in again.stderr) == (4, True)


def posted(address: str, said: Any) -> int:
    """The status of a request with a JSON body."""
    request = urllib.request.Request(address, json.dumps(said).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    """The blocks run unchanged, in order; only their example id is replaced by the run's id."""
    (tmp_path / "bank.py").write_text(BANK, encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    head = f'set -e\nnbagent() {{ "{sys.executable}" -m nbagent "$@"; }}\n'
    first, *rest = [block.replace("python ", f'"{sys.executable}" ') for block in blocks]
    script = f"{head}{first.replace('bank.py', 'bank.py | tee id')}ID=$(awk '{{print $3}}' id)\n"
    script += "".join(rest).replace("3f2a", '"$ID"')
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "paid 4 to Bob" in told.stdout


def test_output_that_cannot_be_written_is_one_line_of_error(folder: Folder) -> None:
    """A full disk is an error; a closed output is not."""
    run = f'"{sys.executable}" -m nbagent'
    travel = folder.ids["travel"]
    told = folder._run(
        ["bash", "-c", f"{run} show {travel} >/dev/full; echo $?; {run} runs >&-; echo $?"]
    )
    assert told.stdout.split() == ["1", "0"], told.stderr
    assert told.stderr.count("\n") == 1
    assert "No space left" in told.stderr


def test_letters_outside_the_output_encoding_are_escaped(tmp_path: Path) -> None:
    """As on Windows, where pipes use a national encoding: the list is printed without a traceback."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        agent = nb.Agent(nb.ScriptedModel(["Done."]), name="office", store=store)
        agent.run_sync("Pay 円 now.")
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    with contextlib.redirect_stdout(out):
        assert main(["runs", "--store", str(tmp_path / "runs.db")]) == 0
    assert "Pay \\u5186 now." in out.buffer.getvalue().decode("cp1252")  # type: ignore[attr-defined]


def test_a_closed_pipe_is_quiet_and_a_command_loads_nothing_heavy(folder: Folder) -> None:
    """``| head`` causes no traceback; a command imports no slow module."""
    shell = f'"{sys.executable}" -m nbagent runs --json | head -c 1; echo " ${{PIPESTATUS[0]}}"'
    told = folder._run(["bash", "-c", shell])
    assert (told.stdout, told.stderr) == ("{ 0\n", "")
    loaded = (
        "import sys; from nbagent.cli import main; main(['runs']); "
        "print(sorted({'openai', 'IPython', 'anywidget', 'ipywidgets', 'mcp', 'pandas', 'jsonschema', "
        "'nbagent.playback'} & set(sys.modules)))"
    )
    assert folder._run([sys.executable, "-c", loaded]).stdout.splitlines()[-1] == "[]"


def test_an_approval_in_an_imported_document_does_not_count_here(tmp_path: Path) -> None:
    """A call that was approved and exported before it ran waits again after the import."""
    folder = Folder(tmp_path)
    bank = folder.ids["bank"]
    told = folder.nbagent("answer", bank, "--input", '{"amount": 7}')
    assert told.returncode == 0, told.stderr
    assert "approved with changes" in folder.nbagent("show", bank).stdout
    assert folder.nbagent("export", bank, "-o", "run.json").returncode == 0
    assert folder.nbagent("import", "run.json", "--store", "other.db").returncode == 0
    shown = folder.nbagent("show", bank, "--store", "other.db").stdout
    assert "Run pay?" in shown
    assert "Amount: 5" in shown
    assert "approved" not in shown
    assert "Amount: 7" not in shown


ROWS = """
import asyncio
import nbagent as nb

def respond(messages):
    return "nothing to pay" if "B" in str(messages[-1]["content"]) else nb.ScriptedModel.call("pay", amount=1)

agent = nb.Agent(nb.ScriptedModel(respond), name="payer", store="runs.db")

@agent.tool(approval=True)
def pay(amount: int) -> str:
    return "paid"

async def main():
    await nb.map(agent, ["A-140", "B"], prompt="{}", key=str, id="march", attended=True, show=False)

asyncio.run(main())
"""


def test_a_batch_and_its_rows_say_how_to_continue_the_batch(folder: Folder) -> None:
    """A row's id is not shortened, because a part of its key could name another row."""
    (folder.path / "rows.py").write_text(ROWS, encoding="utf-8")
    assert folder._run([sys.executable, "rows.py"]).returncode == 0
    assert "march:A-140 " in folder.nbagent("runs").stdout
    shown = folder.nbagent("show", "march").stdout.splitlines()
    assert shown[-1] in ("Rows: 1 waiting, 1 completed", "Rows: 1 completed, 1 waiting")
    as_json = json.loads(folder.nbagent("show", "march", "--json").stdout)
    assert as_json["rows"] == {"interrupted": 1, "completed": 1}
    of_batch = folder.nbagent("answer", "march", "--approve").stderr
    of_row = folder.nbagent("answer", "march:A-140", "--approve").stdout
    for said in (of_batch, of_row):
        assert "the same nb.map call, or with await nb.open_batch('march', agent=agent" in said
