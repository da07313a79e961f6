"""Escapes, bidi and invisible controls of others are never raw in errors, reprs, logs and the terminal."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
import pickle
import re
import sys
import traceback
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.ultratb import FormattedTB

import nbagent as nb
from nbagent import cli
from nbagent.cli import demo
from nbagent.cli.output import CommandError
from nbagent.core.base import errors
from nbagent.core.base.controls import escaped, json_without_controls, without_controls
from nbagent.core.journal.rows import with_seals
from nbagent.core.run.run import session_of
from nbagent.notebook import export, tracebacks
from nbagent.notebook.render import plain, static

call = nb.ScriptedModel.call
HOSTILE = "\x1b[2Jno\x07\x9b31m\u202edanger\u2066\u200b\ufeff\u2028\r\x00"
TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
TELLING = [c for c in HOSTILE if not c.isprintable()]


def check(*texts: str) -> None:
    """Assert that no control is raw, and the rest is there."""
    for text in texts:
        assert [c for c in TELLING if c in text] == [], repr(text)
        assert "danger" in text


ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.NbagentError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_no_error_contains_a_raw_control(kind):
    """Also after a round trip through pickle."""
    error = kind(f"the tool {HOSTILE} failed\n\tbadly")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert "failed\n\tbadly" in str(error)
    check(str(error), repr(error), "".join(traceback.format_exception(error)))


def test_only_controls_are_escaped():
    """Letters, marks, spaces and emoji of any script stay, and so do newline and tab."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category != "Cn":  # an unassigned character may become a control later
            is_control = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\n\t"
            assert (escaped(character) != character) is is_control, hex(code)
    assert escaped("a\x1b\u202e\ud800") == "a\\x1b\\u202e\\ud800"


@pytest.mark.filterwarnings("ignore")
async def test_no_text_about_a_run_contains_a_control_character(caplog):
    """Names and values are from a model, a tool, a person or a server."""
    caplog.set_level("INFO", "nbagent")
    agent = nb.Agent(nb.ScriptedModel([]), name=HOSTILE)

    @agent.tool
    def fails(what: str) -> str:
        raise OSError(what)

    @agent.tool
    def asks(what: str, ctx: nb.ToolContext) -> str:
        ctx.interrupt({"message": what, "choices": [what]})

    def play(*steps: Any) -> Any:
        agent.model = nb.ScriptedModel(list(steps))
        return agent.run("go", attended=False)

    run = play(call("fails", what=HOSTILE), call(HOSTILE, **{HOSTILE: HOSTILE}), HOSTILE)
    result = await run
    check(repr(agent), repr(run), repr(result), repr(run.calls), caplog.text)
    check(run.calls["fails"][0].traceback, repr(run.interrupts) + "danger")

    run = play(call("asks", what=HOSTILE))
    with pytest.raises(nb.HumanInputRequired) as asked:
        await run
    check(repr(run), repr(run.interrupts), str(asked.value), repr(asked.value))
    with pytest.raises(nb.errors.NotPending) as wrong:
        run.reject(HOSTILE)
    check(str(wrong.value))
    run.reject(run.interrupts[0], HOSTILE)
    await run.settled()
    check(repr(run))

    for said in (RuntimeError(HOSTILE), nb.errors.ModelError(HOSTILE)):
        run = play(said)
        with pytest.raises(errors.RunError) as failed:
            await run
        check(str(failed.value), repr(run))
    check(str(nb.review("x", message=HOSTILE)) + "danger")


def test_prose_loses_controls_and_keeps_what_scripts_and_emoji_need():
    """Pages and JSON documents escape the same characters; the JSON reads back equal."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        turns = unicodedata.bidirectional(character) in TURNS
        moves = category in ("Cc", "Cs", "Zl", "Zp") and character not in "\n\t\r"
        told = without_controls(character)
        assert told == (f"⟨U+{code:04X}⟩" if turns or moves else character.replace("\r", "\n"))
        written = json_without_controls(json.dumps(character, ensure_ascii=False))
        assert json.loads(written) == character
        if turns or moves:
            assert character not in written
    assert without_controls("a\r\nb\rc") == "a\nb\nc"


class Foreign:
    """A tool's value with hostile representations."""

    def __repr__(self):
        return HOSTILE

    def _repr_html_(self):
        return f"<p title='{HOSTILE}'>{HOSTILE}</p><pre>{HOSTILE}</pre>"

    def _repr_mimebundle_(self, **_):
        return {"text/html": self._repr_html_(), "text/plain": HOSTILE}


PROSE = (
    "# h @\n\np @ `c @` **b @** [l @](https://x.example/@)\n\n```python\nx = '@'\n```\n\n```@\ny\n```\n\n"
    "| a@ | b |\n|---|---|\n| @ | 2 |\n\n- i @\n\n<b title='@'>r @</b>\n\n$x@$ ![a @](data:@) &#27;[2J &#x202e; &#155;"
)
LEFT_IN_PROSE = "\u200b\ufeff"
"""Characters that scripts and emoji need: prose keeps them, approvals and data do not."""


