"""One run as one JSON document: exported with its stored events, and imported without its approvals."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nbagent.core.base.controls import json_without_controls
from nbagent.core.base.errors import Conflict, NbagentError, StoreError, UsageError
from nbagent.core.base.events import (
    MAX_SIZE,
    RunImported,
    RunQueued,
    RunStarted,
    StoredEvent,
    dump,
    event_schema,
)
from nbagent.core.base.incoming_json import (
    MAX_EVENT_PARTS,
    MAX_FILE_PARTS,
    parts_of,
    read_by,
    within_parts,
)
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import check_depth
from nbagent.core.base.private import write_private
from nbagent.core.base.user import user_behind
from nbagent.core.journal.default import StoreLike
from nbagent.core.journal.history import (
    Histories,
    KnownHistory,
    reference_of,
    resolve_reference,
    with_full_history,
)
from nbagent.core.journal.rows import Archive, Row, events_of, first_broken, last_seal, with_seals
from nbagent.core.journal.verification import archive_of
from nbagent.core.run.run_ids import checked_id
from nbagent.core.state.fold import apply
from nbagent.core.state.grammar import Grammar
from nbagent.core.state.imported import questions_again
from nbagent.core.state.next_step import is_stuck
from nbagent.core.state.state import EMPTY_STATE, RunState
from nbagent.core.tools.spec import new_id

FORMAT = "nbagent-run"
VERSION = 1
"""Version of the document; each event has its own format version."""
MAX_RUNS = 10_000
MAX_VALUES = 10_000_000
"""Maximum number of JSON values in all events of a document. Parts of strings may count as values, too."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class RowDocument(_Strict):
    """One stored event."""

    version: int = Field(ge=1)
    """The format version of ``data``."""
    data: str
    """The event's JSON, as a string. The seal covers this string."""
    seal: str | None = None
    """SHA-256 of this row and of the seal before it; null if the row was written by an nbagent without seals."""


class RunDocument(_Strict):
    """One run."""

    id: str = Field(min_length=1, max_length=500)
    rows: list[RowDocument] = Field(min_length=1)


class ExportedRun(_Strict):
    """A run, and the runs that it continues."""

    model_config = ConfigDict(title="Document")  # as the published schema calls it
    format: str = Field(pattern=f"^{FORMAT}$")
    version: int = Field(ge=1, le=VERSION)
    id: str
    """The id of the exported run."""
    runs: list[RunDocument] = Field(min_length=1, max_length=MAX_RUNS)
    """The runs that the exported run continues, then the exported run. A run comes before the runs that refer to it."""


@checks_keywords("nb.export_run")
def export_run(
    run_id: str, path: str | Path | None = None, *, store: StoreLike | None = None
) -> dict[str, Any]:
    """Export a run as one JSON document: its stored events, and the runs that it continues.

    The document contains prompts, answers and results as plain text, as the store does.
    ``docs/run.schema.json`` is its schema. A run that has not ended is exported up to now.

    Args:
        run_id: ``run.id`` of the run.
        path: a file to write the document to as well, as UTF-8, readable only for its owner.
        store: the store of the run.

    Returns:
        The document, as parsed JSON.

    Raises:
        UsageError: the store has no such run.
        StoreError: a run cannot be read, or a run that it continues is missing.
        OSError: the file cannot be written, or the path is a link.
    """
    archive = archive_of(store)
    runs: dict[str, list[Row]] = {}
    existing_ids = set(archive.run_ids())
    following: str | None = run_id
    while following is not None and following not in runs:
        rows = archive.rows(following)
        runs[following] = rows
        following = _before(following, _events(following, rows), existing_ids)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "id": run_id,
        "runs": [
            {"id": each, "rows": [row._asdict() for row in rows]}
            for each, rows in reversed(runs.items())
        ],
    }
    if path is not None:
        text = json.dumps(document, ensure_ascii=False)
        write_private(Path(path), json_without_controls(text))
    return document


