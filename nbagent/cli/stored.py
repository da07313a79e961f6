"""The store, the run and the question that a command's arguments name."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nbagent.core.base.errors import UsageError
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.process import has_ended
from nbagent.core.base.user import named
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import VARIABLE
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.store import Store
from nbagent.core.run.answers import check_open, interrupts_of
from nbagent.core.state.state import running_calls
from nbagent.core.stored.listing import driven_by
from nbagent.stores.sqlite import SQLiteStore

from .output import CONFLICT, NOTHING, USAGE, CommandError

RUN_HELP = "the run's id, or its first characters"
SHORT = 8
"""The minimum number of characters of an id that are shown."""


def add_options(command: Any) -> None:
    """Add the options of every command that reads a store."""
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


def open_store(options: argparse.Namespace) -> Store:
    """The store of a command.

    Raises:
        CommandError: the option is missing, or the store does not exist.
        StoreError: the store cannot be read.
    """
    given = options.store
    if given and "://" in given:
        store: Store = hooks.store_at(given)
        return store
    if not given:
        raise CommandError(f"The store is missing. Use --store PLACE, or set {VARIABLE}", USAGE)
    if not Path(given).expanduser().exists():
        raise CommandError(f"There is no store at {given!r}", NOTHING, store=given)
    return SQLiteStore(given)


def run_of(store: Store, given: str) -> Journal:
    """The journal of the run with the id ``given``, or of the only run whose id starts with ``given``.

    Raises:
        CommandError: no run matches, or several do.
        StoreError: the store cannot be read.
    """
    run_id = _one_of(given, store.run_ids(), "run")
    journal = Journal(run_id, store)
    try:
        journal.catch_up()
    except UsageError as error:  # the run was deleted meanwhile
        raise CommandError(str(error), NOTHING) from error
    return journal


def asked_by(journal: Journal) -> list[PendingInterrupt]:
    """The open questions of a run, in call order; none if it has ended."""
    state = journal.state
    return [] if state.outcome is not None else interrupts_of(state, {}, state.agent)


def question_of(journal: Journal, options: argparse.Namespace) -> PendingInterrupt:
    """The question named by its id or its first characters; if none is named, the only question.

    Raises:
        CommandError: no question matches, or several do.
        Conflict: the question was already answered; the message names the person and the time.
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
        how = _activity(journal, options) if ended is None else f"it has ended ({ended.type[4:]})"
        answered = _last_answer(journal)
        raise CommandError(
            f"Run {journal.run_id!r} is {answered}: {how}",
            CONFLICT if ended or journal.state.settled else NOTHING,
        )
    if len(waiting) > 1:
        listed = ", ".join(f"{each.id} ({each.tool_name or 'the run'})" for each in waiting)
        raise CommandError(f"Several questions are waiting. Choose one: {listed}", USAGE)
    return waiting[0]


def to_answer(journal: Journal, options: argparse.Namespace, *question: str) -> str:
    """The command that answers this run, or one question of the run, with a short id and the same store."""
    store, agent = options.store, getattr(options, "agent", None)
    words = ["nbagent", "answer", _short_id(journal), *question]
    command = shlex.join(words)
    if store not in (None, os.environ.get(VARIABLE)):
        command += f" --store {shlex.quote(public_place(store, journal.store))}"
    if agent is not None:
        command += f" --agent {shlex.quote(agent)}"
    return command


@lru_cache(1)
def _short_id(journal: Journal) -> str:
    """The short form of the run's id; a store may have many other ids, and a run many questions."""
    assert journal.store is not None  # the journal was read from a store
    run_id = journal.run_id
    near = (each for each in journal.store.run_ids() if each[:SHORT] == run_id[:SHORT])
    return shortened({run_id, *near})[run_id]


def public_place(given: str, store: Store | None) -> str:
    """The place of a store as it was passed, without the password of a database's URL."""
    parts = urlsplit(given) if "://" in given else None
    if parts is None or (parts.password is None and "password" not in parts.query.lower()):
        return given
    return str(getattr(store, "url", None) or f"{parts.scheme}://…")


def _last_answer(journal: Journal) -> str:
    """A phrase for a run without open questions, with the last answer if there is one."""
    last = max(journal.state.settled.values(), key=lambda each: each.at, default=None)
    if last is None:
        return "not waiting for an answer"
    when = datetime.datetime.fromtimestamp(last.at, tz=datetime.UTC).isoformat("T", "seconds")
    return (
        f"no longer waiting for an answer (last answered by {named(last.by, last.user)} at {when})"
    )


def _activity(journal: Journal, options: argparse.Namespace) -> str:
    """A phrase on the activity of a run that asks nothing and has not ended."""
    driver = journal.driver
    if driver and not has_ended(driver):
        return driven_by(driver)
    names = ", ".join(dict.fromkeys(call.name for call in running_calls(journal.state)))
    ran = f". It may ask about the outcome of {names}" if names else ""
    if _is_of_batch(journal):
        batch = journal.run_id.partition(":@")[0]
        return (
            "it is a batch, and not active. Continue it with the same nb.map call, or with await nb.open_batch("
            f"{batch!r}, agent=agent)"
        )
    command = to_answer(journal, options)
    command += "" if getattr(options, "agent", None) else " --agent module:name"
    return f"it is not active. To continue it, run `{command}` or open it{ran}"


def _is_of_batch(journal: Journal) -> bool:
    from nbagent.batch.listing import rows_agent  # noqa: PLC0415 - few runs are batches

    return journal.state.agent == "batch" and rows_agent(journal.state) != ""


def rows_by_status(journal: Journal) -> dict[str, int] | None:
    """Number of rows with each status, if the run is the record of a batch; else None."""
    if journal.store is None or not _is_of_batch(journal):
        return None
    from nbagent.batch.listing import read_batch  # noqa: PLC0415 - few runs are batches

    rows = read_batch(journal.store, journal.run_id.partition(":@")[0]).rows.values()
    return dict(Counter(row.status for row in rows))


def shortened(ids: Iterable[str]) -> dict[str, str]:
    """A short form of each id: the characters that distinguish the id from all others, at least ``SHORT``.

    An id with a colon is not shortened, because part of a row's key would look like another row's key.
    """
    ordered, found = sorted(ids), {}
    for index, each in enumerate(ordered):
        near = (*ordered[max(0, index - 1) : index], *ordered[index + 1 : index + 2])
        lengths = range(SHORT, 0 if ":" in each else len(each))
        clear = (n for n in lengths if not any(one.startswith(each[:n]) for one in near))
        found[each] = each[: next(clear, None)]
    return found


def _one_of(given: str, ids: Iterable[str], noun: str) -> str:
    known = list(ids)
    if given in known:
        return given
    found = [each for each in known if given and each.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:5])
        raise CommandError(f"Several {noun}s start with {given!r}: {listed}", USAGE)
    listed = ", ".join(known[-3:]) or "none"
    raise CommandError(f"There is no {noun} {given!r}. The latest: {listed}", NOTHING)