def check_document(text: str) -> None:
    """Assert that the document has no raw control."""
    assert [c for c in TELLING if c in text and c not in LEFT_IN_PROSE] == [], repr(text)
    assert "danger" in text


@pytest.fixture
async def hostile_run(tmp_path):
    """A stored run that waits, with hostile text wherever text of others can be."""
    said = PROSE.replace("@", HOSTILE)
    script = [
        [
            said,
            call("fails", what=HOSTILE),
            call("shows", what=HOSTILE),
            call(HOSTILE, **{HOSTILE: HOSTILE}),
        ],
        [call("asks", what=HOSTILE)],
        said,
    ]
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(script), name=HOSTILE, store=store)

    @agent.tool
    def fails(what: str) -> str:
        raise OSError(what)

    @agent.tool
    def shows(what: str) -> object:
        print(what)
        return nb.ToolResult({what: [what]}, display=Foreign())

    @agent.tool
    def asks(what: str, ctx: nb.ToolContext) -> str:
        ctx.interrupt({"message": what, "choices": [what], what: what})

    run = agent.run(f"go {HOSTILE}", attended=False, show=False)
    await run.settled()
    return run


def store_of(run: nb.Run) -> Any:
    """The store of a run."""
    return session_of(run).journal.store


def documents(run: nb.Run) -> dict[str, str]:
    """The run in each exported form."""
    view = export.view_of(run)
    cells = json.loads(run.to_notebook())["cells"]
    return {
        "html": run.to_html(),
        "markdown": run.to_markdown(),
        "notebook": run.to_notebook(),
        "cells": "".join(cell["source"] for cell in cells),
        "static html": static.render(view),
        "text/plain": plain.render(view),
    }


@pytest.mark.filterwarnings("ignore")
async def test_no_document_contains_a_raw_control(hostile_run, tmp_path):
    """HTML, Markdown, notebooks, plain text and files, of a waiting run and of an ended run."""
    for text in documents(hostile_run).values():
        check_document(text)
    hostile_run.reject(hostile_run.interrupts[0], HOSTILE)
    await hostile_run.settled()
    for text in documents(hostile_run).values():
        check_document(text)
    chat = nb.Agent(nb.ScriptedModel([PROSE.replace("@", HOSTILE)]), name=HOSTILE).chat(show=False)
    await chat.send(HOSTILE)
    for text in (chat.to_html(), chat.to_markdown(), chat.to_notebook()):
        check_document(text)
    document = nb.export_run(hostile_run.id, tmp_path / "run.json", store=store_of(hostile_run))
    text = (tmp_path / "run.json").read_text()
    check_document(text)
    assert json.loads(text) == document


async def test_a_recording_contains_no_raw_control(tmp_path):
    """People read recordings and compare them in git; the replay has the raw text."""
    path = tmp_path / "session.json"
    for mode in ("record", "replay"):
        model = nb.RecordedModel(path, nb.ScriptedModel([HOSTILE]), mode=mode)
        result = await nb.Agent(model).run(HOSTILE, show=False)
        assert result.text == HOSTILE
    check_document(path.read_text())


@pytest.mark.filterwarnings("ignore")
async def test_no_repr_contains_a_raw_control(hostile_run, tmp_path):
    """Objects that a person uses, with values whose own representations are hostile."""
    run, store = hostile_run, store_of(hostile_run)
    agent = nb.Agent(nb.ScriptedModel([HOSTILE]), name=HOSTILE)
    shown = [
        run, run.calls, run.interrupts, run.journal, run.messages, run.usage,
        *(call for calls in run.calls.values() for call in calls),
        nb.runs(store=store), nb.inbox(store=store), nb.decisions(store=store),
        *nb.runs(store=store), *nb.decisions(store=store),
        run.journal.verify(), *run.journal,
        agent, agent.chat(show=False), await agent.generate(HOSTILE),
        nb.ToolResult(Foreign(), display=Foreign()), nb.Respond(HOSTILE), nb.Restart({HOSTILE: HOSTILE}),
        nb.Reject(HOSTILE), nb.Interrupt({"message": HOSTILE}), nb.review(HOSTILE, message=HOSTILE),
        nb.File(b"x", "text/plain", name=HOSTILE), nb.ScriptedModel([HOSTILE]),
        nb.SQLiteStore(tmp_path / HOSTILE.replace("\x00", "")), nb.RecordedModel(tmp_path / HOSTILE.replace("\x00", ""), nb.ScriptedModel([]), mode="record"),
    ]  # fmt: skip
    for each in shown:
        for text in (repr(each), str(each)):
            assert [c for c in TELLING if c in text] == [], (type(each), text)
        made = getattr(each, "_repr_html_", None)
        html = (made() if made else None) or ""
        assert [c for c in TELLING if c in html and c not in LEFT_IN_PROSE] == [], (
            type(each),
            html,
        )


def _fail() -> None:
    raise ValueError(HOSTILE)


