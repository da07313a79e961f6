"""Where runs are kept whose agent or flow names no store: this process's memory, or what was said once."""

from __future__ import annotations

import logging
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.hooks import hooks

from .journal import Store
from .memory import MemoryStore, default_store

VARIABLE = "NBAGENT_STORE"
"""The environment variable that says it where no code does; ``memory`` stands for this process's memory."""
_USER = re.compile(r"//[^/@]*@")
logger = logging.getLogger("nbagent")


class _Default:
    """The one of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.said: Store | None = None
        """What ``use_store`` said."""
        self.variable: tuple[str, Store] | None = None
        """The variable as it was read last, and its store."""
        self.told: str | None = None
        """The first run that is kept there, which tells so."""


_default = _Default()


def use_store(store: Store | str | os.PathLike[str] | None) -> Store:
    """Keep every run there from now on whose agent or flow has no ``store=``, also of those made before.

    A run that has begun stays where it is. The first card then says where runs are kept. The environment
    variable ``NBAGENT_STORE`` says the same from outside of the code, with a path or a database's URL.

    Args:
        store: a path of a file (``nb.SQLiteStore``), a database's URL, a store; ``"memory"`` is this process's
            memory, and None is what was before: what ``NBAGENT_STORE`` says, or memory.

    Returns:
        The store that runs are kept in now.

    Raises:
        UsageError, StoreError: it cannot be used; the message names it, and all stays as it was.
    """
    made = None if store is None else _made(store)
    with _default.lock:
        _default.said, _default.told = made, None
        return kept_in()


def kept_in() -> Store:
    """The store of runs whose agent or flow names none.

    Raises:
        UsageError, StoreError: ``NBAGENT_STORE`` names none that can be used.
    """
    with _default.lock:
        if _default.said is not None:
            return _default.said
        given = os.environ.get(VARIABLE, "").strip()
        if not given:
            return default_store
        if _default.variable is None or _default.variable[0] != given:
            try:
                _default.variable = given, _made(given)
            except (UsageError, StoreError) as error:
                raise type(error)(f"{VARIABLE}={_safe(given)}: {error}") from error
        return _default.variable[1]


def tell_kept(run_id: str, store: object) -> None:
    """A run begins: the first one that is kept by default, and not in memory, says so, and where."""
    with _default.lock:
        if _default.told is None and store is kept_in() and not isinstance(store, MemoryStore):
            _default.told = run_id
            logger.info(
                "runs are kept in %s, with their prompts and results in plain text", place_of(store)
            )


def told_in(run_id: str, store: object) -> str | None:
    """Where runs are kept, in the card of the run that says so; None in any other."""
    with _default.lock:
        return place_of(store) if _default.told == run_id else None


def is_default(store: object) -> bool:
    """Whether a run is found in this store without naming it."""
    with _default.lock:
        said = _default.said
        if said is None and _default.variable is not None:
            said = _default.variable[1]
        return said is not None and store is said


def place_of(store: object) -> str:
    """Where a store keeps its runs, as people read it: a file from here on, no password of a URL."""
    place = getattr(store, "path", None) or getattr(store, "url", None)
    if isinstance(place, Path):
        with suppress(OSError, ValueError):  # no folder to be in, or it is elsewhere
            place = place.relative_to(Path.cwd())
    return _safe(str(place)) if place is not None else _safe(repr(store))


def _made(given: Any) -> Store:
    if not isinstance(given, str | os.PathLike):
        return _checked(given)
    text = os.fspath(given)
    if text == "memory":
        return default_store
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"a store is a path, a database's URL or a store, not {given!r:.80}")
    if "://" not in text and Path(text).expanduser().is_dir():
        raise UsageError(f"{text!r} is a folder: give the path of a file in it, such as runs.db")
    store: Store = hooks.store_at(text)
    return store


def _checked(given: Any) -> Store:
    if isinstance(given, type) or not (hasattr(given, "append") and hasattr(given, "read")):
        raise UsageError(f"a store is a path, a database's URL or a store, not {given!r:.80}")
    found: Store = given
    return found


def _safe(text: str) -> str:
    """Without who logs in, and how."""
    return _USER.sub("//…@", text)
