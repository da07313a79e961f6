"""The environment of runs and their people: the only connection between the engine and its surroundings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from nbagent.core.base.errors import HumanInputRequired
from nbagent.core.hooks import hooks


class Host(Protocol):
    """Surroundings of a run: a script, or a notebook kernel."""

    def attended(self) -> bool:
        """Whether a person is there who can answer."""

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:
        """The loop a new run lives on; None for the caller's running loop or the private one."""

    def cell(self) -> tuple[str, str] | None:
        """The cell of the current code, and an id of this execution of it; None if unknown."""

    def started(self, run: Any, *, on_rerun: str) -> None:
        """A run was started by the code that runs now."""

    def show(self, run: Any) -> None:
        """Show a run where the code that runs now puts its output."""

    def display(self, run: Any) -> None:
        """A run is displayed by name, as the last line of a cell does."""

    def value(self, run: Any) -> Any:
        """The object that represents the run if the environment displays values itself."""

    def show_chat(self, chat: Any) -> None:
        """Show a chat where the code that runs now puts its output, once for each execution."""

    def show_runs(self, listed: Any) -> bool:
        """Show a list of a store's runs, live, where the code that runs now puts its output.

        False if that is not possible: the list then displays itself without updates.
        """

    def show_batch(self, batch: Any) -> None:
        """Show a batch where the code that runs now puts its output."""

    def display_batch(self, batch: Any) -> None:
        """A batch is displayed by name, as the last line of a cell does."""

    async def wait(self, run: Any, future: Future[Any]) -> None:
        """Wait inside a cell, so that forms still work; if the wait is stopped, so is the run."""

    def wait_sync(self, run: Any, future: Future[Any]) -> None:
        """Wait in synchronous code; ``Run.wait`` stops the run where Ctrl+C stops the wait."""

    async def on_main(self, work: Callable[[], Any]) -> Any:
        """Do this where objects of the person's code are at home, in the caller's context."""

    def present(self, value: Any, /) -> dict[str, Any] | None:
        """A mime bundle of a value that shows richer than its JSON, or None."""

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:
        """A person's answer outside of any call, in a form in the output of the current code.

        Args:
            reply: the type of the answer.
            message: the question.
            link: a page that the person is asked to open.

        Raises:
            Rejected: the person cancels it.
            HumanInputRequired: no person can answer here.
        """


class Place(NamedTuple):
    """The host and loop of a run, and whether a person is there."""

    host: Host
    attended: bool
    loop: asyncio.AbstractEventLoop | None = None
    """None for the caller's running loop, or the private one where none runs."""


class ScriptHost:
    """The host without a notebook: no person watches, and runs live where they are started."""

    def attended(self) -> bool:
        """False: no person is there."""
        return False

    def loop(self, *, attended: bool) -> asyncio.AbstractEventLoop | None:  # noqa: ARG002 - Host
        """The caller's own."""
        return None

    def cell(self) -> tuple[str, str] | None:
        """A script has none."""
        return None

    def started(self, run: Any, *, on_rerun: str) -> None:
        """Nothing to show."""

    def show(self, run: Any) -> None:
        """Nowhere to show it."""

    def display(self, run: Any) -> None:
        """Print it."""
        print(repr(run))  # noqa: T201 - displayed outside of a notebook

    def value(self, run: Any) -> Any:
        """Its text."""
        return repr(run)

    def show_chat(self, chat: Any) -> None:
        """Print it."""
        print(repr(chat))  # noqa: T201 - displayed outside of a notebook

    def show_runs(self, listed: Any) -> bool:  # noqa: ARG002 - Host
        """Nothing is live here."""
        return False

    def show_batch(self, batch: Any) -> None:
        """Nowhere to show it."""

    def display_batch(self, batch: Any) -> None:
        """Print it."""
        print(repr(batch))  # noqa: T201 - displayed outside of a notebook

    async def wait(self, run: Any, future: Future[Any]) -> None:  # noqa: ARG002 - Host
        """Just wait."""
        await asyncio.wrap_future(future)

    def wait_sync(self, run: Any, future: Future[Any]) -> None:  # noqa: ARG002 - Host
        """Just wait."""
        future.result()

    async def on_main(self, work: Callable[[], Any]) -> Any:
        """Run it here: a script's main thread accepts no work."""
        return work()

    def present(self, value: Any, /) -> dict[str, Any] | None:  # noqa: ARG002 - Host
        """Nothing is richer than text here."""
        return None

    async def ask(self, reply: Any, message: str, *, link: str) -> Any:  # noqa: ARG002 - Host
        """Raise: no person is there."""
        raise HumanInputRequired("No person can answer here")


_script = ScriptHost()


def current_host() -> Host:
    """The surroundings of the code that runs now."""
    found: Host | None = hooks.find_host()
    return _script if found is None else found


def is_there(host: Host, *, attended: bool | None) -> bool:
    """Whether a person is there, as passed or as the host detects."""
    return host.attended() if attended is None else attended


def is_attended(host: Host, *, attended: bool | None, answers: object, show: bool) -> bool:
    """Whether a person can answer: nobody can if there are answers and no card, unless ``attended`` was passed."""
    is_headless = attended is None and answers is not None and not show
    return not is_headless and is_there(host, attended=attended)
