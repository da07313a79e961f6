"""The state of a batch in a store: the batch's rows, read together, and the batch's own runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import (
    RunCompleted,
    RunFailed,
    RunImported,
    RunRetried,
    RunStarted,
    StepFinished,
    StoredEvent,
    dump,
)
from nbagent.core.base.incoming_json import MAX_EVENT_PARTS, within_parts
from nbagent.core.base.model import NOTHING, Usage
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import Batching, End, Ending, Head, in_batches
from nbagent.core.journal.store import Store
from nbagent.core.state.state import RunState, Status
from nbagent.core.tools.spec import Budget

from .rows import run_id_of

BUDGET_STEP = "budget "
"""The start of the names of the steps with which a batch stores its budgets."""


@dataclass(slots=True)
class RowState:
    """The state of one row of a batch."""

    key: str
    run_id: str
    number: int
    """The position of the row in the input, from 0."""
    digest: str
    """The hash of the row's prompt."""
    status: Status = "running"
    usage: Usage = NOTHING
    error: str = ""
    """The error message of a failed row."""
    asks: tuple[str, ...] = ()
    """The tools that wait for an answer, in call order; an empty name for a reached limit."""
    deadline: float | None = None
    """The Unix time when the row's first question expires."""
    length: int = 0
    """The number of events in the row's run at the last read."""
    retried: int = 0
    """The number of retries of the row's run."""
    attempt: int = 1
    """The number of this run among the row's runs, from 1. A row that was started again has several runs."""
    is_imported: bool = False
    """Whether the run was imported from a document, before the batch started in this store."""


@dataclass(slots=True)
class StoredBatch:
    """The state of a batch in its store."""

    rows: dict[str, RowState] = field(default_factory=dict)
    """The rows, by key."""
    earlier: list[RowState] = field(default_factory=list)
    """The earlier runs of rows that were started again."""
    records: dict[int, tuple[str, Status]] = field(default_factory=dict)
    """The id and status of each of the batch's own runs, by number."""
    agent: str = ""
    """The name of the agent that runs the rows."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """The errors of runs that cannot be read, by run id."""
    budget: Budget | None = None
    """The batch's last budget."""
    foreign: set[str] = field(default_factory=set)
    """The ids of runs that are named like rows of the batch, but were not started by it."""


def record_id(batch: str, number: int) -> str:
    """Return the id of one of the batch's own runs. The first run has the batch's id; later runs add their number."""
    return batch if number == 1 else f"{batch}:@{number}"


def read_batch(store: Store, batch: str) -> StoredBatch:
    """Read the state of a batch from a store. Blocks, and can take long.

    Only runs that the batch started are its rows. Imported runs are, if the batch had not started here before the
    import: then it continues from them. They never replace a row.

    Of a completed row, only the last event is read; the last events of all rows are read together.

    Raises:
        StoreError: the store cannot be read.
    """
    found = StoredBatch()
    to_read: list[Head] = []
    for end in ends_of(store, f"{batch}:"):
        row = None if end.data is None else _completed_row(end, batch)
        if row is not None:
            _add(found, row)
        else:
            to_read.append(Head(end.run_id, end.length, None))
    imported: list[tuple[float, Journal, Sequence[StoredEvent]]] = []
    began = math.inf
    events: Sequence[StoredEvent]
    for journal, events in _journals(store, [Head(batch, 1, None), *to_read], found):
        imports = [event.at for event in events if isinstance(event, RunImported)]
        if imports:
            imported.append((imports[-1], journal, events))
            continue
        _add_run(found, batch, journal, events)
        if _record_number(journal.run_id, batch):
            began = min(began, events[0].at)
    for at, journal, events in imported:
        if at < began:
            _add_run(found, batch, journal, events, is_imported=True)
        else:
            found.foreign.add(journal.run_id)
    return found


def _add_run(
    found: StoredBatch,
    batch: str,
    journal: Journal,
    events: Sequence[StoredEvent],
    *,
    is_imported: bool = False,
) -> None:
    """Add a row, or one of the batch's own runs; the id of any other run is noted."""
    state, run_id = journal.state, journal.run_id
    of = next((e.row for e in events if isinstance(e, RunStarted) and not e.scope), None)
    number, attempt = _record_number(run_id, batch), _attempt(run_id, batch)
    if of is not None and of.batch == batch and run_id == run_id_of(batch, of.key, attempt):
        row = RowState(
            of.key, run_id, of.number, of.prompt, attempt=attempt, is_imported=is_imported
        )
        update_row(row, state)
        row.retried = sum(isinstance(event, RunRetried) for event in events)
        _add(found, row)
    elif number:
        # another one continues the batch of an imported one
        found.records[number] = (run_id, "cancelled" if is_imported else state.status)
        if number == max(found.records):
            found.agent = rows_agent(state) or found.agent
            steps = [event for event in events if isinstance(event, StepFinished)]
            budgets = [step.value for step in steps if step.name.startswith(BUDGET_STEP)]
            last = budgets[-1] if budgets else None
            found.budget = (
                Budget(tokens=last.get("tokens"), cost=last.get("cost")) if last else None
            )
    else:
        found.foreign.add(run_id)


