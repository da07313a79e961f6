"""The process that runs one SQLite query: read-only, with limits of time, memory and disk.

SQLite reports each action of a statement before the statement runs. An authorizer allows reading and function calls;
any other action fails while the statement is prepared. So no code searches the statement's text for forbidden words.

Run this file as a script, by its path. The script reads a line of JSON from standard input, then the database if the
database is not a file, and writes one JSON object. The script imports only the standard library, because nbagent is
not available in this process. A process is needed, because a thread cannot be ended inside a SQLite function.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import sys
import time
from typing import Any

MAX_VALUE = 1_000_000
"""Bytes of one value, including intermediate values."""
MAX_COLUMNS = 2_000
SHOWN_COLUMNS = 60
"""The maximum number of columns with values in the result."""
MAX_VALUE_CHARS = 600
"""Characters of one value in the result. A longer value is cut to its beginning and its last character."""
MAX_RESULT_CHARS = 5_000_000
"""Characters of all values in the result."""
MAX_MEMORY = 64_000_000
"""Bytes that SQLite may use in addition to the database itself, including the values of the current row."""
MAX_PROCESS = 512_000_000
"""Bytes that the whole process may use, if the system can limit them; some builds of SQLite do not count memory."""
MAX_FILE = 1_000_000_000
"""Bytes of a temporary file, for example of a sort."""
GRACE = 0.5
"""Seconds that a query has after its time limit to stop by itself; then the process is ended."""
_STEPS = 500
"""Instructions of SQLite's virtual machine between two checks of the clock."""
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer"})
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: MAX_COLUMNS,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}
_MISSING = re.compile(r"no such (?P<kind>table|column): (?:[^ .]*\.)?(?P<name>.+)")
_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


class _Refused(Exception):
    """The query cannot be answered."""


def main() -> None:
    """Run the query on standard input, and write its result."""
    asked = json.loads(sys.stdin.buffer.readline())
    image = sys.stdin.buffer.read() if asked["address"] is None else b""
    given = answer(asked, image)
    sys.stdout.buffer.write(json.dumps(given).encode())


def answer(asked: dict[str, Any], image: bytes) -> dict[str, Any]:
    """The result's columns, rows and note, or a message under ``error``."""
    seconds = asked["seconds"]
    _bound(seconds, len(image))
    try:
        connection = _open(asked["address"], image)
    except (sqlite3.Error, MemoryError) as error:
        return {"error": f"The database cannot be opened for reading: {error}"}
    try:
        guard(connection, len(image))
        ends_at = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > ends_at, _STEPS)
        return _fetched(connection, asked["sql"], asked["rows"])
    except MemoryError:
        return {
            "error": f"The query needs more than {MAX_MEMORY // 10**6} MB of memory, for example for a row with many large "
            "values. Select fewer columns, or length(column)"
        }
    except sqlite3.DatabaseError as error:
        return _why(str(error), seconds)
    except (_Refused, sqlite3.Warning, sqlite3.Error, ValueError, OverflowError) as error:
        return {"error": f"The query failed: {error}"}


def _bound(seconds: float, size: int) -> None:
    """Set system limits: end this process if the query does not stop by itself, and limit its memory and files."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    try:
        import resource  # noqa: PLC0415  Windows has none
    except ImportError:
        return
    bounds = {resource.RLIMIT_FSIZE: MAX_FILE, resource.RLIMIT_AS: MAX_PROCESS + 3 * size}
    for limit, bound in bounds.items():
        _, most = resource.getrlimit(limit)
        resource.setrlimit(
            limit, (bound if most == resource.RLIM_INFINITY else min(most, bound), most)
        )


def _open(address: str | None, image: bytes) -> sqlite3.Connection:
    if address is not None:
        return sqlite3.connect(address, uri=True, isolation_level=None)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    if image:
        connection.deserialize(image)
    return connection


def guard(connection: sqlite3.Connection, size: int = 0) -> None:
    """Allow the connection only to read; ``size`` is the bytes of memory of the database itself."""
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_MEMORY + 2 * size}")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.set_authorizer(_allowed)


def _allowed(action: int, _first: str | None, second: str | None, *_: Any) -> int:
    if action in _READS:
        return sqlite3.SQLITE_OK
    is_function = action == sqlite3.SQLITE_FUNCTION
    if is_function and (second or "").lower() not in _FORBIDDEN:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _fetched(connection: sqlite3.Connection, sql: str, rows: int) -> dict[str, Any]:
    connection.text_factory = _shortened
    cursor = connection.execute(sql)
    columns = [name[:MAX_VALUE_CHARS] for name, *_ in cursor.description or ()]
    if not columns:
        raise _Refused("it returns no rows. Write one SELECT")
    found: list[list[Any]] = []
    size = 0
    for row in cursor:
        values = [_plain(each) for each in row[:SHOWN_COLUMNS]]
        size += sum(len(each) for each in values if isinstance(each, str))
        if len(found) == rows or size > MAX_RESULT_CHARS:
            note = f"the first {len(found):,} rows; there are more"
            return {"columns": columns, "rows": found, "note": note}
        found.append(values)
    return {"columns": columns, "rows": found, "note": ""}


def _shortened(text: bytes) -> str:
    """The beginning of a text and its last character, which shows whether the text ends with a space."""
    if len(text) <= MAX_VALUE_CHARS:
        return text.decode(errors="replace")
    decoded = text[: 4 * MAX_VALUE_CHARS].decode(errors="replace")
    last = text[-4:].decode(errors="replace")[-1]
    is_short = len(text) <= 4 * MAX_VALUE_CHARS and len(decoded) <= MAX_VALUE_CHARS
    return decoded if is_short else decoded[: MAX_VALUE_CHARS - 1] + last


def _plain(value: Any) -> Any:
    return f"{len(value):,} bytes" if isinstance(value, bytes) else value


def _why(text: str, seconds: float) -> dict[str, Any]:
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return {"error": f"Only one SELECT statement is allowed here: {text}"}
    if "interrupted" in text:
        return {
            "error": f"The query took longer than {seconds:g} seconds and was stopped. Select less"
        }
    if "too big" in text:
        return {
            "error": f"A value has more than {MAX_VALUE:,} bytes. Leave out its column, or select length(column)"
        }
    missing = _MISSING.match(text)
    failed: dict[str, Any] = {"error": f"The query failed: {text}"}
    return failed if missing is None else {**failed, "missing": [missing["kind"], missing["name"]]}


if __name__ == "__main__":
    main()
