"""A query of others, run in a process of its own that is ended when its time is over."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nbagent.core.base.errors import UsageError

from . import worker
from .table import Table

START = 20.0
"""Seconds that the process has to begin, and to be given the database, beside the query's own."""


class QueryError(UsageError):
    """A query that was refused, failed, or took too long; it changed nothing."""


class MissingName(QueryError):
    """A query that names a table or a column that is not there.

    Args:
        message: what the database says.
        kind: which of the two.
        name: as the query has it, without the table in front.
    """

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


@dataclass(frozen=True)
class Source:
    """A database as another process can open it."""

    address: str | None = None
    """The URI of its file."""
    image: bytes = b""
    """All of one that is in memory, as ``sqlite3.Connection.serialize`` gives it; nothing where it is empty."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Source:
        """A copy of a database that is in memory; its connection is closed."""
        with closing(connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            return cls(image=connection.serialize() if pages else b"")


def read(source: Source, sql: str, *, rows: int, seconds: float) -> Table:
    """What one statement gives that does nothing but read.

    It ends by itself at its time, or ``worker.GRACE`` later its process is ended, wherever it is: inside a function
    over long texts, or while it is prepared.

    Args:
        source: which database.
        sql: of others.
        rows: how many are given at most.
        seconds: how long it may take.

    Raises:
        QueryError: it would do more than read, is no SQL, took longer or takes too much memory.
    """
    asked = {"address": source.address, "sql": sql, "rows": rows, "seconds": seconds}
    return ran(worker.__file__, asked, source.image)


def ran(script: str, asked: Mapping[str, Any], image: bytes = b"") -> Table:
    """What a process of this script answers.

    Args:
        script: the path of a worker.
        asked: what it is told, as one line of JSON; ``seconds`` is how long its query may take.
        image: what follows that line.

    Raises:
        QueryError: as in ``read``.
    """
    seconds = asked["seconds"]
    told = json.dumps(asked).encode() + b"\n"
    command = [sys.executable, "-I", "-S", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            given, _ = process.communicate(told + image, seconds + worker.GRACE + START)
        except subprocess.TimeoutExpired:
            given = b""
        finally:
            process.kill()
    if not given:
        raise QueryError(_ended(process.returncode, seconds))
    found = json.loads(given)
    if "missing" in found:
        raise MissingName(found["error"], *found["missing"])
    if "error" in found:
        raise QueryError(found["error"])
    return Table(found["columns"], [tuple(row) for row in found["rows"]], found["note"])


def _ended(code: int, seconds: float) -> str:
    """Why the process gave nothing."""
    if code >= 0:
        return f"the query failed: its process ended with exit code {code}"
    return (
        f"the query took longer than {seconds:g} seconds in one long step (a sort, or instr, replace or trim on "
        "long texts), so its process was ended. Search with LIKE, or select less"
    )