def is_row(state: RunState, batch: str, key: str) -> bool:
    """Whether a batch of this store started the run as this row."""
    return state.row is not None and (state.row.batch, state.row.key) == (batch, key)


def _record_number(run_id: str, batch: str) -> int:
    """The number of one of the batch's own runs; 0 for any other run."""
    if run_id == batch:
        return 1
    number = re.fullmatch(r":@(\d+)", run_id.removeprefix(batch))
    return 0 if number is None else int(number[1])


def ends_of(store: Store, prefix: str) -> list[End]:
    """Return the end of each run whose id has this prefix, oldest first. A store without ``ends`` reads each run."""
    if isinstance(store, Ending):
        return store.ends(prefix)
    return [_end(store, each) for each in store.run_ids() if each.startswith(prefix)]


def results_of(store: Store, prefix: str) -> Iterator[End]:
    """The ends of runs, as of ``ends_of``; the end of an imported run is the event that completed it."""
    for end in ends_of(store, prefix):
        is_imported = '"run_imported"' in (end.data or "")
        done = completion(store, end.run_id, end.length) if is_imported else None
        yield end if done is None else end._replace(data=dump(done))


def _end(store: Store, run_id: str) -> End:
    try:
        events = store.read(run_id)
    except (StoreError, UsageError):  # it cannot be read, or does not exist any more
        events = []
    return End(run_id, len(events), dump(events[-1]) if events else None)


def completion(store: Store, run_id: str, length: int) -> RunCompleted | None:
    """Return the event that completed a run; None if there is none. An import adds an event after it.

    Raises:
        StoreError: the store cannot be read.
        UsageError: the store has no such run.
    """
    events = store.read(run_id, max(0, length - 1))
    if events and isinstance(events[-1], RunImported):
        events = store.read(run_id)
    ends = (e for e in reversed(events) if isinstance(e, RunCompleted) and not e.scope)
    return next(ends, None)


def update_row(row: RowState, state: RunState) -> None:
    """Update a row from the state of its run."""
    row.status, row.usage, row.length = state.status, state.usage, state.position
    questions = state.open
    row.asks = tuple(event.tool_name for event in questions)
    row.deadline = min((e.expires_at for e in questions if e.expires_at is not None), default=None)
    failed = state.outcome
    row.error = f"{failed.error}: {failed.message}" if isinstance(failed, RunFailed) else ""


def _attempt(run_id: str, batch: str) -> int:
    later = re.match(r"@(\d+):", run_id[len(batch) + 1 :])
    return 1 if later is None else int(later[1])


def _completed_row(end: End, batch: str) -> RowState | None:
    """Return a row of the batch from the last event of its run, if that event completed the run."""
    try:
        plain = json.loads(within_parts(end.data or "", MAX_EVENT_PARTS))
        of = plain.get("row")
        if plain["type"] != "run_completed" or plain.get("scope") or of is None:
            return None
        attempt = _attempt(end.run_id, batch)
        if of["batch"] != batch or end.run_id != run_id_of(batch, str(of["key"]), attempt):
            return None
        used = Usage(of.get("input_tokens") or 0, of.get("output_tokens") or 0, of.get("cost"))
        return RowState(
            str(of["key"]),
            end.run_id,
            int(of["number"]),
            str(of["prompt"]),
            "completed",
            used,
            length=end.length,
            attempt=attempt,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # the full journal is read, and reports the error


def _add(found: StoredBatch, row: RowState) -> None:
    """Add a row; of several runs of a row, the newest one that was started here is the row."""
    known = found.rows.get(row.key, row)
    older, found.rows[row.key] = sorted(
        (known, row), key=lambda one: (not one.is_imported, one.attempt)
    )
    if known is not row:
        found.earlier.append(older)


def _journals(
    store: Store, heads: list[Head], found: StoredBatch
) -> Iterator[tuple[Journal, list[StoredEvent]]]:
    for group in in_batches(heads):
        prefetched: Any = store.read_each(group) if isinstance(store, Batching) else {}
        for run_id in group:
            journal = Journal(run_id, store, keeps_events=False)
            events = prefetched.get(run_id)
            try:
                if isinstance(events, StoreError):
                    raise events
                events = store.read(run_id) if events is None else events
                journal.catch_up(events)
            except UsageError:  # the run does not exist any more
                continue
            except StoreError as error:
                found.unreadable[run_id] = str(error)
                continue
            yield journal, events


def rows_agent(state: RunState) -> str:
    """Return the name of the rows' agent from one of the batch's own runs; empty for any other run."""
    if not state.flow:
        return ""
    for message in state.messages:
        for part in message["content"]:
            if part.get("type") == "tool_call":
                return str(part["input"].get("agent", ""))
    return ""
