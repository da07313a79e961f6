"""CPU of OpenAIModel against a loop written by hand on AsyncOpenAI, side by side in one run.

    python -m tests.bench.bench_loop [rounds]

Both use a loopback server in another process. Compare only ratios: absolute times depend on the
machine. The issue tracker has a table of targets; nothing here fails.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import openai

from nbagent.core.base.messages import message, text_part, user
from nbagent.core.base.model import Request, TextDelta, ToolCallDelta, ToolSpec
from nbagent.models.openai.model import OpenAIModel

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
STEP = ToolSpec("step", "Do the next step.", SCHEMA)
RESULT = "the result of a step, long enough to be worth the walk " * 4
Loop = Callable[[], Awaitable[int]]


@contextmanager
def server(turns: int, tokens: int) -> Iterator[str]:
    """The base URL of a server process that asks for ``turns`` calls, then sends ``tokens`` words."""
    command = [sys.executable, "-m", "tests.integration.chat_server", str(turns), str(tokens)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        yield it.stdout.readline().strip()
        assert it.stdin is not None
        it.stdin.close()


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Loop]:
    """The loop that people write by hand."""
    client = openai.AsyncOpenAI(
        base_url=url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
    )
    function = {"name": STEP.name, "description": STEP.description, "parameters": SCHEMA}

    async def run() -> int:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            stream = await client.chat.completions.create(
                model="m",
                messages=messages,
                tools=[{"type": "function", "function": function}],
                stream=True,
                stream_options={"include_usage": True},
            )
            text, call = "", {"id": "", "name": "", "arguments": ""}
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for part in choice.delta.tool_calls or ():
                        call["id"] += part.id or ""
                        call["name"] += part.function.name or ""
                        call["arguments"] += part.function.arguments or ""
            if not call["id"]:
                return len(text)
            asked = {"name": call["name"], "arguments": call["arguments"]}
            calls = [{"id": call["id"], "type": "function", "function": asked}]
            messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": RESULT})

    async with client:
        yield run


@asynccontextmanager
async def lean(url: str) -> AsyncIterator[Loop]:
    """The same loop through OpenAIModel and nbagent's messages."""
    model = OpenAIModel("m", base_url=url)

    async def run() -> int:
        messages = [user("go")]
        while True:
            texts, call = [], {"id": "", "name": "", "arguments": ""}
            async with aclosing(model.stream(Request(messages, tools=(STEP,)))) as deltas:
                async for delta in deltas:
                    if isinstance(delta, TextDelta):
                        texts.append(delta.text)
                    elif isinstance(delta, ToolCallDelta):
                        call["id"] += delta.id or ""
                        call["name"] += delta.name or ""
                        call["arguments"] += delta.arguments
            if not call["id"]:
                return len("".join(texts))
            part = {"type": "tool_call", "id": call["id"], "name": call["name"]}
            result = {"type": "tool_result", "id": call["id"], "name": call["name"]}
            part["input"] = json.loads(call["arguments"])  # type: ignore[assignment]
            messages.append(message("assistant", text_part("".join(texts)), part))
            messages.append(message("tool", {**result, "output": RESULT}))

    async with model:
        yield run


async def compare(name: str, url: str, rounds: int) -> None:
    """Print the medians of interleaved rounds, and their ratio."""
    times: dict[str, list[float]] = {"raw": [], "lean": []}
    async with raw(url) as by_hand, lean(url) as ours:
        assert await by_hand() == await ours()  # warm up; both return the same length
        for _ in range(rounds):
            for way, run in (("raw", by_hand), ("lean", ours)):
                start = time.process_time()
                await run()
                times[way].append(time.process_time() - start)
    cpu = {way: statistics.median(values) for way, values in times.items()}
    print(
        f"{name:24} raw {cpu['raw'] * 1e3:8.1f} ms CPU   lean {cpu['lean'] * 1e3:8.1f} ms CPU   "
        f"ratio {cpu['lean'] / cpu['raw']:.3f}"
    )


def main() -> None:
    """Print the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for name, turns, tokens in (
        ("loop of 50 tool turns", 50, 1),
        ("loop of 5", 5, 1),
        ("stream of 20,000 tokens", 0, 20_000),
    ):
        with server(turns, tokens) as url:
            asyncio.run(compare(name, url, rounds))


if __name__ == "__main__":
    main()