@checks_keywords("nb.import_run")
def import_run(
    document: Mapping[str, Any] | str | Path,
    *,
    store: StoreLike | None = None,
    unverified: bool = False,
) -> str:
    """Import a run from its document. Approvals from before the import are not valid and are asked for again.

    Seals prove that the events belong together, not who wrote them. Import only documents that you trust:
    their texts, results and answers are used as they are. Nothing runs before you open the run.

    Args:
        document: the result of ``nb.export_run``, or the path of its file.
        store: the store to import the run into.
        unverified: True to import events with wrong seals too.

    Returns:
        The id of the run. If the store already has the same run, nothing is changed.

    Raises:
        UsageError: ``document`` is not a document of ``nb.export_run``, or was created by a newer nbagent.
        StoreError: an event is damaged, from a newer nbagent, or was changed after it was sealed.
        Conflict: the store has a different run with an id of the document; nothing was imported.
    """
    archive, given = archive_of(store), _checked(document)
    runs = {run.id: [Row(*vars(row).values()) for row in run.rows] for run in given.runs}
    if len(runs) < len(given.runs):
        raise UsageError("The document has two runs with the same id")
    for each in runs:
        checked_id(each, "in this document, a run's")
    if given.runs[-1].id != given.id:
        raise UsageError(f"The last run of the document should be {given.id!r}, but is not")
    _check_parts(runs)
    events = {each: _events(each, rows) for each, rows in runs.items()}
    for each, rows in runs.items():
        broken = None if unverified else first_broken(each, rows)
        if broken is not None:
            raise StoreError(
                f"Event {broken} of run {each!r} was changed after it was sealed, so the document was not imported. To "
                "import it anyway, pass unverified=True"
            )
    _check_references(given, events)
    existing_ids = set(archive.run_ids())
    for each, found in events.items():
        if each in existing_ids and not _is_same(archive.rows(each), found):
            raise Conflict(f"{archive!r} already has another run {each!r}. Nothing was imported")
    known = Histories()
    states = {each: _state(each, events, known) for each in runs}
    new = [each for each in states if each not in existing_ids]
    added = {each: _added_rows(each, runs[each], states[each]) for each in new}
    _check_queue(new, events, archive, existing_ids)
    for each in new:
        archive.put(each, [*runs[each], *added[each]])
    return given.id


def _checked(document: Any) -> ExportedRun:
    """Read a document, and check its structure."""
    if isinstance(document, str | os.PathLike):
        document = _read_file(Path(document))
    elif not isinstance(document, Mapping):
        raise UsageError(f"Expected a document of nb.export_run, or its path, got {document!r:.80}")
    version = document.get("version") if isinstance(document, Mapping) else None
    if isinstance(version, int) and version > VERSION:
        raise UsageError(
            f"This document was created by a newer nbagent: its version is {version}, and this nbagent reads versions up "
            f"to {VERSION}. Upgrade with: pip install -U jupyter-nbagent"
        )
    try:
        return ExportedRun.model_validate(document)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first_error["loc"])) or "the whole"
        raise UsageError(
            f"This is not a document of nb.export_run: {where}: {first_error['msg']}"
        ) from None


