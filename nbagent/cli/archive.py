"""``nbagent export``, ``import``, ``verify``, ``delete``, ``prune``: export, import, check and delete runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbagent.core.journal.verification import verify_run
from nbagent.core.stored.deletion import delete_run, prune
from nbagent.core.stored.document import export_run, import_run
from nbagent.stores.sqlite import SQLiteStore

from .output import FAILED, LEFT, OK, USAGE, CommandError, print_json, print_text
from .stored import RUN_HELP, add_options, open_store, run_of


def add(commands: Any) -> None:
    """Add the commands to the parser."""
    command = _command(commands, "export", export, "write a run as one JSON document")
    command.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write, which only its owner can read; default: standard output",
    )
    command = _command(commands, "import", import_document, "import a run from its document")
    command.add_argument("file", type=Path, metavar="FILE", help="a file from `nbagent export`")
    command = _command(
        commands, "verify", verify, "check that nobody changed a run since it was written"
    )
    command.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--seal",
        help="the last seal of an earlier check; also detects a shortened or rewritten run",
    )
    command = _command(
        commands, "delete", delete, "permanently delete a run with its prompts and results"
    )
    command.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--with-followers",
        action="store_true",
        help="also delete the runs that continue its conversation",
    )
    command.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    command = _command(
        commands,
        "prune",
        prune_runs,
        "permanently delete old conversations with their prompts and results",
    )
    command.add_argument(
        "--older-than",
        required=True,
        metavar="TIME",
        help="the time since the conversation's last event, such as 30d, 12h or 2w",
    )
    command.add_argument(
        "--waiting", action="store_true", help="also delete runs with open questions"
    )
    command.add_argument("--dry-run", action="store_true", help="only list what would be deleted")


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], help_: str) -> Any:
    command = commands.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    add_options(command)
    command.set_defaults(run=run)
    return command


def export(options: argparse.Namespace) -> int:
    """Write a run as a document; return the exit code."""
    store = open_store(options)
    document = export_run(run_of(store, options.run_id).run_id, options.output, store=store)
    if options.output is None:
        print_json(document)
    elif options.json:
        print_json({"run": document["id"], "file": str(options.output)})
    else:
        print_text(f"Wrote {options.output}. It contains prompts and results in plain text.")
    return OK


def import_document(options: argparse.Namespace) -> int:
    """Import a run; return the exit code."""
    if not options.file.is_file():
        raise CommandError(f"The file {str(options.file)!r} does not exist", USAGE)
    is_file = bool(options.store) and "://" not in options.store  # the file may be new
    store = SQLiteStore(options.store) if is_file else open_store(options)
    before = set(store.run_ids())
    run_id = import_run(options.file, store=store)
    if options.json:
        print_json({"run": run_id})
    elif run_id in before:
        print_text(f"The run {run_id} already exists here. Nothing was changed.")
    else:
        print_text(
            f"Imported {run_id}. Calls that were approved elsewhere need approval again here."
        )
    return OK


def verify(options: argparse.Namespace) -> int:
    """Check the seals of a run; return the exit code."""
    store = open_store(options)
    found = verify_run(run_of(store, options.run_id).run_id, store=store, seal=options.seal)
    if options.json:
        document = {
            "run": found.run_id,
            "ok": bool(found),
            "events": found.events,
            "seal": found.seal,
        }
        document |= {"sealed_from": found.sealed_from, "problems": found.problems}
        print_json({**document, "unsealed": found.unsealed})
    else:
        print_text(repr(found))
    return OK if found else FAILED


def delete(options: argparse.Namespace) -> int:
    """Delete a run; return the exit code."""
    from .terminal import Left, Terminal  # noqa: PLC0415  (it loads the forms)

    store, terminal = open_store(options), Terminal()
    run_id = run_of(store, options.run_id).run_id
    if not options.yes:
        if not terminal.is_there:
            raise CommandError(
                "There is no terminal for the confirmation. To delete the run, pass --yes", USAGE
            )
        try:
            if not terminal.agrees(f"Delete {run_id} permanently?"):
                return OK
        except Left:
            terminal.show("\nNothing was deleted.")
            return LEFT
    return _report_deleted(
        options, delete_run(run_id, store=store, with_followers=options.with_followers)
    )


def prune_runs(options: argparse.Namespace) -> int:
    """Delete old conversations; return the exit code."""
    found = prune(
        options.older_than,
        store=open_store(options),
        waiting=options.waiting,
        dry_run=options.dry_run,
    )
    return _report_deleted(options, found, dry_run=options.dry_run)


def _report_deleted(options: argparse.Namespace, ids: list[str], *, dry_run: bool = False) -> int:
    if options.json:
        print_json({"deleted": [] if dry_run else ids, "would_delete": ids if dry_run else []})
        return OK
    for each in ids:
        print_text(f"{'would delete' if dry_run else 'deleted'} {each}")
    if not ids:
        print_text("Nothing to delete.")
    return OK
