"""A server sends without end: the run fails with a clear error and uses little memory."""

from __future__ import annotations

import itertools
import json
import re
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

import nbagent as nb
from nbagent.models.openai import stream as bounds
from nbagent.models.openai.stream import SSEDecoder
from tests.integration.test_dark_corners import JSON, STREAM, Server, serving

MOST = 150_000_000
"""The limit of memory in bytes: several times what is read, a small part of what is sent."""


def event(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def call(index: int, arguments: str) -> bytes:
    function = {"name": "look", "arguments": arguments}
    return event(tool_calls=[{"index": index, "id": f"c{index}", "function": function}])


def bomb(begin: bytes, size: int = 400_000_000) -> Iterator[bytes]:
    """A compressed piece with ``size`` spaces, made when it is sent."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [packer.compress(begin)]
    packed += [packer.compress(b" " * 1_000_000) for _ in range(size // 1_000_000)]
    yield b"".join([*packed, packer.flush()])


class Flood(NamedTuple):
    """A server's answer and a pattern of the error."""

    pieces: Iterable[bytes]
    told: str
    kind: str = STREAM
    status: int = 200
    packing: str = "identity"
    stream: bool = True


TOO_MANY = "too large to read: it has more than 100,000 values"

FLOODS = {
    "a line": Flood(itertools.repeat(b"data: " + b"x" * 65_536), "event .* larger than 8,000,000"),
    "a line of little pieces": Flood(itertools.repeat(b"d" * 100), "event .* larger"),
    "no events": Flood(itertools.repeat(b"x" * 100), "answer is larger than 8,000,000"),
    "lines of one event": Flood(itertools.repeat(b"data: x\n" * 8192), "event .* larger"),
    "text": Flood(itertools.repeat(event(content="x" * 65_536)), "longer than 16,000,000"),
    "reasoning": Flood(itertools.repeat(event(reasoning="x" * 65_536)), "longer than 16,000,000"),
    "a field of its own": Flood(
        itertools.repeat(event(summary="x" * 65_536)), "provider data is longer than 8,000,000"
    ),
    "a label and then another": Flood(
        (event(odd="xy"[i == 9_999] * 1_000) for i in itertools.count()), "provider data is longer"
    ),
    "items of a field of its own": Flood(
        (event(odd=[{"index": i}]) for i in itertools.count()), "provider data is longer"
    ),
    "arguments": Flood(itertools.repeat(call(0, "x" * 65_536)), "longer than 16,000,000"),
    "calls": Flood((call(i, "{}") for i in itertools.count()), "longer than 16,000,000"),
    "JSON": Flood(itertools.repeat(b" " * 65_536), "larger than 8,000,000", JSON, stream=False),
    "a JSON bomb": Flood(bomb(b"{"), "larger than 8,000,000", JSON, packing="gzip", stream=False),
    "a stream bomb": Flood(bomb(b"data: "), "event .* larger than 8,000,000", packing="gzip"),
    "an error bomb": Flood(bomb(b"{"), "larger than 400,000", JSON, 400, "gzip"),
    "words of an error": Flood(
        [b'data: {"error": {"message": "', b"x " * 3_500_000, b'"}}\n\n'], "server reported: x x"
    ),
    "words of a refusal": Flood(
        [b'{"error": {"message": "', b"x " * 190_000, b'"}}'], "Error code: 400 .*x x", JSON, 400
    ),
    "an error": Flood(itertools.repeat(b"x" * 65_536), "larger than 400,000", "text/plain", 500),
    "tiny parts": Flood([b'data: {"choices":[', b"{}," * 2_600_000, b"{}]}\n\n"], TOO_MANY),
    "tiny parts in one": Flood(
        [b'{"choices":[', b"1," * 3_900_000, b"1]}"], TOO_MANY, JSON, stream=False
    ),
    "another packing": Flood([b"xx"], "compressed its answer as 'br'", JSON, packing="br"),
    "a damaged packing": Flood([b"xx"], "compressed answer is damaged", packing="gzip"),
}


def sending(flood: Flood) -> AbstractContextManager[str]:
    """Run a server that answers every request with a flood; yields its URL."""
    packed = {"content-encoding": flood.packing}
    return serving(Server(flood.pieces, flood.kind, flood.status, packed, times=9))


async def fails(url: str, flood: Flood) -> str:
    """The error of a run that asks this server."""
    async with nb.OpenAIModel("m", base_url=url, api_key="k", max_retries=0) as model:
        run = nb.Agent(model).run("go", attended=False)
        if flood.stream:
            run.subscribe(lambda _: None)
        with pytest.raises(nb.errors.ModelError) as caught:
            await run
        return str(caught.value)


@pytest.mark.variant
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flooding_server_does_not_fill_the_memory(name: str) -> None:
    """The answer, stream or error is cut off, compressed or not, and a short error says so."""
    flood = FLOODS[name]
    with sending(flood) as url:
        tracemalloc.start()
        try:
            told = await fails(url, flood)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert re.search(flood.told, told), told[:1_000]
    assert len(told) < 21_000
    assert held < MOST


async def test_a_stream_without_content_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments keep a connection alive only up to a size limit."""
    monkeypatch.setattr(bounds, "MAX_STREAM", 2_000_000)
    flood = Flood(itertools.repeat(b": still here\n\n" * 1000), "")
    with sending(flood) as url:
        assert "larger than 2,000,000 bytes" in await fails(url, flood)


def test_a_line_that_arrives_byte_by_byte_is_in_memory_once() -> None:
    """A list of pieces would need forty times the memory."""
    decoder = SSEDecoder()
    tracemalloc.start()
    try:
        for _ in range(300_000):
            decoder.feed(b"x")
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
    assert decoder.pending_size == 300_000


@pytest.mark.parametrize("packing", ["gzip", "deflate", "none"])
async def test_a_compressed_answer_is_read_even_if_it_was_not_asked_for(packing: str) -> None:
    """Some proxies always compress; some servers say "none" so that a proxy does not."""
    answer = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if packing == "gzip" else 15)
    plain = json.dumps(answer).encode()
    packed = plain if packing == "none" else packer.compress(plain) + packer.flush()
    with sending(Flood([packed[:10], packed[10:]], "", JSON, packing=packing)) as url:
        async with nb.OpenAIModel("m", base_url=url, api_key="k") as model:
            assert (await nb.Agent(model).run("go")).text == "hello"
