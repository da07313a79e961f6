"""Clear messages for errors of the openai client and of the server."""

from __future__ import annotations

import json
import os
import re
import ssl
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from nbagent.core.base.errors import (
    ErrorKind,
    HistoryTooLong,
    ModelConfigError,
    ModelError,
    NbagentError,
)

from .credentials import Credentials
from .providers import PROVIDERS, Provider
from .stream import (
    MAX_CHARACTERS,
    BrokenStream,
    SSEDecoder,
    in_brief,
    kind_in,
    parsed,
    reported,
)


def no_key(model: str, provider: Provider) -> ModelConfigError:
    """The error for a model without a key or its own server."""
    providers = [p for p in PROVIDERS.values() if p.needs_key and os.environ.get(p.key)]
    other = "".join(
        f'. {p.key} is set: to use it, write nb.Agent("{p.name}:…")' for p in providers[:3]
    )
    return ModelConfigError(
        f"The model {model!r} needs an API key. Set the environment variable {provider.key}, or pass "
        f"OpenAIModel(name, api_key=…){other}. For a local server, pass base_url=…. To try nbagent without a key, "
        'use nb.Agent("demo")'
    )


def clear_error(  # noqa: PLR0913 - keyword-only, one for each part of the text
    error: Exception,
    *,
    model: str,
    base_url: str,
    credentials: Credentials,
    provider: Provider | None,
    api: str = "chat",
    tries: int = 0,
    wait: float = 0,
    max_wait: float = 0,
    hint: str = "",
) -> NbagentError:
    """The error to raise instead of ``error``, without the client's credentials.

    If the server set a time to ``wait``, in seconds, the message contains the time, and whether it exceeds
    ``max_wait``. ``provider`` is the provider whose key was sent; None for a client that the caller passed. ``tries``
    is the number of failed attempts before this one. ``hint`` is added to the text.
    """
    kind, text = _kind_and_text(
        error, model=model, base_url=base_url, provider=provider, api=api, tries=tries
    )
    if wait >= MIN_SHOWN_WAIT:
        when = "in over a year"
        if wait <= MAX_DATED_WAIT:
            at = datetime.now(UTC) + timedelta(seconds=wait)
            when = f"in {wait:,.0f} s, at {at:%Y-%m-%d %H:%M} UTC"
        over = f", but max_wait is {max_wait:g} s" if wait > max_wait else ""
        text += f". Requests are possible again {when}{over}"
    clear = kind(credentials.remove(text + hint))
    if isinstance(clear, ModelError) and not isinstance(clear, HistoryTooLong):
        clear.kind = _error_kind(error)
    return clear


def _error_kind(error: Exception) -> ErrorKind | None:
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    match error:
        case ModelError():
            return error.kind
        case openai.APIStatusError(status_code=status):
            return _status_kind(status, f"{getattr(error, 'code', '')} {error_text(error)}")
        case openai.APIConnectionError():
            return "outage"
        case _:
            return None


def _status_kind(status: int, words: str) -> ErrorKind | None:
    """The kind of a status error; statuses with several meanings need the server's words."""
    kind = kind_in(words) if status in (400, 403, 413, 422, 500) else None
    if kind is not None:
        return kind
    match status:
        case 402 | 429:
            return "rate_limit"
        case 401 | 403 | 404:
            return "access"
        case 413:
            return "too_long"
        case _:
            return "outage" if status >= 500 or status in (408, 409) else None


MIN_SHOWN_WAIT = 0.5
"""The minimum wait in seconds that a message or a note contains."""
MAX_ERROR_TEXT = 20_000
"""The maximum characters of the client's error, in which a server may repeat the request."""
MAX_DATED_WAIT = 366 * 86400
"""The maximum wait in seconds for which the message contains a date."""


