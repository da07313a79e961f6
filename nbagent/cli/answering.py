"""``nbagent answer``: answer one question of a run, by options or in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import Resolved, StoredEvent
from nbagent.core.base.interrupts import (
    PendingInterrupt,
    Reject,
    Respond,
    Restart,
    restart_of,
)
from nbagent.core.base.process import describe_process, has_ended
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.store import Store
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.run import Run
from nbagent.core.stored.opening import answer_external, answer_stored

from . import driving
from .output import (
    CONFLICT,
    LEFT,
    NOTHING,
    OK,
    USAGE,
    CommandError,
    print_aside,
    print_json,
    print_text,
)
from .runs import how_to_answer, question_json, text_of
from .stored import (
    RUN_HELP,
    add_options,
    asked_by,
    open_store,
    public_place,
    question_of,
    run_of,
    to_answer,
)

BY = "command line"
_MISSING: Any = object()
"""The value of an option that was not used; not None, because JSON's null is an answer."""
_EXAMPLES = """\
examples:
  nbagent answer 3f2a                                  ask here, in the terminal
  nbagent answer 3f2a --approve                        run the call
  nbagent answer 3f2a --reject "too expensive"         never run it; the agent sees the reason
  nbagent answer 3f2a --value '"window seat"'          answer a question: any JSON
  nbagent answer 3f2a --input '{"amount": 5}'          approve with changed input
  nbagent answer 3f2a 9c1b --approve                   choose one of several questions
  nbagent answer 3f2a --approve --agent bank.py:agent  and continue the run here
  nbagent answer --token-file token --value '{}'       answer for an outside system"""


def add(commands: Any, epilog: str) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "answer",
        help="answer a question of a run",
        description=textwrap.fill(
            "Answer an open question of a run. Without an option, the question is asked in the terminal, where Enter alone never "
            "approves and Ctrl+C changes nothing. The run continues in its own process. If no process is running it, it continues "
            "with --agent, or when someone opens it with nb.open_run.",
            width=76,
        ),
        epilog=f"{_EXAMPLES}\n\n{epilog}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("run_id", metavar="RUN", nargs="?", help=RUN_HELP)
    command.add_argument(
        "interrupt", metavar="QUESTION", nargs="?", help="the question's id, if several are waiting"
    )
    way = command.add_mutually_exclusive_group()
    way.add_argument(
        "--approve",
        action="store_true",
        help="run the call as shown; run it again if its process was killed",
    )
    way.add_argument(
        "--reject",
        nargs="?",
        const="",
        metavar="REASON",
        help="reject the call; the agent sees the reason",
    )
    way.add_argument(
        "--value",
        type=_json,
        default=_MISSING,
        metavar="JSON",
        help="the answer, or the result of the call",
    )
    way.add_argument("--text", metavar="TEXT", help="like --value, for a text answer")
    way.add_argument(
        "--input",
        type=_json,
        default=_MISSING,
        metavar="JSON",
        help="approve with changed input: an object with the values to change",
    )
    way.add_argument(
        "--error", metavar="TEXT", help="the call failed, with the reason; the agent sees it"
    )
    command.add_argument(
        "--data",
        type=_json,
        default=_MISSING,
        metavar="JSON",
        help="with --approve: data for a paused tool",
    )
    token = command.add_mutually_exclusive_group()
    token.add_argument(
        "--token",
        help="the token of a question to an outside system (other users can see it in `ps`)",
    )
    token.add_argument(
        "--token-file", metavar="FILE", help="a file with the token; - means standard input"
    )
    command.add_argument("--agent", metavar="PLACE", help=driving.HELP)
    add_options(command)
    command.set_defaults(run=answer)


def answer(options: argparse.Namespace) -> int:
    """Answer one question, or ask a person for the answers; return the exit code."""
    if options.data is not _MISSING and not options.approve:
        raise CommandError("--data needs --approve", USAGE)
    if options.token is not None or options.token_file is not None:
        return _answer_outside(options)
    if options.run_id is None:
        raise CommandError(
            "The run's id is missing. Pass it, or --token-file. To list the runs: `nbagent runs`",
            USAGE,
        )
    agent = None if options.agent is None else driving.load_agent(options.agent)
    store = _store_of(options, agent)
    journal = run_of(store, options.run_id)
    if _way(options) is None:
        return _ask(options, journal, agent)
    interrupt = question_of(journal, options)
    _check_for_people(interrupt)
    _check_way(options, interrupt)
    return _settle(options, journal, interrupt, _resolution(options, interrupt), agent)


def _store_of(options: argparse.Namespace, agent: Any) -> Store:
    if options.store is None and agent is not None:
        store: Store = agent.store
        return store
    return open_store(options)


def _check_for_people(interrupt: PendingInterrupt) -> None:
    if interrupt.expects == "external":
        raise CommandError(
            f"{interrupt.tool_name!r} is waiting for an outside system. Use its token with --token-file",
            USAGE,
        )


