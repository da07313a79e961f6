"""The kernel as the host of runs: it provides their event loop and shows their cards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from nbagent.core.base.errors import HumanInputRequired, RunError
from nbagent.core.call.threads import running_loop
from nbagent.core.chat import Chat, is_active, thread_of
from nbagent.core.run.run import Run, session_of
from nbagent.core.stored.listing import Runs

from . import kernel
from .capture import capture
from .render.reveal import reveal
from .texts import TEXTS
from .tracebacks import show_line


class NotebookHost:
    """The host of runs in a kernel: cards are live if a front end is attached, else static."""

    def __init__(self) -> None:
        self._started: dict[str, _Started] = {}
        """The runs that each cell started, by cell id."""
        self._displays: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """The live displays by run id, as weak references: a run holds its display as a listener."""
        self._batches: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._chats: dict[Chat, Any] = {}
        self._earlier: WeakKeyDictionary[Run, list[Run]] = WeakKeyDictionary()
        """For each run, the runs of the same cell that were unfinished at its start."""

    def attended(self) -> bool:
        """Whether a front end can answer."""
        return kernel.attended()

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:
        """The kernel's loop if a person is there; otherwise a private loop, so that cells may block."""
        return kernel.kernel_loop() if attended else kernel.unattended_loop()

    def cell(self) -> tuple[str, str] | None:
        """The ids of the cell and of its execution; None outside of cells, or if the front end sends no cell id."""
        cell, key = kernel.cell_id(), kernel.execution_key()
        return None if cell is None or key is None else (cell, key)

    def started(
        self,
        run: Run,
        *,
        on_rerun: str,
        is_opened: bool = False,
        only_looks: bool = False,  # noqa: ARG002 - Host
    ) -> None:
        """Register a run of this cell; with ``"cancel"``, stop the cell's earlier runs that execute nothing."""
        capture.install()
        cell, key = kernel.cell_id(), kernel.execution_key()
        if cell is None:
            return
        earlier = self._left_of(cell, key)
        if on_rerun == "cancel":
            earlier = _stopped(earlier)
        self._earlier[run] = earlier
        if not is_opened:  # a rerun does not cancel a run that the cell only opened
            kernel.cells_with_runs.add(cell)
            self._belongs(cell, key, run)

    def _belongs(self, cell: str | None, key: str | None, run: Run) -> None:
        """Register the run for this execution of the cell, whose code or whose card started the run."""
        if cell is not None:
            self._started.setdefault(cell, _Started()).add(run, key)

    def _left_of(self, cell: str, key: str | None) -> list[Run]:
        """The unfinished runs of earlier executions of the cell."""
        return self._started[cell].before(key) if cell in self._started else []

    def _new_run_listener(self, chat: Chat | None) -> Callable[[Run], None]:
        """A listener that registers each run started in a card of the current cell, such as a follow-up."""
        if chat is not None and thread_of(chat).is_named:
            return lambda _run: None  # a rerun of the cell continues the named thread
        return partial(self._belongs, kernel.cell_id(), kernel.execution_key())

    def earlier(self, run: Run) -> list[Run]:
        """The runs of the same cell that were unfinished when this run was started."""
        return self._earlier.get(run, [])

    def show(self, run: Run) -> None:
        """Show the run's card in the calling cell."""
        from .cards.display import Shown  # noqa: PLC0415 - ipywidgets and anywidget load here, not sooner

        shown = self._displays.get(run.id)
        if shown is None:
            earlier, on_new_run = self.earlier(run), self._new_run_listener(None)
            shown = self._displays[run.id] = Shown(run, earlier=earlier, on_new_run=on_new_run)
        shown.show(kernel.execution_key())

    def display(self, run: Run) -> None:
        """Display a run that is a cell's last line: live, or once the run has settled if nobody is there."""
        if not session_of(run).attended:
            from .cards.display import publish_static  # noqa: PLC0415 - not needed where nothing is shown

            kernel.pump(session_of(run).when_settled())
            publish_static(run)
            if run.status != "completed":
                self._fail(run)
            return
        shown = self._displays.get(run.id)
        if shown is None or not shown.is_shown_in(kernel.execution_key()):
            self.show(run)

    def value(self, run: Run) -> Any:
        """Return the run's repr; a kernel draws cards as output, not as values."""
        return repr(run)

    def _fail(self, run: Run) -> None:
        """Raise the run's error, so that the cell fails; the cell shows one line, because the card shows the rest."""
        try:
            run.wait()
        except RunError as error:
            show_line(error, f"{type(error).__name__}: {error}")
            raise

    def show_chat(self, chat: Chat, *, talks: bool = False) -> None:  # noqa: ARG002 - Host
        """Show a chat: live, or as a static card once its run has settled if nobody is there."""
        from IPython.display import display  # noqa: PLC0415 - a kernel has it by now

        from .cards.chat_card import chat_bundle  # noqa: PLC0415 - as above
        from .cards.display import ShownChat  # noqa: PLC0415 - as above

        if not kernel.attended():
            run = thread_of(chat).open_run
            if run is not None:
                kernel.pump(session_of(run).when_settled())
            display(chat_bundle(chat), raw=True)  # type: ignore[no-untyped-call]
            return
        shown = self._chats.get(chat)
        if shown is None:
            shown = self._chats[chat] = ShownChat(chat, on_new_run=self._new_run_listener(chat))
        cell, key = kernel.cell_id(), kernel.execution_key()
        if cell is not None and not thread_of(chat).is_named:
            _stopped([r for r in self._left_of(cell, key) if r not in chat.runs])
        shown.show(key)

    def show_runs(self, listed: Runs) -> bool:
        """Show a list of runs live if a front end is attached; return whether it was shown."""
        if not kernel.attended():
            return False
        from .cards.display import ShownTable  # noqa: PLC0415 - as above
        from .cards.runs_card import RunsCard  # noqa: PLC0415 - as above
        from .inbox_list import relative_place  # noqa: PLC0415 - as above

        listing = listed.listing
        chosen = [listing.agent or "", *(TEXTS[f"run_{one}"] for one in listing.statuses or ())]
        scope_text = " · ".join(filter(None, (relative_place(listing.catalog.store), *chosen)))
        ShownTable(RunsCard(listing, reveal(scope_text), listed.limit)).show()
        return True

    def show_batch(self, batch: Any) -> None:
        """Show a batch live in the calling cell."""
        from .cards.batch_card import BatchCard  # noqa: PLC0415 - not needed where no batch is
        from .cards.display import ShownTable  # noqa: PLC0415 - as above

        shown = self._batches.get(batch)
        if shown is None:
            shown = self._batches[batch] = ShownTable(BatchCard(batch))
        shown.show(kernel.execution_key())

    def display_batch(self, batch: Any) -> None:
        """Display a batch that is a cell's last line: live, or once it has paused or ended if nobody is there."""
        if kernel.attended():
            shown, key = self._batches.get(batch), kernel.execution_key()
            if shown is None or key is None or shown.key != key:  # else the cell shows the batch
                self.show_batch(batch)
            return
        from IPython.display import display  # noqa: PLC0415 - a kernel has it by now

        from nbagent.batch.batch import work_of  # noqa: PLC0415 - not needed where no batch is

        from .cards.batch_card import bundle  # noqa: PLC0415 - as above

        kernel.pump(work_of(batch).when(batch.is_over))
        display(bundle(batch), raw=True)  # type: ignore[no-untyped-call]
        batch._outcome()  # noqa: SLF001 - raises its error, so that the cell fails

    async def wait(self, run: Run, future: Future[Any]) -> None:
        """Wait in a cell for the future, while forms work; the kernel's stop button stops the run."""
        try:
            await kernel.wait(future, on_kernel_interrupt=partial(self._stop, run))
        except asyncio.CancelledError as error:
            show_line(error, TEXTS["kernel_stopped"])
            raise

    def wait_sync(self, run: Run, future: Future[Any], *, attended: bool) -> None:  # noqa: ARG002 - Host
        """Do the same as ``wait`` in synchronous code."""
        try:
            kernel.pump(future, on_kernel_interrupt=partial(self._stop, run))
        except KeyboardInterrupt as error:
            show_line(error, TEXTS["kernel_stopped"])
            raise

    def ask_rows(self, batch: Any, *, attended: bool) -> bool:  # noqa: ARG002 - Host
        """False: the batch's card asks."""
        return False

    async def on_main(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the kernel's main thread, between cells or while a cell waits for a run."""
        if running_loop() is kernel.kernel_loop():
            return work()
        return await asyncio.wrap_future(kernel.on_main(partial(copy_context().run, work)))

    def marks_person(self) -> bool:
        """Mark the code of cells and of the page's messages from now on; returns whether this kernel can."""
        return kernel.mark_requests()

    def present(self, value: Any, /) -> dict[str, Any] | None:
        """A mime bundle of a value that has a richer form than its JSON, or None."""
        return capture.present(value)

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:
        """Ask in a form below the cell's output.

        Raises:
            Rejected: the person cancels the form.
            HumanInputRequired: nobody is there, or the caller is a tool or is not on the kernel's loop.
        """
        if not kernel.attended() or running_loop() is not kernel.kernel_loop():
            raise HumanInputRequired("Only a run in the notebook itself can show a form")
        from .forms import ask_outside  # noqa: PLC0415 - ipywidgets and anywidget load here

        return await ask_outside(reply, message, link=link)

    @contextmanager
    def signing_in(self) -> Iterator[None]:
        """Show meanwhile, in its cards, that the run of the current task waits until a person has signed in."""
        shown = [*(ref() for ref in self._displays.valuerefs()), *self._chats.values()]
        live = [one.live.card for one in shown if one is not None and one.live]
        cards = [card for card in live if card.is_driven_by(asyncio.current_task())]
        for card in cards:
            card.signing_in(now=True)
        try:
            yield
        finally:
            for card in cards:
                card.signing_in(now=False)

    def _stop(self, run: Run) -> Future[None]:
        shown = self._displays.get(run.id)
        if shown is not None:
            shown.stopping()
        return session_of(run).stop(by=TEXTS["kernel_stop"])


class _Started:
    """The unfinished runs that one cell started, by the execution that started them."""

    def __init__(self) -> None:
        self._by_execution: dict[str | None, dict[Run, None]] = {}
        self._tidy_at = 8
        """The number of runs at which ended runs are removed next; the removal checks each run."""
        self._count = 0

    def add(self, run: Run, key: str | None) -> None:
        """Register the run for this execution, and for no other execution."""
        for runs in self._by_execution.values():
            if run in runs:
                del runs[run]
                self._count -= 1
        self._by_execution.setdefault(key, {})[run] = None
        self._count += 1
        if self._count >= self._tidy_at:
            self._tidy()

    def before(self, key: str | None) -> list[Run]:
        """The unfinished runs of all executions except this one."""
        if set(self._by_execution) - {key}:
            self._tidy()
        return [run for k, runs in self._by_execution.items() if k != key for run in runs]

    def _tidy(self) -> None:
        unfinished = {k: dict.fromkeys(filter(is_active, r)) for k, r in self._by_execution.items()}
        self._by_execution = {k: runs for k, runs in unfinished.items() if runs}
        self._count = sum(map(len, self._by_execution.values()))
        self._tidy_at = max(8, 2 * self._count)


def _stopped(runs: list[Run]) -> list[Run]:
    """Stop the runs that execute nothing, because their cell was run again; return the other runs."""
    for run in runs:
        if not session_of(run).executing:
            session_of(run).stop(by=TEXTS["cell_rerun"])
    return [run for run in runs if session_of(run).executing]


_host = cache(NotebookHost)


def find() -> NotebookHost | None:
    """The kernel's host, or None if this process is not a kernel."""
    return _host() if kernel.in_kernel() else None
