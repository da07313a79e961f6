"""The command line, without starting JupyterLab."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr, TypeAdapter

import nbagent as nb
from nbagent import cli
from nbagent.cli import demo
from nbagent.cli.editor import EditorForm
from nbagent.cli.output import CommandError, code_of
from nbagent.cli.stored import public_place, question_of
from nbagent.cli.terminal import Stopped, Terminal
from nbagent.core.base.events import RunStarted
from nbagent.core.base.messages import user
from nbagent.core.journal.journal import Journal
from nbagent.forms.form import Form


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("runs.db", "runs.db"),
        ("postgresql://db.example/runs?connect_timeout=3", None),
        ("postgresql://ada:hush@db.example/runs", "postgresql://…"),
        ("postgresql://db.example/runs?user=ada&sslPassword=hush", "postgresql://…"),
    ],
)
def test_a_command_to_type_shows_no_password_of_a_store(given, shown):
    """Neither that of the URL, nor one in its query; a store of a database knows its own public URL."""
    assert public_place(given, None) == (shown or given)
    known = SimpleNamespace(url="postgresql://ada:***@db.example/runs")
    assert public_place(given, known) == (known.url if "hush" in given else given)


def test_the_quickstart_is_copied_once_and_never_overwritten(tmp_path):
    """A person's changes to the copy survive the next ``nbagent demo``."""
    folder = tmp_path / "deep" / "nbagent-demo"
    copy, kept = demo.copy_quickstart(folder)
    assert (copy.read_bytes(), kept) == (demo.without_outputs(demo.quickstart()), False)
    copy.write_text("mine")
    assert demo.copy_quickstart(folder) == (copy, True)
    assert copy.read_text() == "mine"


@pytest.mark.parametrize("in_the_way", ["file", "folder"])
def test_a_file_in_the_way_of_the_copy_is_an_error_that_names_dir(in_the_way, tmp_path, capsys):
    """The error says what to do, and no file changes."""
    folder = tmp_path / "demo"
    if in_the_way == "file":
        folder.write_text("a file where the folder should be")
    else:
        (folder / demo.NOTEBOOK).mkdir(parents=True)
    assert cli.main(["demo", "--dir", str(folder)]) == 1
    assert "--dir" in capsys.readouterr().err


def test_without_jupyterlab_the_error_shows_the_pip_command(monkeypatch, tmp_path, capsys):
    """The error shows the command for the missing extra, and no folder is left behind."""
    monkeypatch.setattr(demo, "NEEDED", ("ipykernel", "surely_not_installed"))
    assert cli.main(["demo", "--dir", str(tmp_path / "demo")]) == 1
    error = capsys.readouterr().err
    assert "surely_not_installed" in error
    assert f'{sys.executable} -m pip install "jupyter-nbagent[demo]"' in error
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["demo", "--port", "x"],
        ["demo", "--port", "65536"],
        ["record"],
        ["replay", "a.ipynb", "--timeout", "soon"],
        ["replay", "a.ipynb", "--answers", "b.json"],
    ],
)
def test_wrong_arguments_end_with_usage(arguments, capsys):
    """Mistakes on the command line are argparse's exit code 2, with usage."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: nbagent" in capsys.readouterr().err


def test_a_wrong_port_is_named(capsys):
    """The error says what was given and what is wanted."""
    with pytest.raises(SystemExit):
        cli.main(["demo", "--port", "abc"])
    assert "'abc' is not a port. Use a number from 0 to 65535" in capsys.readouterr().err


def test_the_version_is_also_printed_by_the_module():
    """``python -m nbagent --version`` is ``nbagent --version``."""
    command = [sys.executable, "-m", "nbagent", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == f"nbagent {nb.__version__}\n"


def test_the_kernel_uses_this_python_and_comes_before_kernels_of_the_person(tmp_path):
    """A ``python3`` kernel of another environment is not used."""
    environment = demo.jupyter_environment(tmp_path, {"JUPYTER_PATH": "/theirs", "HOME": "/home"})
    first, theirs = environment["JUPYTER_PATH"].split(os.pathsep)
    spec = json.loads((tmp_path / "data/kernels/python3/kernel.json").read_text())
    assert (first, theirs) == (str(tmp_path / "data"), "/theirs")
    assert spec["argv"][0] == sys.executable
    assert environment["HOME"] == "/home"


def test_the_server_opens_the_notebook_in_the_folder(tmp_path):
    """The folder is the server's root, and a browser opens only if asked for."""
    shown = demo.jupyter_command(tmp_path, 8888, open_browser=True)
    hidden = demo.jupyter_command(tmp_path, 8888, open_browser=False)
    assert f"--ServerApp.root_dir={tmp_path}" in shown
    assert "--LabApp.default_url=/lab/tree/01_quickstart.ipynb" in shown
    assert "--no-browser" not in shown
    assert set(hidden) - set(shown) == {"--no-browser"}


