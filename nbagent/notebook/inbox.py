"""``nb.inbox``: everything that waits for an answer in a store, shown with its forms, or as a list."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from IPython.display import display

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_store
from nbagent.core.base.awaited import awaited
from nbagent.core.base.errors import UsageError
from nbagent.core.base.keywords import tells
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.default import Kept, kept_in, place_of
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.run.describe import asks
from nbagent.core.stored.inbox import Asked, Owner, Waiting

from . import kernel
from .render.reveal import reveal
from .texts import TEXTS

EVERY = 1.0
"""Seconds between looks of who waits for a change."""
MAX_LINES = 30
"""Questions that are printed."""


class Inbox:
    """What waits for an answer in a store: a cell's last line shows it with its forms, live."""

    def __init__(self, waiting: Waiting, of: str) -> None:
        self._waiting = waiting
        self._of = of
        self._shown: Any = None
        self._seen: tuple[tuple[str, str], ...] | None = None

    @property
    def count(self) -> int:
        """How many questions wait; the store is read only where somebody has written since."""
        return len(self._now())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Asked]:
        return iter(self._now())

    def __bool__(self) -> bool:
        return True  # an inbox with nothing in it is still one

    def where(
        self,
        *tests: Callable[[Asked], object],
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | dt.timedelta | None = None,
        **inputs: Any,
    ) -> Inbox:
        """The questions of it that fit, as an inbox of its own: ``inbox.where(tool="pay", amount=lambda it: it < 100)``.

        Args:
            tests: functions of an ``Asked``; all must be true.
            agent: as in ``nb.inbox``.
            tool: as in ``nb.inbox``.
            older_than: as in ``nb.inbox``.
            inputs: by the name of an input of the call: the value that it has, or a function of that value.
                A question without that input does not fit.
        """
        seconds = _seconds(older_than)
        given = [partial(_has_input, name, wanted) for name, wanted in inputs.items()]
        waiting = self._waiting.where(*tests, *given, agent=agent, tool=tool, older_than=seconds)
        named = _named(waiting.catalog.store, waiting.agent, waiting.tool, waiting.older_than)
        some = f" · {TEXTS['inbox_some']}" if waiting.tests else ""
        return Inbox(waiting, reveal(named + some))

    @awaited("inbox.changed")
    async def changed(self) -> int:
        """Wait until other questions wait than when this was asked last; gives how many wait now."""
        while True:
            found = await run_in_thread(self._now)
            keys = tuple(one.key for one in found)
            before, self._seen = self._seen, keys
            if before not in (None, keys):
                return len(found)
            await asyncio.sleep(EVERY)

    def to_frame(self) -> Any:
        """One row for each question that waits, as a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 - not needed by anything else here

        columns = [
            "run",
            "interrupt",
            "agent",
            "tool",
            "asks",
            "input",
            "prompt",
            "asked",
            "expires",
        ]
        return pd.DataFrame(
            [dict(zip(columns, _row(one), strict=True)) for one in self], columns=columns
        )

    def __repr__(self) -> str:
        found = self._now()
        said = TEXTS["inbox_waiting"].format(n=len(found)) if found else TEXTS["inbox_empty"]
        is_new = self._waiting.is_missing
        of = TEXTS["no_file"].format(place=self._of) if is_new else self._of
        lines = [f"{TEXTS['inbox']} · {of} · {said}", *map(_line, found[:MAX_LINES])]
        if len(found) > MAX_LINES:
            lines.append(TEXTS["inbox_more"].format(n=len(found) - MAX_LINES))
        return "\n".join(lines)

    def _ipython_display_(self) -> None:
        if kernel.in_kernel() and kernel.attended():
            self._show()
            return
        from .cards.inbox_card import bundle  # noqa: PLC0415 - ipywidgets and anywidget load here
        from .view.inbox import InboxView  # noqa: PLC0415

        view = InboxView(self._of)
        view.look(self._now(), self._waiting)
        display(bundle(view), raw=True)  # type: ignore[no-untyped-call]

    def _show(self) -> None:
        from .cards.display import ShownInbox  # noqa: PLC0415 - as above
        from .cards.inbox_card import InboxCard  # noqa: PLC0415

        if self._shown is None:
            self._shown = ShownInbox(InboxCard(self._waiting.where(), self._of))
        self._shown.show()

    def _now(self) -> list[Asked]:
        return self._waiting.look() if self._waiting.has_changed else self._waiting.chosen()


@tells("nb.inbox")
def inbox(
    store: Kept | None = None,
    *,
    agent: str | None = None,
    tool: str | None = None,
    older_than: float | dt.timedelta | None = None,
    agents: Owner | Sequence[Owner] = (),
) -> Inbox:
    """Everything that waits for an answer in a store, from all notebooks and processes.

    As a cell's last line it shows each question with its form, and new ones as they come. A run goes on in
    the process that it lives in; where that is gone, here if this process has an agent of its name, else once
    somebody opens it: each question says which. A list of them otherwise, with ``count`` and ``to_frame()``.

    Args:
        store: whose runs; the default store by default.
        agent: only questions of runs of the agent of this name, or of one that it calls.
        tool: only questions of the tool of this name.
        older_than: only what was asked at least so long ago, in seconds or as a timedelta.
        agents: agents and flows that go on with runs here, before those that this process has of the same name.

    Raises:
        UsageError: ``store`` is none.
        StoreError: it cannot be read.
    """
    kept = kept_in() if store is None else checked_store(store)
    if agent is not None and not isinstance(agent, str):
        raise UsageError(
            "agent= must be the name of an agent. agents= takes the agents that can continue runs here"
        )
    seconds = _seconds(older_than)
    owners = [agents] if isinstance(agents, Agent | Flow) else list(agents)
    waiting = Waiting(kept, agents=owners, agent=agent, tool=tool, older_than=seconds)
    return Inbox(waiting, reveal(_named(kept, agent, tool, seconds)))


def _seconds(age: float | dt.timedelta | None) -> float | None:
    return age.total_seconds() if isinstance(age, dt.timedelta) else age


def _has_input(name: str, wanted: Any, one: Asked) -> bool:
    """Whether a question's call has this input."""
    given = one.interrupt.input
    if name not in given:
        return False
    return bool(wanted(given[name]) if callable(wanted) else given[name] == wanted)


def _named(store: Any, agent: str | None, tool: str | None, older_than: float | None) -> str:
    """What it is the inbox of, in words."""
    parts = [near(store)]
    parts += [f"{name} {what}" for name, what in (("agent", agent), ("tool", tool)) if what]
    parts += [f"older than {dt.timedelta(seconds=older_than)}"] if older_than else []
    return " · ".join(parts)


def near(store: Any) -> str:
    """Where a store keeps its runs, as people in this folder call it."""
    if isinstance(store, MemoryStore):
        return TEXTS["in_memory"]
    place = place_of(store)
    near = os.path.relpath(place) if os.path.isabs(place) else place
    return place if near.startswith("..") else near


def _row(one: Asked) -> tuple[Any, ...]:
    asked = one.interrupt
    expires = None if asked.expires_at is None else _moment(asked.expires_at)
    return (
        one.run.id,
        asked.id,
        one.run.agent,
        asked.tool_name,
        asks(asked),
        asked.input,
        one.run.prompt,
        _moment(one.at),
        expires,
    )


def _moment(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)


def _line(one: Asked) -> str:
    asked = one.interrupt
    waits = dt.timedelta(seconds=int(max(0.0, time.time() - one.at)))
    return reveal(
        f"  {one.run.id}  {one.run.agent}  {asked.tool_name or 'the limit'} {asks(asked)}, for {waits}"
    )
