"""Scripted answers for runs without a person, from ``answers=`` or a recording, and recording of answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.journal.journal import RunEvent

from .answers import AnyResolution
from .scripted_answers import AnswerSource, KeptAnswers


class AskingRun(Protocol):
    """The parts of a run that an ``Answerer`` needs."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open questions."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Do something on the run's loop; from any thread."""

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt; what can be refused now raises now."""

    def notify(self) -> None:
        """Notify the waiters of the run to look again."""


class Answerer:
    """Answers the questions of a run with ``answers=``: each question once, on the run's loop."""

    def __init__(self, source: AnswerSource, kept: KeptAnswers | None, run: AskingRun) -> None:
        self.wrong: dict[str, Exception] = {}
        """The error of an answer, by interrupt id."""
        self.undecided: set[str] = set()
        """Interrupts that may have an answer, but were not looked at yet."""
        self._source = source
        self._kept = kept
        self._run = run

    def missing_hint(self) -> str:
        """A hint for the error about a missing answer."""
        return self._source.missing_hint() or (
            "" if self._kept is None else self._kept.missing_hint()
        )

    def on_event(self, event: RunEvent) -> None:
        """Check a new question; a listener of a journal."""
        if isinstance(event, Interrupted):
            self.look_at(event.id)

    def look_at(self, interrupt_id: str) -> None:
        """Check this question."""
        self.undecided.add(interrupt_id)
        self._run.call_soon(partial(self._look, interrupt_id))

    def look_again(self) -> None:
        """The run moves to another loop, where what was scheduled before is lost."""
        for interrupt_id in list(self.undecided):
            self._run.call_soon(partial(self._look, interrupt_id))

    def _look(self, interrupt_id: str) -> None:
        for interrupt in self._run.interrupts:
            if interrupt.id == interrupt_id:
                try:
                    resolution, by = self._source.next(interrupt), "answers="
                    if resolution is None and self._kept is not None:
                        resolution, by = self._kept.answer_to(interrupt), "recording"
                    if resolution is not None:
                        given = self._run.resolve(interrupt_id, resolution, by=by)
                        given.add_done_callback(partial(self._given, interrupt_id))
                        return
                except Exception as error:  # for whoever awaits the run, which stays paused
                    self.wrong[interrupt_id] = error
        self._decided(interrupt_id)

    def _given(self, interrupt_id: str, given: Future[Any]) -> None:
        error = given.exception()
        if isinstance(error, Exception):
            self.wrong[interrupt_id] = error
        self._decided(interrupt_id)

    def _decided(self, interrupt_id: str) -> None:
        self.undecided.discard(interrupt_id)
        self._run.notify()


class AnswerKeeper:
    """Reports each answer, with its question, to the recording."""

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept
        self._asked: dict[str, Interrupted] = {}
        """By id: the questions that wait."""

    def add_past_event(self, event: StoredEvent) -> None:
        """Note an event from before it listened; its answer is not reported."""
        if isinstance(event, Interrupted):
            self._asked[event.id] = event
        elif isinstance(event, Resolved):
            self._asked.pop(event.id, None)

    def on_event(self, event: RunEvent) -> None:
        """Report an answer; a listener of a journal."""
        if isinstance(event, Resolved) and event.id in self._asked:
            self._kept.answered(self._asked[event.id], event)
        if isinstance(event, Interrupted | Resolved):
            self.add_past_event(event)
