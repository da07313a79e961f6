"""Pictures and files in a conversation: what is sent to a server, and what is stored."""

from __future__ import annotations

import base64
import gc
import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import nbagent as nb
from nbagent.core.base.events import ModelResponded, RunStarted, ToolFinished
from nbagent.core.base.messages import load
from nbagent.core.base.model import Request
from nbagent.core.tools.image_bytes import png
from nbagent.models.openai.images import has_vision
from tests.integration.chat_server import ChatServer, Refuse, Reply
from tests.integration.responses_server import Reply as ResponsesReply
from tests.integration.responses_server import ResponsesServer
from tests.until import until

PDF = b"%PDF-1.4\n%%EOF"
SQUARE = png(np.eye(4))
URL = f"data:image/png;base64,{base64.b64encode(SQUARE).decode()}"


@nb.tool
def heat(day: int) -> Any:
    """Draw the heat of a day."""
    return nb.File(SQUARE, name=f"day{day}.png")


@nb.tool
def report() -> nb.ToolResult:
    """Write a report."""
    return nb.ToolResult("two pages", files=[nb.File(PDF, name="report.pdf"), SQUARE])


@nb.tool
def plain() -> str:
    """Say something."""
    return "nothing to see"


def agent_at(server: ChatServer, **settings: Any) -> nb.Agent:
    model = nb.OpenAIModel("test-model", base_url=server.url, **settings)
    return nb.Agent(model, tools=[heat, report, plain])


