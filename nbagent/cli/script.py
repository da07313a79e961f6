"""A script's person is at its terminal: what the script asks there, and what becomes of runs that it did not wait for."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from shlex import quote
from typing import Any

from nbagent.core.base.errors import (
    Cancelled,
    Conflict,
    HumanInputRequired,
    InvalidAnswer,
    NbagentError,
    NotPending,
    Rejected,
)
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.process import fork_safe
from nbagent.core.call.threads import is_private, private_loop, run_in_thread, wait_for_one
from nbagent.core.journal.default import place_for_others
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.host import UNFINISHED, has_terminal, is_interactive, script_error, started
from nbagent.core.run.run import Run, session_of, unanswered_of

from .output import FAILED, LEFT, NOTHING, CommandError, print_aside

BY = "terminal"
MAX_DRAWING = 5.0
"""Maximum seconds that the end of a script waits for a thread that draws a question which nobody reads any more."""
POLL = 0.1
"""Seconds between two looks at questions that somebody else may answer."""
PATIENCE = 3.0
"""Seconds after which a script says what it waits for."""
MAX_REPORTED = 5
"""Runs that are named at the end of a script."""
UNANSWERED = NOTHING
"""The exit code if a question is left unanswered, as of a command whose run asks."""


# --- while the script runs


def wait(run: Run, future: Future[Any]) -> None:
    """Wait for a future of a run that a person attends, and meanwhile ask its questions in the terminal.

    Where nothing is asked, as outside of the main thread, a line says after a while what the run waits for.

    Raises:
        HumanInputRequired: the person left a question unanswered.
        KeyboardInterrupt: the person pressed Ctrl+C.
    """
    settled = session_of(run).when_settled
    while not future.done() or _for_people(run.interrupts):
        wait_for_one([future, settled()])
        if _for_people(run.interrupts) and has_terminal():
            if not _asked_all(run):
                raise _left_open(run)
        elif run.interrupts:
            _wait_patiently(run, future)
        else:  # answered meanwhile, or queued behind another run
            concurrent.futures.wait([future], POLL)


async def wait_beside(run: Run, future: Future[Any]) -> None:
    """Await a future of a run that a person attends, and ask its questions in the terminal while the loop goes on.

    If the caller is cancelled, as by Ctrl+C, the terminal reads no more.

    Raises:
        HumanInputRequired: the person left a question unanswered, or this terminal cannot stop reading, as on Windows.
    """
    from .terminal import StoppableTerminal  # noqa: PLC0415 - drawn in few scripts

    terminal, over = StoppableTerminal(), asyncio.wrap_future(future)
    try:
        while not over.done():
            settled = asyncio.wrap_future(session_of(run).when_settled())
            await asyncio.wait([over, settled], return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
            asks = _for_people(run.interrupts) and not over.done()
            if asks and not await run_in_thread(partial(_asked_in_turn, run, terminal)):
                raise _left_open(run)
            await asyncio.wait([over], timeout=POLL)
            asked = run.interrupts
            if asked and not _for_people(asked):
                with _patience(f"an answer of another system:\n{_open(run)}"):
                    while run.interrupts == asked and not over.done():
                        await asyncio.wait([over], timeout=POLL)
    except OSError as error:
        raise HumanInputRequired(f"This terminal cannot ask: {error}") from None
    finally:
        terminal.stopped.set()
        over.cancel()


_turn = fork_safe(threading.Lock())
"""Held while a thread asks, as several runs may be awaited at once."""


def _asked_in_turn(run: Run, terminal: Any) -> bool:
    """Ask the open questions of a run once no other run asks; returns False if the person leaves one open."""
    while not _turn.acquire(timeout=POLL):
        if terminal.stopped.is_set():
            return False
    try:
        return not terminal.stopped.is_set() and _asked_all(run, terminal)
    finally:
        _turn.release()


def _wait_patiently(run: Run, future: Future[Any]) -> None:
    """Wait until a run's questions change, and say after a while who can answer them."""
    asked, is_main = run.interrupts, threading.current_thread() is threading.main_thread()
    why = "there is no terminal" if is_main else "only the main thread does"
    how = f"Nothing asks here: {why}. Answer from another thread or process"
    with _patience(f"an answer. {how}:\n{_open(run)}"):
        wait_for_one([future], lambda: run.interrupts != asked)


def _open(run: Run) -> str:
    """The open questions of a run, a line each."""
    text = str(unanswered_of(session_of(run)))
    return text.partition(":\n")[2] or text  # an answer in answers= was wrong


