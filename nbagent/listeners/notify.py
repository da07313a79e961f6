"""``nb.notify``: messages about open questions, to a function or to an address outside of this program.

A listener of each run notes a question when it is stored. A thread sends what is still open a moment later, so that
nothing here can delay a run. The questions of one batch, or of several runs, that open at once are one message.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeAlias, overload
from weakref import WeakSet

from nbagent.core.base.controls import escaped_repr
from nbagent.core.base.errors import StoreError, UsageError
from nbagent.core.base.events import Interrupted
from nbagent.core.base.hidden import hidden_in
from nbagent.core.base.interrupts import LIMIT_LABEL
from nbagent.core.base.messages import dumps
from nbagent.core.base.secrets import shown
from nbagent.core.hooks import hooks
from nbagent.core.journal.default import place_for_others
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.run.session import Session, all_sessions
from nbagent.core.state.state import RunState

GATHER = 1.0
"""Seconds after a question in which further questions join its message, and an answer makes it unnecessary."""
INTERVAL = 60.0
"""Minimum seconds between two messages about the same run or batch."""
TIMEOUT = 30.0
"""Seconds after which a message counts as not sent."""
AT_EXIT = 10.0
"""Maximum seconds that the end of the program waits for messages."""
MAX_LISTED = 5
"""Questions that a message lists; it counts the others."""
MAX_LINE, MAX_INPUT, MAX_NAME, MAX_TEXT = 200, 500, 60, 1_800
"""Maximum characters of a question, an input, a name and the whole text; chat services refuse text over 2,000."""
MAX_NOTED = 10_000
"""Questions that are remembered, so that none is sent twice."""

logger = logging.getLogger("nbagent")


@escaped_repr
@dataclass(frozen=True, slots=True)
class Notification:
    """A message about open questions. ``str()`` returns title and text."""

    title: str
    """One line: which agent waits, and for how many answers."""
    text: str
    """The questions, and how to answer them."""
    runs: tuple[str, ...]
    """The ids of the runs that ask."""

    def __str__(self) -> str:
        return f"{self.title}\n\n{self.text}"


Recipient: TypeAlias = Callable[[Notification], object]


class _Question(NamedTuple):
    """A question that no message has reported yet."""

    journal: Journal
    event: Interrupted
    at: float
    """The monotonic time at which the question opened."""

    @property
    def group(self) -> str:
        """The batch of the run, or the run: what gets at most one message a minute."""
        row = self.journal.state.row
        return self.journal.run_id if row is None else row.batch

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered the question."""
        state = self.journal.state
        return state.outcome is None and any(one.id == self.event.id for one in state.pending)


@dataclass(frozen=True)
class _Listener:
    """The listener of one run."""

    notifier: Notifier
    journal: Journal

    def __call__(self, event: RunEvent) -> None:
        """Note a new question, if this process drives the run: then no other process reports the question too."""
        if type(event) is Interrupted and self.journal.may_drive:
            self.notifier.note(self.journal, event)


