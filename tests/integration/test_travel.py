"""Agents are pickled for other processes, without keys or passwords."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import openai
import pytest
import sqlalchemy as sa

import nbagent as nb
from nbagent.batch.workers import Kit, packed
from nbagent.core.run.start import Options
from tests.integration.chat_server import ChatServer, Reply

SECRET = "sk-planted-4711"
THERE = """
import pickle, sys
agent = pickle.load(open(sys.argv[1], "rb"))
result = agent.run_sync("go", id="march", answers={"pay": True})
print(result.text, result.calls["pay"][0].output, type(agent.store).__name__)
"""


def test_c480_an_agent_runs_in_another_process(tmp_path: Path) -> None:
    """The agent has its tools, rules, limits and store; the key comes from the other process's environment."""

    async def pay(amount: int) -> str:
        return f"paid {amount}"

    with ChatServer([Reply(calls=[("pay", {"amount": 5})]), Reply("Done.")]) as server:
        model = nb.OpenAIModel("test", base_url=server.url, api_key=SECRET, rpm=100)
        store = nb.SQLiteStore(tmp_path / "runs.db")
        agent = nb.Agent(model, tools=[pay], policy=[nb.review("pay")], store=store)
        told = cloudpickle.dumps(agent)
        assert SECRET.encode() not in told
        (tmp_path / "agent").write_bytes(told)
        done = subprocess.run(
            [sys.executable, "-c", THERE, tmp_path / "agent"],
            env={**os.environ, "OPENAI_API_KEY": "of that process"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stdout == "Done. paid 5 SQLiteStore\n", done.stderr
    assert store.run_ids() == ["march"]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: nb.OpenAIModel("gpt-5", api_key=SECRET, limits=nb.RateLimit(rpm=5)), "'gpt-5'"),
        (lambda: nb.LiteLLMModel("x/y", api_key=SECRET, aws_secret_access_key=SECRET), "'x/y'"),
        (lambda: nb.OpenAIModel("x", base_url="https://h/v1?api-version=2026-10-21"), "'x'"),
        (lambda: nb.RateLimit(rpm=5, concurrency=2), "rpm=5"),
        (lambda: nb.SQLStore(f"postgresql://ann:{SECRET}@localhost/x"), "//ann@localhost/x"),
        (lambda: nb.SQLStore(f"postgresql:///x?user=ann&password={SECRET}"), "postgresql"),
        (lambda: nb.mcp("https://example.org/mcp"), "example.org"),
        (lambda: nb.mcp("npx some-server --verbose"), "some-server"),
        (lambda: nb.Agent("gpt-5", tools=[nb.mcp("https://example.org/mcp")]), "agent on gpt-5"),
        (lambda: nb.hosted("web_search", search_context_size="low", max_tokens=5), "web_search"),
    ],
)
def test_c480_no_key_or_password_is_pickled(made: Any, shown: str) -> None:
    """The unpickled object has the same repr; a copy within the process is the object itself."""
    one = made()
    told = pickle.dumps(one)
    assert SECRET.encode() not in told
    again = pickle.loads(told)
    assert shown in repr(again)
    if not isinstance(one, nb.Agent):
        assert copy.copy(one) is one
        assert copy.deepcopy([one])[0] is one


def test_c480_no_secret_of_a_batch_travels_with_its_agent_store_and_options() -> None:
    """The data for workers has no key or password of any model or store, even nested ones."""

    def model(name: str) -> nb.OpenAIModel:
        return nb.OpenAIModel(name, api_key=SECRET, limits=nb.RateLimit(rpm=60))

    reader = nb.Agent(model("reads"), name="reader")

    async def look(ctx: nb.ToolContext, topic: str) -> str:
        return (await ctx.run(reader, topic)).text

    own = nb.LiteLLMModel("x/y", api_key=SECRET, limits=nb.RateLimit(rpm=5))
    store = nb.SQLStore(f"postgresql://ann:{SECRET}@localhost/x?password={SECRET}")
    agent = nb.Agent(own, tools=[look], policy=[nb.review("look")], store=store)
    options = Options(answers={"look": True}, context={"model": model("of the context")})
    kit = Kit(agent, store, options)
    sent, limits = packed(kit)
    assert SECRET.encode() not in sent
    assert len(limits) == 3
    assert b"of the context" in sent


def test_c480_a_store_that_is_sent_twice_is_one_object_there(tmp_path: Path) -> None:
    """Many tasks of one process share the store's connections."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    told = pickle.dumps([store])
    first, second = pickle.loads(told)[0], pickle.loads(told)[0]
    assert first is second
    first.close()
    assert pickle.loads(told)[0] is not first


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            nb.MemoryStore,
            r"nb.MemoryStore\(\) cannot .* this process's memory. Use nb.SQL",
        ),
        (lambda: nb.Agent("gpt-5", store=nb.MemoryStore()), r"nb.MemoryStore\(\) cannot"),
        (lambda: nb.OpenAIModel("x", client=openai.AsyncOpenAI(api_key=SECRET)), "client= has"),
        *(
            (lambda url=url: nb.OpenAIModel("x", base_url=url), r"its base_url= contains a .* key")
            for url in (
                f"http://a:{SECRET}@h/v1",
                f"http://{SECRET}@h/v1",
                f"http://h/v1?api-version=1&key={SECRET}",
                f"http://h/v1?x={SECRET * 2}",
            )
        ),
        (
            lambda: nb.LiteLLMModel("x/y", api_base=f"https://h/?token={SECRET}"),
            "its api_base= contains",
        ),
        (
            lambda: nb.LiteLLMModel("x/y", extra_headers={"X-Api-Key": SECRET}),
            "its extra_headers= contains",
        ),
        (lambda: nb.mcp("https://example.org/mcp", auth=SECRET), "may contain secrets"),
        (lambda: nb.mcp("server", env={"KEY": SECRET}), "may contain secrets"),
        (lambda: nb.SQLStore(sa.create_engine("sqlite://")), "Pass the URL instead"),
        *(
            (lambda own=own: nb.hosted("mcp", **own), r"hosted\('mcp'\) .*Import the agent there")
            for own in (
                {"authorization": SECRET},
                {"headers": {"X-Api-Key": SECRET}},
                {"server_url": f"https://h/mcp?key={SECRET}"},
                {"tools": [{"auth": {"bearer_token": SECRET}}]},
            )
        ),
    ],
)
def test_c480_an_object_that_cannot_be_pickled_is_named(made: Any, why: str) -> None:
    """The error has no secret."""
    with pytest.raises(nb.errors.UsageError, match=why) as error:
        pickle.dumps(made())
    assert SECRET not in str(error.value)
