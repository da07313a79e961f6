"""A model's query, run in a process that is ended after the time limit."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from nbagent.core.base.errors import UsageError

from . import worker
from .table import Table

START = 20.0
"""Seconds to start the process and send the database, in addition to the query's time limit."""


class QueryError(UsageError):
    """A query was not allowed, failed, or took too long; it changed nothing."""

    says_all = True


class MissingName(QueryError):
    """A query names a table or a column that does not exist."""

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


def run_worker(
    asked: Mapping[str, Any],
    image: bytes = b"",
    written: Callable[[set[str]], str] | None = None,
) -> Table:
    """The result of one statement that only reads, from ``worker.py`` in a process of its own.

    The query stops at its time limit. If it does not, its process is ended ``worker.GRACE`` seconds later, even
    inside a function on long texts, or while the statement is prepared.

    Args:
        asked: the script's input, sent as one line of JSON; ``seconds`` is the query's time limit.
        image: the bytes to send after that line.
        written: a function that returns the path of a database with the query's tables. The worker finds their names
            in the query and sends them, in lower case, as a line of JSON; it gets the path as another line.

    Raises:
        QueryError: the query would do more than read, is not SQL, took too long or needs too much memory.
    """
    seconds = asked["seconds"]
    limit = seconds + worker.GRACE + START
    line = json.dumps(asked).encode() + b"\n"
    command = [sys.executable, "-I", "-S", worker.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            if written is not None:
                line = json.dumps(written(_names_from(process, line, limit))).encode() + b"\n"
            given, _ = process.communicate(line + image, limit)
        except subprocess.TimeoutExpired:
            given = b""
        finally:
            process.kill()
    if not given and process.returncode >= 0:
        raise QueryError(f"The query failed: its process ended with exit code {process.returncode}")
    if not given:
        raise QueryError(
            f"The query took longer than {seconds:g} seconds in one long step (a sort, or instr, replace or trim on "
            "long texts), so it was stopped. Search with LIKE, or select less"
        )
    found = json.loads(given)
    if "missing" in found:
        raise MissingName(found["error"], *found["missing"])
    if "error" in found:
        raise QueryError(found["error"])
    return Table(found["columns"], [tuple(row) for row in found["rows"]], found["note"])


def _names_from(process: subprocess.Popen[bytes], line: bytes, limit: float) -> set[str]:
    """The names that a worker finds in its query; none if it ends or exceeds its limit before."""
    assert process.stdin is not None  # Popen was asked for both pipes
    assert process.stdout is not None
    timer = threading.Timer(limit, process.kill)
    timer.start()
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(line)
            process.stdin.flush()
        return {str(name).lower() for name in json.loads(process.stdout.readline() or b"[]")}
    finally:
        timer.cancel()
