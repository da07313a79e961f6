"""How a server is told the shape of a typed answer: by a schema, by JSON mode, or in words alone.

Few servers take every way (https://platform.openai.com/docs/guides/structured-outputs): one that refuses
a way is asked in the next from then on, and whatever comes is checked here all the same.
"""

from __future__ import annotations

import json
import re
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.messages import dumps
from nbagent.core.base.model import Request

from .providers import OutputMode

MODES: tuple[OutputMode, ...] = ("schema", "object", "prompt")
"""From the one that binds the model most."""
_NAMED = re.compile(
    r"response_?format|text\.format|json_schema|json_object|json mode|structured output",
    re.IGNORECASE,
)
_TYPES = {"json_schema": 0, "json_object": 1}
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


def next_mode(mode: OutputMode, error: Exception) -> OutputMode | None:
    """The way to ask in from now on, where a server refused the one that it was asked in.

    Args:
        mode: the way that is used now.
        error: what the server said, of a request that may have been sent in an earlier way.
    """
    if getattr(error, "status_code", None) not in {400, 422} or not _NAMED.search(str(error)):
        return None
    sent = _sent(error)
    refused = MODES.index(mode) if sent is None else sent
    if refused + 1 >= len(MODES):
        return None
    return MODES[max(refused + 1, MODES.index(mode))]


def _sent(error: Exception) -> int | None:
    """Which way the refused request was sent in; None where nobody knows."""
    try:
        body = json.loads(getattr(error, "request").content)  # noqa: B009 - of openai's errors alone
        said = body.get("response_format") or body.get("text", {}).get("format") or {}
        kind = said.get("type")
    except (AttributeError, ValueError, RuntimeError):  # httpx2's for a body that is gone
        return None
    return _TYPES.get(str(kind), len(MODES) - 1)