def _check_way(options: argparse.Namespace, interrupt: PendingInterrupt) -> None:
    """Check that the option, and the names in its JSON, fit the question. The values are checked later."""
    way, tool = _way(options), interrupt.tool_name or "the run"
    runs = interrupt.restartable or (interrupt.expects == "confirmation" and way == "approve")
    if way in ("approve", "input") and not runs:
        raise CommandError(
            f"{tool!r} asks for an answer, so there is nothing to approve. Use --value JSON or --text TEXT, or reject "
            "with --reject",
            USAGE,
        )
    for given, schema in (
        (options.input, interrupt.input_schema),
        (options.value, interrupt.reply_schema),
    ):
        if not isinstance(given, dict) or not isinstance(schema, Mapping):
            continue
        known = list(schema.get("properties", ()))
        is_open = schema.get("additionalProperties") is not False or "patternProperties" in schema
        unknown = [] if is_open else [name for name in given if name not in known]
        if unknown:
            raise CommandError(
                f"{tool!r} has no field {', '.join(map(repr, unknown))}. Its fields: {', '.join(known)}",
                USAGE,
            )


# --- by options


def _way(options: argparse.Namespace) -> str | None:
    """The name of the option with the answer; None if no option has an answer."""
    if options.approve:
        return "approve"
    for name in ("reject", "text", "error"):
        if getattr(options, name) is not None:
            return name
    for name in ("value", "input"):
        if getattr(options, name) is not _MISSING:
            return name
    return None


def _resolution(options: argparse.Namespace, interrupt: PendingInterrupt) -> AnyResolution:
    data = None if options.data is _MISSING else options.data
    match _way(options):
        case "approve" if interrupt.expects == "confirmation" and data is None:
            return Respond(True)  # noqa: FBT003 -- the answer
        case "approve":
            return restart_of(None, data)
        case "reject":
            return Reject(options.reject or None)
        case "value":
            return Respond(options.value)
        case "text":
            return Respond(options.text)
        case "error":
            return Respond(error=options.error)
        case _:
            return _changed(options.input, interrupt)


def _changed(given: Any, interrupt: PendingInterrupt) -> Restart:
    """An approval with changed input; values that are not named stay as shown."""
    if not isinstance(given, dict):
        raise CommandError(f"--input must be a JSON object, got {json.dumps(given)[:80]}", USAGE)
    editable = list(given) if interrupt.editable is True else interrupt.editable or ()
    fixed = [name for name in given if name not in editable]
    if fixed:
        offered = ", ".join(editable) or "none"
        raise CommandError(
            f"{interrupt.tool_name!r} does not allow new values of {', '.join(fixed)}. Editable: {offered}",
            USAGE,
        )
    return restart_of({**interrupt.input, **given}, None)


def _answer_outside(options: argparse.Namespace) -> int:
    if options.run_id is not None or options.approve or options.input is not _MISSING:
        raise CommandError("With a token, use only --value, --text or --error", USAGE)
    if _way(options) is None:
        raise CommandError(
            "The answer is missing. Use --value JSON, --text TEXT or --error TEXT", USAGE
        )
    token = options.token
    if token is None and options.token_file == "-":
        token = sys.stdin.readline().strip()
    elif token is None:
        path = options.token_file
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"The token file {path!r} cannot be read: {error}", USAGE) from error
    agent = None if options.agent is None else driving.load_agent(options.agent)
    store = _store_of(options, agent)
    value = options.text if options.value is _MISSING else options.value
    given: dict[str, Any] = (
        {"error": options.error} if options.error is not None else {"value": value}
    )
    event = answer_external(token, **given, store=store).event
    assert isinstance(event, Resolved)  # every answer is stored as `Resolved`
    for run_id in reversed(store.run_ids()):
        journal = Journal(run_id, store)
        with suppress(StoreError, UsageError):  # it is damaged, or was deleted meanwhile
            journal.catch_up()
        if event.id in journal.state.settled:  # the answered run
            break
    else:
        raise CommandError("The answered run no longer exists", NOTHING)
    if agent is not None:
        _drive(journal, agent, None)
    return _report(options, journal, event, here=agent is not None)


# --- in the terminal


