"""One openai client per event loop, closed with its loop.

A client's connections belong to the loop that opened them. On a second loop, they fail with a
bare "Event loop is closed".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from threading import Lock
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from nbagent.core.base.errors import ModelConfigError

from .credentials import Keyring, without_query
from .errors import clear_error, no_key
from .providers import Provider, address

OpenClient = tuple[Any, AsyncGenerator[Any, None]]


class Clients:
    """The clients of one model: created, cached and closed by this class, or one that the caller passed."""

    def __init__(self, make: Callable[[], Any] | None = None, *, given: Any = None) -> None:
        self._make = make
        self.given = given
        """The client that the caller passed, returned for every loop and closed by its owner."""
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, OpenClient] = WeakKeyDictionary()
        self._lock = Lock()

    async def get(self) -> Any:
        """The client of the running loop.

        Raises:
            ModelConfigError: the client cannot be created.
        """
        if self._make is None:
            return self.given
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            client = self._make()
            holder = _holding(client)
            with self._lock:
                for old in [old for old in self._opened if old.is_closed()]:
                    del self._opened[old]  # references of its client would keep the loop alive
                opened = self._opened[loop] = (client, holder)
            # A loop that shuts down closes its async generators. ``holder`` then closes the client,
            # so asyncio.run leaves no open socket, and no __del__ is needed.
            await anext(holder)
        return opened[0]

    async def aclose(self) -> None:
        """Close the clients of this loop and, without waiting, of other running loops."""
        here = asyncio.get_running_loop()
        with self._lock:
            all_opened = list(self._opened.items())
            self._opened.clear()
        for loop, (_, holder) in all_opened:
            if loop is here:
                await holder.aclose()
            elif not loop.is_closed():
                with suppress(RuntimeError):  # the loop closed in between, with its client
                    loop.call_soon_threadsafe(loop.create_task, holder.aclose())


async def _holding(client: Any) -> AsyncGenerator[Any, None]:
    try:
        yield client
    finally:
        await client.close()


def make_client(
    model: str,
    provider: Provider,
    *,
    base_url: str | None,
    api_key: str | None,
    max_retries: int | None,
    timeout: float | None,
) -> Any:
    """An ``AsyncOpenAI`` for the running loop.

    Raises:
        ModelConfigError: there is no key or no address, or the client rejects its settings.
    """
    where = base_url or address(provider)
    if api_key is None:
        names = (provider.key, *provider.other_keys)
        api_key = next((key for name in names if (key := os.environ.get(name))), None)
    if api_key is None:
        if provider.needs_key:
            raise no_key(model, provider)
        api_key = "none"  # local servers need no key, but the client insists on one
    if not api_key.isascii():
        at = next(at for at, letter in enumerate(api_key) if not letter.isascii())
        raise ModelConfigError(
            f"The API key of the model {model!r} has the character U+{ord(api_key[at]):04X} at position {at}, which no "
            "key contains. Copy the key again"
        )
    try:
        import httpx2  # noqa: PLC0415  as below
        import openai  # noqa: PLC0415  the client loads for 0.6 s

        from .transport import Client  # noqa: PLC0415  as above
    except ImportError as error:  # for example in a web page, where openai is not installed
        raise ModelConfigError(
            f"The model {model!r} needs the openai package ({error}): pip install openai"
        ) from None

    settings: dict[str, Any] = {}
    credentials = Keyring().of(SimpleNamespace(base_url=where, api_key=api_key))
    if max_retries is not None:
        settings["max_retries"] = max_retries
    if timeout is not None:
        settings["timeout"] = timeout
    failure: Exception
    try:
        url, query = without_query(where)
        settings |= {"base_url": url, "api_key": api_key, "default_query": query or None}
        return Client(**settings)
    except (openai.OpenAIError, ValueError, TypeError, httpx2.InvalidURL) as error:
        failure = clear_error(
            error, model=model, base_url=where or "", credentials=credentials, provider=provider
        )
    raise failure  # raised outside except, without the traceback of its cause
