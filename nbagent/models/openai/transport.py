"""The client of a model without ``client=``: an ``AsyncOpenAI`` that sends the same requests with less CPU time.

It builds the request of a path once, and sends every further body in a copy.
"""

from __future__ import annotations

import logging
import sys
import urllib.request
from typing import Any

import httpx2
import openai

from .errors import transport_errors
from .stream import bound

LOG = logging.getLogger("openai._base_client")
"""The openai client's log of its requests (``OPENAI_LOG=debug``)."""


class Client(openai.AsyncOpenAI):
    """The client. Its key, address and headers stay as they were for the first request."""

    def __init__(self, **settings: Any) -> None:
        if "http_client" not in settings:
            # AsyncOpenAI's own http client would close itself on whichever loop is running
            settings["http_client"] = openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [bound]},
                transport=_connections(),
                # only without a transport: httpx2 would read a surplus answer as the next one
                limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=0),
            )
        super().__init__(**settings)
        self._built: dict[str, _Built] = {}
        """The request of each path that was answered."""

    @property
    def user_agent(self) -> str:
        """As the base class sends it; there it contains the name of the class."""
        return f"AsyncOpenAI/Python {openai.__version__}"

    async def post(self, path: str, *, content: bytes | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Send a body, without retries; return the unread response.

        Raises:
            openai.OpenAIError: the request failed.
        """
        built = self._built.get(path)
        if built is None or content is None or LOG.isEnabledFor(logging.DEBUG):
            response: httpx2.Response = await super().post(path, content=content, **options)
            if content is not None:
                has_cookie = any(name.lower() == "cookie" for name in self._custom_headers)
                self._built[path] = _Built(response.request, keeps_cookie=has_cookie)
            return response
        request = built.with_body(content)
        if self._client.cookies:
            self._client.cookies.set_cookie_header(request)
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=request) from error
        except transport_errors() as error:
            raise openai.APIConnectionError(request=request) from error
        if not response.is_success:
            await response.aread()
            raise self._make_status_error_from_response(response)
        return response


def _connections() -> httpx2.AsyncBaseTransport | None:
    """The connections; None for what only ``httpx2`` has: the fetch of a web page, and SOCKS proxies."""
    if sys.platform == "emscripten":
        return None
    proxies = urllib.request.getproxies()
    if any(proxies.get(kind, "").startswith("socks") for kind in ("http", "https", "all")):
        return None
    from .connections import Connections  # noqa: PLC0415  a web page has no aiohttp

    return Connections()


class _Built:
    """A request without its body, and without the cookies that a server set. Its ``repr`` shows no secrets."""

    def __init__(self, request: httpx2.Request, *, keeps_cookie: bool) -> None:
        self._url = request.url
        self._headers = request.headers.copy()
        self._timeouts = dict(request.extensions)
        for name in ("content-length", *(() if keeps_cookie else ("cookie",))):
            self._headers.pop(name, None)

    def with_body(self, content: bytes) -> httpx2.Request:
        """The request with a body."""
        headers = self._headers.copy()
        headers["content-length"] = str(len(content))
        body = httpx2.ByteStream(content)
        request = httpx2.Request(
            "POST", self._url, headers=headers, stream=body, extensions=self._timeouts
        )
        request.read()  # errors that the client raises contain the body
        return request