def _left_open(run: Run) -> HumanInputRequired:
    text = f"A question of the run of {run.agent!r} was left open:\n{_open(run)}"
    return HumanInputRequired(text, interrupts=run.interrupts, run_id=run.id)


def follow(run: Run) -> None:
    """Print each new status of a run, in one line."""
    last = [""]

    def on_event(_event: RunEvent) -> None:
        if run.status != last[0]:
            last[0] = run.status
            asks = "  Answer with .wait(), or with .approve or .respond" if run.interrupts else ""
            print_aside(f"{run!r}{asks}")

    run.subscribe(on_event)


def talk(chat: Any) -> None:
    """Send what the person types to a chat, and print the answers, until an empty line or a question left unanswered.

    Raises:
        KeyboardInterrupt: the person pressed Ctrl+C.
    """
    from nbagent.core.chat import thread_of  # noqa: PLC0415 - loaded, as there is a chat

    from .terminal import Left, Terminal  # noqa: PLC0415 - drawn in few scripts

    terminal, thread = Terminal(), thread_of(chat)
    prompt = f"To {thread.spec().agent} (Enter to end):"
    run = thread.open_run
    try:
        while run is None or _finish(run) != UNANSWERED:
            if not (text := terminal.ask(prompt).strip()):
                return
            run = thread.send(text, blocking=True)
    except Left as left:
        terminal.show()
        if left.by_keyboard:
            raise KeyboardInterrupt from None


def fill(question: Any) -> Any:
    """Ask a question that belongs to no run, such as one of ``nb.form``, and return the typed answer.

    Raises:
        Rejected: the person left the form, or the editor's file, as it was.
        HumanInputRequired: the form needs an editor, and there is none.
        KeyboardInterrupt: the person pressed Ctrl+C.
    """
    from .editor import EditorForm  # noqa: PLC0415 - drawn in few scripts
    from .terminal import Filling, Left, Stopped, Terminal, is_short  # noqa: PLC0415 - as above

    terminal, form = Terminal(), question.form
    terminal.show(question.title)
    filling = (Filling if is_short(form.fields) else EditorForm)(terminal, form)
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's own only cancels the task
    try:
        return _filled(question, filling)
    except Left as left:
        if left.by_keyboard:
            raise KeyboardInterrupt from None
        raise Rejected(f"{question.title} was left unanswered") from None
    except Stopped as stopped:
        raise Rejected(f"{question.title}: {' '.join(stopped.args)}") from None
    except CommandError as error:
        raise HumanInputRequired(str(error)) from None
    finally:
        signal.signal(signal.SIGINT, before)


def _filled(question: Any, filling: Any) -> Any:
    errors: list[Any] = []
    while isinstance(found := question.submitted(filling.drafts(errors)), list):
        errors = found
    return found.value


async def ask_outside(reply: Any, message: str, link: str) -> Any:
    """Ask a question that belongs to no run and no form of the script, such as a sign-in, and return the typed answer.

    If the caller is cancelled, as by an answer of the browser, the terminal reads no more.

    Raises:
        Rejected: the input has ended.
        HumanInputRequired: this terminal cannot stop reading, as on Windows.
    """
    from nbagent.forms.form import Form  # noqa: PLC0415 - drawn in few scripts
    from nbagent.notebook.cards.form_card import question_of  # noqa: PLC0415 - as above

    from .terminal import Filling, Left, StoppableTerminal  # noqa: PLC0415 - as above

    terminal, form = StoppableTerminal(), Form(reply)
    question = question_of(form, title=message)
    terminal.show(f"{message}:\n  {link}")
    try:
        return await run_in_thread(partial(_filled, question, Filling(terminal, form)))
    except Left:
        raise Rejected(f"{message} was left unanswered") from None
    except OSError as error:
        raise HumanInputRequired(f"This terminal cannot ask: {error}") from None
    finally:
        terminal.stopped.set()


def _asked_all(run: Run, terminal: Any = None) -> bool:
    """Ask the open questions of a run; returns whether the person answered all that are for people."""
    from nbagent.notebook.export import types_of  # noqa: PLC0415 - drawn in few scripts

    session = session_of(run)
    return all(
        _asked(
            session.journal,
            each,
            lambda answer, asked=each: session.resolve(asked.id, answer, by=BY),  # type: ignore[misc]
            partial(types_of, run),
            terminal,
        )
        for each in _for_people(run.interrupts)
    )


def _for_people(asked: Iterable[PendingInterrupt]) -> list[PendingInterrupt]:
    return [each for each in asked if each.expects != "external"]


