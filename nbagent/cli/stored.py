"""Which store, which run of it, and which question of that: what most commands begin with."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nbagent.core.base.errors import UsageError
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.process import has_ended
from nbagent.core.base.user import named
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import VARIABLE
from nbagent.core.journal.journal import Journal, Store
from nbagent.core.run.answers import check_open, interrupts_of
from nbagent.core.state.state import running_calls
from nbagent.core.stored.listing import driven_by
from nbagent.stores.sqlite import SQLiteStore

from .output import CONFLICT, NOTHING, USAGE, CommandError

SHORT = 8
"""Characters of an id that are shown at least."""


def add_options(command: Any) -> None:
    """The options of every command that reads a store."""
    command.add_argument(
        "--store",
        metavar="PLACE",
        default=os.environ.get(VARIABLE),
        help=f"the file, or the URL of the database, with the runs; default: ${VARIABLE}",
    )
    command.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document; errors are also JSON, on standard error",
    )


def opened(options: argparse.Namespace) -> Store:
    """The store that a command is for.

    Raises:
        CommandError: none is given, or there is none.
        StoreError: it cannot be read.
    """
    given = options.store
    if given and "://" in given:
        store: Store = hooks.store_at(given)
        return store
    if not given:
        raise CommandError(f"Which store? Give --store PLACE, or set {VARIABLE}", USAGE)
    if not Path(given).expanduser().exists():
        raise CommandError(f"There is no store at {given!r}", NOTHING, store=given)
    return SQLiteStore(given)


def run_of(store: Store, given: str) -> Journal:
    """The run of this id, or of the only one that begins so, as it stands now.

    Raises:
        CommandError: there is none, or several.
        StoreError: it cannot be read.
    """
    run_id = _one_of(given, store.run_ids(), "run")
    journal = Journal(run_id, store)
    try:
        journal.catch_up()
    except UsageError as error:  # it was deleted meanwhile
        raise CommandError(str(error), NOTHING) from error
    return journal


def asked_by(journal: Journal) -> list[PendingInterrupt]:
    """What waits in a run, in call order; nothing where it has ended."""
    state = journal.state
    return [] if state.outcome is not None else interrupts_of(state, {}, state.agent)


def question_of(journal: Journal, options: argparse.Namespace) -> PendingInterrupt:
    """The question that is named by its id, or by how that begins; where none is named, the only question.

    Raises:
        CommandError: there is none, or there are several.
        Conflict: it was answered already; the message says by whom and when.
    """
    waiting, given = asked_by(journal), options.interrupt
    if given is not None:
        settled = [each for each in journal.state.settled if each.startswith(given)]
        if settled and not any(each.id.startswith(given) for each in waiting):
            check_open(journal.state, settled[0])
        found = _one_of(given, [each.id for each in waiting], "question")
        return next(each for each in waiting if each.id == found)
    if not waiting:
        ended = journal.state.outcome
        how = _goes_on(journal, options) if ended is None else f"it has ended ({ended.type[4:]})"
        answered = _last_answer(journal)
        raise CommandError(
            f"Run {journal.run_id!r} is not waiting for an answer{answered}: {how}",
            CONFLICT if ended or answered else NOTHING,
        )
    if len(waiting) > 1:
        listed = ", ".join(f"{each.id} ({each.tool_name or 'the run'})" for each in waiting)
        raise CommandError(f"Several questions are waiting. Choose one: {listed}", USAGE)
    return waiting[0]


def to_answer(journal: Journal, options: argparse.Namespace, *question: str) -> str:
    """The command that answers this run, or this question of it: its id short, and the store as it was given."""
    assert journal.store is not None  # it was read from one
    words = ["nbagent", "answer", shortened(journal.store.run_ids())[journal.run_id]]
    return " ".join([shlex.join([*words, *question]), *_given(options, journal.store)])


def told_place(given: str, store: Store | None) -> str:
    """Where runs are kept, as it was given; without the password that may stand in a database's URL."""
    parts = urlsplit(given) if "://" in given else None
    if parts is None or (parts.password is None and "password" not in parts.query.lower()):
        return given
    return str(getattr(store, "url", None) or f"{parts.scheme}://…")


def _given(options: argparse.Namespace, place: Store) -> list[str]:
    """The options that another command needs to find the same store, and to go on with the same agent."""
    store, agent = options.store, getattr(options, "agent", None)
    is_said = store not in (None, os.environ.get(VARIABLE))
    named = [f"--store {shlex.quote(told_place(store, place))}"] if is_said else []
    return named + ([] if agent is None else [f"--agent {shlex.quote(agent)}"])


def _last_answer(journal: Journal) -> str:
    """Who answered last, and when; empty where nobody has."""
    last = max(journal.state.settled.values(), key=lambda each: each.at, default=None)
    if last is None:
        return ""
    when = datetime.datetime.fromtimestamp(last.at, tz=datetime.UTC).isoformat("T", "seconds")
    return f" any more (last answered by {named(last.by, last.user)} at {when})"


def _goes_on(journal: Journal, options: argparse.Namespace) -> str:
    """What becomes of a run that asks nothing and has not ended."""
    driver = journal.driver
    if driver and not has_ended(driver):
        return driven_by(driver)
    names = ", ".join(dict.fromkeys(call.name for call in running_calls(journal.state)))
    ran = f" and may ask about the outcome of {names}" if names else ""
    command = to_answer(journal, options)
    command += "" if getattr(options, "agent", None) else " --agent module:name"
    return f"it is not active. It continues{ran} with `{command}`, or when someone opens it"


def shortened(ids: Sequence[str]) -> dict[str, str]:
    """Of each id as much as tells it from the others, and at least a few characters."""
    ordered, found = sorted(ids), {}
    for index, each in enumerate(ordered):
        near = (*ordered[max(0, index - 1) : index], *ordered[index + 1 : index + 2])
        needed = max((_shared(each, one) + 1 for one in near), default=0)
        found[each] = each[: max(SHORT, needed)]
    return found


def _shared(one: str, other: str) -> int:
    """How many characters two ids begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _one_of(given: str, ids: Iterable[str], what: str) -> str:
    known = list(ids)
    if given in known:
        return given
    found = [each for each in known if given and each.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:5])
        raise CommandError(f"Several {what}s begin with {given!r}: {listed}", USAGE)
    listed = ", ".join(known[-3:]) or "none"
    raise CommandError(f"There is no {what} {given!r}. The latest: {listed}", NOTHING)
