"""The place of each shared store's journals, and the troubles that can happen to such a place.

Where this process has the rights of root, a trouble is real: a small disk is full or read-only.
Elsewhere SQLite and PostgreSQL themselves raise the same error.
"""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

import nbagent as nb
from nbagent.core.base.events import RunCompleted
from tests import postgres

TIMEOUT = 0.2
"""Seconds that a store waits for a lock: short, so that tests need not wait a minute."""
_numbers = itertools.count()


@contextmanager
def disk(folder: Path, *options: str) -> Iterator[bool]:
    """Mount a disk of one megabyte at ``folder``; yields whether this process may mount disks."""
    folder.mkdir()
    told = ",".join(("size=1m", "mode=0700", *options))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", told, "tmpfs", str(folder)], check=False, capture_output=True
    )
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _filled(folder: Path, store: Any) -> Iterator[None]:
    """Fill the disk until no file can grow and no file has room for the smallest event."""
    ballast, run_id = folder / "ballast", f"filler {next(_numbers)}"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass
    with suppress(nb.errors.StoreError):
        for n in itertools.count():
            store.append(run_id, [RunCompleted(at=1.0)], n)
    try:
        yield
    finally:
        ballast.unlink()


class OnDisk:
    """A SQLite file."""

    def __init__(self, made: ExitStack, folder: Path) -> None:
        self._made, self.folder = made, folder / "disk"
        self._is_mounted = made.enter_context(disk(self.folder))
        self.path = self.folder / "runs.db"
        self.told = str(self.path)
        """The name of the place in an error."""

    def open(self) -> nb.SQLiteStore:
        """Open the store as a process does; the test's end closes the store."""
        return self._made.enter_context(nb.SQLiteStore(self.path, timeout=TIMEOUT))

    @contextmanager
    def full(self, store: nb.SQLiteStore) -> Iterator[None]:
        """The disk is full."""
        if self._is_mounted:
            with _filled(self.folder, store):
                yield
            return
        assert store._handle is not None
        limit = store._handle.connection.execute
        [[most]] = limit("pragma max_page_count").fetchall()
        limit("pragma max_page_count = 1")
        yield
        limit(f"pragma max_page_count = {most}")

    @contextmanager
    def read_only(self, store: nb.SQLiteStore) -> Iterator[None]:
        """The folder is read-only for processes that open the file from now on."""
        store.close()
        if self._is_mounted:
            again = ["mount", "-o", "remount,{}", str(self.folder)]
            subprocess.run([word.format("ro") for word in again], check=True)
            yield
            subprocess.run([word.format("rw") for word in again], check=True)
            return
        self.folder.chmod(0o500)
        self.path.chmod(0o400)
        yield
        self.folder.chmod(0o700)
        self.path.chmod(0o600)

    @contextmanager
    def locked(self, _store: nb.SQLiteStore) -> Iterator[None]:
        """Another process holds a write transaction open."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("begin immediate")
            yield
            other.execute("rollback")

    def damage(self, run_id: str, position: int, column: str, value: bytes | int | None) -> None:
        """Change a column of an event's row; without a column, delete the row."""
        where = "where key = (select number << 32 from runs where id = ?) + ?"
        with closing(sqlite3.connect(self.path)) as other:
            if not column:
                other.execute(f"delete from events {where}", (run_id, position))
            elif isinstance(value, bytes):
                other.execute(
                    f"update events set {column} = cast(? as text) {where}",
                    (value, run_id, position),
                )
            else:
                other.execute(f"update events set {column} = ? {where}", (value, run_id, position))
            other.commit()


class OnServer:
    """A database of a PostgreSQL server, whose tables are on a disk of their own."""

    def __init__(self, made: ExitStack, server: Path) -> None:
        self._made, self.url = made, postgres.database(server)
        self._name = self.url.partition("@/")[2].partition("?")[0]
        self.told = f"SQLStore('postgresql+psycopg://tester@/{self._name}')"
        folder, owner = server / f"disk_{self._name}", server.stat()
        self._disk = folder
        self._is_mounted = made.enter_context(
            disk(folder, f"uid={owner.st_uid}", f"gid={owner.st_gid}")
        )
        if self._is_mounted:
            self._sql(
                f"create tablespace {self._name} location '{folder}'",
                f"alter database {self._name} set default_tablespace = {self._name}",
            )
        made.callback(self._drop)

    def _drop(self) -> None:
        with psycopg.connect(self._elsewhere, autocommit=True) as other:
            other.execute(f"drop database {self._name} with (force)")
            if self._is_mounted:
                other.execute(f"drop tablespace {self._name}")

    @property
    def _elsewhere(self) -> str:
        return self.url.replace(f"/{self._name}?", "/postgres?")

    def _sql(self, *statements: str) -> None:
        """Execute statements in another database, as this one may be closed."""
        with psycopg.connect(self._elsewhere, autocommit=True) as other:
            for statement in statements:
                other.execute(statement)

    def _disconnected(self) -> str:
        return (
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{self._name}'"
        )

    def open(self) -> nb.SQLStore:
        """Open the store as a process does; the test's end closes the store."""
        return self._made.enter_context(nb.SQLStore(self.url, timeout=TIMEOUT))

    @contextmanager
    def full(self, store: nb.SQLStore) -> Iterator[None]:
        """The disk of the database's tables is full."""
        if self._is_mounted:
            with _filled(self._disk, store):
                yield
            return
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute(
                "create or replace function is_full() returns trigger language plpgsql as "
                "$$ begin raise exception 'could not extend file' using errcode = '53100'; end $$"
            )
            on = "before insert on nbagent_events execute function is_full()"
            other.execute(f"create trigger is_full {on}")
            yield
            other.execute("drop trigger is_full on nbagent_events")

    @contextmanager
    def read_only(self, _store: nb.SQLStore) -> Iterator[None]:
        """The database refuses writes, as a standby server does."""
        mode = f"alter database {self._name} set default_transaction_read_only"
        self._sql(f"{mode} = on", self._disconnected())
        yield
        self._sql(f"{mode} = off", self._disconnected())

    @contextmanager
    def locked(self, _store: nb.SQLStore) -> Iterator[None]:
        """Another process holds a transaction open that has changed the runs."""
        with psycopg.connect(self.url) as other:
            other.execute("update nbagent_runs set seal = seal")
            yield
            other.rollback()

    @contextmanager
    def away(self, _store: nb.SQLStore) -> Iterator[None]:
        """All connections are cut, and new connections are refused."""
        may = f"alter database {self._name} allow_connections"
        self._sql(f"{may} false", self._disconnected())
        yield
        self._sql(f"{may} true")

    def damage(self, run_id: str, position: int, column: str, value: bytes | int | None) -> None:
        """Change a column of an event's row; without a column, delete the row."""
        where = "where run = (select number from nbagent_runs where id = %s) and position = %s"
        with psycopg.connect(self.url, autocommit=True) as other:
            if column:
                other.execute(
                    f"update nbagent_events set {column} = %s {where}", (value, run_id, position)
                )
            else:
                other.execute(f"delete from nbagent_events {where}", (run_id, position))


def of_kind(kind: str, made: ExitStack, folder: Path, server: Path | None) -> Any:
    """A new place of a store of this kind."""
    if kind == "sqlite":
        return OnDisk(made, folder)
    assert server is not None
    return OnServer(made, server)
