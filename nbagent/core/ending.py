"""What an attempt at a call ends in, as the events that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from .errors import Misuse, Rejected, ToolFailed
from .events import Interrupted, ToolFinished
from .messages import Json
from .output import CallOutput
from .surroundings import Surroundings
from .tools import ToolResult
from .values import told

Ending: TypeAlias = Sequence[ToolFinished | Interrupted]
"""What an attempt is written down as; nothing where somebody else goes on with the call."""


class Endings(NamedTuple):
    """What makes the events of one attempt's results and failures."""

    call_id: str
    tool_name: str
    around: Surroundings
    output: CallOutput

    def finished(self, value: Any, verdict: str | None) -> ToolFinished:
        """The event of a body that returned ``value``; ``verdict`` as in ``ToolFinished``."""
        plain = shown = value
        if isinstance(value, ToolResult):
            plain = value.value
            shown = value.display if value.display is not None else value.value
        display = self.around.present(shown)
        return self._event(told(plain), verdict, display=display)

    def raised(self, error: BaseException, verdict: str | None) -> ToolFinished:
        """The event of an attempt that raised.

        Raises:
            Misuse: the tool misused its context, which is no failure that a model could mend.
            ToolFailed: the run is to raise as well.
        """
        if isinstance(error, Misuse):
            raise error
        if isinstance(error, Rejected):  # a person's no is no failure
            told_so = f"In the middle of this call of {self.tool_name}, {error}"
            return self.failed(told_so, verdict)
        if self.around.raise_errors:
            raise ToolFailed(f"the tool {self.tool_name!r} failed: {_named(error)}") from error
        return self.failed(f"The tool {self.tool_name} failed: {_named(error)}", verdict)

    def failed(self, text: str, verdict: str | None) -> ToolFinished:
        """The event of a call that came to nothing."""
        return self._event(text, verdict, error=True)

    def _event(
        self,
        output: Json,
        verdict: str | None,
        *,
        error: bool = False,
        display: dict[str, Any] | None = None,
    ) -> ToolFinished:
        return ToolFinished(
            at=self.around.clock(),
            scope=self.around.scope,
            call_id=self.call_id,
            output=output,
            error=error,
            printed=self.output.printed,
            # a figure both left open and returned is shown once
            displays=[shown for shown in self.output.displays if shown != display],
            display=display,
            verdict=verdict,
        )


def _named(error: BaseException) -> str:
    hint = ""
    if "created in a thread can only be used in that same thread" in str(error):
        hint = " (give the tool @nb.tool(thread=False) to run it where the object was made)"
    return f"{type(error).__name__}: {error}{hint}"
