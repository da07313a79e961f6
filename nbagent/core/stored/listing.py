"""The runs of a store as a list for people: prompt, status, and the process that continues each run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_store, checked_turns
from nbagent.core.base.awaited import awaited
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError
from nbagent.core.base.interrupts import LIMIT_LABEL
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import Usage
from nbagent.core.base.process import describe_process, has_ended, this_process
from nbagent.core.base.table import as_text
from nbagent.core.flow import Flow
from nbagent.core.journal.default import StoreLike, current_store, is_missing, place_of
from nbagent.core.journal.store import Store
from nbagent.core.run.host import current_host
from nbagent.core.run.run import Run
from nbagent.core.state.state import Status

from .catalog import ENDED, Catalog, Entry
from .opening import open_run

COLUMNS = ("id", "agent", "prompt", "status", "asks", "updated", "deadline", "cost")
STATUSES = ("interrupted", "running", "queued", *ENDED, "unreadable")
"""The statuses of listed runs, in sort order: runs that wait for a person come first."""
_JOURNALS = 50
"""Maximum number of active runs whose journals stay in memory, so that only new events are read."""
_WIDEST = 40
"""Maximum characters of a text cell."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of a store, in its state when it was listed."""

    id: str
    agent: str
    prompt: str
    status: str
    """As ``run.status``; ``unreadable`` for a run with a damaged journal."""
    status_text: str
    """The run's state, and the process that continues the run, in words."""
    asks: tuple[str, ...]
    """The tools that wait for an answer, in call order."""
    started: float | None
    """The time of the run's start, in Unix seconds."""
    updated: float | None
    """The time of the run's last event, in Unix seconds."""
    deadline: float | None
    """The time when the run's first open question expires, in Unix seconds."""
    usage: Usage
    store: Store = field(repr=False)

    @awaited("run.open")
    async def open(self, agent: Agent | Flow[..., Any] | None = None, **options: Any) -> Run:
        """Open the run: return its handle and show its card, as ``nb.open_run`` does.

        Args:
            agent: the agent whose model and tools continue the run; by default the newest agent in this process
                with the run's agent name.
            options: options of ``nb.open_run``.
        """
        return await open_run(self.id, agent=agent, store=self.store, **options)


class Runs(list[StoredRun]):
    """Runs of a store, latest change first. A notebook displays them as a table."""

    def __init__(self, runs: Iterable[StoredRun], listing: Listing, limit: int) -> None:
        super().__init__(runs)
        self.listing = listing
        """The listing from which the runs were chosen."""
        self.limit = limit
        """Maximum number of runs."""
        self.place = place_of(listing.catalog.store)
        """The place of the store, as text."""
        self.left_out = max(0, listing.count - limit)
        """Number of matching runs that are not included."""

    def rows(self) -> list[tuple[str, ...]]:
        """One row for each run, with a text for each of ``COLUMNS``."""
        now = time.time()
        return [tuple(map(escaped, row_of(run, now))) for run in self]

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with one row for each run, indexed by id, with times in UTC.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415 - only who asks for a table needs it

        names = (
            "agent",
            "prompt",
            "status",
            "status_text",
            "asks",
            "started",
            "updated",
            "deadline",
        )
        table: dict[str, Any] = {name: [getattr(run, name) for run in self] for name in names}
        for name in ("started", "updated", "deadline"):
            table[name] = pd.to_datetime(
                pd.Series(table[name], dtype="float64"), unit="s", utc=True
            )
        table["tokens"] = [run.usage.total_tokens for run in self]
        table["cost"] = [run.usage.cost for run in self]
        frame = pd.DataFrame({name: list(values) for name, values in table.items()})
        frame.index = pd.Index([run.id for run in self], name="id")
        return frame

    def __repr__(self) -> str:
        if not self:
            is_new = is_missing(self.listing.catalog.store)
            missing = ": this file does not exist yet. Is the path right?" if is_new else ""
            return f"no runs in {escaped(self.place)}{missing}"
        rows = [[_short(cell) for cell in row] for row in self.rows()]
        return "\n".join([as_text(COLUMNS, rows), *self._more()])

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{escape(repr(self))}</p>"
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in COLUMNS)
        body = "".join(f"<tr>{''.join(map(_cell, COLUMNS, row))}</tr>" for row in self.rows())
        more = "".join(f"<p>{escape(line)}</p>" for line in self._more())
        return (
            "<div style='overflow-x:auto'><table aria-label='Runs'>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
        )

    def _ipython_display_(self) -> None:
        if not current_host().show_runs(self):
            raise NotImplementedError  # then IPython uses ``__repr__`` and ``_repr_html_``

    def _more(self) -> list[str]:
        return (
            [f"{len(self):,} of {self.listing.count:,} runs. To see more, use nb.runs(limit=…)"]
            if self.left_out
            else []
        )


def _cell(name: str, text: str) -> str:
    shown = f"<code>{escape(text)}</code>" if name == "id" else escape(_short(text))
    title = f" title='{escape(text)}'" if len(text) > _WIDEST and name != "id" else ""
    return f"<td style='text-align:left'{title}>{shown}</td>"


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def row_of(run: StoredRun, now: float) -> tuple[str, ...]:
    """The texts of a run for ``COLUMNS``; ages are relative to ``now`` (Unix seconds)."""
    cost, deadline = run.usage.cost, ""
    if run.deadline is not None:
        left = run.deadline - now
        deadline = f"in {_span(left)}" if left > 0 else "expired"
    return (
        run.id,
        run.agent,
        " ".join(run.prompt.split()),
        run.status_text,
        ", ".join(
            name if n == 1 else f"{name} \u00d7 {n}" for name, n in Counter(run.asks).items()
        ),
        "" if run.updated is None else f"{_span(now - run.updated)} ago",
        deadline,
        "" if not cost else f"${cost:.4f}",
    )