def _kind_and_text(
    error: Exception, *, model: str, base_url: str, provider: Provider | None, api: str, tries: int
) -> tuple[type[NbagentError], str]:
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    match error:
        case NbagentError():  # LiteLLM's client raises these, with a better message
            return type(error), str(error)
        case openai.APITimeoutError():
            outcome = "did not answer in time. To wait longer, pass timeout=seconds to the model"
        case openai.APIConnectionError() if (end := server_behavior(error)) is not None:
            outcome = f"{end} ({_cause(error)})"
        case openai.APIConnectionError():
            hint = "Check base_url and the network"
            if provider is not None and provider.name and not provider.needs_key:
                hint = f"Is {provider.name} running there?"
            outcome = f"cannot be reached ({_cause(error)}). {hint}"
        case openai.APIStatusError() if 300 <= error.status_code < 400:
            where = error.response.headers.get("location", "nowhere")
            return ModelError, (
                f"The model {model!r} at {base_url}: {error.status_code}. The server redirects to {where:.200}. Neither "
                "the key nor the conversation was sent there. If this address is right, set it as base_url"
            )
        case openai.APIStatusError() if is_too_long(error):
            return HistoryTooLong, (
                f"The model {model!r} at {base_url}: {error.status_code}, {TOO_LONG} ({error_text(error)})"
            )
        case openai.APIError() if isinstance(status := getattr(error, "status_code", None), int):
            reason = _status(status, error_text(error), model, api, provider, tries)
            return ModelError, f"The model {model!r} at {base_url}: {reason}"
        case openai.OpenAIError():
            return ModelConfigError, f"The client of the model {model!r} is misconfigured: {error}"
        case RuntimeError() if "loop" in str(error):
            return ModelConfigError, (
                f"The client of the model {model!r} belongs to another event loop ({error}). Pass client= a function that "
                "creates a client. It is called once for each loop"
            )
        case _:
            outcome = f"failed: {str(error) or type(error).__name__}"
    return ModelError, f"The model {model!r}: the server at {base_url} {outcome}"


TOO_LONG = (
    "the conversation is too long for the model. Write a shorter message, or pass nb.Agent(…, history=nb.keep()), "
    "which leaves out the oldest results and turns"
)


def is_too_long(error: Exception | str) -> bool:
    """Whether a server refused a request for its length: the client's error, or the text of an error in a stream."""
    if isinstance(error, str):
        return kind_in(error) == "too_long"
    status = getattr(error, "status_code", None)
    told = f"{getattr(error, 'code', None)} {getattr(error, 'type', None)} {error_text(error)}"
    if status in (413, 429) and _MORE_THAN_A_MINUTE.search(told):
        return True  # one request is more than a minute's tokens: waiting does not help
    return status in {400, 413, 422, 500} and kind_in(told) == "too_long"


_MORE_THAN_A_MINUTE = re.compile(r"request too large for|tokens must be reduced", re.IGNORECASE)


class Refusal(NamedTuple):
    """A server's error for a request that it did not understand; another form of the request may work."""

    text: str
    request: Mapping[str, Any] | None
    """The sent request; None if it is unknown."""


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal in the client's error; None for other errors."""
    if getattr(error, "status_code", None) not in {400, 422}:
        return None
    request: Any = getattr(error, "request", None)
    try:
        sent = json.loads(request.content)
    except (AttributeError, ValueError, RuntimeError):
        # the last is httpx2's error for a body that was consumed
        sent = None
    return Refusal(error_text(error), sent if isinstance(sent, Mapping) else None)


def error_text(error: Exception) -> str:
    """The message of the client's error, with the server's text if the client does not read it.

    The client reads one field of a JSON object. Servers send other forms: an event of a stream, a text instead of the
    error's object, FastAPI's ``detail``, a line of plain text.
    """
    text, body = in_brief(error, MAX_ERROR_TEXT), getattr(error, "body", None)
    if not body or text != f"Error code: {getattr(error, 'status_code', None)}":
        return text
    words = error_message(body)
    return f"{text} - {words}" if words else text


def error_message(body: Any) -> str:
    """The message in an error of any form: a text with JSON or an event in it, or a parsed value."""
    return _words(_parse_body(body) if isinstance(body, str) else body)[:MAX_CHARACTERS]


def error_in(value: Mapping[str, Any]) -> BrokenStream | None:
    """The error in an event or an answer that has neither content nor a field ``error``; None if it has no words."""
    words = error_message(value)
    return reported({**value, "message": words}) if words else None


_NAMES = (
    *("message", "Message", "detail", "error", "msg", "response"),
    *("error_message", "errors", "base_resp", "status_msg"),
)
"""The fields of an error with its message, or with an object that has the message."""


def _parse_body(body: str) -> Any:
    """The JSON of a text, or of its last server-sent event; the text itself if there is none."""
    data = body.encode("utf-8", "replace")
    for each in [data] if data[:1] == b"{" else reversed(SSEDecoder().feed(data + b"\n\n")):
        try:
            return parsed(each)
        except BrokenStream:  # such as "[DONE]"
            continue
    return body


