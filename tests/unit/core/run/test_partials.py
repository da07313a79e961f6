"""``run.partials()``: the answer as received so far."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.model import Discarded, Finished, ReasoningDelta, TextDelta
from nbagent.core.run.partial_answer import PartialAnswer

slow, call = nb.ScriptedModel.slow, nb.ScriptedModel.call


class City(BaseModel):
    name: str
    people: int


async def partials(script: list[Any], **options: Any) -> list[Any]:
    return [p async for p in nb.Agent(nb.ScriptedModel(script), **options).run("go").partials()]


async def test_a_partial_object_grows_field_by_field_and_is_complete_at_the_end():
    """Each partial object has more than the one before, and none is repeated."""
    text = '{"name": "Rome", "people": 28}'
    found = await partials([slow(text, pieces=30)], output_type=City)
    assert found[0] == {}
    assert {"name": "Ro"} in found
    assert found[-1] == {"name": "Rome", "people": 28}
    assert all(one != other for one, other in pairwise(found))


async def test_a_partial_list_is_unwrapped():
    """Partials are lists, without the wrapping object."""
    text = '{"value": [{"name": "Rome", "people": 1}, {"name": "Milan", "people": 2}]}'
    found = await partials([slow(text, pieces=40)], output_type=list[City])
    assert all(isinstance(each, list) for each in found)
    assert [each["name"] for each in found[-1]] == ["Rome", "Milan"]


async def test_a_partial_text_is_unchanged():
    """Without an output type, and with ``str``."""
    for type_ in (None, str):
        found = await partials([slow("hello", pieces=5)], output_type=type_)
        assert found[-1] == "hello"
        assert all("hello".startswith(each) for each in found)


async def test_a_discarded_answer_starts_again_empty():
    """An answer is discarded if it is invalid, comes with calls, or breaks off; or if it was reasoning."""
    bad, good = '{"name": "Bad"}', '{"name": "Good", "people": 1}'
    thought = ReasoningDelta('{"name": "Bad"', replaces_text=True)
    broken = [TextDelta('{"na'), Discarded("broke"), TextDelta(thought.text), thought, good]
    script = [["Looking …", call("look")], bad, broken]

    def look() -> str:
        return "seen"

    found = await partials(script, output_type=City, tools=[look])
    assert found[-1] == {"name": "Good", "people": 1}
    assert all(each.get("name", "Good") in ("Bad", "Good") for each in found)


async def test_a_run_that_fails_raises_in_the_loop_over_partials():
    """The loop raises the error; for an ended run the loop returns the answer."""
    with pytest.raises(nb.errors.ModelError):
        await partials(["soup"], output_type=City, output_retries=0)
    run = nb.Agent(nb.ScriptedModel(['{"name": "Rome", "people": 1}']), output_type=City).run("go")
    await run
    assert [p async for p in run.partials()] == [{"name": "Rome", "people": 1}]


def test_reading_a_long_answer_is_not_quadratic():
    """The whole text is read some dozens of times, whatever the number of pieces."""
    growing = PartialAnswer("json")
    read = 0
    for number in range(20_000):
        piece = '{"rows": [' if number == 0 else '{"name": "some text"}, '
        read += sum(1 for _ in growing.after(TextDelta(piece)))
    assert read < 1_000


class Deltas:
    """A model whose stream is a plain asynchronous iterator, with nothing to close."""

    name = "deltas"

    def __init__(self) -> None:
        self.left: list[Any] = []

    def stream(self, _request: Any) -> Any:
        self.left = [TextDelta("well "), TextDelta("done"), Finished()]
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


async def test_a_model_may_stream_with_any_asynchronous_iterator(tmp_path: Any) -> None:
    """``Model.stream`` returns an ``AsyncIterator``, which need not be a generator; a recording of it too."""
    recorded = nb.RecordedModel(tmp_path / "answers.json", Deltas(), mode="record")
    for model in (Deltas(), recorded):
        assert (await nb.Agent(model).run("go", show=False)).text == "well done"
