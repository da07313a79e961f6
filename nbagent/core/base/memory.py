"""Remembered approvals: the calls of a tool that a person chose to always allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from .controls import escaped
from .interrupts import digest_of
from .messages import Json, canonical, dumps


class Remembered(BaseModel):
    """An approval that also covers later calls of the same unchanged tool, with one input or with any."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    tool: str
    parameters: str
    """SHA-256 of the tool's name and the schema of its input; see ``digest_of``."""
    code: str
    """SHA-256 of what the tool does; see ``Tool.code_digest``."""
    input: dict[str, Any] | None = None
    """The one input that the approval covers; None for any."""

    def __str__(self) -> str:
        suffix = "" if self.input is None else f" with {dumps(self.input)}"
        return escaped(f"allow {self.tool}{suffix}")

    def covers(self, tool: str, input_: Json) -> bool:
        """Whether the approval applies to calls of this tool with this input."""
        if self.tool != tool:
            return False
        return self.input is None or canonical(self.input) == canonical(input_)

    def has_schema(self, schema: Json) -> bool:
        """Whether the tool had this input schema when it was approved."""
        return self.parameters == digest_of(self.tool, None, schema)

    def is_repeat_of(self, earlier: Remembered) -> bool:
        """Whether the approval applies to the same calls as an earlier one, compared as JSON: 1 is not true."""
        now, before = (canonical([each.tool, each.input]) for each in (self, earlier))
        return now == before


def with_memory(known: Iterable[Remembered], new: Remembered) -> tuple[Remembered, ...]:
    """The remembered approvals of a run and a new one, which replaces an approval of the same tool and input.

    Tools with the same name, of an agent and of an agent inside it, are distinguished by their code.
    """
    kept = (one for one in known if not (new.is_repeat_of(one) and new.code == one.code))
    return (*kept, new)
