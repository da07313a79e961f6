"""marimo as the host of runs: a run that is a cell's value is shown as its card."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from typing import Any
from weakref import WeakValueDictionary

from nbagent.core.base.errors import UsageError
from nbagent.core.run.host import ScriptHost
from nbagent.core.run.run import Run, session_of


class MarimoHost(ScriptHost):
    """The host of runs in a marimo notebook that a person has open.

    Cells and the page's messages share one event loop, so no answer arrives while a cell runs.
    """

    def __init__(self) -> None:
        self._cards: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """The cards by run id, as weak references: a run holds its card as a listener."""

    def attended(self) -> bool:
        """Return True, because a person has the notebook open."""
        return True

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:  # noqa: ARG002 - Host
        """The event loop that cells run on."""
        return asyncio.get_running_loop()

    def marks_person(self) -> bool:
        """False: marimo has no place where cells and messages of its page can be marked."""
        return False

    def started(
        self, run: Run, *, on_rerun: str, is_opened: bool = False, only_looks: bool = False
    ) -> None:
        """Do nothing: the notebook's process has a terminal, but the person is not there."""

    def wait_sync(self, run: Run, future: Future[Any], *, attended: bool) -> None:  # noqa: ARG002 - Host
        """Wait for the future."""
        future.result()

    def ask_rows(self, batch: Any, *, attended: bool) -> bool:  # noqa: ARG002 - Host
        """False: as above."""
        return False

    def value(self, run: Run) -> Any:
        """The run's card, which marimo draws like any anywidget."""
        from .cards.run_card import RunCard  # noqa: PLC0415 - ipywidgets and anywidget load here

        card = self._cards.get(run.id)
        if card is None or card.comm is None:  # marimo closes a card when its cell runs again
            card = self._cards[run.id] = RunCard(run)
        return card

    async def wait(self, run: Run, future: Future[Any]) -> None:
        """Wait for the future; fail if the run asks a person, who could not answer.

        Raises:
            UsageError: the run asks a person.
        """
        waiting = asyncio.wrap_future(future)
        settled = asyncio.wrap_future(session_of(run).when_settled())
        await asyncio.wait({waiting, settled}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and run.status == "interrupted":
            raise UsageError(
                "The run asks a person, and marimo accepts no answer while a cell waits. Make the run the cell's value "
                "instead of awaiting it, and read `run.result` in a later cell"
            )
        await waiting


_host = MarimoHost()


def find() -> MarimoHost | None:
    """The host, or None outside of a marimo notebook, as in a script."""
    marimo = sys.modules.get("marimo")
    running = getattr(marimo, "running_in_notebook", None)
    return _host if running is not None and running() else None
