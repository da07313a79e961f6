"""One leg of another framework's agent: its pauses and its state at the end, and what it reports on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic_core import from_json, to_json

from nbagent.core.base.messages import Json, canonical
from nbagent.core.tools.context import Row, ToolContext
from nbagent.core.tools.result_text import for_model

NAME = r"[\w.-]{1,128}"
"""The names that a tool can have."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One pause, as JSON in the leg's step."""

    id: str
    kind: Literal["approval", "question", "respond", "go on"]
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    editable: bool = False
    schema: dict[str, Any] | None = None
    """JSON Schema of the input, or of the answer."""
    choices: list[Any] = field(default_factory=list)
    raw: Json = None
    """The whole value of a pause of unknown form."""
    call: str = ""
    """The framework's id of the call."""
    rejection: str = "reject"
    """The framework's word for a rejection; empty if it takes none."""


@dataclass(frozen=True, slots=True)
class Leg:
    """The end of a leg, as JSON in its step: open pauses, or the output."""

    asks: list[dict[str, Any]] = field(default_factory=list)
    state: Json = None
    """The framework's own state, to continue from."""
    output: Json = None
    repeats: list[str] | None = None
    """The tools whose calls the next leg repeats if it has no state, because this leg failed; else None."""

    @classmethod
    def paused(cls, asks: list[Ask], state: Json = None) -> dict[str, Any]:
        """The JSON of a leg that ended with pauses."""
        return {"asks": [asdict(one) for one in asks], "state": state}

    @classmethod
    def ended(cls, output: Any) -> dict[str, Any]:
        """The JSON of a leg that ended the agent."""
        return {"output": for_model(output)}


class Progress:
    """The text and the calls that a framework reports while it runs."""

    def __init__(self, ctx: ToolContext) -> None:
        self.ctx = ctx
        self._rows: dict[str, Row | None] = {}
        """The rows of calls that have started, by the framework's id of the call."""
        self._answers: dict[tuple[str, str], Json] = {}
        """The answers to approvals, by the call's id and input: another leg may use an id again."""
        self._called: dict[str, str] = {}
        """The tools of the calls that a person approved for this leg, or that have started in it, by the call's id."""
        self._has_ended = False
        """Whether one of them has ended."""
        self._message: Any = None
        """The id of the message of the last text."""
        self._has_text = self._is_next = False
        """Whether text was shown, and whether the next text is that of another message."""
        self.state: Json = None
        """The framework's state to continue from if the leg fails."""
        self.error: Exception | None = None
        """The exception of a leg that failed, and is stored."""

    async def leg(
        self,
        run: Callable[[], Awaitable[dict[str, Any]]],
        before: Leg,
        answers: dict[str, dict[str, Any]],
    ) -> dict[str, Any]:
        """The end of a leg of a framework without checkpoints, also if it fails after a call that a retry would repeat."""
        approved = [one for one in before.asks if "input" in answers[one["id"]]]
        self._called = {one["call"]: one["name"] for one in approved}
        self._has_ended, self.state = False, None
        try:
            return await run()
        except Exception as error:
            if not (self._has_ended or len(self._called) > 1):  # else one call, which has failed
                raise
            self.error = error
            return {"state": self.state, "repeats": [*dict.fromkeys(self._called.values())]}

    def decide(self, ask: Ask, answer: dict[str, Any]) -> None:
        """Remember the answer to an approval, for the row of its call."""
        self._rows.pop(ask.call, None)  # of a body that asked for the approval itself
        for given in (ask.input, answer.get("input")) if ask.call else ():
            self._answers[ask.call, canonical(given)] = answer

    def write(self, text: Any, of: Any = None) -> None:
        """Show text; ``of`` is the id of its message, if it may be another than before, which is a paragraph of its own."""
        if of is not None and of != self._message:
            self._is_next, self._message = self._has_text, of
        if isinstance(text, str) and text:
            self.ctx.write(f"\n\n{text}" if self._is_next else text)
            self._has_text, self._is_next = True, False

    def started(self, name: str, input_: Any, call: str) -> None:
        """Show a call that starts; a call that a person rejected has a row already."""
        answer = self._answers.get((call, canonical(input_)), {"input": input_})
        self._rows[call] = None
        if "rejected" not in answer:
            self._rows[call] = self.ctx.row(name, answer["input"], id=call or name)
            self._called[call] = name

    async def done(
        self, name: str, input_: Any, call: str, value: Any, *, failed: bool = False
    ) -> None:
        """Show a call that has ended, and has started perhaps in an earlier leg."""
        if call not in self._rows:
            self.started(name, input_, call)
        row = self._rows.pop(call)
        if row is not None:
            self._has_ended = True
            await (row.failed(str(value)) if failed else row.done(value))


def plain(value: Any) -> Json:
    """A framework's value as JSON."""
    text = to_json(value, fallback=str, bytes_mode="base64", inf_nan_mode="strings")
    return from_json(text)