def _ask(options: argparse.Namespace, journal: Journal, agent: Any) -> int:
    """Ask a person, one question after the other."""
    from nbagent.notebook.export import types_in  # noqa: PLC0415  (by options nothing is drawn)

    from .asking import answer_errors, ask_question, no_errors, view_of  # noqa: PLC0415
    from .terminal import Left, Terminal  # noqa: PLC0415

    terminal = Terminal()
    waiting = asked_by(journal)
    is_open = journal.state.outcome is None
    only_needs_driver = agent is not None and options.interrupt is None and is_open
    if options.interrupt is not None or not (waiting or only_needs_driver):
        waiting = [question_of(journal, options)]
    if not waiting:  # all is answered, but no process has continued the run
        _drive(journal, agent, None)
        return _report(options, journal, None, here=True)
    if all(each.expects == "external" for each in waiting):
        _check_for_people(waiting[0])
    waiting = [each for each in waiting if each.expects != "external"]
    if not terminal.is_there:
        lines = how_to_answer(journal, options)
        text = "\n".join("\n".join(each) for each in lines)
        raise CommandError(
            f"There is no terminal for the question. Pass the answer with an option\n{text}", USAGE
        )
    code = OK
    for interrupt in waiting[:1] if options.json else waiting:
        tools = {} if agent is None else agent.tools
        question = view_of(journal, partial(types_in, tools)).question(interrupt.id)
        if question is None:
            raise CommandError(f"The question {interrupt.id!r} is no longer waiting", CONFLICT)
        check = no_errors if agent is not None else partial(answer_errors, journal, interrupt, BY)
        try:
            resolution = ask_question(terminal, question, interrupt, check)
        except Left:
            terminal.show("\nNothing was changed.")
            return LEFT
        if resolution is None:
            terminal.show("Nothing was changed.")
        else:
            code = _settle(options, journal, interrupt, resolution, agent)
    return code


# --- results


def _settle(
    options: argparse.Namespace,
    journal: Journal,
    interrupt: PendingInterrupt,
    resolution: AnyResolution,
    agent: Any,
) -> int:
    """Store the answer, continue the run if the agent is known, and print the result."""
    driver = journal.driver
    if agent is not None:
        run = _drive(journal, agent, (interrupt, resolution))
        journal.catch_up()
        event = next(
            (e for e in run.journal if isinstance(e, Resolved) and e.id == interrupt.id), None
        )
        return _report(options, journal, event, here=True)
    event = asyncio.run(answer_stored(journal, interrupt.id, resolution, by=BY))
    return _report(options, journal, event, here=False, driver=event.owner or driver)


def _drive(
    journal: Journal, agent: Any, answer: tuple[PendingInterrupt, AnyResolution] | None
) -> Run:
    """Continue the run in this process and return it; Ctrl+C prints the run's status on standard error."""
    store = journal.store
    assert store is not None  # the journal was read from a store
    try:
        return asyncio.run(driving.continue_run(journal.run_id, agent, store, answer, BY))
    except KeyboardInterrupt:
        journal.catch_up()
        done = _STOPPED.get(journal.state.status, "It continues when it is opened")
        print_aside(f"\nnbagent: stopped run {journal.run_id}. {done}")
        raise


_STOPPED = {
    "cancelled": "It is cancelled. Its finished calls stay in the store",
    "interrupted": "It is waiting for an answer",
    "completed": "It had already ended",
    "failed": "It had already failed",
}


def _report(
    options: argparse.Namespace,
    journal: Journal,
    event: StoredEvent | None,
    *,
    here: bool,
    driver: str = "",
) -> int:
    """Print the answer, and where the run continues."""
    journal.catch_up()
    ended = has_ended(driver) if driver else True
    where = "here" if here else {False: "elsewhere", True: "when_opened", None: "unknown"}[ended]
    outcome, waiting = journal.state.outcome, asked_by(journal)
    if options.json:
        document: dict[str, Any] = {"run": journal.run_id, "status": journal.state.status}
        if isinstance(event, Resolved):
            document |= {
                "question": event.id,
                "answer": event.resolution.model_dump(mode="json", exclude={"interrupt"}),
            }
            document |= {"by": event.by, "at": event.at}
        document |= {"continues": where, "driver": describe_process(driver) if driver else None}
        document |= {
            "text": getattr(outcome, "text", None),
            "error": getattr(outcome, "message", None),
        }
        print_json({**document, "questions": [question_json(each) for each in waiting]})
        return OK
    if here:
        print_text(text_of(journal))
    else:
        print_text(f"Answered. {_next_step(where, driver, journal, options)}")
    for lines in how_to_answer(journal, options):
        print_text("\n" + "\n".join(lines))
    return OK


def _next_step(where: str, driver: str, journal: Journal, options: argparse.Namespace) -> str:
    match where:
        case "elsewhere":
            return f"The run was last active in {describe_process(driver)}. It continues there, or in the next process that opens it."
        case "unknown":
            return f"The run was last active in {describe_process(driver)}. It continues there if that process still runs."
        case _:
            place = None if options.store is None else public_place(options.store, journal.store)
            if journal.state.row is not None:
                batch = journal.state.row.batch
                return (
                    f"The run is a row of the batch {batch!r}, which continues once a process has it open: with the same "
                    f"nb.map call, or with await nb.open_batch({batch!r}, agent=agent, store={place!r})."
                )
            return (
                f"The run continues once a process has it open: with await nb.open_run({journal.run_id!r}, agent=agent, "
                f"store={place!r}) in Python, or with `{to_answer(journal, options)} --agent module:name`."
            )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not JSON ({error}). For text, use --text, or '\"…\"'"
        ) from None
