"""One connection that receives other processes' writes by PostgreSQL's LISTEN, and calls the watchers."""

from __future__ import annotations

import atexit
import logging
import os
import re
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from nbagent.core.journal.store import Watcher

CHANNEL = "nbagent"
QUIET = 30.0
"""Seconds without a notice after which a listener sends itself one, because a dead connection may raise no error."""
PATIENCE = 5.0
"""Seconds until that notice must arrive."""
AGAIN = 1.0
"""Seconds before a listener connects again; meanwhile all watchers are called at this interval."""
_NUMBER = re.compile(r"[0-9]{1,18}")
MOST = 10_000
"""Maximum number of writes to remember."""
logger = logging.getLogger("nbagent")


class Notices(NamedTuple):
    """The notices that a listener had received at one time."""

    listener: Listener
    received: int


class Listener:
    """Listens in a thread, until ``end``.

    A broken connection is replaced. When a connection starts to listen, or cannot, all watchers are called,
    because they may have missed writes.

    Args:
        engine: the SQLAlchemy engine, with psycopg 3; the listener takes a connection of its own.
        token: marks the notices of the listener's own store; for these, the store itself calls the watchers.
        name: the store's name in log lines.
    """

    def __init__(self, engine: Any, token: str, name: str) -> None:
        self._engine, self._token, self._name = engine, token, name
        self._watchers: dict[str, weakref.WeakSet[Watcher]] = {}
        """Watchers by the key of their run."""
        self._swept = 0
        """The number of keys when unused ones were last removed."""
        self._lock = threading.Lock()
        self._count = 0
        self._numbers: deque[int] = deque(maxlen=MOST)
        """The run's number for each of the latest writes."""
        self._expected: weakref.WeakValueDictionary[str, threading.Event] = (
            weakref.WeakValueDictionary()
        )
        """Events to set when own notices arrive, by marker."""
        self._is_listening = False
        self._ended = False
        self._pid = os.getpid()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._thread = threading.Thread(target=self._work, name="nbagent-listen", daemon=True)
        self._thread.start()
        _listening.add(self)

    @property
    def change_count(self) -> object:
        """A new value after each write to the database; None while there is no connection."""
        return self._count if self._is_listening else None

    @property
    def notices(self) -> Notices | None:
        """The notices received so far; None while there is no connection."""
        return Notices(self, self._count) if self._is_listening else None

    def written_since(self, earlier: Notices) -> set[int] | None:
        """The numbers of the runs that were written to since ``earlier``; None if not all numbers are known."""
        with self._lock:
            if not self._is_listening or earlier.listener is not self:
                return None
            new = self._count - earlier.received
            latest = islice(reversed(self._numbers), new)
            return set(latest) if new <= len(self._numbers) else None

    def expect(self, marker: str) -> threading.Event:
        """An event that is set when the store's own notice with this marker arrives."""
        with self._lock:
            return self._expected.setdefault(marker, threading.Event())

    def add(self, key: str, watcher: Watcher) -> None:
        """Call this watcher on notices with this key, as long as other code references the watcher."""
        with self._lock:
            self._watchers.setdefault(key, weakref.WeakSet()).add(watcher)
            if len(self._watchers) > 2 * self._swept + 100:
                self._watchers = {
                    key: watchers for key, watchers in self._watchers.items() if watchers
                }
                self._swept = len(self._watchers)

    def notify(self, key: str | None, number: int | None = None) -> None:
        """Note a write to the run with this key and number, and call its watchers; all watchers if the key is None."""
        with self._lock:
            self._count += 1
            if number is None:
                self._numbers.clear()
            else:
                self._numbers.append(number)
            keys = [*self._watchers] if key is None else [key]
            concerned = [one for each in keys for one in self._watchers.get(each, ())]
        for watcher in concerned:
            try:
                watcher.on_append()
            except Exception:
                logger.exception("%s: a listener for a run failed", self._name)

    def end(self) -> None:
        """Stop listening; the connection closes by itself."""
        self._ended = True
        if self._pid == os.getpid():
            with suppress(OSError):
                self._wake_sender.send(b"!")

    def join(self) -> None:
        """Wait briefly for the thread, because the interpreter's end must not interrupt it in the database driver."""
        self._thread.join(AGAIN)

    def _work(self) -> None:
        is_logged = False
        while not self._ended:
            try:
                self._listen()
            except Exception as error:  # any error: watchers poll meanwhile
                # a failure is logged once, until the listener has listened again
                is_new = self._is_listening or not is_logged
                if is_new and not bool(self._ended):
                    is_logged = True
                    logger.warning(
                        "%s does not report changes by other processes (%s), so runs are checked every second",
                        *(self._name, str(error).strip().partition("\n")[0]),
                    )
            self._is_listening = False
            if not self._ended:
                self.notify(None)
                time.sleep(AGAIN)
        self._wake_sender.close()
        self._wake_receiver.close()

    def _listen(self) -> None:
        """Connect and listen until ``end`` is called.

        Raises:
            Exception: the connection cannot be made, has broken, or delivers no notices.
        """
        connection = self._connected()
        try:
            connection.execute(f"listen {CHANNEL}")
            self._probe(connection)
            self._is_listening = True
            self.notify(None)
            while not self._ended:
                if self._wait(connection, QUIET):
                    self._process_notices(connection)
                elif not self._ended:
                    self._probe(connection)
        finally:
            connection.close()

    def _connected(self) -> Any:
        """A psycopg connection that is detached from the pool."""
        pooled = self._engine.connect()
        try:
            connection: Any = pooled.connection.driver_connection
            pooled.detach()
            connection.rollback()
            connection.autocommit = True
        except BaseException:
            pooled.close()
            raise
        return connection

    def _probe(self, connection: Any) -> None:
        """Send a notice to this listener and wait for the notice, because some proxies deliver none.

        Raises:
            ConnectionError: the notice did not arrive.
        """
        connection.execute("select pg_notify(%s, %s)", (CHANNEL, f"{self._token}:"))
        until = time.monotonic() + PATIENCE
        while not self._process_notices(connection) and not self._ended:
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise ConnectionError("its notifications do not arrive, perhaps because of a proxy")
            self._wait(connection, remaining)

    def _wait(self, connection: Any, seconds: float) -> bool:
        """Wait up to ``seconds`` for data, or until ``end`` is called; return whether there is data."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._wake_receiver, selectors.EVENT_READ)
            return any(
                key.fileobj is not self._wake_receiver for key, _ in selector.select(seconds)
            )

    def _process_notices(self, connection: Any) -> bool:
        """Process the notices that have arrived; return whether a notice of the listener's own store was among them."""
        is_own = False
        for notice in connection.notifies(timeout=0):
            token, _, run = notice.payload.partition(":")
            key, _, rest = run.partition(":")
            if token == self._token:
                is_own = True
                with self._lock:
                    expected = self._expected.get(rest)
                if expected is not None:
                    expected.set()
            elif key:  # else another store asks whether its notices arrive
                self.notify(key, int(rest) if _NUMBER.fullmatch(rest) else None)
        return is_own


_listening: weakref.WeakSet[Listener] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    listeners = list(_listening)
    for each in listeners:
        each.end()
    for each in listeners:
        each.join()
