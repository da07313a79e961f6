"""``nb.inbox``: all open questions in a store, shown with their forms, or as a list."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from IPython.display import display

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_store
from nbagent.core.base.awaited import awaited
from nbagent.core.base.errors import InvalidAnswer, StoreError, UsageError, suggest
from nbagent.core.base.interrupts import PendingInterrupt, Reject
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.table import dataframe_of
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.default import StoreLike, current_store, place_of
from nbagent.core.journal.memory import MemoryStore
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.describe import asks
from nbagent.core.run.scripted_answers import approval_of, as_resolution
from nbagent.core.stored.deletion import seconds_of
from nbagent.core.stored.inbox import (
    InboxAnswer,
    InboxEntry,
    InboxQuestion,
    Owner,
    alike,
    has_input,
)

from . import kernel
from .render.amounts import count, duration
from .render.reveal import reveal
from .texts import TEXTS

logger = logging.getLogger("nbagent")
EVERY = 1.0
"""Seconds between reads while waiting for a change."""
_MAX_RULE = 500
"""The maximum characters of a rule in an answer's record."""
_MAX_VALUE = 80
"""The maximum characters of one value in a rule."""
MAX_LINES = 30
"""Questions that are printed."""


class Inbox:
    """The open questions of a store. As a cell's last line, an inbox shows the questions live, with their forms."""

    def __init__(
        self,
        waiting: InboxEntry,
        scope_text: str,
        rule: tuple[str, ...] = (),
        outer: Inbox | None = None,
    ) -> None:
        self._waiting = waiting
        self._scope_text = scope_text
        self._rule = rule
        """The conditions that chose the inbox's questions, in words."""
        self._shown: Any = None
        self._seen: tuple[tuple[str, str], ...] | None = None
        self._outer = outer
        """The inbox that this inbox was filtered from."""
        self._last_look: frozenset[tuple[str, str]] | None = None
        """The keys of the questions that the inbox had when it was last shown, counted or listed."""

    @property
    def count(self) -> int:
        """The number of open questions; the store is read again only after a write."""
        return len(self._looked())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[InboxQuestion]:
        return iter(self._looked())

    def __getitem__(self, index: int) -> InboxQuestion:
        return self._now()[index]

    def __bool__(self) -> bool:
        return True  # an empty inbox is true too

    def where(
        self,
        *tests: Callable[[InboxQuestion], object],
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | str | dt.timedelta | None = None,
        **inputs: Any,
    ) -> Inbox:
        """An inbox with only the matching questions: ``inbox.where(tool="pay", amount=lambda it: it < 100)``.

        Args:
            tests: functions of an ``InboxQuestion``; all must be true.
            agent: as in ``nb.inbox``.
            tool: as in ``nb.inbox``.
            older_than: as in ``nb.inbox``.
            inputs: for an input of the call, its value or a function of its value.
                A question without that input does not match. Values are compared as JSON: ``1`` is neither
                ``True`` nor ``1.0``. For an input with the name of another argument, pass a function in ``tests``.

        Raises:
            UsageError: a test is not a function, or a value is not JSON.
        """
        self._check_filters(tests, tool, inputs)
        return self._matching(tests, inputs, agent=agent, tool=tool, older_than=older_than)

    def _matching(
        self,
        tests: Iterable[Callable[[InboxQuestion], object]],
        inputs: Mapping[str, Any],
        *,
        agent: str | None = None,
        tool: str | None = None,
        older_than: float | str | dt.timedelta | None = None,
    ) -> Inbox:
        """``where``, with the inputs as one mapping, because an input may have any name."""
        seconds = None if older_than is None else seconds_of(older_than)
        given = [has_input(name, wanted) for name, wanted in inputs.items()]
        waiting = self._waiting.where(*tests, *given, agent=agent, tool=tool, older_than=seconds)
        filter_note = f" · {TEXTS['inbox_filtered']}" if waiting.tests else ""
        words = {"agent": agent, "tool": tool, "older_than": older_than}
        conditions = [f"{name}={value!r}" for name, value in words.items() if value is not None]
        conditions += [_worded(test) for test in tests]
        conditions += [f"{name}={_worded(wanted)}" for name, wanted in inputs.items()]
        scope_text = (
            reveal(_named(waiting) + filter_note)
            if not self._waiting.catalog.prefix
            else self._scope_text
        )
        return Inbox(waiting, scope_text, (*self._rule, *conditions), self)

    def _check_filters(
        self, tests: Iterable[object], tool: str | None, inputs: Mapping[str, Any]
    ) -> None:
        for test in tests:
            if not callable(test):
                raise UsageError(
                    f"inbox.where() takes functions of a question, got {test!r:.80}. For the name of a tool, use tool="
                )
        asked = self._waiting.all  # from the last read: this reads nothing
        tools = {one.interrupt.tool_name for one in asked}
        tools.update(*(getattr(agent, "tools", ()) for agent in self._waiting.agents))
        if isinstance(tool, str) and tool not in tools and suggest(tool, tools):
            _warn(f"No question of a tool {tool!r} is open{suggest(tool, tools)}")
        known = {
            name
            for one in asked
            if tool in (None, one.interrupt.tool_name)
            for name in one.interrupt.input
        }
        for name in inputs:
            if name not in known and suggest(name, known):
                _warn(f"No open question has an input {name!r}{suggest(name, known)}")

    def like(self, one: InboxQuestion) -> Inbox:
        """An inbox with only the questions that are similar to one question.

        Similar questions are of the same tool, and have equal values in the inputs whose values repeat. An input's
        values repeat if the tool has at least twice as many questions as the input has different values. Values are
        compared as canonical JSON: ``True``, ``1`` and ``1.0`` differ, and the order of keys does not count. Inputs that
        differ from row to row, such as ids, amounts and free text, are not compared. ``repr`` names the inputs.

        Args:
            one: a question of this inbox.
        """
        return self._matching((), alike(one, self._now()), tool=one.interrupt.tool_name)

    # --- answering many

    @awaited("inbox.approve")
    async def approve(self, *, standing: bool = False) -> InboxAnswer:
        """Approve each question that the inbox had when you last showed, counted or listed it.

        Questions that you saw in the inbox from which this inbox was filtered count too. If you have looked at neither
        inbox, all questions are approved. Each question gets its own answer, as in a form; ``nb.decisions()`` has
        the conditions that chose the question. The returned object counts newer questions, which are not answered.

        Args:
            standing: whether later matching questions are approved too, as long as this process lives or
                until ``.end()`` of the returned object.

        Raises:
            InvalidAnswer: none of the questions asks for approval; nothing was changed.
            StoreError: an answer could not be stored.
        """
        return await self._answer(approval_of, standing=standing)

    @awaited("inbox.reject")
    async def reject(self, reason: str | None = None, *, standing: bool = False) -> InboxAnswer:
        """Reject each question of the inbox, chosen as in ``approve``; the model receives the reason."""
        return await self._answer(lambda _: Reject(reason=reason), standing=standing)

    @awaited("inbox.answer")
    async def answer(self, value: Any, *, standing: bool = False) -> InboxAnswer:
        """Answer each question of the inbox, chosen as in ``approve``, with a value as in ``answers=``."""
        return await self._answer(partial(as_resolution, value), standing=standing)

    async def _answer(
        self, means: Callable[[PendingInterrupt], AnyResolution], *, standing: bool
    ) -> InboxAnswer:
        now = await run_in_thread(self._now)
        shown = self._shown_keys()
        answered = InboxAnswer()
        chosen = [one for one in now if standing or shown is None or one.key in shown]
        if not standing:
            answered.later = len(now) - len(chosen)
        by = f"rule: {', '.join(self._rule)}"[:_MAX_RULE] if self._rule else "code"
        answer_each = partial(self._waiting.answer_each, means=means, by=by, into=answered)
        await answer_each(chosen)
        if standing:
            answered.keep(self._keep_answering(answer_each))
        return answered

    async def _keep_answering(self, answer_each: Callable[..., Awaitable[None]]) -> None:
        """Answer new questions, each once, until cancelled; wait longer after a slow read of the store.

        If the store fails, the questions that are still open are tried again.
        """
        tried: set[tuple[str, str]] = set()
        while True:
            started_at = time.monotonic()
            try:
                found = [one for one in await run_in_thread(self._now) if one.key not in tried]
                with suppress(InvalidAnswer):
                    await answer_each(found)
                tried.update(one.key for one in found)
            except StoreError as error:
                logger.warning("a standing answer is not stored; trying again: %s", error)
            await asyncio.sleep(max(EVERY, 20 * (time.monotonic() - started_at)))

    @awaited("inbox.changed")
    async def changed(self) -> int:
        """Wait until the open questions change, and return their number."""
        while True:
            found = await run_in_thread(self._now)
            keys = tuple(one.key for one in found)
            before, self._seen = self._seen, keys
            if before not in (None, keys):
                return len(found)
            await asyncio.sleep(EVERY)

    def to_frame(self) -> Any:
        """One row for each open question, as a pandas DataFrame."""
        rows = [{name: read(one) for name, read in _COLUMNS.items()} for one in self]
        return dataframe_of(rows, [*_COLUMNS])

    def _looked(self) -> list[InboxQuestion]:
        """Return the open questions, and record that they were seen."""
        found = self._now()
        self._last_look = frozenset(one.key for one in found)
        return found

    def _shown_keys(self) -> frozenset[tuple[str, str]] | None:
        """The keys last seen in this inbox and in its outer inboxes; None if nobody has looked."""
        outer = None if self._outer is None else self._outer._shown_keys()  # noqa: SLF001 - its own
        looks = [look for look in (self._last_look, outer) if look is not None]
        return frozenset().union(*looks) if looks else None

    def __repr__(self) -> str:
        found = self._looked()
        summary = count("away", len(found)) or TEXTS["inbox_empty"]
        if self._rule:
            of_all = TEXTS["inbox_of"].format(
                n=f"{len(found):,}", all=f"{len(self._waiting.all):,}"
            )
            summary = reveal(f"{', '.join(self._rule)} · {of_all}")
        is_new = self._waiting.is_missing
        scope_text = TEXTS["no_file"].format(place=self._scope_text) if is_new else self._scope_text
        lines = [f"{TEXTS['inbox']} · {scope_text} · {summary}", *map(_line, found[:MAX_LINES])]
        if len(found) > MAX_LINES:
            lines.append(TEXTS["inbox_more"].format(n=len(found) - MAX_LINES))
        return "\n".join(lines)

    def _ipython_display_(self) -> None:
        self._looked()
        from .cards.display import ShownTable  # noqa: PLC0415 - ipywidgets and anywidget load here
        from .cards.inbox_card import InboxCard  # noqa: PLC0415 - as above
        from .render import plain  # noqa: PLC0415 - as above
        from .view.inbox import InboxView  # noqa: PLC0415 - as above

        if kernel.in_kernel() and kernel.attended():
            if self._shown is None:
                self._shown = ShownTable(InboxCard(self._waiting.where(), self._scope_text))
            self._shown.show()
            return
        view = InboxView(self._scope_text)
        view.look(self._now(), self._waiting)
        display(plain.bundle(view.snapshot()), raw=True)  # type: ignore[no-untyped-call]

    def _now(self) -> list[InboxQuestion]:
        return self._waiting.look() if self._waiting.has_changed else self._waiting.chosen()