class Notifier:
    """Sends messages about open questions until ``stop``, or until the end of a ``with`` block."""

    def __init__(self, name: str, send: Callable[[Notification], object], *, inputs: bool) -> None:
        self.name = name
        """The recipient's name in log lines: an address without its credentials, or a function's name."""
        self._send = send
        self._has_inputs = inputs
        self._process = os.getpid()
        self._noted: OrderedDict[str, None] = OrderedDict()
        self._sent: dict[str, float] = {}
        """The monotonic time of the last message about each run or batch."""
        self._is_hurried = False
        """Whether messages are sent at once, because the program ends."""
        self._has_failed = False
        self.start_anew()

    def start_anew(self) -> None:
        """Forget the questions that no message has reported."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[str, _Question] = {}
        self._thread: threading.Thread | None = None
        self._attempt: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "" if self in _active.values() else ", stopped"
        return f"<Notifier to {self.name}{state}>"

    def stop(self) -> None:
        """Report no further questions. Questions that opened before are still reported, without waiting for it."""
        for key in [key for key, one in _active.items() if one is self]:
            del _active[key]
        hooks.live_runs = tuple(one for one in hooks.live_runs if one != self.watch)
        hooks.rows_elsewhere = tuple(one for one in hooks.rows_elsewhere if one != self.note_row)
        for session in all_sessions():
            session.journal.unsubscribe(_Listener(self, session.journal))

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # --- noting questions: quick, on any thread

    def watch(self, session: Session) -> None:
        """Report the questions that this run opens from now on."""
        try:
            session.journal.subscribe(_Listener(self, session.journal))
        except StoreError as error:  # the run itself reports it
            logger.warning("questions of run %s are not reported: %s", session.run_id, error)

    def note_row(self, journal: Journal, _events: object) -> None:
        """Report the open questions of a batch's row that another process ran."""
        for event in journal.state.pending:
            self.note(journal, event)

    def note(self, journal: Journal, event: Interrupted) -> None:
        """Note an open question for the next message."""
        is_of_worker = journal.state.row is not None and os.getpid() != self._process
        if event.external is not None or event.kind == "later" or is_of_worker:
            return  # another system answers; or the process with the batch reports it
        with self._changed:
            if event.id in self._noted:
                return
            self._noted[event.id] = None
            if len(self._noted) > MAX_NOTED:
                self._noted.popitem(last=False)
            self._waiting[event.id] = _Question(journal, event, time.monotonic())
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="nbagent notify", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    # --- sending, on a thread of its own

    def flush(self, until: float) -> None:
        """Send everything at once, and wait for it until this monotonic time."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            while self._thread is not None and self._thread.is_alive():
                if (left := until - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            self._is_hurried = False

    def _work(self) -> None:
        while True:
            if self._attempt is not None:  # what is still open after it is sent
                self._attempt.join()
            with self._changed:
                while not (ready := self._ready()):
                    if not self._waiting:
                        self._thread = None
                        self._changed.notify_all()
                        return
                    next_at = min(self._times().values())
                    self._changed.wait(max(0.0, next_at - time.monotonic()))
                for one in ready:
                    del self._waiting[one.event.id]
            asked = [one for one in ready if one.is_open]
            if asked:
                self._sent |= {one.group: time.monotonic() for one in asked}
                self._deliver(_message(asked, inputs=self._has_inputs))

    def _times(self) -> dict[str, float]:
        """The time of the next message about each run or batch with a question."""
        first: dict[str, float] = {}
        for one in self._waiting.values():
            first.setdefault(one.group, one.at)
        last = {group: at for group, at in self._sent.items() if at > time.monotonic() - INTERVAL}
        self._sent = last
        return {
            group: max(at + GATHER, last[group] + INTERVAL if group in last else 0.0)
            for group, at in first.items()
        }

    def _ready(self) -> list[_Question]:
        """The questions of the next message, if it is time for one."""
        times, now = self._times(), time.monotonic()
        return [
            one
            for one in self._waiting.values()
            if self._is_hurried or times.get(one.group, now) <= now
        ]

    def _deliver(self, message: Notification) -> None:
        """Send a message. A recipient that never returns delays only later messages."""
        errors: list[str] = []

        def attempt() -> None:
            try:
                result = self._send(message)
                if inspect.isawaitable(result):
                    asyncio.run(asyncio.wait_for(result, TIMEOUT))
            except BaseException as error:
                is_apprise = isinstance(error, _NotSent)
                # the text of an error may have the address
                errors.append("Apprise could not send it" if is_apprise else type(error).__name__)

        self._attempt = threading.Thread(target=attempt, name="nbagent notify", daemon=True)
        self._attempt.start()
        self._attempt.join(TIMEOUT)
        if self._attempt.is_alive():
            errors.append(f"no reply in {TIMEOUT:g} seconds")
        else:
            self._attempt = None
        if errors and not self._has_failed:
            logger.warning("nb.notify could not reach %s: %s", self.name, errors[0])
        self._has_failed = bool(errors)


# --- the message


def _message(asked: Sequence[_Question], *, inputs: bool) -> Notification:
    agents = list(dict.fromkeys(_line(_agent(one.journal.state), MAX_NAME) for one in asked))
    if len(asked) == 1:
        title = f"{agents[0]} is waiting for your answer"
    elif len(agents) == 1:
        title = f"{agents[0]} has {len(asked)} questions for you"
    else:
        title = f"{len(asked)} questions are waiting for you"
    lines = []
    for one in asked[:MAX_LISTED]:
        name = _line(one.event.tool_name or LIMIT_LABEL, MAX_NAME)
        lines.append(f"{_line(_agent(one.journal.state), MAX_NAME)}: {name} {_asks(one.event)}")
        if inputs and one.event.input:
            lines.append(f"  input: {_line(dumps(shown(one.event.input)), MAX_INPUT)}")
    if len(asked) > MAX_LISTED:
        lines.append(f"and {len(asked) - MAX_LISTED} more")
    text = _cut("\n".join(lines), MAX_TEXT)
    runs = tuple(dict.fromkeys(one.journal.run_id for one in asked))
    return Notification(title, "\n".join([text, "", *_ways(asked, runs)]), runs)


def _agent(state: RunState) -> str:
    return state.agent or "nbagent"


def _asks(event: Interrupted) -> str:
    """The question; without inputs, so that only a question in words is in it."""
    metadata = event.metadata if event.asking is None else event.asking
    for key in ("message", "question"):
        if isinstance(metadata, Mapping) and isinstance(metadata.get(key), str):
            return f'asks "{_line(metadata[key], MAX_LINE)}"'
    is_approval = event.expects in ("approval", "edit", "confirmation")
    return "asks for approval" if is_approval else "asks for an answer"


def _ways(asked: Iterable[_Question], runs: Sequence[str]) -> list[str]:
    """How to answer."""
    notebook = re.split(r"[/\\]", os.environ.get("JPY_SESSION_NAME", ""))[-1]
    ways = [f"To answer, open {_line(notebook, MAX_NAME)}"] if notebook else []
    places = dict.fromkeys(place_for_others(one.journal.store) for one in asked)
    for place in [place for place in places if place is not None][:MAX_LISTED]:
        shell = "To answer in a shell"
        at = f"--store {quote(place if '://' in place else str(Path(place).absolute()))}"
        several = f"{shell}, list the runs with: nbagent runs {at}"
        ways.append(_line(several if runs[1:] else f"{shell}: nbagent answer {runs[0]} {at}", 500))
    return ways or ["To answer, return to the program that started the run"]


def _line(text: str, limit: int) -> str:
    """A text of others as one line, cut, with a sign for each character that nobody sees."""
    line = re.sub(r"[ \t\r\n]+", " ", text[: 2 * limit + 1]).strip()
    hidden = dict(hidden_in(line))
    return _cut(
        "".join(f"⟨U+{ord(c):04X}⟩" if at in hidden else c for at, c in enumerate(line)), limit
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# --- the recipients


class _NotSent(Exception):
    """Apprise could not send a message."""


_is_sending = ContextVar("nbagent_notify_is_sending", default=False)
"""Whether this code sends a message; Apprise copies the context to its own threads."""


def _aside(_record: logging.LogRecord) -> bool:
    """Remove Apprise's log records about messages of this module, which may have an address."""
    return not _is_sending.get()


