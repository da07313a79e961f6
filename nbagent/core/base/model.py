"""The interface of a language model: one method that streams deltas."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from .amounts import MOST, amount
from .errors import ErrorKind
from .messages import Message
from .pickling import Made, Travels, cannot_travel, has_secret

logger = logging.getLogger("nbagent")

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]
HostedStatus = Literal["running", "done", "failed"]


TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names of tools that models' APIs accept."""


@dataclass(frozen=True, slots=True, eq=False)
class ToolSpec:
    """A tool as the model receives it; one object per tool, so adapters may cache by identity."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Hosted(Travels):
    """A tool that the model's provider runs, not this process. Made by ``nb.hosted``."""

    kind: str
    """The provider's name for the tool, such as ``web_search``."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The provider's options; a token may be among them."""
    name: str = ""
    """The name in rules and in the card: the kind, or the label that the provider requires."""

    def __reduce__(self) -> Made:
        if has_secret("", self.options):
            cannot_travel(
                f"nb.hosted({self.kind!r})",
                "its options contain a token, a key or a password. Import the agent there from a module that makes it",
            )
        return Hosted, (self.kind, dict(self.options), self.name)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response or of several, and their cost in US dollars.

    ``cost`` is the whole cost, or None if any part is unknown. A value that is not a finite number of at least 0
    counts as unknown and is logged.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    cached: int = 0
    """Input tokens that the server had in its cache."""
    reasoning: int = 0
    """Output tokens of hidden reasoning."""
    known_cost: float = 0.0
    """The known part of the cost: all of it, or a lower bound if ``cost`` is None."""
    partial: bool = False
    """True if the model did not report the tokens of a response."""
    written: int = 0
    """Input tokens that were written to the server's cache; some providers charge more for them."""

    def __post_init__(self) -> None:
        counts = (self.input_tokens, self.output_tokens, self.cached, self.reasoning, self.written)
        is_counted = all(type(value) is int and 0 <= value <= MOST for value in counts)
        if self.cost is None and self.known_cost == 0.0 and is_counted:
            return  # nearly always
        for name, unknown in _COUNTED.items():
            value = getattr(self, name)
            types = (int, float) if "cost" in name else (int,)
            if value is unknown or (type(value) in types and 0 <= value <= MOST):
                continue
            number = None if value is None else amount(value)
            if number is None and value is not None:
                logger.warning("a model reported %s as %.80r; the value is ignored", name, value)
            valid = unknown if number is None else number
            object.__setattr__(self, name, valid if "cost" in name else int(valid or 0))
        if self.cost is not None:
            object.__setattr__(self, "known_cost", self.cost)

    def __add__(self, other: Usage) -> Usage:
        if self is NOTHING or self == NOTHING:
            return other
        if other is NOTHING or other == NOTHING:
            return self
        is_known = self.cost is not None and other.cost is not None
        known_cost = min(self.known_cost + other.known_cost, MOST)
        return Usage(
            min(self.input_tokens + other.input_tokens, int(MOST)),
            min(self.output_tokens + other.output_tokens, int(MOST)),
            known_cost if is_known else None,
            min(self.cached + other.cached, int(MOST)),
            min(self.reasoning + other.reasoning, int(MOST)),
            known_cost,
            self.partial or other.partial,
            min(self.written + other.written, int(MOST)),
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def is_priced(self) -> bool:
        """Whether the whole cost is known; the cost of ``NOTHING`` is 0."""
        return self.cost is not None or self == NOTHING


_COUNTED = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cost": None,
    "cached": 0,
    "reasoning": 0,
    "known_cost": 0.0,
    "written": 0,
}
"""The counts of a usage, with the values for unknown ones."""
NOTHING = Usage()
"""No usage: no request was made. A response without a report is ``Usage(partial=True)``."""