def _words(body: Any, depth: int = 4) -> str:
    match body:
        case str():
            page = _TITLE.search(body) if body.lstrip()[:1] == "<" else None
            return page[1].strip() if page else body.strip()
        case {"loc": [*place], "msg": str(why)}:
            # one entry per field of the request, in FastAPI's form
            return f"{'.'.join(map(str, place))}: {why}"
        case Mapping() if depth:
            found = (_words(body.get(name), depth - 1) for name in _NAMES)
            return next(filter(None, found), "")
        case [*several] if depth:
            return "; ".join(filter(None, (_words(each, depth - 1) for each in several[:5])))
        case _:
            return ""


_TITLE = re.compile(r"<title>([^<]{1,200})", re.IGNORECASE)


def transport_errors() -> tuple[type[Exception], ...]:
    """The errors of reading a response after its connection broke."""
    import anyio  # noqa: PLC0415  as below
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    errors = (httpx2.RequestError, openai.APIConnectionError, ssl.SSLError, anyio.EndOfStream)
    old = sys.modules.get("httpx")  # a client may have an http_client of the old httpx
    return errors if old is None else (*errors, old.RequestError)


def broken(error: Exception) -> str:
    """The reason why a stream broke, in words."""
    name = type(error).__name__
    if "Timeout" in name:
        return "the server stopped sending in the middle of its answer"
    return f"the connection broke in the middle of the answer ({name})"


def server_behavior(error: Exception) -> str | None:
    """The behavior of a server or proxy that was reached but did not answer; None if neither was reached."""
    cause = error.__cause__
    kind = type(cause).__name__  # a name, because a client may use any HTTP library
    if kind == "ProxyError":
        return "was not reached, because the proxy rejected the connection. Check HTTPS_PROXY and NO_PROXY"
    if kind == "LocalProtocolError":  # of the client, which sent nothing
        return "was not reached, because a header is invalid. Does the API key end in a line break?"
    if "CERTIFICATE_VERIFY_FAILED" in str(cause):
        return "was reached, but its certificate is not trusted here"
    if "[SSL" in str(cause):
        return "was reached, but its TLS failed. Is it http:// instead of https://?"
    if cause is None or kind in _UNREACHED:
        return None
    return "was reached, but closed the connection without an answer"


_UNREACHED = frozenset(
    {
        *("ConnectError", "UnsupportedProtocol"),
        *("ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorSSLError"),
        *("ConnectionRefusedError", "gaierror"),
    }
)
_CLOSED = frozenset(
    {
        *("ProxyError", "ReadError", "WriteError", "CloseError", "RemoteProtocolError"),
        *("ServerDisconnectedError", "ClientOSError", "ConnectionResetError", "BrokenPipeError"),
    }
)
"""The names of errors of httpx, aiohttp and Python for a server that was not reached, or closed the connection."""


def is_transport(error: BaseException) -> bool:
    """Whether the error is a failed connection, not a server's answer."""
    return type(error).__name__ in _UNREACHED | _CLOSED


def unanswered_error(text: str, cause: BaseException) -> Exception:
    """The client's error for a server that did not answer."""
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    error = openai.APIConnectionError(message=text, request=httpx2.Request("POST", ""))
    error.__cause__ = cause
    return error


def refused_error(status: int, text: str) -> Exception:
    """The client's error for a server that rejected the request."""
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    response = httpx2.Response(status, request=httpx2.Request("POST", ""))
    return openai.APIStatusError(text, response=response, body=None)


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return _CONTEXT.sub("", str(cause)) or type(cause).__name__


_CONTEXT = re.compile(r" ssl:(?:<[^>]*>|default)")
"""The part of aiohttp's errors that is removed: the SSL context."""


def _status(
    status: int, text: str, model: str, api: str, provider: Provider | None, tries: int
) -> str:
    retried = "retrying did not help" if tries else "it was not retried"
    if api == "chat" and "/v1/responses" in text:
        return f"{status}, the model needs the Responses API. Pass OpenAIModel(name, api='responses') ({text})"
    match status:
        case 401:
            key = f"{provider.key} or api_key=…" if provider else "the key of client="
            return f"401, the API key was rejected. Check {key} ({text})"
        case 403:
            return f"403, this key cannot use the model ({text})"
        case 404 | 405 if api == "responses":
            return (
                f"{status}, there is no model {model!r} here, or the server has no Responses API. In that case, pass "
                f"OpenAIModel(name, api='chat') ({text})"
            )
        case 404:
            return f"404, there is no model {model!r} here, or base_url is wrong ({text})"
        case 429:
            return f"429, too many requests or no quota left; {retried} ({text})"
        case code if code >= 500:
            return f"{code}, the server failed; {retried} ({text})"
        case code:
            hint = "tool_choice" in text and ". Pass the model another tool_choice=, or none"
            return f"{code}, the request was rejected{hint or ''} ({text})"
