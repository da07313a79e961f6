"""Scripted answers for runs without a person, from ``answers=`` or a recording; and the recording of answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.origin import PERSON, current_mark, marked
from nbagent.core.journal.journal import RunEvent

from .answers import AnyResolution
from .scripted_answers import AnswerRecording, AnswerSource


class AskingRun(Protocol):
    """The parts of a run that an ``Answerer`` needs."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open questions."""

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call ``work`` on the run's loop; from any thread."""

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt. An answer that is already known to be invalid raises immediately."""

    def notify(self) -> None:
        """Let code that waits for the run check its state again."""


class Answerer:
    """The scripted answers to a run's questions: answers each question once, on the run's loop."""

    def __init__(self, source: AnswerSource, kept: AnswerRecording | None, run: AskingRun) -> None:
        self.wrong: dict[str, Exception] = {}
        """Errors of answers, by interrupt id."""
        self.undecided: set[str] = set()
        """Ids of interrupts whose check for an answer is not finished, or whose answer is not stored yet."""
        self._source = source
        self._kept = kept
        self._run = run
        self._mark = current_mark()
        self.may_be_foreign = True
        """Whether code in a thread or context of its own may have prepared these answers, because the run is new."""

    def missing_hint(self) -> str:
        """A hint for the error about a missing answer."""
        return self._source.missing_hint() or (
            "" if self._kept is None else self._kept.missing_hint()
        )

    def on_event(self, event: RunEvent) -> None:
        """Check a new question for an answer. This method is a listener of the journal."""
        if isinstance(event, Interrupted):
            self.look_at(event.id)

    def look_at(self, interrupt_id: str) -> None:
        """Check a question for an answer, on the run's loop."""
        self.undecided.add(interrupt_id)
        self._run.call_soon(partial(self._look, interrupt_id))

    def look_again(self) -> None:
        """Schedule the open checks again, because the run has moved to another loop."""
        for interrupt_id in list(self.undecided):
            self._run.call_soon(partial(self._look, interrupt_id))

    def _look(self, interrupt_id: str) -> None:
        mark = PERSON if self._mark == "" and self.may_be_foreign else self._mark
        with marked(mark):  # of the code that prepared the answers, not of the code that asked
            self._answer(interrupt_id)

    def _answer(self, interrupt_id: str) -> None:
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
                except Exception as error:  # raised where the run is awaited; the run stays paused
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

    def __init__(self, kept: AnswerRecording) -> None:
        self._kept = kept
        self._asked: dict[str, Interrupted] = {}
        """The open questions, by id."""

    def add_past_event(self, event: StoredEvent) -> None:
        """Add an event from before this object listened. Past answers are not reported."""
        if isinstance(event, Interrupted):
            self._asked[event.id] = event
        elif isinstance(event, Resolved):
            self._asked.pop(event.id, None)

    def on_event(self, event: RunEvent) -> None:
        """Report an answer to the recording. This method is a listener of the journal."""
        if isinstance(event, Resolved) and event.id in self._asked:
            self._kept.answered(self._asked[event.id], event)
        if isinstance(event, Interrupted | Resolved):
            self.add_past_event(event)
