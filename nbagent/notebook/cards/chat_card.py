"""The live card of a chat: the runs, one below the other, and a message box.

The card of a single run is a chat card too. Once the run has ended, the page offers the message box, and a message
there makes the card a chat. Unsent text and files are stored for a reload, but not in a trait.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from nbagent.core.base.errors import NbagentError, UsageError
from nbagent.core.base.events import Event, RunStarted
from nbagent.core.base.file_parts import Content, Part, files_of
from nbagent.core.base.messages import is_prompt, user
from nbagent.core.call.threads import run_in_thread
from nbagent.core.chat import Chat, named_tools, thread_of
from nbagent.core.journal.journal import RunEvent
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.session import Session
from nbagent.core.tools.attachments import File, prompt_content
from nbagent.notebook import kernel, variables
from nbagent.notebook.export import view_of_chat
from nbagent.notebook.render import plain
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.render.shorthand import common_start
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import (
    Attach,
    Attached,
    Complete,
    Drafts,
    FieldError,
    MessageItem,
    Name,
    Names,
    Press,
    SaidFile,
    Say,
)

from .card import Card
from .charts import Charts
from .run_card import RunCard, static_bundle, with_prints

MAX_MESSAGE = 100_000
MAX_FILES = 10
MAX_BYTES = 6 * 2**20
"""Bytes of all files of one message: a server closes the channel on messages of 10 MiB, and base64 adds a third."""
MAX_KEPT = 2 * MAX_BYTES
"""Bytes of all files that are not sent yet, which several pages may have attached; the oldest are dropped."""
MAX_NAME = 200
MAX_PREFIX = 100
MAX_SUBMISSIONS = 100
"""Messages that are recognized if a page sends them twice."""


class ChatCard(RunCard):
    """A chat's card: the earlier runs, and below them the newest run, to which most actions apply.

    ``run`` is the first run, if this is the card of a single run; None for a chat that code made.
    """

    def __init__(self, chat: Chat, run: Run | None = None) -> None:
        self.chat = chat
        self._run = run
        self._thread = thread_of(chat)
        self._first_session = None if run is None else session_of(run)
        if self._first_session is None:
            self.loop = kernel.kernel_loop() or asyncio.get_running_loop()
        else:
            self.loop = self._first_session.loop
        agent = reveal(self._thread.spec().agent)
        self._prepare(ThreadView(agent, chat=run is None))
        self.on_change: Callable[[Event | None], None] = lambda _event: None
        """Called with each stored event, and with None when the shown runs have changed."""
        self._written = ""
        """The unsent text in the box; on the loop only."""
        self._attached: dict[str, SaidFile] = {}
        """The files in the box, by their ids; on the loop only."""
        self._submissions: deque[str] = deque(maxlen=MAX_SUBMISSIONS)
        self._follow_runs()
        self.view.flush(time.monotonic())
        Card.__init__(self)
        self._thread.listen(self._follow_runs)

    def bundle(self) -> dict[str, str]:
        """The single run, or the thread, as HTML and text that need no kernel."""
        if self._run is not None and self.chat.runs == (self._run,):
            return static_bundle(self._run, self)
        return chat_bundle(self.chat, self)

    def detach(self) -> None:
        """Stop following the runs."""
        self._thread.unlisten(self._follow_runs)
        super().detach()

    def __repr__(self) -> str:
        return f"ChatCard({self.chat!r})"

    # --- to the pages

    def _follow_runs(self) -> None:
        """Show the current runs of the thread."""
        with self._lock:
            runs = list(self._thread.runs)
            same_count = common_start([run for run, _ in self._followed], runs)
            for run, listener in self._followed[same_count:]:
                run.unsubscribe(listener)
            del self._followed[same_count:]
            self.view.keep_first(same_count)
            if runs[same_count:] != runs:
                self._later(self._draw_charts)
            was_chat = self.view.chat
            for run in runs[same_count:]:
                self._follow(run)
            if self.view.chat != was_chat:
                self._later(self.greet)  # a chat has other texts
            self._send_soon()
        self.on_change(None)

    def _follow_event(self, session: Session, view: SingleRunView, event: RunEvent) -> None:
        super()._follow_event(session, view, event)
        if isinstance(event, Event):
            self.on_change(event)

    def _draw_charts(self) -> None:
        self._charts.close()
        self._charts = Charts(event for run, _ in self._followed for event in run.journal)
        self.rows_changed()

    def allow_staying_live(self) -> None:
        """Let the page offer a follow-up, if the single run has a conversation to continue."""
        session = self._first_session
        with self._lock:  # a flow, or a run that never started, has no conversation
            self.view.can_ask = (
                session is not None
                and session.spec.model is not None
                and session.state.queue_event is None
            )
            self.push()

    # --- from the pages

    def _pressed(self, message: Press) -> None:
        if message.action != "shorten" or not self.view.offers(message.notice, message.action):
            super()._pressed(message)
        elif self._run_of(message.notice) == self._newest.id:
            self._send_again(self._thread.shorten)
        else:
            self._say_not_retried(TEXTS["too_long_followed"])

    @property
    def _open_session(self) -> Session | None:
        run = self._thread.open_run
        return None if run is None else session_of(run)

    def _complete(self, message: Complete) -> None:
        text = message.text[:MAX_PREFIX]
        names = variables.offered(text[1:]) if text.startswith("@") else self._tools(text[1:])
        if not text:  # an empty chat: what to begin with
            tools = [each.model_copy(update={"name": f"/{each.name}"}) for each in names]
            names = [*(Name(name=reveal(each)) for each in self._thread.starters), *tools]
        self.send_message(Names(text=text, names=names))

    def _tools(self, prefix: str) -> list[Name]:
        found = [
            Name(name=reveal(name), about=reveal(about)[:120])
            for name, about in named_tools(self._thread)
            if name.lower().startswith(prefix.lower())
        ]
        return found[: variables.MAX_NAMES]

    def _keep_drafts(self, message: Drafts) -> None:
        if message.interrupt:
            super()._keep_drafts(message)
        else:
            self._written = str(message.drafts or "")[:MAX_MESSAGE]

    def _attach(self, message: Attach) -> None:
        self._attached.pop(message.id, None)
        if message.file is not None:
            self._attached[message.id] = message.file
        while len(self._attached) > 2 * MAX_FILES or _size(self._attached.values()) > MAX_KEPT:
            self._attached.pop(next(iter(self._attached)))

    def _unsent_box(self) -> dict[str, Any]:
        attached = [
            Attached(id=each, name=file.name, size=_size([file]))
            for each, file in self._attached.items()
        ]
        return {"written": self._written, "attached": attached}

    def _take_message(self, message: Say) -> None:
        if message.submission in self._submissions:
            return  # the first copy's receipt goes to every page
        self._submissions.append(message.submission)
        self._written = ""
        self._start_task(self._send_message(message))

    async def _send_message(self, message: Say) -> None:
        errors: list[FieldError] = []
        try:
            replaced, queued = self._replaced(message)
            if any(each not in self._attached for each in message.files):
                raise UsageError(TEXTS["message_file_missing"])
            files = [self._attached[each] for each in message.files]
            prompt = await run_in_thread(partial(self._prompt, message, files, replaced, queued))
            if replaced is not None and queued is not None:
                new = prompt_content(prompt)
                stored: Any = session_of(replaced).replace_queued(queued, new, by="form")
            elif replaced is not None:
                stored = session_of(self._thread.edit(replaced, prompt)).when_started
            else:
                stored = session_of(self._thread.send(prompt)).when_started
            if stored is not None:  # a slow store may still refuse the message
                await asyncio.wrap_future(stored)
            for each in message.files:
                self._attached.pop(each, None)
        except NbagentError as error:
            errors = [FieldError(field=None, message=reveal(str(error)))]
        self._receipt(message.submission, "", errors)

    def _replaced(self, message: Say) -> tuple[Run | None, Content | None]:
        """The run whose prompt the message replaces, or whose queued message; None for a new message."""
        if message.instead is None:
            return None, None
        with self._lock:
            shown = self.view.snapshot().items
            place = self.view.place(message.instead)
            is_editable = any(
                one.key == message.instead and isinstance(one, MessageItem) and one.editable
                for one in shown
            )
            if place is None or not is_editable:
                raise UsageError(TEXTS["message_missing"])
            return self._followed[place][0], self.view.queued(message.instead)

    def _prompt(
        self, message: Say, files: list[SaidFile], replaced: Run | None, queued: Content | None
    ) -> list[Any]:
        """The content of the message: its text, its files, the variables it names.

        Raises:
            UsageError: the message is empty, too long, has too many or too large files, or names a variable that
                cannot be summarized or no longer exists.
        """
        before: list[Part] = []
        """The files of the replaced prompt."""
        if queued is not None:
            before = list(files_of(user(queued)))
        elif replaced is not None:
            started = next(
                (each for each in replaced.journal if isinstance(each, RunStarted)), None
            )
            prompts = [] if started is None else [one for one in started.messages if is_prompt(one)]
            before = list(files_of(prompts[-1])) if prompts else []
        kept = [
            File(base64.b64decode(part["data"]), part["media_type"], name=part.get("name"))
            for number, part in enumerate(before)
            if number in message.keep and not str(part.get("name", "")).startswith("@")
        ]
        if not message.text.strip() and not files and not kept:
            raise UsageError(TEXTS["message_empty"])
        if len(message.text) > MAX_MESSAGE:
            raise UsageError(TEXTS["message_too_long"].format(n=f"{MAX_MESSAGE:,}"))
        if len(files) + len(kept) > MAX_FILES:
            raise UsageError(TEXTS["message_too_many_files"].format(n=MAX_FILES))
        if _size(files) > MAX_BYTES:
            raise UsageError(TEXTS["message_files_too_large"].format(n=MAX_BYTES // 2**20))
        text = self._with_tool(message.text)
        named = variables.mentioned(message.text, {str(part.get("name")) for part in before})
        return [*([text] if text.strip() else []), *kept, *map(_file, files), *named]

    def _with_tool(self, text: str) -> str:
        """The text with ``/name`` at its start replaced by words for the model."""
        name = text[1:].split(maxsplit=1)[0] if text.startswith("/") and text[1:].strip() else ""
        instruction = TEXTS["use_tool"].format(tool=name)
        is_tool = any(name == known for known, _ in named_tools(self._thread))
        return f"{text.rstrip()}\n\n{instruction}" if is_tool and instruction not in text else text


def _size(files: Iterable[SaidFile]) -> int:
    """The size of the files in bytes, if their data is valid base64."""
    return sum(len(file.data) * 3 // 4 - file.data[-2:].count("=") for file in files)


def _file(sent_file: SaidFile) -> File:
    try:
        data = base64.b64decode(sent_file.data, validate=True)
    except binascii.Error as error:
        raise UsageError(TEXTS["file_unreadable"]) from error
    kind = sent_file.media_type.partition(";")[0].strip().lower()
    return File(data, kind or None, name=sent_file.name[-MAX_NAME:])


def chat_bundle(chat: Chat, card: Card | None = None) -> dict[str, str]:
    """The thread as HTML and text that need no kernel; ``card`` as in ``static_bundle``."""
    shown = with_prints(view_of_chat(chat, with_place=True), card)
    return plain.bundle(shown, measured=card is not None)
