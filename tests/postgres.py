"""A PostgreSQL server of the tests' own: in a temporary folder, on a Unix socket alone."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

MISSING = (
    "no PostgreSQL server: apt-get install postgresql, or set NBAGENT_POSTGRES to its bin folder"
)
_numbers = itertools.count()


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``; None where there is no server."""
    chosen = os.environ.get("NBAGENT_POSTGRES")
    found = shutil.which("initdb")
    folders = [chosen, found and str(Path(os.path.realpath(found)).parent)]
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    there = (Path(folder) for folder in folders if folder)
    return next((folder for folder in there if (folder / "initdb").exists()), None)


@contextmanager
def server() -> Iterator[Path]:
    """A server; gives the folder of its socket. Without the programs the test skips, and fails in CI."""
    folder = programs()
    if folder is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as made:
        place, data = Path(made), Path(made) / "data"
        run = _as_nobody_special(place)
        run(folder / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-k {place} -c listen_addresses='' -c fsync=off -c max_connections=200"
        started = (folder / "pg_ctl", "-D", data, "-l", place / "log", "-w")
        run(*started, "-o", options, "start")
        try:
            yield place
        finally:
            run(*started, "-m", "immediate", "stop")


def end_abruptly(place: Path) -> None:
    """Kill a server's processes as they are, and start it anew as it was."""
    folder = programs()
    assert folder is not None  # it has made this server
    run = _as_nobody_special(place)
    run(
        folder / "pg_ctl",
        "-D",
        place / "data",
        "-l",
        place / "log",
        "-w",
        "-m",
        "immediate",
        "restart",
    )


def _as_nobody_special(place: Path):  # the server refuses to be root's
    user = {}
    if os.geteuid() == 0:
        for name in ("postgres", "nobody"):
            try:
                found = pwd.getpwnam(name)
            except KeyError:
                continue
            user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
            os.chown(place, found.pw_uid, found.pw_gid)
            break

    def run(*words) -> None:
        subprocess.run(
            [str(word) for word in words],
            cwd=place,
            check=True,
            stdout=subprocess.DEVNULL,
            **user,
        )

    return run


def database(place: Path) -> str:
    """The URL of a new database of a server."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(
        host=str(place), user="tester", dbname="postgres", autocommit=True
    ) as made:
        made.execute(f"create database {name} template template0")
    return f"postgresql://tester@/{name}?host={place}"
