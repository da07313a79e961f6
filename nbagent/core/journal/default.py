"""The default store for agents and flows without ``store=``: memory, or the store of ``use_store``."""

from __future__ import annotations

import logging
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from nbagent.core.base.errors import StoreError, UsageError, suggest
from nbagent.core.hooks import hooks

from .memory import MemoryStore, memory_of_process
from .store import Store

StoreLike: TypeAlias = Store | str | os.PathLike[str]
"""A place to store runs: a store, the path of a file, a database's URL, or ``"memory"``."""
VARIABLE = "NBAGENT_STORE"
"""The environment variable with the default store if code sets none; ``memory`` is this process's memory."""
_USER = re.compile(r"//[^/@]*@")
logger = logging.getLogger("nbagent")


class _Default:
    """The default store of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.chosen: Store | None = None
        """The store of ``use_store``."""
        self.variable: tuple[str, Store] | None = None
        """The last value of ``NBAGENT_STORE``, and the store that it names."""
        self.announced_by: str | None = None
        """The first run that is stored in the default store; its card shows the store's place."""


_default = _Default()


def use_store(store: StoreLike | None) -> Store:
    """Set the default store: runs of agents and flows without ``store=`` are stored there.

    The new default also applies to agents made before. A run that has started stays in its store. The first card then
    shows where runs are stored. The environment variable ``NBAGENT_STORE`` sets the default store without
    code, with a path or a database's URL.

    Args:
        store: a path of a file (``nb.SQLiteStore``), a database's URL, or a store. ``"memory"`` is this
            process's memory, and None restores the default: ``NBAGENT_STORE``, or memory.

    Returns:
        The default store.

    Raises:
        UsageError, StoreError: the store cannot be used; the message names it, and nothing was changed.
    """
    made = None if store is None else store_at(store)
    with _default.lock:
        chosen = _default.chosen
        # a cell that runs again keeps the store that it has opened
        is_open_there = chosen is not None and is_same_place(chosen, made) and not is_closed(chosen)
        if made is store or not is_open_there:
            _default.chosen = made
        _default.announced_by = None
        return current_store()


def current_store() -> Store:
    """The default store.

    Raises:
        UsageError, StoreError: the store in ``NBAGENT_STORE`` cannot be used.
    """
    with _default.lock:
        if _default.chosen is not None:
            return _default.chosen
        given = os.environ.get(VARIABLE, "").strip()
        if not given:
            return memory_of_process
        if _default.variable is None or _default.variable[0] != given:
            try:
                _default.variable = given, store_at(given)
            except (UsageError, StoreError) as error:
                raise type(error)(f"{VARIABLE}={_safe(given)}: {error}") from error
        return _default.variable[1]


def report_place(run_id: str, store: object) -> None:
    """Log where a new run is stored, if it is the first run in a default store other than memory."""
    with _default.lock:
        is_kept = not isinstance(store, MemoryStore) and is_default(store)
        if _default.announced_by is None and is_kept:
            _default.announced_by = run_id
            logger.info(
                "runs are stored in %s, with their prompts and results in plain text",
                place_of(store),
            )


def reported_place(run_id: str, store: object) -> str | None:
    """The place of the default store, for the card of the run that shows it; None for any other run."""
    with _default.lock:
        return place_of(store) if _default.announced_by == run_id else None


def is_default(store: object) -> bool:
    """Whether ``use_store`` or ``NBAGENT_STORE`` chose this store, so that code finds its runs without ``store=``."""
    with _default.lock:
        chosen = _default.chosen
        if chosen is None and _default.variable is not None:
            chosen = _default.variable[1]
        return chosen is not None and is_same_place(store, chosen)


def is_missing(store: object) -> bool:
    """Whether a store is a file that does not exist yet: a new one, or a mistyped path."""
    place = _place(store)
    return isinstance(place, Path) and not place.exists()


def near_runs(run_id: str, store: Store) -> str:
    """A hint for an id that a store does not have: the runs with similar ids. Blocks while reading the store."""
    there = store.run_ids()
    alike = [one for one in there if one.startswith(run_id)] or [
        one for one in there if run_id in one
    ]
    if run_id and alike:
        return f". Did you mean {' or '.join(map(repr, alike[:3]))}?"
    near = suggest(run_id, there)
    return near or (f". The latest runs: {', '.join(map(repr, there[-3:]))}" if there else "")


def place_of(store: object) -> str:
    """The place of a store, as people read it: a relative file path, or a URL without password."""
    if isinstance(store, MemoryStore):
        return "the memory of this process"
    place = _place(store)
    if isinstance(place, Path):
        with suppress(OSError, ValueError):  # no current folder, or the file is outside
            place = place.relative_to(Path.cwd())
    return _safe(str(place)) if place is not None else _safe(repr(store))


def place_for_others(store: object) -> str | None:
    """The place of a store, as people read it; None if another process cannot find the runs."""
    return None if _place(store) is None else place_of(store)


def is_same_place(one: object, other: object) -> bool:
    """Whether two stores have the same runs: they are the same object, file or database.

    A file that was deleted and created again is another file, and a closed store has no runs.
    """
    if one is other:
        return True
    place = _place(one)
    if place is None or type(one) is not type(other) or place != _place(other):
        return False
    if is_closed(one) or is_closed(other):
        return False
    return bool(getattr(one, "file", None) == getattr(other, "file", None))


def is_closed(store: object) -> bool:
    """Whether a store was closed, so that it has no runs."""
    return bool(getattr(store, "is_closed", False))


def _place(store: object) -> Any:
    """The path or URL of a store, to compare; None if the store has neither."""
    place = getattr(store, "path", None)
    return getattr(store, "url", None) if place is None else place


def store_at(given: Any) -> Store:
    """The store for an argument ``store=``.

    Raises:
        UsageError, StoreError: the store cannot be used; the message explains why.
    """
    if hasattr(given, "append") or not isinstance(given, str | os.PathLike):
        return _checked(given)
    text = os.fspath(given)
    if text == "memory":
        return memory_of_process
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"store must be a path, a database URL or a store, got {given!r:.80}")
    if "://" not in text and Path(text).expanduser().is_dir():
        raise UsageError(f"{text!r} is a folder. Pass the path of a file in it, such as runs.db")
    store: Store = hooks.store_at(text)
    place = _place(store)
    if isinstance(place, Path) and not place.parent.exists():
        logger.warning(
            "the folder %r does not exist yet; the first stored run creates it", str(place.parent)
        )
    return store


def _checked(given: Any) -> Store:
    if isinstance(given, type) or not (hasattr(given, "append") and hasattr(given, "read")):
        hint = ", a class. Pass an instance of it" if isinstance(given, type) else ""
        raise UsageError(
            f"store must be a path, a database URL or a store such as nb.MemoryStore(), got {given!r:.80}{hint}"
        )
    found: Store = given
    return found


def _safe(text: str) -> str:
    """The text with ``…`` in place of a user name and password."""
    return _USER.sub("//…@", text)