@checks_keywords("nb.inbox")
def inbox(
    store: StoreLike | None = None,
    *,
    agent: str | None = None,
    tool: str | None = None,
    older_than: float | str | dt.timedelta | None = None,
    agents: Owner | Sequence[Owner] = (),
) -> Inbox:
    """The open questions of a store, from all notebooks and processes.

    As a cell's last line, an inbox shows each question with its form, and adds new questions. After an answer, the run
    continues in its own process. If that process has ended, the run continues in this process if it has the agent,
    otherwise once someone has the run open. Each question shows where its run continues. You can iterate over an inbox;
    it also has ``count`` and ``to_frame()``.

    Args:
        store: the store of the runs; the default store by default.
        agent: only questions of the agent of this name, and of the agents that it calls.
        tool: only questions of the tool of this name.
        older_than: only questions that are at least this old, in seconds, as a timedelta, or as text such as ``"12h"``.
        agents: agents and flows that continue runs in this process, preferred to others of the same name.

    Raises:
        UsageError: ``store`` is not a store.
        StoreError: the store cannot be read.
    """
    kept = current_store() if store is None else checked_store(store)
    if agent is not None and not isinstance(agent, str):
        raise UsageError(
            "agent= must be the name of an agent. agents= takes the agents that can continue runs here"
        )
    seconds = None if older_than is None else seconds_of(older_than)
    owners = [agents] if isinstance(agents, Agent | Flow) else list(agents)
    waiting = InboxEntry(kept, agents=owners, agent=agent, tool=tool, older_than=seconds)
    return Inbox(waiting, reveal(_named(waiting)))


