"""What the openai client raises, said so that a person knows what to do."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from nbagent.core.base.errors import ModelConfigError, ModelError, NbagentError

from .credentials import Credentials
from .providers import PROVIDERS, Provider


def no_key(model: str, provider: Provider) -> ModelConfigError:
    """The error for a model that has no key and no server of its own."""
    there = [p for p in PROVIDERS.values() if p.needs_key and os.environ.get(p.key or "")]
    other = "".join(f'; {p.key} is set, which nb.Agent("{p.name}:…") takes' for p in there[:3])
    return ModelConfigError(
        f"the model {model!r} needs an API key: set the environment variable {provider.key} or pass "
        f"OpenAIModel(name, api_key=…){other}; for a local server pass base_url=…; to try nbagent "
        'without a key, use nb.Agent("demo")'
    )


def explained(
    error: Exception,
    *,
    model: str,
    base_url: str,
    credentials: Credentials,
    provider: Provider | None,
    api: str = "chat",
    wait: float = 0,
    max_wait: float = 0,
) -> NbagentError:
    """The error to raise instead of ``error``, with none of the client's credentials in it.

    Where the server said how many seconds to ``wait``, that is told, and if it is more than ``max_wait``.
    ``provider`` is whose key was sent, None where the client is somebody's own.
    """
    kind, text = _explained(error, model=model, base_url=base_url, provider=provider, api=api)
    if wait > max_wait:
        text = text.replace("; retrying did not help", "; it was not asked again")
    text += _come_again(wait, max_wait) if wait else ""
    return kind(credentials.cut(text))


def _come_again(wait: float, max_wait: float) -> str:
    if wait > MOST_TOLD:
        when = "not within a year"
    else:
        at = datetime.now(UTC) + timedelta(seconds=wait)
        when = f"in {wait:,.0f} s, at {at:%Y-%m-%d %H:%M} UTC"
    over = f", and max_wait is {max_wait:g} s" if wait > max_wait else ""
    return f"; the server says to come again {when}{over}"


MOST_TOLD = 366 * 86400
"""Seconds from which no date is told."""


def _explained(
    error: Exception, *, model: str, base_url: str, provider: Provider | None, api: str
) -> tuple[type[NbagentError], str]:
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    match error:
        case NbagentError():  # of a double that knows better
            return type(error), str(error)
        case openai.APITimeoutError():
            what = "did not answer in time; give the model timeout=seconds to wait longer"
        case openai.APIConnectionError():
            hint = "check base_url and the network"
            if provider is not None and provider.name and not provider.needs_key:
                hint = f"is {provider.name} running there?"
            what = f"cannot be reached ({_cause(error)}); {hint}"
        case openai.APIStatusError() if 300 <= error.status_code < 400:
            where = error.response.headers.get("location", "nowhere")
            return ModelError, (
                f"the model {model!r} at {base_url}: {error.status_code}, the server points to {where:.200}, "
                "where neither key nor conversation were sent; if that is right, give its base_url"
            )
        case openai.APIError() if isinstance(status := getattr(error, "status_code", None), int):
            said = _status(status, error.message, model, api, provider)
            return ModelError, f"the model {model!r} at {base_url}: {said}"
        case openai.OpenAIError():
            return ModelConfigError, f"the client of the model {model!r} is misconfigured: {error}"
        case RuntimeError() if "loop" in str(error):
            return ModelConfigError, (
                f"the client of the model {model!r} belongs to another event loop ({error}): pass "
                "client= a function that makes a client, it is called once for each loop"
            )
        case _:
            what = f"failed: {str(error) or type(error).__name__}"
    return ModelError, f"the model {model!r}: the server at {base_url} {what}"


class Refusal(NamedTuple):
    """What a server said of a request that it did not understand; asked in another way it may."""

    said: str
    request: Mapping[str, Any] | None
    """The request as it was sent; None where nobody knows."""


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal that the client raised; None where it raised anything else."""
    if getattr(error, "status_code", None) not in {400, 422}:
        return None
    request: Any = getattr(error, "request", None)
    try:
        sent = json.loads(request.content)
    except (AttributeError, ValueError, RuntimeError):  # httpx2's for a body that is gone
        sent = None
    return Refusal(str(error), sent if isinstance(sent, Mapping) else None)


def refused_for_content(error: Exception) -> bool:
    """Whether a server refused a request for what is in it, and not for who asks or how often."""
    return getattr(error, "status_code", None) in {400, 404, 415, 422}


def transport_errors() -> tuple[type[Exception], ...]:
    """What reading a response may raise when its connection breaks."""
    import anyio  # noqa: PLC0415  as below
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    errors = (httpx2.RequestError, openai.APIConnectionError, ssl.SSLError, anyio.EndOfStream)
    old = sys.modules.get("httpx")  # a client may have been given an http_client of the old httpx
    return errors if old is None else (*errors, old.RequestError)


def broken(error: Exception) -> str:
    """How a stream ended, in words."""
    name = type(error).__name__
    if "Timeout" in name:
        return "the server stalled in the middle of its answer"
    return f"the connection broke in the middle of the answer ({name})"


def _cause(error: Exception) -> str:
    return str(error.__cause__ or error) or type(error.__cause__ or error).__name__


def _status(status: int, said: str, model: str, api: str, provider: Provider | None) -> str:
    if api == "chat" and "/v1/responses" in said:
        return f"{status}, it wants Responses: pass OpenAIModel(name, api='responses') ({said})"
    match status:
        case 401:
            key = f"{provider.key} or api_key=…" if provider else "the key that client= has"
            return f"401, the API key was refused; check {key} ({said})"
        case 403:
            return f"403, this key may not use the model ({said})"
        case 404 | 405 if api == "responses":
            return (
                f"{status}, the server may have no Responses API, then pass OpenAIModel(name, api='chat'); "
                f"or there is no model {model!r} here ({said})"
            )
        case 404:
            return f"404, there is no model {model!r} here, or base_url is wrong ({said})"
        case 429:
            return f"429, too many requests or no quota left; retrying did not help ({said})"
        case code if code >= 500:
            return f"{code}, the server failed; retrying did not help ({said})"
        case code:
            return f"{code}, the request was refused ({said})"