def _asked(
    journal: Journal,
    interrupt: PendingInterrupt,
    send: Callable[[AnyResolution], Future[Any]],
    types_of: Callable[[str], Any] = lambda _name: None,
    terminal: Any = None,
) -> bool:
    """Ask one question until it is answered, here or elsewhere; returns False if the person leaves it open."""
    from .asking import ask_question, no_errors, view_of  # noqa: PLC0415 - drawn in few scripts
    from .terminal import Left, Terminal  # noqa: PLC0415 - as above

    terminal = terminal or Terminal()
    while (question := view_of(journal, types_of).question(interrupt.id)) is not None:
        try:
            resolution = ask_question(terminal, question, interrupt, no_errors)
            if resolution is None:
                return False
            send(resolution).result()
        except Left as left:
            terminal.show()
            if left.by_keyboard:
                raise KeyboardInterrupt from None
            return False
        except CommandError as error:  # such as a missing editor
            terminal.show(f"! {error}")
            return False
        except InvalidAnswer as error:
            terminal.show(f"! {error}")
            continue
        except (Conflict, NotPending) as error:  # meanwhile somebody else has answered
            terminal.show(f"! {error}")
        break
    return True


def ask_rows(batch: Any) -> bool:
    """Ask the questions of a batch's rows; returns whether there were some, and the person answered all."""
    asked = [one for one in batch.questions if one.is_for_person]
    return bool(asked) and all(_asked_of_row(batch, one) for one in asked)


def _asked_of_row(batch: Any, one: Any) -> bool:
    from nbagent.batch.batch import work_of  # noqa: PLC0415 - loaded, as there is a batch
    from nbagent.notebook.export import types_in  # noqa: PLC0415 - drawn in few scripts

    print_aside(f"{one.run.id}:")
    journal = Journal(one.run.id, one.waiting.catalog.store)
    journal.catch_up()

    def send(resolution: AnyResolution) -> Future[Any]:
        answered = one.waiting.answer(one, resolution, by=BY)
        return asyncio.run_coroutine_threadsafe(answered, private_loop())

    return _asked(journal, one.interrupt, send, partial(types_in, work_of(batch).agent.tools))


# --- after its end


def finish(*, is_last: bool) -> None:
    """Wait for what the script started and did not wait for: ask in the terminal, or say what is left, by exit code.

    After an error of the script, or at the end of an interactive shell or of pytest, nothing is waited for, and a run
    whose event loop the script has closed does not go on unless it asks. What is unfinished stays stored as it is.

    Args:
        is_last: whether Python's own threads have ended, so that nothing can go on.
    """
    has_failed = script_error()
    code = 0
    try:
        # a thread may still draw a question whose wait was given up
        if _turn.acquire(timeout=MAX_DRAWING):
            _turn.release()
        for thread in list(started.threads):
            if not (thread.daemon or thread is threading.main_thread() or thread in _executors()):
                thread.join()  # as Python does next: the thread may still wait for its runs
        runs = [*started.runs.values()]  # copied at once, as a batch may start rows meanwhile
        left = [*filter(_is_here, runs), *started.batches]
        is_test = "_pytest" in sys.modules
        is_no_script = has_failed or is_interactive() or is_test
        waits = [one for one in left if not (is_no_script or is_last) and _goes_on(one)]
        lost = [one for one in left if one not in waits and one.status in UNFINISHED]
        _report([] if is_test else lost)
        if lost and isinstance(has_failed, KeyboardInterrupt):
            code = LEFT
        elif lost and not is_no_script:
            code = UNANSWERED if any(one.status == "interrupted" for one in lost) else FAILED
        for one in waits:
            code = max(code, _finish(one))
    except KeyboardInterrupt:
        code = LEFT
    for run in [*started.runs.values()]:
        session = session_of(run)
        if run.status == "running" and is_private(session.loop):
            session.loop.call_soon_threadsafe(session.stop_driving)
    started.forget()
    if code and is_last:
        _exit(code)
    elif code:
        _exit_later(code)


def _exit_later(code: int) -> None:
    """End the process with an exit code, once all threads have ended."""
    atexit.register(_exit, code)  # called first
    util = sys.modules.get("multiprocessing.util")
    if util is not None and util.process.parent_process() and script_error() is None:
        util.Finalize(None, sys.exit, (code,), exitpriority=-sys.maxsize)


def _executors() -> Iterable[Any]:
    """The threads of pools, which end later."""
    pools = sys.modules.get("concurrent.futures.thread")
    return list(getattr(pools, "_threads_queues", ()))


