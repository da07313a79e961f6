"""How much of an answer is read: no server may fill the memory of the process that asks it."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

MAX_BODY = 8_000_000
"""Bytes of an answer in one piece, or of an error; unpacked."""
MAX_EVENT = 8_000_000
"""Bytes of one event of a stream."""
MAX_STREAM = 1_000_000_000
"""Bytes of a stream, unpacked."""
MAX_DATA = 8_000_000
"""Characters of what a server wants back with one answer."""
_PIECE = 65_536
_PACKINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The window bits of zlib by what servers call it."""


class BrokenStream(Exception):
    """The stream holds something that is no answer; ``again`` says whether a retry may help."""

    def __init__(self, reason: str, *, again: bool = True) -> None:
        super().__init__(reason)
        self.again = again


async def bound(response: Any) -> None:
    """Let no more of a response be read than is right for its kind, however it is packed.

    For any httpx response whose body was not read yet; reading it raises ``BrokenStream`` where there is
    more. It unpacks by itself, since httpx unpacks what it gets in one go.
    """
    if response.is_stream_consumed or response.is_closed or isinstance(response.stream, _Bounded):
        return
    kind = response.headers.get("content-type", "")
    in_one = response.status_code >= 400 or "json" in kind or "html" in kind
    packing = response.headers.pop("content-encoding", "identity").strip().lower()
    library = sys.modules[
        type(response).__module__.partition(".")[0]
    ]  # clients may have another httpx
    made = _bounded(library.AsyncByteStream)
    response.stream = made(response.stream, packing, MAX_BODY if in_one else MAX_STREAM)


class _Bounded:
    """The bytes of a response, unpacked, up to a limit."""

    def __init__(self, packed: Any, packing: str, limit: int) -> None:
        self._packed = packed
        self._packing = packing
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpack = _unpacking(self._packing)
        read = 0
        async for data in self._packed:
            rest = data
            while rest:
                piece, rest = unpack(rest)
                read += len(piece)
                if read > self._limit:
                    raise BrokenStream(
                        f"the server's answer is larger than {self._limit:,} bytes", again=False
                    )
                yield piece
                if rest:  # little may become much
                    await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self._packed.aclose()


@cache
def _bounded(base: type) -> Callable[[Any, str, int], Any]:
    """One that httpx knows as a stream."""
    return type("Bounded", (_Bounded, base), {})


def _unpacking(packing: str) -> Callable[[bytes], tuple[bytes, bytes]]:
    """From bytes to some that are unpacked, and what is left."""
    if packing in ("", "identity"):
        return lambda data: (data, b"")
    if packing not in _PACKINGS:
        raise BrokenStream(
            f"the server packed its answer as {packing!r}, which it was asked not to", again=False
        )
    unpacker = zlib.decompressobj(_PACKINGS[packing])

    def unpack(data: bytes) -> tuple[bytes, bytes]:
        try:
            return unpacker.decompress(data, _PIECE), unpacker.unconsumed_tail
        except zlib.error as error:
            raise BrokenStream(f"the server's packed answer is damaged ({error})") from error

    return unpack
