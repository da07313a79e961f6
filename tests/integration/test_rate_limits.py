"""A server limits requests: all runs of the model wait, show the time, and continue in order."""

from __future__ import annotations

import asyncio
import email.utils
import threading
import time
from typing import Any

import openai
import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.messages import user
from nbagent.core.base.model import Request, Waiting
from nbagent.models.openai.retries import wait_from_headers
from tests.integration.chat_server import Body, ChatServer, Refuse, Reply

HELLO = [user("hello")]


def model_at(server: ChatServer, **settings: Any) -> nb.OpenAIModel:
    return nb.OpenAIModel("m", base_url=server.url, api_key="k", **settings)


class Bucket:
    """A server's limit: ``size`` requests, refilled some time after the first refusal, which names that time."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds = size, seconds
        self._lock = threading.Lock()
        self._until, self._left = 0.0, size
        self.refused = 0

    def __call__(self, _body: Body) -> Reply | Refuse:
        with self._lock:
            now = time.monotonic()
            if 0 < self._until <= now:
                self._until, self._left = 0.0, self._size
            if self._left:
                self._left -= 1
                return Reply("done")
            self._until = self._until or now + self._seconds
            self.refused += 1
            wait = int((self._until - now) * 1000) + 1
            return Refuse(429, "slow down", {"retry-after-ms": str(wait)})


async def test_fifty_concurrent_runs_share_the_rate_limit_of_the_server() -> None:
    """A refusal delays all runs, so each run is refused only a few times, and none fails."""
    bucket = Bucket(20, 0.6)
    with ChatServer(bucket) as server:
        async with model_at(server) as model:
            agent = nb.Agent(model)
            runs = [agent.run(f"run {n}", attended=False) for n in range(50)]
            waited: list[Waiting] = []

            async def watched(run: nb.Run) -> None:
                waited.extend([e async for e in run.events() if isinstance(e, Waiting)])

            results, *_ = await asyncio.gather(asyncio.gather(*runs), *map(watched, runs))
        assert [result.text for result in results] == ["done"] * 50
        assert len(server.requests) == 50 + bucket.refused
        # at first all requests come at once; later, only those already sent when the bucket is empty are refused
        assert 2 <= bucket.refused <= 100
    assert waited
    assert {wait.reason for wait in waited} == {"too many requests (429)"}
    assert all(wait.seconds >= 0.5 for wait in waited)


async def test_a_request_in_another_form_counts_for_the_limits() -> None:
    """The server rejects two forms of a typed answer, so one answer takes three requests of the minute."""
    limits = nb.RateLimit(rpm=3)
    no_form = Refuse(400, "no response_format")
    with ChatServer([no_form, no_form, Reply('{"value": 5}')]) as server:
        async with model_at(server, limits=limits) as model:
            assert (await nb.Agent(model, output_type=int).generate("go")).output == 5
    wait = limits.ticket().try_send()
    assert wait == (pytest.approx(60, abs=59), "at most 3 requests per minute (rpm)", None)


async def test_one_refusal_delays_the_requests_of_all_agents_with_this_model() -> None:
    """Later requests are sent only after the time that the server set."""
    replies = [Refuse(429, "slow", {"retry-after": "0.7"}), Reply("first"), Reply("second")]
    came: list[float] = []

    def step(_body: Body) -> Reply | Refuse:
        came.append(time.monotonic())
        return replies.pop(0)

    with ChatServer(step) as server:
        async with model_at(server) as model:
            one, other = nb.Agent(model), nb.Agent(model)
            first = asyncio.create_task(one.generate("a"))
            await asyncio.to_thread(server.asked.wait, 10)
            while not model._limits._line.pause[1]:  # noqa: ASYNC110 - until the answer is read
                await asyncio.sleep(0.01)
            second = await other.generate("b")
            assert ((await first).text, second.text) == ("first", "second")
    assert len(came) == 3
    assert came[1] - came[0] >= 0.7  # even if this machine is slow


async def test_models_that_share_their_limits_wait_for_each_other() -> None:
    """Two models with the same limits share one queue."""
    limits = nb.RateLimit(concurrency=1)
    with ChatServer([Reply("x", delay=0.05)] * 4) as server:
        most = now = 0
        async with model_at(server, limits=limits) as one, model_at(server, limits=limits) as two:

            async def ask(model: nb.OpenAIModel) -> None:
                nonlocal most, now
                async for delta in model.stream(Request(HELLO)):
                    if delta.type == "text_delta" and now == 0:
                        now = 1
                        most += 1
                now = 0

            await asyncio.gather(*(ask(model) for model in (one, two, one, two)))
        assert most == 4


async def test_a_run_that_is_stopped_while_it_waits_frees_its_place() -> None:
    """The stopped run ends at once."""
    with ChatServer([Refuse(429, "slow", {"retry-after": "30"})]) as server:
        async with model_at(server) as model:
            run = nb.Agent(model).run("go", attended=False)
            async for event in run.events():
                if isinstance(event, Waiting):
                    break
            await run.cancel()
            with pytest.raises(nb.errors.Cancelled):
                await run
            assert model._limits._line.waiting == []
            assert model._limits._line.under_way == 0


async def test_a_wait_that_is_too_long_fails_at_once() -> None:
    """The error has the time and the setting, so no person waits for an hour."""
    with ChatServer([Refuse(429, "slow", {"retry-after": "3600"})] * 2) as server:
        async with model_at(server) as model:
            with pytest.raises(
                ModelError, match=r"are possible again in 3,600 s, at .* max_wait is 60 s"
            ):
                [d async for d in model.stream(Request(HELLO))]
        async with model_at(server, max_wait=0.5) as model:
            with pytest.raises(ModelError, match=r"it was not retried"):
                [d async for d in model.stream(Request(HELLO))]
        assert len(server.requests) == 2


async def test_an_exhausted_quota_is_not_waited_for() -> None:
    refuse = Refuse(429, "pay", {"x-should-retry": "false"})
    with ChatServer([refuse]) as server:
        async with model_at(server) as model:
            with pytest.raises(ModelError, match=r"429, .*; it was not retried"):
                [d async for d in model.stream(Request(HELLO))]
        assert len(server.requests) == 1


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_a_client_passed_by_the_caller_keeps_its_number_of_retries(retries: int) -> None:
    """The retries of nbagent replace the client's, with the same number of requests."""
    with ChatServer([Refuse(500)] * 9) as server:
        async with openai.AsyncOpenAI(
            base_url=server.url,
            api_key="k",
            max_retries=retries,
            http_client=openai.DefaultAsyncHttpxClient(),
        ) as client:
            words = "retrying did not help" if retries else "it was not retried"
            with pytest.raises(ModelError, match=words):
                [d async for d in nb.OpenAIModel("m", client=client).stream(Request(HELLO))]
        assert len(server.requests) == retries + 1