def _read_file(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_SIZE:
            raise UsageError(f"{str(path)!r} has more than {MAX_SIZE:,} bytes, so it is not read")
        return read_by(_loads, within_parts(path.read_bytes(), MAX_FILE_PARTS))
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{str(path)!r} is not JSON: {reason}") from error


def _loads(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_parts(runs: Mapping[str, Sequence[Row]]) -> None:
    """Raise an error if the events have too many values, before any event is parsed."""
    found = 0
    for row in (row for rows in runs.values() for row in rows):
        found += parts_of(row.data, MAX_EVENT_PARTS)
        if found > MAX_VALUES:
            raise UsageError(
                f"The events of the document have more than {MAX_VALUES:,} values, so it is not read"
            )


def _events(run_id: str, rows: Sequence[Row]) -> list[StoredEvent]:
    """The events in a run's rows.

    Raises:
        StoreError: an event is damaged, or from a newer nbagent.
    """
    try:
        for row in rows:
            check_depth(row.data.encode(), 200)
            read_by(_loads, within_parts(row.data, MAX_EVENT_PARTS))
        return events_of(rows)
    except NbagentError as error:
        raise StoreError(f"Run {run_id!r}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"Run {run_id!r} has an entry that is not an event: {error}") from error


def _check_references(given: ExportedRun, events: Mapping[str, list[StoredEvent]]) -> None:
    """Check that the exported run needs all runs of the document."""
    needed = {given.id}
    for run in reversed(given.runs):
        if run.id not in needed:
            raise UsageError(
                f"The document has run {run.id!r}, which run {given.id!r} does not need"
            )
        before = _before(run.id, events[run.id], set(events))
        needed |= set() if before is None else {before}


def _before(run_id: str, events: Sequence[StoredEvent], known_ids: set[str]) -> str | None:
    """The id of the run that this run continues or is queued behind, if any."""
    for event in events:
        reference = reference_of(event)
        if reference is not None and reference.run_id != run_id:
            return reference.run_id
        if isinstance(event, RunStarted) and not event.scope:
            return None
    queued = events[0]
    return queued.after if isinstance(queued, RunQueued) and queued.after in known_ids else None


def _state(run_id: str, events: Mapping[str, list[StoredEvent]], known: Histories) -> RunState:
    """The state of a run of a document.

    Raises:
        StoreError: an event does not fit the events before it.
    """

    def completed(event: StoredEvent) -> StoredEvent:
        reference = reference_of(event)
        if reference is None or not isinstance(event, RunStarted):
            return event
        return with_full_history(
            event, resolve_reference(run_id, reference, events.__getitem__, known)
        )

    state, grammar = EMPTY_STATE, Grammar()
    for number, event in enumerate(events[run_id]):
        cause: Exception | None = None
        reason = grammar.unfit(state, event)
        if reason is None:
            try:
                made = completed(event)
                state = apply(state, made)
                grammar.folded(state, event)
                if isinstance(made, RunStarted) and not made.scope:
                    reason = _history_misfit(made, state)
            except StoreError:
                raise
            except Exception as error:
                reason, cause = f"{error!r:.200}", error
        if reason is not None:
            raise StoreError(
                f"Event {number} of run {run_id!r} ({event.type}) does not fit the events before it: {reason}"
            ) from cause
    known.keep(run_id, KnownHistory(state.position, state.messages))
    return state


def _history_misfit(event: RunStarted, state: RunState) -> str | None:
    """The reason why nbagent cannot have written the history with which a run starts; None if it can."""
    if not all(
        isinstance(m, Mapping) and isinstance(m.get("content"), list) for m in event.messages
    ):
        return "its history has a message without parts"
    return "a flow starts with its call" if event.flow and not state.calls else None


def _check_queue(
    new: Sequence[str],
    events: Mapping[str, Sequence[StoredEvent]],
    archive: Archive,
    existing_ids: set[str],
) -> None:
    """Check that no queued runs, in the document and in the store, would wait for each other forever."""
    checked: set[str] = set()
    for run_id in new:
        waiting, found = {run_id}, events[run_id]
        while isinstance(found[0], RunQueued) and not any(
            isinstance(event, RunStarted) and not event.scope for event in found
        ):
            before = found[0].after
            if before in waiting:
                raise StoreError(
                    f"Run {run_id!r} is in a circle of runs that wait for each other (through {found[0].after!r}), so it could never start"
                )
            if before in checked:
                break
            waiting.add(before)
            if before in events:
                found = events[before]
            elif before in existing_ids:
                found = events_of(archive.rows(before))
            else:
                break
        checked |= waiting


def _added_rows(run_id: str, rows: Sequence[Row], state: RunState) -> list[Row]:
    """The rows that an import adds to a run: the import's event, and the questions to ask again.

    Raises:
        StoreError: the run could never continue.
    """
    now = time.time()
    added: list[StoredEvent] = [
        RunImported(at=now, by="code", user=user_behind("code")),
        *questions_again(state, new_id, now),
    ]
    for event in added:
        state = apply(state, event)
    if is_stuck(state):
        raise StoreError(
            f"Run {run_id!r} is not waiting for anything, so it could never continue. nbagent did not write it in this "
            "state"
        )
    return with_seals(last_seal(run_id, rows), map(dump, added))


def _is_same(rows: Sequence[Row], events: Sequence[StoredEvent]) -> bool:
    """Whether a stored journal starts with these events. It may have later events."""
    try:
        stored_events = events_of(rows[: len(events)])
    except StoreError:
        return False
    return list(map(dump, stored_events)) == list(map(dump, events))


def schema() -> dict[str, Any]:
    """The JSON Schema of a document. A row has its event as a JSON string, whose schema is ``$defs.Event``."""
    made = ExportedRun.model_json_schema()
    event = event_schema()
    made["$defs"] |= event.pop("$defs")
    made["$defs"]["Event"] = event
    data = made["$defs"]["RowDocument"]["properties"]["data"]
    data |= {"contentMediaType": "application/json", "contentSchema": {"$ref": "#/$defs/Event"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of nbagent",
        **made,
    }


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, ensure_ascii=False))  # noqa: T201 - see tests