async def test_a_prompt_is_sent_in_order_with_each_file_as_the_api_wants_it(tmp_path: Path):
    """Texts, a picture, a named PDF, sound, and a table sent as text."""
    (tmp_path / "scan.pdf").write_bytes(PDF)
    sound = nb.File(b"RIFF\0\0\0\0WAVEfmt ", name="hum.wav")
    table = nb.File(b"a,b\n1,2\n", "text/csv", name="t.csv")
    with ChatServer([Reply("A diagonal.")]) as server:
        prompt = ["What is odd?", SQUARE, tmp_path / "scan.pdf", sound, table, "Say it."]
        result = await agent_at(server).run(prompt)
    assert result.text == "A diagonal."
    [message] = server.bodies[0]["messages"]
    data = base64.b64encode(PDF).decode()
    assert message["content"] == [
        {"type": "text", "text": "What is odd?"},
        {"type": "image_url", "image_url": {"url": URL}},
        {
            "type": "file",
            "file": {"filename": "scan.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        },
        {
            "type": "input_audio",
            "input_audio": {"data": base64.b64encode(sound.data).decode(), "format": "wav"},
        },
        {"type": "text", "text": "[file t.csv, 8 bytes]\na,b\n1,2\n\n[end of t.csv]"},
        {"type": "text", "text": "Say it."},
    ]


async def test_files_from_tools_follow_all_results_and_name_their_call():
    """The API accepts only text from tools: the results come first, in order, then their files."""
    calls = [("heat", {"day": 1}), ("plain", {}), ("report", {})]
    with ChatServer([Reply(calls=calls), Reply("Seen.")]) as server:
        await agent_at(server).run("Look")
        assert not server.refused
    told = server.bodies[1]["messages"][2:]
    assert [message["role"] for message in told] == ["tool", "tool", "tool", "user"]
    outputs = [message["content"] for message in told[:3]]
    assert outputs == ["[image day1.png]", "nothing to see", "two pages"]
    ids = [message["tool_call_id"] for message in told[:3]]
    kinds = [part["type"] for part in told[3]["content"]]
    assert kinds == ["text", "image_url", "text", "file", "text", "image_url"]
    for call_id, number in zip([ids[0], ids[2], ids[2]], (0, 2, 4), strict=True):
        assert call_id in told[3]["content"][number]["text"]
    assert told[3]["content"][1]["image_url"]["url"] == URL


async def test_a_model_without_vision_gets_words_and_the_person_a_note():
    """No picture is sent; only answers to new pictures have a note."""
    script = [Reply(calls=[("heat", {"day": 1})]), Reply(calls=[("plain", {})]), Reply("Ah.")]
    with ChatServer(script) as server:
        run = agent_at(server, vision=False).run(["What is odd?", SQUARE])
        await run
    assert all(b"base64" not in seen.raw for seen in server.requests)
    said = server.bodies[2]["messages"][0]["content"][1]["text"]
    assert said.startswith("[image, ")
    assert said.endswith("shown to the person; you cannot see it]")
    assert "you cannot see it" in server.bodies[2]["messages"][3]["content"][1]["text"]
    notes = [event.notes for event in run.journal if isinstance(event, ModelResponded)]
    assert [len(each) for each in notes] == [1, 1, 0]
    assert "cannot read images" in notes[0][0]


WORD = nb.File(b"PK\3\4..", "application/msword", name="a.doc")
SOUND = nb.File(b"RIFF\0\0\0\0WAVEfmt ", name="hum.wav")


@pytest.mark.parametrize(("first", "file"), [("responses", WORD), ("chat", SOUND)])
async def test_a_conversation_with_a_file_may_change_to_an_api_that_does_not_take_it(first, file):
    """The other API gets the earlier file in words, also of a tool's result, and the person a note, once."""

    @nb.tool
    def fetch() -> nb.ToolResult:
        """Fetch the file."""
        return nb.ToolResult("here", files=[file])

    answers = [{"calls": [("fetch", {})]}, *({"text": "well", "reasoning": "hm"} for _ in range(3))]
    chat, responses = (
        [Reply(**each) for each in answers],
        [ResponsesReply(**each) for each in answers],
    )
    with ChatServer(chat) as at, ResponsesServer(responses) as other:
        servers = {"chat": at, "responses": other}
        agents = {
            api: nb.Agent(nb.OpenAIModel("gpt-5", base_url=server.url, api=api), tools=[fetch])
            for api, server in servers.items()
        }
        [second] = servers.keys() - {first}
        run = agents[first].run(["Read", file])
        await run
        servers[second].script.pop(0)
        runs = [agents[second].run("Go on", after=run)]
        await runs[0]
        runs.append(agents[second].run("And on", after=runs[0]))
        await runs[1]
    raw = servers[second].requests[-1].raw.decode()
    assert raw.count("this API does not take it, so you cannot see it]") == 2
    assert file.part["data"] not in raw
    notes = [e.notes for one in runs for e in one.journal if isinstance(e, ModelResponded)]
    assert [len(each) for each in notes] == [2, 0], notes
    assert notes[0][1] == "This API does not take 2 files, so they were only described in words"


async def test_a_file_that_the_api_does_not_take_fails_only_its_own_message():
    """The conversation goes on without it: the model reads that it was there."""
    with ChatServer([Reply("hello"), Reply("without")]) as server:
        chat = agent_at(server).chat()
        await chat.send("Hi")
        with pytest.raises(nb.errors.ModelError, match=r"does not take the file a\.doc"):
            await chat.send(["Read this", WORD])
        assert (await chat.send("Go on without it")).text == "without"
    assert len(server.requests) == 2
    assert b"a.doc, 6 bytes: this API does not take it" in server.requests[1].raw


@pytest.mark.parametrize(
    ("name", "can"),
    [
        ("gpt-3.5-turbo", False),
        ("gpt-4", False),
        ("gpt-4o", True),
        ("gpt-4.1-mini", True),
        ("gpt-5", True),
        ("o3-mini", False),
        ("o3", True),
        ("openrouter/deepseek/deepseek-chat", False),
        ("my-own", True),
    ],
)
def test_known_models_with_vision_are_listed_and_any_other_is_tried(name: str, can: bool):
    """A model that is not in the list may get pictures."""
    assert has_vision(name) is can


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_refused_picture_is_an_error_that_names_the_setting(status: int):
    """Only the error of a request with a picture names the setting."""
    refuse = Refuse(status, "image_url is not supported by this model")
    with ChatServer([refuse, refuse]) as server:
        agent = agent_at(server)
        with pytest.raises(nb.NbagentError, match="vision=False"):
            await agent.run(["Look", SQUARE])
        with pytest.raises(nb.NbagentError) as failed:
            await agent.run("Look")
    assert "vision=False" not in str(failed.value)


async def test_a_type_that_the_api_does_not_support_is_refused_before_anything_is_sent():
    """The error has the file, its type, and the supported types."""
    named = r"data\.zip.*application/zip.*PDF"
    with ChatServer([]) as server, pytest.raises(nb.NbagentError, match=named):
        await agent_at(server).run(["Look", nb.File(b"PK\3\4", name="data.zip")])
    assert not server.requests


async def test_a_conversation_keeps_its_pictures_wherever_it_continues():
    """Pictures stay after a run, in a queued run, and step by step through JSON."""
    with ChatServer(lambda _: Reply("Yes.")) as server:
        agent = agent_at(server)
        first = agent.run(["One", SQUARE])
        await first
        await agent.run(["Two", SQUARE], after=first)
        response = await agent.generate(["Three", SQUARE])
        messages = json.loads(json.dumps(response.messages))
        await agent.generate("Four", messages=messages)
        await agent.run("Five", messages=messages)
    pictures = [seen.raw.count(URL.encode()) for seen in server.requests]
    assert pictures == [1, 2, 1, 1, 1]


async def test_c190_a_message_with_files_waits_for_open_questions():
    """The message is sent after the results, in the run and in a saved history."""
    model = nb.ScriptedModel(lambda _: nb.ScriptedModel.call("ask") if not asked() else "Done.")
    ask = nb.interrupt_tool("ask", output=str)
    agent = nb.Agent(model, tools=[ask])

    def asked() -> bool:
        return any(m["role"] == "tool" for m in model.requests[-1].messages)

    run = agent.run("Go", attended=True, show=False)
    await run.settled()
    assert agent.run(["And this", SQUARE], after=run, pending="queue") is run
    run.respond(run.interrupts[0], "yes")
    await run
    assert [part["type"] for part in run.messages[3]["content"]] == ["text", "file"]

    paused = await agent.generate("Go")
    queued = await agent.generate(["And this", SQUARE], messages=paused.messages, pending="queue")
    saved = load(json.loads(json.dumps(queued.messages)))
    answer = nb.tool_response(agent.interrupts(saved)[0], "yes")
    done = await agent.generate(messages=saved, tool_responses=[answer])
    assert [part["type"] for part in done.messages[3]["content"]] == ["text", "file"]


async def test_c191_a_body_that_is_run_again_asks_about_a_picture_once():
    """The inner run is found again by the picture's digest; only its history has the picture."""
    inner = nb.Agent(nb.ScriptedModel(["A diagonal."]), name="eye")

    @nb.tool
    async def look(ctx: nb.ToolContext) -> str:
        """Look."""
        seen = (await inner.run(["What is it?", SQUARE])).text
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Go on?"))
        return seen

    model = nb.ScriptedModel([nb.ScriptedModel.call("look"), "Done."])
    run = nb.Agent(model, tools=[look]).run("Go", attended=True, show=False)
    await run.settled()
    run.restart(run.interrupts[0], data=True)
    await run
    kept = "".join(event.model_dump_json() for event in run.journal)
    assert kept.count(URL.partition(",")[2]) == 1
    assert run.calls["look"][0].output == "A diagonal."


def noise(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).integers(0, 256, (size, size), "uint8")


async def test_each_file_is_stored_once(tmp_path: Path):
    """The first event has the prompt's picture, and the tool's result has its own; the file on disk is not larger."""

    @nb.tool
    def draw() -> Any:
        """Draw."""
        return nb.File(noise(1001), name="drawn.png")

    model = nb.ScriptedModel([nb.ScriptedModel.call("draw"), "One.", "Two."])
    path = tmp_path / "runs.db"
    store = nb.SQLiteStore(path)
    agent = nb.Agent(model, tools=[draw], store=store)
    run = agent.run(["Look", noise(1000)])
    await run
    sizes = [len(event.model_dump_json()) for event in run.journal]
    large = [type(e) for e, size in zip(run.journal, sizes, strict=True) if size > 100_000]
    assert large == [RunStarted, ToolFinished]
    files = sum(len(part["data"]) for part in _files(run.messages))
    assert files > 2_500_000
    assert sum(sizes) < files * 1.01
    with closing(sqlite3.connect(path)) as db:
        (pages,), (size,) = db.execute("pragma page_count"), db.execute("pragma page_size")
    assert pages[0] * size[0] < files * 1.05
    again = await nb.open_run(run.id, agent=agent)
    assert [part["data"] for part in _files(again.messages)] == [
        part["data"] for part in _files(run.messages)
    ]


def _files(messages: Any) -> list[Any]:
    from nbagent.core.base.file_parts import files_of  # noqa: PLC0415

    return [part for message in messages for part in files_of(message)]


async def test_a_picture_is_in_memory_once_however_often_it_is_sent():
    """The encoding for a request is not cached with the message."""
    script = [Reply("Loaded."), *[Reply(calls=[("plain", {})])] * 5, Reply("Done.")]
    with ChatServer(script) as server:
        agent = agent_at(server)
        await agent.run("Load what is needed")
        picture = nb.File(noise(1500))
        gc.collect()
        tracemalloc.start()
        run = agent.run(["Look", picture])
        await run
        server.requests.clear()
        most = 1.5 * len(_files(run.messages)[0]["data"]) + 1_000_000

        def is_let_go() -> bool:
            gc.collect()
            return tracemalloc.get_traced_memory()[0] < most

        await until(
            is_let_go
        )  # the server, a thread of this process, holds the last body for a moment
        tracemalloc.stop()


async def test_files_of_a_conversation_are_bounded_in_bytes(monkeypatch):
    """A prompt above the limit is refused; a tool's result above it fails only its call."""
    monkeypatch.setattr("nbagent.core.base.file_parts.MAX_FILE_BYTES", 3 * len(SQUARE))
    monkeypatch.setattr("nbagent.core.engine.driver.MAX_FILE_BYTES", 3 * len(SQUARE))
    call = nb.ScriptedModel.call("heat", day=1)
    model = nb.ScriptedModel([[call, call], call, "Done."])
    agent = nb.Agent(model, tools=[heat])
    run = agent.run(["Look", SQUARE])
    await run
    last = run.messages[4]["content"][0]
    assert last["error"]
    assert "are left" in last["output"]
    with pytest.raises(nb.errors.UsageError, match="conversation"):
        agent.run(["More", SQUARE], after=run)


async def test_a_figure_that_is_left_open_and_returned_is_one_file():
    """A figure is drawn when its tool returns it, even outside of a notebook."""

    @nb.tool
    def draw() -> Any:
        """Draw."""
        figure = Figure()
        figure.subplots().plot([1, 2])
        return [figure, "and so on"]

    model = nb.ScriptedModel([nb.ScriptedModel.call("draw"), "Done."])
    run = nb.Agent(model, tools=[draw]).run("Go")
    await run
    finished = next(event for event in run.journal if isinstance(event, ToolFinished))
    assert finished.output == ["[image figure.png]", "and so on"]
    assert [file["name"] for file in finished.files] == ["figure.png"]
    assert finished.display is None


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_no_api_gets_a_picture_where_the_model_has_no_vision(api: str):
    """Words replace pictures of a person and of a tool, in both APIs."""
    picture = nb.File(SQUARE, name="a.png").part
    call = {"type": "tool_call", "id": "c", "name": "heat", "input": {}}
    result = {"type": "tool_result", "id": "c", "name": "heat", "output": "", "files": [picture]}
    history = load(
        [
            {"role": "user", "content": [picture]},
            {"role": "assistant", "content": [call]},
            {"role": "tool", "content": [result]},
        ]
    )
    for vision, times in ((False, 0), (True, 2)):
        model = nb.OpenAIModel("m", api=api, vision=vision)  # type: ignore[arg-type]
        body = model._api.body(Request(history), "somewhere")
        assert body.count(URL.encode()) == times
        assert (b"you cannot see it" in body) is not vision
        json.loads(body)


async def test_output_for_display_only_goes_to_no_model():
    """Only the card's row shows ``display=``."""

    @nb.tool
    def draw() -> nb.ToolResult:
        """Draw."""
        return nb.ToolResult("drawn", display=nb.File(SQUARE))

    model = nb.ScriptedModel([nb.ScriptedModel.call("draw"), "Done."])
    run = nb.Agent(model, tools=[draw]).run("Go")
    await run
    assert run.messages[2]["content"][0]["output"] == "drawn"
    assert not _files(run.messages)
