"""Answering with ``answers=`` what a live run asks while nobody is there."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from .answers import AnyResolution
from .drive import Drive
from .events import Interrupted
from .interrupts import PendingInterrupt
from .journal import Heard
from .script import Answers, Script
from .waiting import Waiters


class Asking(Protocol):
    """A run that asks."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """What waits for an answer."""

    def resolve(self, interrupt: str, resolution: AnyResolution, *, by: str) -> object:
        """Settle an interrupt."""


class Unattended:
    """Looks at each question of one run once, on the run's loop."""

    def __init__(self, answers: Answers, run: Asking, drive: Drive, waiters: Waiters) -> None:
        self.wrong: dict[str, Exception] = {}
        """What was wrong with an answer, by interrupt id."""
        self.undecided: set[str] = set()
        """Interrupts that may have an answer, but were not looked at yet."""
        self._script = Script(answers)
        self._run = run
        self._drive = drive
        self._waiters = waiters
        drive.on_new_loop = self._begin_again

    def hear(self, heard: Heard) -> None:
        """Take up a question; for a journal to tell of them."""
        if isinstance(heard, Interrupted):
            self.look_at(heard.id)

    def look_at(self, interrupt_id: str) -> None:
        """Take up this question."""
        self.undecided.add(interrupt_id)
        self._drive.soon(partial(self._look, interrupt_id))

    def _look(self, interrupt_id: str) -> None:
        for interrupt in self._run.interrupts:
            if interrupt.id == interrupt_id:
                try:
                    resolution = self._script.next(interrupt)
                    if resolution is not None:
                        self._run.resolve(interrupt_id, resolution, by="answers=")
                except Exception as error:  # for whoever awaits the run, which stays paused
                    self.wrong[interrupt_id] = error
        self.undecided.discard(interrupt_id)
        self._waiters.notify()

    def _begin_again(self) -> None:
        for interrupt_id in list(self.undecided):
            self._drive.soon(partial(self._look, interrupt_id))