def _worded(wanted: Any) -> str:
    """A filter in words: a function's name, or a value's repr."""
    return str(getattr(wanted, "__name__", None) or repr(wanted)[:_MAX_VALUE])


def _named(waiting: InboxEntry) -> str:
    """A description of the inbox's store and filters."""
    age = waiting.older_than
    parts = [relative_place(waiting.catalog.store)]
    parts += [f"agent {waiting.agent}"] if waiting.agent else []
    parts += [f"tool {waiting.tool}"] if waiting.tool else []
    parts += [f"older than {duration(age, whole_seconds=True)}"] if age else []
    return " · ".join(parts)


def relative_place(store: Any) -> str:
    """The place of a store, relative to the current folder."""
    if isinstance(store, MemoryStore):
        return TEXTS["in_memory"]
    place = place_of(store)
    relative = os.path.relpath(place) if os.path.isabs(place) else place
    return place if relative.startswith("..") else relative


def _warn(text: str) -> None:
    """Warn the caller of ``where``; this is not an error, because later questions may match."""
    warnings.warn(text, stacklevel=4)


def _moment(at: float | None) -> dt.datetime | None:
    return None if at is None else dt.datetime.fromtimestamp(at, tz=dt.UTC)


_COLUMNS: dict[str, Callable[[InboxQuestion], Any]] = {
    "run": lambda one: one.run.id,
    "interrupt": lambda one: one.interrupt.id,
    "agent": lambda one: one.run.agent,
    "tool": lambda one: one.interrupt.tool_name,
    "asks": lambda one: asks(one.interrupt),
    "input": lambda one: one.interrupt.input,
    "prompt": lambda one: one.run.prompt,
    "asked": lambda one: _moment(one.at),
    "expires": lambda one: _moment(one.interrupt.expires_at),
}
"""The columns of ``to_frame``."""


def _line(one: InboxQuestion) -> str:
    asked = one.interrupt
    waits = duration(max(1.0, time.time() - one.at), whole_seconds=True)
    asker = asked.tool_name or "the run's limit"
    return reveal(f"  {one.run.id}  {one.run.agent}  {asker} {asks(asked)}, for {waits}")