def test_no_log_contains_a_raw_control():
    """Arguments, messages and tracebacks of others, through any handler."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logger = logging.getLogger("nbagent")
    logger.addHandler(handler)
    try:
        logger.error("the run %s failed", HOSTILE)
        try:
            _fail()
        except ValueError:
            logger.exception("it failed: %r", HOSTILE)
    finally:
        logger.removeHandler(handler)
    check(out.getvalue())
    assert "Traceback" in out.getvalue()


@pytest.mark.parametrize("mode", [None, "Plain", "Context", "Verbose"])
def test_no_traceback_in_a_notebook_contains_a_raw_control(mode, monkeypatch):
    """Also in the cause of the error; the colors of IPython stay."""
    try:
        try:
            _fail()
        except ValueError as error:
            raise errors.RunError(HOSTILE) from error
    except errors.RunError as error:
        failed = error
    shell = SimpleNamespace(InteractiveTB=FormattedTB(mode=mode)) if mode else None
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    lines = tracebacks.rendered(failed)
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))
    check(text)
    assert "ValueError" in text


def raw_run(store: nb.SQLiteStore, run_id: str) -> str:
    """Copy the first run of a store under another id, as another program could."""
    rows = store.rows(store.run_ids()[0])
    store.put(run_id, with_seals(run_id, [row.data for row in rows]))
    return run_id


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_json", [False, True])
async def test_no_command_prints_a_raw_control(as_json, hostile_run, tmp_path, capsys):
    """Each command, for a run with a hostile id, also if the command fails."""
    store = nb.SQLiteStore(tmp_path / "other.db")
    nb.import_run(nb.export_run(hostile_run.id, store=store_of(hostile_run)), store=store)
    hostile = raw_run(store, HOSTILE.replace("\x00", ""))
    commands = [
        ["runs"], ["runs", "--waiting"], ["show", hostile], ["show", HOSTILE],
        ["answer", hostile], ["answer", hostile, "--approve"], ["answer", hostile, HOSTILE, "--approve"],
        ["export", hostile], ["verify", hostile], ["verify", hostile, "--seal", HOSTILE],
        ["import", str(tmp_path / HOSTILE.replace("\x00", ""))], ["answer", hostile, "--value", '"x"'],
        ["delete", hostile], ["answer", hostile, "--reject", HOSTILE], ["show", hostile],
        ["prune", "--older-than", "0s", "--waiting", "--dry-run"], ["delete", hostile, "--yes"],
    ]  # fmt: skip
    codes = []
    for command in commands:
        options = ["--store", str(store.path), *(["--json"] if as_json else [])]
        codes.append(await asyncio.to_thread(cli.main, [*command, *options]))
        said = capsys.readouterr()
        text = said.out + said.err
        assert text, command
        assert [c for c in TELLING if c in text] == [], (command, text)
    assert codes.count(0) >= 9


async def test_an_imported_run_must_have_an_id_that_a_person_could_choose(hostile_run, tmp_path):
    """Other ids are refused, and nothing is written."""
    document = nb.export_run(hostile_run.id, store=store_of(hostile_run))
    store = nb.SQLiteStore(tmp_path / "other.db")
    for run_id in (HOSTILE, "a b", "../up", "x" * 101, "a\n"):
        forged = json.loads(json.dumps(document))
        forged["id"] = forged["runs"][-1]["id"] = run_id
        with pytest.raises(errors.UsageError, match="run's id must be a string of letters"):
            nb.import_run(forged, store=store, unverified=True)
    assert store.run_ids() == []


PRINTS = {
    "cli/output.py",  # the one place where a command prints
    "core/run/host.py",  # a repr
    "core/stored/document.py",  # the schema, for nbagent's build
    "mcp_servers/guard.py",  # which program could not be started
    "data/worker.py",  # JSON, to the parent process
    "notebook/magics.py",  # escaped
}
LIBRARIES = {
    "listeners/notify.py",
    "models/litellm.py",
    "models/openai/credentials.py",
    "models/openai/transport.py",
    "mcp_servers/connection.py",
}


def test_every_print_and_log_call_is_listed_here():
    """All prints and loggers are listed; our logger is ``nbagent``, which escapes controls."""
    package = Path(nb.__file__).parent
    printing, logs = set(), set()
    for path in package.rglob("*.py"):
        if "node_modules" in path.parts:
            continue
        name = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "print" or called.endswith(
                ("stdout.write", "stderr.write", "stdout.buffer.write")
            ):
                printing.add(name)
            if (
                called == "logging.getLogger"
                and ast.unparse(node) != "logging.getLogger('nbagent')"
            ):
                logs.add(name)
    assert printing == PRINTS
    assert logs == LIBRARIES


def test_the_command_line_prints_no_raw_control(capsys, monkeypatch, tmp_path):
    """Names of folders and answers of servers can have controls."""

    def fail(*_: Any, **__: Any) -> int:
        raise CommandError(f"Cannot write {HOSTILE}")

    monkeypatch.setattr(demo, "demo", fail)
    assert cli.main(["demo", "--dir", str(tmp_path)]) == 1
    check(capsys.readouterr().err)