def _is_here(run: Run) -> bool:
    """Whether this process is the one to continue the run."""
    session = session_of(run)
    is_its_own = session.missing_error is None and not session.is_released
    return is_its_own and not session.follower.is_theirs


def _goes_on(one: Any) -> bool:
    """Whether the run or batch has ended or can continue, as its loop runs, or closing the loop has cut nothing off."""
    if one.status not in UNFINISHED:
        return True
    if not isinstance(one, Run):
        from nbagent.batch.batch import loop_of  # noqa: PLC0415 - loaded, as there is a batch

        return is_private(loop_of(one))
    return is_private(session_of(one).loop) or one.status == "interrupted"


def _report(left: Sequence[Any]) -> None:
    """Name what the script leaves unfinished."""
    for one in left[:MAX_REPORTED]:
        is_run = isinstance(one, Run)
        text = f"nbagent: the program ended before its {_named(one)} finished, because "
        if not is_run:
            text += "nothing waited for it. Use nb.map(…).wait(), or await it. With a store, the same call with the same id continues it."
        elif one.interrupts:
            text += f"it waits for an answer. Answer in a terminal, or pass answers=:\n{_open(one)}"
        else:
            text += "nothing waited for it. Use agent.run_sync(…), which returns the result, or await the run."
        if is_run and session_of(one).is_stored:
            place = place_for_others(session_of(one).journal.store) or "…"
            text += f"\nTo continue it: await nb.open_run({one.id!r}, agent=…, store={place!r})"
            if one.interrupts:
                text += f". To answer in a shell: nbagent answer {one.id} --store {quote(place)}"
        print_aside(text)
    if len(left) > MAX_REPORTED:
        print_aside(f"nbagent: and {len(left) - MAX_REPORTED:,} more")


def _named(one: Any) -> str:
    return f"run of {one.agent!r}" if isinstance(one, Run) else f"batch {one.id!r}"


def _finish(one: Any) -> int:
    """Wait for the end of a run or batch, ask its questions, and say what failed; returns the exit code."""
    try:
        return _finished(one) if isinstance(one, Run) else _finished_batch(one)
    except NbagentError as why:
        print_aside(f"nbagent: the {_named(one)} failed: {type(why).__name__}: {why}")
        return FAILED


def _finished(run: Run) -> int:
    """Wait for a run's end and ask its questions; returns the exit code.

    Raises:
        NbagentError: the run failed, or its store did.
    """
    session = session_of(run)
    with session.stopped_by_keyboard():
        while True:
            with _patience(f"{run!r}, which the program did not wait for. Ctrl+C stops it"):
                error = session.when_settled().result()
            is_asked = has_terminal() and run not in started.alone
            if not _for_people(run.interrupts) or not (is_asked and _asked_all(run)):
                break
    if run.status in ("interrupted", "queued"):
        _report([run] * (run.status == "interrupted"))  # a queued run waits for one that is named
        return UNANSWERED
    try:
        if error is not None:
            raise error
        result = run.result
    except Cancelled:
        return 0
    if has_terminal():
        print_aside(f"nbagent: {run.agent}: {result.text or repr(result.output)}")
    return 0


def _finished_batch(batch: Any) -> int:
    """Wait for a batch's end and ask the questions of its rows; returns the exit code.

    Raises:
        NbagentError: the batch failed, or its store did.
    """
    while True:
        try:
            with _patience(f"{batch!r}, which the program did not wait for. Ctrl+C stops it"):
                batch.wait()
            break
        except HumanInputRequired as why:
            if batch in started.alone or not (has_terminal() and ask_rows(batch)):
                print_aside(
                    f"nbagent: the program ended before its batch {batch.id!r} finished. {why}"
                )
                return UNANSWERED
    if batch.status == "waiting":  # for a person who is not here
        print_aside(
            f"nbagent: the program ended before its batch {batch.id!r} finished, because rows wait for answers. "
            "Answer with batch.questions; the same call with the same id continues the batch"
        )
        return UNANSWERED
    has_failed = batch.counts["failed"] > 0
    if has_failed or has_terminal():
        print_aside(f"nbagent: {batch!r}")
    return FAILED if has_failed else 0


@contextmanager
def _patience(what: str) -> Iterator[None]:
    """Say after a while what a script waits for."""
    text = f"nbagent: waiting for {what}"
    timer = threading.Timer(PATIENCE, print_aside, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exit(code: int) -> None:
    """End the process with an exit code, which Python itself does not change at this point, after all other functions."""
    atexit.unregister(_exit)
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit skips them
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it
            stream.flush()
    os._exit(code)
