"""One connection that hears by PostgreSQL's LISTEN what others write, and tells who watches."""

from __future__ import annotations

import atexit
import logging
import os
import selectors
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

from nbagent.core.journal.journal import Watcher

CHANNEL = "nbagent"
QUIET = 30.0
"""Seconds without a notice after which it sends itself one: a connection may be dead and not tell."""
PATIENCE = 5.0
"""Seconds until it must have heard that one."""
AGAIN = 1.0
"""Seconds until it connects anew; whoever watches looks by itself meanwhile, as often."""
logger = logging.getLogger("nbagent")


class Listener:
    """Listens in a thread, until ``end``.

    A connection that breaks is made anew. Whenever one begins to listen, or cannot, all are told, since
    nobody knows what they have missed.

    Args:
        engine: of SQLAlchemy, with psycopg 3; it lends nothing: the connection is the listener's own.
        token: which notices are those of its own store, which tells of them itself.
        name: of the store, for people.
    """

    def __init__(self, engine: Any, token: str, name: str) -> None:
        self._engine, self._token, self._name = engine, token, name
        self._watchers: dict[str, weakref.WeakSet[Watcher]] = {}
        """By the key of what they watch."""
        self._swept = 0
        """How many keys were watched when those that nobody watches were last taken out."""
        self._lock = threading.Lock()
        self._count = 0
        self._is_listening = False
        self._ended = False
        self._pid = os.getpid()
        self._bell, self._rung = socket.socketpair()
        self._thread = threading.Thread(target=self._work, name="nbagent-listen", daemon=True)
        self._thread.start()
        _listening.add(self)

    @property
    def heard(self) -> object:
        """Another value after each write to the database; None while it cannot hear."""
        return self._count if self._is_listening else None

    def add(self, key: str, watcher: Watcher) -> None:
        """Tell this one of notices with this key, for as long as anybody else holds it."""
        with self._lock:
            self._watchers.setdefault(key, weakref.WeakSet()).add(watcher)
            if len(self._watchers) > 2 * self._swept + 100:
                self._watchers = {key: there for key, there in self._watchers.items() if there}
                self._swept = len(self._watchers)

    def tell(self, key: str | None) -> None:
        """Tell those who watch it; all of them where nobody knows what was written."""
        with self._lock:
            self._count += 1
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
                self._bell.send(b"!")

    def join(self) -> None:
        """Wait until it has let go of the driver, for a moment at most: an interpreter that ends must not cut it off."""
        self._thread.join(AGAIN)

    def _work(self) -> None:
        is_told = False
        while not self._ended:
            try:
                self._listen()
            except Exception as error:  # whatever it was: all look by themselves meanwhile
                is_new = self._is_listening or not is_told  # else it has not heard since
                if is_new and not bool(self._ended):
                    is_told = True
                    logger.warning(
                        "%s does not report what others write (%s); until it does, runs are checked every second",
                        *(self._name, str(error).strip().partition("\n")[0]),
                    )
            self._is_listening = False
            if not self._ended:
                self.tell(None)
                time.sleep(AGAIN)
        self._bell.close()
        self._rung.close()

    def _listen(self) -> None:
        """Connect, and hear until the store ends.

        Raises:
            Exception: the connection cannot be made, has broken, or tells nothing.
        """
        connection = self._connected()
        try:
            connection.execute(f"listen {CHANNEL}")
            self._probe(connection)
            self._is_listening = True
            self.tell(None)
            while not self._ended:
                if self._wait(connection, QUIET):
                    self._take(connection)
                elif not self._ended:
                    self._probe(connection)
        finally:
            connection.close()

    def _connected(self) -> Any:
        """A connection of psycopg's, which no pool gives out again, resets, or tells of as it breaks."""
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
        """Send itself a notice, and hear it: behind some proxies nobody ever would.

        Raises:
            ConnectionError: it did not come.
        """
        connection.execute("select pg_notify(%s, %s)", (CHANNEL, f"{self._token}:"))
        until = time.monotonic() + PATIENCE
        while not self._take(connection) and not self._ended:
            left = until - time.monotonic()
            if left <= 0:
                raise ConnectionError(
                    "its own notifications do not arrive; is there a proxy in front of it?"
                )
            self._wait(connection, left)

    def _wait(self, connection: Any, seconds: float) -> bool:
        """Until there is something to read, or the store ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._rung, selectors.EVENT_READ)
            return any(key.fileobj is not self._rung for key, _ in selector.select(seconds))

    def _take(self, connection: Any) -> bool:
        """Tell of what has come; whether a notice of its own was among it."""
        is_own = False
        for notice in connection.notifies(timeout=0):
            token, _, key = notice.payload.partition(":")
            if token == self._token:
                is_own = True
            else:
                self.tell(key)
        return is_own


_listening: weakref.WeakSet[Listener] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    listeners = list(_listening)
    for each in listeners:
        each.end()
    for each in listeners:
        each.join()
