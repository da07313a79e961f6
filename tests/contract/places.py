"""Where the journals of each shared store are kept, and what may befall such a place.

Each trouble is the real one wherever this process may make it: a disk that is full or read-only is a small
one of its own, which needs root. Elsewhere SQLite and PostgreSQL themselves refuse with the same error.
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
"""Seconds that a store waits for others: short, so that a lock held for a minute need not be."""
_numbers = itertools.count()


@contextmanager
def disk(folder: Path, *options: str) -> Iterator[bool]:
    """A disk of one megabyte at ``folder``; whether this process may mount one."""
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
    """Nothing more fits on the disk: no file grows, nor has one room for the smallest event."""
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
        """What an error names."""

    def open(self) -> nb.SQLiteStore:
        """The store, as a process opens it; closed in the end."""
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
        """The folder is, for whoever opens the file from now on."""
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
        """Another process writes, and does not come to an end."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("begin immediate")
            yield
            other.execute("rollback")

    def damage(self, run_id: str, position: int, column: str, value: bytes | int | None) -> None:
        """Put something else into the row of an event; without a column the row is gone."""
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
        """Said in another database of the server, as this one may take nothing."""
        with psycopg.connect(self._elsewhere, autocommit=True) as other:
            for statement in statements:
                other.execute(statement)

    def _disconnected(self) -> str:
        return (
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{self._name}'"
        )

    def open(self) -> nb.SQLStore:
        """The store, as a process opens it; closed in the end."""
        return self._made.enter_context(nb.SQLStore(self.url, timeout=TIMEOUT))

    @contextmanager
    def full(self, store: nb.SQLStore) -> Iterator[None]:
        """The disk of its tables is full."""
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
        """The database takes no writes, as a standby server does not."""
        mode = f"alter database {self._name} set default_transaction_read_only"
        self._sql(f"{mode} = on", self._disconnected())
        yield
        self._sql(f"{mode} = off", self._disconnected())

    @contextmanager
    def locked(self, _store: nb.SQLStore) -> Iterator[None]:
        """Another process has changed the runs, and does not come to an end."""
        with psycopg.connect(self.url) as other:
            other.execute("update nbagent_runs set seal = seal")
            yield
            other.rollback()

    @contextmanager
    def away(self, _store: nb.SQLStore) -> Iterator[None]:
        """Connections are cut, and no new one is taken."""
        may = f"alter database {self._name} allow_connections"
        self._sql(f"{may} false", self._disconnected())
        yield
        self._sql(f"{may} true")

    def damage(self, run_id: str, position: int, column: str, value: bytes | int | None) -> None:
        """Put something else into the row of an event; without a column the row is gone."""
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