def _span(seconds: float) -> str:
    """A duration in one unit. Negative durations, after the clock was set back, count as 0."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


@checks_keywords("nb.runs")
def runs(
    store: StoreLike | None = None,
    *,
    agent: str | Agent | Flow[..., Any] | None = None,
    status: str | Sequence[str] | None = None,
    limit: int = 100,
) -> Runs:
    """List the runs of a store with prompt, status and open question.

    Nothing is opened or executed. ``await nb.runs()[0].open()`` shows the first run's card and continues the run.

    Args:
        store: the store; by default the one of ``nb.use_store``, or this process's memory.
        agent: only runs of this agent or flow, passed as an object or by name.
        status: only runs with this status, or one of these statuses, as in ``run.status``. Runs that are
            ``"interrupted"`` wait for an answer; ``"unreadable"`` runs have a damaged journal.
        limit: maximum number of runs, latest change first.

    Raises:
        UsageError: the status does not exist.
        StoreError: the store cannot be read. A single damaged run is listed as unreadable.
    """
    given: Any = checked_store(store)
    place: Store = current_store() if given is None else given
    wanted = (status,) if isinstance(status, str) else STATUSES if status is None else status
    unknown = [one for one in wanted if one not in STATUSES]
    if unknown:
        raise UsageError(f"status must be one of {', '.join(STATUSES)}, got {unknown[0]!r:.80}")
    checked_turns(limit, "limit")
    name = agent if agent is None or isinstance(agent, str) else agent.name
    listing = Listing(place, agent=name, statuses=None if status is None else wanted)
    listing.look(None if listing.is_filtered else limit)
    return listing.newest(limit)


class Listing:
    """The runs of a store as a list. Only runs that have grown are read again.

    Args:
        store: the store.
        agent: only runs of this agent or flow.
        statuses: only runs with one of these statuses.
    """

    def __init__(
        self, store: Store, *, agent: str | None = None, statuses: Sequence[str] | None = None
    ) -> None:
        self.catalog = Catalog(store, journals=_JOURNALS)
        self._known: dict[str, tuple[Entry, StoredRun]] = {}
        """The ended runs of the last look, by id, so that their rows are not made again."""
        self.agent = agent
        self.statuses = statuses
        self.all: list[StoredRun] = []
        """The runs that were read, latest change first."""

    @property
    def is_filtered(self) -> bool:
        """Whether the listing is limited to an agent or to some statuses."""
        return self.agent is not None or self.statuses is not None

    @property
    def count(self) -> int:
        """Number of matching runs; without filters, runs that were not read are included."""
        return len(self.all) if self.is_filtered else self.catalog.count

    @property
    def left(self) -> int:
        """Number of the store's runs that are not read yet."""
        return self.catalog.left

    @property
    def has_changed(self) -> bool:
        """Whether to look again, because the store may have changed or some runs are not read yet. Fast.

        Raises:
            StoreError: the store cannot be read.
        """
        return self.catalog.left > 0 or self.catalog.has_changed

    def look(self, at_most: int | None = None) -> None:
        """Read new events, and at most ``at_most`` new runs. Not for an event loop, because reading may take long.

        Raises:
            StoreError: the store cannot be read. A single damaged run is listed as unreadable.
        """
        catalog, wanted = self.catalog, self.statuses or STATUSES
        only_open = not {*wanted} & {*ENDED}
        entries = catalog.look(only_open=only_open, at_most=at_most)
        before, self._known = self._known, {}
        listed = [self._listed(entry, before) for entry in entries]
        listed += [
            StoredRun(id_, "", "", "unreadable", why, (), None, None, None, Usage(), catalog.store)
            for id_, why in catalog.unreadable.items()
        ]
        fitting = [r for r in listed if r.status in wanted and self.agent in (None, r.agent)]
        self.all = sorted(fitting, key=lambda run: run.updated or 0.0, reverse=True)

    def _listed(self, entry: Entry, before: Mapping[str, tuple[Entry, StoredRun]]) -> StoredRun:
        known, run = before.get(entry.id, (None, None))
        if known is not entry or run is None:
            run = StoredRun(
                id=entry.id,
                agent=entry.agent,
                prompt=entry.prompt,
                status=entry.status,
                status_text=_status_text(entry),
                asks=tuple(one.tool_name or LIMIT_LABEL for one in entry.asks),
                started=entry.started,
                updated=entry.updated,
                deadline=entry.deadline,
                usage=entry.usage,
                store=self.catalog.store,
            )
        if entry.status in ENDED:
            self._known[entry.id] = (entry, run)
        return run

    def newest(self, limit: int) -> Runs:
        """The runs with the latest changes, at most ``limit`` of them."""
        return Runs(self.all[:limit], self, limit)


_STATUS_TEXTS: dict[Status, str] = {
    "interrupted": "waiting for you",
    "queued": "queued",
    "completed": "done",
    "cancelled": "stopped",
}


def _status_text(entry: Entry) -> str:
    if entry.status == "running":
        return driven_by(entry.driver)
    if entry.status == "failed":
        return f"failed: {entry.error or ''}"
    if entry.asks and all(one.expects == "external" for one in entry.asks):
        return "waiting for another system"
    return _STATUS_TEXTS[entry.status]


def driven_by(driver: str) -> str:
    """The state of a running run in words, with the process that drives it."""
    if not driver:
        return "answered; continues when opened"
    if driver == this_process():
        return "running here"
    if has_ended(driver):
        return "not active; continues when opened"
    return f"running in {describe_process(driver)}"
