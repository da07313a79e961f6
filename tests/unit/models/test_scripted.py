"""The scripted model plays its script, and reports mistakes in a test."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from nbagent.core.base.errors import ModelError, UsageError
from nbagent.core.base.messages import text_of, user
from nbagent.core.base.model import (
    Discarded,
    Finished,
    ModelDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from nbagent.models.scripted import ScriptedCall, ScriptedModel

CALL = ScriptedModel.call


async def ask(model: ScriptedModel, prompt: str = "go") -> list[ModelDelta]:
    async with aclosing(model.stream(Request([user(prompt)]))) as deltas:
        return [delta async for delta in deltas]


STEPS = {
    "a text": ("hi", [TextDelta("hi")]),
    "a call": (CALL("f", a=1), [ToolCallDelta(0, '{"a":1}', "call_1", "f")]),
    "a call with an id": (CALL("f", id="x"), [ToolCallDelta(0, "{}", "x", "f")]),
    "a call without one": (CALL("f", id=""), [ToolCallDelta(0, "{}", "", "f")]),
    "arguments that are no JSON": (
        ScriptedCall("f", raw="[1"),
        [ToolCallDelta(0, "[1", "call_1", "f")],
    ),
    "several": (
        ["hi", CALL("f"), CALL("g")],
        [
            TextDelta("hi"),
            ToolCallDelta(0, "{}", "call_1", "f"),
            ToolCallDelta(1, "{}", "call_2", "g"),
        ],
    ),
    "slowly": (
        ScriptedModel.slow("abcde", pieces=2),
        [TextDelta("abc"), TextDelta("de")],
    ),
    "an attempt that broke": (
        [CALL("f"), Discarded("cut"), CALL("g")],
        [
            ToolCallDelta(0, "{}", "call_1", "f"),
            Discarded("cut"),
            ToolCallDelta(0, "{}", "call_2", "g"),
        ],
    ),
    "a function": (lambda messages: text_of(messages[-1]) * 2, [TextDelta("gogo")]),
}


@pytest.mark.parametrize("kind", STEPS)
async def test_a_step_is_played_as_written(kind: str) -> None:
    """Each kind of step becomes the deltas that a real model would send, then Finished."""
    step, expected = STEPS[kind]
    with ScriptedModel([step], usage=Usage(1, 2)) as model:
        deltas = await ask(model)
    called = any(isinstance(delta, ToolCallDelta) for delta in expected)
    reason = "tool_calls" if called else "stop"
    assert deltas == [*expected, Finished(reason, Usage(1, 2), "scripted")]


async def test_an_async_function_and_a_custom_finish_can_be_steps() -> None:
    """A step may wait, and may set the finish."""

    async def step(_: object) -> list[object]:
        return ["cut off", Finished("length", Usage(9, 9))]

    assert await ask(ScriptedModel([step])) == [
        TextDelta("cut off"),
        Finished("length", Usage(9, 9)),
    ]


async def test_an_exception_is_raised_at_its_step() -> None:
    """Deltas before the error are streamed."""
    seen = []
    stream = ScriptedModel([["half", ModelError("boom")]]).stream(Request([user("go")]))
    async with aclosing(stream) as deltas:
        seen.append(await anext(deltas))
        with pytest.raises(ModelError, match="boom"):
            await anext(deltas)
    assert seen == [TextDelta("half")]


async def test_one_function_answers_every_request() -> None:
    """A model for endless loops, without unused steps."""
    with ScriptedModel(lambda _: CALL("f")) as model:
        for number in (1, 2, 3):
            assert (await ask(model))[0] == ToolCallDelta(0, "{}", f"call_{number}", "f")
    assert len(model.requests) == 3


async def test_too_few_steps_say_so() -> None:
    """A request beyond the script's end raises an error instead of hanging."""
    model = ScriptedModel(["hi"])
    await ask(model)
    with pytest.raises(ModelError, match="no step for request 2"):
        await ask(model)


async def test_unused_steps_are_an_error() -> None:
    """If a run does not use the whole script, the test proves less than it claims."""
    model = ScriptedModel(["used", "left", "over"])
    await ask(model)
    with pytest.raises(UsageError, match=r"2 steps .* not used.*'left'"):
        model.check()
    with pytest.raises(UsageError, match="not used"), model:
        pass


def test_an_error_inside_is_raised_instead_of_unused_steps() -> None:
    """The first error is raised."""
    with pytest.raises(KeyError), ScriptedModel(["left"]):
        raise KeyError


async def test_an_unknown_kind_of_step_is_refused() -> None:
    """The error lists the kinds of steps."""
    with pytest.raises(UsageError, match="not a step of a ScriptedModel"):
        await ask(ScriptedModel([42]))


async def test_two_tools_with_the_same_name_are_refused() -> None:
    """A server refuses them too."""
    tool = ToolSpec("f", "", {})
    stream = ScriptedModel(["hi"]).stream(Request([user("go")], tools=[tool, tool]))
    async with aclosing(stream) as deltas:
        with pytest.raises(ModelError, match="same name"):
            await anext(deltas)
