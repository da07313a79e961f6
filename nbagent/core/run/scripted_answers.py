"""Scripted answers for runs without a person, from ``answers=`` or a recording; and the recording of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeAlias

from nbagent.core.base.errors import InvalidAnswer, UsageError, suggest
from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.interrupts import (
    ASKED_AGAIN,
    LIMIT_LABEL,
    PendingInterrupt,
    Reject,
    Remember,
    Respond,
    restart_of,
)
from nbagent.core.base.metadata import fits, is_bare
from nbagent.core.base.origin import PERSON, current_mark, marked
from nbagent.core.journal.journal import RunEvent
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.toolbox import is_complete

from .answers import AnyResolution, id_and_resolution, tools_of

Answers: TypeAlias = Sequence[Any] | Mapping[str, Any] | Callable[[PendingInterrupt], Any] | None
"""Answers for runs without a person: a list in order, a dict by tool name, or a function."""


class AnswerRecording(Protocol):
    """A recording of people's answers, which answers runs without a person."""

    def answered(self, asked: Interrupted, given: Resolved) -> None:
        """Record the answer to a question; several handles of a run may each report it."""

    def answer_to(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """The recorded answer to a question, or None. Called once for each question without an answer in ``answers=``.

        Raises:
            Exception: an error for ``await run``; the run stays paused.
        """

    def missing_hint(self) -> str:
        """A hint for the error about a missing answer."""


def as_resolution(value: Any, interrupt: PendingInterrupt) -> AnyResolution:
    """The resolution that a value of ``answers=`` means for an interrupt.

    A resolution is used unchanged; a lost call needs a resolution. If a tool asks for approval or to continue, True
    approves, False rejects, and other values are invalid. Otherwise the value is the answer. Exception: if code can
    also continue the body and the answer type allows no bool, True approves and False rejects.

    Raises:
        InvalidAnswer: the value does not fit an approval or a lost call, or the resolution names another interrupt.
    """
    if isinstance(value, AnyResolution):
        return id_and_resolution(interrupt, value)[1]
    if interrupt.expects == "outcome":
        raise InvalidAnswer(
            f"{interrupt.tool_name!r} was running when its process ended, and answers= has {value!r:.80} for it. Use "
            "nb.Restart() to run it again, nb.Respond(value) to give its result, or nb.Reject() to mark it as failed"
        )
    is_go_ahead = isinstance(value, bool) and _may_go_on(interrupt) and not _takes_bool(interrupt)
    if not is_approval(interrupt) and not is_go_ahead:
        return Respond(output=value)
    if not isinstance(value, bool):
        raise InvalidAnswer(
            f"{interrupt.tool_name!r} asks for approval, and answers= has a value of type {type(value).__name__} for "
            "it. Use True to run it, False to reject it, nb.Restart(input) to run it with another input, or nb.Respond(value) "
            "to enter its result without running it"
        )
    return approval_of(interrupt) if value else Reject()


def approval_of(
    interrupt: PendingInterrupt | None, remember: Remember | None = None
) -> AnyResolution:
    """The resolution that approves an interrupt; if the interrupt is None, the approval is checked later.

    Raises:
        InvalidAnswer: the interrupt asks for something else, or the approval cannot be remembered.
    """
    if interrupt is not None and interrupt.expects == "outcome":
        raise InvalidAnswer(
            f"{interrupt.tool_name!r} was running when its process ended, and may have taken effect, so it cannot be "
            "approved. Use run.restart(…) to run it again, run.respond(…, value) to give its result, or run.reject(…) "
            "to mark it as failed"
        )
    if interrupt is not None and not (is_approval(interrupt) or _may_go_on(interrupt)):
        raise InvalidAnswer(
            f"{repr(interrupt.tool_name) if interrupt.tool_name else LIMIT_LABEL} does not ask for approval. Answer it with "
            "respond(value)"
        )
    if interrupt is None or interrupt.expects != "confirmation":
        return restart_of(None, None, remember=remember)
    if remember is not None:
        raise InvalidAnswer(
            f"{interrupt.tool_name!r} asks a question. Only an approval can be remembered"
        )
    return Respond(output=True)


def _may_go_on(interrupt: PendingInterrupt) -> bool:
    """Whether an interrupt asks for an answer, but code may also continue the body.

    Then the metadata is empty, or has a question without choices.
    """
    if interrupt.kind != "tool" or interrupt.expects not in ("choice", "value"):
        return False
    metadata = interrupt.metadata
    asks = is_bare(metadata) or (isinstance(metadata, Mapping) and "question" in metadata)
    offers = isinstance(metadata, Mapping) and "choices" in metadata
    return asks and not offers


def _takes_bool(interrupt: PendingInterrupt) -> bool:
    """Whether the declared answer type allows a bool."""
    declared = interrupt.reply_schema not in (None, {}, True)
    return declared and fits(interrupt.reply_schema, value=True)


def is_approval(interrupt: PendingInterrupt) -> bool:
    """Whether an interrupt asks for approval to run or continue a tool, not for an answer."""
    return interrupt.expects in ("approval", "edit", "confirmation")


def check_answers(answers: Answers, tools: Mapping[str, Tool[..., Any]]) -> None:
    """Check the type of ``answers=``, and that its names are names of tools.

    Raises:
        UsageError: the type is wrong, or a name is unknown and no tool's body can call other tools.
    """
    if answers is None or callable(answers):
        return
    if isinstance(answers, str) or not isinstance(answers, Mapping | Sequence):
        raise UsageError(
            "answers= must be a list in the order of the questions, a dict by tool name, or a function of the "
            f"interrupt, got a value of type {type(answers).__name__}"
        )
    reachable = _reachable(tools)
    known = {*reachable, ""}
    unknown = (
        [name for name in answers if name not in known] if isinstance(answers, Mapping) else []
    )
    may_call_others = any(tool.fn is not None and not tools_of(tool) for tool in reachable.values())
    if unknown and is_complete(tools) and not may_call_others:
        raise UsageError(
            f"answers= names {unknown[0]!r}, which is not a tool of this agent. Its tools: {', '.join(sorted(known - {''})) or 'none'}{suggest(unknown[0], known)}"
        )


def _reachable(tools: Mapping[str, Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """The tools by name, with the tools of agents among them. An agent may be a tool of its own."""
    found, new = dict(tools), [*tools.values()]
    seen: list[Tool[..., Any]] = []
    while new:
        tool = new.pop()
        if not any(tool is one for one in seen):
            seen.append(tool)
            new += tools_of(tool).values()
            found = {**tools_of(tool), **found}
    return found


class AnswerSource:
    """The source of answers from ``answers=``: returns the next answer for an interrupt, or None."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._used: dict[str, int] = {}
        self._given: dict[tuple[str, ...], AnyResolution] = {}
        """The last answer that each call got."""
        self._asked: set[str] = set()
        """The names of the tools that asked."""
        self._by_name_alone = ""
        """The last tool that asked and that only a dict can answer."""

    def missing_hint(self) -> str:
        """A hint for the error about a missing answer; empty if there is none."""
        if isinstance(self._answers, Mapping):
            odd = [name for name in self._answers if name not in self._asked]
            near = "".join(suggest(name, self._asked) for name in odd[:1])
            return (odd and f"answers= names {odd[0]!r}, but no question has that name{near}") or ""
        if self._by_name_alone:
            name = self._by_name_alone
            return (
                f"answers= with True allows {name!r} only by its name: answers={{{name!r}: True}}"
            )
        used = self._used.get("", 0)
        return (
            f"The list of answers= had {used}, and all are used. Add the missing answers at its end"
            if used
            else ""
        )

    def next(self, interrupt: PendingInterrupt) -> AnyResolution | None:
        """The answer for this interrupt, or None if there is none.

        If a call repeats its question after an answer, that answer is not used twice, to avoid an endless
        loop.
        """
        found = self._find(interrupt)
        if found is _NONE:
            return None
        resolution, call = as_resolution(found, interrupt), (*interrupt.path, interrupt.call_id)
        if interrupt.note == ASKED_AGAIN and self._given.get(call) == resolution:
            return None
        self._given[call] = resolution
        return resolution

    def _find(self, interrupt: PendingInterrupt) -> Any:
        answers = self._answers
        self._asked.add(interrupt.tool_name)
        if answers is None:
            return _NONE
        if isinstance(answers, Mapping):
            if interrupt.tool_name not in answers:
                return _NONE
            given = answers[interrupt.tool_name]
            if callable(given):
                return _or_none(given(interrupt))
            return self._take(interrupt.tool_name, given) if isinstance(given, list) else given
        tool = interrupt._tool  # noqa: SLF001 - where it is bound in this process
        if tool is not None and tool.options.always_needs_approval:
            self._by_name_alone = interrupt.tool_name
            return _NONE
        if callable(answers):
            return _or_none(answers(interrupt))
        return self._take("", answers)

    def _take(self, key: str, answers: Iterable[Any]) -> Any:
        taken = self._used.get(key, 0)
        given = list(answers)
        if taken >= len(given):
            return _NONE
        self._used[key] = taken + 1
        return given[taken]


_NONE: Any = object()


def _or_none(value: Any) -> Any:
    return _NONE if value is None else value


class AskingRun(Protocol):
    """The parts of a run that an ``Answerer`` needs."""

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open questions."""

    def call_soon(self, work: Callable[[], None]) -> object:
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
