"""``nbagent runs`` and ``nbagent show``: the runs of a store, and one run in its current state."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from nbagent.core.base.controls import escaped
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.process import has_ended
from nbagent.core.journal.journal import Journal
from nbagent.core.run.describe import asks
from nbagent.core.state.state import Status
from nbagent.core.stored.catalog import Catalog, Entry
from nbagent.core.stored.listing import driven_by

from .output import OK, print_json, print_text
from .stored import (
    RUN_HELP,
    add_options,
    asked_by,
    open_store,
    public_place,
    rows_by_status,
    run_of,
    shortened,
    to_answer,
)

_COLORS = {"interrupted": 33, "running": 36, "completed": 32, "failed": 31}
_STATUS_WORDS = {"interrupted": "waiting"}
"""Words that are shown instead of a status."""
_WORDS = (*_STATUS_WORDS.values(), "idle")
"""Words that a list uses instead of a status; idle: running, but in no process."""
_MANY = 20
"""Maximum choices that are listed in one line."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    command = commands.add_parser(
        "runs",
        help="list the runs of a store",
        description="List the runs of a store, latest first, with their questions.",
    )
    command.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    command.add_argument(
        "--status", choices=(*get_args(Status), *_WORDS), help="only runs with this status"
    )
    command.add_argument("--waiting", action="store_true", help="only runs with an open question")
    command.add_argument(
        "--limit",
        type=_count,
        default=20,
        metavar="N",
        help="default 20, the latest; 0 lists all",
    )
    add_options(command)
    command.set_defaults(run=runs)
    command = commands.add_parser(
        "show",
        help="show one run, with its questions and how to answer them",
        description="Show one run as text: its messages, its calls, and its questions.",
    )
    command.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    add_options(command)
    command.set_defaults(run=show)