def test_an_address_is_printed_once_it_accepts_connections(monkeypatch):
    """Jupyter lists a server shortly before it listens, so a fast browser would be refused."""
    with socket.socket() as server:
        server.bind((demo.HOST, 0))
        listed = {"token": "t", "pid": 1, "url": f"http://{demo.HOST}:{server.getsockname()[1]}/"}
        asked = []

        def running():
            if asked:
                server.listen()
            asked.append(True)
            return [listed]

        monkeypatch.setattr(demo, "_running_servers", running)
        started = SimpleNamespace(poll=lambda: None, pid=1)
        assert demo._wait_for_url(started, "t").startswith(listed["url"])
    assert len(asked) == 2


def test_a_run_that_has_never_asked_has_no_matching_question():
    """Exit code 3, and not 4, which is for a question that was answered before."""
    journal = Journal("r", nb.MemoryStore())
    journal.commit(
        lambda _: [RunStarted(at=1.0, agent="a", model="m", messages=[user("go")], max_turns=2)]
    )
    options = argparse.Namespace(interrupt=None, store=None)
    with pytest.raises(CommandError, match="not waiting for an answer") as error:
        question_of(journal, options)
    assert code_of(error.value) == 3


def test_a_form_with_a_secret_in_a_list_is_not_written_to_a_file(monkeypatch):
    """No editor opens, and the reason names the field."""
    monkeypatch.setenv("EDITOR", "false")
    form = Form(TypeAdapter(dict[str, list[SecretStr]]), value={"keys": ["hunter2"]})
    with pytest.raises(Stopped, match="has a secret inside"):
        EditorForm(Terminal(), form).drafts([])


def test_the_editor_gets_hidden_characters_as_codes(tmp_path, monkeypatch):
    """A person sees what is there, and the saved JSON still means the same."""
    monkeypatch.setenv("VISUAL", f"{shlex.quote(sys.executable)} -c {shlex.quote(EDITING)}")
    monkeypatch.chdir(tmp_path)
    value = ["a\u202eb\x7f\x9b"]  # and the person types a separator of lines
    drafts = EditorForm(Terminal(), Form(list[str], value=value)).drafts([])
    assert json.loads(drafts["json"]["text"]) == [*value, "one\u2028more"]
    seen = Path("seen").read_text(encoding="utf-8")
    assert "\\u202eb\\u007f\\u009b" in seen
    assert not set("\u202e\x7f\x9b") & set(seen)


EDITING = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
text = file.read_text(encoding="utf-8")
pathlib.Path("seen").write_text(text, encoding="utf-8")
file.write_text(text.replace('"\\n]', '", "one\u2028more"]'), encoding="utf-8")
"""


async def test_a_token_answers_although_a_newer_run_is_damaged(tmp_path):
    """The answer is stored, so the command succeeds and names the answered run."""
    path, tokens = tmp_path / "runs.db", []
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("wait"), "done"]))

    @agent.tool
    def wait(ctx: nb.ToolContext) -> str:
        tokens.append(ctx.external_token)
        ctx.interrupt(external=True)

    with nb.SQLiteStore(path) as store:
        run = await agent.run("go", store=store).settled()
        store.append(
            "newer", [RunStarted(at=1.0, agent="a", model="m", messages=[], max_turns=1)], 0
        )
        store._handle.connection.execute("update events set data = '{}' where key >= 2 << 32")
        (tmp_path / "token").write_text(tokens[0])
        given = ["--token-file", str(tmp_path / "token"), "--text", "paid", "--store", str(path)]
        assert await asyncio.to_thread(cli.main, ["answer", *given]) == 0
        assert (await run).text == "done"
