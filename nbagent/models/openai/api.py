"""What one of OpenAI's APIs is to the model that speaks it: a path, requests as bytes, answers as deltas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nbagent.core.base.model import Finished, Hosted, ModelDelta, Request

from .errors import Refusal
from .providers import OutputMode


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model was given that shapes its requests, in either API."""

    model: str
    """What its server calls it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each request."""
    tool_choice: str | None = None
    """Which tool its first answer calls, see ``tool_choice``."""
    output: OutputMode = "schema"
    """How the server is told the shape of a typed answer, until it refuses that."""
    sees: bool = True
    """Whether it takes pictures; else they are told in words."""


class Parser(Protocol):
    """Turns one response into deltas; no I/O, so any chunking can be tested."""

    done: bool
    """Whether the server said that nothing follows."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in the next bytes of an event stream.

        Raises:
            BrokenStream: they hold an error, or what is no event of this API.
        """

    def chunk(self, value: Any) -> list[ModelDelta]:
        """The deltas of one event that somebody else took out of the stream, or of a whole response.

        Raises:
            BrokenStream: it is an error, or no event of this API.
        """

    def whole(self, data: bytes) -> list[ModelDelta]:
        """The deltas of a response that came in one piece.

        Raises:
            BrokenStream: it is no response of this API.
        """

    def finished(self) -> Finished | None:
        """What ends the response, or None where it is not whole."""


class Api(Protocol):
    """How one model is asked in one API; what it encoded once it keeps."""

    name: str
    """``chat`` or ``responses``."""
    path: str
    """Below the base URL."""

    def owner(self, host: str) -> str:
        """The name of what this server wants back in this API: another API of it reads other data."""

    def body(self, request: Request, provider: str) -> bytes:
        """The JSON of one request.

        Args:
            request: what to encode.
            provider: whose server it goes to: data of that name go back, that of others is left out.
        """

    def parser(self, provider: str) -> Parser:
        """What reads the answer, and names its data after the provider."""

    def typed(self, client: Any) -> Any:
        """The client's own method for it, for clients that want to look into the body."""

    def check_hosted(self, tool: Hosted) -> None:
        """Refuse a hosted tool that this API has not.

        Raises:
            ModelConfigError: saying what to do.
        """

    def give_way(self, refusal: Refusal) -> None:
        """Ask in another way from now on, where the server refused a field by its name and there is one."""
