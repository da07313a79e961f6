"""The check of a journal's seals, with its result in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import parse
from nbagent.core.base.keywords import checks_keywords

from .default import StoreLike, current_store, store_at
from .history import reference_of
from .rows import Archive, Row, events_of, first_broken
from .store import Store


class FullArchive(Archive, Store, Protocol):
    """A store that is an archive."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check of a run's seals; true if there are seals and no problems."""

    run_id: str
    events: int
    """Number of events."""
    sealed_from: int | None
    """The first event with a seal. Earlier events were written by an nbagent without seals and cannot be
    checked. None if no event has a seal."""
    seal: str | None
    """The seal of the last event. A note of this seal later proves that no event up to it was changed or
    removed."""
    problems: tuple[str, ...] = ()
    """The problems, in words: the first changed event of each run, or a run that cannot be read."""
    unsealed: tuple[str, ...] = ()
    """The runs without seals, among this run and those that it continues; their changes cannot be noticed."""

    def __bool__(self) -> bool:
        return not self.problems and not self.unsealed

    def __repr__(self) -> str:
        lines = list(self.problems)
        lines += [
            f"run {each!r}: its events have no seal, so changes cannot be detected"
            for each in self.unsealed
        ]
        if lines:
            return escaped("\n".join(lines))
        first = f", sealed from event {self.sealed_from} on" if self.sealed_from else ""
        text = f"run {self.run_id!r}: {self.events} unchanged events{first}; last seal {self.seal}"
        return escaped(text)


def archive_of(store: StoreLike | None) -> FullArchive:
    """The store, if it can export and import runs; the default store for None.

    Raises:
        UsageError: the store cannot export and import runs.
    """
    found = current_store() if store is None else store_at(store)
    if not isinstance(found, Archive):
        raise UsageError(
            f"{found!r} does not give access to its rows. It needs heads, stamp, rows, put and delete (see "
            "docs/extending.md), as nb.SQLiteStore and nb.MemoryStore have"
        )
    return cast(FullArchive, found)


@checks_keywords("nb.verify_run")
def verify_run(
    run_id: str, *, store: StoreLike | None = None, seal: str | None = None
) -> Verification:
    """Check that the events of a run, and of the runs that it continues, are unchanged.

    Seals prove that the events belong together, not who wrote them; a person who can write the store can
    replace all of them. A missing end is noticed with a ``seal`` that was noted before.

    Args:
        run_id: ``run.id`` of the run.
        store: the store of the run.
        seal: the last seal, from an earlier check.

    Returns:
        The result: false if an event was changed or a run has no seals, with the problems in words.

    Raises:
        UsageError: the store has no such run.
        StoreError: the store cannot be read.
    """
    archive = archive_of(store)
    rows = archive.rows(run_id)
    problems = _problems(run_id, rows)
    seals = [row.seal for row in rows]
    if seal is not None and not problems and seal not in seals:
        problems.append(
            f"run {run_id!r} has no event with the seal {seal:.80}. Its last events were removed, or the whole run was "
            "rewritten"
        )
    unsealed = [] if any(seals) else [run_id]
    following, seen = _before(rows), {run_id}
    while following is not None and following not in seen:
        seen.add(following)
        try:
            before = archive.rows(following)
        except (UsageError, StoreError) as error:
            problems.append(f"run {following!r}, which it continues: {error}")
            break
        problems += _problems(following, before)
        unsealed += [] if any(row.seal for row in before) else [following]
        following = _before(before)
    first = next((n for n, one in enumerate(seals) if one is not None), None)
    last = seals[-1] if seals else None
    return Verification(run_id, len(rows), first, last, tuple(problems), tuple(unsealed))


def _problems(run_id: str, rows: list[Row]) -> list[str]:
    broken = first_broken(run_id, rows)
    if broken is None:
        return []
    try:
        kind: str = parse(rows[broken].data, rows[broken].version).type
    except StoreError:
        kind = "no longer an event"
    return [
        f"run {run_id!r}: event {broken} ({kind}) does not match its seal. This event, or one just before it, was "
        "changed, removed or added"
    ]


def _before(rows: list[Row]) -> str | None:
    """The run whose history these rows continue."""
    for row in rows[:2]:
        try:
            [event] = events_of([row])
            reference = reference_of(event)
        except StoreError:
            continue
        if reference is not None:
            return reference.run_id
    return None
