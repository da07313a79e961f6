"""Files with the contents of a run: only their owner can read them, and links are not followed."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

import nbagent as nb
from nbagent import cli, playback
from nbagent.core.base.private import read_private, write_private

call = nb.ScriptedModel.call
PACKAGE = Path(nb.__file__).parent


@pytest.fixture(autouse=True)
def careless():
    """Set the umask so that new files are open to everybody by default."""
    before = os.umask(0)
    yield
    os.umask(before)


async def finished(folder: Path) -> nb.Run:
    """A run that has ended, in a store."""
    agent = nb.Agent(nb.ScriptedModel(["done"]), store=nb.SQLiteStore(folder / "runs.db"))
    run = agent.run("go", show=False)
    await run
    return run


async def _recorded(path: Path) -> None:
    model = nb.RecordedModel(path, nb.ScriptedModel(["said"]), mode="record")
    await nb.Agent(model).run("go", show=False)


async def _chat(path: Path) -> None:
    chat = nb.Agent(nb.ScriptedModel(["said"])).chat(show=False)
    await chat.send("go")
    chat.to_html(path)


async def _shell(path: Path) -> None:
    run = await finished(path.parent)
    place = str(path.parent / "runs.db")
    code = cli.main(["export", run.id, "--store", place, "--output", str(path)])
    if code != 0:
        raise FileExistsError


async def _executed(path: Path) -> None:
    playback._write(nbformat.v4.new_notebook(), path)


def _of_run(write: Callable[[nb.Run, Path], Any]) -> Callable[[Path], Awaitable[None]]:
    async def road(path: Path) -> None:
        write(await finished(path.parent), path)

    return road


EXPORTS: dict[str, Callable[[Path], Awaitable[None]]] = {
    "to_html": _of_run(lambda run, path: run.to_html(path)),
    "to_markdown": _of_run(lambda run, path: run.to_markdown(path)),
    "to_notebook": _of_run(lambda run, path: run.to_notebook(path)),
    "export_run": _of_run(
        lambda run, path: nb.export_run(run.id, path, store=nb.SQLiteStore(path.parent / "runs.db"))
    ),
    "a chat": _chat,
    "nbagent export": _shell,
}
SHARED = {"a recording": _recorded, "nbagent record --output": _executed}
"""Writers that keep the permissions of an existing file: people share these on purpose."""


def mode(path: Path) -> int:
    """The permissions of a path; links are not followed."""
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("road", [*EXPORTS, *SHARED])
async def test_a_written_file_is_private_and_follows_no_link(road, tmp_path):
    """With any umask; a link, also to a missing file, is refused and unchanged."""
    write = (EXPORTS | SHARED)[road]
    folder = tmp_path / "new"
    folder.mkdir()
    path = folder / "out"
    await write(path)
    assert mode(path) == 0o600
    assert path.read_text()
    path.chmod(0o644)
    if road in SHARED:
        await write(path)
    else:
        _again(path)
        await write(path)
    assert mode(path) == (0o644 if road in SHARED else 0o600)
    for name, target in (("link", "mine"), ("nowhere", "missing")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine").write_text("mine")
        (folder / "out").symlink_to(folder / target)
        with pytest.raises((OSError, nb.errors.NbagentError, playback.PlaybackError)):
            await write(folder / "out")
        assert (folder / "out").is_symlink()
        assert (folder / "mine").read_text() == "mine"
        assert not (folder / "missing").exists()
        assert not [*folder.glob(".out.*")]


def _again(path: Path) -> None:
    """Remove the store beside the document, so that the writer can run again."""
    for each in path.parent.glob("runs.db*"):
        each.unlink()


WRITERS = {
    "write_text",
    "write_bytes",
    "mkstemp",
    "NamedTemporaryFile",
    "mknod",
    "copyfile",
}
KNOWN = {
    "core/base/private.py: mkstemp",  # the only writer of run contents
    "core/base/private.py: fdopen",
    "stores/sqlite.py: os.open",  # the store's own file: O_EXCL, 0600, see tests/unit/stores/test_sqlite.py
    "cli/demo.py: write_text",  # settings of JupyterLab, in a folder of its own
    "cli/editor.py: write_text",  # an answer for the editor, in a folder that only this user can read
    "cli/demo.py: open",  # a notebook that comes with the package, O_EXCL
    "cli/parser.py: open",  # os.devnull
    "mcp_servers/process.py: fdopen",  # a pipe
}


def _writes(path: Path) -> set[str]:
    """The calls in a module that write a file, or may do so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        modes = [
            each.value
            for each in [*node.args[:2], *(k.value for k in node.keywords if k.arg == "mode")]
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        opens = last in ("open", "fdopen") and any(
            set("wxa+") & set(m) and len(m) <= 3 for m in modes
        )
        if last in WRITERS or opens:
            found.add(last)
        elif (name == "os.open" and "O_CREAT" in ast.unparse(node)) or (
            "nbformat.write" in name and last == "write"
        ):
            found.add(name)
    return {f"{path.relative_to(PACKAGE).as_posix()}: {each}" for each in found}


def test_every_write_to_a_file_is_listed_here():
    """``write_private`` writes contents of runs; all other writers are listed with a reason."""
    sources = (p for p in PACKAGE.rglob("*.py") if "node_modules" not in p.parts)
    assert set().union(*map(_writes, sources)) == KNOWN


@pytest.mark.skipif(os.name == "nt", reason="Windows has access lists")
def test_a_file_is_read_only_if_it_is_its_owners_alone(tmp_path, monkeypatch):
    """No other user may read or write the file, or own it or its folder; root may."""
    path = tmp_path / "file"
    write_private(path, "own")
    assert read_private(path) == b"own"
    for mode in (0o640, 0o620, 0o604, 0o602):
        path.chmod(mode)
        with pytest.raises(PermissionError, match="other users can read or change this file"):
            read_private(path)
    path.chmod(0o600)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert read_private(path) == b"own"
        os.chown(path, 7, -1)
    with pytest.raises(PermissionError, match="other users"):
        read_private(path)