NOW = 1_800_000_000.0
TOLD: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ({"retry-after": "12"}, 12),
    ({"retry-after": "1.5"}, 1.5),
    ({"retry-after": email.utils.formatdate(NOW + 30, usegmt=True)}, 30),
    ({"retry-after": email.utils.formatdate(NOW - 30, usegmt=True)}, 0),
    ({"retry-after": "20s"}, 20),
    ({"retry-after": "1m30s"}, 90),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "-1"}, None),
    ({"retry-after": "nan"}, None),
    ({}, None),
    ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360),
    (
        {
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-tokens": "6m0s",
            "x-ratelimit-remaining-tokens": "5000",
        },
        1,
    ),
    ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
    ({"x-ratelimit-reset-tokens": "2m59.56s"}, 179.56),
    ({"x-ratelimit-reset-tokens": "1h2m"}, 3720),
    ({"x-ratelimit-reset": str(int((NOW + 5) * 1000))}, 5),
    ({"x-ratelimit-reset": str(int(NOW + 5))}, 5),
    ({"x-ratelimit-reset": "5"}, 5),
    ({"x-ratelimit-reset": "whenever"}, None),
    ({"retry-after": "Mon, 01 Jan 999999999 00:00:00 GMT"}, None),
]


@pytest.mark.parametrize(("headers", "seconds"), TOLD)
def test_a_retry_time_is_parsed_in_every_format_of_servers(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Milliseconds, seconds, dates, and the headers of rate limits."""
    assert wait_from_headers(headers, NOW) == (None if seconds is None else pytest.approx(seconds))