@contextmanager
def _sending() -> Iterator[None]:
    token = _is_sending.set(True)
    try:
        yield
    finally:
        _is_sending.reset(token)


def _through_apprise(address: str) -> Callable[[Notification], None]:
    """The function that sends a message to an address.

    Raises:
        UsageError: Apprise is not installed, or does not know the address.
    """
    try:
        apprise: Any = import_module("apprise")
    except ModuleNotFoundError:
        raise UsageError(
            'nb.notify(to="…://…") needs Apprise: pip install "jupyter-nbagent[notify]"'
        ) from None
    logging.getLogger("apprise").addFilter(_aside)
    known = apprise.Apprise()
    with _sending():
        is_known = known.add(address)
    if not is_known:
        raise UsageError(
            f"Apprise cannot use the address {_scheme(address)!r}. It describes the form of each address at "
            "https://appriseit.com/services/"
        )

    def send(message: Notification) -> None:
        with _sending():
            is_sent = known.notify(title=message.title, body=message.text, body_format="text")
        if not is_sent:
            raise _NotSent

    return send


def _scheme(address: str) -> str:
    return _line(f"{address.partition('://')[0]}://…", MAX_NAME)


@overload
def notify(to: None = None) -> None: ...
@overload
def notify(to: str | Recipient, *, inputs: bool = False) -> Notifier: ...
def notify(to: str | Recipient | None = None, *, inputs: bool = False) -> Notifier | None:
    """Send a message when a question of any run opens; without ``to``, show the button for the browser's notifications.

    A message has the agent's name, the question, and how to answer. Questions that open at once are one message; a
    run, or a batch, gets at most one message a minute. A question that is answered within a second is not reported. The
    recipient is called on a thread of its own: if it fails or is slow, a warning is logged, and runs continue.

    Example:
            nb.notify(to="slack://token_a/token_b/token_c/#approvals")

    Args:
        to: a function, sync or async, which is called with a ``Notification`` (``title``, ``text``, ``runs``). Or an
            address that Apprise knows, such as a mail server, Slack, Teams or a webhook. Addresses need
            ``pip install "jupyter-nbagent[notify]"``. The same recipient again replaces the earlier one.
        inputs: True to send the inputs of the calls too. Secrets are masked.

    Raises:
        UsageError: the recipient cannot be used; or there is none, and this is not a notebook.
    """
    if inputs not in (True, False):
        raise UsageError(f"inputs must be True or False, got {inputs!r:.80}")
    if to is not None and sys.platform == "emscripten":
        raise UsageError("nb.notify(to=…) needs threads, which Python in a web page does not have")
    if to is None:
        if inputs:
            raise UsageError("inputs= needs to=. The browser's notifications have no inputs")
        hooks.browser_button()
        return None
    if isinstance(to, str):
        if "://" not in to:
            raise UsageError(
                'to= must be a function, or an address with its service, such as "slack://…"'
            )
        key, notifier = to, Notifier(_scheme(to), _through_apprise(to), inputs=inputs)
    elif callable(to):
        name = getattr(to, "__name__", type(to).__name__)
        path = getattr(to, "__qualname__", "<object>")
        key = f"{getattr(to, '__module__', '')}:{path}:{id(getattr(to, '__self__', None))}"
        key += f":{id(to)}" if "<" in path else ""  # several may have this name, or this class
        notifier = Notifier(_line(f"the function {name}", MAX_NAME), to, inputs=inputs)
    else:
        raise UsageError(f"to= must be a function or an address, got {type(to).__name__}")
    if key in _active:
        _active[key].stop()
    _active[key] = notifier
    _made.add(notifier)
    hooks.live_runs += (notifier.watch,)
    hooks.rows_elsewhere += (notifier.note_row,)
    for session in all_sessions():
        notifier.watch(session)
    return notifier


_active: dict[str, Notifier] = {}
"""The notifiers of this process, by recipient."""
_made: WeakSet[Notifier] = WeakSet()
"""The notifiers of this process, also the stopped ones, which may have something left to send."""


def _leave_to_parent() -> None:
    """Leave the questions of before to the parent process, because this process is a fork of it."""
    for one in list(_made):
        one.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _flush() -> None:
    """Send what is left, because the program ends; in all, no longer than ``AT_EXIT``."""
    began = time.monotonic()
    for one in list(_made):
        one.flush(began + AT_EXIT - _spent[0])
    _spent[0] += time.monotonic() - began


_spent = [0.0]
"""The seconds that the program's end has waited."""
with suppress(RuntimeError):  # the main module has ended already
    # while executors still work
    getattr(threading, "_register_atexit", atexit.register)(_flush)
atexit.register(_flush)  # for runs that continued meanwhile
