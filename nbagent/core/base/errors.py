"""Every exception nbagent raises, as one tree.

NbagentError
├── UsageError                 the caller did something that cannot work
│   ├── ToolError              a tool is declared wrongly or is not registered
│   ├── MessagesError          a history is malformed
│   ├── InvalidAnswer          an answer is not valid; nothing was changed
│   ├── NotPending             an answer to something that does not wait for an answer
│   ├── UnansweredInterrupts   a message was sent while questions are open
│   ├── RunNotFinished         a result was asked for too early
│   └── ModelConfigError       no key, no such model, a misconfigured client
├── RunError                   a run could not continue
│   ├── ModelError             the model or its server failed
│   │   ├── HistoryTooLong     the model's server refused a conversation for its length
│   │   └── NotRecorded        the recording has no answer to a request
│   ├── McpError               an MCP server cannot be used, or failed
│   ├── ToolFailed             a tool failed, and ``on_tool_error`` is "raise"
│   ├── Misuse                 a tool used its context wrongly
│   ├── BudgetExceeded         turns, tokens, cost or time are used up
│   │   └── TurnLimit          the model used all its turns
│   ├── Expired                a question expired, and that fails the run
│   ├── Cancelled              the run was stopped
│   └── StoreError             the journal could not be written or read
│       └── Busy               the store would have to wait
├── Conflict                   another answer or write came first
├── Rejected                   a person rejected a question of a tool or ``nb.form``
└── HumanInputRequired         no person can answer

``nbagent.Interrupt`` is not in the tree: it is a signal, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from nbagent.core.hooks import hooks

from .controls import escaped


def suggest(name: str, known: Iterable[str]) -> str:
    """``. Did you mean 'danger'?`` for a name that is similar to a known one, else an empty string."""
    import difflib  # noqa: PLC0415  only a mistake needs it

    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f". Did you mean {lower[found[0]]!r}?" if found else ""


class NbagentError(Exception):
    """Base class of all nbagent errors. Its text contains no control characters."""

    says_all: ClassVar[bool] = False
    """Whether the text alone is shown for a call that fails by it, without the name of the class."""

    def __init__(self, message: str = "") -> None:
        super().__init__(escaped(message))

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of its own traceback."""
        return hooks.error_lines(self)


def as_shown(error: BaseException) -> str:
    """An error as a call that fails by it shows it: the name of its class and its text, or a text that says all."""
    try:
        text = str(error)
    except Exception as failure:  # the error's own method raises
        text = f"its text cannot be shown, because of {type(failure).__name__}"
    says_all = isinstance(error, NbagentError) and error.says_all
    return text if says_all else f"{type(error).__name__}: {text}"


class UsageError(NbagentError):
    """The caller did something that cannot work."""


class ToolError(UsageError):
    """A tool is declared wrongly, or a tool that is needed is not registered."""


class MessagesError(UsageError, ValueError):
    """A history is malformed, so no model may receive it."""


class InvalidAnswer(UsageError, ValueError):
    """An answer does not match its question; nothing was changed.

    ``errors`` has one ``{"loc": (...), "msg": "..."}`` for each problem.
    """

    def __init__(self, message: str, *, errors: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.errors = tuple({**each, "msg": escaped(str(each.get("msg", "")))} for each in errors)


class NotPending(UsageError, LookupError):
    """An answer names something that does not wait for an answer."""


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
    """A run could not continue; ``messages`` is the history so far, to continue from."""

    def __init__(self, message: str, *, messages: Sequence[Any] = (), text: str = "") -> None:
        super().__init__(message)
        self.messages = tuple(messages)
        self.text = text


ErrorKind = Literal["rate_limit", "outage", "refusal", "too_long", "access"]
"""The kinds of a model's failure that another model may not have.

- ``rate_limit``: too many requests, or no quota left
- ``outage``: the server cannot be reached, is overloaded, fails, is silent, or gives no usable answer
- ``refusal``: the provider's content filter rejected the request, or removed the answer
- ``too_long``: the conversation is longer than the model allows
- ``access``: the key is missing or rejected, or cannot use the model, or there is no such model
"""


class ModelError(RunError):
    """The model or its server failed."""

    usage: Any = None
    """The ``Usage`` of an answer that cannot be used, which counts; None if there was none."""

    def __init__(
        self,
        message: str,
        *,
        messages: Sequence[Any] = (),
        text: str = "",
        kind: ErrorKind | None = None,
    ) -> None:
        super().__init__(message, messages=messages, text=text)
        if kind is not None and kind not in get_args(ErrorKind):
            known = ", ".join(get_args(ErrorKind))
            raise UsageError(f"kind must be one of {known}, or None, got {kind!r:.80}")
        self.kind = kind
        """The kind of failure, which decides whether ``nb.Fallback`` asks another model; None for any other."""


class HistoryTooLong(ModelError):
    """The model's server refused a request for its length. A follow-up leaves out the message that was refused."""

    def __init__(self, message: str, *, kind: ErrorKind | None = "too_long") -> None:
        super().__init__(message, kind=kind)


class NotRecorded(ModelError):
    """The recording has no answer to this request. ``diff`` compares it with the nearest recorded request."""

    def __init__(self, message: str, *, diff: str = "") -> None:
        super().__init__(message)
        self.diff = escaped(diff)


class McpError(RunError):
    """An MCP server cannot be reached or used, or a call of it failed."""


class ToolFailed(RunError):
    """A tool failed, and ``on_tool_error`` is ``"raise"``; the cause is ``__cause__``."""


class Misuse(RunError):
    """A tool or middleware used its context wrongly, for example with metadata that is not JSON."""


class BudgetExceeded(RunError):
    """A budget is used up; ``messages`` and ``text`` have the results so far."""


class Expired(RunError):
    """A question expired, and its tool set ``on_expire="fail"``."""


class TurnLimit(BudgetExceeded):
    """The model used all its turns; ``messages`` and ``text`` have the results so far."""


class Cancelled(RunError):
    """The run was stopped."""


class StoreError(RunError):
    """The journal could not be written or read, so nothing that depends on it was done."""


class Busy(StoreError):
    """The store would have to wait, and the caller does not wait; nothing was done."""


class Conflict(NbagentError):
    """Another answer or write came first, so nothing was changed. The message has its source and time, if known."""


class Rejected(NbagentError):
    """A person rejected the question. The error is raised where the tool asked, or where ``nb.form`` is awaited.

    ``reason`` has the person's words alone; None if there are none.
    """

    def __init__(self, message: str = "", *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class HumanInputRequired(NbagentError):
    """A run needs an answer, and no person can answer in this process. The run stays paused; answer it later."""

    def __init__(self, message: str, *, interrupts: Sequence[Any] = (), run_id: str = "") -> None:
        super().__init__(message)
        self.interrupts = tuple(interrupts)
        self.run_id = run_id

    def __reduce__(self) -> Any:
        """The error for another process, without the interrupts, which have the tools."""
        return partial(type(self), run_id=self.run_id), (str(self),)
