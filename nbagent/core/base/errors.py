"""Every exception nbagent raises, as one tree.

NbagentError
├── UsageError                 the caller did something that cannot work
│   ├── ToolError              a tool is declared wrongly or is not registered
│   ├── MessagesError          a history that no model may receive
│   ├── InvalidAnswer          an answer that does not fit; nothing was changed
│   ├── NotPending             an answer for something that does not wait for one
│   ├── UnansweredInterrupts   a message while questions are open
│   ├── RunNotFinished         a result was asked for too early
│   └── ModelConfigError       no key, no such model, a misconfigured client
├── RunError                   a run could not go on
│   ├── ModelError             the model or its server failed
│   │   └── NotRecorded        a replay was asked what its recording has no answer to
│   ├── McpError               an MCP server cannot be had, or failed
│   ├── ToolFailed             a tool failed and the agent says to raise
│   ├── Misuse                 a tool used its context wrongly
│   ├── BudgetExceeded         turns, tokens, cost or time are used up
│   │   └── TurnLimit          the model would not stop
│   ├── Expired                a question's time ran out, and that fails the run
│   ├── Cancelled              somebody stopped the run
│   └── StoreError             the journal could not be written
│       └── Busy               the store would have to wait
├── Conflict                   somebody else answered first
├── Rejected                   a person said no, raised where a tool or ``nb.form`` asked
└── HumanInputRequired         nobody is there to answer

Apart from it stands ``nbagent.Interrupt``: a signal, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nbagent.core.hooks import hooks

from .controls import escaped


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'danger'?`` for a name that is near to a known one, else nothing."""
    import difflib  # noqa: PLC0415  only a mistake needs it

    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f". Did you mean {lower[found[0]]!r}?" if found else ""


class NbagentError(Exception):
    """Root of everything nbagent raises; names and values of others in its text are without controls."""

    def __init__(self, message: str = "") -> None:
        super().__init__(escaped(message))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in the place of its own traceback."""
        return hooks.error_lines(self)


class UsageError(NbagentError):
    """The caller did something that cannot work."""


class ToolError(UsageError):
    """A tool is declared wrongly, or a tool that is needed is not registered."""


class MessagesError(UsageError, ValueError):
    """A history that is malformed, so that no model may receive it."""


class InvalidAnswer(UsageError, ValueError):
    """An answer that does not fit what was asked; nothing was changed.

    ``errors`` has one ``{"loc": (...), "msg": "..."}`` for each thing that is wrong.
    """

    def __init__(self, message: str, *, errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.errors = tuple({**each, "msg": escaped(str(each.get("msg", "")))} for each in errors)


class NotPending(UsageError, LookupError):
    """An answer names something that does not wait for one."""


class UnansweredInterrupts(UsageError):
    """A message was sent while questions are open; ``interrupts`` lists them."""

    def __init__(self, message: str, *, interrupts: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.interrupts = tuple(interrupts)


class RunNotFinished(UsageError):
    """A result was asked for before the run had one."""


class ModelConfigError(UsageError):
    """The model cannot be reached as it is configured: no key, no such name."""


class RunError(NbagentError):
    """A run could not go on; ``messages`` is the history so far, to resume from."""

    def __init__(self, message: str, *, messages: Sequence[Any] = (), text: str = "") -> None:
        super().__init__(message)
        self.messages = tuple(messages)
        self.text = text


class ModelError(RunError):
    """The model or its server failed."""


class NotRecorded(ModelError):
    """A replay was asked what its recording has no answer to; ``diff`` shows against the nearest request."""

    def __init__(
        self, message: str, *, messages: Sequence[Any] = (), text: str = "", diff: str = ""
    ) -> None:
        super().__init__(message, messages=messages, text=text)
        self.diff = escaped(diff)


class McpError(RunError):
    """An MCP server cannot be reached or used, or a call of it failed."""


class ToolFailed(RunError):
    """A tool failed and the agent was told to raise; the cause is ``__cause__``."""


class Misuse(RunError):
    """A tool used its context in a way that cannot be stored, such as metadata that is no JSON."""


class BudgetExceeded(RunError):
    """A budget is used up; ``messages`` and ``text`` hold what there is so far."""


class Expired(RunError):
    """A question's time ran out, and its tool said that this fails the run."""


class TurnLimit(BudgetExceeded):
    """The model used all its turns; ``messages`` and ``text`` hold what there is so far."""


class Cancelled(RunError):
    """Somebody stopped the run."""


class StoreError(RunError):
    """The journal could not be written or read, so nothing that depends on it was done."""


class Busy(StoreError):
    """The store would have to wait, and was asked not to; nothing was done."""


class Conflict(NbagentError):
    """Somebody else answered first; the message says who and when."""


class Rejected(NbagentError):
    """A person said no; raised at the line where a tool asked, or where ``nb.form`` was awaited."""


class HumanInputRequired(NbagentError):
    """A run waits for a person and nobody is attached; it stays paused, to be answered later."""

    def __init__(self, message: str, *, interrupts: Sequence[Any] = (), run_id: str = "") -> None:
        super().__init__(message)
        self.interrupts = tuple(interrupts)
        self.run_id = run_id
