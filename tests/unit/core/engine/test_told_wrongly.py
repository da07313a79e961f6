"""Values of a wrong type from models and servers: the run fails or the value is left out; the journal is readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelError
from nbagent.core.base.model import (
    Citation,
    Finished,
    HostedCall,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from nbagent.models.openai.responses import ResponsesParser

PICTURE: dict[str, Any] = {"type": "file", "media_type": "image/png", "data": "AAAA"}


def hosted(**other: Any) -> HostedCall:
    return HostedCall(**{"id": "1", "name": "web_search", "input": {}, "status": "done"} | other)


WRONG: dict[str, Any] = {
    "text": TextDelta(5),  # type: ignore[arg-type]
    "text in a list": TextDelta(["a"]),  # type: ignore[arg-type]
    "reasoning": ReasoningDelta({"a": 1}),  # type: ignore[arg-type]
    "notice": Notice(None),  # type: ignore[arg-type]
    "a call's name": ToolCallDelta(0, "{}", "c", 5),  # type: ignore[arg-type]
    "a call's name that is a list": ToolCallDelta(0, "{}", "c", ["x"]),  # type: ignore[arg-type]
    "a call's id": ToolCallDelta(0, "{}", 7, "x"),  # type: ignore[arg-type]
    "a call's arguments": ToolCallDelta(0, {"a": 1}, "c", "x"),  # type: ignore[arg-type]
    "a title": Citation(5, "https://a.example/"),  # type: ignore[arg-type]
    "an address": Citation("a", ["x"]),  # type: ignore[arg-type]
    "a hosted name": hosted(name=5),
    "a hosted output": hosted(output={"a": 1}),
    "a source's address": hosted(sources=[{"url": {"a": 1}}]),
    "a source": hosted(sources=["x"]),
    "a file's type": hosted(files=[PICTURE | {"media_type": 'image/svg+xml"><script>'}]),
    "a file's data": hosted(files=[PICTURE | {"data": 7}]),
    "a file without data": hosted(files=[{"type": "file"}]),
    "a status": hosted(status="cancelled"),
    "the reason of the end": Finished(5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("told", WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_event_of_a_model_fails_the_run(told: Any, tmp_path: Path) -> None:
    """The error names the mistake of the model, and the stored run can be opened again."""
    end = () if isinstance(told, Finished) else (Finished("stop"),)
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel([[told, *end]]), store=store)
    run = agent.run("go", attended=False)
    with pytest.raises(ModelError, match=r"[Tt]he model (sent|reported)"):
        await run
    opened = await nb.open_run(run.id, agent=agent, store=store)
    assert opened.status == "failed"


UNUSABLE: dict[str, tuple[list[Any], str]] = {
    "nothing": ([], "gave no answer: no text and no call"),
    "white space": (["\n "], "gave no answer: no text and no call"),
    "only reasoning": ([ReasoningDelta("hm")], "gave no answer: no text and no call"),
    "arguments without a name": ([ToolCallDelta(0, '{"x":1}', "c")], "a call has no name"),
    "arguments apart from their call": (
        [ToolCallDelta(0, "", "c", "work"), ToolCallDelta(1, '{"x":1}', None, "work")],
        "the arguments of a call of 'work' arrived apart from it",
    ),
    "pieces that do not fit": (
        [ToolCallDelta(0, '{"x":1}', "c", "work"), ToolCallDelta(1, '{"y"', "c", "work")],
        "the pieces of the call of 'work' do not fit together",
    ),
    "a call with an id and without": (
        [ToolCallDelta(0, "{}", "c", "work"), ToolCallDelta(1, "{}", None, "work")],
        "a call of 'work' arrived with an id and without",
    ),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_c496_an_answer_that_is_none_fails_the_run(what: str) -> None:
    """Nothing runs, the error says why, and a retry asks again."""
    told, says = UNUSABLE[what]
    ran: list[int] = []

    def work(x: int = 0) -> None:
        """Work."""
        ran.append(x)

    run = nb.Agent(nb.ScriptedModel([told, "Done."]), tools=[work]).run("go", attended=False)
    with pytest.raises(ModelError, match=says):
        await run
    assert (run.status, ran) == ("failed", [])
    run.retry()
    assert (await run).text == "Done."


SEARCH = {"type": "web_search_call", "status": "completed"}
SERVERS: dict[str, Any] = {
    "an address": {
        **SEARCH,
        "action": {"sources": [{"url": {"a": 1}}, {"url": "https://a.example"}]},
    },
    "a name of a file": {"type": "file_search_call", "results": [{"filename": 7}]},
    "a picture": {"type": "image_generation_call", "result": 7},
    "a picture's type": {
        "type": "image_generation_call",
        "result": "AAAA",
        "output_format": 'svg+xml"><script>',
    },
    "an output": {"type": "mcp_call", "server_label": 1, "name": 2, "output": {"a": 1}},
    "a picture that is a page": {
        "type": "code_interpreter_call",
        "outputs": [{"type": "image", "url": "data:text/html;base64,AAAA"}],
    },
    "a note": {
        "type": "message",
        "content": [
            {"type": "output_text", "text": "a", "annotations": [{"url": ["x"], "title": 5}]}
        ],
    },
}


@pytest.mark.parametrize("item", SERVERS.values(), ids=SERVERS.keys())
def test_a_wrong_part_of_a_hosted_call_is_left_out(item: dict[str, Any]) -> None:
    """Only the person sees the part, so the answer is not lost; files are pictures that pages can show."""
    parser = ResponsesParser("h")
    for delta in parser.chunk({"output": [item], "status": "completed"}):
        if isinstance(delta, HostedCall):
            assert delta.output is None or isinstance(delta.output, str)
            assert all(isinstance(each["url"], str) for each in delta.sources)
            assert all(each["media_type"] == "image/png" and each["data"] for each in delta.files)
        if isinstance(delta, Citation):
            assert [type(said) for said in delta] == [str, str]
    assert parser.finished() is not None


async def test_sources_beyond_the_bound_are_left_out_visibly() -> None:
    """The turn has one note about the dropped sources."""
    many = [Citation(str(n), f"https://x.example/{n}") for n in range(502)]
    run = nb.Agent(nb.ScriptedModel([[*many, "Done.", Finished("stop")]])).run("Go")
    await run
    [event] = [event for event in run.journal if event.type == "model_responded"]
    assert len(event.citations) == 500
    assert event.notes == ("Only the first 500 sources of this answer are stored.",)