class Request(NamedTuple):
    """One request to a model."""

    messages: Sequence[Message]
    """A complete history: all calls have results."""
    instructions: str | None = None
    """The system prompt, which is not among the messages."""
    tools: Sequence[ToolSpec] = ()
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the final text, always of an object; None for free text."""
    stream: bool = True
    """True if deltas are used; otherwise an adapter may request the whole response at once."""
    hosted: Sequence[Hosted] = ()
    """Tools that the provider may run itself; only for models with ``check_hosted``."""


class TextDelta(NamedTuple):
    """A piece of text; adapters may join pieces that arrived together."""

    text: str

    @property
    def type(self) -> Literal["text_delta"]:
        """The tag of this kind of event."""
        return "text_delta"


class ReasoningDelta(NamedTuple):
    """A piece of the model's reasoning."""

    text: str
    replaces_text: bool = False
    """True if the response's text so far was reasoning: this piece repeats it, and the text begins again, empty."""

    @property
    def type(self) -> Literal["reasoning_delta"]:
        """The tag of this kind of event."""
        return "reasoning_delta"


class ToolCallDelta(NamedTuple):
    """A piece of one tool call: ``id``, ``name`` and ``provider`` come once, ``arguments`` is JSON text in pieces."""

    index: int  # type: ignore[assignment]  # in the place of tuple's own
    arguments: str = ""
    id: str | None = None
    name: str | None = None
    provider: Any = None
    """Data that the provider must receive again with this call: JSON that only the provider reads."""

    @property
    def type(self) -> Literal["tool_call_delta"]:
        """The tag of this kind of event."""
        return "tool_call_delta"


class HostedCall(NamedTuple):
    """The current state of a hosted tool call; of several states with the same ``id``, the last one counts."""

    id: str
    """Unique in its response."""
    name: str
    input: Mapping[str, Any]
    """The input that the provider used, if it reports it."""
    status: HostedStatus = "running"
    output: str | None = None
    """The result as text, or the error."""
    sources: Sequence[Mapping[str, str]] = ()
    """The pages that the call read: ``{"url": str}``, with ``"title"`` if the page has one."""
    files: Sequence[Mapping[str, Any]] = ()
    """The files that the call made, as file parts."""

    @property
    def type(self) -> Literal["hosted_call"]:
        """The tag of this kind of event."""
        return "hosted_call"


class Citation(NamedTuple):
    """A reference of this response's text: a page, or a file by its name."""

    title: str
    url: str = ""

    @property
    def type(self) -> Literal["citation"]:
        """The tag of this kind of event."""
        return "citation"


class Discarded(NamedTuple):
    """The streamed part of this response does not count: the attempt failed and is repeated."""

    reason: str
    usage: Usage = NOTHING
    """What the attempt has used; it counts."""

    @property
    def type(self) -> Literal["discarded"]:
        """The tag of this kind of event."""
        return "discarded"


class Notice(NamedTuple):
    """A note on this response for the person, stored and shown with the response."""

    text: str

    @property
    def type(self) -> Literal["notice"]:
        """The tag of this kind of event."""
        return "notice"


class Waiting(NamedTuple):
    """The request waits before it is sent, or sent again; any other delta ends the wait."""

    seconds: float
    reason: str
    kind: ErrorKind | None = None
    """The kind of the server's error that is the reason; None for a limit of your own."""

    @property
    def type(self) -> Literal["waiting"]:
        """The tag of this kind of event."""
        return "waiting"


class Finished(NamedTuple):
    """The response is complete; always the last delta. A stream that ends without it is broken."""

    reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str | None = None
    provider: dict[str, Any] | None = None
    """The provider as ``{"name": str}``, if the response or a call has data to send again with the history. The
    data of the response itself is in ``"data"``: JSON that only the provider reads."""
    answered_by: str | None = None
    """The name of the model that answered, from a model made of several; None for any other model."""

    @property
    def type(self) -> Literal["finished"]:
        """The tag of this kind of event."""
        return "finished"


ModelDelta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | HostedCall
    | Citation
    | Discarded
    | Notice
    | Waiting
    | Finished
)


class Model(Protocol):
    """A language model.

    A model that reports the cost of each response (``Usage.cost``) can set an attribute ``reports_cost`` to
    True. Without the attribute, a run with ``Budget(cost=…)`` cannot use the model.
    """

    @property
    def name(self) -> str:
        """The name that the person reads, such as ``gpt-5``."""

    def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """Answer one request, piece by piece, ending with ``Finished``.

        Raises:
            ModelError: the server refused, or the stream broke and retrying did not help.
            ModelConfigError: the key is missing, or the client is misconfigured.
        """
