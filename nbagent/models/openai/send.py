"""One request sent through the openai client, and its answer read.

The lean way hands the client a finished body and reads raw bytes. Clients that look into the body
(Azure puts the model into the URL) and doubles without ``post`` get the ordinary typed call.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cache
from time import monotonic
from typing import Any

from nbagent.core.base.model import ModelDelta

from .api import Api, Parser
from .bounds import BrokenStream, bound
from .errors import broken, transport_errors

NOTHING_SAID = "the server sent nothing of its answer for {seconds:g} s, only signs of life"
NOT_ALL = "the server began its answer and did not send all of it in {seconds:g} s"
SLOWEST = 20_000
"""Bytes in a second that go to a server on the slowest line."""
DRAIN_SECONDS = 0.1
"""How long to read on after an answer's end, so that its connection can be used again."""


async def send(client: Any, api: Api, body: bytes) -> Any:
    """Send a request; returns what ``read`` takes.

    Raises:
        openai.OpenAIError: it failed. It is tried once: whoever calls knows when to try again.
    """
    if not is_lean(client):
        once = client.with_options(max_retries=0) if hasattr(client, "with_options") else client
        return await _send_typed(api.typed(once), body)
    import httpx2  # noqa: PLC0415  as below
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    sending = client.post(
        api.path,
        content=body,
        # the raw response: no type is built, and a stream is left for us to read
        cast_to=httpx2.Response,
        # also where the answer comes in one piece: how much of it is read is for us to say
        stream=True,
        stream_cls=openai.AsyncStream[Any],
        options={
            "max_retries": 0,
            "headers": {"Content-Type": "application/json", "Accept-Encoding": "identity"},
            "follow_redirects": False,  # neither key nor conversation go where nobody sent them
            "security": {
                "bearer_auth": True
            },  # as the typed call says, for keys that are functions
        },
    )
    try:
        async with asyncio.timeout(_longest(client, len(body))):
            return await sending
    except TimeoutError as error:
        raise openai.APITimeoutError(httpx2.Request("POST", str(client.base_url))) from error


def _longest(client: Any, size: int) -> float | None:
    """Seconds until an answer has begun, or an error is read: all that the client may wait for, one after the other.

    A server that sends byte after byte would keep each of its waits short, and end none.
    """
    said = getattr(client, "timeout", None)
    steps = [getattr(said, name, said) for name in ("connect", "pool", "write", "read")]
    numbers = [step for step in steps if isinstance(step, int | float)]
    return sum(numbers) + size / SLOWEST if len(numbers) == len(steps) else None


def is_lean(client: Any) -> bool:
    """Whether this client takes a body as bytes."""
    import openai  # noqa: PLC0415  the client loads for 0.6 s

    return not isinstance(client, openai.AsyncAzureOpenAI) and _takes_bytes(client.__class__)


@cache
def _takes_bytes(kind: type) -> bool:
    post = getattr(kind, "post", None)
    return post is not None and "content" in inspect.signature(post).parameters


async def read(
    answer: Any, parser: Parser, idle: float | None = None
) -> AsyncGenerator[list[ModelDelta], None]:
    """Read an answer in batches of what arrived together, and close it.

    Args:
        answer: what ``send`` returned.
        parser: what makes deltas of it.
        idle: seconds without a delta after which the answer counts as broken, whatever comes.

    Raises:
        BrokenStream: the connection broke, or what came is no answer.
    """
    try:
        if hasattr(answer, "aiter_bytes"):
            batches = _read_raw(answer, parser, idle)
        else:
            batches = _read_typed(answer, parser, idle)
        async with aclosing(batches):
            async for batch in batches:
                yield batch
    except transport_errors() as error:
        if parser.finished() is None:
            raise BrokenStream(broken(error)) from error
        # all of the answer came, the connection broke behind it


async def _read_raw(
    response: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    await bound(response)
    kind = response.headers.get("content-type", "")
    try:
        if "html" in kind:
            raise BrokenStream(
                f"{response.url} answered with a web page ({kind}) and no answer of a model: base_url is "
                "likely wrong; does it end in /v1?",
                again=False,
            )
        if "json" in kind:
            yield parser.whole(await _in_one(response, idle))
            return
        said = monotonic()  # silence is the client's to notice, and what says nothing ours
        async with aclosing(response.aiter_bytes()) as pieces:
            async for data in pieces:
                batch = parser.feed(data)
                if batch:
                    yield batch
                    said = monotonic()
                elif idle is not None and monotonic() - said > idle:
                    raise BrokenStream(NOTHING_SAID.format(seconds=idle))
                if parser.done:
                    await _drain(pieces)
                    return
    finally:
        await response.aclose()


async def _in_one(response: Any, idle: float | None) -> bytes:
    """The body of an answer in one piece; before it, a server may send blank lines to stay alive.

    Raises:
        BrokenStream: nothing else came for that long, or not the rest of it once it had begun.
    """
    pieces: list[bytes] = []
    said, begun = monotonic(), False
    async with aclosing(response.aiter_bytes()) as arriving:
        async for data in arriving:
            pieces.append(data)
            if not begun and not data.isspace():
                said, begun = monotonic(), True
            elif idle is not None and monotonic() - said > idle:
                raise BrokenStream((NOT_ALL if begun else NOTHING_SAID).format(seconds=idle))
    return b"".join(pieces)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass
    except TimeoutError:
        return  # the answer is whole; the connection is closed instead of used again


async def _send_typed(create: Any, body: bytes) -> Any:
    fields = json.loads(body)
    known = inspect.signature(create).parameters
    extra = {key: fields.pop(key) for key in list(fields) if key not in known}
    return await create(**fields, **({"extra_body": extra} if extra else {}))


async def _read_typed(
    answer: Any, parser: Parser, idle: float | None
) -> AsyncGenerator[list[ModelDelta], None]:
    if not hasattr(answer, "__aiter__"):
        yield parser.chunk(answer.model_dump())
        return
    chunks = aiter(answer)
    try:
        while True:
            try:
                async with asyncio.timeout(idle):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise BrokenStream(NOTHING_SAID.format(seconds=idle)) from error
            yield parser.chunk(chunk.model_dump())
    finally:
        await answer.close()
