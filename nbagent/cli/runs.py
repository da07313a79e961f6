"""``nbagent runs`` and ``nbagent show``: what a store has, and one run as it stands."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from typing import Any, get_args

from nbagent.core.base.controls import escaped
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.journal.journal import Journal
from nbagent.core.run.describe import asks
from nbagent.core.state.state import Status, status_of
from nbagent.core.stored.catalog import Catalog, Entry
from nbagent.core.stored.listing import driven_by

from .output import OK, tell, tell_json
from .stored import add_options, asked_by, opened, run_of, shortened

_COLORS = {"interrupted": 33, "running": 36, "completed": 32, "failed": 31}
_WORDS = {"interrupted": "waiting"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    command = commands.add_parser(
        "runs",
        help="list the runs of a store",
        description="List the runs of a store, the newest last, each with what it asks.",
    )
    command.add_argument("--agent", metavar="NAME", help="only runs of this agent")
    command.add_argument("--status", choices=get_args(Status), help="only runs that stand so")
    command.add_argument("--waiting", action="store_true", help="only runs that ask something")
    command.add_argument(
        "--limit", type=_count, default=20, metavar="N", help="default 20, the newest; 0: all"
    )
    add_options(command)
    command.set_defaults(run=runs)
    command = commands.add_parser(
        "show",
        help="show one run, with its questions and how to answer them",
        description="Show one run as text: what was said and done, and what it asks.",
    )
    command.add_argument("run_id", metavar="RUN", help="its id, or how that begins")
    add_options(command)
    command.set_defaults(run=show)


def runs(options: argparse.Namespace) -> int:
    """List runs; return the exit code."""
    catalog = Catalog(opened(options))
    every = catalog.look(only_open=options.waiting)
    found = [each for each in every if _is_wanted(each, options)]
    listed = found[-options.limit :] if options.limit else found
    if options.json:
        listing = {"store": options.store, "runs": [entry_json(each) for each in listed]}
        tell_json({**listing, "more": len(found) - len(listed), "unreadable": catalog.unreadable})
        return OK
    short = shortened(catalog.store.run_ids())
    for entry in listed:
        _tell_entry(entry, short[entry.id])
    if len(found) > len(listed):
        tell(f"… and {len(found) - len(listed)} older ones: --limit 0 lists all")
    for run_id, why in catalog.unreadable.items():
        tell(f"{run_id}  cannot be read: {why}")
    if not found:
        tell("No such runs." if every else "No runs.")
    return OK


def show(options: argparse.Namespace) -> int:
    """Show one run; return the exit code."""
    journal = run_of(opened(options), options.run_id)
    waiting, text = asked_by(journal), text_of(journal)
    if options.json:
        said = {
            "id": journal.run_id,
            "agent": journal.state.agent,
            "status": status_of(journal.state),
        }
        tell_json({**said, "questions": [question_json(each) for each in waiting], "text": text})
        return OK
    tell(text)
    for interrupt in waiting:
        tell("\n" + "\n".join(how_to_answer(journal.run_id, interrupt, several=len(waiting) > 1)))
    return OK


def text_of(journal: Journal) -> str:
    """A run as text."""
    from nbagent.notebook.render import plain  # noqa: PLC0415  (a list, or an answer, draws nothing)

    from .asking import view_of  # noqa: PLC0415

    return plain.render(view_of(journal).snapshot())


def how_to_answer(run_id: str, interrupt: PendingInterrupt, *, several: bool) -> list[str]:
    """The lines that say which commands answer a question."""
    which = f" {interrupt.id}" if several else ""
    command = f"nbagent answer {run_id}{which}"
    ways = {
        "approval": ("--approve", "--reject REASON"),
        "edit": ("--approve", "--input JSON", "--reject REASON"),
        "confirmation": ("--approve", "--reject REASON"),
        "choice": ("--value JSON", "--reject REASON"),
        "value": ("--value JSON", "--reject REASON"),
        "budget": ("--value NUMBER", "--reject REASON"),
        "outcome": (
            "--approve   (it runs again)",
            "--value JSON   (its result)",
            "--reject REASON",
        ),
        "external": (),
    }[interrupt.expects]
    head = f"{interrupt.tool_name or 'the run'} {asks(interrupt)}, question {interrupt.id}"
    if interrupt.expects == "external":
        return [head, "  nbagent answer --token-file FILE --value JSON"]
    return [head, f"  {command}", *(f"  {command} {way}" for way in ways)]


def entry_json(entry: Entry) -> dict[str, Any]:
    """A run of a list, as JSON."""
    return {
        "id": entry.id,
        "agent": entry.agent,
        "prompt": entry.prompt,
        "status": entry.status,
        "begun": entry.begun,
        "moved": entry.moved,
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


def _is_wanted(entry: Entry, options: argparse.Namespace) -> bool:
    return (
        options.agent in (None, entry.agent)
        and options.status in (None, entry.status)
        and (bool(entry.asks) or not options.waiting)
    )


def _tell_entry(entry: Entry, short: str) -> None:
    """A line for the run, and one for each question."""
    status = _WORDS.get(entry.status, entry.status)
    color = _COLORS.get(entry.status) if _is_colorful() else None
    shown = f"{status:<9}" if color is None else f"\x1b[{color}m{status:<9}\x1b[0m"
    now = time.time()
    rest = f"  {duration(now - entry.begun):>6} ago  {entry.agent}  "
    room = _width() - len(short) - 11 - len(rest)
    print(f"{short}  {shown}{_line(rest)}{_cut(_line(entry.prompt), room)}")
    if entry.status == "running":
        tell("    " + _cut(_line(driven_by(entry.driver)), _width() - 4))
    for interrupt in entry.asks:
        expires = interrupt.expires_at
        limit = "" if expires is None else f" (expires in {duration(expires - now)})"
        text = f"{interrupt.tool_name or 'the run'} {asks(interrupt)}"
        tell("    ? " + _cut(_line(text), _width() - 6 - len(limit)) + limit)


def duration(seconds: float) -> str:
    """A time in its largest unit, such as ``3 h``."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"


def _line(text: str) -> str:
    """The text in one line that no control character leaves."""
    return escaped(text.replace("\n", " ").replace("\t", " "))


def _cut(text: str, room: int) -> str:
    room = max(10, room)
    return text if len(text) <= room else text[: room - 1] + "…"


def _width() -> int:
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else 160


def _is_colorful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of runs: give 0 or more")
    return int(text)
