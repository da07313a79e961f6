"""How a server is told the shape of a typed answer: by a schema, by JSON mode, or in words alone.

Few servers take every way (https://platform.openai.com/docs/guides/structured-outputs): one that refuses
a way is asked in the next from then on, and whatever comes is checked here all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.messages import dumps
from nbagent.core.base.model import Request

from .errors import Refusal
from .providers import OutputMode

MODES: tuple[OutputMode, ...] = ("schema", "object", "prompt")
"""From the one that binds the model most."""
_NAMED = re.compile(
    r"response_?format|text\.format|json_schema|json_object|json mode|structured output",
    re.IGNORECASE,
)
_BY_TYPE: Mapping[Any, OutputMode] = {"json_schema": "schema", "json_object": "object"}
"""By the type of format that a request asks for."""
_TOLD = (
    "Your final answer must be one JSON object that fits this JSON Schema, with no other words around it "
    "and in no code fence:\n{schema}"
)


def checked_mode(mode: Any) -> OutputMode:
    """A way that there is.

    Raises:
        ModelConfigError: naming them.
    """
    if mode not in MODES:
        raise ModelConfigError(f"output is {', '.join(map(repr, MODES))}, not {mode!r:.80}")
    known: OutputMode = mode
    return known


def in_words(request: Request, mode: OutputMode) -> Request:
    """The request with the schema in its instructions, where the server is not told it in a field."""
    if request.output_schema is None or mode == "schema":
        return request
    told = _TOLD.format(schema=dumps(request.output_schema))
    before = f"{request.instructions}\n\n" if request.instructions else ""
    return request._replace(instructions=f"{before}{told}")


def next_mode(mode: OutputMode, refusal: Refusal) -> OutputMode | None:
    """The way to ask in from now on, where a server refused the one that it was asked in.

    Args:
        mode: the way that is used now.
        refusal: maybe of a request that was sent in an earlier way.
    """
    if not _NAMED.search(refusal.said):
        return None
    refused = MODES.index(mode if refusal.request is None else _mode_of(refusal.request))
    if refused + 1 >= len(MODES):
        return None
    return MODES[max(refused + 1, MODES.index(mode))]


def _mode_of(request: Mapping[str, Any]) -> OutputMode:
    """The way that a request was sent in."""
    for told in (request.get("response_format"), request.get("text")):
        said = told.get("format", told) if isinstance(told, Mapping) else {}
        if isinstance(said, Mapping) and said.get("type") in _BY_TYPE:
            return _BY_TYPE[said["type"]]
    return "prompt"
