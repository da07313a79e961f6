"""A PostgreSQL server for the tests: in a temporary folder, reachable only by a Unix socket."""

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
    """The folder of ``initdb`` and ``pg_ctl``; None if PostgreSQL is not installed."""
    chosen = os.environ.get("NBAGENT_POSTGRES")
    found = shutil.which("initdb")
    folders = [chosen, found and str(Path(os.path.realpath(found)).parent)]
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    there = (Path(folder) for folder in folders if folder)
    return next((folder for folder in there if (folder / "initdb").exists()), None)


@contextmanager
def server() -> Iterator[Path]:
    """Start a server and yield its socket's folder. Without the programs the test skips, or fails in CI."""
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
    """Kill a server's processes and start the server again."""
    folder = programs()
    assert folder is not None  # the server that runs was started by these programs
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


def _as_nobody_special(place: Path):  # the server refuses to run as root
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