def runs(options: argparse.Namespace) -> int:
    """List runs; return the exit code."""
    catalog = Catalog(open_store(options))
    every = catalog.look(only_open=options.waiting)
    wanted = (
        each
        for each in every
        if options.agent in (None, each.agent)
        and options.status in (None, each.status, _word(each))
        and (each.asks or not options.waiting)
    )
    found = sorted(wanted, key=lambda each: each.updated, reverse=True)
    listed = found[: options.limit] if options.limit else found
    if options.json:
        place = public_place(options.store, catalog.store)
        listing = {"store": place, "runs": [entry_json(each) for each in listed]}
        print_json({**listing, "more": len(found) - len(listed), "unreadable": catalog.unreadable})
        return OK
    short = shortened(catalog.store.run_ids())
    now = time.time()
    rows = [
        (_line(short[e.id]), _word(e), f"{duration(now - e.updated)} ago", _line(e.agent))
        for e in listed
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for entry, row in zip(listed, rows, strict=True):
        _print_entry(entry, row, widths)
    if len(found) > len(listed):
        print_text(f"… and {len(found) - len(listed)} older ones. To list all: --limit 0")
    for run_id, why in catalog.unreadable.items():
        print_text(f"{run_id}  cannot be read: {why}")
    if not found:
        print_text("No matching runs." if every else "No runs.")
    return OK


def show(options: argparse.Namespace) -> int:
    """Show one run; return the exit code."""
    journal = run_of(open_store(options), options.run_id)
    text, rows = text_of(journal), rows_by_status(journal)
    if options.json:
        document = {
            "id": journal.run_id,
            "agent": journal.state.agent,
            "status": journal.state.status,
            **({} if rows is None else {"rows": rows}),
            "questions": [question_json(each) for each in asked_by(journal)],
            "text": text,
        }
        print_json(document)
        return OK
    print_text(text)
    if rows is not None:
        counted = (f"{count} {_STATUS_WORDS.get(status, status)}" for status, count in rows.items())
        print_text(f"Rows: {', '.join(counted) or 'none'}")
    for lines in how_to_answer(journal, options):
        print_text("\n" + "\n".join(lines))
    return OK


def text_of(journal: Journal) -> str:
    """A run as text."""
    from nbagent.notebook.render import plain  # noqa: PLC0415  (a list, or an answer, draws nothing)

    from .asking import view_of  # noqa: PLC0415

    return plain.render(view_of(journal).snapshot())


def how_to_answer(journal: Journal, options: argparse.Namespace) -> list[list[str]]:
    """The lines to print for each question; they have commands that can be pasted to answer the question."""
    waiting = asked_by(journal)
    short = shortened([each.id for each in waiting])
    several = len(waiting) > 1
    return [
        _ways_of(to_answer(journal, options, *([short[each.id]] if several else [])), each)
        for each in waiting
    ]


def _ways_of(command: str, interrupt: PendingInterrupt) -> list[str]:
    head = f"{interrupt.tool_name or 'the run'} {asks(interrupt)}, question {interrupt.id}"
    if interrupt.expects == "external":
        return [head, "  nbagent answer --token-file FILE --value JSON"]
    choices = _choices(interrupt.reply_schema)
    head += f": {choices}" if choices else ""
    ways = {
        "approval": ("--approve",),
        "edit": ("--approve", "--input JSON"),
        "confirmation": ("--approve",),
        "choice": ("--value JSON",),
        "value": ("--value JSON",),
        "budget": ("--value NUMBER",),
        "outcome": ("--approve   # runs it again", "--value JSON   # its result"),
    }[interrupt.expects]
    commands = (f"  {command} {way}" for way in (*ways, "--reject REASON"))
    return [head, f"  {command}", *commands]


def _choices(schema: Any) -> str:
    """The choices as JSON; empty if there is no list, or a long one."""
    listed = schema.get("enum") if isinstance(schema, Mapping) else None
    if not isinstance(listed, list | tuple) or len(listed) > _MANY:
        return ""
    return "one of " + ", ".join(json.dumps(each, ensure_ascii=False) for each in listed)


def entry_json(entry: Entry) -> dict[str, Any]:
    """A run of a list, as JSON."""
    return {
        "id": entry.id,
        "agent": entry.agent,
        "prompt": entry.prompt,
        "status": entry.status,
        "started": entry.started,
        "updated": entry.updated,
        "deadline": entry.deadline,
        "turns": entry.turns,
        "tokens": entry.usage.input_tokens + entry.usage.output_tokens,
        "cost": entry.usage.cost,
        "after": entry.after,
        "error": entry.error,
        "questions": [question_json(each) for each in entry.asks],
    }


def question_json(interrupt: PendingInterrupt) -> dict[str, Any]:
    """A question, as JSON."""
    return {
        "id": interrupt.id,
        "tool": interrupt.tool_name,
        "path": interrupt.path,
        "kind": interrupt.kind,
        "expects": interrupt.expects,
        "asks": asks(interrupt),
        "input": interrupt.input,
        "metadata": interrupt.metadata,
        "editable": interrupt.editable,
        "input_schema": interrupt.input_schema,
        "reply_schema": interrupt.reply_schema,
        "expires_at": interrupt.expires_at,
        "note": interrupt.note,
        "digest": interrupt.digest,
    }


def _word(entry: Entry) -> str:
    """The run's state, as the word that the list shows."""
    is_idle = entry.status == "running" and (not entry.driver or has_ended(entry.driver))
    return "idle" if is_idle else _STATUS_WORDS.get(entry.status, entry.status)


def _print_entry(entry: Entry, row: Sequence[str], widths: Sequence[int]) -> None:
    """Print a line for the run, from its id, state, time and agent; and a line for each question."""
    is_colorful = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    color = _COLORS.get(entry.status) if is_colorful else None
    short, word, since, agent = map(str.ljust, row, widths)
    since = since.strip().rjust(len(since))
    width_left = _width() - sum(widths) - 2 * len(widths)
    rest = f"  {since}  {agent}  {_shorten(_line(entry.prompt), width_left)}".rstrip()
    print_text(f"{short}  ", word, rest, color=color)
    if entry.status == "running":
        print_text("    " + _shorten(_line(driven_by(entry.driver)), _width() - 4))
    for interrupt in entry.asks:
        expires = interrupt.expires_at
        limit = "" if expires is None else f" (expires in {duration(expires - time.time())})"
        text = f"{interrupt.tool_name or 'the run'} {asks(interrupt)}"
        print_text("    ? " + _shorten(_line(text), _width() - 6 - len(limit)) + limit)


def duration(seconds: float) -> str:
    """A time in its largest unit, such as ``3 h``."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"


def _line(text: str) -> str:
    """The text in one line, with control characters escaped."""
    return escaped(text.replace("\n", " ").replace("\t", " "))


def _shorten(text: str, max_length: int) -> str:
    max_length = max(10, max_length)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _width() -> int:
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 160


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs. Use 0 or more")
    return int(text)
