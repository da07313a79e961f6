"""CPU and wall time of whole agent runs, against a loop written by hand on AsyncOpenAI.

    python -m tests.bench.bench_agent [rounds] [chat | responses]

Without an API's name, both APIs are measured. For each case, the loop and the agent take turns against a loopback
server in another process; a ratio is that of the medians. The script only prints; the goals are beside the numbers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import openai

import nbagent as nb

RESULT = "the result of a step, long enough to be worth the walk " * 4
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTION = {"name": "step", "description": "Do the next step.", "parameters": SCHEMA}
Way = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Case:
    """One measurement: ``runs`` runs at once, each with ``turns`` turns of ``calls`` calls, then a text."""

    name: str
    goal: str
    turns: int = 0
    tokens: int = 1
    calls: int = 1
    runs: int = 1
    api: Literal["chat", "responses"] = "chat"


CHAT = [
    Case("loop of 50 tool turns", "<= 0.15 CPU", turns=50),
    Case("loop of 5", "<= 0.5 CPU", turns=5),
    Case("stream of 20,000 tokens", "<= 0.2 CPU", tokens=20_000),
    Case("32 parallel tools", "<= 0.6 CPU", turns=1, calls=32),
    Case("200 concurrent runs", "<= 0.5 wall", turns=5, runs=200),
]
CASES = [*CHAT, *(replace(case, api="responses") for case in CHAT)]


@contextmanager
def server(case: Case) -> Iterator[str]:
    """The base URL of a server process for a case."""
    numbers = map(str, (case.turns, case.tokens, case.calls))
    api = [case.api] if case.api == "responses" else []
    command = [sys.executable, "-m", "tests.bench.serve", *numbers, *api]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdin is not None
        yield it.stdout.readline().strip()
        it.stdin.close()


async def step(n: int) -> str:
    """Do the next step."""
    return f"{n}: {RESULT}"


@asynccontextmanager
async def by_hand(url: str) -> AsyncIterator[Way]:
    """The loop that people write by hand."""
    client = openai.AsyncOpenAI(
        base_url=url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
    )

    async def one(call: dict[str, str]) -> dict[str, str]:
        output = await step(**json.loads(call["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": output}

    async def run() -> str:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            stream = await client.chat.completions.create(
                model="m",
                messages=messages,
                tools=[{"type": "function", "function": FUNCTION}],
                stream=True,
                stream_options={"include_usage": True},
            )
            text, calls = "", {}
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for part in choice.delta.tool_calls or ():
                        new = {"id": "", "name": "", "arguments": ""}
                        call = calls.setdefault(part.index, new)
                        call["id"] += part.id or ""
                        call["name"] += part.function.name or ""
                        call["arguments"] += part.function.arguments or ""
            if not calls:
                return text
            asked = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls.values()
            ]
            messages.append({"role": "assistant", "content": text or None, "tool_calls": asked})
            messages += await asyncio.gather(*map(one, calls.values()))

    async with client:
        yield run


@asynccontextmanager
async def by_hand_in_responses(url: str) -> AsyncIterator[Way]:
    """The same loop in the Responses API."""
    client = openai.AsyncOpenAI(
        base_url=url, api_key="k", http_client=openai.DefaultAsyncHttpxClient()
    )

    async def one(call: Any) -> dict[str, str]:
        output = await step(**json.loads(call.arguments))
        return {"type": "function_call_output", "call_id": call.call_id, "output": output}

    async def run() -> str:
        history: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            stream = await client.responses.create(
                model="m",
                input=history,
                tools=[{"type": "function", "strict": False, **FUNCTION}],
                stream=True,
                store=False,
            )
            text, calls = "", []
            async for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
                done = event.type == "response.output_item.done"
                if done and event.item.type == "function_call":
                    calls.append(event.item)
            if not calls:
                return text
            history += [call.model_dump(exclude={"id"}, exclude_none=True) for call in calls]
            history += await asyncio.gather(*map(one, calls))

    async with client:
        yield run


def _ignore_event(_heard: object) -> None:
    """A view that shows nothing."""


@asynccontextmanager
async def with_agent(url: str, api: Literal["chat", "responses"]) -> AsyncIterator[Way]:
    """The same loop as a run of an agent."""
    async with nb.OpenAIModel("m", base_url=url, api_key="k", api=api) as model:
        agent = nb.Agent(model, tools=[step], max_turns=100, store=nb.MemoryStore())

        async def run() -> str:
            going = agent.run("go", attended=False)
            going.subscribe(_ignore_event)  # with a subscriber the run streams, as by hand
            return (await going).text

        yield run


class Costs(NamedTuple):
    """Median CPU times, and the agent's CPU and wall time as ratios to the loop by hand."""

    raw_ms: float
    agent_ms: float
    """CPU, like ``raw_ms``."""
    cpu: float
    wall: float


async def compare(case: Case, url: str, rounds: int) -> Costs:
    """Measure both ways in alternating rounds."""
    cpu: dict[str, list[float]] = {"raw": [], "agent": []}
    wall: dict[str, list[float]] = {"raw": [], "agent": []}
    loop = by_hand if case.api == "chat" else by_hand_in_responses
    async with loop(url) as raw, with_agent(url, case.api) as agent:
        assert await raw() == await agent()  # warm up; both return the same text
        for _ in range(rounds):
            for name, way in (("raw", raw), ("agent", agent)):
                began, used = time.perf_counter(), time.process_time()
                await asyncio.gather(*(way() for _ in range(case.runs)))
                cpu[name].append(time.process_time() - used)
                wall[name].append(time.perf_counter() - began)
    middle = statistics.median
    by_agent, by_raw = middle(cpu["agent"]), middle(cpu["raw"])
    waited = middle(wall["agent"]) / middle(wall["raw"])
    return Costs(by_raw * 1e3, by_agent * 1e3, by_agent / by_raw, waited)


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    only = sys.argv[2:]
    print(f"{'API':10}{'case':26}{'raw CPU ms':>12}{'agent ms':>12}{'CPU':>9}{'wall':>9}   goal")
    for case in (case for case in CASES if case.api in (only or (case.api,))):
        with server(case) as url:
            costs = asyncio.run(
                compare(case, url, rounds if case.runs == 1 else max(1, rounds // 2))
            )
        print(
            f"{case.api:10}{case.name:26}{costs.raw_ms:12.1f}{costs.agent_ms:12.1f}"
            f"{costs.cpu:9.3f}{costs.wall:9.3f}   {case.goal}",
            flush=True,
        )


if __name__ == "__main__":
    main()
