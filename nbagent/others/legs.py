"""One leg of another framework's agent: its pauses and its state at the end, and what it reports on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from nbagent.core.base.messages import Json, canonical
from nbagent.core.tools.context import Row, ToolContext
from nbagent.core.tools.result_text import for_model


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


@dataclass(frozen=True, slots=True)
class Leg:
    """The end of a leg, as JSON in its step: open pauses, or the output."""

    asks: list[dict[str, Any]] = field(default_factory=list)
    state: Json = None
    """The framework's own state, to continue from."""
    output: Json = None

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

    def decide(self, ask: Ask, answer: dict[str, Any]) -> None:
        """Remember the answer to an approval, for the row of its call."""
        for given in (ask.input, answer.get("input")) if ask.call else ():
            self._answers[ask.call, canonical(given)] = answer

    def write(self, text: Any) -> None:
        """Show text."""
        if isinstance(text, str):
            self.ctx.write(text)

    def started(self, name: str, input_: Any, call: str) -> None:
        """Show a call that starts; a call that a person rejected has a row already."""
        answer = self._answers.get((call, canonical(input_)), {"input": input_})
        rejected = "rejected" in answer
        self._rows[call] = (
            None if rejected else self.ctx.row(name, answer["input"], id=call or name)
        )

    async def done(
        self, name: str, input_: Any, call: str, value: Any, *, failed: bool = False
    ) -> None:
        """Show a call that has ended, and has started perhaps in an earlier leg."""
        if call not in self._rows:
            self.started(name, input_, call)
        row = self._rows.pop(call)
        if row is not None:
            await (row.failed(str(value)) if failed else row.done(value))


def plain(value: Any) -> Json:
    """A framework's value as JSON."""
    return to_jsonable_python(value, fallback=str)
